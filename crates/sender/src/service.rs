//! The handle: restores the jobs from the store, starts the sender's thread, answers questions, drains.
//!
//! Callers never see the thread. Dropping the handle aborts: after the next start, jobs continue from their last
//! checkpoint.

use std::cmp::Reverse;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tidings_hub::{FanOut, Receipts};
use tidings_jobs::{Counts, DeviceOutcome, JobReport, JobRow, LaneLimits, Progress, Telling};
use tidings_push::{Lakes, OutcomeSink};
use tidings_store::Store;
use tidings_telemetry::{Registry, chain, unix_now};
use tidings_types::{Environment, Event, EventId, EventPriority, JobState, JournalPosition, Provider, Timestamp};
use tokio::runtime;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep};

use crate::brakes::Braking;
use crate::config::{Pool, SenderConfig};
use crate::context::Context;
use crate::dispatcher::Order;
use crate::error::StartError;
use crate::estimate;
use crate::flow::Flow;
use crate::levels;
use crate::metrics::Metrics;
use crate::permits::Permits;
use crate::registry::{Finished, JobRegistry, Table};
use crate::report::{Backlog, Drained, Estimate};
use crate::routes::Routes;
use crate::topic::CurrentTopics;
use crate::trails::Trails;
use crate::waiting::{EVENT_LOST, WaitingJob};
use crate::wave::Waves;
use crate::worker::Worker;

/// The pause between two looks whether a device is held back.
const REST_LOOK: Duration = Duration::from_millis(10);

/// The sender, running on its own thread. Dropping it stops it at once, as in a crash; call [`Sender::drain`] first.
pub struct Sender {
    pub(crate) registry: Arc<JobRegistry>,
    pub(crate) context: Arc<Context>,
    pub(crate) pools: Vec<Pool>,
    journal_end: watch::Receiver<JournalPosition>,
    orders: watch::Sender<Order>,
    done: watch::Receiver<Option<Drained>>,
    thread: Option<JoinHandle<()>>,
}

