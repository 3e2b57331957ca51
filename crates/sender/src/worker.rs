//! The sender's thread: gives each accepted event its job, in journal order, and reaps jobs that are over.

use std::sync::Arc;
use std::time::Duration;

use tidings_audience::Frozen;
use tidings_store::{AcceptedEvent, GoneToken, Store};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceNumber, ExpectAudience, JournalPosition, PushPolicy};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep, timeout_at};

use crate::brakes::Braking;
use crate::checkpoint::Checkpointer;
use crate::config::SenderConfig;
use crate::context::Context;
use crate::hold;
use crate::job::Job;
use crate::outcome::{Counts, DeviceOutcome, Suppression};
use crate::report::{Drained, JobReport, JobState};
use crate::row::Progress;
use crate::shared::{Shared, Unfinished};
use crate::supersede;
use crate::walk::{self, Phase};

/// Events read from the journal at once.
const READ_EVENT_COUNT: usize = 64;
/// Dead tokens reported to the store at once.
const GONE_BATCH_COUNT: usize = 256;
/// How long after its event's acceptance a job that only waits for receipts may have to make room for others: clients
/// that answer have by then.
const CUT_HOLD_AFTER: Duration = Duration::from_millis(500);
/// First acceptances are told to the store this often: each time it rewrites 8 KiB per 65 536 device numbers.
const PROVEN_INTERVAL: Duration = Duration::from_millis(250);
/// Pause before the store is asked again after it refused, or running jobs are asked for room.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// What the last checkpoint gets beyond the deadline of draining.
const LAST_CHECKPOINT: Duration = Duration::from_secs(1);

/// What the sender's owner wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Stop handing out, wait for outcomes until then, write a last checkpoint.
    Drain(Instant),
    /// Stop here.
    Abort,
}

pub(crate) struct Worker {
    pub(crate) config: SenderConfig,
    pub(crate) context: Arc<Context>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) orders: watch::Receiver<Order>,
    pub(crate) done: watch::Sender<Option<Drained>>,
    pub(crate) gone: mpsc::Receiver<GoneToken>,
    /// Up to where the store knows that events have a job.
    pub(crate) dispatched: JournalPosition,
}

impl Worker {
    pub(crate) async fn run(self) {
        let Self { config, context, shared, mut orders, done, gone, dispatched } = self;
        let (phase, phases) = watch::channel(Phase::Running);
        let (mut checkpoints, mut reports) = (JoinSet::new(), JoinSet::new());
        reports.spawn(report_gone(context.store.clone(), gone, phases.clone()));
        reports.spawn(report_proven(context.store.clone(), shared.clone(), phases.clone()));
        let checkpointer = Checkpointer {
            store: context.store.clone(),
            shared: shared.clone(),
            interval: config.checkpoint_interval,
            report_count_max: config.report_count_max,
            tell_finished: config.tell_finished,
            dispatched,
            losing_untold: false,
        };
        checkpoints.spawn(checkpointer.run(phases.clone()));

        let mut dispatcher = Dispatcher {
            config,
            brakes: context.brakes.clone(),
            context,
            shared: shared.clone(),
            phases,
            jobs: JoinSet::new(),
            failing: false,
            cut_at: Instant::now(),
        };
        let order = dispatcher.run(&mut orders).await;
        let Order::Drain(deadline) = order else { return }; // Dropping the sets ends all tasks where they stand.
        phase.send_replace(Phase::Draining);
        let landed = timeout_at(deadline, dispatcher.land());
        tokio::select! {
            _ = landed => {}
            _ = orders.wait_for(|order| *order == Order::Abort) => return,
        }
        phase.send_replace(Phase::Closing);
        let last_deadline = deadline.max(Instant::now()) + LAST_CHECKPOINT;
        let checkpointed = tokio::select! {
            last = timeout_at(last_deadline, checkpoints.join_next()) => matches!(last, Ok(Some(Ok(())))),
            _ = orders.wait_for(|order| *order == Order::Abort) => return,
        };
        let _ = timeout_at(last_deadline, reports.join_all()).await; // What is not reported the provider says again.
        let running: Vec<_> = shared.table().running.values().cloned().collect();
        let devices_in_flight = running.iter().map(|job| job.in_flight()).sum();
        tracing::info!(devices_in_flight, checkpointed, "drained");
        done.send_replace(Some(Drained { devices_in_flight, checkpointed }));
    }
}

