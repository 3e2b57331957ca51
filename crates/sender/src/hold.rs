//! Waiting for the receipts of the devices a job holds back.
//!
//! A job has such a task, beside its lanes, if some device of its audience may answer. The task takes the receipts that
//! have come, at most every [`PACE_MIN`]. A look costs a few operations on whole sets: microseconds, or 0.2 ms with 100
//! 000 devices held among 10 million. The more jobs hold devices, the more rarely each looks, down to every
//! [`PACE_MAX`], so that a thousand such jobs leave the thread to the lanes. At the end of the event's `receipt_wait`,
//! by tokio's clock at the latest, the task lets go of the devices that have not answered. It ends when no device is
//! held and the walk is over, when the dispatcher let go of the devices to make room, when the time is up, or when the
//! sender drains. Draining lets no device go: held devices wait for the next start.

use std::time::Duration;

use tidings_telemetry::unix_now;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::job::Job;
use crate::metrics::Metrics;
use crate::phase::Phase;

/// The shortest time between two looks at the receipts.
const PACE_MIN: Duration = Duration::from_millis(10);
/// The longest time between two looks. A look makes no push earlier, it only lets the job end earlier.
const PACE_MAX: Duration = Duration::from_millis(250);
/// The looks of all jobs together may take one part in this many of the sender's thread.
const LOOK_PART: u32 = 20;

pub(crate) async fn run(job: &Job, metrics: &Metrics, phase: watch::Receiver<Phase>) {
    metrics.jobs_holding.add(1);
    hold(job, metrics, phase).await;
    metrics.jobs_holding.sub(1);
}

/// The time until the next look, by the duration of the last look and the number of jobs that look.
fn pace(look: Duration, job_count: i64) -> Duration {
    let job_count = u32::try_from(job_count).unwrap_or(1);
    look.saturating_mul(job_count.saturating_mul(LOOK_PART)).clamp(PACE_MIN, PACE_MAX)
}

async fn hold(job: &Job, metrics: &Metrics, mut phase: watch::Receiver<Phase>) {
    let Some(receipts) = job.receipts() else { return };
    let end = Instant::now() + job.hold_left(unix_now());
    while *phase.borrow_and_update() == Phase::Running {
        let changed = receipts.changed(); // Before looking, so that no change is missed.
        let began = Instant::now();
        if !job.take_receipts(metrics) {
            return;
        }
        let next_look = Instant::now() + pace(began.elapsed(), metrics.jobs_holding.value());
        if next_look > end {
            tokio::select! {
                () = sleep_until(end) => return job.let_go(metrics),
                _ = phase.changed() => continue,
            }
        }
        tokio::select! {
            () = changed => {}
            () = job.nobody_held() => {}
            () = sleep_until(end) => return job.let_go(metrics),
            _ = phase.changed() => continue,
        }
        tokio::select! {
            () = sleep_until(next_look) => {}
            _ = phase.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use tidings_telemetry::Registry;
    use tidings_types::{DeviceNumber, Timestamp};
    use tokio::task::JoinSet;
    use tokio::time::advance;

    use super::*;
    use crate::job::tests::{all_held, receive, report};

    /// On a clock that stands still, a storm of receipts is two looks, however long it is.
    #[tokio::test(start_paused = true)]
    async fn a_storm_of_receipts_is_taken_in_few_looks() {
        const COUNT: u32 = 100_000;
        let metrics = Arc::new(Metrics::new(&Registry::new()));
        // By a clock that is ahead: the wait for receipts runs in full, by tokio's clock, however slow the machine is.
        let accepted_at = unix_now().saturating_add(Duration::from_secs(3600));
        let (job, receipts) = all_held(&BTreeSet::from_iter(0..COUNT), accepted_at, &metrics);
        assert_eq!(
            (report(&job, Timestamp(0)).held, metrics.devices_held.value()),
            (u64::from(COUNT), i64::from(COUNT))
        );
        let (_phase, phases) = watch::channel(Phase::Running);
        let (job, mut tasks) = (Arc::new(job), JoinSet::new());
        let (held, counted) = (job.clone(), metrics.clone());
        tasks.spawn(async move { run(&held, &counted, phases).await });
        tokio::task::yield_now().await;
        let mut seen = BTreeSet::from([report(&job, Timestamp(0)).held]);
        for number in 0..COUNT - 1 {
            receive(&receipts, DeviceNumber(number));
            if number % 100 == 0 {
                tokio::task::yield_now().await;
                seen.insert(report(&job, Timestamp(0)).held);
            }
        }
        assert!(seen.len() <= 2, "looked {} times in no time", seen.len());
        advance(PACE_MIN + Duration::from_millis(1)).await;
        for _ in 0..COUNT {
            if report(&job, Timestamp(0)).held > 1 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(report(&job, Timestamp(0)).held, 1, "the next look finds all others");
        receive(&receipts, DeviceNumber(COUNT - 1));
        tasks.join_next().await.unwrap().unwrap();
        assert!(job.is_over(), "all have answered");
        assert_eq!((report(&job, Timestamp(0)).counts.received(), metrics.devices_held.value()), (u64::from(COUNT), 0));
        assert_eq!(metrics.jobs_holding.value(), 0);
    }

    #[test]
    fn many_jobs_look_seldomer_and_all_looks_together_take_a_small_part() {
        let micros = Duration::from_micros;
        assert_eq!((pace(micros(0), 1), pace(micros(5), 1), pace(micros(200), 1)), (PACE_MIN, PACE_MIN, PACE_MIN));
        assert_eq!((pace(micros(5), 1000), pace(micros(200), 25)), (micros(100_000), micros(100_000)));
        assert_eq!((pace(micros(5000), 1000), pace(Duration::MAX, i64::MAX)), (PACE_MAX, PACE_MAX));
    }
}