impl Sender {
    /// Starts sending: the unfinished jobs of the last run first, then every event without a job. Reads the jobs before
    /// it returns. Without any pool every device is counted as suppressed. `receipts` say which devices an event has
    /// reached over live connections, `fan_out` whether the loops of these have written it: a job lets them go first, for
    /// 20 ms at most. An event's publications must be in the hub before the store reports the event.
    ///
    /// # Errors
    /// When a setting is out of range, two pools claim an app, or the jobs cannot be read or are not understood.
    pub fn start(
        config: SenderConfig,
        store: Store,
        topics: Arc<CurrentTopics>,
        mut pools: Vec<Pool>,
        (receipts, fan_out): (Arc<Receipts>, Arc<FanOut>),
        registry: &Registry,
    ) -> Result<Self, StartError> {
        config.check()?;
        if pools.is_empty() {
            pools.push(nowhere());
        }
        let routes = Arc::new(Routes::new(&pools)?);
        let carried = routes.lanes().iter().map(|lane| (lane.provider, lane.app.clone())).collect();
        let brakes = Braking::new(store.brakes(), config.tenure.clone(), carried);
        let table = restore(&store)?;
        let dispatched = table.next;
        store.trim(table.floor()); // The store does not keep this, and perhaps no later checkpoint says it.
        let apps = routes.lanes().iter().map(|lane| &lane.app);
        let metrics = Metrics::new(registry).telling_apart(registry, apps, topics.get().languages());
        let metrics = Arc::new(metrics.with_alarms(registry, routes.lanes()));
        metrics.jobs_untold.add(table.untold.len() as i64);
        let (gone_tx, gone) = mpsc::channel(config.gone_token_count_max);
        let waves = Waves::new(config.doubt_window, routes.lanes().len(), Instant::now());
        let trails = Arc::new(Trails::new(config.why_ttl, config.why_bytes_max));
        let (of_jobs, routed) = (trails.clone(), routes.clone());
        let jobs = JobRegistry::new(table, metrics.clone(), brakes.clone(), of_jobs, gone_tx, waves, routed);
        let jobs = Arc::new(jobs);
        levels::register(registry, &jobs, store.watch_journal_end());
        let registry = jobs;
        let journal_end = store.watch_journal_end();
        let limits =
            LaneLimits { window_device_count: config.window_device_count, in_flight_max: config.in_flight_max() };
        let (shadow, tracer, walks) = (config.shadow.clone(), config.tracer.clone(), Permits::new());
        let context = Context {
            store,
            topics,
            routes,
            receipts,
            fan_out,
            limits,
            metrics,
            brakes,
            shadow,
            tracer,
            walks,
            trails,
        };
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

    /// The sink to which gateways report outcomes, and which they ask whether to send. Outcomes that come after the
    /// sender's end are lost, as in a crash.
    pub fn sink(&self) -> Arc<dyn OutcomeSink> {
        self.registry.clone()
    }

    /// Begins no more jobs, and waits until those that run hold no device back any more, at most until `deadline`. Without it, a
    /// device whose receipt is awaited is pushed by the sender that goes on.
    ///
    /// # Cancel safety
    /// Cancel safe: no more jobs begin nevertheless.
    pub async fn rest(&self, deadline: Instant) {
        self.orders.send_if_modified(|order| {
            let running = *order == Order::Run;
            if running {
                *order = Order::Rest;
            }
            running
        });
        loop {
            sleep(REST_LOOK).await; // A job may be beginning.
            if self.registry.metrics.jobs_holding.value() == 0 || Instant::now() >= deadline {
                return;
            }
        }
    }

    /// Hands out nothing more, waits until `deadline` for the outcomes of notifications in flight, and writes a last
    /// checkpoint. The gateways must run meanwhile. Unfinished jobs continue at the next start.
    ///
    /// # Cancel safety
    /// Cancel safe: draining continues, and a second call waits for its end.
    pub async fn drain(&self, deadline: Instant) -> Drained {
        self.orders.send_if_modified(|order| {
            let running = matches!(order, Order::Run | Order::Rest);
            if running {
                *order = Order::Drain(deadline);
            }
            running
        });
        let mut done = self.done.clone();
        let drained = done.wait_for(Option::is_some).await.ok().and_then(|drained| *drained);
        // No answer means that the thread has panicked: no last checkpoint was written.
        drained.unwrap_or_else(|| Drained { devices_in_flight: self.backlog().devices_in_flight, checkpointed: false })
    }

    /// Whether every device of every event acknowledged before this call has its outcome.
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

    /// Devices handed out since the process began, by provider and kind of outcome (`accepted`, `rejected` …).
    pub fn totals_by_provider(&self) -> impl Iterator<Item = (Provider, &'static str, u64)> {
        self.registry.metrics.by_provider()
    }

    /// How long an event would take through each pool that reaches a device of its audience, at the gateways' current
    /// rate and if nothing else was sent. Blocks while it reads at most some 65 000 devices, evenly over the audience.
    pub fn estimate(&self, event: &Event) -> Vec<Estimate> {
        estimate::estimate(&self.context, &self.pools, event)
    }

    /// The report of a job. Known are all unfinished jobs, also those that wait for a slot or have not continued since
    /// an earlier run, and the last `report_count_max` finished jobs. `None` for others, and for events that were not
    /// read yet.
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

    /// At most `limit` of the jobs that [`Sender::job`] knows, newest first; with `before`, only jobs before that
    /// event.
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

    /// Takes at most `limit` of the finished jobs that owe a report, in any order: those that finished while
    /// `tell_finished` was on. The caller must end each job that it takes with [`Sender::told`] or
    /// [`Sender::gave_up_telling`]. A job that was taken and not ended comes again after the next start, also after a
    /// crash.
    ///
    /// A job comes only once the store has it as finished, so that a restart reports the same. It stays as long as the
    /// sender keeps it. When there are more than `report_count_max` finished jobs, those that owe no report are deleted
    /// first, then the oldest of the others (`tidings_sender_untold_forgotten_total`). Without `tell_finished` the
    /// oldest of all are deleted first, also those that owe a report from an earlier run.
    pub fn take_untold(&self, limit: usize) -> Vec<JournalPosition> {
        let untold = &mut self.registry.table().untold;
        std::iter::from_fn(|| untold.pop_first()).take(limit).collect()
    }

    /// Resolves when there may be jobs for [`Sender::take_untold`]; at once if some came since the last call. For one
    /// caller at a time.
    ///
    /// # Cancel safety
    /// Cancel safe: the next call reports what came.
    pub async fn more_untold(&self) {
        self.registry.more_untold.notified().await;
    }

    /// The owed report of a job; `None` when it is delivered, given up or forgotten.
    pub fn untold(&self, position: JournalPosition) -> Option<JobReport> {
        let table = self.registry.table();
        table.finished.get(&position).filter(|finished| finished.is_owed()).map(|finished| finished.report.clone())
    }

    /// Whether the job still owes its report; false also when the job is forgotten.
    pub fn is_untold(&self, position: JournalPosition) -> bool {
        self.registry.table().finished.get(&position).is_some_and(Finished::is_owed)
    }

    /// The report was delivered. The next checkpoint notes it; after a crash before that, the job comes once more.
    pub fn told(&self, position: JournalPosition) {
        self.registry.end_telling(position, Telling::Told);
    }

    /// The report will not be delivered.
    pub fn gave_up_telling(&self, position: JournalPosition) {
        self.registry.end_telling(position, Telling::GivenUp);
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.orders.send_replace(Order::Abort);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // The panic hook has reported a panic there.
        }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("backlog", &self.backlog()).finish_non_exhaustive()
    }
}

/// The pool of a server without credentials. It reaches no app, so every device is counted as `no_pool`.
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

/// Restores the jobs of the last run.
fn restore(store: &Store) -> Result<Table, StartError> {
    let first = JournalPosition(1); // Before the first checkpoint the store says 0, which no event has.
    let mut table = Table { next: store.dispatched()?.max(first), ..Table::default() };
    let flow = Flow::new(0); // The lanes that their devices wait for are not known.
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

/// The report of a job that ends because its event is damaged, as in [`WaitingJob::lose`]. It is not delivered, because
/// the event's id is lost.
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
        time_to_by: tally.time_to_by(),
        time_to_live: None,
        counts: tally.counts,
        by: tally.parts,
        retried: tally.retried,
    }
}
