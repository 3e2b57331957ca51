//! The queue of commands that come in HTTP requests of their own, to the loop of their session.
//!
//! Bounds: [`EMULATED_COUNT_MAX`] requests, and [`EMULATED_BYTES_MAX`] of commands. When the queue is full, the request is
//! refused.

use std::sync::Arc;

use tidings_protocol::{EMULATED_BYTES_MAX, SessionId};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::shared::Emulated;

/// Requests with commands that may wait for one loop.
const EMULATED_COUNT_MAX: usize = 1024;

/// The way of commands to a loop.
#[derive(Clone)]
pub(crate) struct EmulatedSender {
    requests: mpsc::Sender<Emulated>,
    room: Arc<Semaphore>,
}

impl EmulatedSender {
    pub(crate) fn new() -> (Self, mpsc::Receiver<Emulated>) {
        let (requests, received) = mpsc::channel(EMULATED_COUNT_MAX);
        (Self { requests, room: Arc::new(Semaphore::new(EMULATED_BYTES_MAX)) }, received)
    }

    /// `false`: there is no room.
    pub(crate) fn send(&self, session: SessionId, commands: Vec<u8>) -> bool {
        let bytes = u32::try_from(commands.len()).unwrap_or(u32::MAX);
        let Ok(room) = self.room.clone().try_acquire_many_owned(bytes) else { return false };
        match self.requests.try_send(Emulated { session, commands, _room: room }) {
            Ok(()) | Err(TrySendError::Closed(_)) => true, // A loop that has stopped has no sessions.
            Err(TrySendError::Full(_)) => false,
        }
    }
}
