//! Publications of durable channels that the hub does not hold: they are read from the store when a reader asks for them.
//!
//! After a start, the hub knows of each durable channel only the position. What is published from then on is held as usual, so a
//! reader that has everything, or wants only what comes, needs nothing from the store. Whoever asks for older publications
//! calls [`Hub::load`] first. They are put before those that the channel holds. A channel without readers lets go of its
//! publications again.
//!
//! Bound: a channel is read once at a time, however many ask. How many channels are read at a time is up to [`Histories`].

use std::pin::Pin;
use std::sync::Arc;

use tidings_protocol::Publication;
use tidings_types::{ChannelName, Offset};

use crate::Hub;
use crate::channel::Channel;

/// Where the publications of durable channels are kept.
pub trait Histories: Send + Sync + std::fmt::Debug + 'static {
    /// Reads all publications that the channel keeps, oldest first. Their offsets follow each other, and the last one is at
    /// least that which the hub was told before this was called.
    fn read(&self, channel: &ChannelName) -> HistoryFuture;
}

/// See [`Histories`]. `None`: they cannot be read now, which is logged.
pub type HistoryFuture = Pin<Box<dyn Future<Output = Option<Vec<Publication>>> + Send>>;

/// See [`Hub::load`].
pub type LoadFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Hub {
    /// Whoever asks for the publications of a channel after `since`, or for any of them, waits for this first; `None`: there is
    /// nothing to wait for. If they cannot be read, that is still so afterwards: then whoever resumes gets a gap.
    ///
    /// # Cancel safety
    /// Dropped: another one that waits reads them.
    pub fn load(&self, name: &ChannelName, since: Option<Offset>) -> Option<LoadFuture> {
        let (histories, channel) = (self.histories.clone()?, self.existing(name)?);
        channel.lacks(since).then(|| Box::pin(load(histories, channel, since)) as LoadFuture)
    }
}

async fn load(histories: Arc<dyn Histories>, channel: Arc<Channel>, since: Option<Offset>) {
    let _one = channel.loading().lock().await;
    if channel.lacks(since)
        && let Some(publications) = histories.read(channel.name()).await
    {
        channel.add_older(publications);
    }
}
