//! How fast a gateway gets on with a provider in trouble, in virtual time: one seed, one course.
//!
//! What decides it as it is at work, without sockets: what an answer means ([`Apns`]), permits, the number of
//! connections, the throttle, back-off and the budget of repeats. The provider is 100 ms away, has a stream for a new
//! connection and then [`STREAMS`], and does to single requests and connections what the crash campaign has it do.
//! Twenty thousand notifications wait from the beginning, for devices that nothing was ever accepted for.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng as _, RngExt as _, SeedableRng as _};
use tidings_push::apns::Apns;
use tidings_push::pacing::Permits;
use tidings_push::retry::{BACKOFF, RetryBudget, repeat_at};
use tidings_push::{Advice, Dialect as _, Verdict};
use tidings_types::Timestamp;

use super::scaling::{Scaling, TICK};
use super::scheduler::Occupation;
use super::throttle::Throttle;
use crate::attempt::BUDGET_PAUSE;

const START: Timestamp = Timestamp(1_800_000_000_000);
const COUNT: usize = 20_000;
/// Notifications per second, as a quarantine has it.
const FLOOR: f64 = 100.0;
const STREAMS: usize = 250;
const ROUND_TRIP: Duration = Duration::from_millis(100);
/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What goes wrong. Chances are per 100 000.
#[derive(Clone, Copy, Default)]
struct Trouble {
    refused: u32,
    internal: u32,
    unavailable: u32,
    too_many: u32,
    gone: u32,
    /// Of the first so many notifications.
    bad_tokens: (u32, usize),
    /// The limit after one of those, until something is accepted.
    limit_after_bad: Option<usize>,
    unconnected: u32,
    goaway_every: Option<usize>,
}

/// That of the crash campaign.
const CAMPAIGN: Trouble = Trouble {
    refused: 100,
    internal: 50,
    unavailable: 100,
    too_many: 50,
    gone: 500,
    bad_tokens: (50, COUNT),
    limit_after_bad: None,
    unconnected: 5000,
    goaway_every: Some(5000),
};

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Connected { slot: usize },
    Answered { slot: usize, life: usize, notification: usize, answer: Answer },
    Due { notification: usize },
    Open,
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Status(u16, &'static str),
    RefusedStream,
}

/// A slot for a connection, and the one that works there.
struct Slot {
    is_up: bool,
    /// Counts its connections: what an earlier one had open is none of the present one's.
    life: usize,
    failures: u32,
    permits: Permits,
    requests: usize,
}

struct World {
    trouble: Trouble,
    random: Xoshiro256PlusPlus,
    now: Timestamp,
    sequence: u64,
    agenda: BinaryHeap<Reverse<(Timestamp, u64, Event)>>,
    ready: VecDeque<usize>,
    failed: Vec<u32>,
    hurried: Vec<bool>,
    is_settled: Vec<bool>,
    /// When the first, second, … was settled, since the start.
    settled_after: Vec<Duration>,
    slots: Vec<Slot>,
    target: usize,
    hungry: usize,
    scaling: Scaling,
    throttle: Throttle,
    budget: RetryBudget,
    apns: Apns,
}

impl World {
    fn new(trouble: Trouble, (min, max): (usize, usize), floor: Option<f64>, seed: u64) -> Self {
        let slot = |_| Slot { is_up: false, life: 0, failures: 0, permits: Permits::new(STREAMS as u32), requests: 0 };
        let mut world = Self {
            trouble,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            now: START,
            sequence: 0,
            agenda: BinaryHeap::new(),
            ready: (0..COUNT).collect(),
            failed: vec![0; COUNT],
            hurried: vec![false; COUNT],
            is_settled: vec![false; COUNT],
            settled_after: Vec::new(),
            slots: (0..max).map(slot).collect(),
            target: 0,
            hungry: 0,
            scaling: Scaling::new(min, max, floor),
            throttle: Throttle::new(None),
            budget: RetryBudget::new(START),
            apns: Apns::new("localhost").unwrap(),
        };
        world.resize(min);
        world.after(TICK, Event::Tick);
        world
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.agenda.push(Reverse((self.now.saturating_add(delay), self.sequence, event)));
    }

    fn happens(&mut self, chance: u32) -> bool {
        self.random.random_range(0..100_000) < chance
    }

