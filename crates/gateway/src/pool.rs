//! What the connections of one thread share: where notifications come from, where repeats wait, where outcomes go.
//!
//! ```text
//!  lake ─► take ─► connection ─► accepted, rejected ─────────────► settled ─► sink
//!            ▲         │                                              ▲
//!            │         └► repeat ─► ready (at once, elsewhere)        │ expired, cancelled
//!            └────────────────────  waiting (until due, and paid) ────┘
//! ```
//!
//! Bound: `held_max` notifications are held in all, in flight, ready or waiting. At the bound nothing is taken from the
//! lake. Every one held is settled exactly once, or counted as left behind when the gateway is stopped before.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tidings_buffer::Consumer;
use tidings_push::apns::Reason;
use tidings_push::retry::{RetryBudget, repeat_at};
use tidings_push::{Notification, Outcome, OutcomeSink, Settled, TokenGone};
use tidings_telemetry::unix_now;
use tidings_types::{JournalPosition, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Metrics, Repeat};

/// How long a repeat that is due but not paid for waits before it asks again.
const BUDGET_PAUSE: Duration = Duration::from_millis(100);

/// A notification taken out of the lake, with its history.
pub(crate) struct Attempt {
    pub(crate) notification: Notification,
    taken_at: Instant,
    /// Attempts that failed.
    failed: u32,
    /// One of them may have been delivered: nobody knows.
    maybe_delivered: bool,
    /// It was already sent again at once; from then on it waits.
    hurried: bool,
}

/// When a repeat may be made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Delay {
    /// At once the first time, on whichever connection has room; later as `Backoff`.
    Hurry,
    /// After back-off, and not before this.
    Backoff(Duration),
}

struct Waiting {
    due: Instant,
    /// Orders equal moments by arrival.
    sequence: u64,
    attempt: Attempt,
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.due, self.sequence).cmp(&(other.due, other.sequence))
    }
}

pub(crate) struct Pool {
    held: usize,
    held_max: usize,
    ready: VecDeque<Attempt>,
    waiting: BinaryHeap<Reverse<Waiting>>,
    sequence: u64,
    budget: RetryBudget,
    settled: Vec<Settled>,
    sink: Arc<dyn OutcomeSink>,
    metrics: Metrics,
    latency: tidings_telemetry::LocalHistogram,
    /// Connections that have room, by slot: woken when something is ready for them.
    hungry: Vec<Option<Waker>>,
    /// What the lake gave, before it is looked at; empty between calls.
    inbox: Vec<Notification>,
    /// The lake is closed and empty.
    lake_finished: bool,
    /// Wakes the pool's own task: a repeat waits, or everything is done.
    changed: Arc<Notify>,
}

impl Pool {
    pub(crate) fn new(
        slot_count: usize,
        held_max: usize,
        sink: Arc<dyn OutcomeSink>,
        metrics: Metrics,
        now: Timestamp,
    ) -> Self {
        Self {
            held: 0,
            held_max,
            ready: VecDeque::new(),
            waiting: BinaryHeap::new(),
            sequence: 0,
            budget: RetryBudget::new(now),
            settled: Vec::new(),
            sink,
            latency: metrics.latency.local(),
            metrics,
            hungry: vec![None; slot_count],
            inbox: Vec::new(),
            lake_finished: false,
            changed: Arc::new(Notify::new()),
        }
    }

