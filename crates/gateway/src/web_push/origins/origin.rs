//! One push service: its waiting notifications, its connections, and whether it is dead.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use tidings_buffer::Turns;
use tidings_http1::Origin as Name;
use tidings_push::retry::RetryBudget;
use tidings_types::EventPriority;
use tokio::time::Instant;

use super::super::gate::{Gate, Health, Now};
use crate::attempt::BUDGET_PAUSE;

/// Priorities, the highest first.
pub(crate) const LEVELS: usize = EventPriority::ALL.len();
/// After this many failed probes an origin can be dead.
pub(super) const FAILED_PROBES_MAX: u32 = 3;
/// An origin that has answered before is not dead before it has taken nothing for this long.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(300);

/// The queue in which an origin waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    None,
    /// It has a place and something to send.
    Ready,
    /// It waits for a place.
    InLine,
}

pub(super) struct Origin<T, C> {
    pub(super) name: Name,
    /// Notifications that were not sent yet, per priority.
    pub(super) fresh: [VecDeque<T>; LEVELS],
    turns: Turns<LEVELS>,
    /// Notifications to repeat, with their priority, by the earliest time of the repeat and the order in which they came back.
    pub(super) repeats: BTreeMap<(Instant, u64), (usize, T)>,
    sequence: u64,
    /// No repeat is tried before this, because the retry budget was spent.
    unpaid_until: Instant,
    /// Notifications that are queued, in flight or waiting for a repeat, per priority.
    pub(super) held: [usize; LEVELS],
    /// The limit of `held` while the origin is dead.
    pub(super) held_max: Option<[usize; LEVELS]>,
    pub(super) in_flight: usize,
    pub(super) attempt_count_max: usize,
    /// Idle connections, the last used at the end.
    pub(super) idle: Vec<(C, Instant)>,
    pub(super) gate: Gate,
    pub(super) budget: RetryBudget,
    pub(super) has_answered: bool,
    /// The time of the first failure or pause after it last took a notification.
    trouble_since: Option<Instant>,
    /// How many notifications all origins had taken when its last probe began, or when it last took one itself.
    seen: u64,
    /// Another origin took a notification between the last two probes, so the current probe counts.
    is_probe_counted: bool,
    /// Counted probes that failed since it last answered.
    failed_probes: u32,
    /// Its last answer asked for a pause.
    is_pausing: bool,
    pub(super) last_used: Instant,
    /// When it got its place.
    pub(super) placed_at: Option<Instant>,
    pub(super) turn: Turn,
    /// Its entry in the queue of wake-ups.
    pub(super) wakes_at: Option<Instant>,
}

impl<T, C> Origin<T, C> {
    pub(super) fn new(name: Name, attempt_count_max: usize, taken: u64, now: Now) -> Self {
        Self {
            name,
            fresh: Default::default(),
            turns: Turns::new(),
            repeats: BTreeMap::new(),
            sequence: 0,
            unpaid_until: now.at,
            held: [0; LEVELS],
            held_max: None,
            in_flight: 0,
            attempt_count_max,
            idle: Vec::new(),
            gate: Gate::new(),
            budget: RetryBudget::new(now.unix),
            has_answered: false,
            trouble_since: None,
            seen: taken,
            is_probe_counted: false,
            failed_probes: 0,
            is_pausing: false,
            last_used: now.at,
            placed_at: None,
            turn: Turn::None,
            wakes_at: None,
        }
    }

    pub(super) fn push(&mut self, level: usize, item: T) {
        self.held[level] += 1;
        self.fresh[level].push_back(item);
    }

    /// Notes a notification for a repeat at `due`.
    pub(super) fn put_back(&mut self, level: usize, item: T, due: Instant) {
        self.sequence += 1;
        self.repeats.insert((due, self.sequence), (level, item));
    }

    /// Begins an attempt with the next notification: a repeat if the budget allows it, else a new one. `taken` is how many
    /// notifications all origins have taken.
    pub(super) fn take(&mut self, taken: u64, now: Now) -> Option<(usize, T)> {
        let next = self.take_repeat(now).or_else(|| self.take_fresh())?;
        if self.gate.is_broken() {
            self.is_probe_counted = taken > self.seen;
            self.seen = taken;
        }
        self.gate.on_started(now);
        self.in_flight += 1;
        self.last_used = now.at;
        Some(next)
    }

    fn take_repeat(&mut self, now: Now) -> Option<(usize, T)> {
        self.repeats_from().filter(|from| *from <= now.at)?;
        if self.budget.try_spend(now.unix) {
            return self.repeats.pop_first().map(|(_, repeat)| repeat);
        }
        self.unpaid_until = now.at + BUDGET_PAUSE;
        None
    }

