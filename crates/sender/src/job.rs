//! One event on its way to its audience, and the books of it.
//!
//! A job is a *walk* and *lanes*. The walk looks at every device of the frozen audience once, in the order of their
//! numbers, and either counts why it is not sent to or gives it to the lane of its pool and app. A lane hands its
//! devices out in windows, at its pool's pace. The walk does not wait for lanes, so a slow pool does not hold up a fast
//! one: what the walk found for it waits as a set of numbers.
//!
//! ```text
//!          ┌────────► lane.held ──receipt──────────────────────────────────┐
//!          │              │ time is up                                     ▼
//!  frozen ─┴─walk──► lane.pending ──window──► lane.in_flight ──settle──► counts
//!    │  (cursor)        ▲  └──(other lane by now)──► pending of that lane  ▲
//!    └──────────────────┴── suppressed, expired, cancelled, superseded ────┘
//! ```
//!
//! Every arrow is one step under the job's lock, and each device is in exactly one place: not walked yet, held,
//! pending, in flight, or counted. That is the whole proof of "exactly one outcome", also for a device that is
//! registered anew, moved to another app or deleted meanwhile; and it is why cursor + outstanding set + counts is all a
//! checkpoint holds. A step of the walk or of a lane is three calls (what to do, reading the records, [`Job::assign`]
//! or [`Job::open`]), which no other step, no cancelling and no superseding comes between: they are one piece without a
//! wait on the sender's thread. What may come between, since each touches other places than those the step was given,
//! is [`Job::settle`], [`Job::take_receipts`], [`Job::let_go`] and [`Job::unblock`].
//!
//! **Held** is, for an event with `push: unless_received`, a device that would be sent to, could answer over a live
//! connection when the job began, and has not; until `receipt_wait` after the event's acceptance, but for half of its
//! life at most: who has not answered is to be pushed, not to expire. Who has answered when
//! the walk comes to it, or while it is held, has received it. What comes later changes nothing: pending is pushed. A
//! restart knows no receipts and pushes whom none was counted of.
//!
//! **Over before its time**: when the event expires, or from [`Job::cancel`] on, what was not handed out is counted as
//! that at once; of what is in flight the gateway learns it from the rendering, or from [`Job::job_standing`].
//!
//! **Suspended** is a job that cannot go on, or makes room for a more urgent one ([`crate::slots`]): walked, nobody held
//! and nothing in flight or blocked, it gives its set of pending devices and its counts away and is over. What starts
//! again is another job, which heeds no receipts: pending is pushed.
//!
//! **Superseded** are the devices that a newer job with the same collapse key takes over ([`crate::supersede`]). What
//! of them is not walked, held or pending is counted at once; the gateway gives up those in flight
//! before their next attempt, and the newer job hands them out only then: here they are `superseded`, there `blocked`.
//!
//! Memory: sets of at most a bit per device number: the frozen audience (shared with the index where it is one set),
//! who may answer, who has; and per lane who is held and who waits. One rendering per lane and catalogue. The sets of
//! superseding are of devices in flight.

mod books;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_hub::EventReceipts;
use tidings_push::{JobStanding, Outcome, Rendering, Settled, Standing};
use tidings_store::AcceptedEvent;
use tidings_telemetry::panics::{self, Locked};
use tidings_types::{AppId, CollapseKey, DeviceNumber, Event, EventId, JournalPosition, Locale, Provider, Timestamp};
use tokio::sync::Notify;
use uuid::Uuid;

use crate::brakes::Braking;
use crate::flow::Flow;
use crate::metrics::Metrics;
use crate::outcome::{DeviceOutcome, Suppression};
use crate::report::{JobReport, JobState};
use crate::row::{JobRow, Progress};
use crate::topic::TextIndex;
use crate::wave::{Answers, is_doubtful};
use books::{Books, Lane};

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
    /// A lane that has no task yet has something to do, or the job is over.
    lanes_wanted: Notify,
    /// Who got the event over a live connection; `None` where nobody is held and nobody has.
    receipts: Option<Arc<EventReceipts>>,
    /// Nobody is held any more and nobody will be.
    nobody_held: Notify,
    /// Made for the first device that needs them.
    pub(crate) renderings: Mutex<Renderings>,
}

