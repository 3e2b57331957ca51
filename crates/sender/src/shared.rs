//! What the sender's own thread shares with gateways and askers: which jobs there are.
//!
//! Locks: the table's, then a job's, never the other way round; neither is held while waiting.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use tidings_push::{OutcomeSink, Settled};
use tidings_store::{AcceptedEvent, GoneToken};
use tidings_telemetry::unix_now;
use tidings_types::{JournalPosition, Timestamp};
use tokio::sync::mpsc;

use crate::job::Job;
use crate::metrics::Metrics;
use crate::report::JobReport;
use crate::row::Progress;

pub(crate) struct Shared {
    table: Mutex<Table>,
    pub(crate) metrics: Arc<Metrics>,
    /// Queue: `gone_token_count_max` dead tokens. Full: forgotten and counted, the provider says it again.
    gone: mpsc::Sender<GoneToken>,
}

/// The jobs. A position is in at most one of the three maps; those from `next` on are in none.
pub(crate) struct Table {
    /// The first event without a job.
    pub(crate) next: JournalPosition,
    /// Jobs of an earlier run that have not begun again; not more than that run had at a time.
    pub(crate) waiting: VecDeque<Unfinished>,
    /// At most `job_count_max`.
    pub(crate) running: BTreeMap<JournalPosition, Arc<Job>>,
    /// The last `report_count_max`, and those not checkpointed yet, at most as many again.
    pub(crate) finished: BTreeMap<JournalPosition, Finished>,
}

/// A job of an earlier run.
pub(crate) struct Unfinished {
    pub(crate) position: JournalPosition,
    pub(crate) accepted: AcceptedEvent,
    pub(crate) progress: Progress,
}

pub(crate) struct Finished {
    pub(crate) report: JobReport,
    /// Not in the store yet.
    pub(crate) dirty: bool,
}

impl Shared {
    pub(crate) fn new(table: Table, metrics: Arc<Metrics>, gone: mpsc::Sender<GoneToken>) -> Self {
        Self { table: Mutex::new(table), metrics, gone }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
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

    pub(crate) fn finish(&mut self, report: JobReport) {
        self.finished.insert(report.position, Finished { report, dirty: true });
    }
}
