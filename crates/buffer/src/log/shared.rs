//! A log for many threads: any thread appends, and every reader gets all values at its own pace.
//!
//! ```text
//!   writers                                        readers, each with a position of its own
//!   append ──────┐    ┌────────────────────────┐   ┌─► idle at the end: the next append wakes it
//!   append_batch ┼──► │ the last values, up to │ ──┼─► busy: not woken, reads on by itself
//!   append ──────┘    │ the bounds             │   └─► overtaken: gets `Lagged { missed }`, goes on at the oldest value
//!                     └────────────────────────┘
//! ```
//!
//! Writers never wait for room, because the oldest value is evicted. They wait for the lock at most while one reader copies
//! [`Reader::READ_COUNT_MAX`] values. All readers see the same order. A value stays until it is evicted, even if all readers
//! have it. So a later reader can begin with the held values.
//!
//! **Which readers are woken.** Waiting readers, each once per wait. A busy reader is not woken, and no reader is woken twice
//! before it runs. No wake-up is lost: a reader goes to sleep under the lock, and only at the end of the log.
//!
//! Bounds and full: as for [`Log`]. Closed: writers are refused and keep their values. Readers get the held values, then 0.
//! Dropping all [`SharedLog`] handles does not close the log, because each reader holds one.
//!
//! **Threads.** There is one mutex. While it is held, no waker is called and no evicted value is dropped. `T::clone` and the
//! weigher run under it. So a value should be cheap to clone (a number, an `Arc`, `Bytes`). Neither may use the log. No
//! runtime is needed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::idle::{Idle, Wakes};
use super::{KEPT_CAPACITY, Lagged, Log};
use crate::sync::{self, Mutex, MutexGuard};
use crate::{Bounds, Closed, Counters, Rejected};

/// A log for many writers and many readers.
///
/// ```
/// use std::sync::Arc;
/// use tidings_buffer::{Reader, SharedLog};
///
/// let log = Arc::new(SharedLog::new(100));
/// let mut reader = Reader::new(log.clone());
/// log.append("goal")?;
///
/// let mut news = Vec::new();
/// assert_eq!(reader.try_read(10, &mut news), Ok(1));
/// assert_eq!(news, ["goal"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedLog<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    log: Log<T>,
    idle: Idle,
    closed: bool,
    delivered: u64,
    missed: u64,
    /// A buffer for values that one step evicts, so that they are dropped outside of the lock. Empty between steps, with
    /// room for at most [`KEPT_CAPACITY`] values.
    lost: Vec<T>,
}

/// The counters of a log: `accepted == dropped + held`, always.
///
/// Reading removes no value, so `delivered` and `missed` are not part of that sum. For the [`Reader::counters`] of each
/// reader, `accepted == delivered + dropped + held`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounters {
    /// Values appended.
    pub accepted: u64,
    /// Values that were evicted by newer ones or by a change of the bounds.
    pub dropped: u64,
    /// Values in the log now.
    pub held: u64,
    /// Values that readers got, once for each reader.
    pub delivered: u64,
    /// Values that readers missed and learnt so, once for each reader.
    pub missed: u64,
}

