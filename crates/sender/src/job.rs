//! One event on its way to its audience, and the books of it.
//!
//! A job is a *walk* and *lanes*. The walk looks at every device of the frozen audience once, in the order of their
//! numbers, and either counts why it is not sent to or gives it to the lane of its pool. A lane hands its devices out
//! in windows, at its pool's pace. The walk runs when some lane has nothing to hand out, so a slow pool does not hold up
//! a fast one: what the walk found for it on the way waits as a set of numbers.
//!
//! ```text
//!          ┌────────► lane.held ──receipt──────────────────────────────────┐
//!          │              │ time is up                                     ▼
//!  frozen ─┴─walk──► lane.pending ──window──► lane.in_flight ──settle──► counts
//!    │  (cursor)        ▲  └──(other pool by now)──► pending of that lane  ▲
//!    └──────────────────┴─── suppressed, expired, received ────────────────┘
//! ```
//!
//! Every arrow is one step under the job's lock, and each device is in exactly one place: not walked yet, held, pending,
//! in flight, or counted. That is the whole proof of "exactly one outcome", also for a device that is registered anew,
//! moved to another app or deleted meanwhile; and it is why cursor + outstanding set + counts is all a checkpoint holds.
//! A step of a lane is three calls (what to do, reading the records, [`Job::assign`] or [`Job::open`]), which no other
//! lane's step comes between: they are one piece without a wait on the sender's thread. What may come between, since
//! each touches other places than those the step was given, is [`Job::settle`], [`Job::take_receipts`] and [`Job::let_go`].
//!
//! **Held** is, for an event with `push: unless_received`, a device that would be sent to, could answer over a live
//! connection when the job began, and has not; until `receipt_wait` after the event's acceptance, but for half of its
//! life at most: who has not answered is to be pushed, not to expire. Who has answered when
//! the walk comes to it, or while it is held, has received it. What comes later changes nothing: pending is pushed. A
//! restart knows no receipts and pushes whom none was counted of.
//!
//! Memory: sets of at most a bit per device number: the frozen audience (shared with the index where it is one set), who
//! may answer, who has; and per pool who is held and who waits. One rendering per app and catalogue.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_hub::EventReceipts;
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
    /// When somebody first saw that it is over; from then on always the same.
    done_at: OnceLock<Timestamp>,
    /// One per lane: it has something to do again.
    wakes: Box<[Notify]>,
    /// Who got the event over a live connection; `None` where nobody is held and nobody has.
    receipts: Option<Arc<EventReceipts>>,
    /// Nobody is held any more and nobody will be.
    nobody_held: Notify,
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
    /// Devices of the audience that the walk holds back when it comes to them; empty once time is up.
    may_answer: RoaringBitmap,
    /// Devices known to have received the event.
    received: RoaringBitmap,
    counts: Counts,
    latency: Option<Latency>,
    /// Changed since the last checkpoint.
    dirty: bool,
}

