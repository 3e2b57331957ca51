//! What the connections of one thread share: where notifications come from, where repeats wait, where outcomes go.
//!
//! ```text
//!  lakes ─► take ─► connection ─► accepted, rejected ─────────────► settled ─► sink
//!             ▲         │                                              ▲
//!             │         └► repeat ─► ready (at once, elsewhere)        │ expired, cancelled, superseded
//!             └────────────────────  waiting (until due, and paid) ────┘
//! ```
//!
//! The scheduler has these parts: `supply` (ready notifications, and the lakes), `repeats` (waiting notifications),
//! `occupation` (the connections), [`Grants`] (quota and pauses) and [`Outcomes`]. This module has what holds between
//! them: how many notifications are held, and which task is woken when.
//!
//! The throttle must grant every attempt first, repeats too. So notifications that wait for a quota wait in the lakes,
//! where urgent ones come first, and not here.
//!
//! Waiting repeats take no room from notifications that can be sent, because a provider may make a few devices wait for
//! an hour.
//!
//! Bounds: nothing is taken from the lakes while `held_max` notifications are in flight or ready, or while
//! [`WAITING_FACTOR`]` × held_max` are held in all, waiting ones included. Only a sweep of the lakes holds more, up to
//! another `held_max`, so that it can settle what is over although nothing is taken. Every held notification is settled
//! exactly once, or counted as left behind if the gateway is stopped before.

mod occupation;
mod repeats;
mod supply;

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tidings_push::{Lakes, Outcome, OutcomeSink, Reason};
use tidings_telemetry::unix_now;
use tidings_types::{EventPriority, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::occupation::Seats;
pub(crate) use self::occupation::{Occupation, Seat};
use self::repeats::Repeats;
use self::supply::Supply;
use super::intake::Intake;
use super::throttle::{Grants, Throttle};
use crate::attempt::{Attempt, Standings};
use crate::metrics::{Metrics, Repeat};
use crate::settle::Outcomes;

/// With waiting repeats, this many times `held_max` may be held: some 160 bytes and a device's address each.
const WAITING_FACTOR: usize = 16;

/// What a connection can use now.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    pub(crate) count: usize,
    /// If false, it waits for its credential: nothing is taken for it, and it is woken with the other connections.
    pub(crate) may_send: bool,
}

impl Demand {
    /// Nothing.
    pub(crate) const NONE: Self = Self { count: 0, may_send: false };
}

/// When a repeat may be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delay {
    /// At once the first time, on any connection with room; later as `Backoff`.
    Hurry,
    /// After back-off, and not before this.
    Backoff(Duration),
}

pub(crate) struct Scheduler {
    /// In flight, ready, waiting, or settled and not flushed.
    held: usize,
    held_max: usize,
    supply: Supply,
    repeats: Repeats,
    seats: Seats,
    grants: Grants,
    outcomes: Outcomes,
    metrics: Metrics,
    settled_total: u64,
    /// Connections were handed something since the last sweep of the lakes.
    taken_since_sweep: bool,
    /// What was drawn, before it is looked at; empty between calls.
    candidates: Vec<Attempt>,
    /// Wakes the scheduler's own task: a repeat waits, or everything is done.
    changed: Arc<Notify>,
}

impl Scheduler {
    pub(crate) fn new(
        slot_count: usize,
        held_max: usize,
        throttle: Arc<Throttle>,
        sink: Arc<dyn OutcomeSink>,
        metrics: Metrics,
        now: Timestamp,
    ) -> Self {
        Self {
            held: 0,
            held_max,
            supply: Supply::new(),
            repeats: Repeats::new(now),
            seats: Seats::new(slot_count),
            grants: Grants::new(throttle),
            outcomes: Outcomes::new(sink, metrics.clone()),
            metrics,
            settled_total: 0,
            taken_since_sweep: false,
            candidates: Vec::new(),
            changed: Arc::new(Notify::new()),
        }
    }

    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Notifications taken and not settled.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// How many more may be taken from the lakes.
    fn room(&self) -> usize {
        let busy = self.held - self.repeats.len();
        self.held_max.saturating_sub(busy).min((WAITING_FACTOR * self.held_max).saturating_sub(self.held))
    }

