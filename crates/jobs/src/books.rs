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
//! Besides, suppressed devices go from a window into the counts. Expired, cancelled and superseded devices go into the
//! counts from every state before *opened*.
//!
//! # Each device once
//! Each device is in exactly one state: not walked yet, walking, held, pending, opened, in flight, or counted. Every method
//! moves devices from one state to another, and only those that are in the first. That is the whole proof of "exactly one
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
//! **Held** devices may prove by a receipt that they need no push, until [`Books::let_go`]. A device that has answered
//! before the walk comes to it, or while it is held, has received the event. A later receipt changes nothing: a pending
//! device is pushed.
//!
//! **Cancelled or expired**: [`Books::end_unsent`] counts what was not handed out. The driver calls it while
//! [`Books::must_end`] says so, before each step.
//!
//! **Suspended**: a job that is walked, holds no device, and has none opened, in flight or blocked may give its pending
//! devices and its counts away. Then it is over.
//!
//! **Superseded** devices are taken over by a newer job with the same collapse key. Devices not handed out are counted
//! at once. Devices handed out are `superseded` here and `blocked` in the newer job until they are no longer in flight.
//!
//! **Barred**: the newer job hands nothing out from [`Books::bar`] until [`Books::unbar`], because the rows of the older ones
//! do not say yet what it took.
//!
//! Memory: sets of at most a bit per device number. Three sets per job: devices that may answer, have answered, are
//! walked and not finished. Two per lane: held and pending. The audience is shared with the index if it is one set. The
//! sets of superseding hold devices in flight.

mod effects;
mod moves;
mod standing;
#[cfg(test)]
mod tests;
mod window;

use std::mem;
use std::time::Duration;

use roaring::RoaringBitmap;
use tidings_audience::Frozen;
use tidings_types::{DeviceNumber, Provider, Timestamp};

use crate::outcome::DeviceOutcome;
use crate::row::Progress;
use crate::tally::Tally;
pub use effects::Effects;
pub use window::{Finding, Outgoing, WalkWindow, Window};

/// What a lane does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Open a window: [`Books::open_window`] gives one.
    Open,
    /// Wait until it is woken.
    Wait,
    /// Nothing will come any more.
    Over,
}

/// The bounds of a lane's work. Invariant: `in_flight_max` ≥ `window_device_count`.
#[derive(Debug, Clone, Copy)]
pub struct LaneLimits {
    /// Devices of one window, at most.
    pub window_device_count: usize,
    /// Devices of the lane that may be handed out and have no outcome.
    pub in_flight_max: u64,
}

/// What became of a device that was in flight.
#[derive(Debug, Clone, Copy)]
pub struct Answer {
    /// What its gateway says.
    pub outcome: DeviceOutcome,
    /// Where it is counted, as [`Books::cell`] said.
    pub cell: u16,
    /// Attempts beyond the first.
    pub repeats: u64,
    /// From the event's acceptance to now.
    pub latency: Duration,
}

/// Where a device was that is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landing {
    /// The lane that has handed it out.
    pub lane: usize,
    /// Its token was accepted for the first time.
    pub is_proven: bool,
    /// Of the part in which it is counted; `None` where no part has room for it.
    pub provider: Option<Provider>,
}

/// Where the devices of a job are. `N` is how the driver reaches a newer job that waits for devices of this one.
pub struct Books<N> {
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
    /// Nothing is handed out.
    is_barred: bool,
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
    fn sets(&self) -> [&RoaringBitmap; 4] {
        [&self.held, &self.pending, &self.opened, &self.in_flight]
    }

    fn handed_out_len(&self) -> u64 {
        self.opened.len() + self.in_flight.len()
    }
}

