//! The state under the lake's mutex: the ring, the lines of waiting producers and consumers, and the rule for wake-ups.
//!
//! Every method is one complete step. It ends in [`State::settle`], so the invariants of [`State::check`] hold after each
//! step. A lost wake-up would break them.
//!
//! A producer that waits leaves its values here. The operation that makes room moves them into the ring, in the order of the
//! line, and wakes the producer when its last value is in. So no value waits beside room, and no producer is woken for a part
//! of its batch. A consumer is woken when there are values for it.
//!
//! What only a task that waits needs is marked `#[cold]`, so that the code that each push and each pop runs stays small.

use std::collections::VecDeque;
use std::task::{Poll, Waker};
use std::{mem, slice};

use super::error::{Closed, PushError, TryPushError};
use crate::bounds::{Bounds, Full, Rejected};
use crate::ring::Ring;

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
    /// No operation replaces or removes more than one.
    spent: Option<Waker>,
}

impl Wakes {
    #[inline]
    pub(super) const fn new() -> Self {
        Self { due: Few::new(), spent: None }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.due.first.is_none() && self.spent.is_none()
    }

    #[cold]
    pub(super) fn call(self) {
        let Few { first, rest } = self.due;
        first.into_iter().chain(rest).for_each(Waker::wake);
    }
}

/// A consumer in line.
struct WaitingConsumer {
    id: u64,
    demand: usize,
    /// `None` after a wake-up, until it polls again or leaves.
    waker: Option<Waker>,
}

/// A producer in line. What is left of its batch goes back to its future when the future is dropped.
struct WaitingProducer<T> {
    id: u64,
    /// Never empty. A deque, because values leave it from the front, often one by one.
    rest: VecDeque<T>,
    waker: Waker,
}

/// A producer whose wait has ended, until its future is polled or dropped.
struct EndedProducer<T> {
    id: u64,
    /// What was not put in. If that is nothing, its memory still goes back to the batch.
    rest: VecDeque<T>,
    result: Result<(), PushError>,
}

pub(super) struct State<T> {
    pub(super) ring: Ring<T>,
    closed: bool,
    /// The longest waiting first. Woken consumers stay without a waker until they poll or leave.
    consumers: VecDeque<WaitingConsumer>,
    /// Invariant: the number of consumers with a waker.
    consumers_asleep: usize,
    /// In order of arrival.
    producers: VecDeque<WaitingProducer<T>>,
    ended: Vec<EndedProducer<T>>,
    id_next: u64,
}

impl<T> State<T> {
    pub(super) fn new(ring: Ring<T>) -> Self {
        let (consumers, producers) = Default::default();
        Self { ring, closed: false, consumers, consumers_asleep: 0, producers, ended: Vec::new(), id_next: 0 }
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
        self.settle(wakes);
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
        self.settle(wakes);
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
        self.settle(wakes);
        Ok(())
    }

    /// Puts in all of `batch` if it fits and no producer waits. Otherwise changes nothing. Returns whether the batch is empty.
    #[inline]
    pub(super) fn push_at_once(&mut self, batch: &mut Vec<T>, wakes: &mut Wakes) -> bool {
        if !self.closed && self.producers.is_empty() && self.ring.append_all(batch) {
            self.settle(wakes);
        }
        batch.is_empty()
    }

