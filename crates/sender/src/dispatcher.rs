//! Reads the journal in order, and starts, suspends and ends jobs as [`tidings_jobs::Slots`] decides.
//!
//! At each step it first starts up to [`STEP_COUNT`] waiting jobs, and then reads up to as many events from the
//! journal, which start or wait. Reading does not wait for slots. It looks up which running jobs are idle every
//! [`LOOK_PERIOD`] while slots are contended, and when a pause begins or ends. Nothing starts while there are 2 ×
//! `report_count_max` finished jobs or more, counting those that the store has not taken yet.
//!
//! **Order within a key.** A newer event supersedes the older ones when it begins ([`crate::supersede`]), also those
//! that wait. For a waiting event without an audience the audience is selected then, so that the newer event takes its
//! devices for good. An older event that begins later has only the rest.
//!
//! **Crash.** A waiting job has a row like any other, written with the checkpoint that says its event is dispatched.
//! After a restart all jobs that are not finished are waiting jobs, and start again as the slots allow.

use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_jobs::{
    Claim, Counts, DeviceOutcome, Extent, JobReport, JobSize, Note, Progress, Ready, Slots, Suppression,
};
use tidings_store::{AcceptedEvent, ReadError};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{
    DeviceNumber, Event, EventPriority, ExpectAudience, JobState, JournalPosition, ParamValue, PushPolicy,
};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use crate::brakes::Braking;
use crate::config::SenderConfig;
use crate::context::Context;
use crate::flow::Flow;
use crate::hold;
use crate::job::Job;
use crate::phase::Phase;
use crate::places::PLACE_COUNT_MAX;
use crate::registry::JobRegistry;
use crate::spans;
use crate::supersede;
use crate::topic::Topics;
use crate::waiting::{EVENT_LOST, WaitingJob, superseding_key};
use crate::walk;

/// Events read from the journal, or waiting jobs started, at once.
const STEP_COUNT: usize = 64;
/// Time between two looks at which jobs are idle, and before a retry.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// After this time since its event's acceptance, a job that only waits for receipts may have to stop waiting, so that
/// other jobs get a slot. Clients that answer have answered by then.
const CUT_HOLD_AFTER: Duration = Duration::from_millis(500);

/// Orders of the sender's owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Run,
    /// Begin no more jobs; those that run go on.
    Rest,
    /// Stop handing out, wait for outcomes until this time, write a last checkpoint.
    Drain(Instant),
    /// Stop at once.
    Abort,
}

/// The result of reading a waiting job's event.
enum Read {
    Event(Box<AcceptedEvent>),
    /// There is no event; the job is ended.
    Lost,
    /// Try again later.
    Failed,
}

pub(crate) struct Dispatcher {
    config: SenderConfig,
    context: Arc<Context>,
    registry: Arc<JobRegistry>,
    phases: watch::Receiver<Phase>,
    brakes: Braking,
    /// A task per running job, and one per job that holds devices back. Each returns its job.
    jobs: JoinSet<JournalPosition>,
    /// The last read of the journal failed. Logged once.
    failing: bool,
    flow: Flow,
    slots: Slots,
    look_at: Instant,
}

