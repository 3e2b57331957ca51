//! The books of a job: where each device of its audience is. A core: no runtime, clock, lock or metric.
//!
//! A job is a *walk* and *lanes*. The walk looks at every device of the audience once, in the order of their numbers, and
//! either counts why it is not sent to or gives it to the lane of its pool and app. A lane hands its devices out in windows,
//! at its pool's pace. The walk does not wait for lanes, so a slow pool does not hold up a fast one: what the walk found
//! for it waits as a set of numbers.
//!
//! ```text
//!                ┌───────► held ──receipt──► counts
//!                │          │ time is up
//!                │          ▼
//! audience ──► walking ──► pending ──open──► opened ──hand out──► in flight ──settle──► counts
//! (cursor)    (window)      ▲   ▲           (window)                 │
//!                           │   └──other lane──┘                     │
//!                           └────────────────put back────────────────┘
//! ```
//! Besides, suppressed devices go from a window into the counts, and expired, cancelled and superseded ones from wherever
//! they are not handed out.
//!
//! # Each device once
//! Each device is in exactly one place: not walked yet, walking, held, pending, opened, in flight, or counted. Every method
//! moves devices from one place to another, and only those that are in the first. That is the whole proof of "exactly one
//! outcome", also for a device that is registered anew, moved to another app or deleted meanwhile. It is also why a
//! checkpoint holds no more than a cursor, the set of unfinished devices before it, and counts.
//!
//! The two steps that read records take two calls each, since reading is the driver's: [`Books::open_walk`] and
//! [`Books::assign`], [`Books::open_window`] and [`Books::hand_out`]. The first call takes the devices out of where they
//! were and gives a window ([`WalkWindow`], [`Window`]). The second call uses the window up: a window cannot be copied, so
//! no device is handed out twice. Anything may happen between the two calls. What cancelling, expiring or superseding
//! takes out of a walk's window is not assigned any more. An opened device counts as handed out already: it neither
//! expires nor is cancelled here, and a newer job waits for it.
//!
//! # What the driver does
//! A method changes the books. [`Books::take_effects`] says what is to be done about it: which lanes to wake, what to count
//! over all jobs, which newer jobs to tell. The driver takes the effects after every call. The lock is the driver's too.
//!
//! # Words
//! **Held** are devices that may prove by a receipt that they need no push, until [`Books::let_go`]. Who has answered when
//! the walk comes to it, or while it is held, has received it. What comes later changes nothing: pending is pushed.
//!
//! **Cancelled or expired**: [`Books::end_unsent`] counts what was not handed out. The driver calls it while
//! [`Books::must_end`] says so, before each step.
//!
//! **Suspended**: walked, nobody held, and nothing opened, in flight or blocked, a job gives its pending devices and its
//! counts away and is over.
//!
//! **Superseded** are the devices that a newer job with the same collapse key takes over. Those not handed out are counted
//! at once. Those that were are `superseded` here and `blocked` in the newer job until they are not in flight any more.
//!
//! Memory: sets of at most a bit per device number: who may answer, who has, who is walked and not finished; and per lane
//! who is held and who is pending. The audience is shared with the index where it is one set. The sets of superseding are of
//! devices in flight.

mod effects;
#[cfg(test)]
mod tests;
mod window;

use std::mem;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_types::{AppId, DeviceNumber, Locale, Provider, Timestamp};

use crate::outcome::DeviceOutcome;
use crate::row::Progress;
use crate::tally::Tally;
pub(crate) use effects::Effects;
pub(crate) use window::{Finding, Outgoing, WalkWindow, Window};

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Open a window: [`Books::open_window`] gives one.
    Open,
    /// Wait until it is woken.
    Wait,
    /// Nothing will come any more.
    Over,
}

/// The bounds of a lane's work. Invariant: `in_flight_max` ≥ `window_device_count`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LaneLimits {
    pub(crate) window_device_count: usize,
    pub(crate) in_flight_max: u64,
}

