//! The queue in which commands that come in HTTP requests of their own wait for the loop of their session.
//!
//! Bounds per loop: [`EMULATED_COUNT_MAX`] requests, and [`EMULATED_BYTES_MAX`] bytes of commands. When the queue is
//! full, the request is refused.

use std::sync::Arc;

use tidings_protocol::{EMULATED_BYTES_MAX, SessionId};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, error::TrySendError};

use crate::shared::Emulated;

/// Requests with commands that may wait for one loop.
const EMULATED_COUNT_MAX: usize = 1024;

/// The sending end of a loop's queue.
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
