//! One connection: everything that has arrived is taken, judged and recorded, then all due answers are written at once.
//!
//! A turn ends when nothing more has arrived and no answer is due. No task, channel or timer per request: answers wait
//! in a heap by due time, behind one timer. Memory: per open stream a request of at most [`BODY_BYTES_MAX`] bytes or
//! an answer; streams are bounded by the announced limit, the one above is refused.
//!
//! A reset, a stop, an abrupt GOAWAY drop what waits: those notifications are recorded, and their sender cannot know.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{Reason as StreamReset, RecvStream};
use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use rand::RngExt;
use rand::rngs::Xoshiro256PlusPlus;
use tidings_telemetry::unix_now;
use tidings_types::{DeviceToken, Timestamp};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout};
use uuid::Uuid;

use crate::apns::{AcceptedNotification, Orders, Shared};
use crate::authentication::{Authority, TokenMemory};
use crate::certificate::ShownCertificate;
use crate::check::{Notification, Topics, check_head, check_payload};
use crate::config::{Fate, Transport};
use crate::ledger::bump;
use crate::meter::STREAM_COUNT_MAX;
use crate::wire::{Link, Wire};
use crate::{Faults, Reason, control};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// What of a body is kept; a longer one is answered without waiting for its end.
const BODY_BYTES_MAX: usize = 64 * 1024;

const APNS_ID: HeaderName = HeaderName::from_static("apns-id");

/// Serves one connection to its end.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: std::net::TcpStream,
    rng: Xoshiro256PlusPlus,
    mut orders: watch::Receiver<Orders>,
) {
    let first = orders.borrow_and_update().clone();
    let handshake = timeout(HANDSHAKE_TIMEOUT, Connection::open(shared, stream, rng, first));
    match handshake.await {
        Ok(Ok(mut connection)) => {
            connection.run(orders).await;
            connection.count_streams();
        }
        Ok(Err(error)) => tracing::debug!(%error, "Handshake failed"),
        Err(_) => tracing::debug!("Handshake took too long"),
    }
}

struct Connection {
    h2: h2::server::Connection<Wire, Bytes>,
    link: Rc<RefCell<Link>>,
    shared: Arc<Shared>,
    faults: Arc<Faults>,
    rng: Xoshiro256PlusPlus,
    authorities: Arc<[Authority]>,
    tokens: TokenMemory,
    /// What the client has shown instead of tokens.
    certificate: Option<Result<ShownCertificate, Reason>>,
    request_total: u64,
    /// The last verdict was a rejection that lowers the stream limit.
    is_punished: bool,
    is_going_away: bool,
    /// Requests whose body has not ended.
    receiving: Vec<Receiving>,
    answers: BinaryHeap<Reverse<Due>>,
    answer_total: u64,
    timer: Pin<Box<Sleep>>,
    halt: Halt,
    /// The clocks, read once per turn.
    unix_now: Timestamp,
    now: Instant,
    violations_counted: u64,
}

/// Whether the connection goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Halt {
    No,
    Until(Instant),
    Reset,
}

enum Taken {
    All,
    Ended,
}

struct Receiving {
    purpose: Purpose,
    body: RecvStream,
    received: BytesMut,
    /// The usual body is one piece, which is kept as it came.
    first: Option<Bytes>,
    respond: SendResponse<Bytes>,
}

#[expect(clippy::large_enum_variant, reason = "nearly all requests are pushes, and a box for each would cost more")]
enum Purpose {
    Control(Box<Parts>),
    Push { head: Result<Notification, Reason>, apns_id: Option<HeaderValue>, fate: Fate },
}

struct Due {
    at: Instant,
    /// Equal times keep their order.
    order: u64,
    answer: Answer,
    respond: SendResponse<Bytes>,
}

enum Answer {
    Accepted { apns_id: HeaderValue },
    Rejected { apns_id: Option<HeaderValue>, reason: Reason, gone_since: Timestamp },
    Control { status: StatusCode, body: Bytes },
}

