//! Who came and went, for the application's back end: users that connected or are gone, channels that are occupied or
//! vacated. It decides what is told and when. `crates/server` sends it.
//!
//! ```text
//!  first comes, last leaves ──► waits ──after `delay`──► has lasted ──take──► Batch
//!                                │
//!                                └── the opposite within `delay`: nothing is told
//! ```
//!
//! **Hysteresis.** A change is told only after it has lasted for `delay`. A user that reconnects sooner was never gone, and
//! a channel that empties and fills again sooner stayed occupied.
//!
//! **Order.** The changes of one key (a user or a channel) alternate strictly, and are taken in the order in which they
//! happened. When nothing changes any more, the last change that was taken says the truth. After an overflow both hold
//! only from then on.
//!
//! **Bound**: `count_max` changes wait, for `delay` or to be taken. When a further one comes, the oldest is dropped, because
//! later ones say more about now. If the oldest has not lasted yet, the new one is dropped. Dropped changes are counted,
//! and the next batch says how many, before its changes.
//!
//! Callers report the changes of one key in their order: under the lock under which they count. Then the lock here is held
//! for a few operations on maps.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_telemetry::panics::lock;
use tidings_types::ChannelName;
use tokio::time::Instant;

/// What came or went.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Key {
    /// A user: it has a connection, or has none.
    User(Arc<str>),
    /// A channel: it has a subscriber, or has none.
    Channel(ChannelName),
}

impl Key {
    /// The user or the channel's name.
    pub fn name(&self) -> &str {
        match self {
            Self::User(user) => user,
            Self::Channel(name) => name.as_str(),
        }
    }
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What changed.
    pub key: Key,
    /// Whether it came: connected, occupied. Else it went: gone, vacated.
    pub is_here: bool,
    /// When it did.
    pub since: Instant,
}

/// What is to be told next, in this order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// It is the first one: nothing was told before.
    pub is_first: bool,
    /// So many changes were dropped since the batch before.
    pub lost: u64,
    /// The changes.
    pub changes: Vec<Change>,
}

impl Batch {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        !self.is_first && self.lost == 0 && self.changes.is_empty()
    }
}

/// What is told, and its bounds.
#[derive(Debug, Clone)]
pub struct ChangesConfig {
    /// Whether users are told of; channels are by their namespace.
    pub users: bool,
    /// How long a change must last.
    pub delay: Duration,
    /// Changes that may wait.
    pub count_max: usize,
}

/// The changes of all users and channels, shared by the edge loops and whoever tells the back end.
#[derive(Debug)]
pub struct Changes {
    users: bool,
    core: Mutex<Core>,
}

impl Changes {
    /// Nobody is here yet.
    pub fn new(config: &ChangesConfig) -> Self {
        Self { users: config.users, core: Mutex::new(Core::new(config.delay, config.count_max)) }
    }

    /// A user's first connection has come, or its last one is gone. Anonymous clients are nobody that could be told of.
    pub fn user(&self, user: &str, is_here: bool) {
        if self.users && !user.is_empty() {
            self.changed(Key::User(user.into()), is_here);
        }
    }

    /// A channel's first subscriber has come, or its last one is gone.
    pub fn channel(&self, name: &ChannelName, is_here: bool) {
        self.changed(Key::Channel(name.clone()), is_here);
    }

    fn changed(&self, key: Key, is_here: bool) {
        let mut core = lock(&self.core);
        core.changed(key, is_here, Instant::now()); // Read under the lock, so that times never go back.
    }

    /// Takes what is to be told now: at most `count_max` changes, with names of at most `bytes_max` (but at least one
    /// change).
    pub fn take(&self, count_max: usize, bytes_max: usize) -> Batch {
        lock(&self.core).take(count_max, bytes_max, Instant::now())
    }

    /// Changes that wait.
    pub fn backlog(&self) -> usize {
        lock(&self.core).waiting.len()
    }
}

