//! Takes pages from the [`Core`](crate::core::Core) and gives them to the sink. This happens in a task, on a thread of its
//! own, or, without a driver, on the producer's thread.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::time::timeout;

use crate::config::Loss;
use crate::core::Work;
use crate::shared::{Mode, Need, Shared};
use crate::sink::{BoxFuture, BoxSink};

/// The pause after a failure of the sink. It doubles up to `PAUSE_MAX` until the sink works.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Gives pages to the sink. Made by [`BatchWriter::driver`](crate::BatchWriter::driver).
pub struct Driver {
    shared: Arc<Shared>,
    /// `None` before the driver runs, and after the sink has panicked.
    sink: Option<BoxSink>,
    pause: Duration,
    /// The driver has a thread of its own, which may yield to other threads.
    is_thread: bool,
}

/// The result of writing a page or an announcement.
enum Outcome {
    Written,
    /// The announcement has no text, so nothing was written.
    NoText,
    Failed(ErrorKind),
    Panicked,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sink: None, pause: PAUSE_MIN, is_thread: false }
    }

    /// As [`Driver::run`], on a thread of its own.
    pub(crate) async fn run_on_thread(mut self) {
        self.is_thread = true;
        self.run().await;
    }

    /// Writes pages until the writer is closed, by [`close`](crate::BatchWriter::close) or because all its handles are
    /// dropped. Needs a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    /// The future may be dropped. Then the page in flight counts as dropped, and producers write into the sink directly, as
    /// before the start.
    pub async fn run(mut self) {
        self.sink = self.shared.lock_slot().take();
        loop {
            let need = if self.sink.is_some() { Need::Work } else { Need::Sink };
            if self.is_thread {
                self.shared.look_again(need);
            }
            self.shared.needed(need).await;
            self.replace_sink().await;
            if self.sink.is_some() {
                linger(&self.shared).await;
            }
            let is_closing = matches!(self.shared.lock().mode, Mode::Closing | Mode::Closed);
            let work =
                if self.sink.is_some() { self.shared.next_work(|state| !state.is_sink_replaced()) } else { None };
            let works = match work {
                Some(work) => self.carry(work).await,
                None => !is_closing || self.shared.lock().is_sink_replaced(),
            };
            if !works && is_closing {
                break; // Everything is written, or the sink fails.
            }
            if !works {
                self.rest().await;
            }
            tokio::task::consume_budget().await; // A sink that is always ready must not starve other tasks.
        }
        if let Some(sink) = self.sink.take() {
            close(&self.shared, sink).await;
        }
        self.shared.close_now();
    }

    async fn replace_sink(&mut self) {
        let Some(new) = self.shared.take_next_sink() else { return };
        self.pause = PAUSE_MIN;
        if let Some(old) = self.sink.replace(new) {
            close(&self.shared, old).await;
        }
    }

    async fn rest(&mut self) {
        drop(timeout(self.pause, self.shared.needed(Need::Hurry)).await);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Does a piece of work. Returns false if the sink failed.
    async fn carry(&mut self, work: Work) -> bool {
        let mut text = Vec::new();
        let bytes = match &work {
            Work::Page(page) => page.as_bytes(),
            Work::Announce(loss) => announcement(&self.shared, self.sink.as_ref(), *loss, &mut text),
        };
        let outcome = match &mut self.sink {
            Some(sink) if !bytes.is_empty() => write(&self.shared, sink, bytes).await,
            _ => Outcome::NoText,
        };
        if matches!(outcome, Outcome::Written) {
            self.pause = PAUSE_MIN;
        }
        finish(&self.shared, &mut self.sink, work, outcome)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.driver_gone(self.sink.take());
    }
}

/// Writes all messages into the sink without a driver. If the sink cannot write a page at once, it has failed.
pub(crate) fn carry_directly(shared: &Shared) {
    carry_into(shared, &mut shared.lock_slot());
}

/// As [`carry_directly`], with the sink's slot, which the caller has locked. While it is locked, a driver may start, but
/// none can end.
pub(crate) fn carry_into(shared: &Shared, slot: &mut Option<BoxSink>) {
    while slot.is_some()
        && let Some(work) = shared.next_work(|state| state.mode == Mode::Direct)
    {
        let mut text = Vec::new();
        let bytes = match &work {
            Work::Page(page) => page.as_bytes(),
            Work::Announce(loss) => announcement(shared, slot.as_ref(), *loss, &mut text),
        };
        let outcome = match slot {
            Some(sink) if !bytes.is_empty() => write_at_once(sink, bytes),
            _ => Outcome::NoText,
        };
        if !finish(shared, slot, work, outcome) {
            break;
        }
    }
}

