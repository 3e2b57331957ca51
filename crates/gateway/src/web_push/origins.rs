//! Which push service may be sent what, and when: the books about origins.
//!
//! A core: it opens nothing and is handed `now`. It knows nothing of what it keeps in order, items `T` to be sent and
//! connections `C` to send them on; they go out with [`Origins::next`] and come back with [`Origins::on_ended`].
//!
//! ```text
//!          ┌ origin ───────────────────────────────┐
//! push ──► │ fresh (a queue per priority) ─┐       │
//!          │                               ├─ next ┼──► in flight ──► ended ─┬► settled
//! due ───► │ repeats (paid from a budget) ─┘       │                         └► put back, until it is due
//!          └───────────────────────────────────────┘
//! ```
//!
//! **An origin costs itself.** It has a queue, a [`Gate`] (breaker, pauses it asked for) and a retry budget of its own,
//! and as many attempts under way as its connections take. What may be held is for all of them: others pass one that
//! takes nothing until it holds all there is room for. Then the lake waits, as it does for any receiver that is slower
//! than its sender, for nothing that may still be sent is thrown away. Priorities have bounds of their own, or a
//! newsletter that waits would keep a goal in its lake.
//!
//! **Only the dead are shed, so that others pass.** The *dead* hold half of a priority together; what they have on top
//! is shed by the next sweep, and what comes on top then at once. An origin is dead if it is silent for too long:
//! [`WAIT_MAX`] (5 minutes), or [`GRACE`] (10 s) if it has never answered; else made-up origins, a name and one endpoint each,
//! would hold everything. An origin is heard of when it takes something or asks for a pause. A 5xx without `Retry-After` is
//! a failure. The time of a pause does not count as silence, but at most [`WAIT_MAX`] of pauses in a row.
//!
//! **A failure is an origin's own only by what others answered after it.** If nobody answers it may be our own network
//! that is away, and nothing is shed for that, nor when it comes back. Answers of any origins, each within [`GRACE`] of
//! the one before, are a *run*: an outage ends it. An origin *fails alone* if an attempt that was begun and has failed
//! in a run was followed by [`GRACE`] of the same run, pauses not counted; until it is heard of. Who fails alone may be
//! dead, and besides only who is in a pause of its own that is longer than anybody is waited for. For others to answer
//! there must be something to send them when a priority is full: [`RESERVE_MAX`] is kept for what is taken one by one
//! ([`Origins::has_room`]).
//!
//! So an origin that takes nothing holds up others of its priority once it holds all of it, and until it takes some, is
//! dead, or what it has is over. Known gaps: what is behind it in the lake, which has one order, waits that long. And
//! if those that take nothing come one behind the other, more than there is room for with the reserve, before others
//! have answered for [`GRACE`] after their failures, that is taken for an outage of ours until others do, of whatever
//! priority. An outage that is shorter than [`GRACE`] is not told from an origin's own trouble if that has never
//! answered.
//!
//! **A place is what an origin needs to have connections**; there are `origin_count_max`. Who needs one takes the place
//! of the one that was idle for longest; if all are at work it waits in line, and who has had a place for [`TENURE`]
//! while others wait opens nothing more and leaves it when its answers are there. An origin that is shut counts as
//! idle. Origins that have never answered, or whose breaker is open, may hang for as long as timeouts let them: they
//! are a *class* of their own, with a line of its own, and get a place only while fewer than half are theirs. In that
//! line those that did answer once are before those that are only said to exist.
//!
//! Bounds: `held_max` items in all; origins of which nothing is held and that have no place are only remembered while
//! they are shut or because they have answered, at most [`REMEMBERED_MAX`]. Timers: one per item that waits and about
//! one per shut origin.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use slab::Slab;
use tidings_http1::Origin as Name;
use tidings_push::retry::RetryBudget;
use tidings_types::EventPriority;
use tokio::time::Instant;

use super::gate::{Gate, Health, Now};
use crate::attempt::BUDGET_PAUSE;
use crate::turns::Turns;

