//! The state that producers share with the driver: the [`Core`] under one short lock, and the tasks that wait.
//!
//! The only foreign code under the lock of the state is a sink's `page_bytes_max`, so nothing blocks there. The driver
//! is woken only if it waits, and only when its [`Need`] is met. Waiting producers and flushes are woken when work is taken
//! or finished. If both locks are held, the lock of the slot is taken first.

use std::future::poll_fn;
use std::hint;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{Announce, BatchConfig, Loss};
use crate::core::{Core, Mark, Page, Progress, Work};
use crate::sink::BoxSink;

/// How often a driver with a thread of its own yields before it sleeps.
const LOOK_COUNT: usize = 8;

/// How long a thread that finds the lock taken stays away from it: about a microsecond, tens of messages.
const PAUSE_SPINS: usize = 50;

pub(crate) struct Shared {
    state: Mutex<State>,
    /// The sink, while no driver has it. Locked while a producer writes into it directly.
    slot: Mutex<Option<BoxSink>>,
    changed: Condvar,
    changed_async: Notify,
    pub(crate) announce: Option<Announce>,
    pub(crate) linger: Duration,
    pub(crate) write_timeout: Duration,
}

pub(crate) struct State {
    pub(crate) core: Core,
    pub(crate) mode: Mode,
    /// What the driver waits for, while it waits.
    need: Option<Need>,
    driver: Option<Waker>,
    /// Replaces the driver's sink before the next page.
    next_sink: Option<BoxSink>,
    /// The sink has panicked, and there is no other.
    is_sinkless: bool,
    room_waiter_count: usize,
    flush_waiter_count: usize,
    /// Messages that were dropped when the writer was closed.
    left_count: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Without a driver: producers write into the sink.
    Direct,
    Running,
    /// The driver writes the remaining messages, then ends.
    Closing,
    Closed,
}

/// What the driver waits for. Each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// The writer is closed, even if messages are left.
    Abort,
    /// Another sink, or a close.
    Sink,
    /// A flush.
    Hurry,
    /// A full page, or another reason not to linger.
    Due,
    /// Anything to do.
    Work,
}

/// What a producer or a flush waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum For {
    Room,
    Flush,
}

impl State {
    fn meets(&self, need: Need) -> bool {
        self.mode == Mode::Closed
            || need >= Need::Sink && (self.next_sink.is_some() || self.mode == Mode::Closing)
            || need >= Need::Hurry && self.core.is_flushing()
            || need >= Need::Due && (self.core.is_due() || (self.room_waiter_count > 0 && self.core.has_work()))
            || need >= Need::Work && self.core.has_work()
    }

    /// The driver's waker, if the change meets its need. Wake it after the lock is released.
    #[must_use]
    pub(crate) fn driver_to_wake(&mut self) -> Option<Waker> {
        let need = self.need?;
        if !self.meets(need) {
            return None;
        }
        self.need = None;
        self.driver.take()
    }

    /// Whether waiting tasks should look again. Producers are woken only when there is enough room: if all of them were
    /// woken for every page, waking would take more time than writing.
    fn is_news(&self) -> bool {
        let is_room = self.mode != Mode::Running || self.core.is_roomy();
        self.flush_waiter_count > 0 || (self.room_waiter_count > 0 && is_room)
    }

    fn waiter_count(&mut self, what: For) -> &mut usize {
        match what {
            For::Room => &mut self.room_waiter_count,
            For::Flush => &mut self.flush_waiter_count,
        }
    }

    /// The result of a flush that began at `mark`; `None` while it waits.
    pub(crate) fn flushed(&self, mark: Mark) -> Option<Result<(), ()>> {
        match self.core.progress(mark) {
            Progress::Done if self.left_count == 0 => Some(Ok(())),
            Progress::Done | Progress::Failed => Some(Err(())),
            Progress::Waiting if self.is_sinkless && self.next_sink.is_none() => Some(Err(())),
            Progress::Waiting => match self.mode {
                Mode::Direct | Mode::Closed => Some(Err(())), // There is no driver any more.
                Mode::Running | Mode::Closing => None,
            },
        }
    }