/// What became of a device that was in flight.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) outcome: DeviceOutcome,
    /// Where it is counted, as [`Books::cell`] said.
    pub(crate) cell: u16,
    /// Attempts beyond the first.
    pub(crate) repeats: u64,
    /// From the event's acceptance to now.
    pub(crate) latency: Duration,
}

/// Where a device was that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Landing {
    pub(crate) lane: usize,
    /// Its token was accepted for the first time.
    pub(crate) is_proven: bool,
    /// Of the part in which it is counted; `None` where no part has room for it.
    pub(crate) provider: Option<Provider>,
}

/// Where the devices of a job are. `N` is how the driver reaches a newer job that waits for devices of this one.
pub(crate) struct Books<N> {
    audience: Frozen,
    expires_at: Timestamp,
    /// The first number of the audience that the walk has not come to.
    next: Option<DeviceNumber>,
    /// What an earlier run had looked at and not finished, or what is left of an audience of which a part was taken
    /// out; walked before the rest.
    resumed: RoaringBitmap,
    /// In the walk's window. Invariant: of the one that is open.
    walking: RoaringBitmap,
    lanes: Box<[Lane]>,
    /// Lanes that the driver runs, few of many.
    started: Vec<usize>,
    /// Receipts count for this job.
    heeds_receipts: bool,
    /// Devices of the audience that the walk holds back when it comes to them; empty once time is up.
    may_answer: RoaringBitmap,
    /// Devices known to have received the event.
    received: RoaringBitmap,
    /// Handed out, and not to be attempted any more: these are for a newer job. Invariant: opened or in flight.
    superseded: RoaringBitmap,
    /// Who waits for those. Invariant: their sets are disjoint, not empty and of `superseded`. At most `job_count_max`
    /// and those that ended since the last one came.
    waiters: Vec<Waiter<N>>,
    /// Handed out for an older job.
    blocked: RoaringBitmap,
    /// Were so when this job began.
    raced: RoaringBitmap,
    /// In flight, to tokens that no provider has accepted yet. Invariant: of those in flight.
    unproven: RoaringBitmap,
    is_cancelled: bool,
    /// Devices that another job of the same event goes on with.
    suspended: u64,
    tally: Tally,
    /// Changed since the last checkpoint.
    is_dirty: bool,
    effects: Effects<N>,
}

/// A newer job that has devices blocked until they have landed here.
struct Waiter<N> {
    job: N,
    numbers: RoaringBitmap,
}

#[derive(Default)]
struct Lane {
    /// May still prove that it needs no push. Invariant: empty when `may_answer` is.
    held: RoaringBitmap,
    /// Waits to be handed out.
    pending: RoaringBitmap,
    /// In an open window.
    opened: RoaringBitmap,
    /// On its way into the lake, in it, or at the gateway.
    in_flight: RoaringBitmap,
    /// The lane sleeps until no more than so many are in flight.
    awaits: Option<u64>,
}

impl Lane {
    fn places(&self) -> [&RoaringBitmap; 4] {
        [&self.held, &self.pending, &self.opened, &self.in_flight]
    }

    fn handed_out_len(&self) -> u64 {
        self.opened.len() + self.in_flight.len()
    }
}

/// A job's life: it begins, may be cancelled, superseded or suspended, and is over.
impl<N: Clone> Books<N> {
    pub(crate) fn new(lane_count: usize, progress: Progress, audience: Frozen, expires_at: Timestamp) -> Self {
        let Progress { next, outstanding: resumed, tally } = progress;
        let mut books = Self {
            audience,
            expires_at,
            next,
            resumed,
            walking: RoaringBitmap::new(),
            lanes: (0..lane_count).map(|_| Lane::default()).collect(),
            started: Vec::new(),
            heeds_receipts: false,
            may_answer: RoaringBitmap::new(),
            received: RoaringBitmap::new(),
            superseded: RoaringBitmap::new(),
            waiters: Vec::new(),
            blocked: RoaringBitmap::new(),
            raced: RoaringBitmap::new(),
            unproven: RoaringBitmap::new(),
            is_cancelled: false,
            suspended: 0,
            tally,
            is_dirty: true,
            effects: Effects::default(),
        };
        books.skip_to_member();
        books
    }

