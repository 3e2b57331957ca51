//! The list that tells a loop which channels have something new.

use std::mem;
use std::sync::{Arc, Mutex};

use tidings_telemetry::panics::lock;
use tokio::sync::Notify;

use crate::channel::Channel;
use crate::fan_out::FanOut;

/// Channels with frames that a loop has not fetched yet.
///
/// Queue: each channel at most once (the loop's reader entry is dirty while it is here), so the bound is the number of
/// channels. Never full; taken as a whole.
#[derive(Debug)]
pub struct Mailbox {
    state: Mutex<State>,
    notify: Notify,
    fan_out: Arc<FanOut>,
}

#[derive(Debug, Default)]
struct State {
    dirty: Vec<Arc<Channel>>,
    /// From the first channel until [`Mailbox::rest`]. Invariant: set while `dirty` has one.
    is_busy: bool,
}

impl Mailbox {
    /// One of the mailboxes of a hub.
    pub(crate) fn new(fan_out: Arc<FanOut>) -> Self {
        Self { state: Mutex::default(), notify: Notify::new(), fan_out }
    }

    pub(crate) fn put(&self, channel: Arc<Channel>) {
        let mut state = lock(&self.state);
        state.dirty.push(channel);
        if state.dirty.len() == 1 {
            if !mem::replace(&mut state.is_busy, true) {
                self.fan_out.begin();
            }
            drop(state);
            self.notify.notify_one();
        }
    }

    /// Takes all channels that have something new, into `channels`.
    pub fn take(&self, channels: &mut Vec<Arc<Channel>>) {
        channels.append(&mut lock(&self.state).dirty);
    }

    /// The loop has written what it has taken.
    pub fn rest(&self) {
        let ends = {
            let mut state = lock(&self.state);
            state.dirty.is_empty() && mem::take(&mut state.is_busy)
        };
        if ends {
            self.fan_out.end(); // Without the lock: this may wake many.
        }
    }

    /// Waits until there may be something to take.
    ///
    /// # Cancel safety
    /// Cancel safe: a wake-up that came is kept for the next call.
    pub async fn notified(&self) {
        self.notify.notified().await;
    }
}