#[derive(Default)]
struct Lane {
    /// May still prove that it needs no push. Invariant: empty when `may_answer` is.
    held: RoaringBitmap,
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
        let (may_answer, received) = (RoaringBitmap::new(), RoaringBitmap::new());
        let mut books = Books { next, resumed, lanes, may_answer, received, counts, latency, dirty: true };
        books.skip_to_member(&frozen);
        Self {
            position,
            expires_at: accepted.accepted_at.saturating_add(accepted.event.ttl),
            collapse_id: collapse_id(&accepted),
            accepted,
            done_at: OnceLock::new(),
            frozen,
            books: Mutex::new(books),
            wakes: (0..lane_count).map(|_| Notify::new()).collect(),
            receipts: None,
            nobody_held: Notify::new(),
            renderings: Mutex::default(),
        }
    }

    /// Spares those who prove by `receipts` that they need no push, and holds back whom it is worth waiting for at `now`.
    pub(crate) fn with_receipts(mut self, receipts: Arc<EventReceipts>, now: Timestamp) -> Self {
        let hold_until = self.accepted.accepted_at.saturating_add(self.hold_max());
        let books = self.books.get_mut().expect("no holder of this lock panics");
        books.received = receipts.received();
        if now < hold_until {
            books.may_answer = members(&self.frozen, &(receipts.may_answer() - &books.received));
        }
        self.receipts = Some(receipts);
        self
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
        let Lane { pending, in_flight, awaits, .. } = &mut books.lanes[lane];
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
            let due = books.hold_back(lane, numbers, metrics);
            if !due.is_empty() {
                books.lanes[lane].pending |= due;
                self.wakes[lane].notify_one();
            }
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

    /// Takes the receipts that have come. Tells whether somebody is held or may still be.
    pub(crate) fn take_receipts(&self, metrics: &Metrics) -> bool {
        let mut books = self.lock();
        if self.end_received(&mut books, metrics) {
            self.changed(&mut books);
        }
        books.is_holding()
    }

    /// Time is up: whoever is held and has not answered is due now, and nobody is held any more.
    pub(crate) fn let_go(&self, metrics: &Metrics) {
        self.take_receipts(metrics);
        let mut books = self.lock();
        books.may_answer.clear();
        for (lane, wake) in books.lanes.iter_mut().zip(&self.wakes) {
            let held = std::mem::take(&mut lane.held);
            if !held.is_empty() {
                metrics.devices_held.sub(held.len() as i64);
                lane.pending |= held;
                wake.notify_one();
            }
        }
        self.nobody_held.notify_one();
    }

    /// Whether receipts are all that is missing, and its devices have had so long for them from the event's acceptance.
    pub(crate) fn only_holds_since(&self, age: Duration, now: Timestamp) -> bool {
        let books = self.lock();
        let is_idle = |lane: &Lane| lane.pending.is_empty() && lane.in_flight.is_empty();
        now.saturating_since(self.accepted.accepted_at) >= age
            && books.is_walked()
            && books.lanes.iter().all(is_idle)
            && books.held() > 0
    }

    /// Whether somebody is held or may still be.
    pub(crate) fn is_holding(&self) -> bool {
        self.lock().is_holding()
    }

    /// Resolves when [`Job::is_holding`] has become false; at once if it has since it was last asked.
    pub(crate) async fn nobody_held(&self) {
        self.nobody_held.notified().await;
    }

    /// How long devices are held from the event's acceptance on. Half of its life is left to push them.
    fn hold_max(&self) -> Duration {
        self.accepted.event.receipt_wait.min(self.accepted.event.ttl / 2)
    }

    /// How long devices are still held; never more than that, whatever the clock was set to.
    pub(crate) fn hold_left(&self, now: Timestamp) -> Duration {
        let wait = self.hold_max();
        self.accepted.accepted_at.saturating_add(wait).saturating_since(now).min(wait)
    }

    pub(crate) fn receipts(&self) -> Option<&EventReceipts> {
        self.receipts.as_deref()
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
    pub(crate) fn report(&self, now: Timestamp) -> JobReport {
        let books = self.lock();
        let over = books.is_over();
        JobReport {
            position: self.position,
            event: self.accepted.event.id.clone(),
            state: if over { JobState::Finished } else { JobState::Running },
            accepted_at: self.accepted.accepted_at,
            done_at: over.then(|| *self.done_at.get_or_init(|| now)),
            audience: if over { books.counts.total() } else { self.frozen.len() },
            held: books.held(),
            counts: books.counts.clone(),
            time_to: books.latency.as_ref().and_then(Latency::time_to),
        }
    }

    /// Panics when a device is in two places.
    #[cfg(test)]
    fn check(&self) {
        let books = self.lock();
        let mut sets: Vec<&RoaringBitmap> = vec![&books.resumed];
        sets.extend(books.lanes.iter().flat_map(|lane| [&lane.held, &lane.pending, &lane.in_flight]));
        assert!(books.lanes.iter().all(|lane| lane.held.is_subset(&books.may_answer)), "only who may answer is held");
        let outstanding = books.progress().outstanding;
        assert_eq!(outstanding.len(), sets.iter().map(|set| set.len()).sum::<u64>(), "the sets are disjoint");
        if let (Some(next), Some(last)) = (books.next, outstanding.max()) {
            assert!(last < next.0, "what is outstanding was walked");
        }
        let unwalked = books.next.map_or(0, |next| self.frozen.iter_from(next).count() as u64);
        assert_eq!(unwalked + outstanding.len() + books.counts.total(), self.frozen.len(), "nobody is lost or doubled");
    }

    /// Counts the held that have received it by now; whether there were any.
    fn end_received(&self, books: &mut Books, metrics: &Metrics) -> bool {
        let Some(receipts) = &self.receipts else { return false };
        books.received = receipts.received();
        let mut count = 0;
        for lane in &mut books.lanes {
            let received = &lane.held & &books.received;
            lane.held -= &received;
            count += received.len();
        }
        metrics.devices_held.sub(count as i64);
        books.count(DeviceOutcome::Received, count, metrics);
        count > 0
    }

    fn expire(&self, books: &mut Books, metrics: &Metrics) {
        if books.held() > 0 && self.end_received(books, metrics) {
            self.changed(books);
        }
        let unwalked = books.next.map_or(0, |next| self.frozen.iter_from(next).count() as u64);
        let pending: u64 = books.lanes.iter().map(|lane| lane.pending.len()).sum();
        let held = books.held();
        let count = unwalked + books.resumed.len() + held + pending;
        if count == 0 {
            return;
        }
        books.next = None;
        books.resumed.clear();
        books.may_answer.clear();
        for lane in &mut books.lanes {
            lane.held.clear();
            lane.pending.clear();
        }
        metrics.devices_held.sub(held as i64);
        books.count(DeviceOutcome::Expired, count, metrics);
        self.changed(books);
    }

    /// After every change: wakes the lanes that wait for what has come true.
    fn changed(&self, books: &mut Books) {
        books.dirty = true;
        if self.receipts.is_some() && !books.is_holding() {
            self.nobody_held.notify_one();
        }
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
        let idle = |lane: &Lane| lane.held.is_empty() && lane.pending.is_empty() && lane.in_flight.is_empty();
        self.is_walked() && self.lanes.iter().all(idle)
    }

    fn is_walked(&self) -> bool {
        self.next.is_none() && self.resumed.is_empty()
    }

    fn is_holding(&self) -> bool {
        !self.may_answer.is_empty() && (!self.is_walked() || self.held() > 0)
    }

    fn held(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
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

    /// Counts those of `numbers` that have received it, holds back those that may, and gives the others.
    fn hold_back(&mut self, lane: usize, mut numbers: RoaringBitmap, metrics: &Metrics) -> RoaringBitmap {
        if !self.received.is_empty() {
            let received = &numbers & &self.received;
            numbers -= &received;
            self.count(DeviceOutcome::Received, received.len(), metrics);
        }
        if !self.may_answer.is_empty() {
            let held = &numbers & &self.may_answer;
            numbers -= &held;
            metrics.devices_held.add(held.len() as i64);
            self.lanes[lane].held |= held;
        }
        numbers
    }

    fn count(&mut self, outcome: DeviceOutcome, count: u64, metrics: &Metrics) {
        self.counts.add(outcome, count);
        metrics.count(outcome, count);
    }

    fn progress(&self) -> Progress {
        let mut outstanding = self.resumed.clone();
        for Lane { held, pending, in_flight, .. } in &self.lanes {
            outstanding |= held;
            outstanding |= pending;
            outstanding |= in_flight;
        }
        Progress { next: self.next, outstanding, counts: self.counts.clone(), latency: self.latency.clone() }
    }
}

/// Those of `numbers` that are of the audience, found from the side with fewer.
fn members(frozen: &Frozen, numbers: &RoaringBitmap) -> RoaringBitmap {
    if numbers.len() <= frozen.len() {
        numbers.iter().filter(|&number| frozen.contains(DeviceNumber(number))).collect()
    } else {
        set(frozen.iter_from(DeviceNumber(0)).filter(|number| numbers.contains(number.0)))
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
