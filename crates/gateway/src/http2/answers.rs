//! The streams of one connection that wait for their answer.
//!
//! A slab of response futures in one task, instead of a task for each. Every slot has its own waker, which is made once
//! and used for all streams in that slot. The waker notes the slot in a list, and the driver polls the listed slots. So
//! the cost of a turn depends on the number of answers, not of streams, and a request allocates nothing here.
//!
//! Wake-ups that come while the driver runs ([`Bell::begin`] to [`Bell::end`]) only ring the bell: `h2` wakes its own
//! connection task whenever a request is handed over, and the driver is about to poll it anyway.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker, ready};

use h2::RecvStream;
use h2::client::ResponseFuture;
use http::{HeaderMap, StatusCode};
use tidings_push::ANSWER_BYTES_MAX;
use tokio::time::Instant;

use super::authorization::AuthorizationNumber;
use crate::attempt::Attempt;

/// Wakes the task of a connection, except while it runs.
#[derive(Default)]
pub(crate) struct Bell {
    running: AtomicBool,
    rung: AtomicBool,
    task: Mutex<Option<Waker>>,
    /// Slots whose stream has to be polled.
    news: Mutex<Vec<usize>>,
}

impl Bell {
    /// The task runs: until [`Self::end`], ringing is only noted.
    pub(crate) fn begin(&self, waker: &Waker) {
        let mut task = lock(&self.task);
        if !task.as_ref().is_some_and(|task| task.will_wake(waker)) {
            *task = Some(waker.clone());
        }
        drop(task);
        // This turn handles earlier rings. The order matters: a ring in between has also woken the task.
        self.rung.store(false, Ordering::SeqCst);
        self.running.store(true, Ordering::SeqCst);
    }

    /// The task pauses; returns whether there is more to do: the bell rang since the last [`Self::take_rung`], or a
    /// stream has news.
    pub(crate) fn end(&self) -> bool {
        // The order matters: a ring in between is either seen here or wakes the task.
        self.running.store(false, Ordering::SeqCst);
        self.take_rung() || !lock(&self.news).is_empty()
    }

    /// Whether the bell rang while the task ran, and forgets it.
    pub(crate) fn take_rung(&self) -> bool {
        self.rung.swap(false, Ordering::SeqCst)
    }

    fn ring(&self) {
        self.rung.store(true, Ordering::SeqCst);
        if !self.running.load(Ordering::SeqCst)
            && let Some(task) = &*lock(&self.task)
        {
            task.wake_by_ref();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

/// No code under these locks can panic, so a poisoned lock guards consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct SlotBell {
    index: usize,
    bell: Arc<Bell>,
}

impl Wake for SlotBell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        lock(&self.bell.news).push(self.index);
        // While the task runs, the list is enough: the task looks there before it pauses.
        if !self.bell.running.load(Ordering::SeqCst) {
            self.bell.ring();
        }
    }
}

/// What came back for one request.
pub(crate) enum Answer {
    /// The provider answered; the body's beginning, unless it accepted.
    Response(StatusCode, HeaderMap, Vec<u8>),
    /// The stream or the connection failed before.
    Failed(h2::Error),
    /// No answer came in time, or the connection ended.
    Lost,
}

/// A request that is over.
pub(crate) struct Ended {
    pub(crate) attempt: Attempt,
    pub(crate) authorization: AuthorizationNumber,
    pub(crate) opened_at: Instant,
    pub(crate) answer: Answer,
}

/// A request whose stream is open.
struct Waiting {
    attempt: Attempt,
    authorization: AuthorizationNumber,
    opened_at: Instant,
    stage: Stage,
}

enum Stage {
    Head(ResponseFuture),
    Body(StatusCode, HeaderMap, RecvStream, Vec<u8>),
}

struct Slot {
    waker: Waker,
    waiting: Option<Waiting>,
}

/// All open streams of one connection. Bounded by the permits under which they were opened.
pub(crate) struct Answers {
    slots: Vec<Slot>,
    free: Vec<usize>,
    bell: Arc<Bell>,
    /// Spare list that is swapped with the bell's, so that neither is allocated again.
    news: Vec<usize>,
}