    /// Spares those who have `received` the event, and holds back those of the others who `may_answer`. Before the walk.
    pub(crate) fn heed_receipts(&mut self, received: RoaringBitmap, mut may_answer: RoaringBitmap) {
        may_answer -= &received;
        self.may_answer = members(&self.audience, &may_answer) | (may_answer & &self.resumed);
        (self.received, self.heeds_receipts) = (received, true);
    }

    /// What the driver has to do about the changes since this was last called.
    pub(crate) fn take_effects(&mut self) -> Effects<N> {
        if !self.effects.landed.is_empty() {
            self.tell_waiters();
        }
        mem::take(&mut self.effects)
    }

    /// Whether [`Books::end_unsent`] is to be called.
    pub(crate) fn must_end(&self, now: Timestamp) -> bool {
        self.is_cancelled || now >= self.expires_at
    }

    /// Counts everything that was not handed out, as cancelled or expired.
    pub(crate) fn end_unsent(&mut self) {
        let unwalked = self.next.map_or(0, |next| self.audience.iter_from(next).count() as u64);
        let pending: u64 = self.lanes.iter().map(|lane| lane.pending.len()).sum();
        let held = self.held_len();
        let count = unwalked + self.resumed.len() + self.walking.len() + held + pending;
        self.next = None;
        self.resumed.clear();
        self.walking.clear();
        self.may_answer.clear();
        for lane in &mut self.lanes {
            lane.held.clear();
            lane.pending.clear();
        }
        self.effects.held -= held as i64;
        if count > 0 {
            let outcome = if self.is_cancelled { DeviceOutcome::Cancelled } else { DeviceOutcome::Expired };
            self.count(outcome, count);
            self.changed();
        }
    }

    /// Ends the job: what is in flight is not attempted again.
    pub(crate) fn cancel(&mut self) {
        self.is_cancelled = true;
        self.end_unsent();
        self.wake_all();
    }

    /// Counts those of `numbers` that were not handed out as superseded by `newer`, which waits for those that were:
    /// the latter are returned. From here on its audience is a set, also where it loses nobody.
    pub(crate) fn supersede(&mut self, newer: N, numbers: &RoaringBitmap) -> RoaringBitmap {
        if numbers.is_empty() && self.next.is_none() {
            return RoaringBitmap::new();
        }
        self.freeze_rest();
        let count = self.take_unsent(numbers);
        self.count(DeviceOutcome::Superseded, count);
        let racing = self.handed_out() & numbers;
        if !racing.is_empty() {
            self.await_landing(newer, &racing);
            self.wake_all(); // What is still on its way into a lake comes back at once.
        }
        self.changed();
        racing
    }

    /// Forgets newer jobs that wait here and are over.
    pub(crate) fn forget_newer(&mut self, is_over: impl Fn(&N) -> bool) {
        self.waiters.retain(|waiter| !is_over(&waiter.job));
    }

    /// An older job has handed these out: they are not handed out before [`Books::unblock`], and no receipt spares them a
    /// push, since the older one may show last.
    pub(crate) fn block(&mut self, numbers: &RoaringBitmap) {
        self.blocked |= numbers;
        self.raced |= numbers;
    }

