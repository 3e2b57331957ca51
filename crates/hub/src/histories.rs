//! Publications of durable channels that the hub does not hold: they are read from the store when a reader asks for them.
//!
//! After a start, the hub knows of each durable channel only the position. What is published from then on is held as usual, so a
//! reader that has everything, or wants only what comes, needs nothing from the store. Whoever asks for older publications
//! calls [`Hub::load`] first. They are put before those that the channel holds. A channel without readers lets go of its
//! publications after a while.
//!
//! Bounds: all that durable channels hold has one budget ([`Cache`]). Above it, those let go of their publications that were
//! not used for longest, until a quarter is free; never the one that was used last, which may be larger than the budget. A channel
//! is read once at a time, however many ask. How many channels are read at a time is up to [`Histories`](crate::Histories).

use std::pin::Pin;
use std::sync::Arc;

use tidings_types::{ChannelName, Offset};

use crate::Hub;
use crate::cache::Cache;
use crate::channel::Channel;

/// See [`Hub::load`].
pub type LoadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Hub {
    /// The bytes of the publications that durable channels hold and the store has, too.
    pub fn held_history_bytes(&self) -> usize {
        self.cache.as_ref().map_or(0, |cache| cache.budget().used())
    }

    /// How often a durable channel has let go of its publications because all together had too many bytes.
    pub fn dropped_history_count(&self) -> u64 {
        self.cache.as_ref().map_or(0, |cache| cache.budget().dropped())
    }

    /// Whoever asks for the publications of a channel after `since`, or for any of them, waits for this first; `None`: there is
    /// nothing to wait for. If they cannot be read, that is still so afterwards: then whoever resumes gets a gap.
    ///
    /// # Cancel safety
    /// Dropped: another one that waits reads them.
    pub fn load(&self, name: &ChannelName, since: Option<Offset>) -> Option<LoadFuture> {
        let (cache, channel) = (self.cache.clone()?, self.existing(name)?);
        channel.lacks(since).then(|| Box::pin(load(cache, channel, since)) as LoadFuture)
    }
}

async fn load(cache: Arc<Cache>, channel: Arc<Channel>, since: Option<Offset>) {
    let _one = channel.loading().lock().await;
    if channel.lacks(since)
        && let Some(publications) = cache.histories.read(channel.name()).await
    {
        channel.add_older(publications, &cache);
        cache.make_room();
    }
}
