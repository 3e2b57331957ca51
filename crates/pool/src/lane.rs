//! A *lane*: the state that callers share with one connection's task.
//!
//! A caller reserves room (`load`), puts its request into the inbox, and wakes the task if the inbox was empty. The task
//! takes the whole inbox at once. So a thousand callers that run before the task cost one wake-up. No wake-up is lost: the
//! task stores its waker under the same lock under which it finds the inbox empty. No foreign code runs under this lock.
//!
//! Queue: the inbox and the requests of the task together have at most `backlog_max` entries. Full: the caller gets an
//! error. Closed: the caller tries another lane.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::counters::LaneCounters;
use crate::error::CallError;
use crate::protocol::Protocol;

pub(crate) type Outcome<P> = Result<<P as Protocol>::Response, CallError<<P as Protocol>::Error>>;

/// The answer to a cast; see [`Pool::cast`](crate::Pool::cast).
#[derive(Debug)]
pub struct Answer<P: Protocol> {
    /// The tag that the caller gave to the request.
    pub tag: u64,
    /// The answer, or why there is none.
    pub result: Result<P::Response, CallError<P::Error>>,
}

/// A request on its way.
pub(crate) struct Job<P: Protocol> {
    pub(crate) request: P::Request,
    pub(crate) deadline: Instant,
    /// The request may not be pipelined.
    pub(crate) is_alone: bool,
    /// Some of its bytes were sent on a connection that has ended.
    pub(crate) was_sent: bool,
    /// How often it went to another connection after it had been sent.
    pub(crate) repeats: u32,
}

/// A request with the place where its outcome goes.
pub(crate) struct Entry<P: Protocol> {
    pub(crate) job: Job<P>,
    pub(crate) reply: Reply<P>,
}

/// Where the outcome of a request goes. If it is dropped without an outcome, the outcome is [`CallError::Closed`].
pub(crate) struct Reply<P: Protocol>(ReplyTo<P>);

enum ReplyTo<P: Protocol> {
    Call(oneshot::Sender<Outcome<P>>),
    Cast { tag: u64, permit: mpsc::OwnedPermit<Answer<P>> },
    Nobody,
}

impl<P: Protocol> Reply<P> {
    pub(crate) fn call() -> (Self, oneshot::Receiver<Outcome<P>>) {
        let (tx, rx) = oneshot::channel();
        (Self(ReplyTo::Call(tx)), rx)
    }

    pub(crate) fn cast(tag: u64, permit: mpsc::OwnedPermit<Answer<P>>) -> Self {
        Self(ReplyTo::Cast { tag, permit })
    }

    pub(crate) fn nobody() -> Self {
        Self(ReplyTo::Nobody)
    }

    /// Whether the caller has dropped its call.
    pub(crate) fn is_gone(&self) -> bool {
        matches!(&self.0, ReplyTo::Call(tx) if tx.is_closed())
    }

    /// Sends the outcome. Returns false if the caller has gone. Never waits: a cast has reserved room in its channel.
    pub(crate) fn finish(mut self, result: Outcome<P>) -> bool {
        self.send(result)
    }

    /// Sends nothing, because the caller learns the outcome in another way.
    pub(crate) fn disarm(mut self) {
        self.0 = ReplyTo::Nobody;
    }

    fn send(&mut self, result: Outcome<P>) -> bool {
        match std::mem::replace(&mut self.0, ReplyTo::Nobody) {
            ReplyTo::Call(tx) => tx.send(result).is_ok(),
            ReplyTo::Cast { tag, permit } => {
                permit.send(Answer { tag, result });
                true
            }
            ReplyTo::Nobody => true,
        }
    }
}

impl<P: Protocol> Drop for Reply<P> {
    fn drop(&mut self) {
        if !matches!(self.0, ReplyTo::Nobody) {
            self.send(Err(CallError::Closed));
        }
    }
}

/// Whether a lane accepts requests. This is only a hint to callers: the inbox decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// There is no connection, and the task waits before the next attempt. Requests are refused.
    Down,
    /// There is no connection, but the task is connecting. Requests are accepted and wait.
    Rising,
    Up,
}

