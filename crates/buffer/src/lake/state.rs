//! The state under the lake's mutex: the ring, the lines of waiting producers and consumers, and the rule for wake-ups.
//!
//! Every method is one complete step. It ends in [`State::settle_wakes`], so the invariants of [`State::check`] hold after
//! each step. A lost wake-up would break them.

use std::collections::VecDeque;
use std::slice;
use std::task::{Poll, Waker};

use super::error::{Closed, PushError, TryPushError};
use crate::bounds::{Bounds, Full, Rejected};
use crate::ring::Ring;

/// The first producer in line is woken when this part of the bounds is free, or its whole rest fits.
const ROOM_DIVISOR: usize = 8;

/// Items that are carried out of the lock. Mostly there is one or none, so an allocation is rarely needed.
pub(super) struct Few<T> {
    first: Option<T>,
    rest: Vec<T>,
}

impl<T> Few<T> {
    pub(super) const fn new() -> Self {
        Self { first: None, rest: Vec::new() }
    }

    pub(super) fn push(&mut self, one: T) {
        match &mut self.first {
            Some(_) => self.rest.push(one),
            none => *none = Some(one),
        }
    }
}

/// Wakers that leave the lines. Calling or dropping a waker runs foreign code, which may call this lake. So both happen
/// after the lock is released.
pub(super) struct Wakes {
    due: Few<Waker>,
    spent: Few<Waker>,
}

impl Wakes {
    pub(super) const fn new() -> Self {
        Self { due: Few::new(), spent: Few::new() }
    }

    pub(super) fn call(self) {
        let Few { first, rest } = self.due;
        first.into_iter().chain(rest).for_each(Waker::wake);
    }
}

/// A producer or consumer in a line.
struct Waiter {
    id: u64,
    wish: Wish,
    /// `None` after a wake-up, until it polls again or leaves.
    waker: Option<Waker>,
}

#[derive(Clone, Copy)]
struct Wish {
    /// Values to take or to put in.
    count: usize,
    /// The weight of the values to put in.
    bytes: usize,
    /// The weight of the first of them.
    first_bytes: usize,
}

pub(super) struct State<T> {
    pub(super) ring: Ring<T>,
    closed: bool,
    /// The longest waiting first. Woken consumers stay without a waker until they poll or leave.
    consumers: VecDeque<Waiter>,
    /// In order of arrival. Only the first puts values in.
    producers: VecDeque<Waiter>,
    id_next: u64,
}

impl<T> State<T> {
    pub(super) fn new(ring: Ring<T>) -> Self {
        Self { ring, closed: false, consumers: VecDeque::new(), producers: VecDeque::new(), id_next: 0 }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.ring.is_empty()
    }

    /// Puts in one value, under the ring's policy.
    #[inline]
    pub(super) fn push(
        &mut self,
        value: T,
        lost: &mut Few<T>,
        wakes: &mut Wakes,
    ) -> Result<usize, Rejected<T, TryPushError>> {
        match self.may_push(slice::from_ref(&value)) {
            Err(reason) => return Err(Rejected { value, reason }),
            Ok(false) => {
                lost.push(value);
                return Ok(1);
            }
            Ok(true) => {}
        }
        let pushed = self.ring.push_with(value, |value| lost.push(value));
        self.settle_wakes(wakes);
        pushed.map_err(|Rejected { value, reason }| Rejected { value, reason: reason.into() })
    }

    /// Puts in a batch, under the ring's policy.
    pub(super) fn push_all(
        &mut self,
        batch: &mut Vec<T>,
        lost: &mut Few<T>,
        wakes: &mut Wakes,
    ) -> Result<usize, TryPushError> {
        let count = batch.len();
        if !self.may_push(batch)? {
            batch.drain(..).for_each(|value| lost.push(value));
            return Ok(count);
        }
        let pushed = self.ring.push_batch_with(batch, |value| lost.push(value));
        self.settle_wakes(wakes);
        Ok(pushed?)
    }

    /// Whether the values may go into the ring now. Waiting producers are not overtaken, except under `EvictOldest`. On
    /// `false` the values are counted as dropped.
    #[inline]
    fn may_push(&mut self, values: &[T]) -> Result<bool, TryPushError> {
        if self.closed {
            return Err(Closed.into());
        }
        if self.producers.is_empty() || values.is_empty() || self.ring.full() == Full::EvictOldest {
            return Ok(true);
        }
        let count = values.len();
        self.ring.check_size(count, self.ring.weight_of(values, count))?;
        if self.ring.full() == Full::Reject {
            return Err(self.in_line(count));
        }
        self.ring.shed(count);
        Ok(false)
    }

