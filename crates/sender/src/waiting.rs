//! Waiting jobs: known and on disk, but neither walked nor handed out.
//!
//! A job waits before it begins, if it finds no slot, or later, after it was suspended. [`tidings_jobs::Slots`] decides
//! which waiting job starts next, among those that *can go on*. A job can go on if some of its devices can be handed
//! out, or if it only has to end: it is cancelled or expired, or no device is left. Jobs of an earlier run are waiting
//! jobs too, because their rows are the same.
//!
//! A waiting job is its row, and the facts that decide whether it can go on. Its event is read again from the journal,
//! which the store keeps from the oldest waiting job on.
//!
//! Bounds: those of [`tidings_jobs::Slots`], by [`WaitingJobs::len`] and [`WaitingJobs::bytes`]. A record takes less
//! than 1 KiB, including its entries in the maps here. Whether jobs can go on is checked again in pieces: with 65 536
//! jobs, the last one is checked within a second.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_jobs::{DeviceOutcome, JobReport, Progress, Ready, ReadyQueue, Suppression};
use tidings_store::AcceptedEvent;
use tidings_types::{CollapseKey, EventId, EventPriority, JobState, JournalPosition, Timestamp, TopicName};

use crate::brakes::Braking;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::topic::Topics;

/// Records checked in one go: some milliseconds at most.
const UPDATE_COUNT: usize = 8192;

/// The outcome of the devices that are left of a job whose event cannot be read.
pub(crate) const EVENT_LOST: DeviceOutcome = DeviceOutcome::Suppressed(Suppression::NoText);

/// All of them, by position.
#[derive(Default)]
pub(crate) struct WaitingJobs {
    jobs: BTreeMap<JournalPosition, WaitingJob>,
    ready: ReadyQueue,
    /// The jobs from which newer events of their key take devices.
    by_key: BTreeMap<CollapseKey, BTreeSet<JournalPosition>>,
    bytes: usize,
    /// Start of the next [`WaitingJobs::update_ready`].
    update_from: JournalPosition,
}

/// One of them.
pub(crate) struct WaitingJob {
    event: EventId,
    topic: TopicName,
    priority: EventPriority,
    key: Option<CollapseKey>,
    accepted_at: Timestamp,
    expires_at: Timestamp,
    /// It has run before, in this run of the server or an earlier one: receipts no longer count.
    has_begun: bool,
    /// The lanes that its devices wait for; not known for a job that has not begun in this run.
    lanes: Box<[usize]>,
    progress: Progress,
    /// The topics that it has used in this run. A version of them is in memory as long as a job needs it.
    topics: Option<Arc<Topics>>,
    /// Changed since the last checkpoint.
    dirty: bool,
    /// As it is in `WaitingJobs::ready`.
    ready: Option<Ready>,
    /// As counted in `WaitingJobs::bytes`.
    bytes: usize,
}

const _: () = assert!(size_of::<WaitingJob>() <= 512, "beside its names and its entries in the maps");

impl WaitingJob {
    /// An event that has not begun.
    pub(crate) fn unbegun(accepted: &AcceptedEvent) -> Self {
        Self { dirty: true, ..Self::restored(accepted, Progress::start()) }
    }

    /// As its row says.
    pub(crate) fn restored(accepted: &AcceptedEvent, progress: Progress) -> Self {
        let event = &accepted.event;
        Self {
            event: event.id.clone(),
            topic: event.topic.clone(),
            priority: event.priority,
            key: superseding_key(accepted).cloned(),
            accepted_at: accepted.accepted_at,
            expires_at: accepted.accepted_at.saturating_add(event.ttl),
            has_begun: !progress.is_start(),
            lanes: Box::default(),
            progress,
            topics: None,
            dirty: false,
            ready: None,
            bytes: 0,
        }
    }

    /// A suspended job that waits for `lanes`.
    pub(crate) fn suspended(accepted: &AcceptedEvent, progress: Progress, lanes: Box<[usize]>) -> Self {
        Self { has_begun: true, lanes, dirty: true, ..Self::restored(accepted, progress) }
    }

    /// It stays with these topics when it goes on.
    pub(crate) fn staying_with(self, topics: Option<Arc<Topics>>) -> Self {
        Self { topics, ..self }
    }

    pub(crate) fn topics(&self) -> Option<Arc<Topics>> {
        self.topics.clone()
    }

    /// By which newer events take devices from it.
    pub(crate) fn key(&self) -> Option<&CollapseKey> {
        self.key.as_ref()
    }

