//! The publications that durable channels hold although the store has them, too; see [`crate::histories`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};

use tidings_protocol::Publication;
use tidings_telemetry::panics::lock;
use tidings_types::ChannelName;

use crate::budget::{Budget, Charge};

/// Where the publications of durable channels are kept.
pub trait Histories: Send + Sync + std::fmt::Debug + 'static {
    /// Reads all publications that the channel keeps, oldest first. Their offsets follow each other, and the last one is at
    /// least that which the hub was told before this was called.
    fn read(&self, channel: &ChannelName) -> HistoryFuture;
}

/// See [`Histories`]. `None`: they cannot be read now, which is logged.
pub type HistoryFuture = Pin<Box<dyn Future<Output = Option<Vec<Publication>>> + Send>>;

/// A channel that holds publications, as the cache sees it.
pub(crate) trait Holder: std::fmt::Debug + Send + Sync {
    /// When it was used last: the greater, the later.
    fn used_at(&self) -> u64;

    /// Lets go of the publications if the store has them and nobody reads them from there at this moment. Returns whether it
    /// held any.
    fn unload(&self) -> bool;

    /// Tells the cache if it holds none.
    fn release_if_empty(&self, cache: &Cache);
}

/// The histories of durable channels, and where they are read from.
///
/// Lock order: a channel, then those that are held. Whoever makes room has locked nothing else before.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) histories: Arc<dyn Histories>,
    budget: Arc<Budget>,
    /// All channels that hold publications, by number, and some that do not any more.
    held: Mutex<HashMap<u64, Weak<dyn Holder>>>,
    making_room: Mutex<()>,
}

impl Cache {
    pub(crate) fn new(histories: Arc<dyn Histories>, bytes_max: usize) -> Arc<Self> {
        let (held, making_room) = Default::default();
        Arc::new(Self { histories, budget: Budget::new(bytes_max), held, making_room })
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn charge(&self) -> Charge {
        Charge::none(self.budget.clone())
    }

    /// The channel begins to hold publications. It is locked.
    pub(crate) fn hold(&self, number: u64, channel: Weak<dyn Holder>) {
        lock(&self.held).insert(number, channel);
    }

    /// The channel holds none any more. If it still exists, it is locked.
    pub(crate) fn release(&self, number: u64) {
        lock(&self.held).remove(&number);
    }

    /// Forgets the channels that hold nothing.
    pub(crate) fn sweep(&self) {
        let held = lock(&self.held).clone();
        for (number, channel) in held {
            match channel.upgrade() {
                Some(channel) => channel.release_if_empty(self),
                None => self.release(number),
            }
        }
    }

    /// Above the budget, the channels that were not used for longest let go of their publications, until a quarter is free.
    /// Called whenever a channel may hold more, with nothing locked.
    pub(crate) fn make_room(&self) {
        if !self.budget.is_exceeded() {
            return;
        }
        let _one = lock(&self.making_room);
        if !self.budget.is_exceeded() {
            return;
        }
        let held = lock(&self.held).clone();
        let held = held.into_iter().filter_map(|(number, channel)| Some((number, channel.upgrade()?)));
        let mut channels: Vec<_> = held.map(|(number, channel)| (channel.used_at(), number, channel)).collect();
        channels.sort_unstable_by_key(|(used_at, number, _)| (*used_at, *number));
        channels.pop();
        for (_, _, channel) in channels {
            if self.budget.used() <= self.budget.bytes_max() / 4 * 3 {
                break;
            }
            if channel.unload() {
                self.budget.on_dropped();
            }
        }
    }
}
