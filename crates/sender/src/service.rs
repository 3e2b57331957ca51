//! The handle: starts the sender's thread from what the store knows, answers questions, drains.
//!
//! Callers never see the thread. Dropping the handle aborts: jobs go on from their last checkpoint after the next
//! start.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tidings_hub::Receipts;
use tidings_jobs::{Counts, DeviceOutcome, JobReport, JobRow, JobState, LaneLimits, Progress, Telling};
use tidings_push::{Lakes, OutcomeSink};
use tidings_store::Store;
use tidings_telemetry::{Registry, chain, unix_now};
use tidings_types::{Environment, Event, EventId, EventPriority, JournalPosition, Provider, Timestamp};
use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::brakes::Braking;
use crate::config::{Pool, SenderConfig};
use crate::context::Context;
use crate::dispatcher::Order;
use crate::error::StartError;
use crate::estimate;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::registry::{Finished, JobRegistry, Table};
use crate::report::{Backlog, Drained, Estimate};
use crate::routes::Routes;
use crate::topic::Topics;
use crate::waiting::{EVENT_LOST, WaitingJob, WaitingJobs};
use crate::wave::Waves;
use crate::worker::Worker;

/// The sender, running on its own thread. Dropped, it stops where it stands, as in a crash; [`Sender::drain`] first.
pub struct Sender {
    registry: Arc<JobRegistry>,
    context: Arc<Context>,
    pools: Vec<Pool>,
    journal_end: watch::Receiver<JournalPosition>,
    orders: watch::Sender<Order>,
    done: watch::Receiver<Option<Drained>>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts sending: the unfinished jobs of the last run first, then every event that has had no job. Reads the jobs
    /// before it returns. Without any pool every device is counted as suppressed. `receipts` say whom an event has
    /// reached over live connections; an event's publications are in the hub before the store tells of the event.
    ///
    /// # Errors
    /// When a setting is out of range, two pools claim an app, or the jobs cannot be read or are not understood.
    pub fn start(
        config: SenderConfig,
        store: Store,
        topics: Arc<Topics>,
        mut pools: Vec<Pool>,
        receipts: Arc<Receipts>,
        registry: &Registry,
    ) -> Result<Self, StartError> {
        config.check()?;
        if pools.is_empty() {
            pools.push(nowhere());
        }
        let routes = Arc::new(Routes::new(&pools)?);
        let carried = routes.lanes().iter().map(|lane| (lane.provider, lane.app.clone())).collect();
        let brakes = Braking::new(store.brakes(), carried);
        let table = restore(&store)?;
        let dispatched = table.next;
        store.trim(table.floor()); // The store does not remember it, and perhaps no checkpoint comes that would say it.
        let apps = routes.lanes().iter().map(|lane| &lane.app);
        let metrics = Metrics::new(registry).telling_apart(registry, apps, topics.languages());
        let metrics = Arc::new(metrics.with_alarms(registry, routes.lanes()));
        metrics.jobs_untold.add(table.untold.len() as i64);
        let (gone_tx, gone) = mpsc::channel(config.gone_token_count_max);
        let waves = Waves::new(config.doubt_window, routes.lanes().len(), Instant::now());
        let registry = JobRegistry::new(table, metrics.clone(), brakes.clone(), gone_tx, waves, routes.clone());
        let registry = Arc::new(registry);
        let journal_end = store.watch_journal_end();
        let limits =
            LaneLimits { window_device_count: config.window_device_count, in_flight_max: config.in_flight_max() };
        let (shadow, walks) = (config.shadow.clone(), Permits::new());
        let context = Context { store, topics, routes, receipts, limits, metrics, brakes, shadow, walks };
        let context = Arc::new(context);
        let (orders, orders_rx) = watch::channel(Order::Run);
        let (done_tx, done) = watch::channel(None);
        let worker = Worker {
            config,
            context: context.clone(),
            registry: registry.clone(),
            orders: orders_rx,
            done: done_tx,
            gone,
            dispatched,
        };
        let runtime = runtime::Builder::new_current_thread().enable_time().build().map_err(StartError::Thread)?;
        let thread = thread::Builder::new()
            .name("sender".to_owned())
            .spawn(move || runtime.block_on(worker.run()))
            .map_err(StartError::Thread)?;
        Ok(Self { registry, context, pools, journal_end, orders, done, thread: Some(thread) })
    }

