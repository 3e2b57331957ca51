//! Publications of durable channels that the hub does not hold: they are read from the store when a reader asks for them.
//!
//! After a start, the hub knows of each durable channel only the position. What is published from then on is held as usual, so a
//! reader that has everything, or wants only what comes, needs nothing from the store. Whoever asks for older publications
//! waits for [`Hub::load`](crate::Hub::load) first. They are put before those that the channel holds. A channel that nobody reads or asks for
//! lets go of its publications after a while.
//!
//! Bounds: all that durable channels hold has one budget ([`Cache`]). Above it, those let go of their publications that were
//! not used for longest, until a quarter is free; never the one that was used last, which may be larger than the budget. A channel
//! is read once at a time, however many ask, and what was read is put in even if nobody waits any more. How many channels are
//! read at a time is up to [`Histories`].

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tidings_types::ChannelName;
use tokio::sync::watch;

use crate::cache::{Cache, Kept};
use crate::channel::Channel;

/// Where the publications of durable channels are kept.
pub trait Histories: Send + Sync + std::fmt::Debug + 'static {
    /// Begins to read the publications of a channel, and returns at once. Other threads hand them to the [`Load`].
    fn begin(&self, load: Load);
}

/// A channel whose publications are being read. Dropped: they cannot be read now, and nobody waits for them any more.
#[derive(Debug)]
pub struct Load {
    channel: Arc<Channel>,
    cache: Arc<Cache>,
    /// Those who wait see that this is gone.
    _ends: watch::Sender<()>,
}

impl Load {
    /// The channel.
    pub fn channel(&self) -> &ChannelName {
        self.channel.name()
    }

    /// Puts the publications in.
    pub fn finish(self, kept: Kept) {
        self.channel.add_older(kept);
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.channel.end_loading();
        self.cache.make_room();
    }
}

/// How long whoever asks should wait for a [`LoadFuture`]. Then the publications are taken for lacking.
pub const LOAD_TIMEOUT: Duration = Duration::from_secs(5);

/// See [`Hub::load`](crate::Hub::load).
pub type LoadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Begins to read the channel's publications, unless they are being read. The future ends when they have been.
pub(crate) fn load(histories: &dyn Histories, channel: Arc<Channel>, cache: &Arc<Cache>) -> LoadFuture {
    let (mut ended, begun) = channel.begin_loading();
    if let Some(ends) = begun {
        histories.begin(Load { channel, cache: cache.clone(), _ends: ends });
    }
    Box::pin(async move { while ended.changed().await.is_ok() {} })
}
