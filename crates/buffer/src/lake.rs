//! The lake: a bounded queue between producers with batches and consumers with demand.
//!
//! Producers hand in batches and wait when there is no room. Each [`Consumer`] says how many values it can use now,
//! its *demand*, and receives at most that many in one go: work is pulled, never pushed at somebody without room for it.
//! Values leave in the order in which they came in, over all producers.
//!
//! ```text
//! producers (FIFO)                                       consumers (FIFO)
//!   push_batch ─┐   ┌──────────────────────────────┐  ┌─► poll_take(demand)
//!   push_batch ─┼─► │ at most `capacity` values    │ ─┼─► poll_take(demand)
//!   push_batch ─┘   └──────────────────────────────┘  └─► poll_take(demand)
//! ```
//!
//! **Who is woken.** As few consumers as can use what is held: the longest waiting first, until the demands of the
//! woken ones cover it. A woken consumer that goes away, or withdraws by asking for 0, passes its wake-up on. Of the
//! producers only the first in line hands in, and it is woken when its rest fits or an eighth of the capacity is free,
//! so that a large batch does not trickle in value by value. A batch of many parts therefore stays one piece.
//!
//! Queue: `capacity` values. Full: producers wait (`push_batch`) or are refused (`try_push_batch`). Closed: producers
//! are refused and keep what is not handed in; consumers get what is held, then [`Lake::poll_take`]'s 0.
//! Counters: accepted = delivered + dropped + held, always.
//!
//! Waiting lists hold one entry per consumer and per waiting producer future, so the tasks that exist bound them.
//!
//! **Threads.** One mutex guards everything; each operation is one short critical section in which no foreign code
//! runs: wakers are called, and values dropped, after it. Interleavings are therefore sequences of whole operations,
//! which is what the model test in `lake/tests.rs` explores. No runtime is needed.

mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use state::{State, Wakes};

/// A bounded first-in first-out queue with demand; see the module's text.
pub struct Lake<T> {
    state: Mutex<State<T>>,
    capacity: usize,
}

/// The lake takes no more values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lake is closed")]
pub struct Closed;

/// Why [`Lake::try_push_batch`] handed nothing in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryPushError {
    /// Not enough room for the whole batch, or other producers were there first.
    #[error("no room for a batch of {count}: {held} of {capacity} values are held and {waiting} producers wait")]
    Full {
        /// Values in the batch.
        count: usize,
        /// Values held.
        held: usize,
        /// Values the lake can hold.
        capacity: usize,
        /// Producers waiting in line.
        waiting: usize,
    },
    /// The lake takes no more values.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// What went through a lake since its creation: `accepted == delivered + dropped + held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Values handed in.
    pub accepted: u64,
    /// Values handed to consumers.
    pub delivered: u64,
    /// Values thrown away by [`Lake::discard`].
    pub dropped: u64,
    /// Values waiting now.
    pub held: u64,
}

impl<T> Lake<T> {
    /// An empty lake for at most `capacity` values. Memory is taken as it fills, up to `capacity` × the size of `T`.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        assert!(capacity > 0, "a lake holds at least one value");
        Self { state: Mutex::new(State::new(capacity)), capacity }
    }

    /// How many values it can hold.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Hands in all of `batch`, waiting for room; what fits goes in as room comes, from the front.
    ///
    /// Resolves when `batch` is empty, or with [`Closed`] when the lake is closed before. An empty batch resolves at
    /// once, also on a closed lake.
    ///
    /// # Cancel safety
    /// Cancel safe: what was handed in has left `batch`, what remains in it was not handed in. Calling it again goes on
    /// with the rest, at the end of the line.
    pub fn push_batch<'a>(&'a self, batch: &'a mut Vec<T>) -> PushBatch<'a, T> {
        PushBatch { lake: self, batch, ticket: None }
    }

    /// Hands in all of `batch` and leaves it empty, or nothing.
    ///
    /// # Errors
    /// [`TryPushError::Full`] when the whole batch does not fit now or other producers wait, so that waiting ones are
    /// not overtaken; [`TryPushError::Closed`] after [`Lake::close`].
    pub fn try_push_batch(&self, batch: &mut Vec<T>) -> Result<(), TryPushError> {
        self.locked(|state, wakes| state.try_push(batch, wakes))
    }

    /// Takes up to `demand` values into `out` without waiting; returns how many.
    pub fn try_take(&self, demand: usize, out: &mut Vec<T>) -> usize {
        self.locked(|state, wakes| state.take(demand, out, wakes))
    }

    /// Takes no more values from now on. Waiting producers are refused; what is held can still be taken.
    pub fn close(&self) {
        self.locked(|state, wakes| state.close(wakes));
    }

    /// Whether it was closed and everything was taken out.
    pub fn is_finished(&self) -> bool {
        self.locked(|state, _| state.is_finished())
    }

    /// Throws away what is held and counts it as dropped; returns how many values that were.
    pub fn discard(&self) -> usize {
        // The values are dropped here, outside of the lock: their `Drop` is foreign code.
        self.locked(|state, wakes| state.discard(wakes)).len()
    }

    /// What went through so far, read at one moment.
    pub fn counters(&self) -> Counters {
        self.locked(|state, _| state.counters())
    }

    /// Runs one critical section and calls the wakers it decided on after it.
    fn locked<R>(&self, section: impl FnOnce(&mut State<T>, &mut Wakes) -> R) -> R {
        let mut wakes = Wakes::default();
        let result = {
            let mut state = self.state.lock().expect("nothing panics inside the lake's critical sections");
            let result = section(&mut state, &mut wakes);
            debug_assert!(state.check().is_ok(), "{:?}", state.check());
            result
        };
        wakes.call();
        result
    }
}