    /// The older job does not have these in flight any more.
    pub(crate) fn unblock(&mut self, numbers: &RoaringBitmap) {
        self.blocked -= numbers;
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].pending.is_empty() {
                self.wake(lane);
            }
        }
    }

    /// Gives up what is left of it, to be gone on with as a job of its own, and the lanes that it waits for: then this
    /// one is over. `None` if it has handed something out that has not landed, or an older one has for it; if it is not
    /// walked, holds somebody back, or is about to end.
    pub(crate) fn suspend(&mut self) -> Option<(Progress, Box<[usize]>)> {
        let is_out = |lane: &Lane| lane.handed_out_len() > 0 || !lane.pending.is_disjoint(&self.blocked);
        let is_busy = self.held_len() > 0 || self.lanes.iter().any(is_out);
        if is_busy || !self.is_walked() || self.is_cancelled || self.is_over() {
            return None;
        }
        let progress = self.progress();
        let waits = (0..self.lanes.len()).filter(|&lane| !self.lanes[lane].pending.is_empty());
        let waits = waits.collect();
        self.lanes.iter_mut().for_each(|lane| lane.pending.clear());
        self.suspended = progress.outstanding.len();
        self.changed();
        Some((progress, waits))
    }
}

/// The walk, lanes, outcomes and receipts.
impl<N: Clone> Books<N> {
    /// The next devices of the walk; `None` at its end. One window at a time.
    pub(crate) fn open_walk(&mut self, device_count: usize) -> Option<WalkWindow> {
        debug_assert!(self.walking.is_empty(), "the walk has one window at a time");
        let devices: Vec<DeviceNumber> = if self.resumed.is_empty() {
            let rest = self.next.map(|next| self.audience.iter_from(next));
            rest.into_iter().flatten().take(device_count).collect()
        } else {
            self.resumed.iter().take(device_count).map(DeviceNumber).collect()
        };
        let last = devices.last()?;
        if self.resumed.is_empty() {
            self.next = last.0.checked_add(1).map(DeviceNumber);
            self.skip_to_member();
        } else {
            self.resumed.remove_smallest(devices.len() as u64);
        }
        self.walking = set(devices.iter().copied());
        Some(WalkWindow { devices })
    }

    /// Takes what was found of the devices of a window, in its order.
    pub(crate) fn assign(&mut self, window: WalkWindow, findings: &[Finding]) {
        let WalkWindow { devices } = window;
        assert_eq!(devices.len(), findings.len(), "each device has one finding");
        let walking = mem::take(&mut self.walking);
        let is_whole = walking.len() == devices.len() as u64;
        let found = devices.into_iter().zip(findings.iter().copied());
        for (lane, numbers) in self.place(found.filter(|(device, _)| is_whole || walking.contains(device.0))) {
            let due = self.hold_back(lane, numbers);
            self.add_pending(lane, due);
        }
        self.changed();
    }

    /// The lanes that have something to do for the first time: each is to be run from now on.
    pub(crate) fn take_wanted_lanes(&mut self) -> Vec<usize> {
        let is_new = |lane: &usize| !self.lanes[*lane].pending.is_empty() && !self.started.contains(lane);
        let wanted: Vec<usize> = (0..self.lanes.len()).filter(is_new).collect();
        self.started.extend(&wanted);
        wanted
    }

    /// What `lane` does next. Where that is to wait, it is woken when it may be something else.
    pub(crate) fn step(&mut self, lane: usize, limits: LaneLimits) -> Step {
        if self.is_over() {
            return Step::Over;
        }
        let most = limits.in_flight_max.saturating_sub(limits.window_device_count as u64);
        let lane = &mut self.lanes[lane];
        let is_full = !lane.pending.is_empty() && lane.handed_out_len() > most;
        lane.awaits = is_full.then_some(most);
        // With nothing to hand out it stays until the job is over: a device may change lanes and come here.
        if is_full || lane.pending.is_subset(&self.blocked) { Step::Wait } else { Step::Open }
    }