    /// Puts in the values that fit, if no producer waits, and makes the producer wait with the others.
    #[cold]
    pub(super) fn poll_push(
        &mut self,
        ticket: &mut Option<u64>,
        batch: &mut Vec<T>,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Poll<Result<(), PushError>> {
        if let Some(id) = *ticket {
            let ended = self.poll_wait(id, batch, waker, wakes);
            ticket.take_if(|_| ended.is_ready());
            return ended;
        }
        let mut rest = VecDeque::from(mem::take(batch));
        let is_next = self.closed || self.producers.is_empty();
        let ended = is_next.then(|| fill(&mut self.ring, self.closed, &mut rest)).flatten();
        if ended.is_some() {
            *batch = rest.into();
        } else {
            let id = *ticket.insert(self.next_id());
            self.producers.push_back(WaitingProducer { id, rest, waker: waker.clone() });
        }
        self.settle(wakes);
        ended.map_or(Poll::Pending, Poll::Ready)
    }

    /// The result of a producer, if its wait has ended. Otherwise renews its waker.
    fn poll_wait(
        &mut self,
        id: u64,
        batch: &mut Vec<T>,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Poll<Result<(), PushError>> {
        let Some(producer) = self.producers.iter_mut().find(|producer| producer.id == id) else {
            let result = self.take_ended(id, batch);
            return Poll::Ready(result.expect("a producer with a ticket waits, or its wait has ended"));
        };
        if !producer.waker.will_wake(waker) {
            wakes.spent = Some(mem::replace(&mut producer.waker, waker.clone()));
        }
        Poll::Pending
    }

    /// Gives a producer whose wait has ended its result, and what is left of its batch.
    fn take_ended(&mut self, id: u64, batch: &mut Vec<T>) -> Option<Result<(), PushError>> {
        let index = self.ended.iter().position(|ended| ended.id == id)?;
        let ended = self.ended.swap_remove(index);
        *batch = ended.rest.into();
        Some(ended.result)
    }

    /// Removes a producer whose future was dropped, and gives back what is left of its batch.
    pub(super) fn leave(&mut self, id: u64, batch: &mut Vec<T>, wakes: &mut Wakes) {
        self.take_ended(id, batch);
        if let Some(index) = self.producers.iter().position(|producer| producer.id == id)
            && let Some(WaitingProducer { rest, waker, .. }) = self.producers.remove(index)
        {
            *batch = rest.into();
            wakes.spent = Some(waker);
        }
        self.settle(wakes);
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
            self.wait(id, demand, waker, wakes);
            return Poll::Pending;
        }
        self.remove_consumer(id, wakes);
        let count = self.take(demand, out, wakes);
        if count == 0 && !self.is_finished() { Poll::Pending } else { Poll::Ready(count) }
    }

    /// Takes values for a consumer, which then leaves the line. Changes nothing if there are none.
    #[inline]
    pub(super) fn take_at_once(&mut self, id: u64, demand: usize, out: &mut Vec<T>, wakes: &mut Wakes) -> usize {
        if self.ring.is_empty() {
            return 0;
        }
        if !self.consumers.is_empty() {
            self.remove_consumer(id, wakes);
        }
        self.take(demand, out, wakes)
    }

    #[inline]
    pub(super) fn take(&mut self, demand: usize, out: &mut Vec<T>, wakes: &mut Wakes) -> usize {
        let count = self.ring.pop_batch(demand, out);
        self.settle(wakes);
        count
    }

    #[inline]
    pub(super) fn pop(&mut self, wakes: &mut Wakes) -> Option<T> {
        let value = self.ring.pop();
        self.settle(wakes);
        value
    }

    /// Removes a consumer. If it was woken, the next one is woken.
    pub(super) fn withdraw(&mut self, id: u64, wakes: &mut Wakes) {
        self.remove_consumer(id, wakes);
        self.settle(wakes);
    }

    /// Adds a consumer at the end of the line, or renews its demand and waker at its place.
    #[cold]
    fn wait(&mut self, id: u64, demand: usize, waker: &Waker, wakes: &mut Wakes) {
        let Some(consumer) = self.consumers.iter_mut().find(|consumer| consumer.id == id) else {
            self.consumers_asleep += 1;
            return self.consumers.push_back(WaitingConsumer { id, demand, waker: Some(waker.clone()) });
        };
        consumer.demand = demand;
        self.consumers_asleep += usize::from(consumer.waker.is_none());
        if !consumer.waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            wakes.spent = consumer.waker.replace(waker.clone());
        }
    }

    #[cold]
    fn remove_consumer(&mut self, id: u64, wakes: &mut Wakes) {
        if let Some(index) = self.consumers.iter().position(|consumer| consumer.id == id) {
            let consumer = self.consumers.remove(index);
            if let Some(waker) = consumer.and_then(|consumer| consumer.waker) {
                self.consumers_asleep -= 1;
                wakes.spent = Some(waker);
            }
        }
    }

