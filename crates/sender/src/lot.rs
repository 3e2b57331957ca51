//! Jobs without a place: known and on disk, but neither walked nor handed out.
//!
//! A job is parked before it begins, when all places are taken by jobs that are no less urgent; or put aside later, for
//! a more urgent one or because it cannot hand out anything. It comes back to a place the more urgent first, then the
//! older, once something of it can be handed out; and at once, whatever the places, when it is cancelled, its time is
//! over or nothing of it is left: then it only ends. Jobs of an earlier run are parked too: their rows are the same.
//!
//! What is kept of a job is its row and what decides about its turn; its event is read again from the journal, which
//! the store keeps from the oldest parked job on.
//!
//! Bounds: the dispatcher's, who parks nothing more when there are too many ([`Lot::len`]) and puts nothing more aside
//! when their sets and counts are too large ([`Lot::bytes`]). A record is below 1 KiB with its places in the maps here.
//! All are looked over in pieces: of a lot that is full, the last learn within a second that they may have a place.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeBounds;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_store::AcceptedEvent;
use tidings_types::{CollapseKey, EventId, EventPriority, JournalPosition, Timestamp, TopicName};

use crate::brakes::Braking;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::outcome::{DeviceOutcome, Suppression};
use crate::report::{JobReport, JobState};
use crate::row::Progress;

/// Heap of a histogram of answers, and of a part of the counts, about.
const LATENCY_BYTES: usize = 20 << 10;
const PART_BYTES: usize = 256;

/// Records looked at in one go: some milliseconds at most.
const SORT_COUNT: usize = 8192;

/// What is counted of who is left of a job whose event cannot be read.
pub(crate) const EVENT_LOST: DeviceOutcome = DeviceOutcome::Suppressed(Suppression::NoText);

/// When a parked job has a place: `None`, which is before all others, to be ended.
pub(crate) type Turn = Option<EventPriority>;

/// All of them, by position.
#[derive(Default)]
pub(crate) struct Lot {
    jobs: BTreeMap<JournalPosition, Parked>,
    /// Those that may have a place, the next one first.
    ready: BTreeSet<(Turn, JournalPosition)>,
    /// Those that newer events of their key take devices from.
    by_key: BTreeMap<CollapseKey, BTreeSet<JournalPosition>>,
    bytes: usize,
    /// Where the next [`Lot::sort_out`] begins.
    sorted: JournalPosition,
}

/// One of them.
pub(crate) struct Parked {
    event: EventId,
    topic: TopicName,
    priority: EventPriority,
    key: Option<CollapseKey>,
    accepted_at: Timestamp,
    expires_at: Timestamp,
    /// It had a place once, in this run or before: receipts do not count any more.
    has_begun: bool,
    /// The lanes that its devices wait for; not known of one that has not begun in this run.
    lanes: Box<[usize]>,
    progress: Progress,
    /// Changed since the last checkpoint.
    dirty: bool,
    /// As it is in `Lot::ready`.
    turn: Option<Turn>,
    /// As counted in `Lot::bytes`.
    bytes: usize,
}

const _: () = assert!(size_of::<Parked>() <= 512, "beside its names and its places in the maps");

impl Parked {
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
            dirty: false,
            turn: None,
            bytes: 0,
        }
    }

    /// One that had a place, and waits for `lanes`.
    pub(crate) fn put_aside(accepted: &AcceptedEvent, progress: Progress, lanes: Box<[usize]>) -> Self {
        Self { has_begun: true, lanes, dirty: true, ..Self::restored(accepted, progress) }
    }

    /// Whether it has not even an audience yet.
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

    /// All who have no outcome, when its audience is `frozen`; as [`crate::job::Job::open_devices`].
    pub(crate) fn open_devices(progress: &Progress, frozen: &Frozen) -> RoaringBitmap {
        let mut open = progress.outstanding.clone();
        if let Some(next) = progress.next {
            open.extend(frozen.iter_from(next).map(|number| number.0));
        }
        open
    }

    fn turn(&self, position: JournalPosition, flow: &Flow, now: Timestamp) -> Option<Turn> {
        let is_done = self.is_frozen() && self.progress.outstanding.is_empty();
        if is_done || now >= self.expires_at || flow.brakes().cancelled.contains(&position) {
            return Some(None);
        }
        let mut lanes = self.lanes.iter();
        let is_stuck = !self.lanes.is_empty() && lanes.all(|&lane| flow.is_stuck(&self.topic, self.priority, lane));
        (!is_stuck).then_some(Some(self.priority))
    }

    /// Finds its turn out anew, for `ready` too.
    fn sort(
        &mut self,
        position: JournalPosition,
        ready: &mut BTreeSet<(Turn, JournalPosition)>,
        flow: &Flow,
        now: Timestamp,
    ) -> Option<Turn> {
        let turn = self.turn(position, flow, now);
        if turn != self.turn {
            self.turn.map(|turn| ready.remove(&(turn, position)));
            ready.extend(turn.map(|turn| (turn, position)));
            self.turn = turn;
        }
        turn
    }

    fn count_bytes(&self) -> usize {
        let Progress { outstanding, tally, .. } = &self.progress;
        let latency = tally.latency.as_ref().map_or(0, |_| LATENCY_BYTES);
        outstanding.serialized_size() + tally.parts.len() * PART_BYTES + latency
    }

    /// Ends it when its event cannot be read any more: there is nothing that those who are left could be told.
    pub(crate) fn lose(mut self, position: JournalPosition, brakes: &Braking, metrics: &Metrics) -> JobReport {
        let count = self.progress.outstanding.len();
        self.progress.outstanding.clear();
        self.progress.tally.counts.add(EVENT_LOST, count);
        metrics.count(EVENT_LOST, count);
        let report = self.report(position, brakes);
        let state = if report.state == JobState::Cancelled { JobState::Cancelled } else { JobState::Finished };
        JobReport { state, paused_by: None, ..report }
    }

    /// How it stands under the present brakes. Before its event's turn its audience is not known: 0.
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
        }
    }
}

