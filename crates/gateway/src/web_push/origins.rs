//! Decides which push service below one rule is sent what, and when.
//!
//! A rule of the allow list is one host or one wildcard. A host is one *origin* (scheme, host and port), or one for each allowed
//! port; a wildcard has any number of origins. Other rules have schedulers, lakes and connections of their own.
//!
//! This is a core: it opens nothing, and it is told the time. Items `T` are to be sent, connections `C` are what they are sent on;
//! [`Origins::next`] hands out both, and [`Origins::on_ended`] takes the connection back.
//!
//! ```text
//!          ┌ origin ───────────────────────────────┐
//! push ──► │ fresh (a queue per priority) ─┐       │
//!          │                               ├─ next ┼──► in flight ──► ended ─┬► settled
//! due ───► │ repeats (paid from a budget) ─┘       │                         └► put back, until it is due
//!          └───────────────────────────────────────┘
//! ```
//!
//! # Rules
//! 1. **An origin costs itself.** It has its own queues, [`Gate`](super::gate::Gate) (breaker, and the pauses that it asked for),
//!    retry budget and connections. Origins are served round-robin. Within an origin repeats go first if the budget pays for
//!    them, then the higher priority, but every 16th item is of a lower priority ([`Turns`](tidings_buffer::Turns)).
//! 2. **All origins share the room of a priority.** While there is room, items pass an origin that takes nothing. When the room is
//!    full, the lake waits: an item that may still be sent is not thrown away. A quarter of the room, at most [`RESERVE_MAX`], is
//!    kept for items that the driver takes one by one ([`Origins::has_room`]), to find an origin that answers.
//! 3. **Dead origins together hold at most half of the room of a priority.** Items beyond that are shed, the latest first, with the
//!    next [`Origins::sweep`], and later items as they come. An origin that has answered keeps at least one item, to be tried with.
//! 4. **An origin is dead** when three probes ([`FAILED_PROBES_MAX`](origin::FAILED_PROBES_MAX)) have failed, each begun after
//!    another origin had taken an item since the probe before; or when its last answer asked for a pause, and another origin has
//!    taken an item meanwhile. An origin that has answered is dead only after 5 minutes ([`WAIT_MAX`](origin::WAIT_MAX)) in which
//!    it took nothing. It lives again as soon as it takes an item. A 5xx without `Retry-After` is no answer. (A probe is the single
//!    attempt that an open breaker allows.)
//! 5. **An outage of our own network sheds nothing**: nobody takes anything while it lasts, so no probe counts. One outage adds at
//!    most one failed probe, at its beginning. An origin without others to compare it with, such as the only one of a rule, is
//!    never dead.
//! 6. **An origin needs a place to have connections.** When all places are taken, the origin whose connections were idle for longest
//!    loses its place, and its connections are closed. If all are at work, the next origin waits in line, and an origin that has
//!    had its place for [`TENURE`] begins nothing more and goes to the end of the line.
//! 7. **Origins that have never answered share half of the places**, because they may be invented and hang until their
//!    timeout. They have their own line; free places go to the two lines in turn.
//!
//! # Limits
//! | What | Limit | When it is reached |
//! |---|---|---|
//! | items held, per priority | a third of `held_max` | the lake waits |
//! | of these, for dead origins | half, and one for each that has answered | the rest is shed |
//! | origins with connections | `origin_count_max` | rule 6 |
//! | of these, origins that never answered | half, rounded up | they wait in line |
//! | attempts under way, per origin | what its connections allow | its items wait |
//! | origins remembered without an item: shut ones, and those that have answered | [`REMEMBERED_MAX`], [`REMEMBERED_FOR`] | forgotten |
//!
//! # Known gaps
//! - A lake has one order. Items behind those of an origin that takes nothing wait until it takes some, is dead, or its items are
//!   over.
//! - If the first items of a burst are all for origins that take nothing, and fill room and reserve before another origin has taken
//!   an item between three of their probes, then none of them is dead until another origin takes something, of any priority.

mod origin;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use slab::Slab;
use tidings_http1::Origin as Name;
use tokio::time::Instant;

use super::gate::{Health, Now};
pub(crate) use origin::LEVELS;
use origin::{Origin, Turn};

/// Most items of one priority that are asked for at once.
pub(crate) const BATCH_MAX: usize = 64;
/// Most that is kept free of a priority for items that are taken one by one; a quarter of the room, if that is less.
pub(crate) const RESERVE_MAX: usize = 64;
/// How long an origin keeps its place at least while it has something to send.
pub(crate) const TENURE: Duration = Duration::from_secs(1);
/// Origins that are remembered without anything held for them.
pub(crate) const REMEMBERED_MAX: usize = 4096;
/// How long it is remembered that an origin has answered, and so was not made up.
pub(crate) const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// The bounds; see the module's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) origin_count_max: usize,
    /// Attempts under way, for an origin without another number ([`Origins::set_attempt_count_max`]).
    pub(crate) attempt_count_max: usize,
    /// Over all origins and priorities, at least [`LEVELS`].
    pub(crate) held_max: usize,
    pub(crate) idle_timeout: Duration,
}