/// Renderings by lane and text, with the place where their outcomes are counted, or why none can be made.
type Renderings = HashMap<(usize, TextIndex), Result<(Arc<Rendering>, u16), Suppression>>;

/// What a lane does next.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
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

/// What came of outcomes, beside the counts.
#[derive(Debug, Default)]
pub(crate) struct Landed {
    /// Outcomes of devices that were not in flight: a bug.
    pub(crate) strays: u64,
    /// Whose token was accepted for the first time.
    pub(crate) proven: Vec<DeviceNumber>,
    /// By lane, what providers said of its tokens.
    pub(crate) answers: BTreeMap<usize, Answers>,
    /// Places of outcomes that say that a token is gone, and their lanes.
    pub(crate) gone: Vec<(usize, usize)>,
}

impl Landed {
    /// Takes what the outcome at `place` says of its token.
    fn take_answer(&mut self, place: usize, settled: &Settled, lane: usize) {
        match settled.outcome {
            Outcome::Accepted => self.answers.entry(lane).or_default().accepted += 1,
            Outcome::Rejected(reason) if is_doubtful(reason) => {
                self.answers.entry(lane).or_default().doubtful += 1;
            }
            _ => {}
        }
        if settled.token_gone.is_some() {
            self.gone.push((place, lane));
        }
    }
}

impl Job {
    pub(crate) fn new(
        position: JournalPosition,
        accepted: AcceptedEvent,
        frozen: Frozen,
        lane_count: usize,
        progress: Progress,
    ) -> Self {
        let books = Books::new(lane_count, progress, &frozen);
        Self {
            position,
            expires_at: accepted.accepted_at.saturating_add(accepted.event.ttl),
            collapse_id: collapse_id(&accepted.event),
            accepted,
            done_at: OnceLock::new(),
            frozen,
            books: Mutex::new(books),
            wakes: (0..lane_count).map(|_| Notify::new()).collect(),
            lanes_wanted: Notify::new(),
            receipts: None,
            nobody_held: Notify::new(),
            renderings: Mutex::default(),
        }
    }

    /// Spares those who prove by `receipts` that they need no push, and holds back whom it is worth waiting for at
    /// `now`.
    pub(crate) fn with_receipts(mut self, receipts: Arc<EventReceipts>, now: Timestamp) -> Self {
        let hold_until = self.accepted.accepted_at.saturating_add(self.hold_max());
        let books = self.books.get_mut().expect("no holder of this lock panics");
        books.received = receipts.received();
        if now < hold_until {
            let may_answer = receipts.may_answer() - &books.received;
            books.may_answer = members(&self.frozen, &may_answer) | (may_answer & &books.resumed);
        }
        self.receipts = Some(receipts);
        self
    }

    /// The next devices to look at and to tell of with [`Job::assign`]; none at the end of the walk. After `expires_at`
    /// everything that was not handed out is counted as expired first.
    pub(crate) fn walk(&self, device_count: usize, metrics: &Metrics, now: Timestamp) -> Vec<DeviceNumber> {
        let mut books = self.lock();
        self.end_in_time(&mut books, metrics, now);
        books.unwalked(&self.frozen, device_count)
    }

