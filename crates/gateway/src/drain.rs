//! How the threads of a gateway end.
//!
//! A gateway works until it is asked to drain. Then its lakes are closed, and each thread ends when the lakes are empty
//! and everything it holds is settled. At a deadline, or when the gateway is dropped, it aborts: the threads end at
//! once, and the notifications they hold are left without an outcome.

use std::io;
use std::thread::JoinHandle;

use tokio::runtime::Runtime;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

/// What the threads are asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Work,
    /// End when the lakes are empty and everything is settled.
    Drain,
    /// End now.
    Abort,
}

/// How a drain ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Notifications without an outcome: in the lakes, waiting for a repeat, or in flight. They were not reported; the
    /// sender resumes them after the next start.
    pub unsettled: usize,
}

/// A thread of a gateway, with its runtime.
pub(crate) struct Worker {
    thread: JoinHandle<()>,
    /// How many notifications it left unsettled.
    left: oneshot::Receiver<usize>,
}

impl Worker {
    /// Starts a thread that runs `drive`, which returns how many notifications it leaves unsettled.
    pub(crate) fn start(
        name: String,
        runtime: Runtime,
        drive: impl FnOnce(&Runtime) -> usize + Send + 'static,
    ) -> io::Result<Self> {
        let (left_tx, left) = oneshot::channel();
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let count = drive(&runtime);
            // A name being resolved would hold up a plain shutdown.
            runtime.shutdown_background();
            _ = left_tx.send(count); // The receiver is gone if the gateway was dropped.
        })?;
        Ok(Self { thread, left })
    }

    /// Waits until the thread has ended, aborts all threads at `deadline`, and resumes the thread's panic. Returns how
    /// many notifications it left unsettled.
    ///
    /// # Cancel safety
    /// If dropped, the thread continues.
    pub(crate) async fn end(self, deadline: Instant, phase: &watch::Sender<Phase>) -> usize {
        let Self { thread, mut left } = self;
        let count = match timeout_at(deadline, &mut left).await {
            Ok(count) => count,
            Err(_) => {
                phase.send_replace(Phase::Abort);
                left.await
            }
        };
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
        count.expect("a thread that ended without a panic has sent its count")
    }
}
