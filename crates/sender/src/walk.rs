//! The task of a job: walks over its audience, and runs a lane for each pool and app that somebody of it belongs to.
//!
//! Walks of all jobs take turns, a window each, the more urgent first: a newsletter's million does not keep a goal
//! waiting. A walk does not wait for lanes or brakes, so it is over soon, and lanes that nobody of this audience needs
//! are never begun.

use std::sync::Arc;

use tidings_telemetry::unix_now;
use tidings_types::Timestamp;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Duration, Instant, sleep_until};

use crate::context::Context;
use crate::job::Job;
use crate::lane;

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
    fn of(job: &Job) -> Self {
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

/// Works until the job is over, or the sender drains and nothing of it is in flight.
pub(crate) async fn run(job: Arc<Job>, context: Arc<Context>, mut phase: watch::Receiver<Phase>) {
    let expiry = Expiry::of(&job);
    let mut lanes = JoinSet::new();
    let mut is_walking = true;
    while *phase.borrow_and_update() == Phase::Running && !job.is_over() {
        is_walking = is_walking && walk(&job, &context, expiry, &mut phase).await;
        for lane in job.take_wanted_lanes() {
            lanes.spawn(lane::run(job.clone(), lane, context.clone(), expiry, phase.clone()));
        }
        if is_walking {
            tokio::task::yield_now().await; // Lanes and other jobs.
            continue;
        }
        tokio::select! {
            () = job.lanes_wanted() => {}
            _ = phase.changed() => {}
            () = expiry.due(&job) => job.end(&context.metrics, expiry.now()),
        }
    }
    while let Some(ended) = lanes.join_next().await {
        if let Err(error) = ended {
            std::panic::resume_unwind(error.into_panic());
        }
    }
}

/// One window of the walk; false at its end.
async fn walk(job: &Job, context: &Context, expiry: Expiry, phase: &mut watch::Receiver<Phase>) -> bool {
    let _permit = tokio::select! {
        permit = context.walks.acquire(job.accepted.event.priority, 0) => permit,
        _ = phase.changed() => return true,
    };
    let window = job.open_walk(context.limits.window_device_count, &context.metrics, expiry.now());
    let Some(window) = window else { return false };
    let findings = context.find(job, window.devices());
    job.assign(window, &findings, &context.metrics);
    true
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
