//! One event on its way to its audience, and the books of it.
//!
//! A job is a *walk* and *lanes*. The walk looks at every device of the frozen audience once, in the order of their
//! numbers, and either counts why it is not sent to or gives it to the lane of its pool. A lane hands its devices out
//! in windows, at its pool's pace. The walk runs when some lane has nothing to hand out, so a slow pool does not hold up
//! a fast one: what the walk found for it on the way waits as a set of numbers.
//!
//! ```text
//!  frozen ──walk──► lane.pending ──window──► lane.in_flight ──settle──► counts
//!    │  (cursor)        ▲  └──(other pool by now)──► pending of that lane        ▲
//!    └──────────────────┴─── suppressed, expired ────────────────────────────────┘
//! ```
//!
//! Every arrow is one step under the job's lock, and each device is in exactly one place: not walked yet, pending, in
//! flight, or counted. That is the whole proof of "exactly one outcome", also for a device that is registered anew,
//! moved to another app or deleted meanwhile; and it is why cursor + outstanding set + counts is all a checkpoint holds.
//!
//! Memory: the frozen audience (shared with the index where it is one set), at most as much again for what waits, and
//! one rendering per app and catalogue.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_push::{Rendering, Settled};
use tidings_store::AcceptedEvent;
use tidings_types::{CollapseKey, DeviceNumber, EventId, JournalPosition, Timestamp};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::latency::Latency;
use crate::metrics::Metrics;
use crate::outcome::{Counts, DeviceOutcome, Suppression};
use crate::report::{JobReport, JobState};
use crate::row::{JobRow, Progress};
use crate::topic::TextIndex;

/// One event on its way.
pub(crate) struct Job {
    pub(crate) position: JournalPosition,
    pub(crate) accepted: AcceptedEvent,
    pub(crate) expires_at: Timestamp,
    pub(crate) collapse_id: CollapseKey,
    frozen: Frozen,
    books: Mutex<Books>,
    /// One per lane: it has something to do again.
    wakes: Box<[Notify]>,
    /// Made for the first device that needs them.
    pub(crate) renderings: Mutex<Renderings>,
}

/// Renderings by app and text; `None` where none can be made.
type Renderings = HashMap<(usize, TextIndex), Option<Arc<Rendering>>>;

/// Invariant: a device of the audience is in exactly one of: from `next` on, `resumed`, a lane's set, `counts`.
struct Books {
    /// The first number the walk has not looked at.
    next: Option<DeviceNumber>,
    /// What an earlier run had looked at and not finished; walked again before the rest.
    resumed: RoaringBitmap,
    lanes: Box<[Lane]>,
    counts: Counts,
    latency: Option<Latency>,
    /// Changed since the last checkpoint.
    dirty: bool,
}

#[derive(Default)]
struct Lane {
    /// Waits to be handed out.
    pending: RoaringBitmap,
    /// Handed to the lake.
    in_flight: RoaringBitmap,
    /// The lane sleeps until no more than so many are in flight.
    awaits: Option<u64>,
}

/// What a lane does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Look at these devices of the audience and tell with [`Job::assign`].
    Walk(Vec<DeviceNumber>),
    /// Look at these devices of the lane and tell with [`Job::open`].
    Open(Vec<DeviceNumber>),
    /// Wait for [`Job::woken`].
    Wait,
    /// Nothing will come any more.
    Over,
}

/// What was found out about a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// It belongs to this lane.
    Lane(usize),
    /// It is not sent to.
    Suppressed(Suppression),
}

/// The bounds of a lane's work. Invariant: `in_flight_max` ≥ `window_device_count`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneLimits {
    pub(crate) window_device_count: usize,
    pub(crate) in_flight_max: u64,
}

impl Job {
    pub(crate) fn new(
        position: JournalPosition,
        accepted: AcceptedEvent,
        frozen: Frozen,
        lane_count: usize,
        progress: Progress,
    ) -> Self {
        let Progress { next, outstanding: resumed, counts, latency } = progress;
        let lanes = (0..lane_count).map(|_| Lane::default()).collect();
        let mut books = Books { next, resumed, lanes, counts, latency, dirty: true };
        books.skip_to_member(&frozen);
        Self {
            position,
            expires_at: accepted.accepted_at.saturating_add(accepted.event.ttl),
            collapse_id: collapse_id(&accepted),
            accepted,
            frozen,
            books: Mutex::new(books),
            wakes: (0..lane_count).map(|_| Notify::new()).collect(),
            renderings: Mutex::default(),
        }
    }