    pub(crate) fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }

    /// Notifications taken and not settled.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// Whether everything is settled and nothing will come.
    pub(crate) fn is_finished(&self) -> bool {
        self.lake_finished && self.held == 0
    }

    /// Appends up to `demand` notifications that are to be sent now; those that must not be any more are settled
    /// instead. What is missing wakes the connection in `slot` when it comes. A demand of 0 leaves the line.
    pub(crate) fn take(
        &mut self,
        cx: &mut Context<'_>,
        slot: usize,
        consumer: &mut Consumer<Notification>,
        demand: usize,
        out: &mut Vec<Attempt>,
    ) {
        let (now, unix) = (Instant::now(), unix_now());
        let mut jobs = CancelledJobs { sink: Arc::clone(&self.sink), last: None };
        loop {
            while out.len() < demand
                && let Some(attempt) = self.ready.pop_front()
            {
                self.sort(attempt, out, &mut jobs, now, unix);
            }
            let wanted = (demand - out.len()).min(self.held_max - self.held);
            match consumer.poll_take(cx, wanted, &mut self.inbox) {
                Poll::Ready(0) => self.lake_finished = true,
                Poll::Ready(count) => {
                    self.held += count;
                    let mut inbox = std::mem::take(&mut self.inbox);
                    for notification in inbox.drain(..) {
                        let fresh =
                            Attempt { notification, taken_at: now, failed: 0, maybe_delivered: false, hurried: false };
                        self.sort(fresh, out, &mut jobs, now, unix);
                    }
                    self.inbox = inbox;
                    continue; // Some may have been settled, and the lake may have more.
                }
                Poll::Pending => {}
            }
            break;
        }
        self.hungry[slot] = (out.len() < demand).then(|| cx.waker().clone());
        if self.is_finished() {
            self.changed.notify_one();
        }
    }

    /// Lets an attempt be made, unless its time is over or its job cancelled.
    fn sort(
        &mut self,
        attempt: Attempt,
        out: &mut Vec<Attempt>,
        jobs: &mut CancelledJobs,
        now: Instant,
        unix: Timestamp,
    ) {
        if attempt.notification.rendering.expires_at() <= unix {
            self.settle(attempt, Outcome::Expired, None, now);
        } else if jobs.contain(attempt.notification.ticket.job) {
            self.settle(attempt, Outcome::Cancelled, None, now);
        } else {
            out.push(attempt);
        }
    }

    /// Gives back what was taken but not sent.
    pub(crate) fn put_back(&mut self, attempt: Attempt) {
        self.ready.push_front(attempt);
        self.wake_hungry();
    }

    pub(crate) fn on_accepted(&mut self, attempt: Attempt, now: Instant) {
        self.budget.on_accepted(attempt.failed > 0);
        self.settle(attempt, Outcome::Accepted, None, now);
    }

    pub(crate) fn on_rejected(&mut self, attempt: Attempt, reason: Reason, gone_at: Option<Timestamp>, now: Instant) {
        let gone = gone_at.map(|at| TokenGone { token: attempt.notification.token.clone(), at });
        self.settle(attempt, Outcome::Rejected(reason), gone, now);
    }

    /// The attempt failed and another one may be made, if there is time for it.
    pub(crate) fn on_failed(&mut self, mut attempt: Attempt, cause: Repeat, delay: Delay, now: Instant) {
        self.metrics.on_repeat(cause);
        attempt.failed = attempt.failed.saturating_add(1);
        attempt.maybe_delivered |= cause == Repeat::Unknown;
        let floor = match delay {
            Delay::Hurry if !attempt.hurried => {
                attempt.hurried = true;
                self.ready.push_back(attempt);
                return self.wake_hungry();
            }
            Delay::Hurry => Duration::ZERO,
            Delay::Backoff(floor) => floor,
        };
        let (unix, expires_at) = (unix_now(), attempt.notification.rendering.expires_at());
        match repeat_at(attempt.failed, floor, expires_at, rand::random(), unix) {
            Some(at) => self.wait(attempt, now + at.saturating_since(unix)),
            None => self.settle(attempt, Outcome::Expired, None, now),
        }
    }

    fn wait(&mut self, attempt: Attempt, due: Instant) {
        if self.waiting.peek().is_none_or(|Reverse(first)| due < first.due) {
            self.changed.notify_one();
        }
        self.sequence += 1;
        self.waiting.push(Reverse(Waiting { due, sequence: self.sequence, attempt }));
    }

    /// Makes ready what is due and paid for; returns when to come back.
    pub(crate) fn release(&mut self, now: Instant) -> Option<Instant> {
        let unix = unix_now();
        let mut jobs = CancelledJobs { sink: Arc::clone(&self.sink), last: None };
        let mut due = Vec::new();
        let next = loop {
            match self.waiting.peek() {
                Some(Reverse(first)) if first.due > now => break Some(first.due),
                Some(Reverse(first)) => {
                    let dead = first.attempt.notification.rendering.expires_at() <= unix;
                    if !dead && !self.budget.try_spend(unix) {
                        break Some(now + BUDGET_PAUSE);
                    }
                    let Some(Reverse(first)) = self.waiting.pop() else { break None };
                    self.sort(first.attempt, &mut due, &mut jobs, now, unix);
                }
                None => break None,
            }
        };
        if !due.is_empty() {
            self.ready.extend(due);
            self.wake_hungry();
        }
        self.flush();
        next
    }

    /// Tells the sink what is done.
    pub(crate) fn flush(&mut self) {
        if self.settled.is_empty() {
            return;
        }
        let was_full = self.held == self.held_max;
        self.held -= self.settled.len();
        self.sink.settle(&mut self.settled);
        self.settled.clear();
        self.latency.flush();
        if was_full {
            self.wake_hungry();
        }
        if self.is_finished() {
            self.changed.notify_one();
        }
    }

    fn settle(&mut self, attempt: Attempt, outcome: Outcome, token_gone: Option<TokenGone>, now: Instant) {
        // "Certainly not delivered" cannot be said any more after an attempt that nobody knows about.
        let outcome = match outcome {
            Outcome::Expired | Outcome::Cancelled if attempt.maybe_delivered => Outcome::Unknown,
            certain => certain,
        };
        let latency = now.saturating_duration_since(attempt.taken_at);
        self.latency.record(latency);
        self.metrics.on_settled(outcome);
        self.settled.push(Settled { ticket: attempt.notification.ticket, outcome, token_gone, latency });
    }

    fn wake_hungry(&mut self) {
        self.hungry.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }
}

/// Asks once per job and batch, not once per notification: neighbours are mostly of one job.
struct CancelledJobs {
    sink: Arc<dyn OutcomeSink>,
    last: Option<(JournalPosition, bool)>,
}