    /// Whether it has no audience yet.
    pub(crate) fn is_unbegun(&self) -> bool {
        !self.has_begun && !self.is_frozen()
    }

    /// Whether all its devices are known.
    pub(crate) fn is_frozen(&self) -> bool {
        self.progress.next.is_none()
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(crate) fn into_progress(self) -> Progress {
        self.progress
    }

    /// All devices without an outcome, if its audience is `frozen`; as [`crate::job::Job::open_devices`].
    pub(crate) fn open_devices(progress: &Progress, frozen: &Frozen) -> RoaringBitmap {
        let mut open = progress.outstanding.clone();
        if let Some(next) = progress.next {
            open.extend(frozen.iter_from(next).map(|number| number.0));
        }
        open
    }

    /// What it would do now; `None` when it cannot go on.
    fn ready(&self, position: JournalPosition, flow: &Flow, now: Timestamp) -> Option<Ready> {
        let is_done = self.is_frozen() && self.progress.outstanding.is_empty();
        if is_done || now >= self.expires_at || flow.brakes().cancelled.contains(&position) {
            return Some(Ready::ToEnd);
        }
        let mut lanes = self.lanes.iter();
        let is_stuck = !self.lanes.is_empty() && lanes.all(|&lane| flow.is_stuck(&self.topic, self.priority, lane));
        (!is_stuck).then_some(Ready::ToSend(self.priority))
    }

    /// Computes again what it would do, and updates `queue`.
    fn update_ready(
        &mut self,
        position: JournalPosition,
        queue: &mut ReadyQueue,
        flow: &Flow,
        now: Timestamp,
    ) -> Option<Ready> {
        let ready = self.ready(position, flow, now);
        queue.update(position, self.ready, ready);
        self.ready = ready;
        ready
    }

    /// Ends a job whose event can no longer be read: its remaining devices cannot be sent anything.
    pub(crate) fn lose(mut self, position: JournalPosition, brakes: &Braking, metrics: &Metrics) -> JobReport {
        let count = self.progress.outstanding.len();
        self.progress.outstanding.clear();
        self.progress.tally.counts.add(EVENT_LOST, count);
        metrics.count(EVENT_LOST, count);
        let report = self.report(position, brakes);
        let state = if report.state == JobState::Cancelled { JobState::Cancelled } else { JobState::Finished };
        JobReport { state, paused_by: None, ..report }
    }

    /// Its report under the current brakes. Before it has begun, its audience is not known: 0.
    pub(crate) fn report(&self, position: JournalPosition, brakes: &Braking) -> JobReport {
        let Progress { outstanding, tally, .. } = &self.progress;
        let is_cancelled = brakes.now().cancelled.contains(&position);
        let mut lanes = self.lanes.iter().map(|&lane| brakes.of_lane(&self.topic, lane));
        let paused_by = match lanes.next() {
            _ if is_cancelled => None,
            Some(first) => first.filter(|_| lanes.all(|scope| scope.is_some())),
            None => brakes.of_topic(&self.topic),
        };
        JobReport {
            position,
            event: self.event.clone(),
            topic: Some(self.topic.clone()),
            priority: self.priority,
            state: match (is_cancelled, &paused_by) {
                (true, _) => JobState::Cancelled,
                (false, Some(_)) => JobState::Paused,
                (false, None) => JobState::Running,
            },
            paused_by,
            accepted_at: self.accepted_at,
            done_at: None,
            audience: tally.counts.total() + outstanding.len(),
            held: 0,
            counts: tally.counts.clone(),
            by: tally.parts.clone(),
            retried: tally.retried,
            time_to: tally.time_to(),
            time_to_by: tally.time_to_by(),
            time_to_live: None,
        }
    }
}

impl WaitingJobs {
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// About how many bytes sets and counts take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many jobs can go on.
    pub(crate) fn ready_count(&self) -> usize {
        self.ready.job_count()
    }

    /// When the event of the oldest job was accepted.
    pub(crate) fn first_accepted_at(&self) -> Option<Timestamp> {
        self.jobs.first_key_value().map(|(_, job)| job.accepted_at)
    }

    pub(crate) fn first(&self) -> Option<JournalPosition> {
        self.jobs.first_key_value().map(|(&position, _)| position)
    }

    pub(crate) fn get(&self, position: JournalPosition) -> Option<&WaitingJob> {
        self.jobs.get(&position)
    }

    pub(crate) fn range(
        &self,
        positions: impl RangeBounds<JournalPosition>,
    ) -> impl DoubleEndedIterator<Item = (JournalPosition, &WaitingJob)> {
        self.jobs.range(positions).map(|(&position, job)| (position, job))
    }

