//! The log of many: any thread appends, every reader gets everything, at its own pace.
//!
//! ```text
//!   writers                                        readers, each with a position of its own
//!   append ──────┐    ┌───────────────────────┐    ┌─► idle at the end: the next append wakes it
//!   append_batch ┼──► │ the last values, up to │ ──┼─► busy somewhere: not woken, finds out by itself
//!   append ──────┘    │ the bounds             │   └─► overtaken: told `Lagged { missed }`, goes on at the oldest held
//!                     └───────────────────────┘
//! ```
//!
//! Writers never wait for readers: not for room, since the oldest value goes, and for the lock only as long as one reader
//! copies [`Reader::READ_COUNT_MAX`] values. Readers see one order, the same for all. A value stays until it is pushed out,
//! whether everybody has it or not: a reader that comes later can begin with what is held.
//!
//! **Who is woken.** The readers that wait, each once per wait: not those that are busy, and nobody twice, however much
//! is appended until it runs. No wake-up is lost: a reader goes to sleep under the lock, and only at the end of the log.
//!
//! Bounds and what happens when full: as of [`Log`]. Closed: writers are refused and keep their values; readers get what
//! is held, then 0. Dropping all [`SharedLog`] handles does not close it, since each reader holds one.
//!
//! **Threads.** One mutex; no waker is called, and no value that was pushed out is dropped, while it is held. What does
//! run under it is `T::clone`, so a value should be cheap to clone (a number, an `Arc`, `Bytes`), and the function that
//! weighs. Neither may use the log. No runtime is needed.

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::idle::{Idle, Wakes};
use super::{KEPT_CAPACITY, Lagged, Log};
use crate::sync::{Mutex, MutexGuard};
use crate::{Bounds, Closed, Counters, Rejected};

/// A log that many write and many read; see the module's text.
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
    /// Memory for values that one step pushes out, to be dropped outside of the lock; empty between steps, and for at
    /// most [`KEPT_CAPACITY`] of them.
    lost: Vec<T>,
}

