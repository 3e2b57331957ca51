//! One connection at work: a single task that reads, collects answers, opens streams and writes, in turns.
//!
//! ```text
//!   read ─► answers ─► limit ─► alive? ─► ┌ take ─► hand over ─► write ┐ ─► outcomes to the sink
//!                                         └──── while there is room ◄──┘
//! ```
//!
//! A turn ends when nothing more can be read, sent or taken; whatever changes that wakes the task. What waits from the
//! turn before is written before anything is opened, since it is what takes the room. A connection that is *leaving*
//! (GOAWAY, a refused or replaced credential) opens nothing more, waits for the answers under way and ends; its place in
//! the lines is another's then.
//!
//! What is open when it ends has an unknown outcome, except the streams that GOAWAY names as not processed.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::{Ping, PingPong, Reason as H2Reason};
use tidings_buffer::Consumer;
use tidings_push::Notification;
use tidings_push::apns::{Advice, ProviderTokens, Reason, Requests, Verdict, classify};
use tidings_push::pacing::Permits;
use tidings_push::payload::APNS_PAYLOAD_BYTES_MAX;
use tidings_telemetry::unix_now;
use tokio::time::{Instant, Sleep, sleep};
use tracing::{debug, warn};

use crate::answers::{Answer, Answers, Bell, Ended};
use crate::authorization::{Authorization, AuthorizationNumber};
use crate::connect::Link;
use crate::cork::{BATCH_BYTES, CORK_BYTES_MAX};
use crate::metrics::{Metrics, Repeat};
use crate::pool::{Attempt, Delay, Pool};

/// Frame headers, HPACK and credential of one request, beside its payload: an estimate from above.
const REQUEST_HEAD_BYTES: usize = 600;
// Batches are measured by the payloads of the one before. Should all of one be of the largest size, the cork takes it
// still, or HEADERS would stay behind in `h2` (see the cork's text).
const _: () = {
    let count_max = BATCH_BYTES / REQUEST_HEAD_BYTES;
    assert!(BATCH_BYTES + count_max * (REQUEST_HEAD_BYTES + APNS_PAYLOAD_BYTES_MAX) <= CORK_BYTES_MAX);
};
/// An idle connection is asked for a sign of life this often (Apple: "after an hour of idleness").
const IDLE_PING: Duration = Duration::from_secs(600);
/// Checks per `stall_timeout`.
const TICKS_PER_STALL: u32 = 4;

/// What all connections of a gateway share and nobody changes.
pub(crate) struct Shared {
    pub(crate) requests: Requests,
    pub(crate) metrics: Metrics,
    pub(crate) streams_max: u32,
    pub(crate) stall_timeout: Duration,
    pub(crate) answer_timeout: Duration,
}

/// What is to be known of a connection that ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct End {
    /// It brought at least one final answer: replacing it at once is no storm.
    pub(crate) useful: bool,
    /// The provider does not take our credential: its word for it.
    pub(crate) credential_refused: Option<&'static str>,
}

pub(crate) struct Connection {
    slot: usize,
    shared: Rc<Shared>,
    pool: Rc<RefCell<Pool>>,
    /// The place in the lake's line; none when leaving.
    consumer: Option<Consumer<Notification>>,
    link: Link,
    bell: Arc<Bell>,
    /// Rings the bell: what `h2` and the socket are polled with.
    bell_waker: Waker,
    permits: Permits,
    answers: Answers,
    authorization: Authorization,
    pings: Option<PingPong>,
    pinged_at: Option<Instant>,
    heard_at: Instant,
    tick: Pin<Box<Sleep>>,
    /// The largest payload lately, for estimating how many requests make a batch.
    payload_bytes: usize,
    leaving: bool,
    /// `h2` or the socket is through.
    closed: bool,
    /// Everything it had open is dealt with.
    over: bool,
    end: End,
    /// Filled and emptied in each turn.
    batch: Vec<Attempt>,
    ended: Vec<Ended>,
}

