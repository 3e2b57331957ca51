//! So many tasks, each asking, waiting for the answer, and asking again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::time::Duration;

use tidings_server::command_error::CommandError;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::process::Usage;
use crate::statistic::quantile;

/// Long enough that none of a healthy server's answers is late.
pub(super) const TIMEOUT: Duration = Duration::from_secs(10);

/// Asked, but not measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(500);

/// A client with its one request.
pub(super) trait Ask: Clone + Send + Sync + 'static {
    /// Whether the right answer came.
    fn ask(&self) -> impl Future<Output = bool> + Send;
}

/// What a client did.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Right answers a second.
    pub(super) rate: f64,
    /// Wrong answers and none.
    pub(super) errors: u64,
    /// Requests of the warm-up too.
    pub(super) asked: u64,
    /// Processor time per request: the client's, nginx's.
    pub(super) client_micros: f64,
    pub(super) server_micros: f64,
    /// Sorted; seconds.
    latencies: Vec<f64>,
}

impl Load {
    /// The time that the share of the requests did not exceed.
    pub(super) fn latency_millis(&self, share: f64) -> f64 {
        let rank = (self.latencies.len() as f64 * share).ceil() as usize;
        self.latencies.get(rank.saturating_sub(1)).copied().unwrap_or(0.0) * 1e3
    }

    /// The sum of what the askers noted during a window.
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
        quantile(&mut load.latencies, 1.0); // Sorts.
        load
    }
}

/// What one asker noted.
#[derive(Debug, Default)]
pub(super) struct Notes {
    errors: u64,
    asked: u64,
    latencies: Vec<f64>,
}

/// Where a measurement is; shared by the askers.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU8);

impl Phase {
    const MEASURE: u8 = 1;
    const END: u8 = 2;

    pub(super) fn is_over(&self) -> bool {
        self.0.load(Relaxed) == Self::END
    }

    /// Takes an answer down.
    pub(super) fn note(&self, notes: &mut Notes, began: Instant, is_right: bool) {
        notes.asked += 1;
        notes.errors += u64::from(!is_right);
        if is_right && self.0.load(Relaxed) == Self::MEASURE {
            notes.latencies.push(began.elapsed().as_secs_f64());
        }
    }
}

/// How long was measured, and what this process used.
#[derive(Debug)]
pub(super) struct Window {
    elapsed: Duration,
    cpu: Duration,
}

impl Window {
    /// Lets the askers warm up, measures, and ends them, whatever fails.
    pub(super) async fn open(phase: &Phase, seconds: u32) -> Result<Self, CommandError> {
        sleep(WARM_UP).await;
        phase.0.store(Phase::MEASURE, Relaxed);
        let (began, before) = (Instant::now(), Usage::now());
        sleep(Duration::from_secs(seconds.into())).await;
        phase.0.store(Phase::END, Relaxed);
        Ok(Self { elapsed: began.elapsed(), cpu: Usage::now()?.cpu - before?.cpu })
    }
}

/// Measures a client in this runtime.
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

    /// Every tenth answer is wrong.
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
