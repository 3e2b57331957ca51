//! Which events and jobs have a place, in which order.
//!
//! The dispatcher reads the journal in order, without waiting for places: an event that finds none is *parked*
//! ([`crate::lot`]), so that a goal behind a thousand newsletters is seen. `job_count_max` places are for jobs that
//! have something to hand out. Whoever has nothing but answers to wait for needs none; nor does a job whose devices are
//! all held by brakes or wait at lakes that stand still ([`crate::flow`]). With more jobs than places, such jobs are
//! put aside, unless they have something in flight. And when all places are taken, a more urgent event takes that of
//! the least urgent, youngest job that has nothing in flight; if all have, it begins beside them.
//!
//! Who comes to a place from the lot: the more urgent first, then the older; one in [`BY_AGE`] by age alone, so that
//! nobody waits for ever. Places are looked over every [`LOOK_PERIOD`] while anybody waits for one, and when a brake
//! changes.
//!
//! So an event waits for a place only behind jobs that are no less urgent and have something to hand out, walk, or hold
//! devices back for receipts; while these bounds hold:
//! - [`PARKED_PER_PLACE`] × `job_count_max` parked jobs, 1 KiB each (65 536 by default), the last `job_count_max` of
//!   them for jobs that are put aside. Full: the next event waits in the journal until there is a place.
//! - [`PARKED_BYTES_MAX`] of their sets and counts. Full: nothing more is put aside. Beyond it only what newer events
//!   leave of older parked ones of their key.
//! - 2 × `job_count_max` running jobs that have something to hand out, the second half for more urgent ones. Full:
//!   events are parked.
//! - [`RUNNING_PER_PLACE`] × `job_count_max` running jobs (16 384), 15 × for normal and 14 × for low priority. Those that
//!   are neither among the former nor put aside have devices in flight: no more than lakes and gateways hold, which
//!   repeats to one failing provider can be. Full: as before.
//!
//! **Order within a key.** A newer event supersedes the older ones when it begins ([`crate::supersede`]), also those
//! that are parked; of these that have no audience yet it is selected then, so that what the newer one takes is taken
//! for good. An older one that begins later has only what is left.
//!
//! **Crash.** A parked job has a row like any other, written with the checkpoint that says its event is dispatched.
//! After a restart all jobs that are not finished are parked, and come back in the order above.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_store::{AcceptedEvent, ReadError};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{DeviceNumber, EventPriority, ExpectAudience, JournalPosition, PushPolicy};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep};

use crate::brakes::Braking;
use crate::config::SenderConfig;
use crate::context::Context;
use crate::flow::Flow;
use crate::hold;
use crate::job::Job;
use crate::lot::{Parked, Turn, superseding_key};
use crate::outcome::{Counts, DeviceOutcome, Suppression};
use crate::report::{JobReport, JobState};
use crate::row::Progress;
use crate::shared::{Shared, Table};
use crate::supersede;
use crate::walk::{self, Phase};
use crate::worker::Order;

/// Events read from the journal, or jobs brought back, at once.
const STEP_COUNT: usize = 64;
/// Between two looks at who needs a place, and before what failed is tried again.
const LOOK_PERIOD: Duration = Duration::from_millis(100);
/// How long after its event's acceptance a job that only waits for receipts may have to make room for others: clients
/// that answer have by then.
const CUT_HOLD_AFTER: Duration = Duration::from_millis(500);
/// Of so many jobs that come back one is the oldest.
const BY_AGE: u32 = 16;
/// Running jobs, in units of [`SenderConfig::job_count_max`]; the last are for more urgent ones.
pub const RUNNING_PER_PLACE: usize = 16;
/// Parked jobs, in the same units.
pub const PARKED_PER_PLACE: usize = 64;
/// Bytes of the sets and counts of all parked jobs together.
pub const PARKED_BYTES_MAX: usize = 64 << 20;

/// What was read of a parked job's event.
enum Read {
    Event(Box<AcceptedEvent>),
    /// There is none, and the job is ended.
    Lost,
    /// To be tried again.
    Failed,
}

pub(crate) struct Dispatcher {
    config: SenderConfig,
    context: Arc<Context>,
    shared: Arc<Shared>,
    phases: watch::Receiver<Phase>,
    brakes: Braking,
    /// A task per running job, and one per job that holds devices back; each tells its job.
    jobs: JoinSet<JournalPosition>,
    /// The last read of the journal failed; said once.
    failing: bool,
    flow: Flow,
    /// Of the running jobs those that were stuck at the last look, and still run.
    stuck: BTreeSet<JournalPosition>,
    /// The others, as of the last look, less those whose place was asked for since.
    others: BTreeSet<(EventPriority, JournalPosition)>,
    /// The least urgent of them all, then.
    least_urgent: Option<EventPriority>,
    look_at: Instant,
    /// Jobs brought back, modulo [`BY_AGE`].
    picks: u32,
}

