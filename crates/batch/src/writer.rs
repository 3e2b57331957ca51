//! The producers' handle.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, MutexGuard};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Builder;

use crate::config::{BatchConfig, Counters, Full};
use crate::core::{Mark, Refusal};
use crate::driver::{Driver, carry_directly, carry_into, close_directly};
use crate::error::{FlushError, WriteError};
use crate::shared::{For, Mode, Shared, State};
use crate::sink::{DynSink, Sink};

/// Collects messages of many producers and hands the sink pages of them.
///
/// A cheap handle: clone it for each producer. When the last one is dropped, the driver writes what is held and ends.
///
/// It is *started* while there is a [`driver`](Self::driver) or [a thread](Self::start_thread) of it. Before that, whoever
/// writes writes into the sink and waits for it, one after the other. A sink that is asynchronous is polled once then,
/// and if it does not take the message at once, the message counts as dropped.
///
/// Messages are taken in the order in which `write` got to the lock, and reach the sink in this order.
///
/// ```
/// use std::time::Duration;
/// use tidings_batch::{Announce, BatchConfig, BatchWriter, Full, IoSink};
///
/// let config = BatchConfig {
///     page_bytes: 4096,
///     count_max: 10_000,
///     bytes_max: 1 << 20,
///     full: Full::EvictOldest,
///     linger: Duration::ZERO,
///     write_timeout: Duration::from_secs(10),
///     announce: Some(Announce::line()),
/// };
/// let writer = BatchWriter::new(config, IoSink::new(std::io::stderr()));
/// writer.start_thread("log")?;
/// writer.write(b"a line\n")?;
/// writer.close_blocking(Duration::from_secs(1))?;
/// assert_eq!(writer.counters().sent, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct BatchWriter {
    shared: Arc<Shared>,
    /// The last one closes.
    _alive: Arc<Alive>,
}

struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        begin_close(&self.0);
    }
}

impl BatchWriter {
    /// A writer that is not started.
    #[must_use]
    pub fn new(config: BatchConfig, sink: impl Sink) -> Self {
        let shared = Arc::new(Shared::new(config, Box::new(sink)));
        Self { _alive: Arc::new(Alive(Arc::clone(&shared))), shared }
    }

    // Start

    /// Starts the writer: from now on messages gather, and the caller sees to it that [`Driver::run`] runs, as a task for
    /// an asynchronous sink. None if there is a driver already, or the writer is closed.
    #[must_use = "nothing is written as long as the driver does not run"]
    pub fn driver(&self) -> Option<Driver> {
        let mut state = self.shared.lock();
        if state.mode != Mode::Direct {
            return None;
        }
        state.mode = Mode::Running;
        Some(Driver::new(Arc::clone(&self.shared)))
    }

    /// Starts the writer on a thread of its own, for an [`IoSink`](crate::IoSink). The thread ends when the writer is
    /// closed and the sink has returned.
    ///
    /// # Errors
    /// If the writer is started or closed already ([`ErrorKind::AlreadyExists`]), or the system gives no thread. It is as
    /// before then.
    pub fn start_thread(&self, name: &str) -> io::Result<()> {
        let driver = self.driver().ok_or(ErrorKind::AlreadyExists)?;
        let (tx, rx) = sync_channel(1);
        let run = move || {
            // A runtime must not be dropped within another, so it is the thread's from its first moment.
            match Builder::new_current_thread().enable_time().build() {
                Ok(runtime) => {
                    drop(tx.send(Ok(())));
                    runtime.block_on(driver.run_on_thread());
                }
                Err(error) => {
                    drop(driver);
                    drop(tx.send(Err(error)));
                }
            }
        };
        std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        rx.recv().map_err(io::Error::other)?
    }

    // Write

    /// Takes one message. It is copied; it will stand in one page, whole. An empty message is nothing.
    ///
    /// Under the policies [`Full::EvictOldest`] and [`Full::DropNewest`] what is lost is counted, and `Ok` is returned.
    ///
    /// Takes a short lock and allocates only when a page is begun and none is kept. Blocks under [`Full::Wait`], and, as
    /// long as the writer is not started, while the sink is writing.
    ///
    /// # Errors
    /// If there is no room and the policy is to say so, if it can never fit, or if the writer is closed.
    pub fn write(&self, message: &[u8]) -> Result<(), WriteError> {
        loop {
            let state = self.shared.lock();
            match state.mode {
                Mode::Running => return self.write_started(state, message),
                Mode::Direct => drop(state),
                Mode::Closing | Mode::Closed => return refuse(state, message, Refusal::Full),
            }
            if let Some(written) = self.write_directly(message) {
                return written;
            }
        }
    }