    /// As `flushed`, but waits until the driver has ended.
    pub(crate) fn closed(&self, mark: Mark) -> Option<Result<(), ()>> {
        if self.mode == Mode::Closed { self.flushed(mark) } else { None }
    }

    pub(crate) fn left_count(&self) -> usize {
        self.left_count
    }

    pub(crate) fn is_sink_replaced(&self) -> bool {
        self.next_sink.is_some()
    }

    /// Closes the writer. Drops the remaining messages and returns their number.
    pub(crate) fn close(&mut self) -> usize {
        let count = self.core.drop_all();
        self.left_count += count;
        self.mode = Mode::Closed;
        count
    }
}

impl Shared {
    pub(crate) fn new(config: BatchConfig, sink: BoxSink) -> Self {
        let BatchConfig { page_bytes, count_max, bytes_max, full, linger, write_timeout, announce } = config;
        let mut core = Core::new(page_bytes, count_max, bytes_max, full, announce.is_some());
        core.set_sink_bytes(sink.page_bytes_max());
        let state = State {
            core,
            mode: Mode::Direct,
            need: None,
            driver: None,
            next_sink: None,
            is_sinkless: false,
            room_waiter_count: 0,
            flush_waiter_count: 0,
            left_count: 0,
        };
        Self {
            state: Mutex::new(state),
            slot: Mutex::new(Some(sink)),
            changed: Condvar::new(),
            changed_async: Notify::new(),
            announce,
            linger,
            write_timeout,
        }
    }