    pub(super) fn close(&mut self, wakes: &mut Wakes) {
        self.closed = true;
        self.settle(wakes);
    }

    pub(super) fn discard(&mut self, wakes: &mut Wakes) -> VecDeque<T> {
        let values = self.ring.discard();
        self.settle(wakes);
        values
    }

    pub(super) fn set_bounds(&mut self, bounds: Bounds, lost: &mut Few<T>, wakes: &mut Wakes) -> usize {
        let evicted = self.ring.set_bounds_with(bounds, |value| lost.push(value));
        self.settle(wakes);
        evicted
    }

    /// Lets producers in, and wakes the producers and consumers that the invariants require.
    #[inline]
    fn settle(&mut self, wakes: &mut Wakes) {
        if !self.producers.is_empty() {
            self.settle_producers(wakes);
        }
        if self.consumers_asleep > 0 {
            self.settle_consumers(wakes);
        }
    }

    /// Puts in the values of waiting producers, in the order of the line, until one does not fit. Wakes each producer whose
    /// wait ends.
    #[cold]
    fn settle_producers(&mut self, wakes: &mut Wakes) {
        while let Some(first) = self.producers.front_mut()
            && let Some(result) = fill(&mut self.ring, self.closed, &mut first.rest)
            && let Some(WaitingProducer { id, rest, waker }) = self.producers.pop_front()
        {
            self.ended.push(EndedProducer { id, rest, result });
            wakes.due.push(waker);
        }
    }

    /// Wakes consumers until their demand covers the held values, or all of them if the lake is finished.
    #[cold]
    fn settle_consumers(&mut self, wakes: &mut Wakes) {
        let everybody = self.is_finished();
        let mut covered = self.demand_woken();
        for consumer in &mut self.consumers {
            if !everybody && covered >= self.ring.len() {
                break;
            }
            if let Some(waker) = consumer.waker.take() {
                self.consumers_asleep -= 1;
                covered = covered.saturating_add(consumer.demand);
                wakes.due.push(waker);
            }
        }
    }

    /// The demand of consumers that were woken and have not polled yet.
    fn demand_woken(&self) -> usize {
        let woken = self.consumers.iter().filter(|consumer| consumer.waker.is_none());
        woken.map(|consumer| consumer.demand).fold(0, usize::saturating_add)
    }

    /// Checks the invariants. A broken one means a lost wake-up or a lost value.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        if !self.ring.counters().is_conserved() {
            return Err("values were lost or made up");
        }
        let asleep_count = self.consumers.iter().filter(|consumer| consumer.waker.is_some()).count();
        if self.consumers_asleep != asleep_count {
            return Err("sleeping consumers are counted wrong, and perhaps not woken");
        }
        if self.demand_woken() < self.ring.len() && asleep_count > 0 {
            return Err("a consumer sleeps while there are values for it");
        }
        if self.closed && !self.producers.is_empty() || self.is_finished() && asleep_count > 0 {
            return Err("a task sleeps although the lake is closed");
        }
        let next = self.producers.front().map(|first| self.ring.weight_of(first.rest.front(), 1));
        if next.is_some_and(|bytes| self.ring.has_room(1, bytes) || !self.ring.bounds().allow(1, bytes)) {
            return Err("a producer waits although its next value fits, or never will");
        }
        Ok(())
    }
}

/// Puts in the values of a batch that fit, from the front. `None` if some are left, and can wait for room.
fn fill<T>(ring: &mut Ring<T>, is_closed: bool, batch: &mut VecDeque<T>) -> Option<Result<(), PushError>> {
    if is_closed {
        return Some(Err(Closed.into()));
    }
    let (count, bytes) = ring.fitting(batch.iter());
    ring.append(batch.drain(..count), count, bytes);
    let Some(next) = batch.front() else { return Some(Ok(())) };
    let bytes = ring.weight(next);
    ring.check_size(1, bytes).err().map(|error| Err(PushError::TooLarge(error)))
}