struct Dispatcher {
    config: SenderConfig,
    context: Arc<Context>,
    shared: Arc<Shared>,
    phases: watch::Receiver<Phase>,
    brakes: Braking,
    /// A task per running job, and one per job that holds devices back; each tells its job.
    jobs: JoinSet<JournalPosition>,
    /// The last read of the journal failed; said once.
    failing: bool,
    /// Not before then holds are cut again.
    cut_at: Instant,
}

impl Dispatcher {
    /// Dispatches until ordered otherwise.
    async fn run(&mut self, orders: &mut watch::Receiver<Order>) -> Order {
        let mut journal = self.context.store.watch_journal_end();
        loop {
            let end = *journal.borrow_and_update();
            let more = self.dispatch(end).await;
            tokio::select! {
                biased; // Stopping first, then making room for new jobs.
                order = orders.wait_for(|order| *order != Order::Run) => {
                    return order.map_or(Order::Abort, |order| *order);
                }
                () = self.brakes.changed() => self.cancel_marked(),
                Some(ended) = self.jobs.join_next(), if !self.jobs.is_empty() => self.retire(ended),
                () = tokio::task::yield_now(), if more => {}
                _ = journal.changed(), if !more => {}
                () = sleep(RETRY_PAUSE), if !more => {}
            }
            while let Some(ended) = self.jobs.try_join_next() {
                self.retire(ended);
            }
        }
    }

    /// Waits until no lane has anything in flight.
    async fn land(&mut self) {
        while let Some(ended) = self.jobs.join_next().await {
            self.retire(ended);
        }
    }

