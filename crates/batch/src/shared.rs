//! What producers share with the driver: the [`Core`] under one short lock, and the tasks that wait.
//!
//! The only foreign code under the lock of the state is a sink's `page_bytes_max`, so nothing blocks there. The driver
//! is woken only if it waits, and only for what it waits for ([`Need`]). Waiting producers and flushes are woken when
//! work is taken or finished. If both locks are held, that of the slot is taken first.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::pin::pin;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::Notify;

use crate::config::{Announce, BatchConfig, Loss};
use crate::core::{Core, Mark, Page, Progress, Work};
use crate::sink::BoxSink;

/// How often a driver with a thread of its own lets others run before it sleeps.
const LOOK_COUNT: usize = 8;

/// One writer, seen from all its ends.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// The sink while no driver has it. Locked for as long as a producer writes into it directly.
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
    /// What the driver waits for, and how it is woken.
    need: Option<Need>,
    driver: Option<Waker>,
    /// Takes the place of the driver's sink before the next page.
    next_sink: Option<BoxSink>,
    /// The sink panicked and no other has come.
    is_sinkless: bool,
    /// Producers that wait for room, and flushes.
    room_waiter_count: usize,
    flush_waiter_count: usize,
    /// What was dropped because the sink failed while the writer was being closed.
    left_count: usize,
}

/// Where a writer is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Not started: who writes, writes into the sink.
    Direct,
    Running,
    /// The driver writes what is held, then ends.
    Closing,
    Closed,
}

/// What the driver waits for; each includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// That the writer is closed, whatever is held.
    Abort,
    /// Another sink, or a close.
    Sink,
    /// A flush.
    Hurry,
    /// A full page.
    Due,
    /// Anything to do.
    Work,
}

/// What somebody waits for.
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

    /// Who must be woken for what was just changed; wake it when the lock is released.
    #[must_use]
    pub(crate) fn driver_to_wake(&mut self) -> Option<Waker> {
        let need = self.need?;
        if !self.meets(need) {
            return None;
        }
        self.need = None;
        self.driver.take()
    }

    /// Whether those who wait should look again. Producers only when there is room worth the effort: woken for every
    /// page, all of them come for what one can fill, and spend more time on waking than on writing.
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

    /// How a flush that began at `mark` goes: none while it does.
    pub(crate) fn flushed(&self, mark: Mark) -> Option<Result<(), ()>> {
        match self.core.progress(mark) {
            Progress::Done if self.left_count == 0 => Some(Ok(())),
            Progress::Done | Progress::Failed => Some(Err(())),
            Progress::Waiting if self.is_sinkless && self.next_sink.is_none() => Some(Err(())),
            Progress::Waiting => match self.mode {
                Mode::Direct | Mode::Closed => Some(Err(())), // Nobody carries any more.
                Mode::Running | Mode::Closing => None,
            },
        }
    }

    /// As `flushed`, but when the driver has ended.
    pub(crate) fn closed(&self, mark: Mark) -> Option<Result<(), ()>> {
        if self.mode == Mode::Closed { self.flushed(mark) } else { None }
    }

    pub(crate) fn left_count(&self) -> usize {
        self.left_count
    }

    /// What is not in flight yet is for another sink.
    pub(crate) fn is_sink_replaced(&self) -> bool {
        self.next_sink.is_some()
    }

    /// Nothing more is taken or written.
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A sink that panics while a producer writes directly leaves no harm: it is taken out then.
    pub(crate) fn lock_slot(&self) -> MutexGuard<'_, Option<BoxSink>> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the state and wakes whoever waits for that.
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

    // The driver's side

    /// Gives producers a moment, some microseconds, to bring what `need` says: waking the thread that sleeps would cost
    /// them more than their message.
    pub(crate) fn look_again(&self, need: Need) {
        for _ in 0..LOOK_COUNT {
            if self.lock().meets(need) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits for what `need` says.
    ///
    /// # Cancel safety
    /// May be dropped and called again; there is one driver.
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

    /// There is no text for the loss.
    pub(crate) fn untold(&self, loss: Loss) {
        self.change(|state| state.core.untold(loss));
    }

    /// The new sink, if there is one; from now on its largest page counts.
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

    /// Drops what is held and returns how many messages that were.
    pub(crate) fn close_now(&self) -> usize {
        self.change(State::close)
    }

    /// The driver is gone: without being told so, if the writer is not closed. Then producers write directly again.
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
        drop(unused); // It may write.
    }

    // The users' side

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

    /// Waits, with the thread, until `check` finds something, but not longer than `timeout`.
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

    /// Waits until `check` finds something.
    ///
    /// # Cancel safety
    /// What `check` found is returned at once, so nothing found is lost.
    pub(crate) async fn wait<T>(&self, what: For, mut check: impl FnMut(&mut State) -> Option<T>) -> T {
        let _waiter = Waiter::new(self, what);
        loop {
            let mut notified = pin!(self.changed_async.notified());
            notified.as_mut().enable(); // What changes from here on is not missed.
            if let Some(found) = check(&mut self.lock()) {
                return found;
            }
            notified.await;
        }
    }

    /// Counts one who waits. If the driver lingers, it must not any more.
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

/// Counted as long as it waits, also when it is cancelled.
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
