//! Whether edge loops have publications that they have not written yet: who can wait gives them the processor first.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Notify;

/// How many loops have something to write. A reader whose socket takes nothing does not count.
#[derive(Debug, Default)]
pub struct FanOut {
    busy_loops: AtomicUsize,
    rest: Notify,
}

impl FanOut {
    /// A loop that had nothing to write has something.
    pub fn begin(&self) {
        self.busy_loops.fetch_add(1, Ordering::AcqRel);
    }

    /// It has written all.
    pub fn end(&self) {
        if self.busy_loops.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.rest.notify_waiters();
        }
    }

    /// Waits until no loop has anything to write. There may be no such moment while publications come all the time.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn rest(&self) {
        loop {
            let rest = self.rest.notified(); // Before the look, so that an end behind it is not missed.
            if self.busy_loops.load(Ordering::Acquire) == 0 {
                return;
            }
            rest.await;
        }
    }
}
