//! What ends the tasks of a job: the sender's phase, and the event's expiry.

use tidings_telemetry::unix_now;
use tidings_types::Timestamp;
use tokio::time::{Duration, Instant, sleep_until};

use crate::job::Job;

/// The sender's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Handing out.
    Running,
    /// Waiting for notifications in flight.
    Draining,
    /// Writing the last checkpoint.
    Closing,
}

/// An event's expiry by tokio's clock. It is at most the event's whole life away, even if the clock of the acceptance
/// was ahead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expiry {
    at: Instant,
    expires_at: Timestamp,
}

impl Expiry {
    pub(crate) fn of(job: &Job) -> Self {
        let left = job.expires_at.saturating_since(unix_now()).min(job.accepted.event.ttl);
        let past = left.saturating_add(Duration::from_millis(1)); // Past the moment, not just at it.
        Self { at: Instant::now() + past, expires_at: job.expires_at }
    }

    /// The time for the job's books. Once the wait for the expiry has ended, this is past the expiry, even if the clock
    /// was set back meanwhile. Otherwise the waiting task would spin.
    pub(crate) fn now(self) -> Timestamp {
        let at_least = if Instant::now() < self.at { Timestamp::default() } else { self.expires_at };
        unix_now().max(at_least)
    }

    /// Resolves when the event expires, or at once if it has expired.
    pub(crate) async fn come(self) {
        sleep_until(self.at).await;
    }

    /// As [`Expiry::come`], but never resolves once the expiry has ended all of the job that it could. Otherwise a task
    /// that waits for notifications in flight would spin.
    pub(crate) async fn due(self, job: &Job) {
        if Instant::now() >= self.at && !job.has_unsent() {
            std::future::pending::<()>().await;
        }
        self.come().await;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::pin::pin;
    use std::task::Waker;

    use tidings_telemetry::Registry;
    use tokio::time::advance;

    use super::*;
    use crate::job::tests::all_held;
    use crate::metrics::Metrics;

    fn is_ready(future: impl Future<Output = ()>) -> bool {
        pin!(future).poll(&mut std::task::Context::from_waker(Waker::noop())).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn who_comes_after_the_end_of_its_time_does_not_miss_it_and_does_not_spin() {
        let metrics = Metrics::new(&Registry::new());
        let (job, _receipts) = all_held(&BTreeSet::from([1, 2, 3]), unix_now(), &metrics);
        let expiry = Expiry::of(&job);
        assert!(!is_ready(expiry.come()) && !is_ready(expiry.due(&job)));
        advance(Duration::from_secs(61)).await;
        assert!(is_ready(expiry.come()) && is_ready(expiry.due(&job)), "it passed before somebody waited for it");
        job.end(&metrics, expiry.now());
        assert!(job.is_over() && !is_ready(expiry.due(&job)), "there is nothing left to end");
    }
}