/// Priorities, the highest first.
pub(crate) const LEVELS: usize = EventPriority::ALL.len();
/// Most items of one priority that are asked for at once.
pub(crate) const BATCH_MAX: usize = 64;
/// Most that is kept free of a priority for what is taken one by one; a quarter of it, if that is less.
pub(crate) const RESERVE_MAX: usize = 64;
/// How long an origin that has never answered may be silent, how long others answer after a failure that is an origin's
/// own, and how far apart their answers may be.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// How long an origin that has answered may be silent.
pub(crate) const WAIT_MAX: Duration = Duration::from_secs(300);
/// How long an origin keeps its place at least, unless it is idle or shut.
pub(crate) const TENURE: Duration = Duration::from_secs(1);
/// Origins that are remembered without anything held for them: those that are shut, and those that have answered.
pub(crate) const REMEMBERED_MAX: usize = 4096;
/// How long it is remembered that an origin has answered, and so was not made up.
const REMEMBERED_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Classes of origins: who answers, and who may not.
const SOUND: usize = 0;
const DOUBTFUL: usize = 1;

/// The bounds; see the module's text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) origin_count_max: usize,
    /// Attempts under way, of an origin of which nothing else was said ([`Origins::set_attempt_count_max`]).
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
    /// Items held per priority: queued, in flight, waiting.
    held: [usize; LEVELS],
    /// Origins with a place; at most `origin_count_max`.
    placed: Vec<usize>,
    /// Origins with a place that may be able to start something; each is in it once.
    ready: VecDeque<usize>,
    /// Origins that wait for a place, per class; each is in one of them, once.
    lines: [VecDeque<usize>; 2],
    answers: Option<Answers>,
    timers: BinaryHeap<Reverse<Timer<T>>>,
    sequence: u64,
}

/// A run: answers of any origins, each within [`GRACE`] of the one before.
#[derive(Debug, Clone, Copy)]
struct Answers {
    first_at: Instant,
    last_at: Instant,
}

/// A failure in a run, which is named by its first answer.
#[derive(Debug, Clone, Copy)]
struct Failure {
    run: Instant,
    at: Instant,
}

struct Origin<T, C> {
    name: Name,
    fresh: [VecDeque<T>; LEVELS],
    turns: Turns<LEVELS>,
    /// Due, with their priority.
    repeats: VecDeque<(usize, T)>,
    /// Until when repeats are not asked for, since the budget did not pay for one.
    broke_until: Instant,
    held: [usize; LEVELS],
    in_flight: usize,
    attempt_count_max: usize,
    /// Since when something is in flight, if something is.
    busy_since: Instant,
    /// Open and unused, the latest used at the end.
    idle: Vec<(C, Instant)>,
    gate: Gate,
    budget: RetryBudget,
    /// What it may hold if the last sweep found it dead, per priority.
    held_max: [Option<usize>; LEVELS],
    /// The last answer that took something, the first that wanted a pause since, or the last time it got something to
    /// send when it had nothing.
    heard_at: Instant,
    /// The same, or the end of the pause.
    quiet_since: Instant,
    /// Since when its answers are nothing but that it wants a pause.
    paused_since: Option<Instant>,
    has_answered: bool,
    /// Since its last answer.
    has_failed: bool,
    /// The first since then that was begun and has failed in the run of then.
    failure: Option<Failure>,
    /// And others have answered for a while after it.
    fails_alone: bool,
    /// Its last answer wants it to be left alone for longer than anybody is waited for.
    asks_too_long: bool,
    last_used: Instant,
    /// Since when it has a place.
    placed_at: Option<Instant>,
    is_ready: bool,
    in_line: bool,
    /// The earliest timer that looks after it.
    look_at: Option<Instant>,
}

struct Timer<T> {
    due: Instant,
    /// Orders equal moments by arrival.
    sequence: u64,
    origin: usize,
    /// What is due; without one its origin may have something to do.
    item: Option<(usize, T)>,
}