impl<T> SharedLog<T> {
    /// An empty log within `bounds` (a number of values, or [`Bounds`]); a value weighs the size of its type.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn new(bounds: impl Into<Bounds>) -> Self {
        Self::from_log(Log::new(bounds))
    }

    /// As [`SharedLog::new`], with a function that weighs a value in bytes, always the same for the same value. It runs under
    /// the lock: it must be quick, and must not panic.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn weighed(bounds: impl Into<Bounds>, weigh: fn(&T) -> usize) -> Self {
        Self::from_log(Log::weighed(bounds, weigh))
    }

    /// Shares a log with its values, indices, bounds and counters.
    pub fn from_log(log: Log<T>) -> Self {
        let state = State { log, idle: Idle::default(), closed: false, delivered: 0, missed: 0, lost: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    /// Adds a value, returns its index, and wakes the readers that wait. The oldest values are evicted if it does not fit.
    ///
    /// # Errors
    /// The value is returned with [`Closed`] after [`SharedLog::close`].
    pub fn append(&self, value: T) -> Result<u64, Rejected<T, Closed>> {
        let (mut first, mut more) = (None, Vec::new());
        let mut state = self.lock();
        if state.closed {
            return Err(Rejected { value, reason: Closed });
        }
        let State { log, idle, lost, .. } = &mut *state;
        let index = log.append_with(value, |value| match &first {
            None => first = Some(value), // Usually the only one.
            Some(_) => lost.push(value),
        });
        if !lost.is_empty() {
            more = std::mem::take(lost);
        }
        let is_owed = idle.is_owed(index + 1);
        drop(state);
        self.finish(more, is_owed.then_some(index + 1));
        drop(first); // Dropped after the wake-ups, because its `Drop` is foreign code.
        Ok(index)
    }

    /// Adds all of `batch` in order, under consecutive indices, leaves it empty, and returns the index of its first value.
    /// Readers are woken once. If the batch is larger than the bounds, only its end is held, as if its values had come one by
    /// one.
    ///
    /// # Errors
    /// [`Closed`] after [`SharedLog::close`]. Then the batch is unchanged.
    pub fn append_batch(&self, batch: &mut Vec<T>) -> Result<u64, Closed> {
        let mut state = self.lock();
        if state.closed {
            return Err(Closed);
        }
        let State { log, idle, lost, .. } = &mut *state;
        let index = log.append_batch_with(batch, |value| lost.push(value));
        let (end, lost) = (log.end(), std::mem::take(lost));
        let is_owed = idle.is_owed(end);
        drop(state);
        self.finish(lost, is_owed.then_some(end));
        Ok(index)
    }

    /// Accepts no more values. Readers get the held values, and then the end.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake(u64::MAX);
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// The index of the first held value, or [`SharedLog::end`] if no value is held.
    pub fn base(&self) -> u64 {
        self.lock().log.base()
    }

    /// The index of the next value.
    pub fn end(&self) -> u64 {
        self.lock().log.end()
    }

    /// The bounds.
    pub fn bounds(&self) -> Bounds {
        self.lock().log.bounds()
    }

    /// Changes the bounds, and returns how many values were evicted because they no longer fit.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds(&self, bounds: impl Into<Bounds>) -> usize {
        let bounds = bounds.into().check(); // Checked before locking: a panic would poison the lock.
        let mut state = self.lock();
        let State { log, lost, .. } = &mut *state;
        let count = log.set_bounds_with(bounds, |value| lost.push(value));
        let lost = std::mem::take(lost);
        drop(state);
        self.finish(lost, None);
        count
    }

    /// Allocates all memory that the log can need within its bounds. Then no append allocates, except one that evicts more
    /// than 64 values at once.
    pub fn reserve(&self) {
        self.lock().log.reserve();
    }

    /// The counters, read at one moment.
    pub fn counters(&self) -> LogCounters {
        let state = self.lock();
        let Counters { accepted, delivered: trimmed, dropped, held } = state.log.counters();
        LogCounters {
            accepted,
            dropped: dropped + trimmed, // Values are trimmed only before the log is shared.
            held,
            delivered: state.delivered,
            missed: state.missed,
        }
    }

    /// A copy of the held values, oldest first, and the index of the first. Writers wait until it is made.
    pub fn snapshot(&self) -> (u64, Vec<T>)
    where
        T: Clone,
    {
        let state = self.lock();
        (state.log.base(), state.log.snapshot())
    }

    /// Drops evicted values, and wakes the readers that wait for a value before `end`. Call it without the lock.
    fn finish(&self, mut lost: Vec<T>, end: Option<u64>) {
        if let Some(end) = end {
            self.wake(end);
        }
        if lost.capacity() > 0 {
            lost.clear();
            if lost.capacity() > KEPT_CAPACITY {
                return; // A large buffer is freed.
            }
            let mut state = self.lock();
            if state.lost.capacity() < lost.capacity() {
                std::mem::swap(&mut state.lost, &mut lost); // Both are empty.
            }
        }
    }

    /// Wakes the readers that wait for a value before `end`, some at a time.
    fn wake(&self, end: u64) {
        loop {
            let mut wakes: Wakes = [const { None }; _];
            self.lock().idle.take(end, &mut wakes);
            let is_all = wakes.last().is_none_or(Option::is_none);
            wakes.into_iter().flatten().for_each(Waker::wake);
            if is_all {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Only the clone of a value may panic under the lock, and it leaves the state consistent.
        sync::lock(&self.state)
    }
}

impl<T> fmt::Debug for SharedLog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("SharedLog").field("log", &state.log).field("closed", &state.closed).finish_non_exhaustive()
    }
}

/// A reader of a [`SharedLog`], with its own position. Make one per task.
///
/// It gets every value from its position on, in order and once, or learns exactly how many it missed.
pub struct Reader<T> {
    log: Arc<SharedLog<T>>,
    slot: usize,
    /// The position at which it began.
    start: u64,
    /// The index of the next value it wants.
    next: u64,
    delivered: u64,
}

impl<T> Reader<T> {
    /// The most values that one read copies, which bounds the time that a writer waits for the lock.
    pub const READ_COUNT_MAX: usize = 64;

    /// A reader of the values that are appended from now on.
    pub fn new(log: Arc<SharedLog<T>>) -> Self {
        Self::starting_at(log, u64::MAX)
    }

    /// A reader that begins with the oldest held value.
    pub fn from_oldest(log: Arc<SharedLog<T>>) -> Self {
        let (slot, start) = {
            let mut state = log.lock();
            (state.idle.enter(), state.log.base())
        };
        Self { log, slot, start, next: start, delivered: 0 }
    }

    /// A reader that begins at `index`, or at the end if `index` is after it. So a reader can go on at the
    /// [`Reader::position`] of an earlier one. If the value there is gone, the first read says how many it missed.
    pub fn starting_at(log: Arc<SharedLog<T>>, index: u64) -> Self {
        let (slot, start) = {
            let mut state = log.lock();
            (state.idle.enter(), index.min(state.log.end()))
        };
        Self { log, slot, start, next: start, delivered: 0 }
    }

