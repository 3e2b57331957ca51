//! What a panic ends: the process, or one piece of work.
//!
//! A panic is a bug, and the state that it interrupted may be inconsistent. So a panic ends the process at once, with a
//! message. The hook of [`install`] does this on every thread, also on threads of libraries. There is one exception:
//! work for one peer that changes only its own state. Such work runs within [`catch`] or [`catch_async`]. A panic there
//! ends this work only, is logged, and is counted by [`Work`].
//!
//! Such work can also change state that others share. While an [`Owner`] exists, a panic ends the process again.
//! [`lock`] returns a lock together with an owner, so state behind such a lock is never left half changed.
//!
//! ```text
//!  thread ──── panic ─► process ends
//!     └ catch ──── panic ─► counted, an error for the caller
//!          └ lock, owner ──── panic ─► process ends
//! ```
//!
//! In a process without the hook (tests, client commands) a panic unwinds as usual, and `catch` stops it.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use tracing::error;

use crate::{Registry, metrics};

/// The bytes of a panic's message that are logged.
const MESSAGE_BYTES_MAX: usize = 256;

/// A piece of work that a panic may end while the process goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// One HTTP request: answered with 500.
    Request,
    /// One connection of a client: closed.
    Connection,
    /// One notification, or the text that many notifications of one job share: it gets an outcome that says so.
    Notification,
    /// One document of a feed: what was read of it is sent, the rest is read again.
    Document,
}

impl Work {
    const ALL: [Self; 4] = [Self::Request, Self::Connection, Self::Notification, Self::Document];

    fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Connection => "connection",
            Self::Notification => "notification",
            Self::Document => "document",
        }
    }
}

/// The work has panicked; the log has the message and the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a panic ended the work, the log says where")]
pub struct Panicked;

static CAUGHT: [AtomicU64; Work::ALL.len()] = [const { AtomicU64::new(0) }; Work::ALL.len()];

thread_local! {
    /// What a panic on this thread ends; `None`: the process.
    static AT_STAKE: Cell<Option<Work>> = const { Cell::new(None) };
}

/// Sets `AT_STAKE` until it is dropped. Stays on its thread.
struct Scope {
    before: Option<Work>,
    _on_this_thread: PhantomData<*const ()>,
}

impl Scope {
    fn enter(work: Option<Work>) -> Self {
        Self { before: AT_STAKE.replace(work), _on_this_thread: PhantomData }
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        AT_STAKE.set(self.before);
    }
}

/// Runs `run` and catches a panic in it. After a panic the caller must not use what `run` has borrowed.
///
/// # Errors
/// [`Panicked`], counted.
pub fn catch<T>(work: Work, run: impl FnOnce() -> T) -> Result<T, Panicked> {
    let scope = Scope::enter(Some(work));
    let ended = catch_unwind(AssertUnwindSafe(run));
    drop(scope);
    ended.map_err(|_panic| {
        CAUGHT[work as usize].fetch_add(1, Ordering::Relaxed);
        Panicked
    })
}

/// Like [`catch`], for a future.
///
/// # Errors
/// [`Panicked`], counted.
///
/// # Cancel safety
/// That of `future`.
pub async fn catch_async<F: Future>(work: Work, future: F) -> Result<F::Output, Panicked> {
    let mut future = pin!(future);
    std::future::poll_fn(|cx| match catch(work, || future.as_mut().poll(cx)) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

/// Runs `run` as a part of `work` for which another thread waits. A panic is returned to the caller. The caller must
/// pass it on (`resume_unwind`) to the thread that waits, where it is caught and counted.
pub fn part_of<T>(work: Work, run: impl FnOnce() -> T) -> T {
    let _scope = Scope::enter(Some(work));
    run()
}

/// From now on a panic on this thread ends the process, until the returned value is dropped.
#[must_use]
pub fn owner() -> Owner {
    Owner { _scope: Scope::enter(None) }
}

/// See [`owner`].
pub struct Owner {
    _scope: Scope,
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner")
    }
}

/// Locks shared state. A panic while the lock is held ends the process, so nobody sees half changed state.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let owner = owner();
    Locked { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _owner: owner }
}

/// See [`lock`].
#[derive(Debug)]
pub struct Locked<'m, T: ?Sized> {
    guard: MutexGuard<'m, T>,
    _owner: Owner,
}

impl<T: ?Sized> Deref for Locked<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T: ?Sized> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// Makes a panic end what this module says. `last_words` gets the message of the panic that ends the process, and puts
/// it where an operator finds it. It is called on the thread that panics, and the process ends when it returns.
pub fn install(last_words: fn(&str)) {
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        let location = panic.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let (message, trace) = (message(panic), trace());
        if let Ok(Some(work)) = AT_STAKE.try_with(Cell::get) {
            error!(thread, %location, panic = message, trace, "A panic ends one {}: a bug", work.as_str());
            return;
        }
        error!(thread, %location, panic = message, trace, "A panic ends the process: a bug");
        last_words(&format!("thread {thread:?} panicked at {location}: {message}; the process ends\n"));
        std::process::abort();
    }));
}