impl<T> PartialEq for Timer<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Timer<T> {}

impl<T> PartialOrd for Timer<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Timer<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

impl<T, C> Origins<T, C> {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            ids: HashMap::new(),
            origins: Slab::new(),
            held: [0; LEVELS],
            placed: Vec::new(),
            ready: VecDeque::new(),
            lines: Default::default(),
            answers: None,
            timers: BinaryHeap::new(),
            sequence: 0,
        }
    }

    /// Items pushed and not settled.
    pub(crate) fn held(&self) -> usize {
        self.held.iter().sum()
    }

    /// How many connections there are, or are being made.
    #[cfg(test)]
    pub(crate) fn connection_count(&self) -> usize {
        self.placed.iter().map(|index| self.origins[*index].connection_count()).sum()
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

    /// Whether an item of this priority may be pushed, asked for or not. Who pushes one at times although none is asked
    /// for may so find an origin that answers.
    pub(crate) fn has_room(&self, level: usize) -> bool {
        self.held[level] < self.level_max()
    }

    /// Takes an item for an origin; there must be room. It comes back when the origin is dead and has enough.
    pub(crate) fn push(&mut self, name: &Name, level: usize, item: T, now: Now) -> Result<(), T> {
        let index = self.ids.get(name).copied().unwrap_or_else(|| self.add(name, now));
        let origin = &self.origins[index];
        if origin.held_max[level].is_some_and(|max| origin.held[level] >= max) {
            self.consider(index, now); // It may have nothing else to be kept for.
            return Err(item);
        }
        self.held[level] += 1;
        let origin = &mut self.origins[index];
        origin.on_queueing(now);
        origin.held[level] += 1;
        origin.fresh[level].push_back(item);
        self.consider(index, now);
        Ok(())
    }

    /// The next item that may be sent; the origins take turns. Each that is handed out must come back, by
    /// [`Self::on_ended`].
    pub(crate) fn next(&mut self, now: Now) -> Option<Start<T, C>> {
        while let Some(index) = self.ready.pop_front() {
            self.origins[index].is_ready = false;
            let next = if self.may_start(&self.origins[index], now) { self.take(index, now) } else { None };
            self.consider(index, now);
            if next.is_some() {
                return next;
            }
        }
        None
    }

    fn take(&mut self, index: usize, now: Now) -> Option<Start<T, C>> {
        let origin = &mut self.origins[index];
        let (level, item) = origin.take(now)?;
        if origin.in_flight == 0 {
            origin.busy_since = now.at;
        }
        origin.in_flight += 1;
        origin.last_used = now.at;
        origin.gate.on_started(now);
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
        let origin = &mut self.origins[index];
        origin.in_flight -= 1;
        origin.last_used = now.at;
        origin.idle.extend(connection.map(|connection| (connection, now.at)));
        if origin.on_told(health, pause, self.answers, now) {
            self.answers = Some(Answers::and_now(self.answers, now));
        }
        origin.gate.on_ended(health, pause, random, now);
        self.consider(index, now);
    }

    /// An item of this origin was accepted, at the first attempt or later.
    pub(crate) fn on_accepted(&mut self, OriginId(index): OriginId, was_repeat: bool) {
        self.origins[index].budget.on_accepted(was_repeat);
    }

    /// An item that was handed out is done with.
    pub(crate) fn on_settled(&mut self, OriginId(index): OriginId, level: usize, now: Now) {
        self.release_one(index, level);
        self.consider(index, now);
    }

    /// An item that was handed out is to be sent again, at `due` at the earliest.
    pub(crate) fn put_back(&mut self, OriginId(index): OriginId, level: usize, item: T, due: Instant) {
        self.add_timer(due, index, Some((level, item)));
    }

    /// Does what is due; returns when to come back.
    pub(crate) fn release(&mut self, now: Now) -> Option<Instant> {
        while let Some(Reverse(first)) = self.timers.peek() {
            if first.due > now.at {
                return Some(first.due);
            }
            let Some(Reverse(Timer { due, origin: index, item, .. })) = self.timers.pop() else { break };
            // An origin that is gone, or another in its place, is looked at once for nothing.
            let Some(origin) = self.origins.get_mut(index) else { continue };
            if origin.look_at == Some(due) {
                origin.look_at = None;
            }
            if item.is_some() {
                origin.on_queueing(now);
            }
            origin.repeats.extend(item);
            self.consider(index, now);
        }
        None
    }

    /// Closes the unused connections that are not to be kept.
    pub(crate) fn retain_idle(&mut self, now: Now, mut is_kept: impl FnMut(&C) -> bool) {
        for index in self.placed.clone() {
            // One that left its place to another may be forgotten by now.
            let Some(origin) = self.origins.get_mut(index) else { continue };
            origin.idle.retain(|(connection, _)| is_kept(connection));
            self.consider(index, now);
        }
    }

    /// Takes out what waits and must not be sent any more, with why not, and what dead origins have beyond their
    /// common half, as `overloaded`; closes connections that were idle for too long. What is under way is left.
    pub(crate) fn sweep<R: Copy>(
        &mut self,
        now: Now,
        overloaded: R,
        mut why_over: impl FnMut(&T) -> Option<R>,
    ) -> Vec<(T, R)> {
        let mut over = Vec::new();
        self.sweep_timers(&mut over, &mut why_over);
        let mut room = [self.level_max() / 2; LEVELS];
        let indices: Vec<usize> = self.origins.iter().map(|(index, _)| index).collect();
        for index in indices {
            // One that left its place to another may be forgotten by now.
            let Some(origin) = self.origins.get_mut(index) else { continue };
            origin.compare(self.answers);
            let mut released = [0; LEVELS];
            for (level, queue) in origin.fresh.iter_mut().enumerate() {
                let before = over.len();
                take_out(queue, &mut over, &mut why_over, |item| item);
                released[level] += over.len() - before;
            }
            take_out(&mut origin.repeats, &mut over, &mut |(_, item)| why_over(item), |(level, item)| {
                released[level] += 1;
                item
            });
            let idle_timeout = self.limits.idle_timeout;
            origin.idle.retain(|(_, since)| now.at.saturating_duration_since(*since) < idle_timeout);
            for (level, count) in released.into_iter().enumerate() {
                (0..count).for_each(|_| self.release_one(index, level));
                let is_dead = self.origins[index].is_dead(self.answers, now);
                self.origins[index].held_max[level] = is_dead.then_some(room[level]);
                if is_dead {
                    self.shed(index, level, &mut room[level], |item| over.push((item, overloaded)));
                }
            }
            self.consider(index, now);
        }
        over
    }

    /// [`Self::sweep`] of what waits for its moment.
    fn sweep_timers<R>(&mut self, over: &mut Vec<(T, R)>, why_over: &mut impl FnMut(&T) -> Option<R>) {
        let mut timers = std::mem::take(&mut self.timers).into_vec();
        timers.retain_mut(|Reverse(Timer { origin, item, .. })| {
            let Some(why) = item.as_ref().and_then(|(_, item)| why_over(item)) else { return true };
            let Some((level, item)) = item.take() else { return true };
            over.push((item, why));
            self.release_one(*origin, level);
            false
        });
        self.timers = timers.into();
    }

    /// Sheds what an origin holds beyond `room`, the latest first, and takes the rest of it off `room`.
    fn shed(&mut self, index: usize, level: usize, room: &mut usize, mut shed: impl FnMut(T)) {
        let origin = &mut self.origins[index];
        let mut count = 0;
        while origin.held[level] - count > *room {
            let item = origin.fresh[level].pop_back().or_else(|| {
                let at = origin.repeats.iter().rposition(|(of, _)| *of == level)?;
                origin.repeats.remove(at).map(|(_, item)| item)
            });
            let Some(item) = item else { break };
            shed(item);
            count += 1;
        }
        (0..count).for_each(|_| self.release_one(index, level));
        *room = room.saturating_sub(self.origins[index].held[level]);
    }

    fn add(&mut self, name: &Name, now: Now) -> usize {
        let index = self.origins.insert(Origin::new(name.clone(), self.limits.attempt_count_max, now));
        self.ids.insert(name.clone(), index);
        index
    }

    fn release_one(&mut self, index: usize, level: usize) {
        self.held[level] -= 1;
        self.origins[index].held[level] -= 1;
    }

    fn level_max(&self) -> usize {
        self.limits.held_max / LEVELS
    }

    /// Whether it could start something, had it a place.
    fn wants_to_start(&self, origin: &Origin<T, C>, now: Now) -> bool {
        origin.has_queued(now)
            && origin.in_flight < origin.attempt_count_max
            && origin.gate.is_open(origin.in_flight, now)
    }

    /// Whether it can start something.
    fn may_start(&self, origin: &Origin<T, C>, now: Now) -> bool {
        origin.placed_at.is_some() && !self.must_leave(origin, now) && self.wants_to_start(origin, now)
    }

    /// Whether others wait for the place that it has had for long enough: of its class, or of the other one while that
    /// has less than its part.
    fn must_leave(&self, origin: &Origin<T, C>, now: Now) -> bool {
        let is_over = |since| now.at.saturating_duration_since(since) >= TENURE;
        let class = origin.class(now);
        origin.placed_at.is_some_and(is_over)
            && (!self.lines[class].is_empty() || self.lacks_places(SOUND + DOUBTFUL - class, now))
    }

    /// Whether some of this class are in line and it has less than its part of the places.
    fn lacks_places(&self, class: usize, now: Now) -> bool {
        !self.lines[class].is_empty() && self.placed_of(class, now) < self.part(class)
    }

    /// How many of this class have a place.
    fn placed_of(&self, class: usize, now: Now) -> usize {
        self.placed.iter().filter(|index| self.origins[**index].class(now) == class).count()
    }

    /// What the doubtful have at most, and the others at least while they want it.
    fn part(&self, class: usize) -> usize {
        let half = self.limits.origin_count_max.div_ceil(2);
        if class == DOUBTFUL { half } else { (self.limits.origin_count_max - half).max(1) }
    }

    /// Puts an origin where it belongs after something about it has changed: its place, its turn, its timer.
    fn consider(&mut self, index: usize, now: Now) {
        self.give_up_place(index, now);
        self.fill_places(now);
        let origin = &self.origins[index];
        let wants = self.wants_to_start(origin, now) && !self.must_leave(origin, now);
        if wants && !origin.is_ready && !origin.in_line {
            if origin.placed_at.is_some() || self.find_place(index, now) {
                self.set_ready(index);
            } else {
                self.join_line(index, now);
            }
        }
        let origin = &self.origins[index];
        if let Some(at) = origin.wakes_at(now) {
            self.look(index, at);
        }
        self.forget(index, now);
    }

    /// An origin has no use for its place when it has neither connections nor anything to start, and none that it may
    /// keep when others wait and it is idle, shut or past its time.
    fn give_up_place(&mut self, index: usize, now: Now) {
        let origin = &self.origins[index];
        if origin.placed_at.is_none() || origin.in_flight > 0 {
            return;
        }
        let is_used = self.wants_to_start(origin, now) && !self.must_leave(origin, now);
        if !is_used && (origin.idle.is_empty() || self.is_awaited(origin, now)) {
            self.evict(index);
        }
    }

    fn join_line(&mut self, index: usize, now: Now) {
        let origin = &mut self.origins[index];
        origin.in_line = true;
        let (class, is_known) = (origin.class(now), origin.has_answered);
        if class == DOUBTFUL && is_known {
            self.lines[class].push_front(index);
        } else {
            self.lines[class].push_back(index);
        }
    }

    /// Whether somebody in line may have its place.
    fn is_awaited(&self, origin: &Origin<T, C>, now: Now) -> bool {
        let own = usize::from(origin.class(now) == DOUBTFUL);
        let may_doubtful = || self.placed_of(DOUBTFUL, now) - own < self.part(DOUBTFUL);
        let by_doubtful = || !self.lines[DOUBTFUL].is_empty() && may_doubtful();
        if self.placed.len() < self.limits.origin_count_max {
            return own == 1 && by_doubtful(); // Others have found room elsewhere, or may not have it.
        }
        !self.lines[SOUND].is_empty() || by_doubtful()
    }

    /// Gives free places to those in line.
    fn fill_places(&mut self, now: Now) {
        while self.placed.len() < self.limits.origin_count_max {
            let class = [SOUND, DOUBTFUL].into_iter().find(|class| self.lacks_places(*class, now)).unwrap_or(SOUND);
            let Some(next) = self.lines[class].pop_front() else { break };
            self.origins[next].in_line = false;
            if self.wants_to_start(&self.origins[next], now) {
                self.place(next, now);
                self.set_ready(next);
            }
        }
    }

    /// Closes its connections and takes its place away.
    fn evict(&mut self, index: usize) {
        let origin = &mut self.origins[index];
        origin.placed_at = None;
        origin.idle.clear();
        self.placed.retain(|placed| *placed != index);
        if std::mem::take(&mut origin.is_ready) {
            self.ready.retain(|ready| *ready != index);
        }
    }

    fn find_place(&mut self, index: usize, now: Now) -> bool {
        let is_doubtful = |index: usize| self.origins[index].class(now) == DOUBTFUL;
        let is_at_bound = is_doubtful(index) && self.placed_of(DOUBTFUL, now) >= self.part(DOUBTFUL);
        if is_at_bound || self.placed.len() == self.limits.origin_count_max {
            let unused = self.placed.iter().copied().filter(|placed| {
                let origin = &self.origins[*placed];
                origin.in_flight == 0 && !origin.is_ready && (!is_at_bound || is_doubtful(*placed))
            });
            let Some(oldest) = unused.min_by_key(|placed| self.origins[*placed].last_used) else { return false };
            self.evict(oldest);
            self.forget(oldest, now);
        }
        self.place(index, now);
        true
    }

    fn place(&mut self, index: usize, now: Now) {
        self.origins[index].placed_at = Some(now.at);
        self.placed.push(index);
    }

    fn set_ready(&mut self, index: usize) {
        self.origins[index].is_ready = true;
        self.ready.push_back(index);
    }

    fn look(&mut self, index: usize, at: Instant) {
        let origin = &mut self.origins[index];
        if origin.look_at.is_none_or(|earlier| at < earlier) {
            origin.look_at = Some(at);
            self.add_timer(at, index, None);
        }
    }

    fn add_timer(&mut self, due: Instant, origin: usize, item: Option<(usize, T)>) {
        self.sequence += 1;
        self.timers.push(Reverse(Timer { due, sequence: self.sequence, origin, item }));
    }

    /// Forgets an origin of which nothing is to be known any more.
    fn forget(&mut self, index: usize, now: Now) {
        let origin = &self.origins[index];
        if !origin.is_idle() || origin.placed_at.is_some() {
            return;
        }
        let is_recent = now.at.saturating_duration_since(origin.last_used) < REMEMBERED_FOR;
        let worth_remembering = origin.gate.opens_at(now).is_some() || (origin.has_answered && is_recent);
        let is_room = self.origins.len() <= self.held() + self.placed.len() + REMEMBERED_MAX;
        if worth_remembering && is_room {
            return;
        }
        if origin.in_line {
            self.lines.iter_mut().for_each(|line| line.retain(|waiting| *waiting != index));
        }
        let origin = self.origins.remove(index);
        self.ids.remove(&origin.name);
    }

    /// Checks what must hold between two calls.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let mut held = [0; LEVELS];
        let mut in_timers = HashMap::<usize, usize>::new();
        for Reverse(timer) in &self.timers {
            *in_timers.entry(timer.origin).or_default() += usize::from(timer.item.is_some());
        }
        for (index, origin) in &self.origins {
            (0..LEVELS).for_each(|level| held[level] += origin.held[level]);
            let queued = origin.fresh.iter().map(VecDeque::len).sum::<usize>() + origin.repeats.len();
            let waiting = in_timers.get(&index).copied().unwrap_or_default();
            assert!(queued + waiting + origin.in_flight <= origin.held.iter().sum(), "held counts all");
            assert_eq!(origin.placed_at.is_some(), self.placed.contains(&index));
            assert_eq!(origin.is_ready, self.ready.contains(&index));
            let in_line = self.lines.iter().flatten().filter(|waiting| **waiting == index).count();
            assert_eq!(usize::from(origin.in_line), in_line);
            assert!(origin.placed_at.is_some() || origin.connection_count() == 0, "connections need a place");
            assert!(origin.placed_at.is_some() || !origin.is_ready, "only who has a place is ready");
            assert!(origin.connection_count() <= origin.attempt_count_max);
            assert_eq!(self.ids[&origin.name], index);
        }
        assert_eq!((held, self.ids.len()), (self.held, self.origins.len()));
        assert!(self.placed.len() <= self.limits.origin_count_max);
        assert!(held.iter().all(|held| *held <= self.level_max()), "{held:?}");
        assert!(self.ready.len() <= self.placed.len());
    }
}

