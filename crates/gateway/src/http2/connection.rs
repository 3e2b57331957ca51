//! One connection at work: a single task that reads, collects answers, opens streams and writes, in turns.
//!
//! ```text
//!   read ─► answers ─► limit ─► alive? ─► ┌ take ─► hand over ─► write ┐ ─► outcomes to the sink
//!                                         └──── while there is room ◄──┘
//! ```
//!
//! A turn ends when nothing more can be read, sent or taken; any change of that wakes the task. Bytes that wait from
//! the turn before are written first, because they take the room. A connection that is *leaving* (GOAWAY, a refused or
//! replaced credential) leaves the lakes' lines, opens nothing more, waits for the answers in flight and ends. `state`
//! has the states with a drawing.
//!
//! Streams that are open at its end have an unknown outcome, except those that GOAWAY names as not processed.
//!
//! Requests go out only as far as the peer's flow window is known to reach (`frames`), because no other connection
//! could take a request that waits inside `h2`. A connection whose peer is silent, or gives an idle connection no
//! window, ends (`liveness`).

mod liveness;
mod state;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use h2::Reason as H2Reason;
use http::{HeaderMap, StatusCode};
use tidings_push::pacing::Permits;
use tidings_push::retry::retry_after;
use tidings_push::{Advice, Dialect, PoolGauge, Reason, Verdict};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{LocalHistogram, chain, unix_now};
use tidings_types::Timestamp;
use tokio::time::Instant;
use tracing::{debug, info};

use self::liveness::Liveness;
pub(crate) use self::liveness::Timeouts;
use self::state::State;
use super::answers::{Answer, Answers, Bell, Ended};
use super::authorization::{Authorization, AuthorizationNumber};
use super::connect::Link;
use super::cork::{BATCH_BYTES, CORK_BYTES_MAX};
use super::credential::Credential;
use super::frames::GoAway;
use super::health::HealthWatch;
use super::intake::Intake;
use super::scheduler::{Delay, Demand, Scheduler, Seat};
use crate::attempt::Attempt;
use crate::metrics::{Metrics, Repeat};

/// Frame headers, HPACK and credential of one request, beside its payload: an estimate from above.
const REQUEST_HEAD_BYTES: usize = 600;
/// The largest body that a dialect may make.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 8400;
// The size of a batch is estimated from the payloads of the batch before. Even if all payloads have the largest size,
// the cork takes the batch. Otherwise HEADERS would stay in `h2` (see `cork`).
const _: () = {
    let count_max = BATCH_BYTES / REQUEST_HEAD_BYTES;
    assert!(BATCH_BYTES + count_max * (REQUEST_HEAD_BYTES + PAYLOAD_BYTES_MAX) <= CORK_BYTES_MAX);
};

/// What all connections of a gateway use. It does not change.
pub(crate) struct GatewayContext {
    pub(crate) dialect: Arc<dyn Dialect>,
    /// The names for logs.
    pub(crate) provider: &'static str,
    pub(crate) pool: String,
    pub(crate) metrics: Metrics,
    pub(crate) gauge: Arc<PoolGauge>,
    pub(crate) health: HealthWatch,
    pub(crate) streams_max: u32,
    pub(crate) timeouts: Timeouts,
}

impl GatewayContext {
    /// A connection's limit has changed.
    fn on_allowed(&self, before: u32, now: u32) {
        self.metrics.streams_allowed.add(i64::from(now) - i64::from(before));
        self.gauge.set_streams(u64::try_from(self.metrics.streams_allowed.value()).unwrap_or(0));
    }
}

/// The result of a connection that has ended.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct End {
    /// It brought at least one final answer, so it may be replaced at once.
    pub(crate) useful: bool,
    /// The provider refuses our credential, with this reason.
    pub(crate) credential_refused: Option<&'static str>,
}

