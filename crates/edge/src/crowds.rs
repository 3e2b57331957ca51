//! Clients that publish in channels whose readers cannot keep up.
//!
//! A client publishes as fast as it likes, until a loop or many of the readers may soon be overtaken
//! ([`Channel::is_crowded`]). From then on its publications wait: those of all clients of this loop together fill what is kept for
//! slow readers once in [`FILL_TIME`], or go as fast as the readers take them. If that is too fast for them, it takes twice as
//! long after a second, and four times after another one. Fair shares decide whose is next
//! ([`shares`](crate::shares)), and who has most waiting makes room when too much waits ([`Crowds::make_room`]).
//!
//! Bound: an entry for each connection that waits, and one for each channel in which somebody waits, or has just waited.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings_buffer::Line;
use tidings_hub::Channel;
use tidings_types::ChannelName;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::shares::{Asker, Askers};
use crate::stint::Stint;

/// A reader that takes in four times this time what is kept for slow readers is not overtaken by clients.
const FILL_TIME: Duration = Duration::from_secs(10);
/// A channel that is crowded for so long is filled more slowly.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is slowed down to the half.
const SLOWER_MAX: u32 = 2;

/// See the module header.
///
/// Invariant: `order` has each crowd once, under its time; `networks` has how many of each network wait, those that are gone
/// among them.
#[derive(Debug, Default)]
pub(crate) struct Crowds {
    crowds: HashMap<ChannelName, Crowd>,
    order: BTreeSet<(Instant, ChannelName)>,
    networks: HashMap<Option<IpAddr>, usize>,
}

#[derive(Debug)]
struct Crowd {
    channel: Arc<Channel>,
    waiting: Askers<Waiter>,
    /// Since when it is crowded.
    since: Instant,
}

#[derive(Debug)]
struct Waiter {
    turn: oneshot::Sender<()>,
    network: Option<IpAddr>,
    /// How long nobody else publishes then.
    time: Duration,
}

impl Crowds {
    /// A client wants to publish so many bytes in a channel that is crowded, or was a moment ago. It must wait until this is
    /// received; if it never is, it has made room for others.
    pub(crate) fn ask(
        &mut self,
        channel: Arc<Channel>,
        bytes: usize,
        asker: &Asker,
        now: Instant,
    ) -> oneshot::Receiver<()> {
        let (turn, given) = oneshot::channel();
        let waiter = Waiter { turn, network: asker.network, time: FILL_TIME.mul_f64(channel.part(bytes)) };
        let name = channel.name().clone();
        let crowd = self.crowds.entry(name.clone()).or_insert_with(|| {
            self.order.insert((now, name));
            Crowd { channel, waiting: Askers::default(), since: now }
        });
        crowd.waiting.push(asker.path(), waiter);
        *self.networks.entry(asker.network).or_default() += 1;
        given
    }

    /// The channel with this name, if others wait there: then everybody does, crowded or not.
    pub(crate) fn channel(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.crowds.get(name).map(|crowd| crowd.channel.clone())
    }

    /// When [`Crowds::give`] is due.
    pub(crate) fn next_due_at(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Lets those publish whose time has come, as many as a stint serves.
    pub(crate) fn give(&mut self, now: Instant) {
        let mut stint = Stint::begin();
        while self.order.first().is_some_and(|(at, _)| *at <= now)
            && stint.goes_on()
            && let Some((_, name)) = self.order.pop_first()
        {
            match self.give_in(&name, now) {
                Some(pause) => _ = self.order.insert((now + pause, name)),
                None => _ = self.crowds.remove(&name),
            }
        }
        if self.crowds.is_empty() {
            *self = Self::default(); // Frees the memory of earlier crowds.
        }
    }

    /// Lets the next one publish in the channel. Returns how long the others wait; `None`: there is nobody.
    fn give_in(&mut self, name: &ChannelName, now: Instant) -> Option<Duration> {
        let crowd = self.crowds.get_mut(name)?;
        while let Some(Waiter { turn, network, time }) = crowd.waiting.pop() {
            leave(&mut self.networks, network);
            if turn.send(()).is_ok() {
                if !crowd.channel.is_crowded() {
                    crowd.since = now;
                    return Some(Duration::ZERO);
                }
                let seconds = now.duration_since(crowd.since).div_duration_f64(PATIENCE) as u32;
                return Some(time * 2_u32.pow(seconds.min(SLOWER_MAX)));
            }
        }
        None
    }

    /// One that waits makes room for one of this network, if its network has more waiting. Returns whether there was one.
    pub(crate) fn make_room(&mut self, network: Option<IpAddr>) -> bool {
        let own = self.networks.get(&network).copied().unwrap_or(0);
        let heaviest = self.networks.iter().max_by_key(|(_, count)| **count);
        let Some((heaviest, _)) = heaviest.filter(|(_, count)| **count > own + 1) else { return false };
        let heaviest = *heaviest;
        let gone = self.crowds.values_mut().find_map(|crowd| crowd.waiting.shed_from(&heaviest));
        if gone.is_some() {
            leave(&mut self.networks, heaviest);
        }
        gone.is_some()
    }

    /// Nobody waits from now on.
    pub(crate) fn end(&mut self) {
        *self = Self::default();
    }
}

fn leave(networks: &mut HashMap<Option<IpAddr>, usize>, network: Option<IpAddr>) {
    if let Some(count) = networks.get_mut(&network) {
        *count -= 1;
        if *count == 0 {
            networks.remove(&network);
        }
    }
}