    /// The next devices of `lane`, where [`Books::step`] says so; they are handed out by [`Books::hand_out`].
    pub(crate) fn open_window(&mut self, lane: usize, limits: LaneLimits) -> Option<Window> {
        if self.step(lane, limits) != Step::Open {
            return None;
        }
        let Lane { pending, opened, .. } = &mut self.lanes[lane];
        let free = pending.iter().filter(|&number| !self.blocked.contains(number));
        let devices: Vec<DeviceNumber> = free.take(limits.window_device_count).map(DeviceNumber).collect();
        let numbers = set(devices.iter().copied());
        *pending -= &numbers;
        *opened |= numbers;
        Some(Window { lane, devices })
    }

    /// Takes what was found of the devices of a window, in its order, before the notifications are handed to the lake.
    /// Those that belong to its lane are in flight from now on; of them the `unproven` have a token that no provider
    /// has accepted yet.
    pub(crate) fn hand_out(&mut self, window: Window, findings: &[Finding], unproven: &[DeviceNumber]) -> Outgoing {
        let Window { lane, mut devices } = window;
        assert_eq!(devices.len(), findings.len(), "each device has one finding");
        let mut numbers = set(devices.iter().copied());
        self.lanes[lane].opened -= &numbers;
        let found = devices.iter().copied().zip(findings.iter().copied());
        let elsewhere: Vec<_> = found.filter(|(_, finding)| *finding != Finding::Lane(lane)).collect();
        if !elsewhere.is_empty() {
            let left = set(elsewhere.iter().map(|(device, _)| *device));
            numbers -= &left;
            devices.retain(|device| numbers.contains(device.0));
            let superseded = self.give_up(&left);
            let is_kept = |(device, _): &(DeviceNumber, _)| !superseded.contains(device.0);
            for (found, numbers) in self.place(elsewhere.into_iter().filter(is_kept)) {
                self.add_pending(found, numbers);
            }
        }
        if !unproven.is_empty() {
            self.unproven |= &numbers & set(unproven.iter().copied());
        }
        self.lanes[lane].in_flight |= numbers;
        self.changed();
        Outgoing { lane, devices }
    }

    /// Takes devices back that were handed out and did not get into the lake.
    pub(crate) fn put_back(&mut self, outgoing: Outgoing, left: impl Iterator<Item = DeviceNumber>) {
        let Outgoing { lane, devices } = outgoing;
        let numbers = set(left) & set(devices.into_iter()) & &self.lanes[lane].in_flight;
        self.lanes[lane].in_flight -= &numbers;
        self.unproven -= &numbers;
        let superseded = self.give_up(&numbers);
        self.lanes[lane].pending |= numbers - superseded;
        self.changed();
    }

    /// Takes the outcome of a device in flight; `None`, and nothing is counted, when it is not in flight.
    pub(crate) fn settle(&mut self, device: DeviceNumber, answer: Answer) -> Option<Landing> {
        let Answer { outcome, cell, repeats, latency } = answer;
        let Self { started, lanes, .. } = self;
        let lane = started.iter().copied().find(|&lane| lanes[lane].in_flight.remove(device.0))?;
        if self.superseded.remove(device.0) {
            self.effects.landed.insert(device.0);
        }
        let is_proven = self.unproven.remove(device.0) && outcome == DeviceOutcome::Accepted;
        self.count(outcome, 1);
        self.tally.retried += repeats;
        let provider = self.tally.count_part(cell, outcome);
        if outcome.is_answer() {
            self.tally.latency.get_or_insert_default().record(latency);
        }
        Some(Landing { lane, is_proven, provider })
    }

    /// After [`Books::settle`], once for all that were settled together.
    pub(crate) fn end_settling(&mut self) {
        self.changed();
    }

    /// These have received the event by now: counts those of them that are held.
    pub(crate) fn receive(&mut self, received: RoaringBitmap) {
        let mut count = 0;
        for lane in &mut self.lanes {
            let of_lane = &lane.held & &received;
            lane.held -= &of_lane;
            count += of_lane.len();
        }
        self.received = received;
        if count > 0 {
            self.effects.held -= count as i64;
            self.count(DeviceOutcome::Received, count);
            self.changed();
        }
    }