pub(crate) struct Connection {
    slot: usize,
    context: Rc<GatewayContext>,
    scheduler: Rc<RefCell<Scheduler>>,
    state: State,
    /// Takes from the lakes; `None` once it has left their lines.
    intake: Option<Intake>,
    link: Link,
    bell: Arc<Bell>,
    /// Rings the bell: what `h2` and the socket are polled with.
    bell_waker: Waker,
    permits: Permits,
    /// The limit that was told last.
    allowed: u32,
    answers: Answers,
    authorization: Authorization,
    liveness: Liveness,
    round_trips: LocalHistogram,
    /// The largest payload of the last batch, for estimating how many requests the cork takes, and the mean, for how
    /// many the peer's window takes.
    payload_bytes: usize,
    payload_mean: usize,
    /// The first GOAWAY was counted; later ones are not.
    is_goaway_counted: bool,
    end: End,
    /// Filled and emptied in each turn.
    batch: Vec<Attempt>,
    ended: Vec<Ended>,
}

impl Connection {
    /// A connection in `slot` that begins to work.
    pub(crate) fn new(
        slot: usize,
        context: Rc<GatewayContext>,
        scheduler: Rc<RefCell<Scheduler>>,
        intake: Intake,
        credential: &Credential,
        mut link: Link,
    ) -> Self {
        let bell = Arc::new(Bell::default());
        let mut permits = Permits::new(context.streams_max);
        if credential.is_certificate() || !context.dialect.proves_first() {
            permits.on_accepted(); // Only a token has to be accepted first.
        }
        Self {
            slot,
            state: State::AwaitingWork,
            intake: Some(intake),
            bell_waker: Waker::from(Arc::clone(&bell)),
            answers: Answers::new(Arc::clone(&bell)),
            bell,
            permits,
            allowed: 0,
            authorization: Authorization::new(credential),
            liveness: Liveness::new(context.timeouts, link.h2.ping_pong(), Instant::now()),
            link,
            round_trips: context.metrics.round_trip.local(),
            context,
            scheduler,
            payload_bytes: 0,
            payload_mean: 0,
            is_goaway_counted: false,
            end: End::default(),
            batch: Vec::new(),
            ended: Vec::new(),
        }
    }

    /// Works until the connection leaves or is over.
    ///
    /// # Cancel safety
    /// Cancel safe: a second call continues.
    pub(crate) async fn work(&mut self) {
        poll_fn(|cx| {
            self.poll_turn(cx);
            if self.state.is_working() { Poll::Pending } else { Poll::Ready(()) }
        })
        .await;
        self.leave();
    }

    /// Takes and opens nothing more. What is open is dealt with by [`Self::finish`].
    pub(crate) fn leave(&mut self) {
        self.state.leave();
        if let Some(mut intake) = self.intake.take() {
            let cx = &mut Context::from_waker(Waker::noop());
            let mut scheduler = self.scheduler.borrow_mut();
            scheduler.take(cx, self.slot, &mut intake, Demand::NONE, &mut self.batch);
            scheduler.note(self.slot, None);
        }
        self.tell_allowed(0);
    }

    fn tell_allowed(&mut self, now: u32) {
        let before = std::mem::replace(&mut self.allowed, now);
        if before != now {
            self.context.on_allowed(before, now);
        }
    }