/// Moves the items of a queue that are over behind those that were before.
fn take_out<Q, T, R>(
    queue: &mut VecDeque<Q>,
    over: &mut Vec<(T, R)>,
    why_over: &mut impl FnMut(&Q) -> Option<R>,
    mut into_item: impl FnMut(Q) -> T,
) {
    for _ in 0..queue.len() {
        let Some(queued) = queue.pop_front() else { break };
        match why_over(&queued) {
            Some(why) => over.push((into_item(queued), why)),
            None => queue.push_back(queued),
        }
    }
}

impl<T, C> Origin<T, C> {
    fn new(name: Name, attempt_count_max: usize, now: Now) -> Self {
        Self {
            name,
            attempt_count_max,
            fresh: Default::default(),
            turns: Turns::new(),
            repeats: VecDeque::new(),
            broke_until: now.at,
            held: [0; LEVELS],
            in_flight: 0,
            busy_since: now.at,
            idle: Vec::new(),
            gate: Gate::new(),
            budget: RetryBudget::new(now.unix),
            held_max: [None; LEVELS],
            heard_at: now.at,
            quiet_since: now.at,
            paused_since: None,
            has_answered: false,
            has_failed: false,
            failure: None,
            fails_alone: false,
            asks_too_long: false,
            last_used: now.at,
            placed_at: None,
            is_ready: false,
            in_line: false,
            look_at: None,
        }
    }

