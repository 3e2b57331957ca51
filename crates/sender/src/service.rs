//! The handle: starts the sender's thread from what the store knows, answers questions, drains.
//!
//! Callers never see the thread. Dropping the handle aborts: jobs go on from their last checkpoint after the next start.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tidings_buffer::Lake;
use tidings_push::OutcomeSink;
use tidings_store::Store;
use tidings_telemetry::Registry;
use tidings_types::{Environment, JournalPosition};
use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::config::{Pool, SenderConfig};
use crate::error::StartError;
use crate::job::LaneLimits;
use crate::lane::{Context, Routes};
use crate::metrics::Metrics;
use crate::outcome::{Counts, DeviceOutcome};
use crate::report::{Backlog, Drained, JobReport, JobState};
use crate::row::JobRow;
use crate::shared::{Finished, Shared, Table, Unfinished};
use crate::topic::Topics;
use crate::worker::{Order, Worker};

/// The sender, running on its own thread. Dropped, it stops where it stands, as in a crash; [`Sender::drain`] first.
pub struct Sender {
    shared: Arc<Shared>,
    journal_end: watch::Receiver<JournalPosition>,
    orders: watch::Sender<Order>,
    done: watch::Receiver<Option<Drained>>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts sending: the unfinished jobs of the last run first, then every event that has had no job. Reads the jobs
    /// before it returns. Without any pool every device is counted as suppressed.
    ///
    /// # Errors
    /// When a setting is out of range, two pools claim an app, or the jobs cannot be read or are not understood.
    pub fn start(
        config: SenderConfig,
        store: Store,
        topics: Arc<Topics>,
        mut pools: Vec<Pool>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        config.check()?;
        if pools.is_empty() {
            pools.push(nowhere());
        }
        let routes = Routes::new(&pools)?;
        let table = restore(&store)?;
        let dispatched = table.next;
        store.trim(table.floor()); // The store does not remember it, and perhaps no checkpoint comes that would say it.
        let metrics = Arc::new(Metrics::new(registry));
        let (gone_tx, gone) = mpsc::channel(config.gone_token_count_max);
        let shared = Arc::new(Shared::new(table, metrics.clone(), gone_tx));
        let journal_end = store.watch_journal_end();
        let limits =
            LaneLimits { window_device_count: config.window_device_count, in_flight_max: config.in_flight_max() };
        let lakes = pools.into_iter().map(|pool| pool.lake).collect();
        let context = Arc::new(Context { store, topics, routes, lakes, limits, metrics });
        let (orders, orders_rx) = watch::channel(Order::Run);
        let (done_tx, done) = watch::channel(None);
        let worker =
            Worker { config, context, shared: shared.clone(), orders: orders_rx, done: done_tx, gone, dispatched };
        let runtime = runtime::Builder::new_current_thread().enable_time().build().map_err(StartError::Thread)?;
        let thread = thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || runtime.block_on(worker.run()))
            .map_err(StartError::Thread)?;
        Ok(Self { shared, journal_end, orders, done, thread: Some(thread) })
    }

    /// Where gateways report outcomes. Outcomes that come after the sender's end are lost, as in a crash.
    pub fn sink(&self) -> Arc<dyn OutcomeSink> {
        self.shared.clone()
    }

    /// Hands out nothing more, waits until `deadline` for the outcomes of what is in flight, and writes a last checkpoint.
    /// The gateways must run meanwhile. Unfinished jobs go on at the next start.
    ///
    /// # Cancel safety
    /// Cancel safe: draining goes on, and calling it again waits for its end.
    pub async fn drain(&self, deadline: Instant) -> Drained {
        self.orders.send_if_modified(|order| {
            let running = *order == Order::Run;
            if running {
                *order = Order::Drain(deadline);
            }
            running
        });
        let mut done = self.done.clone();
        let drained = done.wait_for(Option::is_some).await.ok().and_then(|drained| *drained);
        // Without an answer the thread has panicked: nothing was written at the end.
        drained.unwrap_or_else(|| Drained { devices_in_flight: self.backlog().devices_in_flight, checkpointed: false })
    }

    /// Whether every event acknowledged before this call has been worked off, to the last outcome.
    pub fn idle(&self) -> bool {
        let end = *self.journal_end.borrow();
        let table = self.shared.table();
        table.next >= end && table.running.is_empty() && table.waiting.is_empty()
    }

    /// What is still to be done.
    pub fn backlog(&self) -> Backlog {
        let end = *self.journal_end.borrow();
        let (waiting, running) = {
            let table = self.shared.table();
            let unread = end.0.saturating_sub(table.next.0);
            (unread + table.waiting.len() as u64, table.running.values().cloned().collect::<Vec<_>>())
        };
        Backlog {
            events_waiting: waiting,
            jobs_running: running.len() as u64,
            devices_in_flight: running.iter().map(|job| job.in_flight()).sum(),
        }
    }

    /// Devices by outcome since the process began, over all jobs.
    pub fn totals(&self) -> Counts {
        let mut totals = Counts::default();
        for outcome in DeviceOutcome::all() {
            totals.add(outcome, self.shared.metrics.outcomes[outcome.index()].value());
        }
        totals
    }

    /// How a job stands: any running one, and the last `report_count_max` finished ones, also those of earlier runs.
    /// `None` for others, and before the event's turn.
    pub fn job(&self, position: JournalPosition) -> Option<JobReport> {
        let running = {
            let table = self.shared.table();
            if let Some(finished) = table.finished.get(&position) {
                return Some(finished.report.clone());
            }
            table.running.get(&position).cloned()
        };
        running.map(|job| job.report())
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.orders.send_replace(Order::Abort);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there was reported by its hook.
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("backlog", &self.backlog()).finish_non_exhaustive()
    }
}

/// The pool of a server without credentials: it reaches no app, so every device is counted as such.
fn nowhere() -> Pool {
    Pool {
        name: "nowhere".to_owned(),
        environment: Environment::Production,
        apps: Vec::new(),
        lake: Arc::new(Lake::new(1)),
    }
}

/// What the last run left.
fn restore(store: &Store) -> Result<Table, StartError> {
    let first = JournalPosition(1); // Before the first checkpoint the store says 0, which no event has.
    let mut table = Table {
        next: store.dispatched()?.max(first),
        waiting: VecDeque::new(),
        running: BTreeMap::new(),
        finished: BTreeMap::new(),
    };
    for (position, row) in store.jobs()? {
        match JobRow::decode(position, &row)? {
            JobRow::Running(progress) => {
                let accepted = store.event(position)?.ok_or(StartError::EventMissing(position))?;
                table.waiting.push_back(Unfinished { position, accepted, progress });
            }
            JobRow::Finished { event, accepted_at, counts, time_to } => {
                let (state, audience) = (JobState::Finished, counts.total());
                let report = JobReport { position, event, state, accepted_at, audience, counts, time_to };
                table.finished.insert(position, Finished { report, dirty: false });
            }
        }
    }
    Ok(table)
}