    /// Waits for the answers under way.
    ///
    /// # Cancel safety
    /// Not cancel safe: open streams are then neither settled nor repeated, and the scheduler counts them as held.
    pub(crate) async fn finish(&mut self) {
        self.leave();
        poll_fn(|cx| {
            if !self.state.is_over() {
                self.poll_turn(cx);
            }
            if self.state.is_over() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// What is known of its end so far.
    pub(crate) fn end(&self) -> End {
        self.end
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>) {
        self.bell.begin(cx.waker());
        self.turn(cx);
        let mut scheduler = self.scheduler.borrow_mut();
        if self.intake.is_some() {
            scheduler.note(self.slot, Some(Seat { limit: self.permits.limit(), in_flight: self.permits.in_flight() }));
        }
        scheduler.flush();
        drop(scheduler);
        if self.bell.end() {
            cx.waker().wake_by_ref();
        }
    }

    fn turn(&mut self, cx: &mut Context<'_>) {
        let now = Instant::now();
        self.poll_h2(false);
        // The runtime may have stopped reading only to let other tasks run. Then it rang the bell, and reading
        // continues.
        let read_on = self.bell.take_rung();
        self.collect(now);
        // First, because settled notifications make room in the scheduler.
        self.scheduler.borrow_mut().flush();
        self.permits.on_limit(self.link.requests.current_max_send_streams());
        if self.state.is_working() {
            self.tell_allowed(self.permits.limit());
        }
        self.tell_goodbye();
        self.check_alive(cx, now);
        if !self.state.is_closing() {
            self.write();
            self.open(cx, now);
        }
        if self.state.is_leaving() && self.permits.in_flight() == 0 {
            self.state.close();
        }
        if self.state.is_closing() {
            self.close_down(now);
        } else if read_on {
            cx.waker().wake_by_ref();
        }
    }

    /// Lets `h2` read (unless the gate is closed) and put its frames into the cork.
    fn poll_h2(&mut self, gate_closed: bool) {
        if self.state.is_closing() {
            return;
        }
        self.link.cork.close_gate(gate_closed);
        if let Poll::Ready(result) = Pin::new(&mut self.link.h2).poll(&mut Context::from_waker(&self.bell_waker)) {
            debug!(
                provider = self.context.provider,
                pool = self.context.pool,
                slot = self.slot,
                error = result.err().map(tracing::field::display),
                "Connection closed"
            );
            self.state.close();
            self.end.credential_refused = self.end.credential_refused.or(self.link.cork.refusal());
        }
        self.link.cork.close_gate(false);
    }

    fn tell_goodbye(&mut self) {
        let Some(GoAway { last_stream, code, reason }) = self.link.cork.take_goaway() else { return };
        let GatewayContext { provider, pool, metrics, .. } = &*self.context;
        if !std::mem::replace(&mut self.is_goaway_counted, true) {
            metrics.goaways.inc(); // A second GOAWAY only names the final last stream (RFC 9113, 6.8).
        }
        let (slot, count) = (self.slot, self.permits.in_flight());
        info!(provider, pool, slot, code, reason, last_stream, count, "Provider ends the connection");
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
        let (scheduler, unix) = (Rc::clone(&self.scheduler), unix_now());
        let mut scheduler = scheduler.borrow_mut();
        self.context.metrics.streams_ended.add(ended.len() as u64);
        // One answer of a batch is enough for the mean.
        if let Some(one) = ended.iter().find(|it| matches!(it.answer, Answer::Response(..))) {
            self.context.gauge.on_round_trip(now.saturating_duration_since(one.opened_at));
        }
        for Ended { attempt, authorization, opened_at, answer } in ended.drain(..) {
            self.permits.on_ended();
            match answer {
                Answer::Response(status, headers, body) => {
                    self.liveness.on_heard(now);
                    self.round_trips.record(now.saturating_duration_since(opened_at));
                    match self.classify(status, &headers, &body, unix) {
                        Some(verdict) => {
                            self.on_verdict(&mut scheduler, attempt, authorization, verdict, opened_at, now)
                        }
                        None => scheduler.on_unreadable(attempt, now),
                    }
                }
                Answer::Failed(error) if is_not_processed(&error) => {
                    self.liveness.on_heard(now);
                    scheduler.on_failed(attempt, Repeat::NotProcessed, Delay::Hurry, now);
                }
                Answer::Failed(_) | Answer::Lost => {
                    scheduler.on_failed(attempt, Repeat::Unknown, Delay::Backoff(Duration::ZERO), now);
                }
            }
        }
        self.round_trips.flush();
    }

    /// What an answer means; none if reading it panicked.
    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], unix: Timestamp) -> Option<Verdict> {
        let classify = || self.context.dialect.classify(status, headers, body, unix);
        let mut verdict = panics::catch(Work::Notification, classify).ok()?;
        if let Verdict::Repeat { not_before, .. } = &mut verdict {
            // Applies besides the provider's own rules: RFC 9110, 10.2.3.
            *not_before = retry_after(headers, unix).unwrap_or_default().max(*not_before);
        }
        Some(verdict)
    }

    fn on_verdict(
        &mut self,
        scheduler: &mut Scheduler,
        attempt: Attempt,
        authorization: AuthorizationNumber,
        verdict: Verdict,
        opened_at: Instant,
        now: Instant,
    ) {
        match verdict {
            Verdict::Accepted => {
                if !self.end.useful {
                    self.link.entry.on_useful();
                    self.context.health.on_taken();
                }
                self.end.useful = true;
                self.permits.on_accepted();
                scheduler.on_accepted(attempt, now);
            }
            Verdict::Rejected { reason, gone_at } => {
                self.end.useful = true;
                scheduler.on_rejected(attempt, reason, gone_at, now);
            }
            Verdict::Repeat { reason, advice, not_before } => {
                if advice == Advice::PauseAll {
                    self.pause(scheduler, reason, not_before, now.saturating_duration_since(opened_at));
                }
                let delay = self.on_advice(reason, advice, not_before, authorization);
                scheduler.on_failed(attempt, Repeat::Answer, delay, now);
            }
        }
    }

    /// `round_trip`: of the request that was refused.
    fn pause(&self, scheduler: &mut Scheduler, reason: Reason, pause: Duration, round_trip: Duration) {
        let now = unix_now();
        let sent_at = Timestamp(now.0.saturating_sub(round_trip.as_millis() as u64));
        let (is_news, per_minute) = scheduler.pause(pause, sent_at, now);
        if is_news {
            self.context.on_pause(reason, pause, per_minute);
        }
    }

    fn on_advice(
        &mut self,
        reason: Reason,
        advice: Advice,
        not_before: Duration,
        authorization: AuthorizationNumber,
    ) -> Delay {
        match advice {
            Advice::Wait | Advice::PauseAll => Delay::Backoff(not_before),
            Advice::LeaveConnection => {
                self.state.leave();
                Delay::Hurry
            }
            Advice::RenewCredential => {
                if self.authorization.belongs_to_connection() {
                    self.state.leave();
                }
                if self.authorization.on_expired(authorization, unix_now()) {
                    return Delay::Hurry;
                }
                // The provider calls a new credential too old: a clock is wrong, so only waiting helps.
                self.on_credential_refused(reason);
                Delay::Backoff(not_before)
            }
            Advice::CredentialRefused => {
                self.on_credential_refused(reason);
                Delay::Backoff(not_before)
            }
        }
    }

    fn on_credential_refused(&mut self, reason: Reason) {
        self.state.leave();
        self.end.credential_refused = Some(reason.as_str());
    }

    /// On each tick: gives up requests without an answer, and checks that the peer is alive and gives a flow window.
    fn check_alive(&mut self, cx: &mut Context<'_>, now: Instant) {
        self.liveness.poll_pong(&mut Context::from_waker(&self.bell_waker), now);
        if !self.liveness.poll_tick(cx, now) {
            return;
        }
        self.give_up(now);
        let (slot, count, bytes) = (self.slot, self.permits.in_flight(), self.link.cork.window());
        let lacks_window = !self.state.is_leaving() && count == 0 && bytes < self.payload_mean.max(1);
        if self.liveness.is_shut(lacks_window, now) {
            self.context.on_no_window(slot, bytes);
            self.state.leave();
        } else if self.liveness.is_silent(count == 0, now) {
            self.context.on_stalled(slot, count);
            if self.end.useful {
                self.link.entry.on_failed(rand::random(), unix_now()); // If it was of no use, its end says so.
            }
            self.state.close();
        }
    }

    /// Gives up requests that have waited for too long.
    fn give_up(&mut self, now: Instant) {
        if let Some(opened_before) = now.checked_sub(self.context.timeouts.answer) {
            let mut ended = std::mem::take(&mut self.ended);
            self.answers.give_up(opened_before, &mut ended);
            self.on_answers(&mut ended, now);
            self.ended = ended;
        }
    }

    /// Takes and hands over batches as long as there are permits, room in the cork, and notifications.
    fn open(&mut self, cx: &mut Context<'_>, now: Instant) {
        loop {
            let count = self.demand();
            let Some(intake) = &mut self.intake else { return };
            let demand = Demand { count, may_send: count > 0 && self.authorization.is_ready(unix_now()) };
            self.scheduler.borrow_mut().take(cx, self.slot, intake, demand, &mut self.batch);
            if self.batch.is_empty() {
                return;
            }
            let dry = self.batch.len() < count;
            let all_taken = self.hand_over(now);
            self.write();
            if dry || !all_taken || !self.state.is_working() {
                return;
            }
        }
    }

    /// How many requests may be handed over now.
    fn demand(&mut self) -> usize {
        match self.link.requests.poll_ready(&mut Context::from_waker(&self.bell_waker)) {
            Poll::Ready(Ok(())) => {}
            Poll::Pending => return 0, // A request that was handed over is not open yet.
            Poll::Ready(Err(error)) => {
                if self.state.is_working() {
                    let GatewayContext { provider, pool, .. } = &*self.context;
                    debug!(provider, pool, slot = self.slot, error = chain(&error), "Connection is leaving");
                }
                self.state.leave();
            }
        }
        if !self.state.is_working() || self.link.cork.is_blocked() {
            return 0;
        }
        let room = BATCH_BYTES.saturating_sub(self.link.cork.held());
        let by_cork = room / (self.payload_bytes + REQUEST_HEAD_BYTES);
        let window = self.link.cork.window();
        if window < self.payload_mean {
            return 0; // The window would cut the request, and its rest would wait where no other connection could take it.
        }
        self.permits.demand_within(window as u64, self.payload_mean).min(by_cork)
    }

    /// Opens a stream for each notification of the batch. Those that `h2` does not take go back: they were not sent.
    /// Returns whether it took all.
    fn hand_over(&mut self, now: Instant) -> bool {
        let (unix, context, scheduler) = (unix_now(), Rc::clone(&self.context), Rc::clone(&self.scheduler));
        let (authorization, number) = self.authorization.header(unix);
        let mut random = |bytes: &mut [u8]| rand::fill(bytes);
        (self.payload_bytes, self.payload_mean) = (0, 0);
        let mut batch = std::mem::take(&mut self.batch);
        let (mut opened, mut refused) = (0, 0);
        for attempt in batch.drain(..) {
            let make = || context.dialect.request(&attempt.notification, authorization.as_ref(), &mut random, unix);
            let made = panics::catch(Work::Notification, make);
            let (head, payload) = match made.unwrap_or(Err(Reason::Panicked(context.dialect.provider()))) {
                Ok(request) => request,
                Err(reason) => {
                    scheduler.borrow_mut().on_rejected(attempt, reason, None, now);
                    continue;
                }
            };
            self.payload_bytes = self.payload_bytes.max(payload.len());
            self.payload_mean += payload.len();
            match self.link.requests.send_request(head, false) {
                Ok((response, mut body)) => {
                    // An error would also be the response's: it is dealt with there.
                    _ = body.send_data(payload, true);
                    self.permits.on_opened();
                    self.answers.insert(attempt, number, response, now);
                    opened += 1;
                }
                Err(_) => {
                    scheduler.borrow_mut().put_back(attempt);
                    refused += 1;
                }
            }
        }
        self.batch = batch;
        self.payload_mean /= (opened + refused).max(1);
        self.context.metrics.streams_opened.add(opened as u64);
        // Registers the streams' wakers; nothing was read since, so there are no answers to deal with.
        self.collect(now);
        self.bell.take_rung();
        self.poll_h2(true);
        refused == 0
    }

    /// Writes what is in the cork, after what `h2` may still have to say.
    fn write(&mut self) {
        if self.bell.take_rung() {
            self.poll_h2(true);
        }
        let written = self.link.cork.poll_uncork(&mut Context::from_waker(&self.bell_waker));
        if let Poll::Ready(Err(error)) = written {
            let GatewayContext { provider, pool, .. } = &*self.context;
            debug!(provider, pool, slot = self.slot, error = chain(&error), "Connection broken");
            self.poll_h2(false); // Answers may have come before it broke.
            self.state.close();
        }
    }

    /// Leaves the lines and passes on what is open. A connection that was of no use, and neither left nor was refused,
    /// is its address's fault.
    fn close_down(&mut self, now: Instant) {
        if !self.state.is_leaving() && !self.end.useful && self.end.credential_refused.is_none() {
            self.link.entry.on_failed(rand::random(), unix_now());
        }
        self.leave();
        let mut ended = std::mem::take(&mut self.ended);
        self.answers.end_all(&mut ended);
        self.on_answers(&mut ended, now);
        self.state.end();
    }
}

/// Whether the peer has said that it did nothing with the stream: RFC 9113, 6.8 and 8.7. `h2` gives a remote GOAWAY
/// only to streams above the id it names.
pub(crate) fn is_not_processed(error: &h2::Error) -> bool {
    error.is_remote() && (error.is_go_away() || error.is_reset() && error.reason() == Some(H2Reason::REFUSED_STREAM))
}