impl Lot {
    pub(crate) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// What sets and counts take, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// How many may have a place.
    pub(crate) fn ready_count(&self) -> usize {
        self.ready.len()
    }

    pub(crate) fn first(&self) -> Option<JournalPosition> {
        self.jobs.first_key_value().map(|(&position, _)| position)
    }

    pub(crate) fn get(&self, position: JournalPosition) -> Option<&Parked> {
        self.jobs.get(&position)
    }

    pub(crate) fn range(
        &self,
        positions: impl RangeBounds<JournalPosition>,
    ) -> impl DoubleEndedIterator<Item = (JournalPosition, &Parked)> {
        self.jobs.range(positions).map(|(&position, parked)| (position, parked))
    }

    /// Parks a job, which may have a place again by `flow`.
    pub(crate) fn insert(&mut self, position: JournalPosition, mut parked: Parked, flow: &Flow, now: Timestamp) {
        parked.turn = parked.turn(position, flow, now);
        parked.bytes = parked.count_bytes();
        self.bytes += parked.bytes;
        self.ready.extend(parked.turn.map(|turn| (turn, position)));
        if let Some(key) = &parked.key {
            self.by_key.entry(key.clone()).or_default().insert(position);
        }
        self.jobs.insert(position, parked);
    }

    pub(crate) fn remove(&mut self, position: JournalPosition) -> Option<Parked> {
        let parked = self.jobs.remove(&position)?;
        self.bytes -= parked.bytes;
        parked.turn.map(|turn| self.ready.remove(&(turn, position)));
        if let Some(key) = &parked.key
            && let Some(positions) = self.by_key.get_mut(key)
        {
            positions.remove(&position);
            if positions.is_empty() {
                self.by_key.remove(key);
            }
        }
        Some(parked)
    }

    /// Finds out anew which of the next [`SORT_COUNT`] may have a place, and of the first again after the last.
    pub(crate) fn sort_out(&mut self, flow: &Flow, now: Timestamp) {
        let mut rest = self.jobs.range_mut(self.sorted..);
        for (&position, parked) in rest.by_ref().take(SORT_COUNT) {
            parked.sort(position, &mut self.ready, flow, now);
        }
        self.sorted = rest.next().map(|(&position, _)| position).unwrap_or_default();
    }

    /// Whose turn it is by `flow`, which may have changed since they were sorted out. `None` also when those that were
    /// looked at, [`SORT_COUNT`] at most, cannot go on any more.
    pub(crate) fn next(&mut self, flow: &Flow, now: Timestamp) -> Option<(Turn, JournalPosition)> {
        for _ in 0..SORT_COUNT {
            let &next = self.ready.first()?;
            if self.sort(next.1, flow, now) == Some(next.0) {
                return Some(next);
            }
        }
        None
    }

    /// The oldest that may have a place, whatever its priority; `None` also when it cannot go on any more.
    pub(crate) fn oldest(&mut self, flow: &Flow, now: Timestamp) -> Option<(Turn, JournalPosition)> {
        let position = self.ready.iter().map(|(_, position)| *position).min()?;
        Some((self.sort(position, flow, now)?, position))
    }

    fn sort(&mut self, position: JournalPosition, flow: &Flow, now: Timestamp) -> Option<Turn> {
        self.jobs.get_mut(&position)?.sort(position, &mut self.ready, flow, now)
    }

    /// Those before `position` that a newer event of this key takes devices from.
    pub(crate) fn older_of(&self, key: &CollapseKey, position: JournalPosition) -> Vec<JournalPosition> {
        let positions = self.by_key.get(key).into_iter().flatten();
        positions.copied().take_while(|&older| older < position).collect()
    }

    /// Those of them that have no set yet.
    pub(crate) fn unfrozen_older_of(&self, key: &CollapseKey, position: JournalPosition) -> Vec<JournalPosition> {
        let is_unfrozen = |older: &JournalPosition| !self.jobs.get(older).is_none_or(Parked::is_frozen);
        self.older_of(key, position).into_iter().filter(is_unfrozen).collect()
    }

