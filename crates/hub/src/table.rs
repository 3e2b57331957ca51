//! The table of all channels. Channels come in and go out here only, and are counted with it.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

use tidings_telemetry::panics::{Locked, lock};
use tidings_types::ChannelName;

use crate::channel::Channel;
use crate::roster::{Admission, Full, Roster};

pub(crate) const SHARD_COUNT: usize = 64;

type Channels = HashMap<ChannelName, Arc<Channel>>;

/// All channels by name, in parts, so that look-ups of different channels seldom wait for each other.
#[derive(Debug)]
pub(crate) struct Table {
    shards: Box<[Mutex<Channels>]>,
    roster: Arc<Roster>,
}

/// A part of the table, locked.
pub(crate) struct Shard<'t> {
    channels: Locked<'t, Channels>,
    roster: &'t Roster,
}

impl Table {
    pub(crate) fn new(roster: Arc<Roster>) -> Self {
        Self { shards: (0..SHARD_COUNT).map(|_| Mutex::default()).collect(), roster }
    }

    /// The part that has the channel with this name, if there is one.
    pub(crate) fn shard(&self, name: &ChannelName) -> Shard<'_> {
        use std::hash::{BuildHasher, RandomState};
        static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        let index = HASHER.hash_one(name) as usize % SHARD_COUNT;
        Shard { channels: lock(&self.shards[index]), roster: &self.roster }
    }

    pub(crate) fn get(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.shard(name).get(name)
    }

    /// All parts. Each is locked while the iterator's caller holds it.
    pub(crate) fn shards(&self) -> impl Iterator<Item = Locked<'_, Channels>> {
        self.shards.iter().map(lock)
    }

    /// The memory channels of a part.
    pub(crate) fn memory_channels(&self, index: usize) -> Vec<Arc<Channel>> {
        let channels = lock(&self.shards[index]);
        channels.values().filter(|channel| !channel.options().durable).cloned().collect()
    }
}

impl Shard<'_> {
    pub(crate) fn get(&self, name: &ChannelName) -> Option<Arc<Channel>> {
        self.channels.get(name).cloned()
    }

    /// Makes a channel whose name is not in the table.
    ///
    /// # Errors
    /// When there is no room.
    pub(crate) fn insert(
        &mut self,
        name: &ChannelName,
        admission: &Admission,
        make: impl FnOnce() -> Channel,
    ) -> Result<Arc<Channel>, Full> {
        self.roster.enter(name, admission)?;
        let channel = Arc::new(make());
        self.channels.insert(name.clone(), channel.clone());
        Ok(channel)
    }

    /// Removes the channel if it `is_swept`. A shard gives memory back after a burst of channels.
    pub(crate) fn remove_if(
        &mut self,
        name: &ChannelName,
        is_swept: impl FnOnce(&Channel) -> bool,
    ) -> Option<Arc<Channel>> {
        if !is_swept(self.channels.get(name)?) {
            return None;
        }
        let channel = self.channels.remove(name)?;
        self.roster.leave(name, channel.options().durable);
        if self.channels.capacity() > 4 * self.channels.len().max(64) {
            self.channels.shrink_to_fit();
        }
        Some(channel)
    }
}
