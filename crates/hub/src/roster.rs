//! How many channels there are, when each is looked at next, and which of them go first when there is no room for another one.
//!
//! ```text
//!                                  its time is over ──► removed
//!   new ──► soon ──look──► at a time ──look──► idle ──┤
//!            ▲        └──► nowhere                    └─ no room ──► removed
//!            └── published in, left by its last reader, emptied …
//! ```
//!
//! A channel stands in one [`Place`]. What happens in it moves it, under its lock; what only postpones its end does not. Such a
//! channel is looked at in vain once, and stands at its later time then. So time costs what is due, not what exists.
//!
//! Memory: 96 bytes for each channel (`CHANNEL_BYTES` has them). A namespace has its entry until the end, and there are no more of
//! them than the configuration has.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidings_protocol::Namespaces;
use tidings_telemetry::panics::lock;
use tidings_types::{ChannelName, Timestamp};

use crate::sum::Sum;

/// Where a channel stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// Time alone changes nothing of it.
    Nowhere,
    /// It is looked at then.
    Look(Timestamp),
    /// It has no reader, and nothing but its position, since then. It may be removed if there is no room.
    Idle(Timestamp),
}

impl Place {
    /// It is looked at by the next sweep.
    pub(crate) const SOON: Self = Self::Look(Timestamp(0));
}

/// What allows a new channel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Admission {
    pub(crate) is_durable: bool,
    /// The most channels in memory. Durable ones do not count.
    pub(crate) memory_max: usize,
    /// The most channels of its namespace.
    pub(crate) namespace_max: usize,
    /// How long it may be idle.
    pub(crate) position_ttl: Duration,
}

/// Of what there is as much as may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    Namespace,
    Memory,
}

/// All channels, and what they hold together.
#[derive(Debug, Default)]
pub(crate) struct Roster {
    lists: Mutex<Lists>,
    /// Subscriptions of all channels.
    pub(crate) subscriptions: Arc<Sum>,
    /// Bytes of the histories of memory channels.
    pub(crate) history_bytes: Arc<Sum>,
}

/// Invariant: a channel stands in at most one of the sets, as its [`Place`] says.
#[derive(Debug, Default)]
struct Lists {
    count: usize,
    memory_count: usize,
    looks: BTreeSet<(Timestamp, ChannelName)>,
    /// By the namespace's name; empty for those without one.
    namespaces: HashMap<Box<str>, OfNamespace>,
}

#[derive(Debug)]
struct OfNamespace {
    count: usize,
    position_ttl: Duration,
    idle: BTreeSet<(Timestamp, ChannelName)>,
}

impl Roster {
    /// Counts a new channel, which stands at [`Place::SOON`].
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn enter(&self, name: &ChannelName, admission: &Admission) -> Result<(), Full> {
        let Admission { is_durable, position_ttl, .. } = *admission;
        let lists = &mut *lock(&self.lists);
        lists.check(name, admission)?;
        let namespace = Namespaces::namespace_of(name);
        if !lists.namespaces.contains_key(namespace) {
            lists.namespaces.insert(namespace.into(), OfNamespace { count: 0, position_ttl, idle: BTreeSet::new() });
        }
        lists.of(name).count += 1;
        lists.count += 1;
        lists.memory_count += usize::from(!is_durable);
        lists.put(name, Place::SOON);
        Ok(())
    }