    /// The next to be sent: a repeat if it can be paid for, else a fresh one.
    fn take(&mut self, now: Now) -> Option<(usize, T)> {
        if !self.repeats.is_empty() && now.at >= self.broke_until {
            if self.budget.try_spend(now.unix) {
                return self.repeats.pop_front();
            }
            self.broke_until = now.at + BUDGET_PAUSE;
        }
        let (fresh, mut taken) = (&mut self.fresh, None);
        self.turns.take(1, &mut |level, wanted| {
            let item = if wanted == 0 { None } else { fresh[level].pop_front() };
            let count = usize::from(item.is_some());
            taken = item.map(|item| (level, item)).or_else(|| taken.take());
            count
        });
        taken
    }

    /// Whether something may be taken, were the gate open and a connection free.
    fn has_queued(&self, now: Now) -> bool {
        let has_repeat = !self.repeats.is_empty() && now.at >= self.broke_until;
        has_repeat || self.fresh.iter().any(|queue| !queue.is_empty())
    }

    /// When it may be able to start something that it cannot start now.
    fn wakes_at(&self, now: Now) -> Option<Instant> {
        let repeats = (!self.repeats.is_empty() && now.at < self.broke_until).then_some(self.broke_until);
        self.gate.opens_at(now).or(repeats)
    }