/// A job's life: it begins, may be cancelled, superseded or suspended, and is over.
impl<N: Clone> Books<N> {
    /// The books of a job that goes on from `progress`, over an audience as it is selected now.
    pub fn new(lane_count: usize, progress: Progress, audience: Frozen, expires_at: Timestamp) -> Self {
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
            is_barred: false,
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
    pub fn heed_receipts(&mut self, received: RoaringBitmap, mut may_answer: RoaringBitmap) {
        may_answer -= &received;
        self.may_answer = members(&self.audience, &may_answer) | (may_answer & &self.resumed);
        (self.received, self.heeds_receipts) = (received, true);
    }

    /// What the driver has to do about the changes since this was last called.
    pub fn take_effects(&mut self) -> Effects<N> {
        if !self.effects.landed.is_empty() {
            self.tell_waiters();
        }
        mem::take(&mut self.effects)
    }

    /// Whether [`Books::end_unsent`] is to be called.
    pub fn must_end(&self, now: Timestamp) -> bool {
        self.is_cancelled || now >= self.expires_at
    }

    /// Counts everything that was not handed out, as cancelled or expired.
    pub fn end_unsent(&mut self) {
        self.effects.held -= self.held_len() as i64;
        let mut unsent = self.rest() | mem::take(&mut self.resumed) | mem::take(&mut self.walking);
        self.next = None;
        self.may_answer.clear();
        for lane in &mut self.lanes {
            unsent |= mem::take(&mut lane.held) | mem::take(&mut lane.pending);
        }
        if !unsent.is_empty() {
            let outcome = if self.is_cancelled { DeviceOutcome::Cancelled } else { DeviceOutcome::Expired };
            self.end(outcome, &unsent);
            self.changed();
        }
    }

    /// Ends the job: what is in flight is not attempted again.
    pub fn cancel(&mut self) {
        self.is_cancelled = true;
        self.end_unsent();
        self.wake_all();
    }

    /// Counts those of `numbers` that were not handed out as superseded by `newer`, which waits for those that were:
    /// the latter are returned. From here on its audience is a set, also where it loses nobody.
    pub fn supersede(&mut self, newer: N, numbers: &RoaringBitmap) -> RoaringBitmap {
        if numbers.is_empty() && self.next.is_none() {
            return RoaringBitmap::new();
        }
        self.freeze_rest();
        let unsent = self.take_unsent(numbers);
        self.end(DeviceOutcome::Superseded, &unsent);
        let racing = self.handed_out() & numbers;
        if !racing.is_empty() {
            self.await_landing(newer, &racing);
            self.wake_all(); // What is still on its way into a lake comes back at once.
        }
        self.changed();
        racing
    }

    /// Forgets newer jobs that wait here and are over.
    pub fn forget_newer(&mut self, is_over: impl Fn(&N) -> bool) {
        self.waiters.retain(|waiter| !is_over(&waiter.job));
    }

    /// An older job has handed these out: they are not handed out before [`Books::unblock`], and no receipt spares them a
    /// push, since the older one may show last.
    pub fn block(&mut self, numbers: &RoaringBitmap) {
        self.blocked |= numbers;
        self.raced |= numbers;
    }

    /// The older job does not have these in flight any more.
    pub fn unblock(&mut self, numbers: &RoaringBitmap) {
        self.blocked -= numbers;
        self.wake_pending();
    }

    /// Nothing is handed out before [`Books::unbar`].
    pub fn bar(&mut self) {
        self.is_barred = true;
    }

    /// From here on devices are handed out.
    pub fn unbar(&mut self) {
        self.is_barred = false;
        self.wake_pending();
    }

    /// Gives up what is left of it, to be gone on with as a job of its own, and the lanes that it waits for: then this
    /// one is over. `None` if it has handed something out that has not landed, or an older one has for it; if it is not
    /// walked, holds somebody back, or is about to end.
    pub fn suspend(&mut self) -> Option<(Progress, Box<[usize]>)> {
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

/// Steps that several of the methods have in common.
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
    fn take_unsent(&mut self, numbers: &RoaringBitmap) -> RoaringBitmap {
        let take = |set: &mut RoaringBitmap| {
            let taken = &*set & numbers;
            *set -= &taken;
            taken
        };
        let mut taken = take(&mut self.resumed) | take(&mut self.walking);
        for lane in &mut self.lanes {
            let held = take(&mut lane.held);
            self.effects.held -= held.len() as i64;
            taken |= held | take(&mut lane.pending);
        }
        taken
    }

    /// `newer` waits for `numbers`, which are handed out, instead of whoever did: it has taken over there too.
    fn await_landing(&mut self, newer: N, numbers: &RoaringBitmap) {
        self.superseded |= numbers;
        self.waiters.iter_mut().for_each(|waiter| waiter.numbers -= numbers);
        self.waiters.retain(|waiter| !waiter.numbers.is_empty());
        self.waiters.push(Waiter { job: newer, numbers: numbers.clone() });
    }

    /// Of `numbers`, which are in no set any more, counts those that are for a newer job, and tells which.
    fn give_up(&mut self, numbers: &RoaringBitmap) -> RoaringBitmap {
        let superseded = numbers & &self.superseded;
        if !superseded.is_empty() {
            self.superseded -= &superseded;
            self.effects.landed |= &superseded;
            self.end(DeviceOutcome::Superseded, &superseded);
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

    /// Counts the suppressed and gives the others by lane; all are in order.
    fn by_lane(&mut self, found: impl Iterator<Item = (DeviceNumber, Finding)>) -> Vec<(usize, RoaringBitmap)> {
        let mut lanes: Vec<(usize, Vec<DeviceNumber>)> = Vec::new();
        for (device, finding) in found {
            match finding {
                Finding::Suppressed(why) => {
                    let outcome = DeviceOutcome::Suppressed(why);
                    self.tally.counts.add(outcome, 1);
                    self.effects.ended(outcome).insert(device.0);
                }
                Finding::Lane(lane) => match lanes.iter_mut().find(|(known, _)| *known == lane) {
                    Some((_, devices)) => devices.push(device),
                    None => lanes.push((lane, vec![device])),
                },
            }
        }
        lanes.into_iter().map(|(lane, devices)| (lane, in_order(&devices))).collect()
    }

    /// Counts those of `numbers` that have received it, holds back those that may, and gives the others. Whom an older
    /// job may still be shown to is not spared the newer one.
    fn hold_back(&mut self, lane: usize, mut numbers: RoaringBitmap) -> RoaringBitmap {
        let raced = &numbers & &self.raced;
        numbers -= &raced;
        if !self.received.is_empty() {
            let received = &numbers & &self.received;
            numbers -= &received;
            self.end(DeviceOutcome::Received, &received);
        }
        if !self.may_answer.is_empty() {
            let held = &numbers & &self.may_answer;
            numbers -= &held;
            self.effects.held += held.len() as i64;
            self.effects.held_back |= &held;
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

    /// `numbers`, which are in no set any more, have their outcome.
    fn end(&mut self, outcome: DeviceOutcome, numbers: &RoaringBitmap) {
        if !numbers.is_empty() {
            self.tally.counts.add(outcome, numbers.len());
            *self.effects.ended(outcome) |= numbers;
        }
    }

    fn wake(&mut self, lane: usize) {
        if self.started.contains(&lane) {
            self.effects.wake.push(lane);
        } else {
            self.effects.is_lane_wanted = true;
        }
    }

    fn wake_pending(&mut self) {
        for lane in 0..self.lanes.len() {
            if !self.lanes[lane].pending.is_empty() {
                self.wake(lane);
            }
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
fn members(audience: &Frozen, numbers: &RoaringBitmap) -> RoaringBitmap {
    if numbers.len() <= audience.len() {
        numbers.iter().filter(|&number| audience.contains(DeviceNumber(number))).collect()
    } else {
        set(audience.iter_from(DeviceNumber(0)).filter(|number| numbers.contains(number.0)))
    }
}

/// `numbers` as a set.
fn set(numbers: impl Iterator<Item = DeviceNumber>) -> RoaringBitmap {
    numbers.map(|number| number.0).collect()
}

/// Devices of a window as a set, which is quick because they are in order.
fn in_order(devices: &[DeviceNumber]) -> RoaringBitmap {
    let numbers = devices.iter().map(|device| device.0);
    RoaringBitmap::from_sorted_iter(numbers).expect("a window is made in the order of numbers")
}
