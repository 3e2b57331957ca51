//! What tasks of a job go by: what the sender is doing, and when the event's time ends.

use tidings_telemetry::unix_now;
use tidings_types::Timestamp;
use tokio::time::{Duration, Instant, sleep_until};

use crate::job::Job;

/// What the sender is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Handing out.
    Running,
    /// Waiting for what is in flight.
    Draining,
    /// Writing the last checkpoint.
    Closing,
}

/// The end of an event's time by tokio's clock: its whole life at most, also where it was accepted by a clock that was
/// ahead.
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

    /// The time for the job's books. Once the expiry was waited for it has come, also by a clock that was set back
    /// meanwhile: or whoever waited would spin.
    pub(crate) fn now(self) -> Timestamp {
        let at_least = if Instant::now() < self.at { Timestamp::default() } else { self.expires_at };
        unix_now().max(at_least)
    }

    /// Resolves at the end of the event's time; at once when that is over.
    pub(crate) async fn come(self) {
        sleep_until(self.at).await;
    }

    /// As [`Expiry::come`], but never when it is over and has ended all of the job that it could: or whoever waits for
    /// what is in flight would spin.
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