impl Dispatcher {
    pub(crate) fn new(
        config: SenderConfig,
        context: Arc<Context>,
        shared: Arc<Shared>,
        phases: watch::Receiver<Phase>,
    ) -> Self {
        Self {
            brakes: context.brakes.clone(),
            flow: Flow::new(context.routes.lanes().len()),
            config,
            context,
            shared,
            phases,
            jobs: JoinSet::new(),
            failing: false,
            stuck: BTreeSet::new(),
            others: BTreeSet::new(),
            least_urgent: None,
            look_at: Instant::now(),
            picks: 0,
        }
    }

    /// Dispatches until ordered otherwise.
    pub(crate) async fn run(&mut self, orders: &mut watch::Receiver<Order>) -> Order {
        let mut journal = self.context.store.watch_journal_end();
        loop {
            let end = *journal.borrow_and_update();
            let more = self.dispatch(end).await;
            tokio::select! {
                biased; // Stopping first, then making room for new jobs.
                order = orders.wait_for(|order| *order != Order::Run) => {
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

    /// Waits until no lane has anything in flight.
    pub(crate) async fn land(&mut self) {
        while let Some(ended) = self.jobs.join_next().await {
            self.retire(ended);
        }
    }

    /// Finds places for parked jobs and for the next events, or parks these. Tells whether it could go on at once; if
    /// not, there is nothing more, no room, or the store cannot be read.
    async fn dispatch(&mut self, end: JournalPosition) -> bool {
        // Finished jobs pile up while the store takes no checkpoints; it takes no events then either.
        if self.shared.table().finished.len() >= 2 * self.config.report_count_max {
            return false;
        }
        self.look();
        let more = self.bring_back().await;
        // The last of them are for jobs that are put aside.
        let parked_max = (PARKED_PER_PLACE - 1) * self.config.job_count_max;
        let (next, room) = {
            let table = self.shared.table();
            (table.next, parked_max.saturating_sub(table.lot.len()))
        };
        let room = room.max(self.room(EventPriority::High)).min(STEP_COUNT);
        if room == 0 || next >= end {
            return more;
        }
        let Some(events) = self.readable(self.context.store.events_from(next, room)) else { return false };
        if events.is_empty() {
            tracing::error!(from = next.0, to = end.0, "events are not in the journal any more, passing over them");
            self.shared.table().next = end;
        }
        for (position, accepted) in events {
            if accepted.event.push != PushPolicy::Never && !self.has_place(accepted.event.priority) {
                if self.shared.table().lot.len() >= parked_max {
                    return more;
                }
                self.park(position, Parked::unbegun(&accepted));
            } else if !self.start(position, accepted).await {
                return false;
            }
        }
        true
    }

    /// What was read; `None`, and said once, when it could not be.
    fn readable<T>(&mut self, read: Result<T, ReadError>) -> Option<T> {
        let failed = read.inspect_err(|error| {
            self.shared.metrics.reads_failed.inc();
            if !std::mem::replace(&mut self.failing, true) {
                tracing::warn!(error = chain(&error), "cannot read the journal, trying again");
            }
        });
        self.failing &= failed.is_err();
        failed.ok()
    }

    /// The event of a parked job. One that is damaged, or not there, which the store should have kept, ends the job.
    fn read(&mut self, position: JournalPosition) -> Read {
        match self.context.store.event(position) {
            Err(error) if error.is_damage() => {
                self.shared.metrics.reads_failed.inc();
                tracing::error!(
                    job = position.0,
                    error = chain(&error),
                    "the event of a parked job is damaged, the job ends"
                );
            }
            read => match self.readable(read) {
                Some(Some(event)) => return Read::Event(Box::new(event)),
                Some(None) => tracing::error!(job = position.0, "the event of a parked job is not in the journal"),
                None => return Read::Failed,
            },
        }
        let mut table = self.shared.table();
        if let Some(parked) = table.lot.remove(position) {
            let report = parked.lose(position, &self.brakes, &self.shared.metrics);
            self.shared.finish(&mut table, report, self.config.tell_finished, unix_now());
        }
        Read::Lost
    }

    /// Brakes have changed. Unless only more is cancelled, it is time to look who needs a place.
    fn look_at_brakes(&mut self) {
        let paused = self.flow.brakes().paused.clone();
        self.flow.look(&self.context.routes, &self.brakes);
        if self.flow.brakes().paused != paused {
            self.look_at = Instant::now();
        }
        self.shared.table().lot.sort_out(&self.flow, unix_now());
    }

    /// Looks who needs a place, if it is time.
    fn look(&mut self) {
        if Instant::now() < self.look_at {
            return;
        }
        let running: Vec<_> = {
            let table = self.shared.table();
            let is_full = table.running.len() >= self.config.job_count_max;
            if is_full || !table.lot.is_empty() { table.running.values().cloned().collect() } else { Vec::new() }
        };
        self.look_at = Instant::now() + LOOK_PERIOD;
        self.flow.look(&self.context.routes, &self.brakes);
        let rank = |job: &Arc<Job>| (job.accepted.event.priority, job.position);
        let (stuck, others): (Vec<_>, Vec<_>) = running.iter().partition(|job| job.is_stuck(&self.flow));
        self.stuck = stuck.iter().map(|job| job.position).collect();
        self.others = others.into_iter().map(rank).collect();
        self.least_urgent = self.others.last().map(|(priority, _)| *priority);
        let mut stuck: Vec<_> = stuck.into_iter().map(rank).collect();
        stuck.sort_unstable();
        while self.shared.table().running.len() > self.config.job_count_max
            && let Some((_, position)) = stuck.pop()
        {
            self.put_aside(position);
        }
        self.shared.table().lot.sort_out(&self.flow, unix_now());
        self.cut_holds(&running);
    }

    /// While parked jobs wait for room, as many of the oldest that only wait for receipts, and have for a while, wait
    /// no longer: clients that do not answer cost themselves a push and not others their time.
    fn cut_holds(&self, running: &[Arc<Job>]) {
        if self.room(EventPriority::High) > 0 {
            return;
        }
        let (wanted, now) = (self.shared.table().lot.ready_count(), unix_now());
        for job in running.iter().filter(|job| job.only_holds_since(CUT_HOLD_AFTER, now)).take(wanted) {
            job.let_go(&self.context.metrics);
            self.context.metrics.holds_cut.inc();
        }
    }

    /// How many more jobs of a priority may run without taking anybody's place.
    fn room(&self, priority: EventPriority) -> usize {
        self.room_in(self.config.job_count_max, priority)
    }

    /// The same if there were so many places.
    fn room_in(&self, places: usize, priority: EventPriority) -> usize {
        let running = self.shared.table().running.len();
        // `High` is 0: the last of the others are not for less urgent ones.
        let running_max = (RUNNING_PER_PLACE - priority as usize) * self.config.job_count_max;
        places.saturating_sub(running - self.stuck.len()).min(running_max.saturating_sub(running))
    }

    /// Whether there is a place, if need be that of a less urgent job, which is put aside, or one beside it.
    fn has_place(&mut self, priority: EventPriority) -> bool {
        if self.room(priority) > 0 {
            return true;
        }
        while let Some(&(other, position)) = self.others.last().filter(|(other, _)| *other > priority) {
            self.others.remove(&(other, position));
            if self.put_aside(position) && self.room(priority) > 0 {
                return true;
            }
        }
        self.least_urgent.is_some_and(|least| least > priority)
            && self.room_in(2 * self.config.job_count_max, priority) > 0
    }

    /// Parks a running job; false if it cannot be, or there is no room for it.
    fn put_aside(&mut self, position: JournalPosition) -> bool {
        let mut table = self.shared.table();
        let parked_max = PARKED_PER_PLACE * self.config.job_count_max;
        if table.lot.bytes() >= PARKED_BYTES_MAX || table.lot.len() >= parked_max {
            return false;
        }
        let aside = table.running.get(&position).and_then(|job| Some((job.clone(), job.put_aside()?)));
        let Some((job, (progress, lanes))) = aside else { return false };
        table.running.remove(&position);
        self.stuck.remove(&position);
        table.lot.insert(position, Parked::put_aside(&job.accepted, progress, lanes), &self.flow, unix_now());
        self.shared.metrics.jobs_running.sub(1);
        self.shared.metrics.jobs_put_aside.inc();
        true
    }

    /// Parks an event that has not begun.
    fn park(&mut self, position: JournalPosition, parked: Parked) {
        let mut table = self.shared.table();
        table.next = JournalPosition(position.0 + 1);
        table.lot.insert(position, parked, &self.flow, unix_now());
    }

    /// Brings parked jobs to places; false when there are no more of either, or the journal cannot be read.
    async fn bring_back(&mut self) -> bool {
        for _ in 0..STEP_COUNT {
            let Some(position) = self.next_parked() else { return false };
            if !self.resume(position).await {
                return false;
            }
        }
        true
    }

    /// Who has a place, or only ends.
    fn next_parked(&mut self) -> Option<JournalPosition> {
        let (turn, next) = self.shared.table().lot.next(&self.flow, unix_now())?;
        let Some(priority) = turn else { return Some(next) };
        if !self.has_place(priority) {
            return None;
        }
        self.picks = (self.picks + 1) % BY_AGE;
        if self.picks > 0 {
            return Some(next);
        }
        // The oldest may have that place, also one beside the others; not one among the last that may run.
        let oldest = self.shared.table().lot.oldest(&self.flow, unix_now());
        let has_room = |turn: Turn| turn.is_none_or(|it| self.room_in(2 * self.config.job_count_max, it) > 0);
        Some(oldest.filter(|&(turn, _)| has_room(turn)).map_or(next, |(_, position)| position))
    }

    /// Gives an event its job, first of all or as a parked one. False when the store cannot be read: it is to be tried
    /// again.
    async fn start(&mut self, position: JournalPosition, accepted: AcceptedEvent) -> bool {
        let takes_over = self.takes_over(position, &accepted);
        if let Some(frozen) = self.audience(position, &accepted) {
            if takes_over && !self.freeze_older(position, &accepted, || all(&frozen)).await {
                return false;
            }
            let job = self.job(position, accepted, frozen, Progress::start(), true);
            self.run_job(&mut self.shared.table(), &job);
            self.begin(&job, takes_over);
        }
        true
    }

    /// Goes on with a parked job, as [`Dispatcher::start`].
    async fn resume(&mut self, position: JournalPosition) -> bool {
        let accepted = match self.read(position) {
            Read::Event(accepted) => *accepted,
            Read::Lost => return true,
            Read::Failed => return false,
        };
        if self.shared.table().lot.get(position).is_none_or(Parked::is_unbegun) {
            return self.start(position, accepted).await;
        }
        let is_frozen = self.shared.table().lot.get(position).is_some_and(Parked::is_frozen);
        let frozen = if is_frozen { Frozen::default() } else { self.select(&accepted) };
        let takes_over = self.takes_over(position, &accepted);
        let shared = self.shared.clone();
        let open = || {
            let table = shared.table();
            let progress = table.lot.get(position).map(Parked::progress);
            progress.map(|progress| Parked::open_devices(progress, &frozen)).unwrap_or_default()
        };
        if takes_over && !self.freeze_older(position, &accepted, open).await {
            return false;
        }
        let job = {
            let mut table = self.shared.table();
            let Some(parked) = table.lot.remove(position) else { return true };
            let heeds_receipts = !parked.has_begun();
            let job = self.job(position, accepted, frozen, parked.into_progress(), heeds_receipts);
            self.run_job(&mut table, &job);
            job
        };
        self.begin(&job, takes_over);
        true
    }

    fn run_job(&self, table: &mut Table, job: &Arc<Job>) {
        table.next = table.next.max(JournalPosition(job.position.0 + 1));
        table.lot.remove(job.position);
        table.running.insert(job.position, job.clone());
    }

    /// Whether the job is to take devices from older ones.
    fn takes_over(&self, position: JournalPosition, accepted: &AcceptedEvent) -> bool {
        let is_over = unix_now() >= accepted.accepted_at.saturating_add(accepted.event.ttl);
        superseding_key(accepted).is_some() && !is_over && !self.brakes.now().cancelled.contains(&position)
    }

    /// Makes a set of the audience of each older parked job of the same key, less the `open` devices of the
    /// newer one. False when the store cannot be read.
    async fn freeze_older(
        &mut self,
        position: JournalPosition,
        accepted: &AcceptedEvent,
        open: impl Fn() -> RoaringBitmap,
    ) -> bool {
        let Some(key) = superseding_key(accepted) else { return true };
        let older = self.shared.table().lot.unfrozen_older_of(key, position);
        let open = if older.is_empty() { RoaringBitmap::new() } else { open() };
        for position in older {
            let older = match self.read(position) {
                Read::Event(older) => older,
                Read::Lost => continue,
                Read::Failed => return false,
            };
            let is_unbegun = self.shared.table().lot.get(position).is_some_and(Parked::is_unbegun);
            let frozen = if is_unbegun { self.audience(position, &older) } else { Some(self.select(&older)) };
            if let Some(frozen) = frozen {
                self.freeze(position, &frozen, &open);
            }
            tokio::task::yield_now().await; // Lanes, and the walks of other jobs.
        }
        true
    }

    /// Makes a set of the audience of one, less the `open` devices of the newer event.
    fn freeze(&self, position: JournalPosition, frozen: &Frozen, open: &RoaringBitmap) {
        let progress = self.shared.table().lot.get(position).map(|parked| parked.progress().clone());
        let Some(progress) = progress else { return };
        let rest = Parked::open_devices(&progress, frozen);
        let taken = rest.intersection_len(open);
        self.shared.table().lot.freeze(position, rest - open, taken, &self.context.metrics);
    }

    /// Whom an event that has not begun is for. One that concerns nobody, or not as many as expected, is done at once.
    fn audience(&mut self, position: JournalPosition, accepted: &AcceptedEvent) -> Option<Frozen> {
        self.shared.metrics.events_dispatched.inc();
        let is_pushed = accepted.event.push != PushPolicy::Never;
        let frozen = if is_pushed { self.select(accepted) } else { Frozen::default() };
        self.shared.metrics.devices_selected.add(frozen.len());
        let is_unexpected = is_pushed && self.is_unexpected(position, accepted, frozen.len());
        if !frozen.is_empty() && !is_unexpected {
            return Some(frozen);
        }
        let report = told_nobody(position, accepted, frozen.len());
        self.shared.metrics.count(NOT_EXPECTED, frozen.len());
        let mut table = self.shared.table();
        table.next = table.next.max(JournalPosition(position.0 + 1));
        table.lot.remove(position);
        self.shared.finish(&mut table, report, self.config.tell_finished, unix_now());
        None
    }

    /// Whether the audience is of another size than it may be; says so.
    fn is_unexpected(&self, position: JournalPosition, accepted: &AcceptedEvent, device_count: u64) -> bool {
        let AcceptedEvent { event, audience_max, .. } = accepted;
        let expected = event.expect_audience.unwrap_or(ExpectAudience { min: None, max: None });
        let max = [expected.max, *audience_max].into_iter().flatten().min();
        let is_expected = ExpectAudience { max, ..expected }.admits(device_count);
        if !is_expected {
            let (job, event, min) = (position.0, &event.id, expected.min);
            tracing::warn!(job, %event, device_count, ?min, ?max, "unexpected audience, nobody is told");
            self.shared.metrics.unexpected_audiences.inc();
        }
        !is_expected
    }

    /// Cancels what is to be cancelled, takes over from older jobs, and lets the job go.
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
        let (older, parked, of_parked) = {
            let table = self.shared.table();
            let older = table.running.range(..job.position).map(|(_, older)| older).filter(has_key);
            let parked = table.lot.older_of(key, job.position);
            let of_parked = table.lot.open_devices(&parked);
            (older.cloned().collect::<Vec<_>>(), parked, of_parked)
        };
        let shared = supersede::shared(job, &older, of_parked);
        supersede::begin(job, &older, &shared, &self.context.metrics);
        if !shared.is_empty() {
            self.shared.table().lot.supersede(&parked, &shared, &self.context.metrics);
        }
    }

    /// Cancels the running jobs that the store says are cancelled.
    fn cancel_marked(&self) {
        let brakes = self.brakes.now();
        if brakes.cancelled.is_empty() {
            return;
        }
        let marked: Vec<_> = {
            let table = self.shared.table();
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
        heeds_receipts: bool,
    ) -> Arc<Job> {
        let may_hold = heeds_receipts && accepted.event.push == PushPolicy::UnlessReceived;
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
            self.stuck.remove(&position);
            let now = unix_now();
            self.shared.finish(&mut table, job.report(&self.brakes, now), self.config.tell_finished, now);
            self.shared.metrics.jobs_running.sub(1);
            tracing::debug!(job = position.0, event = %job.accepted.event.id, "job finished");
        }
    }
}

/// What is counted of an audience of another size than expected.
const NOT_EXPECTED: DeviceOutcome = DeviceOutcome::Suppressed(Suppression::UnexpectedAudience);

fn all(frozen: &Frozen) -> RoaringBitmap {
    frozen.iter_from(DeviceNumber(0)).map(|number| number.0).collect()
}

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