    /// Gives the next events their jobs, as many as may run, those of an earlier run first. Tells whether it could go
    /// on at once; if not, the journal has no more, there is no room, or it cannot be read.
    async fn dispatch(&mut self, end: JournalPosition) -> bool {
        while self.room() > 0 && self.resume().await {}
        let room = self.room().min(READ_EVENT_COUNT);
        let next = self.shared.table().next;
        if room == 0 {
            self.cut_holds(end);
        }
        if room == 0 || next >= end {
            return false;
        }
        let events = match self.context.store.events_from(next, room) {
            Ok(events) => events,
            Err(error) => {
                self.shared.metrics.reads_failed.inc();
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(%error, "cannot read the journal, trying again");
                }
                return false;
            }
        };
        self.failing = false;
        if events.is_empty() {
            tracing::error!(from = next.0, to = end.0, "events are not in the journal any more, passing over them");
            self.shared.table().next = end;
        }
        for (position, accepted) in events {
            self.start(position, accepted).await;
        }
        true
    }

    /// How many more jobs may run.
    fn room(&self) -> usize {
        let table = self.shared.table();
        // Finished jobs pile up while the store takes no checkpoints; it takes no events then either.
        if table.finished.len() >= 2 * self.config.report_count_max {
            return 0;
        }
        self.config.job_count_max.saturating_sub(table.running.len())
    }

    /// While events wait for room, as many of the oldest jobs that only wait for receipts, and have for a while, wait
    /// no longer: clients that do not answer cost themselves a push and not others their time.
    fn cut_holds(&mut self, end: JournalPosition) {
        if Instant::now() < self.cut_at {
            return;
        }
        self.cut_at = Instant::now() + RETRY_PAUSE;
        let (wanted, running) = {
            let table = self.shared.table();
            if table.running.len() < self.config.job_count_max {
                return;
            }
            let unread = usize::try_from(end.0.saturating_sub(table.next.0)).unwrap_or(usize::MAX);
            let wanted = unread.saturating_add(table.waiting.len());
            (wanted, if wanted == 0 { Vec::new() } else { table.running.values().cloned().collect() })
        };
        let now = unix_now();
        for job in running.iter().filter(|job| job.only_holds_since(CUT_HOLD_AFTER, now)).take(wanted) {
            job.let_go(&self.context.metrics);
            self.context.metrics.holds_cut.inc();
        }
    }

    /// Gives an event its job. One that concerns nobody, or not as many as expected, is done at once.
    async fn start(&mut self, position: JournalPosition, accepted: AcceptedEvent) {
        let next = JournalPosition(position.0 + 1);
        self.shared.metrics.events_dispatched.inc();
        let is_pushed = accepted.event.push != PushPolicy::Never;
        let frozen = if is_pushed { self.select(&accepted) } else { Frozen::default() };
        let is_unexpected = is_pushed && self.is_unexpected(position, &accepted, &frozen).await;
        if frozen.is_empty() || is_unexpected {
            let report = told_nobody(position, &accepted, frozen.len());
            self.shared.metrics.count(NOT_EXPECTED, frozen.len());
            let mut table = self.shared.table();
            table.next = next;
            self.shared.finish(&mut table, report, self.config.tell_finished, unix_now());
            return;
        }
        let job = self.job(position, accepted, frozen, Progress::start());
        {
            let mut table = self.shared.table();
            table.next = next;
            table.running.insert(position, job.clone());
        }
        self.begin(&job).await;
    }

    /// Goes on with the oldest job of an earlier run; false when there is none.
    async fn resume(&mut self) -> bool {
        let Some(accepted) = self.shared.table().waiting.front().map(|job| job.accepted.clone()) else { return false };
        let frozen = self.select(&accepted);
        let job = {
            let mut table = self.shared.table();
            let Some(Unfinished { position, progress, .. }) = table.waiting.pop_front() else { return false };
            let job = self.job(position, accepted, frozen, progress);
            table.running.insert(position, job.clone());
            job
        };
        self.begin(&job).await;
        true
    }

    /// Whether the audience, without those that the event's filter does not admit, is of another size than it may be;
    /// says so.
    async fn is_unexpected(&self, position: JournalPosition, accepted: &AcceptedEvent, frozen: &Frozen) -> bool {
        let AcceptedEvent { event, audience_max, .. } = accepted;
        let expected = event.expect_audience.unwrap_or(ExpectAudience { min: None, max: None });
        let max = [expected.max, *audience_max].into_iter().flatten().min();
        // The filter only makes it smaller: mostly there is nothing to be read.
        let is_read = event.filter.is_some() && (expected.min.is_some() || max.is_some_and(|max| frozen.len() > max));
        let device_count = match is_read {
            true => {
                self.context.admitted(event, &frozen.iter_from(DeviceNumber(0)).map(|it| it.0).collect()).await.len()
            }
            false => frozen.len(),
        };
        let is_expected = ExpectAudience { max, ..expected }.admits(device_count);
        if !is_expected {
            let (job, event, min) = (position.0, &event.id, expected.min);
            tracing::warn!(job, %event, device_count, ?min, ?max, "unexpected audience, nobody is told");
            self.shared.metrics.unexpected_audiences.inc();
        }
        !is_expected
    }

    /// Cancels what is to be cancelled, takes over from older jobs, and lets the job go.
    async fn begin(&mut self, job: &Arc<Job>) {
        let is_over = |job: &Job| unix_now() >= job.expires_at;
        if self.brakes.now().cancelled.contains(&job.position) {
            job.cancel(&self.context.metrics);
        } else if !is_over(job) {
            self.supersede(job).await;
        }
        self.launch(job);
    }

    async fn supersede(&self, job: &Arc<Job>) {
        let event = &job.accepted.event;
        if event.collapse_key.is_none() || event.dry_run {
            return;
        }
        let has_key = |older: &&Arc<Job>| {
            let older = &older.accepted.event;
            older.collapse_key == event.collapse_key && !older.dry_run
        };
        let older: Vec<_> = {
            let table = self.shared.table();
            table.running.range(..job.position).map(|(_, older)| older).filter(has_key).cloned().collect()
        };
        let shared = supersede::shared(job, &older);
        if !shared.is_empty() {
            let admitted = self.context.admitted(event, &shared).await;
            supersede::begin(job, &older, shared, &admitted, &self.context.metrics);
        }
    }

    /// Cancels the running jobs that the store says are cancelled.
    fn cancel_marked(&self) {
        let brakes = self.brakes.now();
        let marked: Vec<_> = {
            let table = self.shared.table();
            brakes.cancelled.iter().filter_map(|position| table.running.get(position).cloned()).collect()
        };
        marked.iter().for_each(|job| job.cancel(&self.context.metrics));
    }

    fn job(&self, position: JournalPosition, accepted: AcceptedEvent, frozen: Frozen, progress: Progress) -> Arc<Job> {
        let may_hold = accepted.event.push == PushPolicy::UnlessReceived;
        let job = Job::new(position, accepted, frozen, self.context.routes.lanes().len(), progress);
        let receipts = may_hold.then(|| self.context.receipts.get(position)).flatten();
        Arc::new(match receipts {
            Some(receipts) => job.with_receipts(receipts, unix_now()),
            None => job,
        })
    }

    fn select(&self, accepted: &AcceptedEvent) -> Frozen {
        let began = Instant::now();
        let frozen = self.context.store.select(&accepted.event);
        self.shared.metrics.selection.record(began.elapsed());
        frozen
    }

    fn launch(&mut self, job: &Arc<Job>) {
        self.shared.metrics.jobs_running.add(1);
        if job.is_holding() {
            let (job, context, phases) = (job.clone(), self.context.clone(), self.phases.clone());
            self.jobs.spawn(async move {
                hold::run(&job, &context.metrics, phases).await;
                job.position
            });
        }
        let (job, context, phases) = (job.clone(), self.context.clone(), self.phases.clone());
        self.jobs.spawn(async move {
            let position = job.position;
            walk::run(job, context, phases).await;
            position
        });
    }

    /// A task has ended: for the first one of a job that is over, the job is done.
    fn retire(&mut self, ended: Result<JournalPosition, JoinError>) {
        let position = match ended {
            Ok(position) => position,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // Aborted: only by dropping the set.
            },
        };
        let mut table = self.shared.table();
        if !table.running.get(&position).is_some_and(|job| job.is_over()) {
            return;
        }
        if let Some(job) = table.running.remove(&position) {
            let now = unix_now();
            self.shared.finish(&mut table, job.report(&self.brakes, now), self.config.tell_finished, now);
            self.shared.metrics.jobs_running.sub(1);
            tracing::debug!(job = position.0, event = %job.accepted.event.id, "job finished");
        }
    }
}