    /// Runs until everything is settled; returns when each was.
    fn run(mut self) -> Vec<Duration> {
        while self.settled_after.len() < COUNT {
            let Reverse((at, _, event)) = self.agenda.pop().expect("a tick is always ahead");
            self.now = at;
            let (settled, elapsed) = (self.settled_after.len(), at.saturating_since(START));
            assert!(elapsed < PATIENCE, "{settled} of {COUNT} settled, {} connections", self.target);
            self.handle(event);
            self.open();
        }
        self.settled_after
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected { slot } => self.on_connected(slot),
            Event::Answered { slot, life, notification, answer } => {
                let is_present = self.slots[slot].life == life;
                self.on_answered(is_present.then_some(slot), notification, answer);
            }
            Event::Due { notification } if self.budget.try_spend(self.now) => self.ready.push_front(notification),
            Event::Due { notification } => self.after(BUDGET_PAUSE, Event::Due { notification }),
            Event::Open => {}
            Event::Tick => self.on_tick(),
        }
    }

    fn on_tick(&mut self) {
        let up = || self.slots.iter().filter(|slot| slot.is_up);
        let occupation = Occupation {
            connections: up().count(),
            hungry: self.hungry,
            limit: up().map(|slot| u64::from(slot.permits.limit())).sum(),
            in_flight: up().map(|slot| u64::from(slot.permits.in_flight())).sum(),
            settled: self.settled_after.len() as u64,
        };
        let target = self.scaling.on_tick(&occupation, !self.ready.is_empty(), self.now);
        self.resize(target);
        self.after(TICK, Event::Tick);
    }

    fn resize(&mut self, target: usize) {
        let before = std::mem::replace(&mut self.target, target);
        (before..target).for_each(|slot| self.connect(slot, Duration::ZERO));
        (target..before).for_each(|slot| self.leave(slot));
    }

    fn connect(&mut self, slot: usize, pause: Duration) {
        self.after(pause + 2 * ROUND_TRIP, Event::Connected { slot });
    }

    fn leave(&mut self, slot: usize) {
        let slot = &mut self.slots[slot];
        (slot.is_up, slot.life, slot.requests) = (false, slot.life + 1, 0);
    }

    fn on_connected(&mut self, slot: usize) {
        if self.happens(self.trouble.unconnected) {
            let random = self.random.next_u64();
            let failures = &mut self.slots[slot].failures;
            *failures += 1;
            let pause = BACKOFF.pause(*failures, random);
            return self.connect(slot, pause);
        }
        let slot = &mut self.slots[slot];
        (slot.is_up, slot.permits) = (true, Permits::new(STREAMS as u32));
        slot.permits.on_limit(1);
    }

    /// What the provider makes of a request.
    fn judge(&mut self, notification: usize) -> Answer {
        let Trouble { refused, internal, unavailable, too_many, gone, bad_tokens: (bad, among), .. } = self.trouble;
        let bad = if notification < among { bad } else { 0 };
        let answers = [
            (refused, Answer::RefusedStream),
            (internal, Answer::Status(500, r#"{"reason":"InternalServerError"}"#)),
            (unavailable, Answer::Status(503, r#"{"reason":"ServiceUnavailable"}"#)),
            (too_many, Answer::Status(429, r#"{"reason":"TooManyRequests"}"#)),
            (gone, Answer::Status(410, r#"{"reason":"Unregistered"}"#)),
            (bad, Answer::Status(400, r#"{"reason":"BadDeviceToken"}"#)),
        ];
        let hit = answers.into_iter().find(|(chance, _)| self.happens(*chance));
        hit.map_or(Answer::Status(200, ""), |(_, answer)| answer)
    }

    /// `slot` is where it was open, if that connection still works.
    fn on_answered(&mut self, slot: Option<usize>, notification: usize, answer: Answer) {
        if let Some(slot) = slot {
            self.slots[slot].permits.on_ended();
        }
        let Answer::Status(status, body) = answer else {
            if std::mem::replace(&mut self.hurried[notification], true) {
                return self.repeat(notification, Duration::ZERO);
            }
            self.failed[notification] += 1;
            return self.ready.push_back(notification);
        };
        let status = StatusCode::from_u16(status).unwrap();
        match self.apns.classify(status, &HeaderMap::new(), body.as_bytes(), self.now) {
            Verdict::Accepted => {
                self.budget.on_accepted();
                if let Some(slot) = slot.map(|slot| &mut self.slots[slot]) {
                    slot.failures = 0;
                    slot.permits.on_accepted();
                    slot.permits.on_limit(STREAMS);
                }
                self.settle(notification);
            }
            Verdict::Rejected { .. } => {
                if let (Some(slot), Some(limit), 400) = (slot, self.trouble.limit_after_bad, status.as_u16()) {
                    self.slots[slot].permits.on_limit(limit);
                }
                self.settle(notification);
            }
            Verdict::Repeat { advice, not_before, .. } => {
                match (advice, slot) {
                    (Advice::PauseAll, _) => _ = self.throttle.pause(not_before, self.now, self.now),
                    (Advice::Wait, _) | (_, None) => {}
                    (_, Some(slot)) => self.replace(slot),
                }
                self.repeat(notification, not_before);
            }
        }
    }

    fn replace(&mut self, slot: usize) {
        self.leave(slot);
        self.connect(slot, Duration::ZERO);
    }

    fn repeat(&mut self, notification: usize, not_before: Duration) {
        let failed = &mut self.failed[notification];
        *failed += 1;
        let (never, random) = (START.saturating_add(2 * PATIENCE), self.random.next_u64());
        let at = repeat_at(*failed, not_before, never, random, self.now).expect("it never expires");
        self.after(at.saturating_since(self.now), Event::Due { notification });
    }

    fn settle(&mut self, notification: usize) {
        assert!(!std::mem::replace(&mut self.is_settled[notification], true), "{notification} is settled twice");
        self.settled_after.push(self.now.saturating_since(START));
    }

    /// Every connection that asks for something gets it, as far as there is something and the throttle grants it.
    fn open(&mut self) {
        self.hungry = 0;
        for slot in 0..self.target {
            while self.slots[slot].is_up && self.slots[slot].permits.demand() > 0 {
                let demand = self.slots[slot].permits.demand();
                let granted = self.throttle.grant(demand, self.now);
                let count = granted.min(self.ready.len());
                (0..count).for_each(|_| self.open_one(slot));
                if count < demand {
                    self.hungry += 1;
                    if granted < demand {
                        self.after(self.throttle.again_in(self.now), Event::Open);
                    }
                    break;
                }
            }
        }
    }

    fn open_one(&mut self, slot: usize) {
        let notification = self.ready.pop_front().expect("no more than there are");
        let answer = self.judge(notification);
        let latency = ROUND_TRIP + Duration::from_millis(self.random.random_range(0..=3));
        let Slot { life, permits, requests, .. } = &mut self.slots[slot];
        permits.on_opened();
        *requests += 1;
        let (life, leaves) = (*life, self.trouble.goaway_every == Some(*requests));
        self.after(latency, Event::Answered { slot, life, notification, answer });
        if leaves {
            self.replace(slot);
        }
    }
}

/// When this part of them was settled.
fn time_of(share: f64, settled_after: &[Duration]) -> f64 {
    settled_after[(share * COUNT as f64) as usize - 1].as_secs_f64()
}

#[test]
fn trouble_with_single_requests_and_connections_slows_a_pool_down_by_little() {
    for seed in 0..8 {
        let run = |trouble| World::new(trouble, (1, 2), Some(FLOOR), seed).run();
        let (calm, troubled) = (run(Trouble::default()), run(CAMPAIGN));
        let [calm, nearly, all] = [time_of(0.99, &calm), time_of(0.99, &troubled), time_of(1.0, &troubled)];
        assert!(nearly < 1.3 * calm, "seed {seed}: {nearly} s with trouble, {calm} s without");
        assert!(all < nearly + 5.0, "seed {seed}: the last after {all} s, 99 of 100 after {nearly} s");
    }
}

#[test]
fn nothing_but_bad_tokens_slow_it_to_its_floor_and_only_while_they_last() {
    let bad = 1000;
    let trouble = Trouble { bad_tokens: (100_000, bad), limit_after_bad: Some(1), ..CAMPAIGN };
    let share = bad as f64 / COUNT as f64;
    for seed in 0..8 {
        let run = |trouble, floor| World::new(trouble, (1, 16), floor, seed).run();
        let (calm, troubled) = (run(Trouble::default(), Some(FLOOR)), run(trouble, Some(FLOOR)));
        let slow = time_of(share, &troubled);
        assert!(bad as f64 / slow > 0.7 * FLOOR, "seed {seed}: {bad} in {slow} s");
        let rest = time_of(0.99, &troubled) - slow;
        assert!(rest < 1.3 * time_of(0.99, &calm), "seed {seed}: the good ones took {rest} s");
        let alone = time_of(share, &run(trouble, None));
        assert!(alone > 5.0 * slow, "seed {seed}: more connections are a way around the limit, {alone} s");
    }
}

#[test]
fn one_seed_gives_one_course() {
    let course = |seed| World::new(CAMPAIGN, (1, 2), Some(FLOOR), seed).run();
    assert!(course(7) == course(7) && course(7) != course(8));
}