impl Connection {
    async fn open(
        shared: Arc<Shared>,
        stream: std::net::TcpStream,
        rng: Xoshiro256PlusPlus,
        orders: Orders,
    ) -> Result<Self, OpenError> {
        let Orders { faults, authorities, .. } = orders;
        let tls = shared.tls.accept(TcpStream::from_std(stream)?).await?;
        let shown = tls.get_ref().1.peer_certificates().and_then(<[_]>::first);
        let certificate = shown.map(|der| ShownCertificate::read(der, shared.config.environment));
        let before_token = faults.stream_limit_before_token.filter(|_| certificate.is_none());
        let link = Link::new(before_token.unwrap_or(faults.stream_limit));
        let mut builder = h2::server::Builder::new();
        builder
            .max_concurrent_streams(STREAM_COUNT_MAX as u32)
            .initial_window_size(faults.stream_window_bytes)
            .initial_connection_window_size(faults.connection_window_bytes);
        let h2 = builder.handshake(Wire::new(tls, link.clone())).await?;
        bump(&shared.ledger.counters.connections);
        Ok(Self {
            h2,
            link,
            shared,
            faults,
            rng,
            authorities,
            tokens: TokenMemory::default(),
            certificate,
            request_total: 0,
            is_punished: false,
            is_going_away: false,
            receiving: Vec::new(),
            answers: BinaryHeap::new(),
            answer_total: 0,
            timer: Box::pin(sleep(Duration::ZERO)),
            halt: Halt::No,
            unix_now: unix_now(),
            now: Instant::now(),
            violations_counted: 0,
        })
    }

    async fn run(&mut self, mut orders: watch::Receiver<Orders>) {
        loop {
            tokio::select! {
                biased;
                changed = orders.changed() => {
                    if changed.is_err() || orders.borrow().is_stopping {
                        return;
                    }
                    let Orders { faults, authorities, .. } = orders.borrow_and_update().clone();
                    if !Arc::ptr_eq(&self.authorities, &authorities) {
                        self.tokens.forget_verdict();
                    }
                    (self.faults, self.authorities) = (faults, authorities);
                }
                () = poll_fn(|cx| self.poll_turn(cx)) => return,
            }
        }
    }