    /// What `lane` does next. After `expires_at` everything that was not handed out is counted as expired first.
    pub(crate) fn step(&self, lane: usize, limits: LaneLimits, metrics: &Metrics, now: Timestamp) -> Step {
        let mut books = self.lock();
        if now >= self.expires_at {
            self.expire(&mut books, metrics);
        }
        if books.is_over() {
            return Step::Over;
        }
        let window = limits.window_device_count;
        let Lane { pending, in_flight, awaits } = &mut books.lanes[lane];
        *awaits = None;
        if pending.is_empty() {
            let unwalked = books.unwalked(&self.frozen, window);
            // At the end of the walk it stays until the job is over: a device may change pools and come here.
            return if unwalked.is_empty() { Step::Wait } else { Step::Walk(unwalked) };
        }
        let most = limits.in_flight_max.saturating_sub(window as u64);
        if in_flight.len() > most {
            *awaits = Some(most);
            return Step::Wait;
        }
        Step::Open(pending.iter().take(window).map(DeviceNumber).collect())
    }

    /// Takes the findings of a [`Step::Walk`], in its order.
    pub(crate) fn assign(&self, findings: &[(DeviceNumber, Finding)], metrics: &Metrics) {
        let Some(&(last, _)) = findings.last() else { return };
        let mut books = self.lock();
        if books.resumed.is_empty() {
            books.next = last.0.checked_add(1).map(DeviceNumber);
            books.skip_to_member(&self.frozen);
        } else {
            books.resumed.remove_smallest(findings.len() as u64);
        }
        for (lane, numbers) in books.place(findings, metrics) {
            books.lanes[lane].pending |= numbers;
            self.wakes[lane].notify_one();
        }
        self.changed(&mut books);
    }

    /// Takes the findings of a [`Step::Open`] before its notifications are handed to the lake.
    pub(crate) fn open(&self, lane: usize, findings: &[(DeviceNumber, Finding)], metrics: &Metrics) {
        let mut books = self.lock();
        books.lanes[lane].pending -= set(findings.iter().map(|&(number, _)| number));
        for (found, numbers) in books.place(findings, metrics) {
            if found == lane {
                books.lanes[lane].in_flight |= numbers;
            } else {
                books.lanes[found].pending |= numbers;
                self.wakes[found].notify_one();
            }
        }
        self.changed(&mut books);
    }

    /// Takes devices back that were opened and did not get into the lake.
    pub(crate) fn take_back(&self, lane: usize, numbers: impl Iterator<Item = DeviceNumber>) {
        let numbers = set(numbers);
        let mut books = self.lock();
        let Lane { pending, in_flight, .. } = &mut books.lanes[lane];
        debug_assert!(numbers.is_subset(in_flight), "only what is in flight comes back");
        *in_flight -= &numbers;
        *pending |= numbers;
    }

    /// Takes outcomes of devices in flight. Tells how many were of devices that are not: a bug.
    pub(crate) fn settle(&self, settled: &[Settled], metrics: &Metrics, now: Timestamp) -> u64 {
        let latency = now.saturating_since(self.accepted.accepted_at);
        let mut strays = 0;
        let mut answers = 0;
        let mut books = self.lock();
        for Settled { ticket, outcome, .. } in settled {
            if !books.lanes.iter_mut().any(|lane| lane.in_flight.remove(ticket.device.0)) {
                strays += 1;
                continue;
            }
            let outcome = DeviceOutcome::from(*outcome);
            books.count(outcome, 1, metrics);
            if outcome.is_answer() {
                books.latency.get_or_insert_default().record(latency);
                answers += 1;
            }
        }
        self.changed(&mut books);
        drop(books);
        metrics.latency.record_n(latency, answers);
        strays
    }

    /// Resolves when the lane has something to do again; at once if that was since it last asked.
    pub(crate) async fn woken(&self, lane: usize) {
        self.wakes[lane].notified().await;
    }