    /// Time is up: whoever is held is due now, and nobody is held any more.
    pub(crate) fn let_go(&mut self) {
        self.may_answer.clear();
        for lane in 0..self.lanes.len() {
            let held = mem::take(&mut self.lanes[lane].held);
            self.effects.held -= held.len() as i64;
            self.add_pending(lane, held);
        }
        self.effects.is_nobody_held = true;
    }

    /// Whether nothing of a lane is handed out; if not, the lane is woken then.
    pub(crate) fn has_landed(&mut self, lane: usize) -> bool {
        let lane = &mut self.lanes[lane];
        let has_landed = lane.handed_out_len() == 0;
        lane.awaits = (!has_landed).then_some(0);
        has_landed
    }

    /// Where the outcomes of one provider, app and language are counted.
    pub(crate) fn cell(&mut self, provider: Provider, app: &AppId, locale: Option<&Locale>) -> u16 {
        self.tally.cell(provider, app, locale)
    }

    /// For a checkpoint; `None` when nothing has changed since the last.
    pub(crate) fn take_progress(&mut self) -> Option<Progress> {
        mem::take(&mut self.is_dirty).then(|| self.progress())
    }

    /// The last checkpoint was not written.
    pub(crate) fn spoil_checkpoint(&mut self) {
        self.is_dirty = true;
    }
}

/// How it stands.
impl<N> Books<N> {
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Whether every device has its outcome, or another job goes on with them.
    pub(crate) fn is_over(&self) -> bool {
        self.is_walked() && self.lanes.iter().all(|lane| lane.places().iter().all(|place| place.is_empty()))
    }

    /// Whether another job of the same event goes on with its devices.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended > 0
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled
    }

    pub(crate) fn is_walked(&self) -> bool {
        self.next.is_none() && self.resumed.is_empty() && self.walking.is_empty()
    }

    /// Whether the end of the event's time would still end something.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.is_walked() || self.lanes.iter().any(|lane| !lane.held.is_empty() || !lane.pending.is_empty())
    }

    /// Whether somebody is held or may still be.
    pub(crate) fn is_holding(&self) -> bool {
        !self.may_answer.is_empty() && (!self.is_walked() || self.held_len() > 0)
    }

    pub(crate) fn held_len(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.held.len()).sum()
    }

    /// Whether receipts are all that is missing.
    pub(crate) fn only_holds(&self) -> bool {
        let is_idle = |lane: &Lane| lane.pending.is_empty() && lane.handed_out_len() == 0;
        self.is_walked() && self.lanes.iter().all(is_idle) && self.held_len() > 0
    }

    /// Whether all that is left to do is to wait: for outcomes, or for lanes that are stuck.
    pub(crate) fn is_idle(&self, is_stuck: impl Fn(usize) -> bool) -> bool {
        let is_waiting = |lane: usize, pending: &RoaringBitmap| pending.is_subset(&self.blocked) || is_stuck(lane);
        let mut lanes = self.lanes.iter().enumerate();
        self.is_walked() && self.held_len() == 0 && lanes.all(|(lane, Lane { pending, .. })| is_waiting(lane, pending))
    }

    /// The lanes that have devices which were not handed out.
    pub(crate) fn unsent_lanes(&self) -> impl Iterator<Item = usize> {
        let has_unsent = |lane: &usize| !self.lanes[*lane].pending.is_empty() || !self.lanes[*lane].held.is_empty();
        (0..self.lanes.len()).filter(has_unsent)
    }

    pub(crate) fn handed_out_len(&self) -> u64 {
        self.lanes.iter().map(Lane::handed_out_len).sum()
    }

    /// Devices that were handed out and have no outcome.
    pub(crate) fn handed_out(&self) -> RoaringBitmap {
        self.lanes.iter().fold(RoaringBitmap::new(), |all, lane| all | &lane.in_flight | &lane.opened)
    }

    /// Handed out for a newer job: whether there are any.
    pub(crate) fn has_superseded(&self) -> bool {
        !self.superseded.is_empty()
    }

    /// Whether it was handed out, and is for a newer job.
    pub(crate) fn is_superseded(&self, device: DeviceNumber) -> bool {
        self.superseded.contains(device.0)
    }

    /// Devices without an outcome.
    pub(crate) fn open_devices(&self) -> RoaringBitmap {
        let mut open = self.outstanding();
        open |= self.rest();
        open
    }

    /// How many devices were selected, as far as that is known: what is left of an audience is known exactly once the walk
    /// is over.
    pub(crate) fn audience_len(&self) -> u64 {
        let of_lane = |lane: &Lane| lane.places().iter().map(|place| place.len()).sum::<u64>();
        let of_lanes = self.lanes.iter().map(of_lane).sum::<u64>();
        let known = self.tally.counts.total() + self.resumed.len() + self.walking.len() + of_lanes;
        if self.next.is_none() { known + self.suspended } else { known.max(self.audience.len()) }
    }

    /// Devices walked over or set aside, without an outcome.
    fn outstanding(&self) -> RoaringBitmap {
        let places = self.lanes.iter().flat_map(Lane::places);
        places.chain([&self.walking]).fold(self.resumed.clone(), |all, place| all | place)
    }

    /// From `next` on.
    fn rest(&self) -> RoaringBitmap {
        self.next.map_or_else(RoaringBitmap::new, |next| set(self.audience.iter_from(next)))
    }

    /// For a checkpoint. What is handed out and superseded is so in the row already: a crash ends the attempt, and it
    /// does not come back here, also when the newer job is over by then.
    fn progress(&self) -> Progress {
        let mut tally = self.tally.clone();
        tally.counts.add(DeviceOutcome::Superseded, self.superseded.len());
        Progress { next: self.next, outstanding: self.outstanding() - &self.superseded, tally }
    }
}

