//! All jobs. The sender's thread shares the registry with gateways and callers.
//!
//! Lock order: the table, then a job's renderings, then its books, then the table of trails, then a trail, then an event's
//! receipts. The lock of the waves is taken alone. The books of two jobs are never locked together. No lock is held across a wait.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use roaring::RoaringBitmap;
use tidings_jobs::{JobReport, Telling};
use tidings_push::{JobStanding, Outcome, OutcomeSink, Settled, Standing, Ticket};
use tidings_store::GoneToken;
use tidings_telemetry::panics::{Locked, lock};
use tidings_telemetry::unix_now;
use tidings_types::{CollapseKey, DeviceNumber, JournalPosition, Timestamp};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::brakes::Braking;
use crate::job::{Job, Landed};
use crate::metrics::Metrics;
use crate::routes::{Route, Routes};
use crate::trails::Trails;
use crate::waiting::WaitingJobs;
use crate::wave::{Answers, Change, Waves, is_doubtful};

/// First acceptances that wait for the store; as a set 2 MiB at most.
const PROVEN_COUNT_MAX: u64 = 1 << 20;

pub(crate) struct JobRegistry {
    table: Mutex<Table>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) brakes: Braking,
    pub(crate) trails: Arc<Trails>,
    /// Devices whose token was accepted for the first time, until the store is told. Set: at most [`PROVEN_COUNT_MAX`].
    /// Full: dropped and counted; the next acceptance is noted instead.
    proven: Mutex<RoaringBitmap>,
    /// Queue: `gone_token_count_max` dead tokens. Full: dropped and counted; the provider reports the token again.
    gone: mpsc::Sender<Gone>,
    waves: Mutex<Waves>,
    routes: Arc<Routes>,
    /// Notified when `Table::untold` has grown.
    pub(crate) more_untold: Notify,
    /// Notified when `Table::barred` has grown.
    pub(crate) more_barred: Notify,
}

/// A token that its provider says is gone.
pub(crate) struct Gone {
    pub(crate) token: GoneToken,
    /// Set if the provider only says that the token belongs to another app or environment: the group whose alarm would
    /// keep it.
    pub(crate) doubted: Option<usize>,
}

/// The jobs. A position is in at most one of `running`, `finished` and `waiting`. Positions from `next` on are in none.
#[derive(Default)]
pub(crate) struct Table {
    /// The first event without a job.
    pub(crate) next: JournalPosition,
    /// For the limits see `tidings_jobs::Slots`.
    pub(crate) waiting: WaitingJobs,
    pub(crate) running: BTreeMap<JournalPosition, Arc<Job>>,
    /// The last `report_count_max` finished jobs, and those that are not checkpointed yet, at most as many again.
    pub(crate) finished: BTreeMap<JournalPosition, Finished>,
    /// Finished jobs with an owed report, whose rows say so, and that were not taken yet.
    pub(crate) untold: BTreeSet<JournalPosition>,
    /// The keys of finished jobs that no checkpoint has as finished: after a crash they would go on.
    pub(crate) unwritten: BTreeMap<JournalPosition, CollapseKey>,
    /// Jobs that hand nothing out before a checkpoint has them, and all older ones of their key.
    pub(crate) barred: Vec<Arc<Job>>,
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

impl JobRegistry {
    pub(crate) fn new(
        table: Table,
        metrics: Arc<Metrics>,
        brakes: Braking,
        trails: Arc<Trails>,
        gone: mpsc::Sender<Gone>,
        waves: Waves,
        routes: Arc<Routes>,
    ) -> Self {
        let (table, proven, waves) = (Mutex::new(table), Mutex::default(), Mutex::new(waves));
        let (more_untold, more_barred) = (Notify::new(), Notify::new());
        Self { table, metrics, brakes, trails, proven, gone, waves, routes, more_untold, more_barred }
    }

    pub(crate) fn table(&self) -> Locked<'_, Table> {
        lock(&self.table)
    }

    /// A job is done. With `tell` its report is owed. `key`: by which newer events take devices from it.
    pub(crate) fn finish(
        &self,
        table: &mut Table,
        mut report: JobReport,
        key: Option<&CollapseKey>,
        tell: bool,
        now: Timestamp,
    ) {
        report.done_at.get_or_insert(now);
        table.unwritten.extend(key.map(|key| (report.position, key.clone())));
        self.trails.close(report.position, &report.by, now);
        let telling = tell.then_some(Telling::Owed);
        self.metrics.jobs_untold.add(i64::from(tell));
        table.finished.insert(report.position, Finished { report, telling, dirty: true });
    }

    /// The report was delivered, or will not be. No effect if that is settled already.
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
    fn settle_job(&self, settled: &mut [Settled], now: Timestamp) {
        let job = self.running(settled[0].ticket.job);
        let Landed { strays, proven, answers, gone } = match job {
            Some(job) => job.settle(settled, &self.metrics, now),
            None => Landed { strays: settled.len() as u64, ..Landed::default() },
        };
        self.note_proven(&proven);
        answers.into_iter().for_each(|(lane, answers)| self.count_answers(lane, answers));
        gone.into_iter().for_each(|(index, lane)| self.report_gone(&mut settled[index], lane));
        self.metrics.strays.add(strays);
        debug_assert!(strays == 0, "{strays} outcomes of devices that were not in flight");
    }