/// The panic's message without data. Text behind a quote may come from anybody (`"…"` of a formatted value, or the text
/// whose slice was out of bounds), so it is cut off.
fn message(panic: &PanicHookInfo<'_>) -> String {
    let message = panic.payload_as_str().unwrap_or("no message");
    if panic.payload().is::<&'static str>() {
        return message.to_owned(); // A constant of the program.
    }
    let end = ["\"", " '", " of `", "\n"].into_iter().filter_map(|mark| message.find(mark)).min();
    let end = message.floor_char_boundary(end.unwrap_or(message.len()).min(MESSAGE_BYTES_MAX));
    if end < message.len() { format!("{} …", &message[..end]) } else { message.to_owned() }
}

/// The backtrace, if `RUST_BACKTRACE` asks for one.
fn trace() -> Option<String> {
    let trace = Backtrace::capture();
    (trace.status() == BacktraceStatus::Captured).then(|| trace.to_string())
}

/// Exports the number of panics that were caught.
pub fn register(registry: &Registry) {
    for work in Work::ALL {
        let count = Arc::new(move || CAUGHT[work as usize].load(Ordering::Relaxed) as f64);
        registry.computed(&metrics::server::PANICS_TOTAL, &[work.as_str()], count);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    const CHILD: &str = "TIDINGS_TEST_PANIC";

    fn caught(work: Work) -> u64 {
        CAUGHT[work as usize].load(Ordering::Relaxed)
    }

    #[test]
    fn a_caught_panic_is_an_error_and_is_counted() {
        let before = caught(Work::Notification);
        assert_eq!(catch(Work::Notification, || 7), Ok(7));
        assert_eq!(catch(Work::Notification, || -> u8 { panic!("as asked") }), Err(Panicked));
        assert_eq!(caught(Work::Notification), before + 1);
        let registry = Registry::new();
        register(&registry);
        assert!(registry.prometheus().contains("tidings_panics_total{work=\"notification\"}"));
    }

    #[test]
    fn what_is_at_stake_is_set_and_set_back() {
        let at_stake = || AT_STAKE.get();
        let lock_of = Mutex::new(0);
        catch(Work::Request, || {
            assert_eq!(at_stake(), Some(Work::Request));
            let mut locked = lock(&lock_of);
            *locked += 1;
            assert_eq!(at_stake(), None);
            drop(locked);
            assert_eq!(at_stake(), Some(Work::Request));
            assert_eq!(catch(Work::Notification, || -> u8 { panic!("as asked") }), Err(Panicked));
            assert_eq!(at_stake(), Some(Work::Request));
            let panicked = catch_unwind(|| {
                let _owner = owner();
                panic!("as asked");
            });
            assert!(panicked.is_err());
            assert_eq!(at_stake(), Some(Work::Request));
        })
        .unwrap();
        assert_eq!((at_stake(), *lock(&lock_of)), (None, 1));
    }

    /// Polled by hand: a future is at stake only while it runs.
    #[test]
    fn a_future_is_caught_whenever_it_panics() {
        let mut steps = 0;
        let future = std::future::poll_fn(|_| {
            steps += 1;
            assert_eq!(AT_STAKE.get(), Some(Work::Connection));
            assert!(steps < 2, "as asked");
            Poll::<()>::Pending
        });
        let mut future = pin!(catch_async(Work::Connection, future));
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(future.as_mut().poll(&mut cx).is_pending());
        assert_eq!(AT_STAKE.get(), None);
        assert_eq!(future.as_mut().poll(&mut cx), Poll::Ready(Err(Panicked)));
    }

    /// Runs this test program again, to do `what` under the hook.
    fn child(what: &str) -> Output {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "panics::tests::in_a_child", "--nocapture"]).env(CHILD, what);
        command.output().unwrap()
    }

    #[test]
    fn in_a_child() {
        let Ok(what) = std::env::var(CHILD) else { return };
        #[expect(clippy::print_stderr, reason = "the parent reads it")]
        install(|words| eprint!("last words: {words}"));
        let secret = std::hint::black_box("secret");
        let caught = match what.as_str() {
            "caught" => catch(Work::Request, || panic!("not a {secret:?}")),
            "locked" => catch(Work::Request, || {
                let mutex = Mutex::new(());
                let _locked = lock(&mutex);
                panic!("not a {secret:?}");
            }),
            "thread" => {
                let panicking = move || panic!("not a {secret:?}");
                drop(std::thread::Builder::new().name("owner".to_owned()).spawn(panicking).unwrap().join());
                return;
            }
            _ => panic!("slice {}", &secret["é".len() + 7..]),
        };
        assert_eq!(caught, Err(Panicked));
    }

    #[test]
    fn only_a_caught_panic_is_survived() {
        assert!(child("caught").status.success());
        for (what, words) in [
            ("locked", "panicked at "),
            ("thread", "last words: thread \"owner\" panicked at "),
            ("slice", "panicked at "),
        ] {
            let output = child(what);
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{what} went on");
            assert!(text.contains(words) && text.contains("panics.rs:"), "{what}: {text}");
            assert!(text.contains("the process ends\n") && !text.contains("secret"), "{what}: {text}");
        }
    }
}
