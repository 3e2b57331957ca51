//! The load of one client: tasks that send a request, wait for the answer, and send the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use tidings_server::command_error::CommandError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::process::Usage;
use crate::statistic::quantile_of_sorted;

/// How long an answer may take. A healthy server is always faster.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Time of sending before the measurement begins.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);

/// A client with the request that it repeats.
pub(super) trait Ask: Clone + Send + Sync + 'static {
    /// Sends the request. Returns whether the right answer came.
    fn ask(&self) -> impl Future<Output = bool> + Send;
}

/// The result of a client.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Right answers per second.
    pub(super) rate: f64,
    /// Wrong answers, and requests without an answer.
    pub(super) errors: u64,
    /// Requests, those of the warm-up included.
    pub(super) asked: u64,
    /// CPU time per request: of the client, and of the server if it was measured.
    pub(super) client_micros: f64,
    pub(super) server_micros: f64,
    /// Sorted; seconds.
    latencies: Vec<f64>,
}

impl Load {
    pub(super) fn latency_millis(&self, share: f64) -> f64 {
        quantile_of_sorted(&self.latencies, share) * 1e3
    }

    /// Adds up the notes of all tasks.
    pub(super) fn sum(notes: Vec<Notes>, window: &Window) -> Self {
        let mut load = Self::default();
        for notes in notes {
            load.errors += notes.errors;
            load.asked += notes.asked;
            load.latencies.extend(notes.latencies);
        }
        let answers = load.latencies.len() as f64;
        load.rate = answers / window.elapsed.as_secs_f64();
        load.client_micros = window.cpu.as_secs_f64() * 1e6 / answers.max(1.0);
        load.latencies.sort_by(f64::total_cmp);
        load
    }
}

/// The notes of one task.
#[derive(Debug, Default)]
pub(super) struct Notes {
    errors: u64,
    asked: u64,
    latencies: Vec<f64>,
}

/// The phase of a measurement, which all tasks share: warm-up, measuring, end.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU8);

impl Phase {
    const MEASURE: u8 = 1;
    const END: u8 = 2;

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Relaxed) == Self::END
    }

    /// Notes an answer.
    pub(super) fn note(&self, notes: &mut Notes, began: Instant, is_right: bool) {
        notes.asked += 1;
        notes.errors += u64::from(!is_right);
        if is_right && self.0.load(Relaxed) == Self::MEASURE {
            notes.latencies.push(began.elapsed().as_secs_f64());
        }
    }
}

/// How long the measurement took, and how much CPU time this process used in it.
#[derive(Debug)]
pub(super) struct Window {
    elapsed: Duration,
    cpu: Duration,
}

impl Window {
    /// Waits for the warm-up and the measurement, then ends the tasks, also after an error.
    pub(super) async fn open(phase: &Phase, seconds: u32) -> Result<Self, CommandError> {
        sleep(WARM_UP).await;
        phase.0.store(Phase::MEASURE, Relaxed);
        let (began, before) = (Instant::now(), Usage::now());
        sleep(Duration::from_secs(seconds.into())).await;
        phase.0.store(Phase::END, Relaxed);
        Ok(Self { elapsed: began.elapsed(), cpu: Usage::now()?.cpu - before?.cpu })
    }
}

/// Measures a client on this runtime.
pub(super) async fn drive(asker: impl Ask, concurrency: u32, seconds: u32) -> Result<Load, CommandError> {
    let phase = Arc::new(Phase::default());
    let mut tasks = JoinSet::new();
    for _ in 0..concurrency {
        let (asker, phase) = (asker.clone(), Arc::clone(&phase));
        tasks.spawn(async move {
            let mut notes = Notes::default();
            while !phase.is_over() {
                let began = Instant::now();
                let is_right = asker.ask().await;
                phase.note(&mut notes, began, is_right);
            }
            notes
        });
    }
    let window = Window::open(&phase, seconds).await?;
    Ok(Load::sum(tasks.join_all().await, &window))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that gets a wrong answer every tenth time.
    #[derive(Clone, Default)]
    struct Sloppy(Arc<std::sync::atomic::AtomicU64>);

    impl Ask for Sloppy {
        async fn ask(&self) -> bool {
            sleep(Duration::from_millis(10)).await;
            !self.0.fetch_add(1, Relaxed).is_multiple_of(10)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn right_answers_are_timed_and_wrong_ones_counted() {
        let load = drive(Sloppy::default(), 10, 2).await.unwrap();
        assert!((890.0..910.0).contains(&load.rate), "{}", load.rate);
        assert!((240..260).contains(&load.errors), "{}", load.errors);
        assert!((9.9..11.1).contains(&load.latency_millis(0.5)) && load.latency_millis(1.0) < 12.0);
    }
}