    fn note_proven(&self, devices: &[DeviceNumber]) {
        if devices.is_empty() {
            return;
        }
        let mut proven = lock(&self.proven);
        let room = PROVEN_COUNT_MAX.saturating_sub(proven.len());
        proven.extend(devices.iter().take(usize::try_from(room).unwrap_or(usize::MAX)).map(|device| device.0));
        self.metrics.proven_dropped.add((devices.len() as u64).saturating_sub(room));
    }

    /// Takes the devices whose token was accepted for the first time.
    pub(crate) fn take_proven(&self) -> RoaringBitmap {
        std::mem::take(&mut *lock(&self.proven))
    }

    fn running(&self, position: JournalPosition) -> Option<Arc<Job>> {
        self.table().running.get(&position).cloned()
    }

    fn count_answers(&self, lane: usize, answers: Answers) {
        let group = self.routes.lanes()[lane].main;
        let change = self.waves().count(group, answers, Instant::now());
        let Some(change) = change else { return };
        let Route { provider, app, environment, .. } = &self.routes.lanes()[group];
        let environment = environment.as_str();
        self.metrics.environment_alarms[group].set(i64::from(change != Change::Ended));
        match change {
            Change::Raised(Answers { accepted, doubtful }) => tracing::error!(
                %provider, %app, environment, doubtful, accepted,
                "Many tokens are rejected as belonging to another environment, and none is deleted for it. Are devices registered \
                 with the wrong environment or app?"
            ),
            Change::Ended => {
                tracing::warn!(%provider, %app, environment, "Tokens are accepted in their environment again")
            }
        }
    }

    fn report_gone(&self, settled: &mut Settled, lane: usize) {
        let Some(gone) = settled.token_gone.take() else { return };
        let is_doubtful = matches!(settled.outcome, Outcome::Rejected(reason) if is_doubtful(reason));
        let doubted = is_doubtful.then(|| self.routes.lanes()[lane].main);
        let token = GoneToken { number: settled.ticket.device, token: gone.token, gone_at: Some(gone.at) };
        if self.gone.try_send(Gone { token, doubted }).is_err() {
            self.metrics.gone_tokens_dropped.inc();
        }
    }

    pub(crate) fn waves(&self) -> Locked<'_, Waves> {
        lock(&self.waves)
    }
}

impl OutcomeSink for JobRegistry {
    fn settle(&self, settled: &mut Vec<Settled>) {
        let now = unix_now();
        for run in settled.chunk_by_mut(|a, b| a.ticket.job == b.ticket.job) {
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
    /// `job` is about to take devices over from all older jobs of its `key`, and to reach them. If a row of an older one may be in
    /// the store that still has them, it is barred until the next checkpoint. Returns whether it is. `has_older`: there are
    /// unfinished ones.
    pub(crate) fn bar(&mut self, job: &Arc<Job>, key: &CollapseKey, has_older: bool) -> bool {
        let is_barred = has_older || self.unwritten.range(..job.position).any(|(_, of)| of == key);
        if is_barred {
            job.bar();
            self.barred.push(job.clone());
        }
        is_barred
    }

    /// A job runs from now on. It is new, or it has waited.
    pub(crate) fn start(&mut self, job: &Arc<Job>) {
        self.next = self.next.max(JournalPosition(job.position.0 + 1));
        self.waiting.remove(job.position);
        self.running.insert(job.position, job.clone());
    }

    /// Once the current rows are in the store, no event before this position is needed any more.
    pub(crate) fn floor(&self) -> JournalPosition {
        let running = self.running.first_key_value().map(|(&position, _)| position);
        [running, self.waiting.first()].into_iter().flatten().fold(self.next, JournalPosition::min)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidings_store::AcceptedEvent;
    use tidings_types::{Event, EventId, Subject, TopicName};

    use super::*;
    use crate::flow::Flow;
    use crate::waiting::WaitingJob;

    #[test]
    fn events_are_kept_from_the_oldest_job_on_that_is_not_finished() {
        let next = JournalPosition(9);
        let mut table = Table { next, ..Table::default() };
        assert_eq!(table.floor(), next);
        let subjects = vec![Subject::new("team:1").unwrap()];
        let mut event = Event::new(EventId::new("goal-1").unwrap(), TopicName::new("goal").unwrap(), subjects);
        event.ttl = Duration::from_secs(60);
        let accepted_at = Timestamp(1_000_000);
        let accepted = AcceptedEvent { accepted_at, published: Vec::new(), audience_max: None, event };
        for position in [7, 3, 5].map(JournalPosition) {
            table.waiting.insert(position, WaitingJob::unbegun(&accepted), &Flow::new(0), accepted_at);
        }
        assert_eq!(table.floor(), JournalPosition(3));
        table.waiting.remove(JournalPosition(3));
        assert_eq!((table.floor(), table.waiting.len(), table.waiting.ready_count()), (JournalPosition(5), 2, 2));
    }
}