impl Dispatcher {
    pub(crate) fn new(
        config: SenderConfig,
        context: Arc<Context>,
        registry: Arc<JobRegistry>,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            brakes: context.brakes.clone(),
            flow: Flow::new(context.routes.lanes().len()),
            slots: Slots::new(config.job_count_max, config.job_bytes_max),
            config,
            context,
            registry,
            phases,
            jobs: JoinSet::new(),
            failing: false,
            look_at: Instant::now(),
        }
    }

    /// Dispatches until ordered otherwise.
    pub(crate) async fn run(&mut self, orders: &mut watch::Receiver<Order>) -> Order {
        let mut journal = self.context.store.watch_journal_end();
        loop {
            let end = *journal.borrow_and_update();
            let is_resting = *orders.borrow() == Order::Rest;
            let more = !is_resting && self.dispatch(end).await;
            tokio::select! {
                biased; // Stopping first, then making room for new jobs.
                order = orders.wait_for(|order| !matches!(order, Order::Run | Order::Rest)) => {
                    return order.map_or(Order::Abort, |order| *order);
                }
                () = self.brakes.changed() => {
                    self.cancel_marked();
                    self.look_at_brakes();
                }
                Some(ended) = self.jobs.join_next(), if !self.jobs.is_empty() => self.retire(ended),
                () = tokio::task::yield_now(), if more => {}
                _ = journal.changed(), if !more => {}
                () = sleep(LOOK_PERIOD), if !more => {}
            }
            while let Some(ended) = self.jobs.try_join_next() {
                self.retire(ended);
            }
        }
    }

    /// Waits until no lane has notifications in flight.
    pub(crate) async fn land(&mut self) {
        while let Some(ended) = self.jobs.join_next().await {
            self.retire(ended);
        }
    }

    /// Starts waiting jobs and the next events, or lets the events wait. Returns whether it could continue at once. If
    /// not, there is nothing more, no room, or the store cannot be read.
    async fn dispatch(&mut self, end: JournalPosition) -> bool {
        // Finished jobs accumulate while the store takes no checkpoints. It takes no events then either.
        if self.registry.table().finished.len() >= 2 * self.config.report_count_max {
            return false;
        }
        self.look();
        let more = self.start_waiting().await;
        let next = self.registry.table().next;
        let room = self.waiting_room().max(self.slots.free(EventPriority::High)).min(STEP_COUNT);
        if room == 0 || next >= end {
            return more;
        }
        let Some(events) = self.readable(self.context.store.events_from(next, room)) else { return false };
        if events.is_empty() {
            tracing::error!(from = next.0, to = end.0, "events are no longer in the journal, skipping them");
            self.registry.metrics.events_lost.add(end.0 - next.0);
            self.registry.table().next = end;
        }
        for (position, accepted) in events {
            let lost = position.0.saturating_sub(self.registry.table().next.0); // The store has logged them.
            if accepted.event.push != PushPolicy::Never && !self.claim_slot(accepted.event.priority) {
                if self.waiting_room() == 0 {
                    return more;
                }
                self.wait(position, &accepted);
            } else if !self.start(position, accepted).await {
                return false;
            }
            self.registry.metrics.events_lost.add(lost);
        }
        true
    }

    /// How many more events may become waiting jobs.
    fn waiting_room(&self) -> usize {
        self.slots.waiting_room(self.registry.table().waiting.len())
    }

    /// The value read, or `None` after an error, which is logged once.
    fn readable<T>(&mut self, read: Result<T, ReadError>) -> Option<T> {
        let failed = read.inspect_err(|error| {
            self.registry.metrics.reads_failed.inc();
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(error = chain(&error), "cannot read the journal, trying again");
            }
        });
        self.failing &= failed.is_err();
        failed.ok()
    }

    /// The event of a waiting job. If the event is damaged or missing, the job ends.
    fn read(&mut self, position: JournalPosition) -> Read {
        match self.context.store.event(position) {
            Err(error) if error.is_damage() => {
                self.registry.metrics.reads_failed.inc();
                tracing::error!(
                    job = position.0,
                    error = chain(&error),
                    "the event of a waiting job is damaged, the job ends"
                );
            }
            read => match self.readable(read) {
                Some(Some(event)) => return Read::Event(Box::new(event)),
                Some(None) => tracing::error!(job = position.0, "the event of a waiting job is not in the journal"),
                None => return Read::Failed,
            },
        }
        self.registry.metrics.events_lost.inc();
        let mut table = self.registry.table();
        if let Some(waiting) = table.waiting.remove(position) {
            self.note(position, Note::Ended(EVENT_LOST), waiting.progress().outstanding.clone());
            let key = waiting.key().cloned();
            let report = waiting.lose(position, &self.brakes, &self.registry.metrics);
            self.registry.finish(&mut table, report, key.as_ref(), self.config.tell_finished, unix_now());
        }
        Read::Lost
    }

    /// Handles a change of the brakes. Unless only a cancellation was added, idle jobs are looked up again.
    fn look_at_brakes(&mut self) {
        let paused = self.flow.brakes().paused.clone();
        self.flow.look(&self.context.routes, &self.brakes);
        if self.flow.brakes().paused != paused {
            self.look_at = Instant::now();
        }
        self.registry.table().waiting.update_ready(&self.flow, unix_now());
    }

    /// Looks up which running jobs are idle, if it is time, and suspends those beyond the limit.
    fn look(&mut self) {
        if Instant::now() < self.look_at {
            return;
        }
        let running: Vec<_> = {
            let table = self.registry.table();
            let are_contended = self.slots.are_contended(table.waiting.len());
            if are_contended { table.running.values().cloned().collect() } else { Vec::new() }
        };
        self.look_at = Instant::now() + LOOK_PERIOD;
        self.flow.look(&self.context.routes, &self.brakes);
        let jobs = running.iter();
        self.slots.on_look(jobs.map(|job| (job.accepted.event.priority, job.position, job.is_idle(&self.flow))));
        for position in self.slots.idle() {
            if !self.slots.are_exceeded(self.registry.table().waiting.len()) {
                break;
            }
            self.suspend(position);
        }
        self.registry.table().waiting.update_ready(&self.flow, unix_now());
        self.cut_holds(&running);
    }

    /// Makes jobs stop waiting that have waited only for receipts for a while, so that other jobs get a slot. Clients
    /// that do not answer get a push, and do not delay others.
    fn cut_holds(&self, running: &[Arc<Job>]) {
        let (wanted, now) = (self.slots.holds_to_cut(self.registry.table().waiting.ready_count()), unix_now());
        for job in running.iter().filter(|job| job.only_holds_since(CUT_HOLD_AFTER, now)).take(wanted) {
            job.let_go(&self.context.metrics);
            self.context.metrics.holds_cut.inc();
        }
    }

    /// Whether a job of this priority may start, if necessary after suspending a less urgent one.
    fn claim_slot(&mut self, priority: EventPriority) -> bool {
        loop {
            match self.slots.claim(priority) {
                Claim::Granted => return true,
                Claim::Suspend(position) => self.suspend(position),
                Claim::Denied => return false,
            }
        }
    }

    /// Suspends a running job. No effect if it cannot be suspended, or there is no room for a waiting job.
    fn suspend(&mut self, position: JournalPosition) {
        let mut table = self.registry.table();
        if !self.slots.may_suspend(table.waiting.len(), table.waiting.bytes()) {
            return;
        }
        let suspended =
            table.running.get(&position).and_then(|job| Some((job.clone(), job.suspend(&self.context.metrics)?)));
        let Some((job, (progress, lanes))) = suspended else { return };
        table.running.remove(&position);
        self.slots.on_stopped(job.accepted.event.priority, position, job.bytes);
        let waiting = WaitingJob::suspended(&job.accepted, progress, lanes).staying_with(job.topics_used());
        table.waiting.insert(position, waiting, &self.flow, unix_now());
        self.registry.metrics.on_running(-1, -(job.bytes as i64));
        self.registry.metrics.jobs_put_aside.inc();
    }

    /// Makes an event that has not begun a waiting job.
    fn wait(&mut self, position: JournalPosition, accepted: &AcceptedEvent) {
        let mut table = self.registry.table();
        table.next = JournalPosition(position.0 + 1);
        table.waiting.insert(position, WaitingJob::unbegun(accepted), &self.flow, unix_now());
    }

    /// Starts waiting jobs. False when no further job can go on or get a slot, or the journal cannot be read.
    async fn start_waiting(&mut self) -> bool {
        for _ in 0..STEP_COUNT {
            let Some(position) = self.next_waiting() else { return false };
            if !self.resume(position).await {
                return false;
            }
        }
        true
    }

    /// The waiting job that starts or ends next.
    fn next_waiting(&mut self) -> Option<JournalPosition> {
        let now = unix_now();
        let first_from = |from| self.registry.table().waiting.first_ready(from, &self.flow, now);
        let (mut ready, first) = first_from(Ready::ToEnd)?;
        if ready == Ready::ToEnd {
            if self.slots.may_end_one() {
                return Some(first);
            }
            // There is no memory, but a more urgent job may get that of a less urgent one.
            (ready, _) = first_from(Ready::ToSend(EventPriority::High))?;
        }
        let Ready::ToSend(priority) = ready else { return None };
        if !self.claim_slot(priority) {
            return None;
        }
        self.slots.choose(priority, |priority| {
            let (ready, position) =
                self.registry.table().waiting.first_ready(Ready::ToSend(priority), &self.flow, now)?;
            (ready == Ready::ToSend(priority)).then_some(position)
        })
    }

    /// Gives an event its job. The event was just read or has waited. False when the store cannot be read; the caller
    /// tries again.
    async fn start(&mut self, position: JournalPosition, accepted: AcceptedEvent) -> bool {
        let takes_over = self.takes_over(position, &accepted);
        if let Some(frozen) = self.audience(position, &accepted) {
            if takes_over && !self.freeze_older(position, &accepted, || all(&frozen)).await {
                return false;
            }
            let job = self.job(position, accepted, frozen, Progress::start(), None, true);
            self.registry.table().start(&job);
            self.begin(&job, takes_over);
        }
        true
    }

    /// Continues a waiting job, like [`Dispatcher::start`].
    async fn resume(&mut self, position: JournalPosition) -> bool {
        let accepted = match self.read(position) {
            Read::Event(accepted) => *accepted,
            Read::Lost => return true,
            Read::Failed => return false,
        };
        if self.registry.table().waiting.get(position).is_none_or(WaitingJob::is_unbegun) {
            return self.start(position, accepted).await;
        }
        let is_frozen = self.registry.table().waiting.get(position).is_some_and(WaitingJob::is_frozen);
        let frozen = if is_frozen { Frozen::default() } else { self.select(&accepted) };
        let takes_over = self.takes_over(position, &accepted);
        let registry = self.registry.clone();
        let open = || {
            let table = registry.table();
            let progress = table.waiting.get(position).map(WaitingJob::progress);
            progress.map(|progress| WaitingJob::open_devices(progress, &frozen)).unwrap_or_default()
        };
        if takes_over && !self.freeze_older(position, &accepted, open).await {
            return false;
        }
        let job = {
            let mut table = self.registry.table();
            let Some(waiting) = table.waiting.remove(position) else { return true };
            let heeds_receipts = !waiting.has_begun();
            let topics = waiting.topics();
            let job = self.job(position, accepted, frozen, waiting.into_progress(), topics, heeds_receipts);
            table.start(&job);
            job
        };
        self.begin(&job, takes_over);
        true
    }

    /// Whether the job is to take devices from older ones.
    fn takes_over(&self, position: JournalPosition, accepted: &AcceptedEvent) -> bool {
        let is_over = unix_now() >= accepted.accepted_at.saturating_add(accepted.event.ttl);
        superseding_key(accepted).is_some() && !is_over && !self.brakes.now().cancelled.contains(&position)
    }

    /// Freezes the audience of each older waiting job with the same key into a set, without the `open` devices of the
    /// newer job. False when the store cannot be read.
    async fn freeze_older(
        &mut self,
        position: JournalPosition,
        accepted: &AcceptedEvent,
        open: impl Fn() -> RoaringBitmap,
    ) -> bool {
        let Some(key) = superseding_key(accepted) else { return true };
        let older = self.registry.table().waiting.unfrozen_older_of(key, position);
        let open = if older.is_empty() { RoaringBitmap::new() } else { open() };
        for position in older {
            let older = match self.read(position) {
                Read::Event(older) => older,
                Read::Lost => continue,
                Read::Failed => return false,
            };
            let is_unbegun = self.registry.table().waiting.get(position).is_some_and(WaitingJob::is_unbegun);
            let frozen = if is_unbegun { self.audience(position, &older) } else { Some(self.select(&older)) };
            if let Some(frozen) = frozen {
                self.freeze(position, &frozen, &open);
            }
            tokio::task::yield_now().await; // Lets lanes and other walks run.
        }
        true
    }

    /// Freezes the audience of one job, without the `open` devices of the newer event.
    fn freeze(&self, position: JournalPosition, frozen: &Frozen, open: &RoaringBitmap) {
        let progress = self.registry.table().waiting.get(position).map(|waiting| waiting.progress().clone());
        let Some(progress) = progress else { return };
        let rest = WaitingJob::open_devices(&progress, frozen);
        let taken = &rest & open;
        self.registry.table().waiting.freeze(position, rest - open, taken.len(), &self.context.metrics);
        self.note(position, SUPERSEDED, taken);
    }

    /// Selects the audience of an event that has not begun. If the audience is empty or not of the expected size, the
    /// job is done at once.
    fn audience(&mut self, position: JournalPosition, accepted: &AcceptedEvent) -> Option<Frozen> {
        self.registry.metrics.events_dispatched.inc();
        let is_pushed = accepted.event.push != PushPolicy::Never;
        let frozen = if is_pushed { self.select(accepted) } else { Frozen::default() };
        self.registry.metrics.devices_selected.add(frozen.len());
        let is_unexpected = is_pushed && self.is_unexpected(position, accepted, frozen.len());
        self.context.trails.open(position, true, unix_now());
        self.note(position, Note::Muted, frozen.muted().clone());
        if !frozen.is_empty() && !is_unexpected {
            return Some(frozen);
        }
        self.note(position, Note::Ended(NOT_EXPECTED), all(&frozen));
        let mut report = told_nobody(position, accepted, frozen.len());
        report.done_at = Some(unix_now());
        spans::finished(self.context.tracer.as_ref(), accepted.event.trace.as_deref(), &report, &[]);
        self.registry.metrics.count(NOT_EXPECTED, frozen.len());
        let mut table = self.registry.table();
        table.next = table.next.max(JournalPosition(position.0 + 1));
        table.waiting.remove(position);
        let key = superseding_key(accepted);
        self.registry.finish(&mut table, report, key, self.config.tell_finished, unix_now());
        None
    }

    /// Whether the audience has a size that is not allowed. Logs it.
    fn is_unexpected(&self, position: JournalPosition, accepted: &AcceptedEvent, device_count: u64) -> bool {
        let AcceptedEvent { event, audience_max, .. } = accepted;
        let expected = event.expect_audience.unwrap_or(ExpectAudience { min: None, max: None });
        let max = [expected.max, *audience_max].into_iter().flatten().min();
        let is_expected = ExpectAudience { max, ..expected }.admits(device_count);
        if !is_expected {
            let (job, event, min) = (position.0, &event.id, expected.min);
            tracing::warn!(job, %event, device_count, ?min, ?max, "unexpected audience size, nothing is pushed");
            self.registry.metrics.unexpected_audiences.inc();
        }
        !is_expected
    }

    /// Applies a cancellation, takes devices over from older jobs, and starts the job.
    fn begin(&mut self, job: &Arc<Job>, takes_over: bool) {
        if self.brakes.now().cancelled.contains(&job.position) {
            job.cancel(&self.context.metrics);
        } else if takes_over && unix_now() < job.expires_at {
            self.supersede(job);
        }
        self.launch(job);
    }

    fn supersede(&self, job: &Arc<Job>) {
        let Some(key) = superseding_key(&job.accepted) else { return };
        let has_key = |older: &&Arc<Job>| superseding_key(&older.accepted) == Some(key);
        let (older, waiting, of_waiting, is_barred) = {
            let mut table = self.registry.table();
            let older = table.running.range(..job.position).map(|(_, older)| older).filter(has_key);
            let older: Vec<_> = older.cloned().collect();
            let waiting = table.waiting.older_of(key, job.position);
            let of_waiting = table.waiting.open_devices(&waiting);
            let is_barred = table.bar(job, key, !older.is_empty() || !waiting.is_empty());
            (older, waiting, of_waiting, is_barred)
        };
        if is_barred {
            self.registry.more_barred.notify_one();
        }
        let shared = supersede::shared(job, &older, of_waiting);
        supersede::begin(job, &older, &shared, &self.context.metrics);
        if !shared.is_empty() {
            let taken = self.registry.table().waiting.supersede(&waiting, &shared, &self.context.metrics);
            taken.into_iter().for_each(|(position, devices)| self.note(position, SUPERSEDED, devices));
        }
    }

    /// Cancels the running jobs that the store says are cancelled.
    fn cancel_marked(&self) {
        let brakes = self.brakes.now();
        if brakes.cancelled.is_empty() {
            return;
        }
        let marked: Vec<_> = {
            let table = self.registry.table();
            let marked = table.running.iter().filter(|(position, _)| brakes.cancelled.contains(position));
            marked.map(|(_, job)| job.clone()).collect()
        };
        marked.iter().for_each(|job| job.cancel(&self.context.metrics));
    }

    /// A job; `heeds_receipts` if it begins for the first time.
    fn job(
        &self,
        position: JournalPosition,
        accepted: AcceptedEvent,
        frozen: Frozen,
        progress: Progress,
        topics: Option<Arc<Topics>>,
        heeds_receipts: bool,
    ) -> Arc<Job> {
        let trail = self.context.trails.open(position, heeds_receipts, unix_now());
        let may_hold = heeds_receipts && accepted.event.push == PushPolicy::UnlessReceived;
        let receipts = may_hold.then(|| self.context.receipts.get(position)).flatten();
        let bytes = self.size(&accepted.event, &frozen, &progress).bytes();
        let job =
            Job::new(position, accepted, frozen, self.context.routes.lanes().len(), progress).staying_with(topics);
        let job = job.with_trail(trail).taking(bytes);
        Arc::new(match receipts {
            Some(receipts) => job.with_receipts(receipts, unix_now()),
            None => job,
        })
    }

    /// What decides how much memory a job may take.
    fn size(&self, event: &Event, frozen: &Frozen, progress: &Progress) -> JobSize {
        let lane_count = self.context.routes.lanes().len();
        let text_count = self.context.topics.get().locales(event).len() + 1;
        let places = if event.params.values().any(ParamValue::is_typed) { PLACE_COUNT_MAX } else { 0 };
        JobSize {
            audience: Extent::of_audience(frozen).with(Extent::of(&progress.outstanding)),
            muted: Extent::of(frozen.muted()),
            lane_count,
            in_flight_max: self.config.in_flight_max(),
            rendering_count: lane_count * (text_count + places),
        }
    }

    /// This happened to devices of a job that does not run.
    fn note(&self, position: JournalPosition, note: Note, devices: RoaringBitmap) {
        if !devices.is_empty() {
            self.context.trails.note(position, note, devices, unix_now());
        }
    }

    fn select(&self, accepted: &AcceptedEvent) -> Frozen {
        let began = Instant::now();
        let frozen = self.context.store.select(&accepted.event);
        self.registry.metrics.selection.record_in(began.elapsed(), 1, accepted.event.trace.as_deref());
        frozen
    }

    fn launch(&mut self, job: &Arc<Job>) {
        self.slots.on_started(job.bytes);
        self.registry.metrics.on_running(1, job.bytes as i64);
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

    /// Handles the end of a task. The first task of a finished job to end marks the job as done.
    fn retire(&mut self, ended: Result<JournalPosition, JoinError>) {
        let position = match ended {
            Ok(position) => position,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_) => return, // Aborted: only by dropping the set.
            },
        };
        let mut table = self.registry.table();
        if !table.running.get(&position).is_some_and(|job| job.is_over()) {
            return;
        }
        if let Some(job) = table.running.remove(&position) {
            self.slots.on_stopped(job.accepted.event.priority, position, job.bytes);
            let now = unix_now();
            let report = job.report(&self.brakes, now);
            let trace = job.accepted.event.trace.as_deref();
            spans::finished(self.context.tracer.as_ref(), trace, &report, &job.answered());
            let key = superseding_key(&job.accepted);
            self.registry.finish(&mut table, report, key, self.config.tell_finished, now);
            self.registry.metrics.on_running(-1, -(job.bytes as i64));
            tracing::debug!(job = position.0, event = %job.accepted.event.id, "job finished");
        }
    }
}

/// The outcome of all devices of an audience with an unexpected size.
const NOT_EXPECTED: DeviceOutcome = DeviceOutcome::Suppressed(Suppression::UnexpectedAudience);
/// A newer event has taken a device.
const SUPERSEDED: Note = Note::Ended(DeviceOutcome::Superseded);

fn all(frozen: &Frozen) -> RoaringBitmap {
    frozen.iter_from(DeviceNumber(0)).map(|number| number.0).collect()
}

/// The report of an event that pushes nothing: without push, or with an audience that is empty or of an unexpected
/// size.
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
        time_to_by: Vec::new(),
        time_to_live: None,
    }
}
