//! The lake: a bounded queue between producers with batches and consumers with demand.
//!
//! A lake is a [`Ring`] that tasks and threads share. Producers hand values in; when there is no room, they wait or do
//! not, as they choose. Each [`Consumer`] says how many values it can use now, its *demand*, and receives at most that
//! many at once. Work is pulled, never pushed at a consumer without room. Values leave in the order in which they came
//! in, over all producers.
//!
//! ```text
//! producers (FIFO)                                       consumers (FIFO)
//!   push_batch ─┐   ┌──────────────────────────────┐  ┌─► poll_take(demand)
//!   push_batch ─┼─► │ ring, within its bounds      │ ─┼─► poll_take(demand)
//!   push ───────┘   └──────────────────────────────┘  └─► pop
//! ```
//!
//! **Which tasks are woken.** As few consumers as can use the held values: the longest waiting first, until the demands
//! of the woken ones cover the values. If a woken consumer is dropped, or withdraws with a demand of 0, the next one is
//! woken.
//!
//! A producer that waits leaves its values with the lake. The operation that makes room, for example a take, puts them in:
//! as soon as they fit, and in the order in which the producers came. So a batch of many parts stays together, no value
//! waits beside room for it, and a producer whose task does not run holds up no other. The producer is woken once, when
//! its last value is in.
//!
//! Full: [`Lake::push_batch`] waits; [`Lake::try_push_batch`] is refused; [`Lake::push`] and [`Lake::push_all`] follow
//! the ring's policy ([`crate::Full`]). None of them overtakes waiting producers, with one exception: a producer that
//! evicts makes its own room. So do not mix waiting and evicting on one lake: the evicting producers may keep it full,
//! and then the others wait for ever.
//!
//! Bounds can change at any time, as in a ring: under `EvictOldest`, values that no longer fit are dropped. Otherwise
//! they stay until they are taken.
//!
//! Closed: producers are refused and keep their values. Consumers get the held values, and then 0 from
//! [`Consumer::poll_take`]. Counters: accepted = delivered + dropped + held, always.
//!
//! Waiting lists have one entry per consumer and per future of a waiting producer, so the number of tasks bounds them.
//!
//! **Threads.** One mutex guards everything; each operation is one short critical section. Wakers are called, and
//! wakers and lost values are dropped, after the section, because that is foreign code that may call the lake again.
//! Only the ring's weigher, a waker's `clone`, and for a snapshot the values' `Clone` run inside. So interleavings are
//! sequences of whole operations, which the model test explores. Loom checks that this is true, and that no wake-up is
//! lost between threads. No runtime is needed.

mod error;
mod state;
#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

pub use error::{Closed, PushError, TryPushError};
use state::{Few, State, Wakes};

use crate::bounds::{Bounds, Counters, Full, Rejected};
use crate::ring::Ring;
use crate::sync::{Mutex, lock};

/// A bounded first-in first-out queue with demand, shared by reference or [`Arc`].
///
/// ```
/// use std::sync::Arc;
/// use tidings_buffer::{Consumer, Full, Lake, Ring};
///
/// let lake = Arc::new(Lake::new(100)); // Full: reject, or wait.
/// lake.try_push_batch(&mut vec![1, 2, 3])?;
/// lake.push(4)?;
/// let mut consumer = Consumer::new(Arc::clone(&lake));
/// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
/// #     let future = std::pin::pin!(future);
/// #     let std::task::Poll::Ready(output) = future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
/// #     else { panic!("it waits") };
/// #     output
/// # }
/// # block_on(async {
/// let mut values = Vec::new();
/// consumer.take(2, &mut values).await;
/// assert_eq!(values, [1, 2]);
/// # });
/// assert_eq!(lake.counters().held, 2);
///
/// // With another policy, and all memory taken at once:
/// let mut ring = Ring::new(100, Full::EvictOldest);
/// ring.reserve();
/// let lake = Lake::from(ring);
/// # lake.push(1)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lake<T> {
    state: Mutex<State<T>>,
}

impl<T> From<Ring<T>> for Lake<T> {
    /// Shares a ring, with its bounds, policy, weigher, memory and values.
    fn from(ring: Ring<T>) -> Self {
        Self { state: Mutex::new(State::new(ring)) }
    }
}

impl<T> Lake<T> {
    /// An empty lake for at most `capacity` values, with [`Full::Reject`] as policy of [`Lake::push`]. Memory grows as it
    /// fills, up to `capacity` × the size of `T`. For other settings make a [`Ring`], and a lake from it.
    ///
    /// # Panics
    /// When `capacity` is 0.
    pub fn new(capacity: usize) -> Self {
        Self::from(Ring::new(capacity, Full::Reject))
    }

