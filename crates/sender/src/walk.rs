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

    /// Resolves at the end of the event's time; never, when that is over already.
    pub(crate) async fn come(self) {
        match Instant::now() < self.at {
            true => sleep_until(self.at).await,
            false => std::future::pending().await,
        }
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
            () = expiry.come() => drop(job.walk(0, &context.metrics, expiry.now())),
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
    let _turn = tokio::select! {
        turn = context.walks.turn(job.accepted.event.priority, 0) => turn,
        _ = phase.changed() => return true,
    };
    let numbers = job.walk(context.limits.window_device_count, &context.metrics, expiry.now());
    job.assign(&context.find(job, &numbers), &context.metrics);
    !numbers.is_empty()
}