/// Steps of the above.
impl<N: Clone> Books<N> {
    /// Moves the walk's cursor to the next device of the audience, so that its end is noticed with the last one.
    fn skip_to_member(&mut self) {
        self.next = self.next.and_then(|next| self.audience.iter_from(next).next());
    }

    /// Makes the rest of the walk a set of its own, from which devices can be taken and which a checkpoint keeps:
    /// nobody comes back into it by being selected anew after a restart.
    fn freeze_rest(&mut self) {
        let rest = self.rest();
        self.resumed |= rest;
        self.next = None;
    }

    /// Takes out those of `numbers` that were not handed out, which the caller counts; the walk's rest must be frozen.
    fn take_unsent(&mut self, numbers: &RoaringBitmap) -> u64 {
        let take = |set: &mut RoaringBitmap| {
            let before = set.len();
            *set -= numbers;
            before - set.len()
        };
        let (mut count, mut held) = (take(&mut self.resumed) + take(&mut self.walking), 0);
        for lane in &mut self.lanes {
            count += take(&mut lane.pending);
            held += take(&mut lane.held);
        }
        self.effects.held -= held as i64;
        count + held
    }

    /// `newer` waits for `numbers`, which are handed out, instead of whoever did: it has taken over there too.
    fn await_landing(&mut self, newer: N, numbers: &RoaringBitmap) {
        self.superseded |= numbers;
        self.waiters.iter_mut().for_each(|waiter| waiter.numbers -= numbers);
        self.waiters.retain(|waiter| !waiter.numbers.is_empty());
        self.waiters.push(Waiter { job: newer, numbers: numbers.clone() });
    }

    /// Of `numbers`, which are in no place any more, counts those that are for a newer job, and tells which.
    fn give_up(&mut self, numbers: &RoaringBitmap) -> RoaringBitmap {
        let superseded = numbers & &self.superseded;
        if !superseded.is_empty() {
            self.superseded -= &superseded;
            self.effects.landed |= &superseded;
            self.count(DeviceOutcome::Superseded, superseded.len());
        }
        superseded
    }