    /// Whether every device has its outcome.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over()
    }

    /// Whether nothing of a lane is in flight; if not, the lane is woken then.
    pub(crate) fn has_landed(&self, lane: usize) -> bool {
        let Lane { in_flight, awaits, .. } = &mut self.lock().lanes[lane];
        *awaits = (!in_flight.is_empty()).then_some(0);
        in_flight.is_empty()
    }

    /// Devices without an answer.
    pub(crate) fn in_flight(&self) -> u64 {
        self.lock().lanes.iter().map(|lane| lane.in_flight.len()).sum()
    }

    /// The row for a checkpoint; `None` when nothing has changed since the last.
    pub(crate) fn checkpoint(&self) -> Option<Vec<u8>> {
        let progress = {
            let mut books = self.lock();
            if !std::mem::take(&mut books.dirty) {
                return None;
            }
            books.progress()
        };
        Some(JobRow::Running(progress).encode())
    }

    /// The last checkpoint was not written.
    pub(crate) fn spoil_checkpoint(&self) {
        self.lock().dirty = true;
    }

    /// How it stands.
    pub(crate) fn report(&self) -> JobReport {
        let books = self.lock();
        let over = books.is_over();
        JobReport {
            position: self.position,
            event: self.accepted.event.id.clone(),
            state: if over { JobState::Finished } else { JobState::Running },
            accepted_at: self.accepted.accepted_at,
            audience: if over { books.counts.total() } else { self.frozen.len() },
            counts: books.counts.clone(),
            time_to: books.latency.as_ref().and_then(Latency::time_to),
        }
    }

    /// Panics when a device is in two places.
    #[cfg(test)]
    fn check(&self) {
        let books = self.lock();
        let mut sets: Vec<&RoaringBitmap> = vec![&books.resumed];
        sets.extend(books.lanes.iter().flat_map(|lane| [&lane.pending, &lane.in_flight]));
        let outstanding = books.progress().outstanding;
        assert_eq!(outstanding.len(), sets.iter().map(|set| set.len()).sum::<u64>(), "the sets are disjoint");
        if let (Some(next), Some(last)) = (books.next, outstanding.max()) {
            assert!(last < next.0, "what is outstanding was walked");
        }
        let unwalked = books.next.map_or(0, |next| self.frozen.iter_from(next).count() as u64);
        assert_eq!(unwalked + outstanding.len() + books.counts.total(), self.frozen.len(), "nobody is lost or doubled");
    }

    fn expire(&self, books: &mut Books, metrics: &Metrics) {
        let unwalked = books.next.map_or(0, |next| self.frozen.iter_from(next).count() as u64);
        let pending: u64 = books.lanes.iter().map(|lane| lane.pending.len()).sum();
        let count = unwalked + books.resumed.len() + pending;
        if count == 0 {
            return;
        }
        books.next = None;
        books.resumed.clear();
        books.lanes.iter_mut().for_each(|lane| lane.pending.clear());
        books.count(DeviceOutcome::Expired, count, metrics);
        self.changed(books);
    }

    /// After every change: wakes the lanes that wait for what has come true.
    fn changed(&self, books: &mut Books) {
        books.dirty = true;
        if books.is_over() {
            return self.wakes.iter().for_each(Notify::notify_one);
        }
        for (lane, wake) in books.lanes.iter_mut().zip(&self.wakes) {
            if lane.awaits.is_some_and(|count| lane.in_flight.len() <= count) {
                lane.awaits = None;
                wake.notify_one();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Books> {
        self.books.lock().expect("no holder of this lock panics")
    }
}

impl Books {
    fn is_over(&self) -> bool {
        let idle = |lane: &Lane| lane.pending.is_empty() && lane.in_flight.is_empty();
        self.next.is_none() && self.resumed.is_empty() && self.lanes.iter().all(idle)
    }

    /// The next devices of the walk, without moving it.
    fn unwalked(&self, frozen: &Frozen, limit: usize) -> Vec<DeviceNumber> {
        if !self.resumed.is_empty() {
            return self.resumed.iter().take(limit).map(DeviceNumber).collect();
        }
        self.next.map_or_else(Vec::new, |next| frozen.iter_from(next).take(limit).collect())
    }

    /// Moves the walk's cursor to the next device of the audience, so that its end is noticed with the last one.
    fn skip_to_member(&mut self, frozen: &Frozen) {
        self.next = self.next.and_then(|next| frozen.iter_from(next).next());
    }

    /// Counts the suppressed and gives the others by lane.
    fn place(&mut self, findings: &[(DeviceNumber, Finding)], metrics: &Metrics) -> Vec<(usize, RoaringBitmap)> {
        for &(_, finding) in findings {
            if let Finding::Suppressed(why) = finding {
                self.count(DeviceOutcome::Suppressed(why), 1, metrics);
            }
        }
        (0..self.lanes.len())
            .map(|lane| {
                let found = findings.iter().filter(|(_, finding)| *finding == Finding::Lane(lane));
                (lane, set(found.map(|&(number, _)| number)))
            })
            .filter(|(_, numbers)| !numbers.is_empty())
            .collect()
    }

    fn count(&mut self, outcome: DeviceOutcome, count: u64, metrics: &Metrics) {
        self.counts.add(outcome, count);
        metrics.count(outcome, count);
    }

    fn progress(&self) -> Progress {
        let mut outstanding = self.resumed.clone();
        for Lane { pending, in_flight, .. } in &self.lanes {
            outstanding |= pending;
            outstanding |= in_flight;
        }
        Progress { next: self.next, outstanding, counts: self.counts.clone(), latency: self.latency.clone() }
    }
}

/// `numbers` as a set; quick when they come in order, as they do.
fn set(numbers: impl Iterator<Item = DeviceNumber>) -> RoaringBitmap {
    numbers.map(|number| number.0).collect()
}

/// The event's own key, else one made of its id: the id itself where it is short enough.
fn collapse_id(accepted: &AcceptedEvent) -> CollapseKey {
    const NAMESPACE: Uuid = Uuid::from_u128(0x3c5e_02a7_8d14_4b6b_9f20_6a1d_e7c3_58b4);
    let derived = |id: &EventId| {
        let uuid = Uuid::new_v5(&NAMESPACE, id.as_str().as_bytes()).to_string();
        CollapseKey::new(&uuid).expect("a UUID is 36 visible characters")
    };
    let event = &accepted.event;
    event
        .collapse_key
        .clone()
        .unwrap_or_else(|| CollapseKey::new(event.id.as_str()).unwrap_or_else(|_| derived(&event.id)))
}