/// Closes the sink of a writer without a driver, when everything is written.
pub(crate) fn close_directly(shared: &Shared) {
    let mut slot = shared.lock_slot();
    if let Some(mut sink) = slot.take() {
        let mut closing = closing(&mut sink);
        drop(poll_caught(&mut closing, &mut Context::from_waker(Waker::noop())));
    }
}

/// Records the outcome. Returns false if the sink failed.
fn finish(shared: &Shared, sink: &mut Option<BoxSink>, work: Work, outcome: Outcome) -> bool {
    let result = match outcome {
        Outcome::NoText if let Work::Announce(loss) = work => {
            shared.unannounced(loss);
            return true;
        }
        Outcome::Written | Outcome::NoText => Ok(()),
        Outcome::Failed(kind) => Err(kind),
        Outcome::Panicked => {
            let panicked = sink.take();
            drop(catch_unwind(AssertUnwindSafe(|| drop(panicked))));
            shared.sink_panicked();
            Err(ErrorKind::Other)
        }
    };
    match work {
        Work::Page(page) => shared.settle(page, result),
        Work::Announce(loss) => shared.announced(loss, result),
    }
    result.is_ok()
}

/// The text for a loss; empty if none must be written.
fn announcement<'a>(shared: &Shared, sink: Option<&BoxSink>, loss: Loss, text: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(announce) = &shared.announce else { return &[] };
    let has_text = catch_unwind(AssertUnwindSafe(|| announce.write(loss, text))).is_ok();
    let bytes_max = sink.and_then(|sink| sink.page_bytes_max()).unwrap_or(usize::MAX);
    if has_text && text.len() <= bytes_max { text } else { &[] }
}

async fn linger(shared: &Shared) {
    if !shared.linger.is_zero() {
        drop(timeout(shared.linger, shared.needed(Need::Due)).await);
    }
}

/// Writes a page or an announcement, within `write_timeout`, or until the writer is closed at its deadline.
async fn write(shared: &Shared, sink: &mut BoxSink, bytes: &[u8]) -> Outcome {
    let mut writing: BoxFuture<'_, _> = Box::pin(async move { sink.write_page(bytes).await });
    let written = timeout(
        shared.write_timeout,
        poll_fn(|cx| match poll_caught(&mut writing, cx) {
            Poll::Pending => shared.poll_needed(cx, Need::Abort).map(|()| Outcome::Failed(ErrorKind::Interrupted)),
            ready => ready,
        }),
    );
    written.await.unwrap_or(Outcome::Failed(ErrorKind::TimedOut))
}

fn write_at_once(sink: &mut BoxSink, bytes: &[u8]) -> Outcome {
    let mut writing: BoxFuture<'_, _> = Box::pin(async move { sink.write_page(bytes).await });
    match poll_caught(&mut writing, &mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => Outcome::Failed(ErrorKind::WouldBlock),
    }
}

fn poll_caught(writing: &mut BoxFuture<'_, std::io::Result<()>>, cx: &mut Context<'_>) -> Poll<Outcome> {
    match catch_unwind(AssertUnwindSafe(|| writing.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(()))) => Poll::Ready(Outcome::Written),
        Ok(Poll::Ready(Err(error))) => Poll::Ready(Outcome::Failed(error.kind())),
        Err(_) => Poll::Ready(Outcome::Panicked),
    }
}

/// Closes a sink that gets no more pages, within `write_timeout`.
async fn close(shared: &Shared, mut sink: BoxSink) {
    let mut closing = closing(&mut sink);
    let closed = poll_fn(|cx| match poll_caught(&mut closing, cx) {
        Poll::Pending => shared.poll_needed(cx, Need::Abort),
        Poll::Ready(_) => Poll::Ready(()),
    });
    drop(timeout(shared.write_timeout, closed).await);
}

fn closing(sink: &mut BoxSink) -> BoxFuture<'_, std::io::Result<()>> {
    Box::pin(async move {
        sink.close().await;
        Ok(())
    })
}