    /// Whether there is room for another channel.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn check(&self, name: &ChannelName, admission: &Admission) -> Result<(), Full> {
        lock(&self.lists).check(name, admission)
    }

    /// Counts a channel out that stands nowhere.
    pub(crate) fn leave(&self, name: &ChannelName, is_durable: bool) {
        let mut lists = lock(&self.lists);
        lists.of(name).count -= 1;
        lists.count -= 1;
        lists.memory_count -= usize::from(!is_durable);
    }

    /// Moves a channel, which is locked.
    pub(crate) fn put(&self, name: &ChannelName, place: &mut Place, to: Place) {
        if *place != to {
            let mut lists = lock(&self.lists);
            lists.take(name, *place);
            lists.put(name, to);
            *place = to;
        }
    }

    /// How many channels there are.
    pub(crate) fn count(&self) -> usize {
        lock(&self.lists).count
    }

    /// At most `count_max` of the channels that are to be looked at. A look moves them.
    pub(crate) fn due(&self, now: Timestamp, count_max: usize) -> Vec<ChannelName> {
        let lists = lock(&self.lists);
        let looks = lists.looks.iter().take_while(|(at, _)| *at <= now);
        let idle = lists.namespaces.values().flat_map(|of| {
            let is_over = move |since: Timestamp| now.saturating_since(since) >= of.position_ttl;
            of.idle.iter().take_while(move |(since, _)| is_over(*since))
        });
        looks.chain(idle).take(count_max).map(|(_, name)| name.clone()).collect()
    }

    /// The idle channel that goes if there is no room for `name`: of the namespaces that have one, that with the most channels gives
    /// the one that was idle for longest. A full namespace makes room itself.
    pub(crate) fn idlest(&self, full: Full, name: &ChannelName) -> Option<ChannelName> {
        let lists = lock(&self.lists);
        let found = match full {
            Full::Namespace => lists.namespaces.get(Namespaces::namespace_of(name)).and_then(OfNamespace::idlest),
            Full::Memory => lists.namespaces.values().filter_map(OfNamespace::idlest).max_by_key(|(rank, _)| *rank),
        };
        found.map(|(_, name)| name.clone())
    }
}

impl OfNamespace {
    /// The channel that was idle for longest. That with the highest rank of all namespaces goes first.
    fn idlest(&self) -> Option<((usize, Reverse<Timestamp>), &ChannelName)> {
        self.idle.first().map(|(since, name)| ((self.count, Reverse(*since)), name))
    }
}

impl Lists {
    fn check(&self, name: &ChannelName, admission: &Admission) -> Result<(), Full> {
        let in_namespace = self.namespaces.get(Namespaces::namespace_of(name)).map_or(0, |of| of.count);
        if in_namespace >= admission.namespace_max {
            return Err(Full::Namespace);
        }
        if !admission.is_durable && self.memory_count >= admission.memory_max {
            return Err(Full::Memory);
        }
        Ok(())
    }

    /// The namespace of a channel that has entered.
    fn of(&mut self, name: &ChannelName) -> &mut OfNamespace {
        self.namespaces.get_mut(Namespaces::namespace_of(name)).expect("a channel of it has entered")
    }

    fn put(&mut self, name: &ChannelName, to: Place) {
        let is_new = match to {
            Place::Nowhere => return,
            Place::Look(at) => self.looks.insert((at, name.clone())),
            Place::Idle(since) => self.of(name).idle.insert((since, name.clone())),
        };
        debug_assert!(is_new, "{name} stands in one place");
    }

    fn take(&mut self, name: &ChannelName, from: Place) {
        let was_there = match from {
            Place::Nowhere => return,
            Place::Look(at) => self.looks.remove(&(at, name.clone())),
            Place::Idle(since) => self.of(name).idle.remove(&(since, name.clone())),
        };
        debug_assert!(was_there, "{name} stands where it is looked for");
    }
}

#[cfg(test)]
impl Roster {
    /// Where each channel stands that stands anywhere.
    pub(crate) fn places(&self) -> Vec<(ChannelName, Place)> {
        let lists = lock(&self.lists);
        let looks = lists.looks.iter().map(|(at, name)| (name.clone(), Place::Look(*at)));
        let idle = lists.namespaces.values().flat_map(|of| &of.idle);
        let mut places: Vec<_> = looks.chain(idle.map(|(since, name)| (name.clone(), Place::Idle(*since)))).collect();
        places.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        places
    }

    /// How many channels of each namespace there are, and how many in memory.
    pub(crate) fn counted(&self) -> (std::collections::BTreeMap<String, usize>, usize) {
        let lists = lock(&self.lists);
        let with_channels = lists.namespaces.iter().filter(|(_, of)| of.count > 0);
        (with_channels.map(|(name, of)| (name.to_string(), of.count)).collect(), lists.memory_count)
    }
}