    /// Finds the newer jobs that wait for devices that have landed.
    fn tell_waiters(&mut self) {
        let Self { waiters, effects, .. } = self;
        for waiter in waiters.iter_mut().filter(|waiter| !waiter.numbers.is_disjoint(&effects.landed)) {
            waiter.numbers -= &effects.landed;
            effects.newer.push(waiter.job.clone());
        }
        waiters.retain(|waiter| !waiter.numbers.is_empty());
    }

    /// Counts the suppressed and gives the others by lane.
    fn place(&mut self, found: impl Iterator<Item = (DeviceNumber, Finding)>) -> Vec<(usize, RoaringBitmap)> {
        let mut lanes: Vec<(usize, RoaringBitmap)> = Vec::new();
        for (number, finding) in found {
            match finding {
                Finding::Suppressed(why) => self.count(DeviceOutcome::Suppressed(why), 1),
                Finding::Lane(lane) => match lanes.iter_mut().find(|(known, _)| *known == lane) {
                    Some((_, numbers)) => drop(numbers.insert(number.0)),
                    None => lanes.push((lane, RoaringBitmap::from([number.0]))),
                },
            }
        }
        lanes
    }

    /// Counts those of `numbers` that have received it, holds back those that may, and gives the others. Whom an older
    /// job may still be shown to is not spared the newer one.
    fn hold_back(&mut self, lane: usize, mut numbers: RoaringBitmap) -> RoaringBitmap {
        let raced = &numbers & &self.raced;
        numbers -= &raced;
        if !self.received.is_empty() {
            let received = &numbers & &self.received;
            numbers -= &received;
            self.count(DeviceOutcome::Received, received.len());
        }
        if !self.may_answer.is_empty() {
            let held = &numbers & &self.may_answer;
            numbers -= &held;
            self.effects.held += held.len() as i64;
            self.lanes[lane].held |= held;
        }
        numbers | raced
    }

    fn add_pending(&mut self, lane: usize, numbers: RoaringBitmap) {
        if !numbers.is_empty() {
            self.lanes[lane].pending |= numbers;
            self.wake(lane);
        }
    }

    fn count(&mut self, outcome: DeviceOutcome, count: u64) {
        self.tally.counts.add(outcome, count);
        self.effects.count(outcome, count);
    }

    fn wake(&mut self, lane: usize) {
        if self.started.contains(&lane) {
            self.effects.wake.push(lane);
        } else {
            self.effects.is_lane_wanted = true;
        }
    }

    fn wake_all(&mut self) {
        (0..self.lanes.len()).for_each(|lane| self.wake(lane));
    }

    /// After every change: wakes the lanes that wait for what has come true.
    fn changed(&mut self) {
        self.is_dirty = true;
        self.effects.is_nobody_held |= self.heeds_receipts && !self.is_holding();
        if self.is_over() {
            self.effects.is_over = true;
            return;
        }
        for (number, lane) in self.lanes.iter_mut().enumerate() {
            if lane.awaits.is_some_and(|count| lane.handed_out_len() <= count) {
                lane.awaits = None;
                self.effects.wake.push(number);
            }
        }
    }
}

/// Those of `numbers` that are of the audience, found from the side with fewer.
pub(crate) fn members(audience: &Frozen, numbers: &RoaringBitmap) -> RoaringBitmap {
    if numbers.len() <= audience.len() {
        numbers.iter().filter(|&number| audience.contains(DeviceNumber(number))).collect()
    } else {
        set(audience.iter_from(DeviceNumber(0)).filter(|number| numbers.contains(number.0)))
    }
}

/// `numbers` as a set; quick when they come in order, as they do.
fn set(numbers: impl Iterator<Item = DeviceNumber>) -> RoaringBitmap {
    numbers.map(|number| number.0).collect()
}