    /// Whether nothing is held for it.
    fn is_idle(&self) -> bool {
        self.held.iter().all(|held| *held == 0)
    }

    #[cfg(test)]
    fn connection_count(&self) -> usize {
        self.in_flight + self.idle.len()
    }

    /// Something to be sent comes.
    fn on_queueing(&mut self, now: Now) {
        let has_none = self.in_flight == 0 && self.repeats.is_empty() && self.fresh.iter().all(VecDeque::is_empty);
        if has_none && (!self.has_failed || self.is_idle()) {
            self.on_heard(now.at, now.at);
        }
    }

    /// What an attempt that is over says about it, beside those of any origins; returns whether that was an answer.
    fn on_told(&mut self, health: Health, pause: Duration, answers: Option<Answers>, now: Now) -> bool {
        self.has_answered |= health == Health::Well;
        let is_answer = health == Health::Well || !pause.is_zero();
        if is_answer {
            let is_shut = self.asks_too_long && self.quiet_since > now.at;
            let since = self.paused_since.filter(|_| !pause.is_zero()).unwrap_or(now.at);
            self.paused_since = (!pause.is_zero()).then_some(since);
            // Who asks for longer than anybody would be waited for, at once or bit by bit, is silent after that.
            let (until, wait_until) = (now.at + pause, since + WAIT_MAX);
            self.on_heard(since, until.min(wait_until));
            (self.has_failed, self.asks_too_long) = (false, is_shut || until > wait_until);
        } else if health == Health::Failing {
            self.has_failed = true;
            // What was under way before the run may have met the end of an outage.
            let run = answers.filter(|it| it.is_going_on(now) && it.first_at <= self.busy_since).map(|it| it.first_at);
            let before = self.failure.filter(|before| run.is_none_or(|run| run == before.run));
            self.failure = before.or(run.map(|run| Failure { run, at: now.at }));
        }
        is_answer
    }