    /// Whether everything is settled and nothing will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.supply.is_finished() && self.held == 0
    }

    /// How its connections are occupied.
    pub(crate) fn occupation(&self) -> Occupation {
        self.seats.occupation(self.settled_total)
    }

    /// What the connection in `slot` does; `None` when none works there.
    pub(crate) fn note(&mut self, slot: usize, seat: Option<Seat>) {
        self.seats.note(slot, seat);
    }

    /// Lets every connection that waits look again.
    pub(crate) fn wake_hungry(&mut self) {
        self.seats.wake_hungry();
    }

    /// Appends up to `demand` notifications to send now. Those that are over are settled instead. If some are missing,
    /// the connection in `slot` is woken when they come. A demand of 0 leaves the line.
    pub(crate) fn take(
        &mut self,
        cx: &mut Context<'_>,
        slot: usize,
        intake: &mut Intake,
        demand: Demand,
        out: &mut Vec<Attempt>,
    ) {
        let (now, unix) = (Instant::now(), unix_now());
        let granted = if demand.may_send { self.grants.grant(demand.count, unix) } else { 0 };
        let mut standings = self.outcomes.standings();
        loop {
            let (settled_before, mut candidates) = (self.outcomes.pending(), std::mem::take(&mut self.candidates));
            let bounds = (granted - out.len(), self.room());
            self.held += self.supply.draw(cx, intake, bounds, &mut candidates, now);
            for attempt in candidates.drain(..) {
                self.admit(attempt, out, &mut standings, now, unix);
            }
            self.candidates = candidates;
            if self.outcomes.pending() == settled_before {
                break; // The lakes had no more, and the intake waits.
            }
        }
        self.grants.give_back(granted - out.len());
        self.taken_since_sweep |= !out.is_empty();
        self.seats.set_hungry(slot, (out.len() < demand.count).then(|| cx.waker().clone()));
        let wants_more = demand.may_send && granted < demand.count && out.len() == granted;
        if wants_more && self.grants.ask_again(now, unix) || self.is_finished() {
            self.changed.notify_one();
        }
    }

    /// Settles notifications that are over while connections take nothing, so that jobs end even while the provider
    /// cannot be reached, our credential is missing or the provider wants a pause. Does nothing while notifications are
    /// taken. In each lake it settles from the front until it finds one that is not over; that one moves up, one at a
    /// time.
    pub(crate) fn sweep(&mut self, lakes: &Lakes) {
        if std::mem::take(&mut self.taken_since_sweep) {
            return;
        }
        let (now, unix) = (Instant::now(), unix_now());
        let (mut standings, mut alive) = (self.outcomes.standings(), Vec::new());
        for attempt in self.supply.take_ready() {
            self.admit(attempt, &mut alive, &mut standings, now, unix);
        }
        let held_max = (WAITING_FACTOR + 1) * self.held_max;
        for (priority, lake) in EventPriority::ALL.into_iter().zip(lakes.all()) {
            let before = alive.len();
            while alive.len() == before {
                if self.held >= held_max {
                    self.flush(); // What is settled is held no longer.
                }
                let room = self.held < held_max;
                let Some(notification) = room.then(|| lake.pop()).flatten() else { break };
                self.held += 1;
                self.admit(Attempt::new(notification, priority, now), &mut alive, &mut standings, now, unix);
            }
        }
        self.make_ready(alive);
        self.flush();
        if self.held == 0 {
            self.changed.notify_one(); // It may have been the last.
        }
    }

    /// Settles waiting repeats that are over, due or not. Looks at some of them and returns whether there are more. The
    /// next call continues there.
    pub(crate) fn sweep_waiting(&mut self) -> bool {
        let has_more = self.repeats.sweep(&mut self.outcomes, Instant::now(), unix_now());
        self.flush();
        has_more
    }

    /// A request that was made at `sent_at` was refused: no thread sends to this provider before `pause` is over.
    /// Returns whether this pause is new, and with a quota the requests per minute after it.
    pub(crate) fn pause(&mut self, pause: Duration, sent_at: Timestamp, now: Timestamp) -> (bool, Option<u64>) {
        self.grants.pause(pause, sent_at, now)
    }

    /// Lets an attempt be made, unless it is over.
    fn admit(
        &mut self,
        attempt: Attempt,
        out: &mut Vec<Attempt>,
        standings: &mut Standings,
        now: Instant,
        unix: Timestamp,
    ) {
        match attempt.why_over(standings, unix) {
            None => out.push(attempt),
            Some(outcome) => self.outcomes.settle(attempt, outcome, None, now),
        }
    }

    /// Gives back what was taken but not sent.
    pub(crate) fn put_back(&mut self, attempt: Attempt) {
        self.grants.give_back(1);
        self.supply.put_back(attempt);
        self.wake_hungry();
    }

    pub(crate) fn on_accepted(&mut self, attempt: Attempt, now: Instant) {
        self.repeats.on_accepted();
        self.outcomes.settle(attempt, Outcome::Accepted, None, now);
    }

    pub(crate) fn on_rejected(&mut self, attempt: Attempt, reason: Reason, gone_at: Option<Timestamp>, now: Instant) {
        self.outcomes.settle(attempt, Outcome::Rejected(reason), gone_at, now);
    }

    /// Reading the provider's answer panicked: the notification may have been delivered.
    pub(crate) fn on_unreadable(&mut self, attempt: Attempt, now: Instant) {
        self.outcomes.settle(attempt, Outcome::Unknown, None, now);
    }

    /// The attempt failed and another one may be made, if there is time for it.
    pub(crate) fn on_failed(&mut self, mut attempt: Attempt, cause: Repeat, delay: Delay, now: Instant) {
        attempt.on_failed(cause, &self.metrics);
        let floor = match delay {
            Delay::Hurry if attempt.try_hurry() => {
                self.supply.push(attempt);
                return self.wake_hungry();
            }
            Delay::Hurry => Duration::ZERO,
            Delay::Backoff(floor) => floor,
        };
        match attempt.repeat_after(floor, unix_now()) {
            Some(wait) => self.wait(attempt, now + wait),
            None => self.outcomes.settle(attempt, Outcome::Expired, None, now),
        }
    }

    fn wait(&mut self, attempt: Attempt, due: Instant) {
        let was_full = self.room() == 0;
        if self.repeats.wait(attempt, due) {
            self.changed.notify_one();
        }
        if was_full {
            self.wake_hungry();
        }
    }

    /// Makes ready what is due and paid for; returns when to come back.
    pub(crate) fn release(&mut self, now: Instant) -> Option<Instant> {
        let (released, next) = self.repeats.release(&mut self.outcomes, now, unix_now());
        self.make_ready(released);
        self.flush();
        if self.grants.take_due(now) {
            self.wake_hungry();
        }
        [next, self.grants.again_at()].into_iter().flatten().min()
    }

    fn make_ready(&mut self, attempts: Vec<Attempt>) {
        if !attempts.is_empty() {
            attempts.into_iter().for_each(|attempt| self.supply.push(attempt));
            self.wake_hungry();
        }
    }

    /// Tells the sink what is done.
    pub(crate) fn flush(&mut self) {
        if self.outcomes.pending() == 0 {
            return;
        }
        let was_full = self.room() == 0;
        let count = self.outcomes.flush();
        self.held -= count;
        self.settled_total += count as u64;
        if was_full {
            self.wake_hungry();
        }
        if self.is_finished() {
            self.changed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::attempt::tests::{CANCELLED, SUPERSEDED, Sink, expiring, metrics, notification};

    const LONG: Delay = Delay::Backoff(Duration::from_secs(300));

    #[derive(Default)]
    struct Rings(AtomicUsize);

    impl Wake for Rings {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The scheduler of two connections that may hold `held_max`, and lakes with `count` notifications.
    struct Setup {
        scheduler: Scheduler,
        lakes: Lakes,
        sink: Arc<Sink>,
        intakes: [Intake; 2],
        rings: [Arc<Rings>; 2],
    }

    fn setup(held_max: usize, count: u32) -> Setup {
        let (lakes, sink, throttle) = (Lakes::new(100), Arc::<Sink>::default(), Arc::new(Throttle::new(None)));
        lakes.of(EventPriority::Normal).try_push_batch(&mut (0..count).map(notification).collect()).unwrap();
        let scheduler = Scheduler::new(2, held_max, throttle, Arc::clone(&sink) as _, metrics(), unix_now());
        let intakes = std::array::from_fn(|_| Intake::new(&lakes));
        Setup { scheduler, lakes, sink, intakes, rings: <_>::default() }
    }

    impl Setup {
        fn take(&mut self, slot: usize, demand: usize) -> Vec<Attempt> {
            let waker = Waker::from(Arc::clone(&self.rings[slot]));
            let mut out = Vec::new();
            let demand = Demand { count: demand, may_send: true };
            self.scheduler.take(&mut Context::from_waker(&waker), slot, &mut self.intakes[slot], demand, &mut out);
            out
        }

        fn rings(&self, slot: usize) -> usize {
            self.rings[slot].0.load(Ordering::Relaxed)
        }

        /// Has a notification to this device wait, as if it had failed.
        fn has_wait(&mut self, device: u32, delay: Delay) {
            self.scheduler.held += 1;
            let now = Instant::now();
            self.scheduler.on_failed(
                Attempt::new(notification(device), EventPriority::Normal, now),
                Repeat::Answer,
                delay,
                now,
            );
        }
    }

    #[tokio::test]
    async fn at_the_bound_nothing_is_taken_until_something_is_settled() {
        let mut setup = setup(3, 10);
        let mut taken = setup.take(0, 5);
        assert_eq!((taken.len(), setup.take(1, 5).len(), setup.rings(1)), (3, 0, 0));
        setup.scheduler.on_accepted(taken.pop().unwrap(), Instant::now());
        setup.scheduler.flush();
        assert_eq!(setup.rings(1), 1, "room came, and a connection waits for it");
        assert_eq!((setup.take(1, 5).len(), setup.scheduler.held()), (1, 3));
        assert_eq!(setup.sink.outcomes().len(), 1);
    }

    #[tokio::test]
    async fn an_unprocessed_notification_hurries_once_and_then_waits() {
        let mut setup = setup(10, 1);
        let attempt = setup.take(0, 5).pop().unwrap();
        assert!(setup.take(1, 5).is_empty());
        setup.scheduler.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, Instant::now());
        assert_eq!(setup.rings(1), 1, "another connection is asked at once");
        let attempt = setup.take(1, 5).pop().unwrap();
        setup.scheduler.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, Instant::now());
        assert!(setup.take(1, 5).is_empty());
        let late = Instant::now() + Duration::from_secs(1);
        assert_eq!(setup.scheduler.release(late), None);
        assert_eq!(setup.take(1, 5).len(), 1);
    }

    #[tokio::test]
    async fn what_waits_takes_no_place_up_to_its_own_bound() {
        let mut setup = setup(3, 60);
        for round in 1..=16 {
            let taken = setup.take(0, 5);
            assert_eq!((taken.len(), setup.take(1, 5).len(), setup.rings(1)), (3, 0, round - 1));
            for attempt in taken {
                setup.scheduler.on_failed(attempt, Repeat::Answer, LONG, Instant::now());
            }
            assert_eq!(setup.rings(1), round, "a place is free, and a connection waits for it");
        }
        assert_eq!((setup.take(0, 5).len(), setup.scheduler.held(), setup.lakes.held()), (0, 48, 12));
        assert_eq!(setup.scheduler.release(Instant::now()).map(|at| at > Instant::now()), Some(true));
    }

    #[tokio::test]
    async fn the_lakes_are_swept_although_as_many_wait_as_may() {
        let mut setup = setup(3, 0);
        (0..48).for_each(|device| setup.has_wait(device, LONG));
        let over = (0..20).map(|device| expiring(device, Timestamp(1)));
        let lake = setup.lakes.of(EventPriority::Normal);
        lake.try_push_batch(&mut over.chain([SUPERSEDED, 50, CANCELLED].map(notification)).collect()).unwrap();
        setup.scheduler.sweep(&setup.lakes);
        setup.scheduler.sweep(&setup.lakes);
        assert_eq!((setup.sink.outcomes().len(), setup.scheduler.held(), setup.lakes.held()), (22, 49, 0));
    }

    #[tokio::test]
    async fn what_is_over_while_it_waits_is_settled_by_the_sweep_in_turns() {
        let mut setup = setup(1000, 0);
        (0..500).for_each(|device| setup.has_wait(device, LONG));
        (0..1000).for_each(|_| setup.has_wait(SUPERSEDED, LONG));
        (0..700).for_each(|_| setup.has_wait(CANCELLED, LONG));
        let turns = 1 + std::iter::from_fn(|| setup.scheduler.sweep_waiting().then_some(())).count();
        assert_eq!((turns, setup.scheduler.held(), setup.sink.outcomes().len()), (3, 500, 1700));
        assert!(!setup.scheduler.sweep_waiting());
        assert_eq!(setup.sink.outcomes().len(), 1700);
    }

    #[tokio::test]
    async fn what_is_superseded_or_cancelled_is_settled_and_others_take_its_place() {
        let mut setup = setup(10, 2);
        let devices = [SUPERSEDED, 2, CANCELLED, 3];
        setup.lakes.of(EventPriority::High).try_push_batch(&mut devices.map(notification).into()).unwrap();
        let taken = setup.take(0, 3);
        assert_eq!(taken.iter().map(|it| it.notification.ticket.device.0).collect::<Vec<_>>(), [2, 3, 0]);
        setup.scheduler.flush();
        assert_eq!(setup.sink.outcomes(), [Outcome::Superseded, Outcome::Cancelled]);
    }

    #[tokio::test]
    async fn who_may_not_send_takes_nothing_and_is_woken_with_the_others() {
        let mut setup = setup(10, 5);
        let (waker, mut out) = (Waker::from(Arc::clone(&setup.rings[0])), Vec::new());
        let demand = Demand { count: 5, may_send: false };
        setup.scheduler.take(&mut Context::from_waker(&waker), 0, &mut setup.intakes[0], demand, &mut out);
        assert_eq!((out.len(), setup.lakes.held(), setup.scheduler.occupation().hungry), (0, 5, 1));
        setup.scheduler.wake_hungry();
        assert_eq!(setup.rings(0), 1);
    }

    #[tokio::test]
    async fn during_a_pause_all_stays_in_the_lakes_and_after_it_goes_out() {
        let mut setup = setup(10, 5);
        assert!(setup.scheduler.pause(Duration::from_secs(5), unix_now(), unix_now()).0);
        assert!(!setup.scheduler.pause(Duration::from_secs(3), unix_now(), unix_now()).0, "no news");
        assert_eq!((setup.take(0, 5).len(), setup.lakes.held()), (0, 5));
        let again = setup.scheduler.release(Instant::now()).unwrap();
        assert!(again > Instant::now() + Duration::from_secs(1));
        assert_eq!((setup.scheduler.release(again), setup.rings(0)), (None, 1));
    }

    #[tokio::test]
    async fn what_is_over_is_settled_although_nobody_takes_anything() {
        let mut setup = setup(10, 0);
        let lake = Arc::clone(setup.lakes.of(EventPriority::Normal));
        let over = (0..20).map(|device| expiring(device, Timestamp(1)));
        lake.try_push_batch(&mut over.chain([SUPERSEDED, 50, 51, CANCELLED].map(notification)).collect()).unwrap();
        setup.scheduler.sweep(&setup.lakes);
        assert_eq!((setup.sink.outcomes().len(), setup.scheduler.held(), setup.lakes.held()), (21, 1, 2));
        setup.scheduler.sweep(&setup.lakes);
        setup.scheduler.sweep(&setup.lakes);
        assert_eq!((setup.sink.outcomes().len(), setup.scheduler.held(), setup.lakes.held()), (22, 2, 0));
        assert_eq!(setup.take(0, 5).len(), 2);
        lake.try_push_batch(&mut vec![expiring(60, Timestamp(1))]).unwrap();
        setup.scheduler.sweep(&setup.lakes);
        assert_eq!(setup.lakes.held(), 1, "something was taken: those who do will see to it");
    }

    fn push(setup: &Setup, priority: EventPriority, devices: impl IntoIterator<Item = u32>) {
        let mut batch = devices.into_iter().map(notification).collect();
        setup.lakes.of(priority).try_push_batch(&mut batch).unwrap();
    }

    fn devices(attempts: &[Attempt]) -> Vec<u32> {
        attempts.iter().map(|it| it.notification.ticket.device.0).collect()
    }

    #[tokio::test]
    async fn what_a_sweep_has_moved_up_goes_before_nothing_more_urgent() {
        let mut setup = setup(10, 0);
        push(&setup, EventPriority::Low, 30..33);
        (0..3).for_each(|_| setup.scheduler.sweep(&setup.lakes));
        assert_eq!((setup.lakes.held(), setup.scheduler.held()), (0, 3));
        push(&setup, EventPriority::High, 0..2);
        push(&setup, EventPriority::Normal, 10..12);
        assert_eq!(devices(&setup.take(0, 3)), [0, 1, 10]);
        assert_eq!(devices(&setup.take(0, 3)), [30, 31, 11], "what is held comes before what is drawn");
        assert_eq!(devices(&setup.take(0, 3)), [32]);
    }

    #[tokio::test]
    async fn a_repeat_comes_first_among_its_own_and_after_what_is_more_urgent() {
        let mut setup = setup(10, 3);
        let taken = setup.take(0, 2);
        for attempt in taken {
            setup.scheduler.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, Instant::now());
        }
        push(&setup, EventPriority::High, 20..21);
        assert_eq!(devices(&setup.take(1, 2)).iter().filter(|device| **device == 20).count(), 1);
        assert_eq!(devices(&setup.take(1, 2)), [1, 2]);
    }

    #[tokio::test]
    async fn what_is_ready_goes_out_although_nothing_more_may_be_drawn() {
        let mut setup = setup(3, 10);
        let taken = setup.take(0, 3);
        let (mut taken, lake) = (taken.into_iter(), setup.lakes.held());
        setup.scheduler.put_back(taken.next().unwrap());
        push(&setup, EventPriority::High, 20..21);
        assert_eq!(devices(&setup.take(1, 5)), [0], "the bound is reached, and nothing is drawn");
        assert_eq!((setup.lakes.held(), setup.scheduler.held()), (lake + 1, 3));
    }
}
