//! Takes pages from the [`Core`](crate::core::Core) and gives them to the sink: in a task, on a thread of its own, or,
//! without a driver, on the thread that writes.

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

/// After a failure the sink is left alone for this long, doubling up to `PAUSE_MAX` until it works.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What carries pages to the sink. Made by [`BatchWriter::driver`](crate::BatchWriter::driver).
pub struct Driver {
    shared: Arc<Shared>,
    /// None before it runs, and when it panicked.
    sink: Option<BoxSink>,
    pause: Duration,
    /// It has a thread of its own, which may let others run.
    is_thread: bool,
}

/// What became of a page or an announcement.
enum Outcome {
    Written,
    /// There was nothing to write: the announcement has no text.
    Untold,
    Failed(ErrorKind),
    Panicked,
}

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared, sink: None, pause: PAUSE_MIN, is_thread: false }
    }

    /// As [`Driver::run`], for a thread that has nothing else to do.
    pub(crate) async fn run_on_thread(mut self) {
        self.is_thread = true;
        self.run().await;
    }

    /// Carries pages until the writer is closed, by [`close`](crate::BatchWriter::close) or because all its handles are
    /// gone. Needs a tokio runtime with time enabled.
    ///
    /// # Cancel safety
    /// May be dropped: the page in flight counts as dropped, and producers write into the sink directly from then on, as
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
                break; // All is written, or the sink fails.
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

    /// Does a piece of work; false if the sink failed.
    async fn carry(&mut self, work: Work) -> bool {
        let mut text = Vec::new();
        let bytes = match &work {
            Work::Page(page) => page.as_bytes(),
            Work::Announce(loss) => announcement(&self.shared, self.sink.as_ref(), *loss, &mut text),
        };
        let outcome = match &mut self.sink {
            Some(sink) if !bytes.is_empty() => write(&self.shared, sink, bytes).await,
            _ => Outcome::Untold,
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

/// Writes what is held into the sink without a driver: what the sink does not take at once counts as failed.
pub(crate) fn carry_directly(shared: &Shared) {
    carry_into(shared, &mut shared.lock_slot());
}

/// The same, into the sink whose slot the caller has locked: until it is unlocked a driver may come, but none goes.
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
            _ => Outcome::Untold,
        };
        if !finish(shared, slot, work, outcome) {
            break;
        }
    }
}

/// Closes a writer without a driver, when all is carried.
pub(crate) fn close_directly(shared: &Shared) {
    let mut slot = shared.lock_slot();
    if let Some(mut sink) = slot.take() {
        let mut closing = closing(&mut sink);
        drop(poll_caught(&mut closing, &mut Context::from_waker(Waker::noop())));
    }
}

/// Puts the outcome into the books; false if the sink failed.
fn finish(shared: &Shared, sink: &mut Option<BoxSink>, work: Work, outcome: Outcome) -> bool {
    let result = match outcome {
        Outcome::Untold if let Work::Announce(loss) = work => {
            shared.untold(loss);
            return true;
        }
        Outcome::Written | Outcome::Untold => Ok(()),
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

/// The text for a loss; empty when there is none to be written.
fn announcement<'a>(shared: &Shared, sink: Option<&BoxSink>, loss: Loss, text: &'a mut Vec<u8>) -> &'a [u8] {
    let Some(announce) = &shared.announce else { return &[] };
    let is_told = catch_unwind(AssertUnwindSafe(|| announce.write(loss, text))).is_ok();
    let bytes_max = sink.and_then(|sink| sink.page_bytes_max()).unwrap_or(usize::MAX);
    if is_told && text.len() <= bytes_max { text } else { &[] }
}

async fn linger(shared: &Shared) {
    if !shared.linger.is_zero() {
        drop(timeout(shared.linger, shared.needed(Need::Due)).await);
    }
}

/// One page or announcement, within `write_timeout`, or until the writer is closed without waiting any longer.
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

/// Closes a sink that gets no more pages; it has as long as for a page.
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