    /// Ready when the connection has ended.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Halt::Until(end) = self.halt {
                ready!(self.poll_timer(end, cx));
                self.halt = Halt::No;
            }
            self.unix_now = unix_now();
            self.now = Instant::now();
            if let Taken::Ended = self.take_arrived(cx) {
                return Poll::Ready(());
            }
            self.take_bodies(cx);
            match self.halt {
                Halt::Reset => {
                    bump(&self.shared.ledger.counters.resets);
                    self.link.borrow_mut().reset = true;
                    return Poll::Ready(());
                }
                Halt::Until(_) => continue,
                Halt::No => {}
            }
            let is_limit_changed = self.settle_limit();
            // h2 writes when it is polled: after any answer it needs another round.
            if self.send_due() || is_limit_changed {
                continue;
            }
            self.count_streams();
            let Some(Reverse(next)) = self.answers.peek() else { return Poll::Pending };
            let at = next.at;
            ready!(self.poll_timer(at, cx));
        }
    }

    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Lets h2 read and write, and takes the requests that have arrived, up to one that halts the connection.
    fn take_arrived(&mut self, cx: &mut Context<'_>) -> Taken {
        while self.halt == Halt::No {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.on_request(request, respond, cx),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(%error, "Connection failed");
                    return Taken::Ended;
                }
                Poll::Ready(None) => return Taken::Ended,
                Poll::Pending => return Taken::All,
            }
        }
        Taken::All
    }

    fn on_request(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Bytes>, cx: &mut Context<'_>) {
        let (parts, body) = request.into_parts();
        let mut refuse = self.link.borrow_mut().meter.take_above_limit(respond.stream_id().as_u32());
        if refuse {
            self.count_streams(); // Before the client can see that it was noticed.
        }
        let purpose = if parts.uri.path().starts_with(control::PREFIX) {
            Purpose::Control(Box::new(parts))
        } else {
            let fate = self.faults.draw_fate(&mut self.rng);
            refuse |= fate.transport == Transport::Refuse;
            self.request_total += 1;
            let certified = self.certificate.as_ref().and_then(|shown| shown.as_ref().ok());
            let certified = certified.map(|certificate| certificate.topics.as_slice());
            let head = check_head(&parts, Topics { bundles: &self.shared.config.topics, certified });
            let apns_id = if head.is_err() { parts.headers.get(APNS_ID).cloned() } else { None };
            Purpose::Push { head, apns_id, fate }
        };
        if refuse {
            bump(&self.shared.ledger.counters.streams_refused);
            respond.send_reset(StreamReset::REFUSED_STREAM);
        } else {
            let mut receiving = Receiving { purpose, body, first: None, received: BytesMut::new(), respond };
            match receiving.poll_body(cx) {
                Poll::Ready(Ok(body)) => self.finish(receiving, body),
                Poll::Ready(Err(_)) => {} // The client has given it up.
                Poll::Pending => self.receiving.push(receiving),
            }
        }
        let every = self.faults.goaway_every;
        if every > 0 && self.request_total >= every && !self.is_going_away {
            self.go_away();
        }
    }

    /// Takes up the bodies that have come to their end.
    fn take_bodies(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while index < self.receiving.len() && self.halt == Halt::No {
            match self.receiving[index].poll_body(cx) {
                Poll::Pending => index += 1,
                Poll::Ready(body) => {
                    let receiving = self.receiving.swap_remove(index);
                    if let Ok(body) = body {
                        self.finish(receiving, body);
                    }
                }
            }
        }
    }

    /// A request is complete: judges, records, and puts the answer in its place.
    fn finish(&mut self, receiving: Receiving, body: Bytes) {
        let (answer, delay) = match receiving.purpose {
            Purpose::Control(parts) => {
                let (status, body) = control::answer(&self.shared, &parts.method, parts.uri.path(), &body);
                (Answer::Control { status, body }, Duration::ZERO)
            }
            Purpose::Push { head, apns_id, fate } => {
                if fate.stall {
                    bump(&self.shared.ledger.counters.stalls);
                    self.halt = Halt::Until(self.now + Duration::from_millis(self.faults.stall_ms));
                }
                if fate.transport == Transport::ResetBefore {
                    self.halt = Halt::Reset;
                    return;
                }
                let answer = self.judge(head, apns_id, fate, &body);
                if fate.transport == Transport::ResetAfter {
                    self.halt = Halt::Reset;
                    return;
                }
                (answer, fate.delay)
            }
        };
        self.answer_total += 1;
        let order = self.answer_total;
        self.answers.push(Reverse(Due { at: self.now + delay, order, answer, respond: receiving.respond }));
    }

    /// Accepts or rejects a notification, and records which.
    fn judge(
        &mut self,
        head: Result<Notification, Reason>,
        apns_id: Option<HeaderValue>,
        fate: Fate,
        payload: &[u8],
    ) -> Answer {
        let (verdict, apns_id) = match head {
            Err(reason) => (Err(reason), apns_id),
            Ok(mut notification) => {
                let (id, spelling) = notification.apns_id.take().unwrap_or_else(|| self.make_id());
                let verdict = self.check_rest(&notification, fate, payload);
                if verdict.is_ok() {
                    self.accept(&notification, id, payload);
                }
                (verdict, Some(spelling))
            }
        };
        match (verdict, apns_id) {
            (Ok(()), Some(apns_id)) => {
                self.is_punished = false;
                Answer::Accepted { apns_id }
            }
            (verdict, apns_id) => {
                let reason = verdict.err().unwrap_or(Reason::InternalServerError);
                self.is_punished |= reason.is_client_error();
                self.shared.ledger.record_rejected(reason);
                Answer::Rejected { apns_id, reason, gone_since: self.faults.gone_since.unwrap_or(self.unix_now) }
            }
        }
    }

    /// What a request with a right head may still be rejected for; faults come last, they befall right ones only.
    fn check_rest(&mut self, notification: &Notification, fate: Fate, payload: &[u8]) -> Result<(), Reason> {
        match &self.certificate {
            Some(shown) => shown.as_ref().map(drop).map_err(|reason| *reason)?,
            None => self.tokens.check(&self.authorities, notification.authorization.as_ref(), self.unix_now)?,
        }
        check_payload(payload, notification.payload_bytes_max)?;
        if self.faults.is_gone(self.shared.config.seed, &notification.token) {
            return Err(Reason::Unregistered);
        }
        fate.verdict.map_or(Ok(()), Err)
    }

    fn accept(&self, notification: &Notification, apns_id: Uuid, payload: &[u8]) {
        let (token, at): (&DeviceToken, _) = (&notification.token, self.unix_now);
        let collapse_id = notification.collapse_id.as_ref().map(HeaderValue::as_bytes);
        self.shared.ledger.record_accepted(token, apns_id, collapse_id, at);
        if let Some(on_accepted) = &self.shared.on_accepted {
            on_accepted(AcceptedNotification { token, apns_id, collapse_id, payload, at });
        }
    }

    /// An id for a notification that came without.
    fn make_id(&mut self) -> (Uuid, HeaderValue) {
        let id = uuid::Builder::from_random_bytes(self.rng.random()).into_uuid();
        let text = id.hyphenated().to_string();
        (id, HeaderValue::from_str(&text).expect("hexadecimal digits and hyphens are visible ASCII"))
    }

    fn go_away(&mut self) {
        self.is_going_away = true;
        bump(&self.shared.ledger.counters.goaways);
        if self.faults.goaway_abrupt {
            self.h2.abrupt_shutdown(StreamReset::NO_ERROR);
        } else {
            self.h2.graceful_shutdown();
        }
    }

    /// Hands all answers that are due to h2; whether there were any.
    fn send_due(&mut self) -> bool {
        let mut is_any = false;
        while self.answers.peek().is_some_and(|Reverse(next)| next.at <= self.now) {
            let Some(Reverse(due)) = self.answers.pop() else { break };
            due.send();
            is_any = true;
        }
        is_any
    }

    /// Sees to it that the limit that should hold is announced; whether h2 must be polled to write it.
    fn settle_limit(&mut self) -> bool {
        let faults = &self.faults;
        let special = if self.certificate.is_none() && !self.tokens.has_taken_one() {
            faults.stream_limit_before_token
        } else if self.is_punished {
            faults.stream_limit_after_rejection
        } else {
            None
        };
        let limit = special.unwrap_or(faults.stream_limit);
        let link = &mut *self.link.borrow_mut();
        // One announcement at a time: the acknowledgement wakes us for the next.
        if link.meter.limit() == limit || link.meter.awaits_ack() || link.announce == Some(limit) {
            return false;
        }
        link.announce = Some(limit);
        true
    }

    fn count_streams(&mut self) {
        let link = self.link.borrow();
        let counters = &self.shared.ledger.counters;
        counters.streams_open_max.fetch_max(link.meter.open_max as u64, Relaxed);
        counters.stream_limit_violations.fetch_add(link.meter.violations - self.violations_counted, Relaxed);
        self.violations_counted = link.meter.violations;
    }
}