impl Answers {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), bell, news: Vec::new() }
    }

    /// Adds a stream that was just opened, and lets it wake its slot.
    pub(crate) fn insert(
        &mut self,
        attempt: Attempt,
        authorization: AuthorizationNumber,
        response: ResponseFuture,
        now: Instant,
    ) {
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len();
            let waker = Waker::from(Arc::new(SlotBell { index, bell: Arc::clone(&self.bell) }));
            self.slots.push(Slot { waker, waiting: None });
            index
        });
        let stage = Stage::Head(response);
        self.slots[index].waiting = Some(Waiting { attempt, authorization, opened_at: now, stage });
        // Its first poll registers the waker. The list makes sure that an earlier error is found.
        lock(&self.bell.news).push(index);
    }

    /// Appends every stream that has ended since the last call.
    pub(crate) fn collect(&mut self, ended: &mut Vec<Ended>) {
        let mut news = std::mem::take(&mut self.news);
        std::mem::swap(&mut news, &mut lock(&self.bell.news));
        for index in news.drain(..) {
            // A late wake-up of a stream that is gone polls its successor once for nothing.
            let slot = &mut self.slots[index];
            let Some(waiting) = &mut slot.waiting else { continue };
            if let Poll::Ready(answer) = waiting.stage.poll(&mut Context::from_waker(&slot.waker)) {
                ended.push(self.end(index, answer));
            }
        }
        self.news = news;
    }

    /// Gives up the streams that were opened before `opened_before`.
    pub(crate) fn give_up(&mut self, opened_before: Instant, ended: &mut Vec<Ended>) {
        self.cut(ended, |waiting| waiting.opened_at < opened_before);
    }

    /// Ends all streams after the connection has ended: with their answer if it has come, else as lost.
    pub(crate) fn end_all(&mut self, ended: &mut Vec<Ended>) {
        self.cut(ended, |_| true);
    }

    fn cut(&mut self, ended: &mut Vec<Ended>, is_meant: impl Fn(&Waiting) -> bool) {
        for index in 0..self.slots.len() {
            let Some(waiting) = self.slots[index].waiting.as_mut().filter(|waiting| is_meant(waiting)) else {
                continue;
            };
            let answer = match waiting.stage.poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(answer) => answer,
                Poll::Pending => waiting.stage.so_far(),
            };
            ended.push(self.end(index, answer));
        }
    }

    fn end(&mut self, index: usize, answer: Answer) -> Ended {
        self.free.push(index);
        let Waiting { attempt, authorization, opened_at, .. } =
            self.slots[index].waiting.take().expect("only streams that wait are ended");
        Ended { attempt, authorization, opened_at, answer }
    }
}

impl Stage {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Answer> {
        if let Self::Head(response) = self {
            match ready!(Pin::new(response).poll(cx)) {
                Err(error) => return Poll::Ready(Answer::Failed(error)),
                Ok(response) => {
                    let (head, body) = response.into_parts();
                    if body.is_end_stream() {
                        return Poll::Ready(Answer::Response(head.status, head.headers, Vec::new()));
                    }
                    *self = Self::Body(head.status, head.headers, body, Vec::new());
                }
            }
        }
        let Self::Body(status, _, body, bytes) = self else { unreachable!("the head was read above") };
        // Read to the end even if the rest is not needed: dropping the stream earlier would reset it, and peers count
        // resets.
        let mut passed = 0;
        loop {
            match ready!(body.poll_data(cx)) {
                Some(Ok(data)) => {
                    passed += data.len();
                    // It fails only on a stream that is gone, whose window nobody needs any more.
                    _ = body.flow_control().release_capacity(data.len());
                    if !status.is_success() {
                        bytes.extend_from_slice(&data[..data.len().min(ANSWER_BYTES_MAX - bytes.len())]);
                    }
                }
                Some(Err(_)) | None => return Poll::Ready(self.so_far()),
            }
            if passed >= ANSWER_BYTES_MAX || bytes.len() >= ANSWER_BYTES_MAX {
                return Poll::Ready(self.so_far());
            }
        }
    }

    /// The answer without the rest of the body. The status alone is enough.
    fn so_far(&mut self) -> Answer {
        match self {
            Self::Head(_) => Answer::Lost,
            Self::Body(status, headers, _, bytes) => {
                Answer::Response(*status, std::mem::take(headers), std::mem::take(bytes))
            }
        }
    }
}
