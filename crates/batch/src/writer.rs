//! The handle that producers use.

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

/// Collects the messages of many producers in pages, and gives the pages to a sink.
///
/// A cheap handle: clone it for each producer. When the last handle is dropped, the driver writes the remaining messages
/// and ends.
///
/// The writer is *started* while it has a [`driver`](Self::driver) or [a thread](Self::start_thread). Before that, producers
/// write into the sink themselves, one after the other, and wait for it. An asynchronous sink is then polled once. If it
/// does not write the message at once, the message counts as dropped.
///
/// Messages reach the sink in the order in which `write` took the lock.
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
    /// Closes the writer when the last handle is dropped.
    _alive: Arc<Alive>,
}

struct Alive(Arc<Shared>);

impl Drop for Alive {
    fn drop(&mut self) {
        begin_close(&self.0);
    }
}

impl BatchWriter {
    /// Makes a writer that is not started.
    #[must_use]
    pub fn new(config: BatchConfig, sink: impl Sink) -> Self {
        let shared = Arc::new(Shared::new(config, Box::new(sink)));
        Self { _alive: Arc::new(Alive(Arc::clone(&shared))), shared }
    }

    // Start

    /// Starts the writer: from now on messages gather. The caller must run [`Driver::run`], as a task for an asynchronous
    /// sink. Returns `None` if there is a driver already, or the writer is closed.
    #[must_use = "nothing is written while the driver does not run"]
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
    /// If the writer is started or closed already ([`ErrorKind::AlreadyExists`]), or no thread can be started. The writer
    /// is then unchanged.
    pub fn start_thread(&self, name: &str) -> io::Result<()> {
        let driver = self.driver().ok_or(ErrorKind::AlreadyExists)?;
        let (tx, rx) = sync_channel(1);
        let run = move || {
            // A runtime must not be dropped inside another runtime, so the new thread makes and drops it.
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

    /// Writes one message. The message is copied, and is never split between pages. An empty message is ignored.
    ///
    /// Under the policies [`Full::EvictOldest`] and [`Full::DropNewest`], losses are counted and `Ok` is returned.
    ///
    /// Takes a short lock. Allocates only when a page begins and there is no empty page for reuse. Blocks under
    /// [`Full::Wait`]. While the writer is not started, blocks until the sink has written.
    ///
    /// # Errors
    /// If there is no room and the policy is to refuse, if the message can never fit, or if the writer is closed.
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

    /// Writes one message as [`write`](Self::write) does. If there is no room, waits for it without blocking the thread,
    /// under any policy. The wait has no limit, so put a timeout around it.
    ///
    /// Waiting producers are not served in the order of their calls.
    ///
    /// # Errors
    /// If the message can never fit, if the writer is closed, or if there is no room and no driver, and the sink fails.
    ///
    /// # Cancel safety
    /// If the future is dropped before it ends, the message is not written and not counted.
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

    /// As `write`, but a refused message counts as dropped, so that the stream reports it.
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
            wake(driver); // It may linger.
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
            return self.write(message); // The driver has ended, so no room would become free.
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

    /// Writes without a driver. Returns `None` and does nothing if the writer is started or closed by now.
    fn write_directly(&self, message: &[u8]) -> Option<Result<(), WriteError>> {
        let offer = |state: &mut State| (state.mode == Mode::Direct).then(|| state.core.offer(message));
        // Locked during both offers: messages that an ended driver has left behind must not count as a full sink.
        let mut slot = self.shared.lock_slot();
        let mut offered = self.shared.change(offer)?;
        carry_into(&self.shared, &mut slot);
        if offered == Err(Refusal::Full) {
            offered = self.shared.change(offer)?; // Now the messages from before are written.
            carry_into(&self.shared, &mut slot);
        }
        drop(slot);
        Some(offered.or_else(|refusal| refuse(self.shared.lock(), message, refusal)))
    }

    // Queries

    /// The counters.
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

    // Settings

    /// Sets the size of pages, from 1 to [`PAGE_BYTES_MAX`](crate::PAGE_BYTES_MAX), also for waiting messages.
    pub fn set_page_bytes(&self, page_bytes: usize) {
        self.shared.change(|state| state.core.set_page_bytes(page_bytes));
    }

    /// Sets the capacity. Messages that wait already stay until the policy for a new message drops them.
    pub fn set_capacity(&self, count_max: usize, bytes_max: usize) {
        self.shared.change(|state| state.core.set_capacity(count_max, bytes_max));
    }

    /// Replaces the sink, also after a panic. The old sink finishes its page, is closed and dropped. All other messages go
    /// to the new sink. A closed writer drops the new sink.
    ///
    /// Waits only if the writer is not started and a producer is writing into the sink.
    pub fn set_sink(&self, sink: impl Sink) {
        let sink: Box<dyn DynSink> = Box::new(sink);
        self.shared.set_sink(sink);
    }

    // Flush and close

    /// Waits until all earlier messages are written or lost, and earlier losses are announced if possible. Does not wait for
    /// later messages. Ends the linger.
    ///
    /// While the writer is not started, the caller writes into the sink. It waits for a blocking sink even after `timeout`.
    ///
    /// # Errors
    /// If `timeout` is over first, or the sink fails. This drops no messages; `flush` can be called again.
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn flush(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_flush();
        let flushed = tokio::time::timeout(timeout, self.shared.wait(For::Flush, |state| state.flushed(mark))).await;
        self.end_flush(flushed.ok())
    }

    /// As [`flush`](Self::flush), but blocks the thread. On the only thread of the driver's runtime it always times out.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn flush_blocking(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_flush();
        let (state, flushed) = self.shared.wait_blocking(For::Flush, timeout, |state| state.flushed(mark));
        drop(state);
        self.end_flush(flushed)
    }

    /// Accepts no more messages, writes the remaining ones, closes the sink, and ends the driver. At the first failure of
    /// the sink, or at the end of `timeout`, the rest is dropped. A blocking sink keeps its thread until it returns: the
    /// driver's thread, or the caller's if the writer is not started.
    ///
    /// # Errors
    /// If messages were left. They are dropped and counted.
    ///
    /// # Cancel safety
    /// If the future is dropped, the writer closes without a deadline.
    pub async fn close(&self, timeout: Duration) -> Result<(), FlushError> {
        let mark = self.begin_close();
        let closed = tokio::time::timeout(timeout, self.shared.wait(For::Flush, |state| state.closed(mark))).await;
        self.end_close(closed.ok())
    }

    /// As [`close`](Self::close), but blocks the thread.
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

/// Makes the driver, if there is one, write the remaining messages and end.
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

/// The result of [`offer_if_room`].
enum Offered {
    /// The message was accepted or refused. The waker is for the driver, if it must be woken.
    Answered(Result<(), WriteError>, Option<Waker>),
    /// There is no driver.
    Directly,
}

/// Offers the message if no other message is dropped for it. Returns `None` while there is no room.
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

/// Counts the message as refused, and returns the error.
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
