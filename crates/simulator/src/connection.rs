//! One HTTP/2 connection, served in turns: read what has arrived, judge and record the requests, then write all answers
//! that are due.
//!
//! A turn reads at most [`TURN_BYTES`](crate::wire::TURN_BYTES), so that its requests stay in the processor's cache.
//! Turns go on until nothing more has arrived and no answer is due. There is no task, channel or timer per request.
//! Answers that are due later wait in a heap behind one timer. Windows that are returned later (round-trip time) wait in
//! a queue behind the same timer.
//!
//! Memory: per open stream, a request of at most [`BODY_BYTES_MAX`] bytes or an answer. The announced limit bounds the
//! streams; further streams are refused.
//!
//! A reset, a stop or an abrupt GOAWAY drops the waiting answers. Their notifications are recorded, but their sender
//! does not learn it.

use std::cell::RefCell;
use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use h2::server::SendResponse;
use h2::{FlowControl, Reason as StreamReset, RecvStream};
use http::request::Parts;
use http::{Request, Response};
use tidings_telemetry::{chain, unix_now};
use tidings_types::Timestamp;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use tokio_rustls::server::TlsStream;

use crate::config::{Fate, Transport};
use crate::control;
use crate::ledger::{Counters, bump};
use crate::meter::STREAM_COUNT_MAX;
use crate::provider::{Answer, Provider};
use crate::shared::{Client, End, Orders};
use crate::wire::{Link, Wire};

/// The most of a body that is kept. A longer body is judged without waiting for its end.
pub(crate) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Serves one connection to its end.
pub(crate) async fn serve<P: Provider>(
    client: Client<P>,
    stream: TlsStream<TcpStream>,
    orders: watch::Receiver<Orders<P>>,
) {
    match Connection::open(client, stream).await {
        Ok(mut connection) => {
            connection.run(orders).await;
            connection.count_streams();
        }
        Err(error) => tracing::debug!(error = chain(&error), "Setting up HTTP/2 failed"),
    }
}

struct Connection<P: Provider> {
    h2: h2::server::Connection<Wire, Bytes>,
    link: Rc<RefCell<Link>>,
    client: Client<P>,
    /// The client has proven its identity.
    is_proven: bool,
    /// The last verdict was a rejection that lowers the stream limit.
    is_punished: bool,
    is_going_away: bool,
    /// Requests whose body has not ended.
    receiving: Vec<Receiving<P>>,
    /// Answers that are due at once, in order.
    ready: Vec<(Answer, SendResponse<Bytes>)>,
    /// Answers that are due later.
    answers: BinaryHeap<Reverse<Due>>,
    answer_total: u64,
    /// Windows that are returned to the client later, the earliest first.
    windows: VecDeque<Window>,
    timer: Pin<Box<Sleep>>,
    halt: Halt,
    /// Read once per turn, as `now` is.
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

struct Receiving<P: Provider> {
    purpose: Purpose<P>,
    body: RecvStream,
    received: BytesMut,
    /// The first piece, not copied. Most bodies have only one.
    first: Option<Bytes>,
    respond: SendResponse<Bytes>,
}

enum Purpose<P: Provider> {
    Control(Box<Parts>),
    Push { head: P::Head, fate: Fate<P::Refusal> },
}

struct Due {
    at: Instant,
    /// Orders answers that are due at the same time.
    order: u64,
    answer: Answer,
    respond: SendResponse<Bytes>,
}

struct Window {
    at: Instant,
    flow: FlowControl,
    bytes: usize,
}

impl<P: Provider> Connection<P> {
    async fn open(client: Client<P>, tls: TlsStream<TcpStream>) -> Result<Self, h2::Error> {
        let is_proven = client.shared.provider.is_proven(&client.session);
        let faults = &client.faults;
        let before_token = faults.stream_limit_before_token.filter(|_| !is_proven);
        let link = Link::new(before_token.unwrap_or(faults.stream_limit));
        let mut builder = h2::server::Builder::new();
        builder
            .max_concurrent_streams(STREAM_COUNT_MAX as u32)
            .initial_window_size(faults.stream_window_bytes)
            .initial_connection_window_size(faults.connection_window_bytes);
        let h2 = builder.handshake(Wire::new(tls, link.clone())).await?;
        bump(&client.shared.ledger.counters.connections);
        Ok(Self {
            h2,
            link,
            client,
            is_proven,
            is_punished: false,
            is_going_away: false,
            receiving: Vec::new(),
            ready: Vec::new(),
            answers: BinaryHeap::new(),
            answer_total: 0,
            windows: VecDeque::new(),
            timer: Box::pin(sleep(Duration::ZERO)),
            halt: Halt::No,
            unix_now: unix_now(),
            now: Instant::now(),
            violations_counted: 0,
        })
    }