    /// The most values it can hold.
    pub fn capacity(&self) -> usize {
        self.bounds().count_max
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.locked(|state, _| state.ring.bounds())
    }

    /// Changes the most values it can hold, and returns how many were evicted. See [`Ring::set_bounds`].
    ///
    /// # Panics
    /// When `count_max` is 0.
    pub fn set_capacity(&self, count_max: usize) -> usize {
        assert!(count_max > 0, "a buffer holds at least one value");
        self.change_bounds(|bounds| Bounds { count_max, ..bounds })
    }

    /// Changes the bounds, and returns how many values were evicted because they no longer fit. Only
    /// [`Full::EvictOldest`] evicts. See [`Ring::set_bounds`].
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds(&self, bounds: impl Into<Bounds>) -> usize {
        let bounds = bounds.into().check();
        self.change_bounds(|_| bounds)
    }

    fn change_bounds(&self, change: impl FnOnce(Bounds) -> Bounds) -> usize {
        self.locked_losing(|state, lost, wakes| state.set_bounds(change(state.ring.bounds()), lost, wakes))
    }

    /// Puts one value in without waiting. Returns how many values were lost under the lake's policy: the evicted ones, or 1
    /// if the value itself was dropped.
    ///
    /// # Errors
    /// The value is returned if the lake is closed, if the value is heavier than the bounds allow, and under
    /// [`Full::Reject`] if there is no room or producers wait in line.
    #[inline]
    pub fn push(&self, value: T) -> Result<usize, Rejected<T, TryPushError>> {
        self.locked_losing(|state, lost, wakes| state.push(value, lost, wakes))
    }

    /// Puts in all of `batch` without waiting and leaves it empty, or puts in nothing. Returns how many values were lost
    /// under the lake's policy: the evicted ones, or the whole batch.
    ///
    /// # Errors
    /// The batch is unchanged if the lake is closed, if the batch does not fit into an empty lake, and under
    /// [`Full::Reject`] if there is no room or producers wait in line.
    pub fn push_all(&self, batch: &mut Vec<T>) -> Result<usize, TryPushError> {
        self.locked_losing(|state, lost, wakes| state.push_all(batch, lost, wakes))
    }

    /// Puts in all of `batch` and waits for room. Values go in from the front as room becomes free.
    ///
    /// Resolves when all values are in. An empty batch resolves at once, also on a closed lake. While the future waits, later
    /// producers wait behind it until it ends or is dropped. The lake keeps the values meanwhile, and puts them in whether or
    /// not the future is polled.
    ///
    /// # Errors
    /// [`PushError::Closed`] if the lake is closed before, [`PushError::TooLarge`] if the next value is heavier than the
    /// bounds allow. The remaining values are still in `batch`.
    ///
    /// # Cancel safety
    /// Cancel safe: once the future is dropped, `batch` has exactly the values that were not put in. Calling it again goes on
    /// with the rest, at the end of the line.
    pub fn push_batch<'a>(&'a self, batch: &'a mut Vec<T>) -> PushBatch<'a, T> {
        PushBatch { lake: self, batch, ticket: None }
    }

    /// Puts in all of `batch` and leaves it empty, or puts in nothing, under any policy.
    ///
    /// # Errors
    /// [`TryPushError::NoRoom`] if the whole batch does not fit now, [`TryPushError::InLine`] if other producers wait,
    /// [`TryPushError::Closed`] after [`Lake::close`].
    pub fn try_push_batch(&self, batch: &mut Vec<T>) -> Result<(), TryPushError> {
        self.locked(|state, wakes| state.try_push(batch, wakes))
    }

    /// Takes the oldest value without waiting.
    #[inline]
    pub fn pop(&self) -> Option<T> {
        self.locked(|state, wakes| state.pop(wakes))
    }

    /// Takes up to `demand` values into `out` without waiting, and returns how many.
    pub fn try_take(&self, demand: usize, out: &mut Vec<T>) -> usize {
        self.locked(|state, wakes| state.take(demand, out, wakes))
    }

    /// Accepts no more values. Waiting producers are refused. Held values can still be taken.
    pub fn close(&self) {
        self.locked(|state, wakes| state.close(wakes));
    }

    /// Whether it is closed and empty.
    pub fn is_finished(&self) -> bool {
        self.locked(|state, _| state.is_finished())
    }

    /// Drops all held values, and returns their number.
    pub fn discard(&self) -> usize {
        // The values are dropped here, outside of the lock: their `Drop` is foreign code.
        self.locked(|state, wakes| state.discard(wakes)).len()
    }

    /// A copy of the held values, oldest first. The values are cloned under the lock. So use it for values with a cheap
    /// `Clone`, or rarely.
    pub fn snapshot(&self) -> Vec<T>
    where
        T: Clone,
    {
        self.locked(|state, _| state.ring.snapshot())
    }