impl Connection {
    /// A connection in place `slot` that begins to work; without `tokens` a certificate has proven who we are.
    pub(crate) fn new(
        slot: usize,
        shared: Rc<Shared>,
        pool: Rc<RefCell<Pool>>,
        consumer: Consumer<Notification>,
        tokens: Option<Arc<ProviderTokens>>,
        mut link: Link,
    ) -> Self {
        let bell = Arc::new(Bell::default());
        let mut permits = Permits::new(shared.streams_max);
        if tokens.is_none() {
            permits.on_accepted(); // Only a token has to be accepted first.
        }
        Self {
            slot,
            consumer: Some(consumer),
            bell_waker: Waker::from(Arc::clone(&bell)),
            answers: Answers::new(Arc::clone(&bell)),
            bell,
            permits,
            authorization: Authorization::new(tokens),
            pings: link.h2.ping_pong(),
            link,
            pinged_at: None,
            heard_at: Instant::now(),
            tick: Box::pin(sleep(shared.stall_timeout / TICKS_PER_STALL)),
            shared,
            pool,
            payload_bytes: 0,
            leaving: false,
            closed: false,
            over: false,
            end: End::default(),
            batch: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Works until the connection leaves or is over.
    ///
    /// # Cancel safety
    /// Cancel safe: calling it again goes on.
    pub(crate) async fn work(&mut self) {
        poll_fn(|cx| {
            self.poll_turn(cx);
            if self.leaving || self.over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.leave();
    }

    /// Takes and opens nothing more. What is open is dealt with by [`Self::finish`].
    pub(crate) fn leave(&mut self) {
        self.leaving = true;
        if let Some(mut consumer) = self.consumer.take() {
            let cx = &mut Context::from_waker(Waker::noop());
            self.pool.borrow_mut().take(cx, self.slot, &mut consumer, 0, &mut self.batch);
        }
    }

    /// Waits for the answers under way.
    ///
    /// # Cancel safety
    /// Not cancel safe: what is open is then neither settled nor repeated, only counted as held by the pool.
    pub(crate) async fn finish(&mut self) {
        self.leave();
        poll_fn(|cx| {
            if !self.over {
                self.poll_turn(cx);
            }
            if self.over { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What is known of its end so far.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) {
        self.bell.begin(cx.waker());
        self.over = self.turn(cx);
        self.pool.borrow_mut().flush();
        if self.bell.end() {
            cx.waker().wake_by_ref();
        }
    }

    /// Returns whether the connection is over; everything it had open is then settled or repeated elsewhere.
    fn turn(&mut self, cx: &mut Context<'_>) -> bool {
        let now = Instant::now();
        self.poll_h2(false);
        // The runtime may have stopped the reading only for others' sake: then it rang, and we go on after them.
        let read_on = self.bell.take_rung();
        self.collect(now);
        // First, since what is settled makes room under the pool's bound.
        self.pool.borrow_mut().flush();
        self.permits.on_limit(self.link.requests.current_max_send_streams());
        let stalled = self.check_alive(cx, now);
        if !stalled && !self.closed {
            self.write();
            self.open(cx, now);
        }
        if stalled || self.closed || self.leaving && self.permits.in_flight() == 0 {
            self.close(now);
            return true;
        }
        if read_on {
            cx.waker().wake_by_ref();
        }
        false
    }

    /// Lets `h2` read (unless the gate is closed) and put its frames into the cork.
    fn poll_h2(&mut self, gate_closed: bool) {
        if self.closed {
            return;
        }
        self.link.cork.close_gate(gate_closed);
        if let Poll::Ready(result) = Pin::new(&mut self.link.h2).poll(&mut Context::from_waker(&self.bell_waker)) {
            debug!(
                provider = "apns",
                slot = self.slot,
                error = result.err().map(tracing::field::display),
                "Connection closed"
            );
            self.closed = true;
            self.end.credential_refused = self.end.credential_refused.or(self.link.cork.refusal());
        }
        self.link.cork.close_gate(false);
    }

    /// Deals with the streams that have ended.
    fn collect(&mut self, now: Instant) {
        let mut ended = std::mem::take(&mut self.ended);
        self.answers.collect(&mut ended);
        self.on_answers(&mut ended, now);
        self.ended = ended;
    }

    fn on_answers(&mut self, ended: &mut Vec<Ended>, now: Instant) {
        if ended.is_empty() {
            return;
        }
        let (pool, unix) = (Rc::clone(&self.pool), unix_now());
        let mut pool = pool.borrow_mut();
        self.shared.metrics.streams_ended.add(ended.len() as u64);
        for Ended { attempt, authorization, answer } in ended.drain(..) {
            self.permits.on_ended();
            match answer {
                Answer::Response(status, body) => {
                    self.heard_at = now;
                    self.on_verdict(&mut pool, attempt, authorization, classify(status, &body, unix), now);
                }
                Answer::Failed(error) if is_not_processed(&error) => {
                    self.heard_at = now;
                    pool.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, now);
                }
                Answer::Failed(_) | Answer::Lost => {
                    pool.on_failed(attempt, Repeat::Unknown, Delay::Backoff(Duration::ZERO), now);
                }
            }
        }
    }

    fn on_verdict(
        &mut self,
        pool: &mut Pool,
        attempt: Attempt,
        authorization: AuthorizationNumber,
        verdict: Verdict,
        now: Instant,
    ) {
        match verdict {
            Verdict::Accepted => {
                self.end.useful = true;
                self.permits.on_accepted();
                pool.on_accepted(attempt, now);
            }
            Verdict::Rejected { reason, gone_at } => {
                self.end.useful = true;
                pool.on_rejected(attempt, reason, gone_at, now);
            }
            Verdict::Repeat { reason, advice } => {
                let delay = self.on_advice(reason, advice, authorization);
                pool.on_failed(attempt, Repeat::Answer, delay, now);
            }
        }
    }

    fn on_advice(&mut self, reason: Reason, advice: Advice, authorization: AuthorizationNumber) -> Delay {
        match advice {
            Advice::Wait => Delay::Backoff(Duration::ZERO),
            Advice::PauseDevice(pause) => Delay::Backoff(pause),
            Advice::LeaveConnection => {
                self.leaving = true;
                Delay::Hurry
            }
            Advice::RenewCredential => {
                self.leaving = true;
                if self.authorization.on_expired(authorization, unix_now()) {
                    return Delay::Hurry;
                }
                // A fresh credential is said to be too old: a clock is wrong, and only waiting is left.
                self.end.credential_refused = Some(reason.as_str());
                Delay::Backoff(Duration::ZERO)
            }
            Advice::CredentialRefused => {
                self.leaving = true;
                self.end.credential_refused = Some(reason.as_str());
                Delay::Backoff(Duration::ZERO)
            }
        }
    }

    /// On each tick: gives up requests without an answer, asks a silent peer for a sign of life. Returns whether it
    /// gave none.
    fn check_alive(&mut self, cx: &mut Context<'_>, now: Instant) -> bool {
        if let (Some(pings), true) = (&mut self.pings, self.pinged_at.is_some())
            && let Poll::Ready(Ok(_)) = pings.poll_pong(&mut Context::from_waker(&self.bell_waker))
        {
            self.pinged_at = None;
            self.heard_at = now;
        }
        if self.tick.as_mut().poll(cx).is_pending() {
            return false;
        }
        self.tick.as_mut().reset(now + self.shared.stall_timeout / TICKS_PER_STALL);
        _ = self.tick.as_mut().poll(cx); // Registers the new moment, which lies ahead.
        if let Some(opened_before) = now.checked_sub(self.shared.answer_timeout) {
            let mut ended = std::mem::take(&mut self.ended);
            self.answers.give_up(opened_before, &mut ended);
            self.on_answers(&mut ended, now);
            self.ended = ended;
        }
        let half = self.shared.stall_timeout / 2;
        if let Some(pinged_at) = self.pinged_at {
            let stalled = now.saturating_duration_since(pinged_at) >= half;
            if stalled {
                self.shared.metrics.stalled.inc();
                warn!(provider = "apns", slot = self.slot, count = self.permits.in_flight(), "Connection stalled");
            }
            return stalled;
        }
        let patience = if self.permits.in_flight() > 0 { half } else { IDLE_PING };
        if now.saturating_duration_since(self.heard_at) >= patience
            && self.pings.as_mut().is_some_and(|pings| pings.send_ping(Ping::opaque()).is_ok())
        {
            self.pinged_at = Some(now);
        }
        false
    }

    /// Takes and hands over batches as long as there are permits, room in the cork, and notifications.
    fn open(&mut self, cx: &mut Context<'_>, now: Instant) {
        loop {
            let demand = self.demand();
            let Some(consumer) = &mut self.consumer else { return };
            self.pool.borrow_mut().take(cx, self.slot, consumer, demand, &mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            let dry = self.batch.len() < demand;
            let all_taken = self.hand_over(now);
            self.write();
            if dry || !all_taken || self.leaving || self.closed {
                return;
            }
        }
    }

    /// How many requests may be handed over now.
    fn demand(&mut self) -> usize {
        match self.link.requests.poll_ready(&mut Context::from_waker(&self.bell_waker)) {
            Poll::Ready(Ok(())) => {}
            Poll::Pending => return 0, // One that was handed over is not open yet.
            Poll::Ready(Err(error)) => {
                if !self.leaving {
                    debug!(provider = "apns", slot = self.slot, %error, "Connection is leaving");
                }
                self.leaving = true;
            }
        }
        if self.leaving || self.closed || self.link.cork.is_blocked() {
            return 0;
        }
        let room = BATCH_BYTES.saturating_sub(self.link.cork.held());
        let requests = room / (self.payload_bytes + REQUEST_HEAD_BYTES);
        self.permits.demand().min(requests)
    }

    /// Opens a stream for each notification of the batch. Those that `h2` does not take go back: they were not sent.
    /// Returns whether it took all.
    fn hand_over(&mut self, now: Instant) -> bool {
        let (authorization, number) = self.authorization.header(unix_now());
        self.payload_bytes = 0;
        let mut batch = std::mem::take(&mut self.batch);
        let (count, mut opened) = (batch.len(), 0);
        for attempt in batch.drain(..) {
            let payload = attempt.notification.rendering.payload().clone();
            let head = self.shared.requests.head(&attempt.notification, authorization.clone());
            self.payload_bytes = self.payload_bytes.max(payload.len());
            match self.link.requests.send_request(head, false) {
                Ok((response, mut body)) => {
                    // An error would also be the response's: it is dealt with there.
                    _ = body.send_data(payload, true);
                    self.permits.on_opened();
                    self.answers.insert(attempt, number, response, now);
                    opened += 1;
                }
                Err(_) => self.pool.borrow_mut().put_back(attempt),
            }
        }
        self.batch = batch;
        self.shared.metrics.streams_opened.add(opened as u64);
        // Registers the streams' wakers; nothing was read since, so there are no answers to deal with.
        self.collect(now);
        self.bell.take_rung();
        self.poll_h2(true);
        opened == count
    }

    /// Writes what is in the cork, after what `h2` may still have to say.
    fn write(&mut self) {
        if self.bell.take_rung() {
            self.poll_h2(true);
        }
        let written = self.link.cork.poll_uncork(&mut Context::from_waker(&self.bell_waker));
        if let Poll::Ready(Err(error)) = written {
            debug!(provider = "apns", slot = self.slot, %error, "Connection broken");
            self.poll_h2(false); // Answers may have come before it broke.
            self.closed = true;
        }
    }

    /// Leaves the lines and passes on what is open.
    fn close(&mut self, now: Instant) {
        self.leave();
        let mut ended = std::mem::take(&mut self.ended);
        self.answers.end_all(&mut ended);
        self.on_answers(&mut ended, now);
    }
}

/// Whether the peer has said that it did nothing with the stream: RFC 9113, 6.8 and 8.7. `h2` gives a remote GOAWAY
/// only to streams above the id it names.
fn is_not_processed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(H2Reason::REFUSED_STREAM))
}