    /// What `lane` does next, after what [`Job::walk`] says of `expires_at`.
    pub(crate) fn step(&self, lane: usize, limits: LaneLimits, metrics: &Metrics, now: Timestamp) -> Step {
        let mut books = self.lock();
        self.end_in_time(&mut books, metrics, now);
        if books.is_over() {
            return Step::Over;
        }
        let window = limits.window_device_count;
        let Books { lanes, blocked, .. } = &mut *books;
        let Lane { pending, in_flight, awaits, .. } = &mut lanes[lane];
        *awaits = None;
        let most = limits.in_flight_max.saturating_sub(window as u64);
        if !pending.is_empty() && in_flight.len() > most {
            *awaits = Some(most);
            return Step::Wait;
        }
        let free = pending.iter().filter(|&number| !blocked.contains(number));
        let numbers: Vec<DeviceNumber> = free.take(window).map(DeviceNumber).collect();
        // Without any it stays until the job is over: a device may change lanes and come here.
        if numbers.is_empty() { Step::Wait } else { Step::Open(numbers) }
    }

    /// Takes the findings of a piece of the walk, in its order.
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
                self.wake(&books, lane);
            }
        }
        self.changed(&mut books);
    }

    /// Takes the findings of a [`Step::Open`] before its notifications are handed to the lake; `unproven` are those of
    /// them whose token no provider has accepted yet.
    pub(crate) fn open(
        &self,
        lane: usize,
        findings: &[(DeviceNumber, Finding)],
        unproven: impl Iterator<Item = DeviceNumber>,
        metrics: &Metrics,
    ) {
        let mut books = self.lock();
        books.lanes[lane].pending -= set(findings.iter().map(|&(number, _)| number));
        books.unproven.extend(unproven.map(|number| number.0));
        for (found, numbers) in books.place(findings, metrics) {
            if found == lane {
                books.lanes[lane].in_flight |= numbers;
            } else {
                books.lanes[found].pending |= numbers;
                self.wake(&books, found);
            }
        }
        self.changed(&mut books);
    }

    /// Takes devices back that were opened and did not get into the lake.
    pub(crate) fn take_back(&self, lane: usize, numbers: impl Iterator<Item = DeviceNumber>, metrics: &Metrics) {
        let numbers = set(numbers);
        let mut books = self.lock();
        let Lane { pending, in_flight, .. } = &mut books.lanes[lane];
        debug_assert!(numbers.is_subset(in_flight), "only what is in flight comes back");
        *in_flight -= &numbers;
        *pending |= &numbers;
        books.unproven -= &numbers;
        let superseded = numbers & &books.superseded;
        books.lanes[lane].pending -= &superseded;
        books.count(DeviceOutcome::Superseded, superseded.len(), metrics);
        let newer = books.free(&superseded);
        self.changed(&mut books);
        drop(books);
        newer.iter().for_each(|job| job.unblock(&superseded));
    }

    /// Takes outcomes of devices in flight.
    pub(crate) fn settle(&self, settled: &[Settled], metrics: &Metrics, now: Timestamp) -> Landed {
        let latency = now.saturating_since(self.accepted.accepted_at);
        let (mut landed, mut freed, mut answers) = (Landed::default(), RoaringBitmap::new(), 0);
        let mut books = self.lock();
        for (place, settled) in settled.iter().enumerate() {
            let Settled { ticket, outcome, .. } = settled;
            let Some(lane) = books.land(ticket.device) else {
                landed.strays += 1;
                continue;
            };
            landed.take_answer(place, settled, lane);
            if books.superseded.contains(ticket.device.0) {
                freed.insert(ticket.device.0);
            }
            if books.unproven.remove(ticket.device.0) && *outcome == Outcome::Accepted {
                landed.proven.push(ticket.device);
            }
            books.count_settled(settled, metrics);
            if DeviceOutcome::from(*outcome).is_answer() {
                books.tally.latency.get_or_insert_default().record(latency);
                answers += 1;
            }
        }
        let newer = books.free(&freed);
        self.changed(&mut books);
        drop(books);
        newer.iter().for_each(|job| job.unblock(&freed));
        metrics.latency.record_n(latency, answers);
        landed
    }

    /// Where the outcomes of one provider, app and language are counted; a ticket's `cell`.
    pub(crate) fn cell(&self, provider: Provider, app: &AppId, locale: Option<&Locale>) -> u16 {
        self.lock().tally.cell(provider, app, locale)
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
        for lane in 0..books.lanes.len() {
            let held = std::mem::take(&mut books.lanes[lane].held);
            if !held.is_empty() {
                metrics.devices_held.sub(held.len() as i64);
                books.lanes[lane].pending |= held;
                self.wake(&books, lane);
            }
        }
        self.nobody_held.notify_one();
    }

    /// Ends the job: what was not handed out is counted as cancelled, what is in flight is not attempted again.
    pub(crate) fn cancel(&self, metrics: &Metrics) {
        let mut books = self.lock();
        books.is_cancelled = true;
        self.end_unsent(&mut books, DeviceOutcome::Cancelled, metrics);
        (0..books.lanes.len()).for_each(|lane| self.wake(&books, lane));
    }

    /// Counts those of `numbers` that were not handed out as superseded by `newer`, which waits for those that were:
    /// the latter are returned. From here on its audience is a set, also where it loses nobody.
    pub(crate) fn supersede(&self, newer: &Arc<Self>, numbers: &RoaringBitmap, metrics: &Metrics) -> RoaringBitmap {
        let mut books = self.lock();
        if numbers.is_empty() && books.next.is_none() {
            return RoaringBitmap::new();
        }
        books.freeze_rest(&self.frozen);
        let count = books.take_unsent(numbers, metrics);
        books.count(DeviceOutcome::Superseded, count, metrics);
        let racing = books.in_flight() & numbers;
        if !racing.is_empty() {
            books.await_landing(newer, &racing);
            // What is still on its way into a lake comes back at once.
            (0..books.lanes.len()).for_each(|lane| self.wake(&books, lane));
        }
        self.changed(&mut books);
        racing
    }

    /// An older job has these in flight: they are not handed out before [`Job::unblock`], and no receipt spares them a
    /// push, since the older one may show last.
    pub(crate) fn block(&self, numbers: &RoaringBitmap) {
        let mut books = self.lock();
        books.blocked |= numbers;
        books.raced |= numbers;
    }

    /// The older job does not have these in flight any more.
    pub(crate) fn unblock(&self, numbers: &RoaringBitmap) {
        let mut books = self.lock();
        books.blocked -= numbers;
        let lanes = 0..books.lanes.len();
        lanes.filter(|&lane| !books.lanes[lane].pending.is_empty()).for_each(|lane| self.wake(&books, lane));
    }

    /// Devices that were handed out and have no answer.
    pub(crate) fn flying(&self) -> RoaringBitmap {
        self.lock().in_flight()
    }

    /// Devices without an outcome.
    pub(crate) fn open_devices(&self) -> RoaringBitmap {
        let books = self.lock();
        let mut open = books.outstanding();
        open |= books.rest(&self.frozen);
        open
    }

    /// Whether its notifications are still to be sent.
    pub(crate) fn job_standing(&self) -> JobStanding {
        let books = self.lock();
        match (books.is_cancelled, books.superseded.is_empty()) {
            (true, _) => JobStanding::Cancelled,
            (false, true) => JobStanding::Go,
            (false, false) => JobStanding::AskEach,
        }
    }

    /// Whether the notification of one device is still to be sent.
    pub(crate) fn standing(&self, number: DeviceNumber) -> Standing {
        let books = self.lock();
        match (books.is_cancelled, books.superseded.contains(number.0)) {
            (true, _) => Standing::Cancelled,
            (false, true) => Standing::Superseded,
            (false, false) => Standing::Go,
        }
    }

    /// Whether one of these devices in flight is not to be sent to any more.
    pub(crate) fn calls_back(&self, mut numbers: impl Iterator<Item = DeviceNumber>) -> bool {
        let books = self.lock();
        books.is_cancelled
            || (!books.superseded.is_empty() && numbers.any(|number| books.superseded.contains(number.0)))
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

    /// Whether all that is left to do is to wait: for answers, or for lanes that `flow` says are stuck.
    pub(crate) fn is_idle(&self, flow: &Flow) -> bool {
        let (event, books) = (&self.accepted.event, self.lock());
        let is_waiting = |lane: usize, pending: &RoaringBitmap| {
            pending.is_subset(&books.blocked) || flow.is_stuck(&event.topic, event.priority, lane)
        };
        let mut lanes = books.lanes.iter().enumerate();
        books.is_walked() && books.held() == 0 && lanes.all(|(lane, Lane { pending, .. })| is_waiting(lane, pending))
    }

    /// Gives up what is left of it, to be gone on with as a job of its own, and the lanes that it waits for: then this
    /// one is over. `None` if it has something in flight, or an older one has for it; if it is not walked, holds
    /// somebody back, or is about to end.
    pub(crate) fn suspend(&self) -> Option<(Progress, Box<[usize]>)> {
        let mut books = self.lock();
        let flies = |lane: &Lane| !lane.in_flight.is_empty() || !lane.pending.is_disjoint(&books.blocked);
        let is_busy = books.held() > 0 || books.lanes.iter().any(flies);
        if is_busy || !books.is_walked() || books.is_cancelled || books.is_over() {
            return None;
        }
        let progress = books.progress();
        let waits = (0..books.lanes.len()).filter(|&lane| !books.lanes[lane].pending.is_empty());
        let waits = waits.collect();
        books.lanes.iter_mut().for_each(|lane| lane.pending.clear());
        books.aside = progress.outstanding.len();
        self.changed(&mut books);
        Some((progress, waits))
    }

    /// Whether something was not handed out and is not counted.
    pub(crate) fn has_unsent(&self) -> bool {
        self.lock().has_unsent()
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

    /// Resolves when [`Job::take_wanted_lanes`] has more, or the job is over; at once if that was since it was last
    /// asked.
    pub(crate) async fn lanes_wanted(&self) {
        self.lanes_wanted.notified().await;
    }

    /// The lanes that have something to do for the first time: each is to be run from now on.
    pub(crate) fn take_wanted_lanes(&self) -> Vec<usize> {
        let mut books = self.lock();
        let is_new = |lane: &usize| !books.lanes[*lane].pending.is_empty() && !books.manned.contains(lane);
        let wanted: Vec<usize> = (0..books.lanes.len()).filter(is_new).collect();
        books.manned.extend(&wanted);
        wanted
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

    /// How it stands under the present brakes.
    pub(crate) fn report(&self, brakes: &Braking, now: Timestamp) -> JobReport {
        let event = &self.accepted.event;
        let books = self.lock();
        let over = books.is_over() && books.aside == 0;
        let paused_by = if over || books.is_cancelled { None } else { books.paused_by(&event.topic, brakes) };
        let state = match (books.is_cancelled, over, &paused_by) {
            (true, ..) => JobState::Cancelled,
            (false, true, _) => JobState::Finished,
            (false, false, Some(_)) => JobState::Paused,
            (false, false, None) => JobState::Running,
        };
        JobReport {
            position: self.position,
            event: event.id.clone(),
            topic: Some(event.topic.clone()),
            priority: event.priority,
            state,
            paused_by,
            accepted_at: self.accepted.accepted_at,
            done_at: over.then(|| *self.done_at.get_or_init(|| now)),
            // What is left of an audience is known exactly once it was walked.
            audience: if books.next.is_none() {
                books.known() + books.aside
            } else {
                self.frozen.len().max(books.known())
            },
            held: books.held(),
            counts: books.tally.counts.clone(),
            by: books.tally.parts.clone(),
            retried: books.tally.retried,
            time_to: books.tally.time_to(),
        }
    }

    /// Panics when a device is in two places, or there are not as many as selected.
    #[cfg(test)]
    fn check(&self, audience: u64) {
        let books = self.lock();
        let mut sets: Vec<&RoaringBitmap> = vec![&books.resumed];
        sets.extend(books.lanes.iter().flat_map(|lane| [&lane.held, &lane.pending, &lane.in_flight]));
        assert!(books.lanes.iter().all(|lane| lane.held.is_subset(&books.may_answer)), "only who may answer is held");
        assert!(books.superseded.is_subset(&books.in_flight()), "of the superseded only those in flight are kept");
        let waited_for = books.waiters.iter().fold(RoaringBitmap::new(), |all, waiter| all | &waiter.numbers);
        assert!(waited_for.is_subset(&books.superseded) && books.waiters.iter().all(|it| !it.numbers.is_empty()));
        assert_eq!(waited_for.len(), books.waiters.iter().map(|it| it.numbers.len()).sum::<u64>(), "one each");
        assert!(books.unproven.is_subset(&books.in_flight()) && books.blocked.is_subset(&books.raced));
        let outstanding = books.outstanding();
        assert_eq!(outstanding.len(), sets.iter().map(|set| set.len()).sum::<u64>(), "the sets are disjoint");
        if let (Some(next), Some(last)) = (books.next, outstanding.max()) {
            assert!(last < next.0, "what is outstanding was walked");
        }
        let unwalked = books.rest(&self.frozen).len();
        let all = unwalked + outstanding.len() + books.tally.counts.total();
        assert_eq!(all, audience, "nobody is lost or doubled");
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

    fn end_in_time(&self, books: &mut Books, metrics: &Metrics, now: Timestamp) {
        if books.is_cancelled {
            self.end_unsent(books, DeviceOutcome::Cancelled, metrics);
        } else if now >= self.expires_at {
            self.end_unsent(books, DeviceOutcome::Expired, metrics);
        }
    }

    /// Counts everything that was not handed out.
    fn end_unsent(&self, books: &mut Books, outcome: DeviceOutcome, metrics: &Metrics) {
        if books.held() > 0 && self.end_received(books, metrics) {
            self.changed(books);
        }
        let count = books.end_unsent(&self.frozen, metrics);
        if count > 0 {
            books.count(outcome, count, metrics);
            self.changed(books);
        }
    }

    fn wake(&self, books: &Books, lane: usize) {
        if books.manned.contains(&lane) {
            self.wakes[lane].notify_one();
        } else {
            self.lanes_wanted.notify_one();
        }
    }

    /// After every change: wakes the lanes that wait for what has come true.
    fn changed(&self, books: &mut Books) {
        books.dirty = true;
        if self.receipts.is_some() && !books.is_holding() {
            self.nobody_held.notify_one();
        }
        if books.is_over() {
            self.lanes_wanted.notify_one();
            return self.wakes.iter().for_each(Notify::notify_one);
        }
        for (lane, wake) in books.lanes.iter_mut().zip(&self.wakes) {
            if lane.awaits.is_some_and(|count| lane.in_flight.len() <= count) {
                lane.awaits = None;
                wake.notify_one();
            }
        }
    }

    fn lock(&self) -> Locked<'_, Books> {
        panics::lock(&self.books)
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
pub(crate) fn collapse_id(event: &Event) -> CollapseKey {
    const NAMESPACE: Uuid = Uuid::from_u128(0x3c5e_02a7_8d14_4b6b_9f20_6a1d_e7c3_58b4);
    let derived = |id: &EventId| {
        let uuid = Uuid::new_v5(&NAMESPACE, id.as_str().as_bytes()).to_string();
        CollapseKey::new(&uuid).expect("a UUID is 36 visible characters")
    };
    event
        .collapse_key
        .clone()
        .unwrap_or_else(|| CollapseKey::new(event.id.as_str()).unwrap_or_else(|_| derived(&event.id)))
}
