//! What the sender's own thread shares with gateways and askers: which jobs there are.
//!
//! Locks: the table's, then a job's renderings, then its books, then those of an event's receipts, never the other way
//! round; never the books of two jobs; none is held while waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use roaring::RoaringBitmap;
use tidings_push::{JobStanding, OutcomeSink, Settled, Standing, Ticket};
use tidings_store::{AcceptedEvent, GoneToken};
use tidings_telemetry::unix_now;
use tidings_types::{DeviceNumber, JournalPosition, Timestamp};
use tokio::sync::{Notify, mpsc};

use crate::brakes::Braking;
use crate::job::{Job, Landed};
use crate::metrics::Metrics;
use crate::report::{JobReport, JobState, Telling};
use crate::row::Progress;

/// First acceptances that wait for the store; as a set 2 MiB at most.
const PROVEN_COUNT_MAX: u64 = 1 << 20;

pub(crate) struct Shared {
    table: Mutex<Table>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) brakes: Braking,
    /// Devices whose token was accepted for the first time, until the store is told. Set: at most [`PROVEN_COUNT_MAX`].
    /// Full: forgotten and counted, the next acceptance says it again.
    proven: Mutex<RoaringBitmap>,
    /// Queue: `gone_token_count_max` dead tokens. Full: forgotten and counted, the provider says it again.
    gone: mpsc::Sender<GoneToken>,
    /// `Table::untold` has got more.
    pub(crate) more_untold: Notify,
}

/// The jobs. A position is in at most one of the three maps; those from `next` on are in none.
pub(crate) struct Table {
    /// The first event without a job.
    pub(crate) next: JournalPosition,
    /// Jobs of an earlier run that have not begun again, in order; not more than that run had at a time.
    pub(crate) waiting: VecDeque<Unfinished>,
    /// At most `job_count_max`.
    pub(crate) running: BTreeMap<JournalPosition, Arc<Job>>,
    /// The last `report_count_max`, and those not checkpointed yet, at most as many again.
    pub(crate) finished: BTreeMap<JournalPosition, Finished>,
    /// Of the finished ones those that are to be told, whose rows say so, and that nobody has come for yet.
    pub(crate) untold: BTreeSet<JournalPosition>,
}

/// A job of an earlier run.
pub(crate) struct Unfinished {
    pub(crate) position: JournalPosition,
    pub(crate) accepted: AcceptedEvent,
    pub(crate) progress: Progress,
}

pub(crate) struct Finished {
    pub(crate) report: JobReport,
    pub(crate) telling: Option<Telling>,
    /// Not in the store yet.
    pub(crate) dirty: bool,
}

impl Finished {
    pub(crate) fn is_owed(&self) -> bool {
        self.telling == Some(Telling::Owed)
    }
}

impl Unfinished {
    /// How it stood when that run ended, under the present brakes.
    pub(crate) fn report(&self, brakes: &Braking) -> JobReport {
        let (Progress { outstanding, tally, .. }, event) = (&self.progress, &self.accepted.event);
        let is_cancelled = brakes.now().cancelled.contains(&self.position);
        let paused_by = if is_cancelled { None } else { brakes.of_topic(&event.topic) };
        JobReport {
            position: self.position,
            event: event.id.clone(),
            topic: Some(event.topic.clone()),
            priority: event.priority,
            state: match (is_cancelled, &paused_by) {
                (true, _) => JobState::Cancelled,
                (false, Some(_)) => JobState::Paused,
                (false, None) => JobState::Running,
            },
            paused_by,
            accepted_at: self.accepted.accepted_at,
            done_at: None,
            audience: tally.counts.total() + outstanding.len(),
            held: 0,
            counts: tally.counts.clone(),
            by: tally.parts.clone(),
            retried: tally.retried,
            time_to: tally.time_to(),
        }
    }
}