    /// A job waits from now on. `flow` decides whether it can go on.
    pub(crate) fn insert(&mut self, position: JournalPosition, mut job: WaitingJob, flow: &Flow, now: Timestamp) {
        job.update_ready(position, &mut self.ready, flow, now);
        job.bytes = job.progress.bytes_len();
        self.bytes += job.bytes;
        if let Some(key) = &job.key {
            self.by_key.entry(key.clone()).or_default().insert(position);
        }
        self.jobs.insert(position, job);
    }

    pub(crate) fn remove(&mut self, position: JournalPosition) -> Option<WaitingJob> {
        let job = self.jobs.remove(&position)?;
        self.bytes -= job.bytes;
        self.ready.update(position, job.ready, None);
        if let Some(key) = &job.key
            && let Some(positions) = self.by_key.get_mut(key)
        {
            positions.remove(&position);
            if positions.is_empty() {
                self.by_key.remove(key);
            }
        }
        Some(job)
    }

    /// Checks again which of the next [`UPDATE_COUNT`] jobs can go on. After the last job it starts with the first.
    pub(crate) fn update_ready(&mut self, flow: &Flow, now: Timestamp) {
        let mut rest = self.jobs.range_mut(self.update_from..);
        for (&position, job) in rest.by_ref().take(UPDATE_COUNT) {
            job.update_ready(position, &mut self.ready, flow, now);
        }
        self.update_from = rest.next().map(|(&position, _)| position).unwrap_or_default();
    }

    /// The first job at or after `from` that can go on by `flow`. `flow` may have changed since the last check, so jobs
    /// are checked again. `None` also if none of those checked, [`UPDATE_COUNT`] at most, can go on any more.
    pub(crate) fn first_ready(&mut self, from: Ready, flow: &Flow, now: Timestamp) -> Option<(Ready, JournalPosition)> {
        for _ in 0..UPDATE_COUNT {
            let first = self.ready.first(from)?;
            if self.update_one(first.1, flow, now) == Some(first.0) {
                return Some(first);
            }
        }
        None
    }

    fn update_one(&mut self, position: JournalPosition, flow: &Flow, now: Timestamp) -> Option<Ready> {
        self.jobs.get_mut(&position)?.update_ready(position, &mut self.ready, flow, now)
    }

    /// The jobs before `position` from which a newer event of this key takes devices.
    pub(crate) fn older_of(&self, key: &CollapseKey, position: JournalPosition) -> Vec<JournalPosition> {
        let positions = self.by_key.get(key).into_iter().flatten();
        positions.copied().take_while(|&older| older < position).collect()
    }

    /// The jobs of [`WaitingJobs::older_of`] whose audience is not a set yet.
    pub(crate) fn unfrozen_older_of(&self, key: &CollapseKey, position: JournalPosition) -> Vec<JournalPosition> {
        let is_unfrozen = |older: &JournalPosition| !self.jobs.get(older).is_none_or(WaitingJob::is_frozen);
        self.older_of(key, position).into_iter().filter(is_unfrozen).collect()
    }

    /// Replaces a job's cursor by the set of all devices without an outcome, except the `superseded` ones that a newer
    /// job took.
    pub(crate) fn freeze(
        &mut self,
        position: JournalPosition,
        open: RoaringBitmap,
        superseded: u64,
        metrics: &Metrics,
    ) {
        self.change(position, |job| {
            job.progress.next = None;
            job.progress.outstanding = open;
            job.progress.tally.counts.add(DeviceOutcome::Superseded, superseded);
            metrics.count(DeviceOutcome::Superseded, superseded);
        });
    }

    /// The devices without an outcome of these jobs, all of which are frozen.
    pub(crate) fn open_devices(&self, positions: &[JournalPosition]) -> RoaringBitmap {
        let sets = positions.iter().filter_map(|position| Some(&self.jobs.get(position)?.progress.outstanding));
        sets.fold(RoaringBitmap::new(), |all, set| all | set)
    }

    /// Counts the devices of these jobs that are in `numbers` as superseded, and returns them.
    pub(crate) fn supersede(
        &mut self,
        positions: &[JournalPosition],
        numbers: &RoaringBitmap,
        metrics: &Metrics,
    ) -> Vec<(JournalPosition, RoaringBitmap)> {
        let mut all = Vec::new();
        for &position in positions {
            self.change(position, |job| {
                debug_assert!(job.is_frozen(), "or it would come back to them");
                let taken = &job.progress.outstanding & numbers;
                job.progress.outstanding -= &taken;
                job.progress.tally.counts.add(DeviceOutcome::Superseded, taken.len());
                metrics.count(DeviceOutcome::Superseded, taken.len());
                all.push((position, taken));
            });
        }
        all
    }

