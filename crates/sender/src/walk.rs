//! The task of a job: walks over its audience, and runs a lane for each pool and app that has devices of the audience.
//!
//! Walks of all jobs take turns, one window each, more urgent jobs first: a goal does not wait for a newsletter to a
//! million devices. A walk does not wait for lanes or brakes, so it is over soon. Lanes without devices are never
//! started.

use std::sync::Arc;

use tidings_telemetry::unix_nanos;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::context::Context;
use crate::job::Job;
use crate::lane;
use crate::phase::{Expiry, Phase};
use crate::spans;

/// Works until the job is over, or until the sender drains and nothing of the job is in flight.
pub(crate) async fn run(job: Arc<Job>, context: Arc<Context>, mut phase: watch::Receiver<Phase>) {
    let expiry = Expiry::of(&job);
    let mut lanes = JoinSet::new();
    let (mut is_walking, mut is_told, mut walked, began) = (true, false, 0, unix_nanos());
    while *phase.borrow_and_update() == Phase::Running && !job.is_over() {
        if is_walking {
            match walk(&job, &context, expiry, &mut phase).await {
                Some(count) => walked += count,
                None => is_walking = false,
            }
        }
        if !is_told && (!is_walking || job.is_over()) {
            is_told = true;
            spans::walked(context.tracer.as_ref(), job.accepted.event.trace.as_deref(), began, walked);
        }
        for lane in job.take_wanted_lanes() {
            lanes.spawn(lane::run(job.clone(), lane, context.clone(), expiry, phase.clone()));
        }
        if is_walking {
            tokio::task::yield_now().await; // Lets lanes and other jobs run.
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

/// One window of the walk, and how many devices it has; `None` at the end.
async fn walk(job: &Job, context: &Context, expiry: Expiry, phase: &mut watch::Receiver<Phase>) -> Option<u64> {
    let _permit = tokio::select! {
        permit = context.walks.acquire(job.accepted.event.priority, 0) => permit,
        _ = phase.changed() => return Some(0),
    };
    let window = job.open_walk(context.limits.window_device_count, &context.metrics, expiry.now());
    let window = window?;
    let device_count = window.devices().len() as u64;
    let findings = context.find(job, window.devices());
    job.assign(window, &findings, &context.metrics);
    Some(device_count)
}