    /// Takes one message as [`write`](Self::write) does, but when there is no room waits for it without blocking the
    /// thread, whatever the policy: as long as the sink needs, so put a timeout around it.
    ///
    /// Producers that wait are not served in the order in which they came.
    ///
    /// # Errors
    /// If it can never fit, if the writer is closed, or if there is no room and no driver, and the sink fails.
    ///
    /// # Cancel safety
    /// Dropped before it is done, the message was not taken and is not counted.
    pub async fn write_when_room(&self, message: &[u8]) -> Result<(), WriteError> {
        loop {
            let offered = offer_if_room(&mut self.shared.lock(), message);
            let offered = match offered {
                Some(offered) => offered,
                None => self.shared.wait(For::Room, |state| offer_if_room(state, message)).await,
            };
            if let Offered::Answered(written, driver) = offered {
                wake(driver);
                return written;
            }
            if let Some(written) = self.write_directly(message) {
                return written;
            }
        }
    }

    /// As `write`, but a message that is refused counts as dropped, so that the stream tells of it.
    #[cfg(feature = "tracing")]
    pub(crate) fn write_or_lose(&self, message: &[u8]) {
        let refused = self.write(message);
        if let Err(WriteError::Full { .. } | WriteError::TooLarge { .. }) = refused {
            self.shared.change(|state| state.core.lose_refused());
        }
    }

    fn write_started(&self, mut state: MutexGuard<'_, State>, message: &[u8]) -> Result<(), WriteError> {
        let offered = state.core.offer(message);
        let driver = state.driver_to_wake();
        if let (Err(Refusal::Full), Full::Wait { at_most }) = (offered, state.core.full()) {
            drop(state);
            wake(driver); // It may be waiting for more.
            return self.write_waiting(message, at_most);
        }
        if let Err(refusal) = offered {
            return refuse(state, message, refusal);
        }
        drop(state);
        wake(driver);
        Ok(())
    }

    fn write_waiting(&self, message: &[u8], at_most: Duration) -> Result<(), WriteError> {
        let (mut state, offered) = self.shared.wait_blocking(For::Room, at_most, |state| match state.mode {
            Mode::Running => Some(state.core.offer(message)).filter(|offered| *offered != Err(Refusal::Full)),
            _ => Some(Err(Refusal::Full)),
        });
        if state.mode == Mode::Direct && offered == Some(Err(Refusal::Full)) {
            drop(state);
            return self.write(message); // The driver is gone, nobody else would make room.
        }
        let driver = state.driver_to_wake();
        let written = match offered {
            Some(Ok(())) => {
                drop(state);
                Ok(())
            }
            Some(Err(refusal)) => refuse(state, message, refusal),
            None => refuse(state, message, Refusal::Full),
        };
        wake(driver);
        written
    }

    /// None if the writer is started or closed by now: then nothing was done with the message.
    fn write_directly(&self, message: &[u8]) -> Option<Result<(), WriteError>> {
        let offer = |state: &mut State| (state.mode == Mode::Direct).then(|| state.core.offer(message));
        // Locked over both offers: what a driver that came and went left behind must not count as a sink that is full.
        let mut slot = self.shared.lock_slot();
        let mut offered = self.shared.change(offer)?;
        carry_into(&self.shared, &mut slot);
        if offered == Err(Refusal::Full) {
            offered = self.shared.change(offer)?; // Something was left from before.
            carry_into(&self.shared, &mut slot);
        }
        drop(slot);
        Some(offered.or_else(|refusal| refuse(self.shared.lock(), message, refusal)))
    }

    // Look