/// What went through a log since its creation: `accepted == dropped + held`, always.
///
/// Reading takes nothing away, so `delivered` and `missed` are no part of that sum. Each reader has [`Reader::counters`]
/// of its own, of which the whole law holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogCounters {
    /// Values appended.
    pub accepted: u64,
    /// Values that were pushed out by newer ones or by a change of the bounds, whether somebody wanted them or not.
    pub dropped: u64,
    /// Values held now.
    pub held: u64,
    /// Values handed to readers, once for each reader.
    pub delivered: u64,
    /// Values that readers wanted too late and were told so, once for each reader.
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

    /// The same, with a function that says how many bytes a value weighs, always the same for the same value. It runs
    /// under the lock: it must be quick, and must not panic.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn weighed(bounds: impl Into<Bounds>, weigh: fn(&T) -> usize) -> Self {
        Self::from_log(Log::weighed(bounds, weigh))
    }

    /// Shares a log with what it holds, its indices, bounds and counters.
    pub fn from_log(log: Log<T>) -> Self {
        let state = State { log, idle: Idle::default(), closed: false, delivered: 0, missed: 0, lost: Vec::new() };
        Self { state: Mutex::new(state) }
    }

    /// Adds a value, returns its index, and wakes the readers that wait; the oldest values go if it does not fit.
    ///
    /// Never waits for a reader.
    ///
    /// # Errors
    /// The value comes back with [`Closed`] after [`SharedLog::close`].
    pub fn append(&self, value: T) -> Result<u64, Rejected<T, Closed>> {
        let (mut first, mut more) = (None, Vec::new());
        let mut state = self.lock();
        if state.closed {
            return Err(Rejected { value, reason: Closed });
        }
        let State { log, idle, lost, .. } = &mut *state;
        let index = log.append_with(value, |value| match &first {
            None => first = Some(value), // Nearly always the only one.
            Some(_) => lost.push(value),
        });
        if !lost.is_empty() {
            more = std::mem::take(lost);
        }
        let is_owed = idle.is_owed(index + 1);
        drop(state);
        self.finish(more, is_owed.then_some(index + 1));
        drop(first); // When everybody is awake: its `Drop` is foreign code.
        Ok(index)
    }

    /// Adds all of `batch` in its order, under indices that follow one another, leaves it empty, and returns the index of
    /// its first value. Readers are woken once, for all of it. Of a batch that is larger than the bounds only the end is
    /// held, as if its values had come one by one.
    ///
    /// # Errors
    /// [`Closed`] after [`SharedLog::close`]; then nothing was added, and the batch is as it was.
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

    /// Takes no more values from now on. Readers get what is held and then learn that this was all.
    pub fn close(&self) {
        self.lock().closed = true;
        self.wake(u64::MAX);
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Index of the first value held; earlier ones are gone. Equal to [`SharedLog::end`] when none is held.
    pub fn base(&self) -> u64 {
        self.lock().log.base()
    }

    /// Index that the next value will get.
    pub fn end(&self) -> u64 {
        self.lock().log.end()
    }

    /// How much may be held.
    pub fn bounds(&self) -> Bounds {
        self.lock().log.bounds()
    }

    /// Changes the bounds; returns how many values were pushed out because they no longer fit.
    ///
    /// # Panics
    /// When no value may be held.
    pub fn set_bounds(&self, bounds: impl Into<Bounds>) -> usize {
        let bounds = bounds.into().check(); // Before the lock, which a panic would poison.
        let mut state = self.lock();
        let State { log, lost, .. } = &mut *state;
        let count = log.set_bounds_with(bounds, |value| lost.push(value));
        let lost = std::mem::take(lost);
        drop(state);
        self.finish(lost, None);
        count
    }

    /// Takes all the memory that the log can need within its bounds; after it nothing is allocated per append, except
    /// for one that pushes out more than 64 values at once.
    pub fn reserve(&self) {
        self.lock().log.reserve();
    }

    /// What went through so far, read at one moment.
    pub fn counters(&self) -> LogCounters {
        let state = self.lock();
        let Counters { accepted, delivered: trimmed, dropped, held } = state.log.counters();
        LogCounters {
            accepted,
            dropped: dropped + trimmed, // Trimmed before it was shared.
            held,
            delivered: state.delivered,
            missed: state.missed,
        }
    }

    /// A copy of what is held at one moment, oldest first, and the index of the first. Writers wait until it is made.
    pub fn snapshot(&self) -> (u64, Vec<T>)
    where
        T: Clone,
    {
        let state = self.lock();
        (state.log.base(), state.log.snapshot())
    }

    /// After the lock is released: drops what was pushed out, and wakes the readers that wait for a value before `end`.
    fn finish(&self, mut lost: Vec<T>, end: Option<u64>) {
        if let Some(end) = end {
            self.wake(end);
        }
        if lost.capacity() > 0 {
            lost.clear();
            if lost.capacity() > KEPT_CAPACITY {
                return; // Of much that went at once the memory goes, too.
            }
            let mut state = self.lock();
            if state.lost.capacity() < lost.capacity() {
                std::mem::swap(&mut state.lost, &mut lost); // Whoever was there before is empty as well, or gone.
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
        // What can panic under it, the clone of a value while it is read, leaves everything in order.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> fmt::Debug for SharedLog<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("SharedLog").field("log", &state.log).field("closed", &state.closed).finish_non_exhaustive()
    }
}

/// One reader of a [`SharedLog`], with its own position. Make one per task.
///
/// It gets every value from its position on, in order and once, or is told exactly how many it missed.
pub struct Reader<T> {
    log: Arc<SharedLog<T>>,
    slot: usize,
    /// Where it began.
    start: u64,
    /// Index of the next value it wants.
    next: u64,
    delivered: u64,
}

impl<T> Reader<T> {
    /// Values that one read copies at most, so that a writer waits no longer than that for the lock.
    pub const READ_COUNT_MAX: usize = 64;

    /// A reader of what is appended from now on.
    pub fn new(log: Arc<SharedLog<T>>) -> Self {
        Self::starting_at(log, u64::MAX)
    }

    /// A reader that begins with the oldest value held.
    pub fn from_oldest(log: Arc<SharedLog<T>>) -> Self {
        let (slot, start) = {
            let mut state = log.lock();
            (state.idle.enter(), state.log.base())
        };
        Self { log, slot, start, next: start, delivered: 0 }
    }

    /// A reader that begins at `index`, or at the end if that is ahead of it. If the value there is gone already, its
    /// first read tells how many it missed: so a reader goes on where an earlier one was ([`Reader::position`]).
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

    /// Index of the next value it wants.
    pub fn position(&self) -> u64 {
        self.next
    }

    /// Reads into `out` what is there, without waiting: up to `limit` (a number of values, or [`Bounds`]), never more
    /// than [`Reader::READ_COUNT_MAX`] values at once, and at least one however heavy. Returns how many were appended
    /// to `out`; 0 means that there is nothing new.
    ///
    /// # Errors
    /// [`Lagged`] when it was overtaken. Its position is then at the oldest value held: the next read goes on there.
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
    /// `Ready(Ok(n))` with n ≥ 1: that many were appended to `out`. `Ready(Ok(0))`: closed, and everything was read.
    /// `Pending`: the task is woken by the next append, by [`SharedLog::close`], and by nothing else.
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

    /// As [`Reader::try_read`], but waits for the first value; 0 means closed, and everything was read.
    ///
    /// # Errors
    /// As [`Reader::try_read`].
    ///
    /// # Cancel safety
    /// Cancel safe: values are read only when it resolves, and a dropped future is not woken any more.
    pub fn read<'a>(&'a mut self, limit: impl Into<Bounds>, out: &'a mut Vec<T>) -> Read<'a, T> {
        Read { reader: self, limit: limit.into(), out, waits: false }
    }

    /// Goes to the end, without what lies between; returns how many values it skipped so.
    pub fn skip_to_end(&mut self) -> u64 {
        let end = self.log.end();
        end - std::mem::replace(&mut self.next, end)
    }

    /// What went by this reader since it began, read at one moment: `accepted` was appended since, `delivered` it has
    /// read, `dropped` it has missed (told already or not) or skipped, and `held` waits for it.
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
        drop(old_waker); // Outside of the lock: it may be the last of its task.
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
    /// It went to sleep, and its waker may be with the log.
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
