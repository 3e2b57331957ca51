//! The slot for the one backup that a running store makes at a time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::format::Encoder;

/// The number of the last backup, and the backup in progress. Code that needs the folder removes it; its reader then gets an
/// error at the next block.
#[derive(Default)]
pub(crate) struct Slot(pub(super) Mutex<(u64, Option<Running>)>);

pub(super) struct Running {
    pub(super) encoder: Encoder,
    pub(super) asked_at: Instant,
}

impl Slot {
    /// Ends the backup. Waits for a block that is just being read.
    pub(crate) fn clear(&self) {
        self.lock().1 = None;
    }

    /// Ends the backup if it was not read for [`IDLE_MAX`]. Does not wait.
    pub(crate) fn clear_idle(&self) {
        let Ok(mut slot) = self.0.try_lock() else { return };
        if slot.1.as_ref().is_some_and(|running| running.asked_at.elapsed() > IDLE_MAX) {
            slot.1 = None;
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, (u64, Option<Running>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A backup ends if its next block is not requested for this long.
pub const IDLE_MAX: Duration = Duration::from_secs(60);