    /// What went through, and what is held.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let state = self.shared.lock();
        let tally = state.core.tally();
        Counters {
            total: tally.total,
            sent: tally.sent,
            dropped: tally.dropped,
            refused: tally.refused,
            announced: tally.announced,
            pages: tally.pages,
            failures: tally.failures,
            failure: state.core.failure(),
            waiting: state.core.waiting_count(),
            in_flight: state.core.in_flight_count(),
            bytes: state.core.held_bytes(),
            memory_bytes: state.core.memory_bytes(),
        }
    }

    // Change

    /// Sets the size of pages, from 1 to [`PAGE_BYTES_MAX`](crate::PAGE_BYTES_MAX), for what waits too.
    pub fn set_page_bytes(&self, page_bytes: usize) {
        self.shared.change(|state| state.core.set_page_bytes(page_bytes));
    }

    /// Sets how much may wait. What waits already stays, until the policy for a new message says otherwise.
    pub fn set_capacity(&self, count_max: usize, bytes_max: usize) {
        self.shared.change(|state| state.core.set_capacity(count_max, bytes_max));
    }

    /// Sends what is not in flight yet to another sink. The old one finishes its page, is closed and dropped. Also brings
    /// a new one after one that panicked. A closed writer drops it.
    ///
    /// Waits only when the writer is not started and somebody is just writing directly.
    pub fn set_sink(&self, sink: impl Sink) {
        let sink: Box<dyn DynSink> = Box::new(sink);
        self.shared.set_sink(sink);
    }

    // Flush and close

    /// Waits until everything that was accepted before has left, written or lost, and what was lost before is told of, if it
    /// can be. Does not wait for what comes later, and cuts lingering short.
    ///
    /// As long as the writer is not started, it is the caller that writes into the sink, and waits for one that blocks even
    /// when `timeout` is over.
    ///
    /// # Errors
    /// If `timeout` is over first, or the sink fails meanwhile. Nothing is dropped for that; try again if you like.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_flush();
        let flushed = tokio::time::timeout(timeout, self.shared.wait(For::Flush, |state| state.flushed(mark))).await;
        self.end_flush(flushed.ok())
    }

    /// As [`flush`](Self::flush), for where nothing is asynchronous; blocks the thread. In the only thread of the runtime
    /// that the driver runs in, it can but time out.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_blocking(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_flush();
        let (state, flushed) = self.shared.wait_blocking(For::Flush, timeout, |state| state.flushed(mark));
        drop(state);
        self.end_flush(flushed)
    }

    /// Takes no more messages, writes what is held, closes the sink, and ends the driver. The first failure of the sink, or
    /// the end of `timeout`, drops what is left. A sink that blocks a thread keeps it until it returns: the driver's, or the
    /// caller's if the writer is not started.
    ///
    /// # Errors
    /// If something was left; it is dropped and counted.
    ///
    /// # Cancel safety
    /// May be dropped; then it is being closed without a deadline.
    pub async fn close(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_close();
        let closed = tokio::time::timeout(timeout, self.shared.wait(For::Flush, |state| state.closed(mark))).await;
        self.end_close(closed.ok())
    }

    /// As [`close`](Self::close), for where nothing is asynchronous; blocks the thread.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn close_blocking(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_close();
        let (state, closed) = self.shared.wait_blocking(For::Flush, timeout, |state| state.closed(mark));
        drop(state);
        self.end_close(closed)
    }

    fn begin_flush(&self) -> Mark {
        let mark = self.shared.change(|state| state.core.mark());
        carry_directly(&self.shared);
        mark
    }

    fn end_flush(&self, flushed: Option<Result<(), ()>>) -> Result<(), FlushError> {
        let state = self.shared.lock();
        let held = state.core.waiting_count() + state.core.in_flight_count();
        match flushed {
            Some(Ok(())) => Ok(()),
            Some(Err(())) => Err(FlushError::Failed { held }),
            None => Err(FlushError::Deadline { held }),
        }
    }

    fn begin_close(&self) -> Mark {
        let mark = self.begin_flush();
        begin_close(&self.shared);
        mark
    }

    fn end_close(&self, closed: Option<Result<(), ()>>) -> Result<(), FlushError> {
        match closed {
            Some(Ok(())) => Ok(()),
            Some(Err(())) => Err(FlushError::Failed { held: self.shared.lock().left_count() }),
            None => Err(FlushError::Deadline { held: self.shared.close_now() }),
        }
    }
}

/// The driver, if there is one, writes what is held and ends.
fn begin_close(shared: &Shared) {
    carry_directly(shared);
    let is_closed = shared.change(|state| match state.mode {
        Mode::Direct => {
            state.close();
            true
        }
        Mode::Running => {
            state.mode = Mode::Closing;
            false
        }
        Mode::Closing | Mode::Closed => false,
    });
    if is_closed {
        close_directly(shared);
    }
}

/// What became of a message whose producer can wait for room.
enum Offered {
    /// Taken or refused; the driver, if it must know.
    Answered(Result<(), WriteError>, Option<Waker>),
    /// There is no driver to wait for.
    Directly,
}

/// Takes the message if that costs no other its place; none as long as there is no room.
fn offer_if_room(state: &mut State, message: &[u8]) -> Option<Offered> {
    if state.mode == Mode::Direct {
        return Some(Offered::Directly);
    }
    let is_closed = matches!(state.mode, Mode::Closing | Mode::Closed);
    let can_fit = message.len() <= state.core.message_bytes_max();
    if !is_closed && can_fit && !message.is_empty() && !state.core.has_room(message.len()) {
        return None;
    }
    let offered = if is_closed { Err(Refusal::Full) } else { state.core.offer(message) };
    let written = offered.map_err(|refusal| refusal_of(state, message, refusal));
    Some(Offered::Answered(written, state.driver_to_wake()))
}

fn refuse(mut state: MutexGuard<'_, State>, message: &[u8], refusal: Refusal) -> Result<(), WriteError> {
    Err(refusal_of(&mut state, message, refusal))
}

/// Counts the message and says why it was not taken.
fn refusal_of(state: &mut State, message: &[u8], refusal: Refusal) -> WriteError {
    state.core.refuse();
    let bytes = message.len();
    match (state.mode, refusal) {
        (Mode::Closing | Mode::Closed, _) => WriteError::Closed,
        (_, Refusal::TooLarge { bytes_max }) => WriteError::TooLarge { bytes, bytes_max },
        (_, Refusal::Full) => WriteError::Full { bytes },
    }
}

fn wake(driver: Option<Waker>) {
    if let Some(driver) = driver {
        driver.wake();
    }
}

impl fmt::Debug for BatchWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchWriter").field("counters", &self.counters()).finish_non_exhaustive()
    }
}