    /// The counters, read at one moment.
    pub fn counters(&self) -> Counters {
        self.locked(|state, _| state.ring.counters())
    }

    /// The bytes of the held values.
    pub fn bytes(&self) -> usize {
        self.locked(|state, _| state.ring.bytes())
    }

    /// How many values were rejected so far for lack of room. The other counters do not contain them. Waiting producers and
    /// values that a closed lake refuses are not counted.
    pub fn rejected(&self) -> u64 {
        self.locked(|state, _| state.ring.rejected())
    }

    /// Runs a critical section, and then calls the wakers that it has chosen.
    #[inline]
    fn locked<R>(&self, section: impl FnOnce(&mut State<T>, &mut Wakes) -> R) -> R {
        let mut wakes = Wakes::new();
        let result = {
            // Only the `Clone` of a value may panic inside, and it runs while nothing changes. A weigher must not panic. So a
            // poisoned lock is harmless.
            let mut state = lock(&self.state);
            let result = section(&mut state, &mut wakes);
            debug_assert!(state.check().is_ok(), "{:?}", state.check());
            result
        };
        match wakes.is_empty() {
            true => mem::forget(wakes), // To look for what to drop would take a tenth of a push.
            false => wakes.call(),
        }
        result
    }

    /// As [`Self::locked`], for a section that loses values. They are dropped after it.
    #[inline]
    fn locked_losing<R>(&self, section: impl FnOnce(&mut State<T>, &mut Few<T>, &mut Wakes) -> R) -> R {
        let mut lost = Few::new();
        self.locked(|state, wakes| section(state, &mut lost, wakes))
    }
}

impl<T> fmt::Debug for Lake<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bounds, counters) = self.locked(|state, _| (state.ring.bounds(), state.ring.counters()));
        f.debug_struct("Lake").field("bounds", &bounds).field("counters", &counters).finish()
    }
}

/// A consumer of values, with its own place in the line. Make one per task. Dropping it leaves the line.
pub struct Consumer<T> {
    lake: Arc<Lake<T>>,
    id: u64,
}

impl<T> Consumer<T> {
    /// A consumer of `lake` that does not wait yet.
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
    /// `Ready(n)` with n ≥ 1: n values were appended. `Ready(0)`: the lake is closed and empty. `Pending`: the task is woken
    /// when there are values for it. With a `demand` of 0, the consumer takes nothing and leaves the line. It must do so if
    /// it can use no values for a while: a woken consumer that does not come back delays values that others could use.
    pub fn poll_take(&mut self, cx: &mut Context<'_>, demand: usize, out: &mut Vec<T>) -> Poll<usize> {
        self.lake.locked(|state, wakes| state.poll_take(self.id, demand, cx.waker(), out, wakes))
    }

    /// Takes up to `demand` values into `out`, and waits for the first. Returns 0 if the lake is closed and empty.
    ///
    /// # Panics
    /// When `demand` is 0, because it would wait for ever.
    ///
    /// # Cancel safety
    /// Cancel safe: values are taken only when the future resolves, and a dropped future leaves the line.
    pub fn take<'a>(&'a mut self, demand: usize, out: &'a mut Vec<T>) -> Take<'a, T> {
        assert!(demand > 0, "a demand of 0 is never met");
        Take { consumer: self, demand, out, waits: false }
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
    /// It is in line. Otherwise a drop need not take the lock.
    waits: bool,
}

impl<T> Future for Take<'_, T> {
    type Output = usize;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        let this = &mut *self;
        // Mostly there are values, and this way to them is the shortest.
        let Consumer { lake, id } = &*this.consumer;
        let count = lake.locked(|state, wakes| state.take_at_once(*id, this.demand, this.out, wakes));
        if count > 0 {
            this.waits = false;
            return Poll::Ready(count);
        }
        let taken = this.consumer.poll_take(cx, this.demand, this.out);
        this.waits = taken.is_pending();
        taken
    }
}

impl<T> Drop for Take<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            self.consumer.lake.locked(|state, wakes| state.withdraw(self.consumer.id, wakes));
        }
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
    type Output = Result<(), PushError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PushError>> {
        let this = &mut *self;
        // Mostly there is room, and this way in is the shortest.
        if this.ticket.is_none() && this.lake.locked(|state, wakes| state.push_at_once(this.batch, wakes)) {
            return Poll::Ready(Ok(()));
        }
        this.lake.locked(|state, wakes| state.poll_push(&mut this.ticket, this.batch, cx.waker(), wakes))
    }
}

impl<T> Drop for PushBatch<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.lake.locked(|state, wakes| state.leave(ticket, self.batch, wakes));
        }
    }
}