impl Shared {
    pub(crate) fn new(table: Table, metrics: Arc<Metrics>, brakes: Braking, gone: mpsc::Sender<GoneToken>) -> Self {
        let proven = Mutex::default();
        Self { table: Mutex::new(table), metrics, brakes, proven, gone, more_untold: Notify::new() }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// A job is done; with `tell` somebody is to be told.
    pub(crate) fn finish(&self, table: &mut Table, mut report: JobReport, tell: bool, now: Timestamp) {
        report.done_at.get_or_insert(now);
        let telling = tell.then_some(Telling::Owed);
        self.metrics.jobs_untold.add(i64::from(tell));
        table.finished.insert(report.position, Finished { report, telling, dirty: true });
    }

    /// It has been told, or will not be; without effect when that is settled.
    pub(crate) fn end_telling(&self, position: JournalPosition, how: Telling) {
        let mut table = self.table();
        let Some(finished) = table.finished.get_mut(&position).filter(|finished| finished.is_owed()) else {
            return;
        };
        (finished.telling, finished.dirty) = (Some(how), true);
        table.untold.remove(&position);
        self.metrics.jobs_untold.sub(1);
    }

    /// Takes the outcomes of one job.
    fn settle_job(&self, settled: &[Settled], now: Timestamp) {
        let job = self.running(settled[0].ticket.job);
        let Landed { strays, proven } = match job {
            Some(job) => job.settle(settled, &self.metrics, now),
            None => Landed { strays: settled.len() as u64, ..Landed::default() },
        };
        self.note_proven(&proven);
        self.metrics.strays.add(strays);
        debug_assert!(strays == 0, "{strays} outcomes of devices that were not in flight");
    }

    fn note_proven(&self, devices: &[DeviceNumber]) {
        if devices.is_empty() {
            return;
        }
        let mut proven = self.proven.lock().expect("no holder of this lock panics");
        let room = PROVEN_COUNT_MAX.saturating_sub(proven.len());
        proven.extend(devices.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).map(|device| device.0));
        self.metrics.proven_dropped.add((devices.len() as u64).saturating_sub(room));
    }

    /// Takes the devices whose token was accepted for the first time.
    pub(crate) fn take_proven(&self) -> RoaringBitmap {
        std::mem::take(&mut *self.proven.lock().expect("no holder of this lock panics"))
    }

    fn running(&self, position: JournalPosition) -> Option<Arc<Job>> {
        self.table().running.get(&position).cloned()
    }

    fn report_gone(&self, settled: &mut Settled) {
        let Some(gone) = settled.token_gone.take() else { return };
        let gone = GoneToken { number: settled.ticket.device, token: gone.token, gone_at: Some(gone.at) };
        match self.gone.try_send(gone) {
            Ok(()) => self.metrics.gone_tokens.inc(),
            Err(_) => self.metrics.gone_tokens_dropped.inc(),
        }
    }
}

impl OutcomeSink for Shared {
    fn settle(&self, settled: &mut Vec<Settled>) {
        let now = unix_now();
        settled.iter_mut().for_each(|settled| self.report_gone(settled));
        for run in settled.chunk_by(|a, b| a.ticket.job == b.ticket.job) {
            self.settle_job(run, now);
        }
        settled.clear();
    }

    fn job_standing(&self, job: JournalPosition) -> JobStanding {
        self.running(job).map_or(JobStanding::Go, |job| job.job_standing())
    }

    fn standing(&self, ticket: Ticket) -> Standing {
        self.running(ticket.job).map_or(Standing::Go, |job| job.standing(ticket.device))
    }
}

impl Table {
    /// No event before this position is needed any more once the present rows are in the store.
    pub(crate) fn floor(&self) -> JournalPosition {
        let running = self.running.first_key_value().map(|(&position, _)| position);
        let waiting = self.waiting.front().map(|job| job.position);
        [running, waiting].into_iter().flatten().fold(self.next, JournalPosition::min)
    }
}