    fn take_fresh(&mut self) -> Option<(usize, T)> {
        let level = self.turns.next(|level| !self.fresh[level].is_empty())?;
        self.fresh[level].pop_front().map(|item| (level, item))
    }

    /// The earliest time of a repeat.
    fn repeats_from(&self) -> Option<Instant> {
        self.repeats.first_key_value().map(|((due, _), _)| self.unpaid_until.max(*due))
    }

    /// Whether an attempt could begin if the origin has a place.
    pub(super) fn wants_to_start(&self, now: Now) -> bool {
        let has_queued = self.fresh.iter().any(|queue| !queue.is_empty());
        (has_queued || self.repeats_from().is_some_and(|from| from <= now.at))
            && self.in_flight < self.attempt_count_max
            && self.gate.is_open(self.in_flight, now)
    }

    /// The next time at which it may be able to begin an attempt that it cannot begin now.
    pub(super) fn next_wake(&self, now: Now) -> Option<Instant> {
        self.gate.opens_at(now).or(self.repeats_from().filter(|from| *from > now.at))
    }

    /// Whether it has answered before, so is not made up, and its breaker has opened since.
    pub(super) fn is_failing(&self) -> bool {
        self.has_answered && self.gate.is_broken()
    }

    /// Whether it has no notifications.
    pub(super) fn is_idle(&self) -> bool {
        self.held.iter().all(|held| *held == 0)
    }

    /// Whether it uses its place only for idle connections.
    pub(super) fn is_unused(&self) -> bool {
        self.in_flight == 0 && self.turn == Turn::None
    }

    /// An attempt is over.
    pub(super) fn on_ended(&mut self, health: Health, pause: Duration, taken: u64, now: Now) {
        self.in_flight -= 1;
        self.last_used = now.at;
        self.has_answered |= health == Health::Well || !pause.is_zero();
        let is_counted = std::mem::take(&mut self.is_probe_counted);
        if health == Health::Unknown {
            return;
        }
        self.is_pausing = !pause.is_zero();
        if health == Health::Failing {
            self.failed_probes += u32::from(is_counted);
        } else {
            self.failed_probes = 0;
        }
        if health == Health::Well && !self.is_pausing {
            (self.trouble_since, self.seen, self.held_max) = (None, taken, None);
        } else {
            self.trouble_since.get_or_insert(now.at);
        }
    }

    /// A notification of this priority is settled.
    pub(super) fn on_settled(&mut self, level: usize) {
        self.held[level] -= 1;
        if self.is_idle() {
            self.trouble_since = None; // No notification waits.
        }
    }

    /// Whether it takes no notifications while other origins do.
    pub(super) fn is_dead(&self, taken: u64, now: Now) -> bool {
        let is_long = |since| now.at.saturating_duration_since(since) >= WAIT_MAX;
        let only_pauses = self.is_pausing && taken > self.seen;
        (self.failed_probes >= FAILED_PROBES_MAX || only_pauses)
            && (!self.has_answered || self.trouble_since.is_some_and(is_long))
    }

    /// Removes the notifications that are over and not in flight, each with its reason.
    pub(super) fn take_over<R>(&mut self, why_over: &mut impl FnMut(&T) -> Option<R>) -> Vec<(T, R)> {
        let mut over = Vec::new();
        for level in 0..LEVELS {
            for item in std::mem::take(&mut self.fresh[level]) {
                match why_over(&item) {
                    Some(why) => over.push((level, item, why)),
                    None => self.fresh[level].push_back(item),
                }
            }
        }
        for (due, (level, item)) in std::mem::take(&mut self.repeats) {
            match why_over(&item) {
                Some(why) => over.push((level, item, why)),
                None => _ = self.repeats.insert(due, (level, item)),
            }
        }
        over.iter().for_each(|(level, ..)| self.on_settled(*level));
        over.into_iter().map(|(_, item, why)| (item, why)).collect()
    }

    /// Removes the notifications of a priority that exceed `room` and are not in flight: new ones before repeats, the latest
    /// first.
    pub(super) fn shed(&mut self, level: usize, room: usize) -> Vec<T> {
        let count = self.held[level].saturating_sub(room);
        let fresh = &mut self.fresh[level];
        let mut shed: Vec<T> = fresh.drain(fresh.len() - count.min(fresh.len())..).collect();
        let latest = self.repeats.iter().rev().filter(|(_, (of, _))| *of == level).map(|(due, _)| *due);
        let repeats: Vec<_> = latest.take(count - shed.len()).collect();
        shed.extend(repeats.iter().filter_map(|due| self.repeats.remove(due)).map(|(_, item)| item));
        shed.iter().for_each(|_| self.on_settled(level));
        shed
    }
}
