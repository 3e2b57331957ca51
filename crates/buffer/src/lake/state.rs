//! What the lake's mutex guards: the values, the two lines of those who wait, and the rule who is woken.
//!
//! Every method is one whole step. It ends in [`State::settle_wakes`], so that after each step the invariants of
//! [`State::check`] hold; a lost wake-up would be a state that breaks them.

use std::collections::VecDeque;
use std::task::{Poll, Waker};

use super::{Closed, Counters, TryPushError};

/// The producer at the head of the line is woken when this part of the capacity is free, or its whole rest fits.
const ROOM_DIVISOR: usize = 8;

/// Wakers to call once the lock is released.
#[derive(Default)]
pub(super) struct Wakes(Vec<Waker>);

impl Wakes {
    pub(super) fn call(self) {
        self.0.into_iter().for_each(Waker::wake);
    }
}

/// Somebody in a line: how many values it wants to take or hand in, and how to wake it.
struct Waiter {
    id: u64,
    count: usize,
    /// `None` after it was woken, until it polls again or leaves.
    waker: Option<Waker>,
}

pub(super) struct State<T> {
    values: VecDeque<T>,
    capacity: usize,
    closed: bool,
    accepted: u64,
    delivered: u64,
    dropped: u64,
    /// Longest waiting first. Woken ones stay, marked by their missing waker, until they poll or leave.
    consumers: VecDeque<Waiter>,
    /// In order of arrival; only the first hands in.
    producers: VecDeque<Waiter>,
    id_next: u64,
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            values: VecDeque::new(),
            capacity,
            closed: false,
            accepted: 0,
            delivered: 0,
            dropped: 0,
            consumers: VecDeque::new(),
            producers: VecDeque::new(),
            id_next: 0,
        }
    }

    pub(super) fn next_id(&mut self) -> u64 {
        self.id_next += 1;
        self.id_next
    }

    pub(super) fn is_finished(&self) -> bool {
        self.closed && self.values.is_empty()
    }

    pub(super) fn counters(&self) -> Counters {
        let Self { accepted, delivered, dropped, .. } = *self;
        Counters { accepted, delivered, dropped, held: self.values.len() as u64 }
    }

    pub(super) fn poll_push(
        &mut self,
        ticket: &mut Option<u64>,
        batch: &mut Vec<T>,
        waker: &Waker,
        wakes: &mut Wakes,
    ) -> Poll<Result<(), Closed>> {
        let result = self.push_some(*ticket, batch);
        if result.is_none() {
            let id = *ticket.get_or_insert_with(|| self.next_id());
            wait(&mut self.producers, id, batch.len(), waker);
        } else if let Some(id) = ticket.take() {
            self.producers.retain(|producer| producer.id != id);
        }
        self.settle_wakes(wakes);
        result.map_or(Poll::Pending, Poll::Ready)
    }

    /// Hands in what fits if it is this producer's turn; `None` when it has to wait.
    fn push_some(&mut self, ticket: Option<u64>, batch: &mut Vec<T>) -> Option<Result<(), Closed>> {
        if batch.is_empty() {
            return Some(Ok(()));
        }
        if self.closed {
            return Some(Err(Closed));
        }
        if self.producers.front().is_none_or(|first| Some(first.id) == ticket) {
            let count = batch.len().min(self.capacity - self.values.len());
            self.values.extend(batch.drain(..count));
            self.accepted += count as u64;
        }
        batch.is_empty().then_some(Ok(()))
    }

    pub(super) fn try_push(&mut self, batch: &mut Vec<T>, wakes: &mut Wakes) -> Result<(), TryPushError> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.closed {
            return Err(Closed.into());
        }
        if !self.producers.is_empty() || batch.len() > self.capacity - self.values.len() {
            return Err(TryPushError::Full {
                count: batch.len(),
                held: self.values.len(),
                capacity: self.capacity,
                waiting: self.producers.len(),
            });
        }
        self.accepted += batch.len() as u64;
        self.values.extend(batch.drain(..));
        self.settle_wakes(wakes);
        Ok(())
    }

    /// A producer's future was dropped.
    pub(super) fn leave(&mut self, ticket: u64, wakes: &mut Wakes) {
        self.producers.retain(|producer| producer.id != ticket);
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
        if demand > 0 && self.values.is_empty() && !self.closed {
            wait(&mut self.consumers, id, demand, waker);
            return Poll::Pending;
        }
        self.consumers.retain(|consumer| consumer.id != id);
        let count = self.take(demand, out, wakes);
        if count == 0 && !self.is_finished() { Poll::Pending } else { Poll::Ready(count) }
    }

    pub(super) fn take(&mut self, demand: usize, out: &mut Vec<T>, wakes: &mut Wakes) -> usize {
        let count = demand.min(self.values.len());
        out.extend(self.values.drain(..count));
        self.delivered += count as u64;
        self.settle_wakes(wakes);
        count
    }

    /// A consumer no longer waits; if it was woken, the next one is.
    pub(super) fn withdraw(&mut self, id: u64, wakes: &mut Wakes) {
        self.consumers.retain(|consumer| consumer.id != id);
        self.settle_wakes(wakes);
    }

    pub(super) fn close(&mut self, wakes: &mut Wakes) {
        self.closed = true;
        self.settle_wakes(wakes);
    }

    pub(super) fn discard(&mut self, wakes: &mut Wakes) -> VecDeque<T> {
        let values = std::mem::take(&mut self.values);
        self.dropped += values.len() as u64;
        self.settle_wakes(wakes);
        values
    }

    /// Room for which the first producer in line is woken.
    fn room_wanted(&self, count: usize) -> usize {
        count.min((self.capacity / ROOM_DIVISOR).max(1))
    }

    /// Wakes who has to be woken for the invariants to hold.
    fn settle_wakes(&mut self, Wakes(wakes): &mut Wakes) {
        if self.closed {
            wakes.extend(self.producers.iter_mut().filter_map(|producer| producer.waker.take()));
        } else if let Some(first) = self.producers.front()
            && self.capacity - self.values.len() >= self.room_wanted(first.count)
        {
            wakes.extend(self.producers.front_mut().and_then(|first| first.waker.take()));
        }
        // The end of the lake concerns everybody; else the woken ones' demand must cover what is held.
        let everybody = self.is_finished();
        let woken = self.consumers.iter().filter(|consumer| consumer.waker.is_none());
        let mut covered: usize = woken.map(|consumer| consumer.count).fold(0, usize::saturating_add);
        for consumer in &mut self.consumers {
            if !everybody && covered >= self.values.len() {
                break;
            }
            if let Some(waker) = consumer.waker.take() {
                covered = covered.saturating_add(consumer.count);
                wakes.push(waker);
            }
        }
    }

    /// The invariants; broken ones are a lost wake-up or a lost value.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let Counters { accepted, delivered, dropped, held } = self.counters();
        let asleep = |line: &VecDeque<Waiter>| line.iter().any(|waiter| waiter.waker.is_some());
        let woken = self.consumers.iter().filter(|consumer| consumer.waker.is_none());
        let covered = woken.map(|consumer| consumer.count).fold(0, usize::saturating_add);
        if accepted != delivered + dropped + held {
            return Err("values were lost or made up");
        }
        if self.values.len() > self.capacity {
            return Err("more values are held than the capacity allows");
        }
        if covered < self.values.len() && asleep(&self.consumers) {
            return Err("a consumer sleeps while there are values for it");
        }
        if self.closed && asleep(&self.producers) || self.is_finished() && asleep(&self.consumers) {
            return Err("somebody sleeps although the lake is closed");
        }
        if let Some(first) = self.producers.front()
            && first.waker.is_some()
            && self.capacity - self.values.len() >= self.room_wanted(first.count)
        {
            return Err("the first producer sleeps while there is room for it");
        }
        Ok(())
    }
}

/// Puts somebody in line, or renews its wish in its place.
fn wait(line: &mut VecDeque<Waiter>, id: u64, count: usize, waker: &Waker) {
    match line.iter_mut().find(|waiter| waiter.id == id) {
        Some(waiter) => {
            waiter.count = count;
            match &mut waiter.waker {
                Some(old) => old.clone_from(waker), // Clones only when it is another task's.
                empty => *empty = Some(waker.clone()),
            }
        }
        None => line.push_back(Waiter { id, count, waker: Some(waker.clone()) }),
    }
}