impl Receiving {
    /// The whole body, or as much as is kept of one that is too long.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Bytes, h2::Error>> {
        loop {
            if self.body.is_end_stream() {
                return Poll::Ready(Ok(self.take_body()));
            }
            let Some(piece) = ready!(self.body.poll_data(cx)) else { return Poll::Ready(Ok(self.take_body())) };
            let piece = piece?;
            let _ = self.body.flow_control().release_capacity(piece.len()); // Fails for a closed stream only.
            match &self.first {
                None => self.first = Some(piece),
                Some(first) => {
                    if self.received.is_empty() {
                        self.received.extend_from_slice(first);
                    }
                    self.received.extend_from_slice(&piece);
                    if self.received.len() > BODY_BYTES_MAX {
                        return Poll::Ready(Ok(self.take_body()));
                    }
                }
            }
        }
    }

    fn take_body(&mut self) -> Bytes {
        let first = self.first.take().unwrap_or_default();
        if self.received.is_empty() { first } else { self.received.split().freeze() }
    }
}

impl Due {
    /// A stream that its client has reset takes no answer; that is the client's matter.
    fn send(mut self) {
        let mut response = Response::new(());
        let body = match self.answer {
            Answer::Accepted { apns_id } => {
                put_id(&mut response, apns_id);
                None
            }
            Answer::Rejected { apns_id, reason, gone_since } => {
                *response.status_mut() = reason.status();
                if let Some(apns_id) = apns_id {
                    put_id(&mut response, apns_id);
                }
                Some(match reason.status() {
                    StatusCode::GONE => gone_body(reason, gone_since),
                    _ => reason.body(),
                })
            }
            Answer::Control { status, body } => {
                *response.status_mut() = status;
                Some(body)
            }
        };
        let sent = self.respond.send_response(response, body.is_none());
        if let (Ok(mut stream), Some(body)) = (sent, body) {
            let _ = stream.send_data(body, true);
        }
    }
}

fn put_id(response: &mut Response<()>, mut apns_id: HeaderValue) {
    apns_id.set_sensitive(true); // Used once: it must not churn the header compression's table (RFC 7541, 7.1.3).
    response.headers_mut().insert(APNS_ID, apns_id);
}

fn gone_body(reason: Reason, since: Timestamp) -> Bytes {
    format!("{{\"reason\":\"{reason}\",\"timestamp\":{}}}", since.as_millis()).into()
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Due {}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// A connection that did not come about.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error("setting up TLS")]
    Tls(#[from] std::io::Error),
    #[error("setting up HTTP/2")]
    H2(#[from] h2::Error),
}
