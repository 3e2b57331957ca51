//! What the sender's own thread shares with gateways and askers: which jobs there are.
//!
//! Locks: the table's, then a job's, then that of an event's receipts, never the other way round; none is held while
//! waiting.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tidings_push::{OutcomeSink, Settled};
use tidings_store::{AcceptedEvent, GoneToken};
use tidings_telemetry::unix_now;
use tidings_types::{JournalPosition, Timestamp};
use tokio::sync::{Notify, mpsc};

use crate::job::Job;
use crate::latency::Latency;
use crate::metrics::Metrics;
use crate::report::{JobReport, JobState, Telling};
use crate::row::Progress;

pub(crate) struct Shared {
    table: Mutex<Table>,
    pub(crate) metrics: Arc<Metrics>,
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
    /// How it stood when that run ended.
    pub(crate) fn report(&self) -> JobReport {
        let Progress { outstanding, counts, latency, .. } = &self.progress;
        JobReport {
            position: self.position,
            event: self.accepted.event.id.clone(),
            state: JobState::Running,
            accepted_at: self.accepted.accepted_at,
            done_at: None,
            audience: counts.total() + outstanding.len(),
            held: 0,
            counts: counts.clone(),
            time_to: latency.as_ref().and_then(Latency::time_to),
        }
    }
}

impl Shared {
    pub(crate) fn new(table: Table, metrics: Arc<Metrics>, gone: mpsc::Sender<GoneToken>) -> Self {
        Self { table: Mutex::new(table), metrics, gone, more_untold: Notify::new() }
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
        let job = self.table().running.get(&settled[0].ticket.job).cloned();
        let strays = match job {
            Some(job) => job.settle(settled, &self.metrics, now),
            None => settled.len() as u64,
        };
        self.metrics.strays.add(strays);
        debug_assert!(strays == 0, "{strays} outcomes of devices that were not in flight");
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
}

impl Table {
    /// No event before this position is needed any more once the present rows are in the store.
    pub(crate) fn floor(&self) -> JournalPosition {
        let running = self.running.first_key_value().map(|(&position, _)| position);
        let waiting = self.waiting.front().map(|job| job.position);
        [running, waiting].into_iter().flatten().fold(self.next, JournalPosition::min)
    }
}