/// Names an origin for as long as an item of it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OriginId(usize);

/// An item that is to be sent now.
pub(crate) struct Start<T, C> {
    pub(crate) origin: OriginId,
    pub(crate) level: usize,
    pub(crate) item: T,
    /// An open one; none when one has to be made.
    pub(crate) connection: Option<C>,
}

/// What an attempt that is over means for its origin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effect {
    pub(crate) health: Health,
    /// How long it wants to be left alone.
    pub(crate) pause: Duration,
    /// Any 64 random bits.
    pub(crate) random: u64,
}

impl Effect {
    /// Nothing: it was not asked.
    pub(crate) const NONE: Self = Self { health: Health::Unknown, pause: Duration::ZERO, random: 0 };
}

pub(crate) struct Origins<T, C> {
    limits: Limits,
    ids: HashMap<Name, usize>,
    origins: Slab<Origin<T, C>>,
    /// Items held per priority: queued, in flight, waiting for a repeat.
    held: [usize; LEVELS],
    /// Items that any origin has taken so far.
    taken: u64,
    /// Origins that [`Origin::is_failing`].
    failing: usize,
    /// Origins with a place.
    placed: Vec<usize>,
    /// Origins with a place and something to send, in the order of their turns.
    ready: VecDeque<usize>,
    /// Origins that wait for a place: those that have never answered, and those that have.
    lines: [VecDeque<usize>; 2],
    /// The line that the last place went to.
    last_line: usize,
    /// When origins may have something to do; each is in it at most once.
    wakes: BTreeSet<(Instant, usize)>,
}

/// The line of origins that have never answered; the other one is for those that have.
const UNKNOWN: usize = 0;

