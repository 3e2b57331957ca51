//! The publications that durable channels hold although the store has them, too; see [`crate::histories`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tidings_protocol::Publication;
use tidings_telemetry::panics::lock;
use tidings_types::{Offset, Timestamp};

use crate::budget::{Budget, Charge};

/// What a channel keeps in the store.
#[derive(Debug, Clone, Default)]
pub struct Kept {
    /// All of its publications, oldest first, without gaps. The last one is at least that which the hub was told before the
    /// read began.
    pub publications: Vec<Publication>,
    /// When the last one was published.
    pub published_at: Timestamp,
}

/// Which publications of a channel somebody asks for.
#[derive(Debug, Clone, Copy)]
pub enum Wanted<'a> {
    /// Any of them.
    Any,
    /// Those after this offset of an epoch; empty: of whatever epoch the channel has.
    After(Offset, &'a str),
}

/// A channel that holds publications, as the cache sees it.
pub(crate) trait Holder: std::fmt::Debug + Send + Sync {
    /// When it was used last: the greater, the later.
    fn used_at(&self) -> u64;

    /// Lets go of the publications, unless they are about to be put in. Returns whether it held any.
    fn unload(&self) -> bool;
}

/// What all durable channels hold together.
///
/// Lock order: who makes room, then a channel, then the list of those that hold something.
#[derive(Debug)]
pub(crate) struct Cache {
    budget: Arc<Budget>,
    /// All channels that hold publications, by number.
    held: Mutex<HashMap<u64, Weak<dyn Holder>>>,
    making_room: Mutex<()>,
}

impl Cache {
    pub(crate) fn new(bytes_max: usize) -> Arc<Self> {
        let (held, making_room) = Default::default();
        Arc::new(Self { budget: Budget::new(bytes_max), held, making_room })
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn charge(&self) -> Charge {
        Charge::none(&self.budget)
    }

    /// The channel begins to hold publications. It is locked.
    pub(crate) fn hold(&self, number: u64, channel: Weak<dyn Holder>) {
        lock(&self.held).insert(number, channel);
    }

    /// The channel holds none any more. It is locked, or gone.
    pub(crate) fn release(&self, number: u64) {
        lock(&self.held).remove(&number);
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
