//! The task of a job: walks over its audience, and runs a lane for each pool and app that has devices of the audience.
//!
//! Walks of all jobs take turns, one window each, more urgent jobs first: a goal does not wait for a newsletter to a
//! million devices. A walk does not wait for lanes or brakes, so it is over soon. Lanes without devices are never
//! started.

use std::sync::Arc;
use std::time::Duration;

use tidings_hub::FanOut;
use tidings_telemetry::unix_nanos;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::context::Context;
use crate::job::Job;
use crate::lane;
use crate::phase::{Expiry, Phase};
use crate::spans;

/// How long a job waits for live readers at most.
const LIVE_FIRST_MAX: Duration = Duration::from_millis(20);

/// Lets edge loops write what they have, above all this event, before pushes take the processor: a push takes tens of
/// milliseconds to its provider anyway, and a delivery is seen at once (decision 0045).
async fn let_live_go_first(fan_out: &FanOut) {
    let _ = timeout(LIVE_FIRST_MAX, fan_out.rest()).await;
}

/// Works until the job is over, or until the sender drains and nothing of the job is in flight.
pub(crate) async fn run(job: Arc<Job>, context: Arc<Context>, mut phase: watch::Receiver<Phase>) {
    let began = unix_nanos();
    let_live_go_first(&context.fan_out).await;
    let expiry = Expiry::of(&job);
    let mut lanes = JoinSet::new();
    let (mut is_walking, mut is_told, mut walked) = (true, false, 0);
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

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn live_readers_go_first_but_not_for_long() {
        let (fan_out, began) = (FanOut::default(), Instant::now());
        let_live_go_first(&fan_out).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "no loop has anything to write");

        fan_out.begin();
        fan_out.begin(); // A second loop.
        let loops_end = async {
            for _ in 0..2 {
                sleep(Duration::from_millis(4)).await;
                fan_out.end();
            }
        };
        tokio::join!(let_live_go_first(&fan_out), loops_end);
        assert_eq!(began.elapsed(), Duration::from_millis(8));

        fan_out.begin(); // And never ends.
        let_live_go_first(&fan_out).await;
        assert_eq!(began.elapsed(), Duration::from_millis(8) + LIVE_FIRST_MAX);
    }
}