    fn change(&mut self, position: JournalPosition, change: impl FnOnce(&mut WaitingJob)) {
        let Some(job) = self.jobs.get_mut(&position) else { return };
        change(job);
        job.dirty = true;
        self.bytes -= job.bytes;
        job.bytes = job.progress.bytes_len();
        self.bytes += job.bytes;
    }

    /// The jobs that have changed since the last call.
    pub(crate) fn take_dirty(&mut self) -> Vec<(JournalPosition, Progress)> {
        let dirty = self.jobs.iter_mut().filter(|(_, job)| job.dirty);
        dirty
            .map(|(&position, job)| {
                job.dirty = false;
                (position, job.progress.clone())
            })
            .collect()
    }

    /// The last checkpoint of this job was not written.
    pub(crate) fn spoil_checkpoint(&mut self, position: JournalPosition) {
        if let Some(job) = self.jobs.get_mut(&position) {
            job.dirty = true;
        }
    }
}

/// The key by which an event takes devices from older ones, and loses them to newer ones. Dry runs do neither.
pub(crate) fn superseding_key(accepted: &AcceptedEvent) -> Option<&CollapseKey> {
    accepted.event.collapse_key.as_ref().filter(|_| !accepted.event.dry_run)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tidings_telemetry::Registry;
    use tidings_types::Event;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);
    const POSITION: JournalPosition = JournalPosition(3);

    fn accepted(life: Duration) -> AcceptedEvent {
        let mut event = Event::new(EventId::new("goal-1").unwrap(), TopicName::new("goal").unwrap(), Vec::new());
        event.ttl = life;
        AcceptedEvent { accepted_at: NOW, published: Vec::new(), audience_max: None, event }
    }

    fn begun() -> WaitingJob {
        let mut progress = Progress::start();
        progress.outstanding.extend([1, 2, 5]);
        progress.next = None;
        progress.tally.counts.add(DeviceOutcome::Accepted, 4);
        WaitingJob::restored(&accepted(Duration::from_secs(60)), progress)
    }

    #[test]
    fn whose_event_is_lost_is_finished_with_one_outcome_for_everybody() {
        let store_brakes = tokio::sync::watch::channel(Default::default()).1;
        let brakes = Braking::new(store_brakes, None, std::sync::Arc::new([]));
        let metrics = Metrics::new(&Registry::new());
        let report = begun().lose(POSITION, &brakes, &metrics);
        assert_eq!((report.state, report.audience, report.counts.total()), (JobState::Finished, 7, 7));
        assert_eq!((report.counts.of(EVENT_LOST), metrics.outcomes[EVENT_LOST.index()].value()), (3, 3));
        let unbegun = WaitingJob::unbegun(&accepted(Duration::from_secs(60))).report(POSITION, &brakes);
        assert_eq!((unbegun.state, unbegun.audience, unbegun.done_at), (JobState::Running, 0, None));
    }

    #[test]
    fn what_can_go_on_is_found_out_at_the_moment_of_asking() {
        let (mut waiting, flow, normal) = (WaitingJobs::default(), Flow::new(1), Ready::ToSend(EventPriority::Normal));
        waiting.insert(POSITION, begun(), &flow, NOW);
        let urgent = JournalPosition(9);
        let mut event = accepted(Duration::from_secs(60));
        event.event.priority = EventPriority::High;
        let suspended = WaitingJob::suspended(&event, begun().into_progress(), Box::new([0]));
        waiting.insert(urgent, suspended, &flow, NOW);
        assert_eq!(waiting.first_ready(Ready::ToEnd, &flow, NOW), Some((Ready::ToSend(EventPriority::High), urgent)));
        assert_eq!(waiting.first_ready(normal, &flow, NOW), Some((normal, POSITION)));
        let stuck = Flow::all_still(1);
        assert_eq!(waiting.first_ready(Ready::ToEnd, &stuck, NOW), Some((normal, POSITION)));
        assert_eq!(waiting.ready_count(), 1);
        let late = NOW.saturating_add(Duration::from_secs(60));
        waiting.update_ready(&stuck, late);
        assert_eq!(waiting.first_ready(Ready::ToEnd, &stuck, late), Some((Ready::ToEnd, POSITION)));
    }
}