    /// Where gateways report outcomes and ask what is still to be sent. Outcomes that come after the sender's end are
    /// lost, as in a crash.
    pub fn sink(&self) -> Arc<dyn OutcomeSink> {
        self.registry.clone()
    }

    /// Hands out nothing more, waits until `deadline` for the outcomes of what is in flight, and writes a last
    /// checkpoint. The gateways must run meanwhile. Unfinished jobs go on at the next start.
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
        let table = self.registry.table();
        table.next >= end && table.running.is_empty() && table.waiting.is_empty()
    }

    /// What is still to be done.
    pub fn backlog(&self) -> Backlog {
        let end = *self.journal_end.borrow();
        let (waiting, running) = {
            let table = self.registry.table();
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
            totals.add(outcome, self.registry.metrics.outcomes[outcome.index()].value());
        }
        totals
    }

    /// The same of those that were handed out, by provider and kind of outcome (`accepted`, `rejected` …).
    pub fn totals_by_provider(&self) -> impl Iterator<Item = (Provider, &'static str, u64)> {
        self.registry.metrics.by_provider()
    }

    /// How long an event would take through each pool that reaches somebody of its audience, as the gateways go now and
    /// if nothing else was sent. Reads at most some 65 000 devices, evenly over the audience; blocks for that.
    pub fn estimate(&self, event: &Event) -> Vec<Estimate> {
        estimate::estimate(&self.context, &self.pools, event)
    }

    /// How a job stands: any that is not finished, also one that waits for a slot or has not gone on since an earlier run,
    /// and the last `report_count_max` finished ones. `None` for others, and for events that were not read yet.
    pub fn job(&self, position: JournalPosition) -> Option<JobReport> {
        let running = {
            let table = self.registry.table();
            if let Some(finished) = table.finished.get(&position) {
                return Some(finished.report.clone());
            }
            if let Some(waiting) = table.waiting.get(position) {
                return Some(waiting.report(position, &self.registry.brakes));
            }
            table.running.get(&position).cloned()
        };
        running.map(|job| job.report(&self.registry.brakes, unix_now()))
    }

    /// At most `limit` of the jobs that [`Sender::job`] knows, newest first, those before the event `before` only.
    pub fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobReport> {
        let range = (Bound::Unbounded, before.map_or(Bound::Unbounded, Bound::Excluded));
        let (running, mut reports) = {
            let table = self.registry.table();
            let running: Vec<_> = table.running.range(range).rev().take(limit).map(|(_, job)| job.clone()).collect();
            let finished = table.finished.range(range).rev().map(|(_, finished)| finished.report.clone());
            let report = |(position, waiting): (_, &WaitingJob)| waiting.report(position, &self.registry.brakes);
            let waiting = table.waiting.range(range).rev().map(report);
            (running, finished.take(limit).chain(waiting.take(limit)).collect::<Vec<_>>())
        };
        reports.extend(running.iter().map(|job| job.report(&self.registry.brakes, unix_now())));
        reports.sort_unstable_by_key(|report| Reverse(report.position));
        reports.truncate(limit);
        reports
    }

    /// Takes at most `limit` of the finished jobs that are to be told to somebody outside: those that finished while
    /// `tell_finished` was on, in any order. Whoever takes a job ends with [`Sender::told`] or
    /// [`Sender::gave_up_telling`]; one that is taken and not ended comes again after the next start, also after a
    /// crash.
    ///
    /// A job comes only once the store has it as finished: whatever is told, a restart tells the same. It stays as long
    /// as the sender remembers it; when there are more than `report_count_max`, those that are not to be told are
    /// forgotten first, then the oldest of the others (`tidings_sender_untold_forgotten_total`). Without
    /// `tell_finished` the oldest of all go first: what an earlier run owed is kept for no longer than the rest.
    pub fn take_untold(&self, limit: usize) -> Vec<JournalPosition> {
        let untold = &mut self.registry.table().untold;
        std::iter::from_fn(|| untold.pop_first()).take(limit).collect()
    }

    /// Resolves when there may be something for [`Sender::take_untold`]; at once if something came since the last call.
    /// For one caller at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: what came is told by the next call.
    pub async fn more_untold(&self) {
        self.registry.more_untold.notified().await;
    }

    /// What is to be told of a job; `None` when it is told, given up or forgotten.
    pub fn untold(&self, position: JournalPosition) -> Option<JobReport> {
        let table = self.registry.table();
        table.finished.get(&position).filter(|finished| finished.is_owed()).map(|finished| finished.report.clone())
    }

    /// Whether the job is still to be told; false also when it is forgotten.
    pub fn is_untold(&self, position: JournalPosition) -> bool {
        self.registry.table().finished.get(&position).is_some_and(Finished::is_owed)
    }

    /// The job was told. The next checkpoint says so; a crash before it makes it come once more.
    pub fn told(&self, position: JournalPosition) {
        self.registry.end_telling(position, Telling::Told);
    }

    /// The job will not be told.
    pub fn gave_up_telling(&self, position: JournalPosition) {
        self.registry.end_telling(position, Telling::GivenUp);
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
        provider: Provider::Apns,
        environment: Environment::Production,
        apps: Vec::new(),
        services: None,
        lakes: Lakes::new(1),
        quarantine: None,
        gauge: None,
    }
}