impl<T, C> Origins<T, C> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ids: HashMap::new(),
            origins: Slab::new(),
            held: [0; LEVELS],
            taken: 0,
            failing: 0,
            placed: Vec::new(),
            ready: VecDeque::new(),
            lines: Default::default(),
            last_line: UNKNOWN,
            wakes: BTreeSet::new(),
        }
    }

    /// Origins that have answered before, and fail since several attempts.
    pub(crate) fn failing(&self) -> usize {
        self.failing
    }

    /// Items pushed and not settled.
    pub(crate) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// How many attempts may be under way, over all origins with a place.
    pub(crate) fn attempt_count_max(&self) -> usize {
        self.placed.iter().map(|index| self.origins[*index].attempt_count_max).sum()
    }

    /// An origin takes so many attempts at a time, until something else is said.
    pub(crate) fn set_attempt_count_max(&mut self, name: &Name, count: usize, now: Now) {
        if let Some(&index) = self.ids.get(name) {
            self.origins[index].attempt_count_max = count;
            self.consider(index, now);
        }
    }

    /// Scheme, host and port.
    pub(crate) fn name(&self, OriginId(index): OriginId) -> &Name {
        &self.origins[index].name
    }

    /// How many more items of this priority are asked for now.
    pub(crate) fn demand(&self, level: usize) -> usize {
        let reserve = RESERVE_MAX.min(self.level_max() / 4);
        (self.level_max() - reserve).saturating_sub(self.held[level]).min(BATCH_MAX)
    }

    /// Whether an item of this priority may be pushed, asked for or not.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.held[level] < self.level_max()
    }

    /// Takes an item for an origin; there must be room. It comes back when the origin is dead and has enough.
    pub(crate) fn push(&mut self, name: &Name, level: usize, item: T, now: Now) -> Result<(), T> {
        let index = self.ids.get(name).copied().unwrap_or_else(|| self.add(name, now));
        let origin = &mut self.origins[index];
        if origin.held_max.is_some_and(|max| origin.held[level] >= max[level]) {
            return Err(item);
        }
        origin.push(level, item);
        self.held[level] += 1;
        self.consider(index, now);
        Ok(())
    }

    /// The next item that may be sent. Each that is handed out must come back, by [`Self::on_ended`].
    pub(crate) fn next(&mut self, now: Now) -> Option<Start<T, C>> {
        while let Some(index) = self.ready.pop_front() {
            self.origins[index].turn = Turn::None;
            let start = if self.may_start(index, now) { self.start(index, now) } else { None };
            self.consider(index, now);
            if start.is_some() {
                return start;
            }
        }
        None
    }

    fn start(&mut self, index: usize, now: Now) -> Option<Start<T, C>> {
        let origin = &mut self.origins[index];
        let (level, item) = origin.take(self.taken, now)?;
        let connection = origin.idle.pop().map(|(connection, _)| connection);
        Some(Start { origin: OriginId(index), level, item, connection })
    }

    /// An attempt is over. `connection` can be used again. Its item is then settled or put back.
    pub(crate) fn on_ended(
        &mut self,
        OriginId(index): OriginId,
        connection: Option<C>,
        Effect { health, pause, random }: Effect,
        now: Now,
    ) {
        self.taken += u64::from(health == Health::Well && pause.is_zero());
        let origin = &mut self.origins[index];
        self.failing -= usize::from(origin.is_failing());
        origin.idle.extend(connection.map(|connection| (connection, now.at)));
        origin.on_ended(health, pause, self.taken, now);
        origin.gate.on_ended(health, pause, random, now);
        self.failing += usize::from(origin.is_failing());
        self.consider(index, now);
    }

    /// An item of this origin was accepted, at the first attempt or later.
    pub(crate) fn on_accepted(&mut self, OriginId(index): OriginId) {
        self.origins[index].budget.on_accepted();
    }

    /// An item that was handed out is done with.
    pub(crate) fn on_settled(&mut self, OriginId(index): OriginId, level: usize, now: Now) {
        self.held[level] -= 1;
        self.origins[index].on_settled(level);
        self.consider(index, now);
    }

    /// An item that was handed out is to be sent again, at `due` at the earliest.
    pub(crate) fn put_back(&mut self, OriginId(index): OriginId, level: usize, item: T, due: Instant, now: Now) {
        self.origins[index].put_back(level, item, due);
        self.consider(index, now);
    }

    /// Does what is due; returns when to come back.
    pub(crate) fn release(&mut self, now: Now) -> Option<Instant> {
        loop {
            let &(due, index) = self.wakes.first()?;
            if due > now.at {
                return Some(due);
            }
            self.wakes.pop_first();
            self.origins[index].wakes_at = None;
            self.consider(index, now);
        }
    }

    /// Closes the unused connections that are not to be kept.
    pub(crate) fn retain_idle(&mut self, now: Now, mut is_kept: impl FnMut(&C) -> bool) {
        for index in self.placed.clone() {
            // An origin that lost its place meanwhile may be forgotten.
            let Some(origin) = self.origins.get_mut(index) else { continue };
            origin.idle.retain(|(connection, _)| is_kept(connection));
            self.consider(index, now);
        }
    }

    /// Takes out what waits and must not be sent any more, with why not, and what dead origins hold beyond their half, as
    /// `overloaded`; closes connections that were idle for too long. What is under way is left.
    pub(crate) fn sweep<R: Copy>(
        &mut self,
        now: Now,
        overloaded: R,
        mut why_over: impl FnMut(&T) -> Option<R>,
    ) -> Vec<(T, R)> {
        let mut over = Vec::new();
        let mut room = [self.level_max() / 2; LEVELS];
        let indices: Vec<usize> = self.origins.iter().map(|(index, _)| index).collect();
        for index in indices {
            // An origin that lost its place meanwhile may be forgotten.
            let Some(origin) = self.origins.get_mut(index) else { continue };
            let before = origin.held;
            over.extend(origin.take_over(&mut why_over));
            let idle_timeout = self.limits.idle_timeout;
            origin.idle.retain(|(_, since)| now.at.saturating_duration_since(*since) < idle_timeout);
            let is_dead = !origin.is_idle() && origin.is_dead(self.taken, now);
            let least = usize::from(origin.has_answered);
            origin.held_max = is_dead.then(|| room.map(|room| room.max(least)));
            for (level, max) in origin.held_max.into_iter().flatten().enumerate() {
                over.extend(origin.shed(level, max).into_iter().map(|item| (item, overloaded)));
                room[level] = room[level].saturating_sub(origin.held[level]);
            }
            let after = origin.held;
            (0..LEVELS).for_each(|level| self.held[level] -= before[level] - after[level]);
            self.consider(index, now);
        }
        over
    }

    fn add(&mut self, name: &Name, now: Now) -> usize {
        let origin = Origin::new(name.clone(), self.limits.attempt_count_max, self.taken, now);
        let index = self.origins.insert(origin);
        self.ids.insert(name.clone(), index);
        index
    }

    fn level_max(&self) -> usize {
        self.limits.held_max / LEVELS
    }

    fn may_start(&self, index: usize, now: Now) -> bool {
        let origin = &self.origins[index];
        origin.placed_at.is_some() && !self.must_leave(origin, now) && origin.wants_to_start(now)
    }

    /// Whether it has had its place for long enough, and an origin waits in line that could have the place.
    fn must_leave(&self, origin: &Origin<T, C>, now: Now) -> bool {
        let is_over = |since| now.at.saturating_duration_since(since) >= TENURE;
        origin.placed_at.is_some_and(is_over) && {
            let [unknown, known] = self.lines.each_ref().map(|line| !line.is_empty());
            known || unknown && (!origin.has_answered || self.unknown_count() < self.unknown_count_max())
        }
    }

    /// How many origins that have never answered have a place.
    fn unknown_count(&self) -> usize {
        self.placed.iter().filter(|index| !self.origins[**index].has_answered).count()
    }

    fn unknown_count_max(&self) -> usize {
        self.limits.origin_count_max.div_ceil(2)
    }

    /// Puts an origin where it belongs after something about it has changed: its place, its turn, its wake.
    fn consider(&mut self, index: usize, now: Now) {
        let origin = &self.origins[index];
        let wants = origin.wants_to_start(now);
        let stays = origin.placed_at.is_some() && !self.must_leave(origin, now);
        if origin.turn == Turn::InLine && !wants {
            self.leave_line(index);
        } else if origin.turn == Turn::None && wants && stays {
            self.set_ready(index);
        } else if origin.is_unused() && (wants || origin.idle.is_empty()) {
            self.evict(index);
            if wants {
                self.join_line(index);
            }
        }
        self.set_wake(index, now);
        self.fill_places(now);
        self.forget(index, now);
    }

    fn set_ready(&mut self, index: usize) {
        self.origins[index].turn = Turn::Ready;
        self.ready.push_back(index);
    }

    fn join_line(&mut self, index: usize) {
        let origin = &mut self.origins[index];
        origin.turn = Turn::InLine;
        self.lines[usize::from(origin.has_answered)].push_back(index);
    }

    fn leave_line(&mut self, index: usize) {
        self.origins[index].turn = Turn::None;
        self.lines.iter_mut().for_each(|line| line.retain(|waiting| *waiting != index));
    }

    /// Takes its place away, if it has one, and closes its connections.
    fn evict(&mut self, index: usize) {
        let origin = &mut self.origins[index];
        if origin.placed_at.take().is_some() {
            origin.idle.clear();
            self.placed.retain(|placed| *placed != index);
        }
    }

    /// Gives places to origins in line, while there are places for them.
    fn fill_places(&mut self, now: Now) {
        loop {
            let lines = [1 - self.last_line, self.last_line];
            let Some(line) = lines.into_iter().find(|line| self.make_room(*line, now)) else { return };
            let Some(index) = self.lines[line].pop_front() else { return };
            self.last_line = line;
            self.origins[index].placed_at = Some(now.at);
            self.placed.push(index);
            self.set_ready(index);
        }
    }

    /// Whether there is a place for the first of this line; takes that of the origin that was idle for longest if need be.
    fn make_room(&mut self, line: usize, now: Now) -> bool {
        if self.lines[line].is_empty() {
            return false;
        }
        let is_capped = line == UNKNOWN && self.unknown_count() >= self.unknown_count_max();
        if !is_capped && self.placed.len() < self.limits.origin_count_max {
            return true;
        }
        let origin = |index: &usize| &self.origins[*index];
        let unused = self.placed.iter().filter(|index| origin(index).is_unused());
        let unused = unused.filter(|index| !is_capped || !origin(index).has_answered);
        let Some(&oldest) = unused.min_by_key(|index| origin(index).last_used) else { return false };
        self.evict(oldest);
        self.forget(oldest, now);
        true
    }

    /// Notes when an origin may have something to do that it cannot do now.
    fn set_wake(&mut self, index: usize, now: Now) {
        let origin = &mut self.origins[index];
        let next = origin.next_wake(now);
        let before = std::mem::replace(&mut origin.wakes_at, next);
        if before != next {
            before.map(|at| self.wakes.remove(&(at, index)));
            self.wakes.extend(next.map(|at| (at, index)));
        }
    }

    /// Forgets an origin of which nothing is to be known any more.
    fn forget(&mut self, index: usize, now: Now) {
        // It may be forgotten already, after it lost its place.
        let Some(origin) = self.origins.get(index).filter(|it| it.is_idle() && it.placed_at.is_none()) else { return };
        let is_recent = now.at.saturating_duration_since(origin.last_used) < REMEMBERED_FOR;
        let is_worth_it = origin.gate.opens_at(now).is_some() || (origin.has_answered && is_recent);
        if is_worth_it && self.origins.len() <= self.held() + self.placed.len() + REMEMBERED_MAX {
            return;
        }
        self.failing -= usize::from(origin.is_failing());
        let Origin { name, wakes_at, .. } = self.origins.remove(index);
        wakes_at.map(|at| self.wakes.remove(&(at, index)));
        self.ids.remove(&name);
    }
}