    /// The log it reads.
    pub fn log(&self) -> &Arc<SharedLog<T>> {
        &self.log
    }

    /// The index of the next value it wants.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Reads values into `out` without waiting: up to `limit` (a number of values, or [`Bounds`]), at most
    /// [`Reader::READ_COUNT_MAX`], and at least one of any weight. Returns how many were appended to `out`; 0 means that
    /// there is nothing new.
    ///
    /// # Errors
    /// [`Lagged`] if the reader was overtaken. The next read goes on at the oldest held value.
    pub fn try_read(&mut self, limit: impl Into<Bounds>, out: &mut Vec<T>) -> Result<usize, Lagged>
    where
        T: Clone,
    {
        match self.poll(None, limit.into(), out) {
            Poll::Ready(result) => result,
            Poll::Pending => Ok(0),
        }
    }

    /// As [`Reader::try_read`], but waits for the first value.
    ///
    /// `Ready(Ok(n))` with n ≥ 1: n values were appended to `out`. `Ready(Ok(0))`: the log is closed, and everything was
    /// read. `Pending`: the task is woken only by the next append and by [`SharedLog::close`].
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        limit: impl Into<Bounds>,
        out: &mut Vec<T>,
    ) -> Poll<Result<usize, Lagged>>
    where
        T: Clone,
    {
        self.poll(Some(cx.waker()), limit.into(), out)
    }

    /// As [`Reader::try_read`], but waits for the first value. Returns 0 if the log is closed and everything was read.
    ///
    /// # Errors
    /// As [`Reader::try_read`].
    ///
    /// # Cancel safety
    /// Cancel safe: values are read only when the future resolves, and a dropped future is not woken any more.
    pub fn read<'a>(&'a mut self, limit: impl Into<Bounds>, out: &'a mut Vec<T>) -> Read<'a, T> {
        Read { reader: self, limit: limit.into(), out, waits: false }
    }

    /// Goes to the end, and returns how many values it has skipped.
    pub fn skip_to_end(&mut self) -> u64 {
        let end = self.log.end();
        end - std::mem::replace(&mut self.next, end)
    }

    /// The counters of this reader, read at one moment: `accepted` values were appended since it began, `delivered` were
    /// read, `dropped` were missed or skipped, and `held` wait for it.
    pub fn counters(&self) -> Counters {
        let (base, end) = {
            let state = self.log.lock();
            (state.log.base(), state.log.end())
        };
        let (accepted, held) = (end - self.start, end - self.next.max(base));
        Counters { accepted, delivered: self.delivered, dropped: accepted - self.delivered - held, held }
    }

    fn poll(&mut self, waker: Option<&Waker>, limit: Bounds, out: &mut Vec<T>) -> Poll<Result<usize, Lagged>>
    where
        T: Clone,
    {
        let limit = Bounds { count_max: limit.count_max.min(Self::READ_COUNT_MAX), ..limit };
        let mut state = self.log.lock();
        let old_waker;
        let result = if self.next == state.log.end() && !state.closed {
            old_waker = waker.and_then(|waker| state.idle.wait(self.slot, self.next, waker));
            Poll::Pending
        } else {
            old_waker = state.idle.withdraw(self.slot);
            let result = state.log.read(self.next, limit, out).map(|end| end - self.next);
            match result {
                Ok(count) => state.delivered += count,
                Err(Lagged { missed }) => state.missed += missed,
            }
            Poll::Ready(result)
        };
        drop(state);
        drop(old_waker); // Dropped without the lock: it may be the last reference to its task.
        result.map(|result| self.advance(result))
    }

    fn advance(&mut self, result: Result<u64, Lagged>) -> Result<usize, Lagged> {
        match result {
            Ok(count) => {
                self.next += count;
                self.delivered += count;
                Ok(usize::try_from(count).expect("that many are in a Vec"))
            }
            Err(lagged) => {
                self.next += lagged.missed;
                Err(lagged)
            }
        }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        let waker = self.log.lock().idle.leave(self.slot);
        drop(waker);
    }
}

impl<T> fmt::Debug for Reader<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("position", &self.next).field("log", &self.log).finish()
    }
}

/// The future of [`Reader::read`].
#[must_use = "futures do nothing unless awaited"]
pub struct Read<'a, T> {
    reader: &'a mut Reader<T>,
    limit: Bounds,
    out: &'a mut Vec<T>,
    /// It sleeps, and the log may have its waker.
    waits: bool,
}

impl<T: Clone> Future for Read<'_, T> {
    type Output = Result<usize, Lagged>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let result = this.reader.poll(Some(cx.waker()), this.limit, this.out);
        this.waits = result.is_pending();
        result
    }
}

impl<T> Drop for Read<'_, T> {
    fn drop(&mut self) {
        if self.waits {
            let waker = self.reader.log.lock().idle.withdraw(self.reader.slot);
            drop(waker);
        }
    }
}