/// What the last run left.
fn restore(store: &Store) -> Result<Table, StartError> {
    let first = JournalPosition(1); // Before the first checkpoint the store says 0, which no event has.
    let mut table = Table {
        next: store.dispatched()?.max(first),
        waiting: WaitingJobs::default(),
        running: BTreeMap::new(),
        finished: BTreeMap::new(),
        untold: BTreeSet::new(),
    };
    let flow = Flow::new(0); // Which lanes their devices wait for is not known.
    for (position, row) in store.jobs()? {
        match JobRow::decode(position, &row)? {
            JobRow::Running(progress) => {
                let accepted = match store.event(position) {
                    Err(error) if error.is_damage() => {
                        tracing::error!(
                            job = position.0,
                            error = chain(&error),
                            "the event of a job is damaged, the job ends"
                        );
                        let report = unreadable(position, progress);
                        table.finished.insert(position, Finished { report, telling: None, dirty: true });
                        continue;
                    }
                    read => read?.ok_or(StartError::EventMissing(position))?,
                };
                table.waiting.insert(position, WaitingJob::restored(&accepted, progress), &flow, unix_now());
            }
            JobRow::Finished(report, telling) => {
                let report = *report;
                let finished = Finished { report, telling, dirty: false };
                if finished.is_owed() {
                    table.untold.insert(position);
                }
                table.finished.insert(position, finished);
            }
        }
    }
    Ok(table)
}

/// The report of a job that ends because its event is damaged, as [`WaitingJob::lose`]. It is told to nobody: its id is lost.
fn unreadable(position: JournalPosition, Progress { outstanding, mut tally, .. }: Progress) -> JobReport {
    tally.counts.add(EVENT_LOST, outstanding.len());
    JobReport {
        position,
        event: EventId::new(&format!("unreadable-{}", position.0)).expect("a short name of letters and digits"),
        topic: None,
        priority: EventPriority::default(),
        state: JobState::Finished,
        paused_by: None,
        accepted_at: Timestamp::default(),
        done_at: Some(unix_now()),
        audience: tally.counts.total(),
        held: 0,
        time_to: tally.time_to(),
        counts: tally.counts,
        by: tally.parts,
        retried: tally.retried,
    }
}