/// See the module: without clock and lock. Each call costs a few operations on maps, however much waits.
///
/// Invariant: `newest` has the number of each key's newest change in `waiting`, unless that change has lasted for certain.
/// Numbers are in the order of time.
#[derive(Debug)]
struct Core {
    delay: Duration,
    count_max: usize,
    waiting: BTreeMap<u64, Change>,
    newest: HashMap<Key, u64>,
    next_number: u64,
    is_first: bool,
    lost: u64,
}

impl Core {
    fn new(delay: Duration, count_max: usize) -> Self {
        let (waiting, newest) = Default::default();
        Self { delay, count_max, waiting, newest, next_number: 0, is_first: true, lost: 0 }
    }

    fn has_lasted(&self, change: &Change, now: Instant) -> bool {
        change.since + self.delay <= now
    }

    fn changed(&mut self, key: Key, is_here: bool, now: Instant) {
        if let Some(number) = self.newest.get(&key)
            && !self.has_lasted(&self.waiting[number], now)
        {
            let undone = self.waiting.remove(number);
            debug_assert!(undone.is_some_and(|undone| undone.is_here != is_here), "changes of a key alternate");
            self.newest.remove(&key); // An older change of the key has lasted: nothing undoes it.
            return;
        }
        if self.waiting.len() >= self.count_max {
            self.lost += 1;
            if self.pop_lasted(now).is_none() {
                return;
            }
        }
        self.newest.insert(key.clone(), self.next_number);
        self.waiting.insert(self.next_number, Change { key, is_here, since: now });
        self.next_number += 1;
    }

    /// The oldest change, if it has lasted.
    fn pop_lasted(&mut self, now: Instant) -> Option<Change> {
        let (&number, oldest) = self.waiting.first_key_value()?;
        if !self.has_lasted(oldest, now) {
            return None;
        }
        let (_, change) = self.waiting.pop_first()?;
        if self.newest.get(&change.key) == Some(&number) {
            self.newest.remove(&change.key);
        }
        Some(change)
    }