    /// Gives a job a set of all who have no outcome, in place of its cursor, less `superseded` that a newer one took.
    pub(crate) fn freeze(
        &mut self,
        position: JournalPosition,
        open: RoaringBitmap,
        superseded: u64,
        metrics: &Metrics,
    ) {
        self.change(position, |parked| {
            parked.progress.next = None;
            parked.progress.outstanding = open;
            parked.progress.tally.counts.add(DeviceOutcome::Superseded, superseded);
            metrics.count(DeviceOutcome::Superseded, superseded);
        });
    }

    /// The devices of these jobs, all frozen, that have no outcome.
    pub(crate) fn open_devices(&self, positions: &[JournalPosition]) -> RoaringBitmap {
        let sets = positions.iter().filter_map(|position| Some(&self.jobs.get(position)?.progress.outstanding));
        sets.fold(RoaringBitmap::new(), |all, set| all | set)
    }

    /// Counts those of `numbers` as superseded that are of these jobs.
    pub(crate) fn supersede(&mut self, positions: &[JournalPosition], numbers: &RoaringBitmap, metrics: &Metrics) {
        for &position in positions {
            self.change(position, |parked| {
                debug_assert!(parked.is_frozen(), "or it would come back to them");
                let count = parked.progress.outstanding.intersection_len(numbers);
                parked.progress.outstanding -= numbers;
                parked.progress.tally.counts.add(DeviceOutcome::Superseded, count);
                metrics.count(DeviceOutcome::Superseded, count);
            });
        }
    }

    fn change(&mut self, position: JournalPosition, change: impl FnOnce(&mut Parked)) {
        let Some(parked) = self.jobs.get_mut(&position) else { return };
        change(parked);
        parked.dirty = true;
        self.bytes -= parked.bytes;
        parked.bytes = parked.count_bytes();
        self.bytes += parked.bytes;
    }

    /// What has changed since it was last asked.
    pub(crate) fn take_dirty(&mut self) -> Vec<(JournalPosition, Progress)> {
        let dirty = self.jobs.iter_mut().filter(|(_, parked)| parked.dirty);
        dirty
            .map(|(&position, parked)| {
                parked.dirty = false;
                (position, parked.progress.clone())
            })
            .collect()
    }

    /// The last checkpoint of this job was not written.
    pub(crate) fn spoil_checkpoint(&mut self, position: JournalPosition) {
        if let Some(parked) = self.jobs.get_mut(&position) {
            parked.dirty = true;
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

    fn begun() -> Parked {
        let mut progress = Progress::start();
        progress.outstanding.extend([1, 2, 5]);
        progress.next = None;
        progress.tally.counts.add(DeviceOutcome::Accepted, 4);
        Parked::restored(&accepted(Duration::from_secs(60)), progress)
    }

    #[test]
    fn whose_event_is_lost_is_finished_with_one_outcome_for_everybody() {
        let store_brakes = tokio::sync::watch::channel(Default::default()).1;
        let brakes = Braking::new(store_brakes, std::sync::Arc::new([]));
        let metrics = Metrics::new(&Registry::new());
        let report = begun().lose(POSITION, &brakes, &metrics);
        assert_eq!((report.state, report.audience, report.counts.total()), (JobState::Finished, 7, 7));
        assert_eq!((report.counts.of(EVENT_LOST), metrics.outcomes[EVENT_LOST.index()].value()), (3, 3));
        let unbegun = Parked::unbegun(&accepted(Duration::from_secs(60))).report(POSITION, &brakes);
        assert_eq!((unbegun.state, unbegun.audience, unbegun.done_at), (JobState::Running, 0, None));
    }

    /// The lot was sorted out before; whoever cannot go on since is not next.
    #[test]
    fn whose_turn_it_is_is_found_out_at_the_moment_of_asking() {
        let (mut lot, flow) = (Lot::default(), Flow::new(1));
        lot.insert(POSITION, begun(), &flow, NOW);
        let high = JournalPosition(9);
        let mut urgent = accepted(Duration::from_secs(60));
        urgent.event.priority = EventPriority::High;
        lot.insert(high, Parked::put_aside(&urgent, begun().into_progress(), Box::new([0])), &flow, NOW);
        assert_eq!(lot.next(&flow, NOW), Some((Some(EventPriority::High), high)));
        let stuck = Flow::all_still(1);
        assert_eq!(lot.next(&stuck, NOW), Some((Some(EventPriority::Normal), POSITION)));
        assert_eq!((lot.ready_count(), lot.oldest(&stuck, NOW)), (1, Some((Some(EventPriority::Normal), POSITION))));
        let late = NOW.saturating_add(Duration::from_secs(60));
        lot.sort_out(&stuck, late);
        assert_eq!(lot.next(&stuck, late), Some((None, POSITION)));
    }
}