    /// Locks the state. A thread that finds the lock taken first stays away from it for a while. Meanwhile the thread that has
    /// it writes many messages with all data in its own processor's cache (docs/decisions/0043).
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => self.lock_contended(),
        }
    }

    #[cold]
    fn lock_contended(&self) -> MutexGuard<'_, State> {
        (0..PAUSE_SPINS).for_each(|_| hint::spin_loop());
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A poisoned lock is harmless: a sink that panics in a direct write is taken out.
    pub(crate) fn lock_slot(&self) -> MutexGuard<'_, Option<BoxSink>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes the tasks that wait for the change.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        let driver = state.driver_to_wake();
        let is_news = state.is_news();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
        if is_news {
            self.changed.notify_all();
            self.changed_async.notify_waiters();
        }
        changed
    }

    // For the driver

    /// Gives producers some microseconds to meet `need`: waking a sleeping thread would cost them more than their message.
    pub(crate) fn look_again(&self, need: Need) {
        for _ in 0..LOOK_COUNT {
            if self.lock().meets(need) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits until `need` is met.
    ///
    /// # Cancel safety
    /// May be dropped and called again; there is only one driver.
    pub(crate) async fn needed(&self, need: Need) {
        poll_fn(|cx| self.poll_needed(cx, need)).await;
    }

    pub(crate) fn poll_needed(&self, cx: &Context<'_>, need: Need) -> Poll<()> {
        let mut state = self.lock();
        if state.meets(need) {
            state.need = None;
            return Poll::Ready(());
        }
        state.need = Some(need);
        match &mut state.driver {
            Some(waker) => waker.clone_from(cx.waker()),
            None => state.driver = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Takes the next piece of work, and so makes room.
    pub(crate) fn next_work(&self, may: impl FnOnce(&State) -> bool) -> Option<Work> {
        self.change(|state| if may(state) { state.core.next() } else { None })
    }

    pub(crate) fn settle(&self, page: Page, result: Result<(), ErrorKind>) {
        self.change(|state| state.core.settle(page, result));
    }

    pub(crate) fn announced(&self, loss: Loss, result: Result<(), ErrorKind>) {
        self.change(|state| match result {
            Ok(()) => state.core.announced(loss),
            Err(kind) => state.core.fail(kind),
        });
    }

    pub(crate) fn unannounced(&self, loss: Loss) {
        self.change(|state| state.core.unannounced(loss));
    }

    /// Takes the new sink, if there is one. From now on its largest page is the limit.
    pub(crate) fn take_next_sink(&self) -> Option<BoxSink> {
        self.change(|state| {
            let sink = state.next_sink.take()?;
            state.core.set_sink_bytes(sink.page_bytes_max());
            state.is_sinkless = false;
            Some(sink)
        })
    }

    pub(crate) fn sink_panicked(&self) {
        self.change(|state| state.is_sinkless = true);
    }

    pub(crate) fn close_now(&self) -> usize {
        self.change(State::close)
    }

    /// Handles the end of the driver. If the writer is not closed, producers write directly again.
    pub(crate) fn driver_gone(&self, sink: Option<BoxSink>) {
        let mut slot = self.lock_slot();
        let unused = self.change(|state| {
            state.core.abandon();
            (state.need, state.driver) = (None, None);
            match state.mode {
                Mode::Direct | Mode::Running => {
                    state.mode = Mode::Direct;
                    let unused = match (state.next_sink.take(), sink) {
                        (Some(next), sink) => (slot.replace(next), sink),
                        (None, Some(sink)) => (slot.replace(sink), None),
                        (None, None) => (None, None),
                    };
                    state.is_sinkless = slot.is_none();
                    let sink_bytes = slot.as_ref().and_then(|sink| sink.page_bytes_max());
                    state.core.set_sink_bytes(sink_bytes);
                    unused
                }
                Mode::Closing => {
                    state.close();
                    (None, sink)
                }
                Mode::Closed => (None, sink),
            }
        });
        drop(slot);
        drop(unused); // The drop of a sink may write into this writer, so no lock is held here.
    }

    // For producers

    /// Replaces the sink, at once or before the driver's next page.
    pub(crate) fn set_sink(&self, sink: BoxSink) {
        let mut slot = self.lock_slot();
        let old = self.change(|state| match state.mode {
            Mode::Direct => {
                state.core.set_sink_bytes(sink.page_bytes_max());
                state.is_sinkless = false;
                slot.replace(sink)
            }
            Mode::Running => state.next_sink.replace(sink),
            Mode::Closing | Mode::Closed => Some(sink),
        });
        drop(slot);
        drop(old);
    }

    /// Blocks the thread until `check` returns something, at most for `timeout`.
    pub(crate) fn wait_blocking<T>(
        &self,
        what: For,
        timeout: Duration,
        mut check: impl FnMut(&mut State) -> Option<T>,
    ) -> (MutexGuard<'_, State>, Option<T>) {
        let mut found = None;
        self.begin_wait(what);
        let waited = self.changed.wait_timeout_while(self.lock(), timeout, |state| {
            found = check(state);
            found.is_none()
        });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *state.waiter_count(what) -= 1;
        (state, found)
    }

    /// Waits until `check` returns something.
    ///
    /// # Cancel safety
    /// The result of `check` is returned at once, so it is never lost.
    pub(crate) async fn wait<T>(&self, what: For, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        let _waiter = Waiter::new(self, what);
        loop {
            let mut notified = pin!(self.changed_async.notified());
            notified.as_mut().enable(); // From here on, no change is missed.
            if let Some(found) = check(&mut self.lock()) {
                return found;
            }
            notified.await;
        }
    }

    /// Counts a waiting task. This ends the driver's linger.
    fn begin_wait(&self, what: For) {
        let mut state = self.lock();
        *state.waiter_count(what) += 1;
        let driver = state.driver_to_wake();
        drop(state);
        if let Some(driver) = driver {
            driver.wake();
        }
    }
}

/// Counts a waiting task until it is dropped, also by cancellation.
struct Waiter<'a>(&'a Shared, For);

impl<'a> Waiter<'a> {
    fn new(shared: &'a Shared, what: For) -> Self {
        shared.begin_wait(what);
        Self(shared, what)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        *self.0.lock().waiter_count(self.1) -= 1;
    }
}