    fn take(&mut self, count_max: usize, bytes_max: usize, now: Instant) -> Batch {
        let (is_first, lost) = (std::mem::take(&mut self.is_first), std::mem::take(&mut self.lost));
        let (mut changes, mut bytes) = (Vec::new(), 0);
        while changes.len() < count_max
            && let Some((_, next)) = self.waiting.first_key_value()
        {
            bytes += next.key.name().len();
            if bytes > bytes_max && !changes.is_empty() {
                break;
            }
            let Some(change) = self.pop_lasted(now) else { break };
            changes.push(change);
        }
        if self.waiting.is_empty() {
            self.newest = HashMap::new(); // Frees the memory of a burst.
        }
        Batch { is_first, lost, changes }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DELAY: Duration = Duration::from_secs(5);
    const ALL: usize = usize::MAX;

    fn user(name: &str) -> Key {
        Key::User(name.into())
    }

    fn core(count_max: usize) -> (Core, Instant) {
        let mut core = Core::new(DELAY, count_max);
        let now = Instant::now();
        assert!(core.take(ALL, ALL, now).is_first);
        (core, now)
    }

    fn come(core: &mut Core, names: &[&str], now: Instant) {
        names.iter().for_each(|name| core.changed(user(name), true, now));
    }

    fn told(batch: &Batch) -> Vec<(&str, bool)> {
        batch.changes.iter().map(|change| (change.key.name(), change.is_here)).collect()
    }

    #[test]
    fn a_change_is_told_when_it_has_lasted() {
        let (mut core, start) = core(10);
        core.changed(user("ada"), true, start);
        assert!(core.take(ALL, ALL, start + DELAY - Duration::from_millis(1)).is_empty());
        let batch = core.take(ALL, ALL, start + DELAY);
        assert_eq!((told(&batch), batch.changes[0].since), (vec![("ada", true)], start));
        assert!(core.take(ALL, ALL, start + 2 * DELAY).is_empty(), "once");
    }

    #[test]
    fn whoever_is_back_in_time_was_never_gone() {
        let (mut core, start) = core(10);
        core.changed(user("ada"), true, start);
        core.take(ALL, ALL, start + DELAY);
        let gone = start + DELAY;
        core.changed(user("ada"), false, gone);
        core.changed(user("ada"), true, gone + DELAY - Duration::from_millis(1));
        assert!(core.take(ALL, ALL, gone + 10 * DELAY).is_empty());
        core.changed(user("ada"), false, gone + 10 * DELAY);
        core.changed(user("ada"), true, gone + 11 * DELAY);
        let both = core.take(ALL, ALL, gone + 12 * DELAY);
        assert_eq!(told(&both), [("ada", false), ("ada", true)], "not in time");
    }

    #[test]
    fn a_batch_has_its_bounds() {
        let (mut core, start) = core(10);
        come(&mut core, &["a", "bb", "a-long-name", "c"], start);
        let mut next = |count_max, bytes_max| core.take(count_max, bytes_max, start + DELAY).changes.len();
        assert_eq!([next(1, ALL), next(ALL, 3), next(ALL, 3), next(ALL, 3), next(ALL, 3)], [1, 1, 1, 1, 0]);
    }

    #[test]
    fn without_room_the_oldest_is_dropped_and_this_is_told_first() {
        let (mut core, start) = core(2);
        come(&mut core, &["a", "b", "c"], start);
        let batch = core.take(1, ALL, start + DELAY);
        assert_eq!((told(&batch), batch.lost), (vec![("a", true)], 1), "none had lasted: the newest was dropped");
        come(&mut core, &["d", "e"], start + DELAY);
        let batch = core.take(ALL, ALL, start + 2 * DELAY);
        assert_eq!((told(&batch), batch.lost), (vec![("d", true), ("e", true)], 1), "b was the oldest");
    }

    proptest! {
        /// Whatever comes and goes: the changes of a key alternate, each has lasted, bounds hold, nothing is lost that is
        /// not counted, and in the end the receiver knows the truth. After an overflow, of what is told from then on.
        #[test]
        fn what_is_told_alternates_and_ends_with_the_truth(
            count_max in 1..8_usize,
            steps in prop::collection::vec((0..4_usize, 0..7_000_u64, any::<bool>()), 0..200),
        ) {
            let (mut core, mut now) = core(count_max);
            let names = ["a", "b", "c", "d"];
            let mut truth = [false; 4];
            let mut known: HashMap<String, bool> = HashMap::new();
            let mut has_lost = false;
            let rest = [(0, 3 * DELAY.as_millis() as u64, true)].into_iter().cycle().take(8); // A quiet end.
            let quiet_at = steps.len();
            for (index, (who, pause, is_taken)) in steps.into_iter().chain(rest).enumerate() {
                if index < quiet_at {
                    truth[who] = !truth[who];
                    core.changed(user(names[who]), truth[who], now);
                }
                now += Duration::from_millis(pause);
                prop_assert!(core.waiting.len() <= count_max);
                let newest: HashMap<_, _> = core.waiting.iter().map(|(&at, change)| (change.key.clone(), at)).collect();
                prop_assert!(core.newest.iter().all(|(key, at)| newest.get(key) == Some(at)), "{core:?}");
                let batch = if is_taken { core.take(2, ALL, now) } else { Batch::default() };
                if batch.lost > 0 {
                    known.clear();
                    has_lost = true;
                }
                for change in batch.changes {
                    prop_assert!(change.since + DELAY <= now);
                    let before = known.insert(change.key.name().to_owned(), change.is_here);
                    let before = before.or((!has_lost).then_some(false));
                    prop_assert_ne!(before, Some(change.is_here), "it alternates");
                }
            }
            prop_assert!(core.waiting.is_empty());
            for (name, is_here) in names.iter().zip(truth) {
                let last = known.get(*name).copied().or((!has_lost).then_some(false));
                prop_assert!(last.is_none_or(|last| last == is_here), "{name} is {is_here}");
            }
        }
    }
}
