//! The list that tells a loop which channels have something new.

use std::sync::{Arc, Mutex};

use tidings_telemetry::panics::lock;
use tokio::sync::Notify;

use crate::channel::Channel;

/// Channels with frames that a loop has not fetched yet.
///
/// Queue: each channel at most once (the loop's reader entry is dirty while it is here), so the bound is the number of
/// channels. Never full; taken as a whole.
#[derive(Debug, Default)]
pub struct Mailbox {
    dirty: Mutex<Vec<Arc<Channel>>>,
    notify: Notify,
}

impl Mailbox {
    pub(crate) fn put(&self, channel: Arc<Channel>) {
        let mut dirty = lock(&self.dirty);
        dirty.push(channel);
        if dirty.len() == 1 {
            drop(dirty);
            self.notify.notify_one();
        }
    }

    /// Takes all channels that have something new, into `channels`.
    pub fn take(&self, channels: &mut Vec<Arc<Channel>>) {
        channels.append(&mut lock(&self.dirty));
    }

    /// Waits until there may be something to take.
    ///
    /// # Cancel safety
    /// Cancel safe: a wake-up that came is kept for the next call.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }
}