impl<T> fmt::Debug for Lake<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lake").field("capacity", &self.capacity).field("counters", &self.counters()).finish()
    }
}

/// One taker of values, with its own place among those who wait. Make one per task; dropping it gives up its place.
pub struct Consumer<T> {
    lake: Arc<Lake<T>>,
    id: u64,
}

impl<T> Consumer<T> {
    /// A consumer of `lake`; it does not wait for anything yet.
    pub fn new(lake: Arc<Lake<T>>) -> Self {
        let id = lake.locked(|state, _| state.next_id());
        Self { lake, id }
    }

    /// The lake it takes from.
    pub fn lake(&self) -> &Arc<Lake<T>> {
        &self.lake
    }

    /// Takes up to `demand` values into `out`, or waits for the first.
    ///
    /// `Ready(n)` with n ≥ 1: that many were appended. `Ready(0)`: closed and empty, nothing will ever come.
    /// `Pending`: the task is woken when there is something for it. With a `demand` of 0 nothing is taken and the
    /// consumer leaves the line, which it must do when it cannot use anything for a while: a woken consumer that does
    /// not come back holds up values that others could have had.
    pub fn poll_take(&mut self, cx: &mut Context<'_>, demand: usize, out: &mut Vec<T>) -> Poll<usize> {
        self.lake.locked(|state, wakes| state.poll_take(self.id, demand, cx.waker(), out, wakes))
    }

    /// Takes up to `demand` values into `out`, waiting for the first; 0 means closed and empty.
    ///
    /// # Panics
    /// When `demand` is 0: it would wait for ever.
    ///
    /// # Cancel safety
    /// Cancel safe: values are taken only when it resolves, and a dropped future leaves the line.
    pub fn take<'a>(&'a mut self, demand: usize, out: &'a mut Vec<T>) -> Take<'a, T> {
        assert!(demand > 0, "a demand of 0 is never met");
        Take { consumer: self, demand, out }
    }
}

impl<T> Drop for Consumer<T> {
    fn drop(&mut self) {
        self.lake.locked(|state, wakes| state.withdraw(self.id, wakes));
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("id", &self.id).field("lake", &self.lake).finish()
    }
}

/// The future of [`Consumer::take`].
#[must_use = "futures do nothing unless awaited"]
pub struct Take<'a, T> {
    consumer: &'a mut Consumer<T>,
    demand: usize,
    out: &'a mut Vec<T>,
}

impl<T> Future for Take<'_, T> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let this = &mut *self;
        this.consumer.poll_take(cx, this.demand, this.out)
    }
}

impl<T> Drop for Take<'_, T> {
    fn drop(&mut self) {
        self.consumer.lake.locked(|state, wakes| state.withdraw(self.consumer.id, wakes));
    }
}

/// The future of [`Lake::push_batch`].
#[must_use = "futures do nothing unless awaited"]
pub struct PushBatch<'a, T> {
    lake: &'a Lake<T>,
    batch: &'a mut Vec<T>,
    ticket: Option<u64>,
}

impl<T> Future for PushBatch<'_, T> {
    type Output = Result<(), Closed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), Closed>> {
        let this = &mut *self;
        this.lake.locked(|state, wakes| state.poll_push(&mut this.ticket, this.batch, cx.waker(), wakes))
    }
}

impl<T> Drop for PushBatch<'_, T> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.lake.locked(|state, wakes| state.leave(ticket, wakes));
        }
    }
}