    fn in_line(&mut self, count: usize) -> TryPushError {
        self.ring.hand_back(count);
        TryPushError::InLine { count, waiting: self.producers.len() }
    }

    pub(super) fn try_push(&mut self, batch: &mut Vec<T>, wakes: &mut Wakes) -> Result<(), TryPushError> {
        let count = batch.len();
        if count == 0 {
            return Ok(());
        }
        if self.closed {
            return Err(Closed.into());
        }
        let bytes = self.ring.weight_of(&*batch, count);
        self.ring.check_size(count, bytes)?;
        if !self.producers.is_empty() {
            return Err(self.in_line(count));
        }
        if !self.ring.has_room(count, bytes) {
            return Err(self.ring.reject(count, bytes).into());
        }
        self.ring.append(batch.drain(..), count, bytes);
        self.settle_wakes(wakes);
        Ok(())
    }

    pub(super) fn poll_push(
        &mut self,
        ticket: &mut Option<u64>,
        batch: &mut Vec<T>,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Poll<Result<(), PushError>> {
        let result = self.push_some(*ticket, batch);
        if result.is_none() {
            let id = *ticket.get_or_insert_with(|| self.next_id());
            let wish = Wish {
                count: batch.len(),
                bytes: self.ring.weight_of(&*batch, batch.len()),
                first_bytes: self.ring.weight_of(batch.first(), 1),
            };
            wait(&mut self.producers, id, wish, waker, wakes);
        } else if let Some(id) = ticket.take() {
            leave(&mut self.producers, id, wakes);
        }
        self.settle_wakes(wakes);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    /// Puts in the values that fit, if the producer is the first in line. `None` if it must wait.
    fn push_some(&mut self, ticket: Option<u64>, batch: &mut Vec<T>) -> Option<Result<(), PushError>> {
        if batch.is_empty() {
            return Some(Ok(()));
        }
        if self.closed {
            return Some(Err(Closed.into()));
        }
        if self.producers.front().is_none_or(|first| Some(first.id) == ticket) {
            let (count, bytes) = self.ring.fitting(batch);
            self.ring.append(batch.drain(..count), count, bytes);
            if let Some(next) = batch.first()
                && let Err(error) = self.ring.check_size(1, self.ring.weight(next))
            {
                return Some(Err(PushError::TooLarge(error)));
            }
        }
        batch.is_empty().then_some(Ok(()))
    }

    /// Removes a producer whose future was dropped.
    pub(super) fn leave(&mut self, ticket: u64, wakes: &mut Wakes) {
        leave(&mut self.producers, ticket, wakes);
        self.settle_wakes(wakes);
    }

    pub(super) fn poll_take(
        &mut self,
        id: u64,
        demand: usize,
        waker: &Waker,
        out: &mut Vec<T>,
        wakes: &mut Wakes,
    ) -> Poll<usize> {
        if demand > 0 && self.ring.is_empty() && !self.closed {
            wait(&mut self.consumers, id, Wish { count: demand, bytes: 0, first_bytes: 0 }, waker, wakes);
            return Poll::Pending;
        }
        leave(&mut self.consumers, id, wakes);
        let count = self.take(demand, out, wakes);
        if count == 0 && !self.is_finished() { Poll::Pending } else { Poll::Ready(count) }
    }

    pub(super) fn take(&mut self, demand: usize, out: &mut Vec<T>, wakes: &mut Wakes) -> usize {
        let count = self.ring.pop_batch(demand, out);
        self.settle_wakes(wakes);
        count
    }

    #[inline]
    pub(super) fn pop(&mut self, wakes: &mut Wakes) -> Option<T> {
        let value = self.ring.pop();
        self.settle_wakes(wakes);
        value
    }

    /// Removes a consumer. If it was woken, the next one is woken.
    pub(super) fn withdraw(&mut self, id: u64, wakes: &mut Wakes) {
        leave(&mut self.consumers, id, wakes);
        self.settle_wakes(wakes);
    }

    pub(super) fn close(&mut self, wakes: &mut Wakes) {
        self.closed = true;
        self.settle_wakes(wakes);
    }

    pub(super) fn discard(&mut self, wakes: &mut Wakes) -> VecDeque<T> {
        let values = self.ring.discard();
        self.settle_wakes(wakes);
        values
    }

    pub(super) fn set_bounds(&mut self, bounds: Bounds, lost: &mut Few<T>, wakes: &mut Wakes) -> usize {
        let evicted = self.ring.set_bounds_with(bounds, |value| lost.push(value));
        self.settle_wakes(wakes);
        evicted
    }

    /// Whether the first producer in line must be woken: its whole rest fits, or an eighth of the bounds is free, or its
    /// next value never fits. With an empty ring one of these is always true.
    fn is_first_producer_due(&self) -> bool {
        let Some(Wish { count, bytes, first_bytes }) = self.producers.front().map(|first| first.wish) else {
            return false;
        };
        let Bounds { count_max, bytes_max } = self.ring.bounds();
        let count_worth = (count_max / ROOM_DIVISOR).max(1);
        let bytes_worth = (bytes_max.unwrap_or(0) / ROOM_DIVISOR).max(first_bytes);
        self.ring.has_room(count, bytes)
            || self.ring.has_room(count_worth, bytes_worth)
            || !self.ring.bounds().allow(1, first_bytes)
    }

    /// Wakes the producers and consumers that the invariants require.
    #[inline]
    fn settle_wakes(&mut self, wakes: &mut Wakes) {
        if !self.producers.is_empty() {
            self.settle_producers(wakes);
        }
        if !self.consumers.is_empty() {
            self.settle_consumers(wakes);
        }
    }

    fn settle_producers(&mut self, wakes: &mut Wakes) {
        let count = match self.closed {
            true => self.producers.len(),
            false => usize::from(self.is_first_producer_due()),
        };
        for producer in self.producers.iter_mut().take(count) {
            producer.waker.take().into_iter().for_each(|waker| wakes.due.push(waker));
        }
    }

    /// Wakes consumers until their demand covers the held values, or all of them if the lake is finished.
    fn settle_consumers(&mut self, wakes: &mut Wakes) {
        let everybody = self.is_finished();
        let mut covered = self.demand_woken();
        for consumer in &mut self.consumers {
            if !everybody && covered >= self.ring.len() {
                break;
            }
            if let Some(waker) = consumer.waker.take() {
                covered = covered.saturating_add(consumer.wish.count);
                wakes.due.push(waker);
            }
        }
    }

    /// The demand of consumers that were woken and have not polled yet.
    fn demand_woken(&self) -> usize {
        let woken = self.consumers.iter().filter(|consumer| consumer.waker.is_none());
        woken.map(|consumer| consumer.wish.count).fold(0, usize::saturating_add)
    }

    /// Checks the invariants. A broken one means a lost wake-up or a lost value.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let asleep = |line: &VecDeque<Waiter>| line.iter().any(|waiter| waiter.waker.is_some());
        if !self.ring.counters().is_conserved() {
            return Err("values were lost or made up");
        }
        if self.demand_woken() < self.ring.len() && asleep(&self.consumers) {
            return Err("a consumer sleeps while there are values for it");
        }
        if self.closed && asleep(&self.producers) || self.is_finished() && asleep(&self.consumers) {
            return Err("a task sleeps although the lake is closed");
        }
        if self.producers.front().is_some_and(|first| first.waker.is_some()) && self.is_first_producer_due() {
            return Err("the first producer sleeps while there is room for it");
        }
        Ok(())
    }
}

/// Adds a waiter at the end of the line, or renews its wish and waker at its place.
fn wait(line: &mut VecDeque<Waiter>, id: u64, wish: Wish, waker: &Waker, wakes: &mut Wakes) {
    let Some(waiter) = line.iter_mut().find(|waiter| waiter.id == id) else {
        return line.push_back(Waiter { id, wish, waker: Some(waker.clone()) });
    };
    waiter.wish = wish;
    if !waiter.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
        waiter.waker.replace(waker.clone()).into_iter().for_each(|old| wakes.spent.push(old));
    }
}

/// Removes a waiter from the line, if it is there.
fn leave(line: &mut VecDeque<Waiter>, id: u64, wakes: &mut Wakes) {
    if let Some(index) = line.iter().position(|waiter| waiter.id == id) {
        let waiter = line.remove(index);
        waiter.and_then(|waiter| waiter.waker).into_iter().for_each(|waker| wakes.spent.push(waker));
    }
}
