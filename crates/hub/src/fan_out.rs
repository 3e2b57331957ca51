//! Whether edge loops have publications that they have not written yet: who can wait gives them the processor first.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many loops have not made their turn over what is new. A reader that is behind does not count, whether its socket
/// takes nothing or it gets less than everything.
#[derive(Debug, Default)]
pub struct FanOut {
    busy_loops: AtomicUsize,
    rest: Notify,
}

impl FanOut {
    /// A loop that rested has something new.
    pub fn begin(&self) {
        self.busy_loops.fetch_add(1, Ordering::AcqRel);
    }

    /// It has made its turn.
    pub fn end(&self) {
        if self.busy_loops.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.rest.notify_waiters();
        }
    }

    /// Waits until all loops rest, or did for a moment. There may be no such moment while publications come all the time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn rest(&self) {
        let rest = self.rest.notified(); // Before the look, so that an end behind it is not missed.
        if self.busy_loops.load(Ordering::Acquire) > 0 {
            rest.await;
        }
    }
}