    async fn run(&mut self, mut orders: watch::Receiver<Orders<P>>) {
        loop {
            tokio::select! {
                biased;
                changed = orders.changed() => {
                    let Ok(()) = changed else { return };
                    match self.client.follow(&mut orders) {
                        Some(End::Close) => return,
                        Some(End::Reset) => return self.reset(),
                        None => {}
                    }
                }
                () = poll_fn(|cx| self.poll_turn(cx)) => return,
            }
        }
    }

    fn counters(&self) -> &Counters {
        &self.client.shared.ledger.counters
    }

    fn reset(&mut self) {
        bump(&self.counters().resets);
        self.link.borrow_mut().reset = true;
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
                    self.reset();
                    return Poll::Ready(());
                }
                Halt::Until(_) => continue,
                Halt::No => {}
            }
            let is_limit_changed = self.announce_limit();
            let is_window_returned = self.return_windows();
            let is_more_there = self.link.borrow_mut().next_turn();
            // h2 writes only when it is polled, so it must be polled again after any answer.
            if self.send_due() || is_limit_changed || is_window_returned || is_more_there {
                continue;
            }
            self.count_streams();
            let next_answer = self.answers.peek().map(|Reverse(next)| next.at);
            let next_window = self.windows.front().map(|next| next.at);
            let Some(at) = next_answer.into_iter().chain(next_window).min() else { return Poll::Pending };
            ready!(self.poll_timer(at, cx));
        }
    }

    fn poll_timer(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.deadline() != at {
            self.timer.as_mut().reset(at);
        }
        self.timer.as_mut().poll(cx)
    }

    /// Lets h2 read and write, and takes the requests that have arrived. A request that halts the connection ends this.
    fn take_arrived(&mut self, cx: &mut Context<'_>) -> Taken {
        while self.halt == Halt::No {
            match self.h2.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.on_request(request, respond, cx),
                Poll::Ready(Some(Err(error))) => {
                    tracing::debug!(error = chain(&error), "Connection failed");
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
            self.count_streams(); // The violation must be counted before the client can see the refusal.
        }
        let purpose = if parts.uri.path().starts_with(control::PREFIX) {
            Purpose::Control(Box::new(parts))
        } else {
            let fate = self.client.draw_fate();
            refuse |= fate.transport == Transport::Refuse;
            Purpose::Push { head: self.client.shared.provider.read_head(&self.client.session, &parts), fate }
        };
        if refuse {
            bump(&self.counters().streams_refused);
            respond.send_reset(StreamReset::REFUSED_STREAM);
        } else {
            let mut receiving = Receiving { purpose, body, first: None, received: BytesMut::new(), respond };
            let hold = self.hold();
            match receiving.poll_body(hold, &mut self.windows, cx) {
                Poll::Ready(Ok(body)) => self.finish(receiving, &body),
                Poll::Ready(Err(_)) => {} // The client has reset the stream.
                Poll::Pending => self.receiving.push(receiving),
            }
        }
        if self.client.is_goaway_due() && !self.is_going_away {
            self.go_away();
        }
    }

    /// Judges the requests whose body is complete now.
    fn take_bodies(&mut self, cx: &mut Context<'_>) {
        let mut index = 0;
        while index < self.receiving.len() && self.halt == Halt::No {
            let hold = self.hold();
            match self.receiving[index].poll_body(hold, &mut self.windows, cx) {
                Poll::Pending => index += 1,
                Poll::Ready(body) => {
                    let receiving = self.receiving.swap_remove(index);
                    if let Ok(body) = body {
                        self.finish(receiving, &body);
                    }
                }
            }
        }
    }

    /// When the window of bytes that arrive now is returned to the client; `None` is at once.
    fn hold(&self) -> Option<Instant> {
        let round_trip = self.client.faults.round_trip();
        (!round_trip.is_zero()).then(|| self.now + round_trip)
    }

    /// Judges a complete request, and queues the answer.
    fn finish(&mut self, receiving: Receiving<P>, body: &[u8]) {
        let (answer, delay) = match receiving.purpose {
            Purpose::Control(parts) => {
                (control::answer(&self.client.shared, &parts.method, parts.uri.path(), body), Duration::ZERO)
            }
            Purpose::Push { head, fate } => {
                if fate.stall {
                    bump(&self.counters().stalls);
                    self.halt = Halt::Until(self.now + Duration::from_millis(self.client.faults.stall_ms));
                }
                if fate.transport == Transport::ResetBefore {
                    self.halt = Halt::Reset;
                    return;
                }
                let answer = self.client.judge(head, body, &fate, self.unix_now);
                if fate.transport == Transport::ResetAfter {
                    self.halt = Halt::Reset;
                    return;
                }
                (answer, fate.delay)
            }
        };
        if delay.is_zero() {
            return self.ready.push((answer, receiving.respond));
        }
        self.answer_total += 1;
        let order = self.answer_total;
        self.answers.push(Reverse(Due { at: self.now + delay, order, answer, respond: receiving.respond }));
    }

    fn go_away(&mut self) {
        self.is_going_away = true;
        bump(&self.counters().goaways);
        if self.client.faults.goaway_abrupt {
            self.h2.abrupt_shutdown(StreamReset::NO_ERROR);
        } else {
            self.h2.graceful_shutdown();
        }
    }

    /// Hands all due answers to h2, and says whether there were any.
    fn send_due(&mut self) -> bool {
        let mut ready = std::mem::take(&mut self.ready);
        let mut is_any = !ready.is_empty();
        while self.answers.peek().is_some_and(|Reverse(next)| next.at <= self.now) {
            let Some(Reverse(due)) = self.answers.pop() else { break };
            self.send(due.answer, due.respond);
            is_any = true;
        }
        ready.drain(..).for_each(|(answer, respond)| self.send(answer, respond));
        self.ready = ready; // Reuses the memory.
        is_any
    }

    /// Hands an answer to h2. The answer is dropped if the client has reset the stream.
    fn send(&mut self, answer: Answer, mut respond: SendResponse<Bytes>) {
        let Answer { status, headers, body, effect } = answer;
        self.is_proven |= effect.proves;
        self.is_punished = effect.punishes.unwrap_or(self.is_punished);
        let mut response = Response::new(());
        *response.status_mut() = status;
        headers.put_into(response.headers_mut());
        if let Ok(mut stream) = respond.send_response(response, body.is_empty())
            && !body.is_empty()
        {
            let _ = stream.send_data(body, true);
        }
    }

    /// Returns the windows that are due, and says whether there were any.
    fn return_windows(&mut self) -> bool {
        let mut is_any = false;
        while self.windows.front().is_some_and(|next| next.at <= self.now) {
            let Some(mut window) = self.windows.pop_front() else { break };
            let _ = window.flow.release_capacity(window.bytes); // Fails only for a closed stream.
            is_any = true;
        }
        is_any
    }

    /// Announces the stream limit if it must change, and says whether h2 must be polled to write it.
    fn announce_limit(&mut self) -> bool {
        let faults = &self.client.faults;
        let special = if !self.is_proven {
            faults.stream_limit_before_token
        } else if self.is_punished {
            faults.stream_limit_after_rejection
        } else {
            None
        };
        let limit = special.unwrap_or(faults.stream_limit);
        let link = &mut *self.link.borrow_mut();
        // Only one announcement may be unacknowledged. The acknowledgement wakes this connection for the next one.
        if link.meter.limit() == limit || link.meter.awaits_ack() || link.announce == Some(limit) {
            return false;
        }
        link.announce = Some(limit);
        true
    }

    fn count_streams(&mut self) {
        let link = self.link.borrow();
        let counters = &self.client.shared.ledger.counters;
        counters.streams_open_max.fetch_max(link.meter.open_max as u64, Relaxed);
        counters.stream_limit_violations.fetch_add(link.meter.violations - self.violations_counted, Relaxed);
        self.violations_counted = link.meter.violations;
    }
}

impl<P: Provider> Receiving<P> {
    /// Gives the whole body, or the beginning of a body that is too long. The window of the bytes that have arrived is
    /// returned to the client at `hold`, without `hold` at once.
    fn poll_body(
        &mut self,
        hold: Option<Instant>,
        windows: &mut VecDeque<Window>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Bytes, h2::Error>> {
        loop {
            if self.body.is_end_stream() {
                return Poll::Ready(Ok(self.take_body()));
            }
            let Some(piece) = ready!(self.body.poll_data(cx)) else { return Poll::Ready(Ok(self.take_body())) };
            let piece = piece?;
            let flow = self.body.flow_control();
            match hold {
                Some(at) => windows.push_back(Window { at, flow: flow.clone(), bytes: piece.len() }),
                None => drop(flow.release_capacity(piece.len())), // Fails only for a closed stream.
            }
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