    fn on_heard(&mut self, heard_at: Instant, quiet_since: Instant) {
        self.heard_at = self.heard_at.max(heard_at);
        self.quiet_since = self.quiet_since.max(quiet_since);
        self.held_max = [None; LEVELS];
        (self.failure, self.fails_alone) = (None, false);
    }

    /// Notes if others have answered for long enough after its failure, in the same run.
    fn compare(&mut self, answers: Option<Answers>) {
        let Some((Failure { run, at }, answers)) = self.failure.zip(answers) else { return };
        let answered_for = answers.last_at.saturating_duration_since(at.max(self.quiet_since));
        self.fails_alone |= answers.first_at == run && answered_for >= GRACE;
    }

    fn class(&self, now: Now) -> usize {
        if self.has_answered && !self.gate.is_broken(now) { SOUND } else { DOUBTFUL }
    }

    /// Whether something is held for it, nothing is heard of it, and that is no outage of ours.
    fn is_dead(&self, answers: Option<Answers>, now: Now) -> bool {
        let patience = if self.has_answered { WAIT_MAX } else { GRACE };
        let is_silent = now.at.saturating_duration_since(self.quiet_since) >= patience;
        let others_since = |Answers { last_at, .. }| last_at.saturating_duration_since(self.heard_at) >= GRACE;
        let is_shut = || self.asks_too_long && self.gate.is_paused(now) && answers.is_some_and(others_since);
        !self.is_idle() && is_silent && (self.fails_alone || is_shut())
    }
}

impl Answers {
    /// One more.
    fn and_now(before: Option<Self>, now: Now) -> Self {
        let first_at = before.filter(|it| it.is_going_on(now)).map_or(now.at, |it| it.first_at);
        Self { first_at, last_at: now.at }
    }

    fn is_going_on(self, now: Now) -> bool {
        now.at.saturating_duration_since(self.last_at) <= GRACE
    }
}