impl CancelledJobs {
    fn contain(&mut self, job: JournalPosition) -> bool {
        match self.last {
            Some((last, cancelled)) if last == job => cancelled,
            _ => self.last.insert((job, self.sink.is_cancelled(job))).1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use bytes::Bytes;
    use tidings_buffer::Lake;
    use tidings_push::{Priority, PushType, Rendering, RenderingParts, Ticket};
    use tidings_telemetry::Registry;
    use tidings_types::{AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, EventId, NotificationId};

    use super::*;

    #[derive(Default)]
    struct Sink(Mutex<Vec<Settled>>);

    impl OutcomeSink for Sink {
        fn settle(&self, settled: &mut Vec<Settled>) {
            self.0.lock().unwrap().append(settled);
        }
    }

    #[derive(Default)]
    struct Rings(AtomicUsize);

    impl Wake for Rings {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A pool of two connections that may hold `held_max`, and a lake with `count` notifications.
    struct Setup {
        pool: Pool,
        sink: Arc<Sink>,
        consumers: [Consumer<Notification>; 2],
        rings: [Arc<Rings>; 2],
    }

    fn setup(held_max: usize, count: u32) -> Setup {
        let (lake, sink) = (Arc::new(Lake::new(100)), Arc::<Sink>::default());
        let rendering = Arc::new(Rendering::new(RenderingParts {
            app: AppId::new("org.example.scores").unwrap(),
            push_type: PushType::Alert,
            priority: Priority::Immediate,
            expires_at: unix_now().saturating_add(Duration::from_secs(600)),
            collapse_id: CollapseKey::new("match-7").unwrap(),
            payload: Bytes::from_static(b"{}"),
        }));
        let notification = |device| Notification {
            id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new("phone").unwrap()),
            token: DeviceToken::from(&[1][..]),
            rendering: Arc::clone(&rendering),
            ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device) },
        };
        lake.try_push_batch(&mut (0..count).map(notification).collect()).unwrap();
        let pool = Pool::new(2, held_max, Arc::clone(&sink) as _, Metrics::new(&Registry::new()), unix_now());
        Setup {
            pool,
            sink,
            consumers: std::array::from_fn(|_| Consumer::new(Arc::clone(&lake))),
            rings: <_>::default(),
        }
    }

    impl Setup {
        fn take(&mut self, slot: usize, demand: usize) -> Vec<Attempt> {
            let waker = Waker::from(Arc::clone(&self.rings[slot]));
            let mut out = Vec::new();
            self.pool.take(&mut Context::from_waker(&waker), slot, &mut self.consumers[slot], demand, &mut out);
            out
        }

        fn rings(&self, slot: usize) -> usize {
            self.rings[slot].0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test]
    async fn at_the_bound_nothing_is_taken_until_something_is_settled() {
        let mut setup = setup(3, 10);
        let mut taken = setup.take(0, 5);
        assert_eq!((taken.len(), setup.take(1, 5).len(), setup.rings(1)), (3, 0, 0));
        setup.pool.on_accepted(taken.pop().unwrap(), Instant::now());
        setup.pool.flush();
        assert_eq!(setup.rings(1), 1, "room came, and a connection waits for it");
        assert_eq!((setup.take(1, 5).len(), setup.pool.held()), (1, 3));
        assert_eq!(setup.sink.0.lock().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn an_unprocessed_notification_hurries_once_and_then_waits() {
        let mut setup = setup(10, 1);
        let attempt = setup.take(0, 5).pop().unwrap();
        assert!(setup.take(1, 5).is_empty());
        setup.pool.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, Instant::now());
        assert_eq!(setup.rings(1), 1, "another connection is asked at once");
        let attempt = setup.take(1, 5).pop().unwrap();
        setup.pool.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, Instant::now());
        assert!(setup.take(1, 5).is_empty());
        let late = Instant::now() + Duration::from_secs(1);
        assert_eq!(setup.pool.release(late), None);
        assert_eq!(setup.take(1, 5).len(), 1);
    }

    #[tokio::test]
    async fn repeats_that_the_budget_does_not_pay_for_wait_but_are_not_lost() {
        use tidings_push::retry::RETRY_BUDGET_MAX;
        let mut setup = setup(10, 1);
        setup.pool.budget = RetryBudget::new(Timestamp(u64::MAX)); // From then on no floor flows in.
        let mut attempt = setup.take(0, 1).pop().unwrap();
        let mut now = Instant::now();
        for _ in 0..RETRY_BUDGET_MAX {
            setup.pool.on_failed(attempt, Repeat::Answer, Delay::Backoff(Duration::ZERO), now);
            now += Duration::from_secs(11);
            assert_eq!(setup.pool.release(now), None);
            attempt = setup.take(0, 1).pop().unwrap();
        }
        setup.pool.on_failed(attempt, Repeat::Answer, Delay::Backoff(Duration::ZERO), now);
        now += Duration::from_secs(11);
        assert_eq!(setup.pool.release(now), Some(now + BUDGET_PAUSE));
        assert_eq!((setup.take(0, 1).len(), setup.pool.held()), (0, 1));
    }
}