/// What is counted of an audience of another size than expected.
const NOT_EXPECTED: DeviceOutcome = DeviceOutcome::Suppressed(Suppression::UnexpectedAudience);

/// The report of an event that nobody is told of: without push, or whose audience is empty or not as expected.
fn told_nobody(position: JournalPosition, accepted: &AcceptedEvent, audience: u64) -> JobReport {
    let event = &accepted.event;
    let mut counts = Counts::default();
    counts.add(NOT_EXPECTED, audience);
    JobReport {
        position,
        event: event.id.clone(),
        topic: Some(event.topic.clone()),
        priority: event.priority,
        state: JobState::Finished,
        paused_by: None,
        accepted_at: accepted.accepted_at,
        done_at: None,
        audience,
        held: 0,
        counts,
        by: Vec::new(),
        retried: 0,
        time_to: None,
    }
}

/// Tells the store which tokens were accepted for the first time, until the sender closes. What the store refuses is
/// forgotten: the next acceptance says it again.
async fn report_proven(store: Store, shared: Arc<Shared>, mut phase: watch::Receiver<Phase>) {
    loop {
        let closing = *phase.borrow_and_update() == Phase::Closing;
        let proven = shared.take_proven();
        if !proven.is_empty() {
            let told = store.devices_proven(proven.iter().map(DeviceNumber).collect()).await;
            told.unwrap_or_else(|error| tracing::debug!(%error, "accepted tokens were not noted"));
        }
        if closing {
            return;
        }
        tokio::select! {
            () = sleep(PROVEN_INTERVAL) => {}
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => {}
        }
    }
}

/// Tells the store which tokens are dead, until the sender closes. What the store refuses is tried again, and meanwhile
/// the queue behind fills and drops.
async fn report_gone(store: Store, mut gone: mpsc::Receiver<GoneToken>, mut phase: watch::Receiver<Phase>) {
    let mut batch = Vec::with_capacity(GONE_BATCH_COUNT);
    loop {
        let count = tokio::select! {
            biased; // What waits is reported before the end.
            count = gone.recv_many(&mut batch, GONE_BATCH_COUNT) => count,
            _ = phase.wait_for(|phase| *phase == Phase::Closing) => 0,
        };
        if count == 0 {
            return;
        }
        while let Err(error) = store.tokens_gone(batch.clone()).await {
            tracing::debug!(%error, "dead tokens were not taken, trying again");
            sleep(RETRY_PAUSE).await;
        }
        batch.clear();
    }
}