/// The result of [`Lane::offer`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offer {
    Taken,
    Full,
    Down,
}

pub(crate) struct Lane<P: Protocol> {
    phase: AtomicU8,
    /// All requests: in the inbox, waiting, in flight, and tombstones.
    load: AtomicUsize,
    inbox: Mutex<Inbox<P>>,
    pub(crate) counters: LaneCounters,
}

struct Inbox<P: Protocol> {
    is_open: bool,
    entries: Vec<Entry<P>>,
    /// A caller has gone: the task must look for its request.
    sweep: bool,
    drain: bool,
    /// Wakes the task, if it sleeps.
    waker: Option<Waker>,
}

/// The signals in the inbox.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Taken {
    pub(crate) sweep: bool,
    pub(crate) drain: bool,
}

impl<P: Protocol> Lane<P> {
    pub(crate) fn new() -> Self {
        let inbox = Inbox { is_open: true, entries: Vec::new(), sweep: false, drain: false, waker: None };
        Self {
            phase: AtomicU8::new(Phase::Rising as u8),
            load: AtomicUsize::new(0),
            inbox: Mutex::new(inbox),
            counters: LaneCounters::default(),
        }
    }

    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Relaxed) {
            0 => Phase::Down,
            1 => Phase::Rising,
            _ => Phase::Up,
        }
    }

    pub(crate) fn load(&self) -> usize {
        self.load.load(Relaxed)
    }

    /// Reduces the load after requests have ended.
    pub(crate) fn release(&self, count: usize) {
        self.load.fetch_sub(count, Relaxed);
    }

    /// Takes the entry out of `slot` if the lane has fewer than `backlog_max` requests.
    pub(crate) fn offer(&self, slot: &mut Option<Entry<P>>, backlog_max: usize) -> Offer {
        if self.load.fetch_add(1, Relaxed) >= backlog_max {
            self.release(1);
            return Offer::Full;
        }
        let mut inbox = self.lock();
        if !inbox.is_open {
            drop(inbox);
            self.release(1);
            return Offer::Down;
        }
        let was_empty = inbox.entries.is_empty();
        inbox.entries.extend(slot.take());
        // The caller that finds the inbox empty wakes the task. For later callers that is already done.
        let waker = if was_empty { inbox.waker.take() } else { None };
        drop(inbox);
        wake(waker);
        Offer::Taken
    }

    /// Makes the task withdraw the waiting requests of callers that have gone.
    pub(crate) fn sweep(&self) {
        self.signal(|inbox| inbox.sweep = true);
    }

    /// Ends the task when its requests have ended.
    pub(crate) fn drain(&self) {
        self.signal(|inbox| inbox.drain = true);
    }

    fn signal(&self, change: impl FnOnce(&mut Inbox<P>)) {
        let mut inbox = self.lock();
        change(&mut inbox);
        let waker = inbox.waker.take();
        drop(inbox);
        wake(waker);
    }

    /// For the task: moves all entries into `out`, which must be empty, and stores the waker.
    pub(crate) fn poll_take(&self, out: &mut Vec<Entry<P>>, cx: &Context<'_>) -> Taken {
        debug_assert!(out.is_empty(), "the entries taken before are handled");
        let mut inbox = self.lock();
        std::mem::swap(&mut inbox.entries, out);
        if !inbox.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            inbox.waker = Some(cx.waker().clone());
        }
        Taken { sweep: std::mem::take(&mut inbox.sweep), drain: inbox.drain }
    }

    /// For the task: opens or closes the inbox.
    pub(crate) fn set_phase(&self, phase: Phase) {
        let mut inbox = self.lock();
        inbox.is_open = phase != Phase::Down;
        self.phase.store(phase as u8, Relaxed);
    }

    /// For the task: closes the inbox and returns its entries.
    pub(crate) fn close(&self) -> Vec<Entry<P>> {
        let mut inbox = self.lock();
        inbox.is_open = false;
        self.phase.store(Phase::Down as u8, Relaxed);
        std::mem::take(&mut inbox.entries)
    }

    fn lock(&self) -> MutexGuard<'_, Inbox<P>> {
        // No foreign code runs under the lock, so the state behind a poisoned lock is valid.
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
