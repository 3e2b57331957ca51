//! Connections to one origin: HTTP/2 if the service offers it, as all large ones do, else HTTP/1.1.
//!
//! A [`Link`] is the right to send one request at a time. Over HTTP/1.1 it has its own connection, because a second POST would
//! wait for the answer of the first one, and would be lost with it when the connection breaks. Over HTTP/2 links share a
//! connection, as many as the peer allows, up to [`STREAMS_MAX`]. If links are made at the same moment, there may be a few
//! more; then their requests wait inside `h2`, which never opens more streams than the peer allows.
//!
//! The first connection shows the protocol of an origin (ALPN, RFC 7301), so it is made alone. After that, HTTP/1.1
//! connections are made in parallel. HTTP/2 connections are made one after the other, and only when the open ones have no
//! room, so that attempts at the same time share the new one. The protocol is remembered as long as the origin has a link.
//!
//! Bounds: `connection_count_max` HTTP/2 connections per origin; when all are full, a further request waits in the one with
//! the fewest requests. Each HTTP/1.1 connection belongs to a link. At most [`HEAD_BYTES_MAX`] of an answer's head and
//! [`ANSWER_BYTES_MAX`] of its body are read; a larger body is dropped.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use h2::Ping;
use h2::client::{ResponseFuture, SendRequest};
use http::{HeaderMap, StatusCode, Version};
use rustls::ClientConfig as TlsConfig;
use tidings_http1::pool::{CallError, Connect};
use tidings_http1::{Client, ClientConfig, Limits, Request, RequestError};
use tidings_push::ANSWER_BYTES_MAX;
use tidings_telemetry::Counter;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::network::{Route, WeakRoute};
use crate::http2::is_not_processed;
use crate::metrics::Metrics;

/// Requests at a time on one HTTP/2 connection, even if the peer allows more.
const STREAMS_MAX: usize = 250;
/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// What bounds the connections to each origin.
#[derive(Clone)]
pub(super) struct Terms {
    /// How long resolving, TCP and TLS may take together.
    pub(super) connect_timeout: Duration,
    /// How long a request may wait for its answer.
    pub(super) answer_timeout: Duration,
    pub(super) connection_count_max: usize,
    pub(super) metrics: Metrics,
    /// Notified of each new connection, because it shows how many requests its origin takes.
    pub(super) connected: Arc<Notify>,
}

/// An answer: status, headers and body.
pub(super) struct Answer(pub(super) StatusCode, pub(super) HeaderMap, pub(super) Vec<u8>);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// The request cannot be written in HTTP/1.1.
    Unsendable,
    /// Nothing was sent, and nothing will be: its addresses are not public.
    Forbidden,
    /// No connection was made; `timed_out` if there was no time for more.
    NotConnected { timed_out: bool },
    /// The service did nothing with it, and its connection ends: another may be tried at once.
    NotProcessed,
    /// It was not sent.
    NotSent { timed_out: bool },
    /// It was sent, at least in part.
    Lost { timed_out: bool },
}

/// The way to an origin, and its connections.
#[derive(Clone)]
pub(super) struct Path {
    route: Route,
    open: Arc<Open>,
}

/// A [`Path`] that is kept by the links on it.
pub(super) struct WeakPath {
    route: WeakRoute,
    open: Weak<Open>,
}

/// The HTTP/2 connections of one origin.
#[derive(Default)]
struct Open {
    connections: Mutex<Vec<Weak<Shared>>>,
    /// Held by the task that makes the next connection.
    turn: tokio::sync::Mutex<()>,
    /// Its last connection spoke HTTP/1.1.
    is_http1: AtomicBool,
}

impl WeakPath {
    pub(super) fn upgrade(&self) -> Option<Path> {
        Some(Path { route: self.route.upgrade()?, open: self.open.upgrade()? })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.open.strong_count() > 0
    }
}

impl Path {
    pub(super) fn new(route: Route) -> Self {
        Self { route, open: Arc::default() }
    }

    pub(super) fn downgrade(&self) -> WeakPath {
        WeakPath { route: self.route.downgrade(), open: Arc::downgrade(&self.open) }
    }

    pub(super) fn route(&self) -> &Route {
        &self.route
    }

    /// How many requests to the origin may be in flight: the largest number of connections, times what the open
    /// connections allow each.
    pub(super) fn attempt_count_max(&self, connection_count_max: usize) -> usize {
        let connections = self.open.lock();
        let streams_max = connections.iter().filter_map(Weak::upgrade).map(|shared| shared.streams_max()).max();
        connection_count_max * streams_max.unwrap_or(1)
    }

    /// A link for one request: on an HTTP/2 connection with room, or on a new connection.
    ///
    /// # Errors
    /// [`Failure::NotConnected`] at `deadline` at the latest, [`Failure::Forbidden`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up the connection that is being made.
    pub(super) async fn link(&self, terms: &Terms, deadline: Instant) -> Result<Link, Failure> {
        let connect = async {
            let _turn = self.open.turn().await;
            match self.open.take(terms.connection_count_max) {
                Some(shared) => Ok(Link { path: self.clone(), way: Way::Http2(shared) }),
                None => self.connect(terms).await,
            }
        };
        let failure = match timeout_at(deadline, connect).await {
            Ok(Ok(link)) => return Ok(link),
            Ok(Err(_)) if self.route.is_forbidden() => Failure::Forbidden,
            Ok(Err(_)) => Failure::NotConnected { timed_out: false },
            Err(_) => Failure::NotConnected { timed_out: true },
        };
        terms.metrics.connect_failures.inc();
        Err(failure)
    }

    async fn connect(&self, terms: &Terms) -> io::Result<Link> {
        let stream = self.route.connect().await?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let way = if is_http2 {
            Way::Http2(self.open.add(Shared::start(stream, &terms.metrics).await?))
        } else {
            Way::Http1(Http1::start(stream, &self.route, terms)?)
        };
        self.open.is_http1.store(!is_http2, Ordering::Release);
        terms.metrics.connections_opened.inc();
        terms.connected.notify_one();
        Ok(Link { path: self.clone(), way })
    }
}

impl Open {
    /// The turn to make a connection; none is needed over HTTP/1.1.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let is_needed = || !self.is_http1.load(Ordering::Acquire);
        let turn = if is_needed() { Some(self.turn.lock().await) } else { None };
        turn.filter(|_| is_needed())
    }

    /// The connection with the most room. If none has room and no more connections are allowed, the one with the fewest
    /// requests.
    fn take(&self, connection_count_max: usize) -> Option<Arc<Shared>> {
        let mut connections = self.lock();
        connections.retain(|connection| connection.strong_count() > 0);
        let alive = connections.iter().filter_map(Weak::upgrade).filter(|shared| shared.is_open());
        let (mut count, mut best) = (0, None::<Arc<Shared>>);
        for shared in alive {
            count += 1;
            if best.as_ref().is_none_or(|best| shared.in_flight() < best.in_flight()) {
                best = Some(shared);
            }
        }
        best.filter(|best| best.has_room() || count >= connection_count_max)
    }

    fn add(&self, shared: Arc<Shared>) -> Arc<Shared> {
        self.lock().push(Arc::downgrade(&shared));
        shared
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Shared>>> {
        // No code under this lock can panic, so a poisoned lock guards consistent data.
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The right to send one request at a time to an origin.
pub(super) struct Link {
    path: Path,
    way: Way,
}

enum Way {
    Http1(Http1),
    Http2(Arc<Shared>),
}

impl Link {
    /// Whether it was made with these certificates to trust.
    pub(super) fn is_with(&self, tls: &Arc<TlsConfig>) -> bool {
        self.path.route.is_with(tls)
    }

    /// Whether it can send a request at once.
    pub(super) fn is_ready(&self) -> bool {
        match &self.way {
            Way::Http1(_) => true, // It connects again by itself.
            Way::Http2(shared) => shared.is_open() && shared.has_room(),
        }
    }

    /// Sends a request and waits for its answer, until `deadline` at the latest.
    ///
    /// # Errors
    /// [`Failure`].
    ///
    /// # Cancel safety
    /// Dropping the future gives up the request; whether it was sent is then unknown.
    pub(super) async fn send(
        &self,
        head: &http::Request<()>,
        body: Bytes,
        deadline: Instant,
    ) -> Result<Answer, Failure> {
        match &self.way {
            Way::Http1(http1) => match http1.send(head, body, deadline).await {
                Err(Failure::NotSent { .. }) if self.path.route.is_forbidden() => Err(Failure::Forbidden),
                answer => answer,
            },
            Way::Http2(shared) => shared.send(head, body, deadline).await,
        }
    }
}

/// A connection over HTTP/1.1.
struct Http1 {
    client: Client,
    closed: Counter,
}

/// Makes HTTP/1.1 connections to an origin. The first one is already open.
struct FirstThenMore {
    first: Mutex<Option<TlsStream<TcpStream>>>,
    route: Route,
}

impl Connect for FirstThenMore {
    type Transport = TlsStream<TcpStream>;

    async fn connect(&self) -> io::Result<TlsStream<TcpStream>> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        match first {
            Some(first) => Ok(first),
            None => self.route.connect_http1().await,
        }
    }
}

impl Http1 {
    fn start(stream: TlsStream<TcpStream>, route: &Route, terms: &Terms) -> io::Result<Self> {
        let mut config = ClientConfig::new(route.origin().to_string(), 1);
        config.limits = Limits { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max: ANSWER_BYTES_MAX };
        config.skip_large_bodies = true;
        (config.pool.backlog_max, config.pool.in_flight_max, config.pool.tombstone_max) = (1, 1, 1);
        config.pool.connect_timeout = terms.connect_timeout;
        config.pool.silence_max = terms.connect_timeout + terms.answer_timeout;
        let connector = FirstThenMore { first: Mutex::new(Some(stream)), route: route.clone() };
        // It fails only if our own settings are wrong.
        let client = Client::start_over(route.origin(), config, connector).map_err(io::Error::other)?;
        Ok(Self { client, closed: terms.metrics.connections_closed.clone() })
    }

    async fn send(&self, head: &http::Request<()>, body: Bytes, deadline: Instant) -> Result<Answer, Failure> {
        let request = in_http1(head, body).map_err(|_| Failure::Unsendable)?;
        let timeout = deadline.saturating_duration_since(Instant::now());
        match self.client.send(request, timeout).await {
            Ok(answer) => Ok(Answer(answer.status(), answer.headers().clone(), answer.body().to_vec())),
            Err(CallError::Refused(_)) => Err(Failure::Unsendable),
            Err(error) => {
                let timed_out = matches!(error, CallError::Timeout { .. });
                let is_sent = error.may_have_been_sent();
                Err(if is_sent { Failure::Lost { timed_out } } else { Failure::NotSent { timed_out } })
            }
        }
    }
}

impl Drop for Http1 {
    fn drop(&mut self) {
        self.closed.inc();
    }
}

/// The same request in HTTP/1.1.
fn in_http1(head: &http::Request<()>, body: Bytes) -> Result<Request, RequestError> {
    let target = head.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::new(head.method().clone(), target)?;
    for (name, value) in head.headers() {
        request = request.header(name.as_str(), value.as_bytes())?;
    }
    Ok(request.body(body).pipeline(false).repeat(false))
}

/// An HTTP/2 connection. It is shared by its links and ends with the last of them.
struct Shared {
    requests: SendRequest<Bytes>,
    in_flight: AtomicUsize,
    /// It has ended or will end: the peer said so, it broke, or a request timed out.
    is_leaving: Arc<AtomicBool>,
    closed: Counter,
    /// Reads and writes for all links.
    _task: JoinSet<()>,
}

/// A request in flight on a connection.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Shared {
    async fn start(stream: TlsStream<TcpStream>, metrics: &Metrics) -> io::Result<Arc<Self>> {
        let mut builder = h2::client::Builder::new();
        builder.enable_push(false).max_header_list_size(HEAD_BYTES_MAX as u32);
        let (requests, mut connection) = builder.handshake(stream).await.map_err(io::Error::other)?;
        let mut pings = connection.ping_pong().expect("this is the first call");
        let is_leaving = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&is_leaving);
        let mut task = JoinSet::new();
        task.spawn(async move {
            _ = connection.await; // Each request returns its own error.
            ended.store(true, Ordering::Release);
        });
        // A peer sends SETTINGS first, so from here on its limit on streams is known.
        pings.ping(Ping::opaque()).await.map_err(io::Error::other)?;
        let (in_flight, closed) = (AtomicUsize::new(0), metrics.connections_closed.clone());
        Ok(Arc::new(Self { requests, in_flight, is_leaving, closed, _task: task }))
    }

    fn is_open(&self) -> bool {
        !self.is_leaving.load(Ordering::Acquire)
    }

    fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Acquire)
    }

    fn streams_max(&self) -> usize {
        self.requests.current_max_send_streams().clamp(1, STREAMS_MAX)
    }

    fn has_room(&self) -> bool {
        self.in_flight() < self.streams_max()
    }

    fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    async fn send(&self, head: &http::Request<()>, body: Bytes, deadline: Instant) -> Result<Answer, Failure> {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        let _in_flight = InFlight(&self.in_flight);
        let Ok(ready) = timeout_at(deadline, self.requests.clone().ready()).await else {
            return Err(Failure::NotSent { timed_out: true });
        };
        let mut request = http::Request::new(());
        (*request.method_mut(), *request.uri_mut()) = (head.method().clone(), head.uri().clone());
        (*request.headers_mut(), *request.version_mut()) = (head.headers().clone(), Version::HTTP_2);
        let Ok((response, mut stream)) = ready.and_then(|mut requests| requests.send_request(request, false)) else {
            self.leave();
            return Err(Failure::NotProcessed);
        };
        // The response returns the same error.
        _ = stream.send_data(body, true);
        match timeout_at(deadline, read(response)).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) if is_not_processed(&error) => {
                self.leave();
                Err(Failure::NotProcessed)
            }
            Ok(Err(_)) => Err(Failure::Lost { timed_out: false }),
            Err(_) => {
                self.leave(); // Requests in flight may still be answered. New ones use another connection.
                Err(Failure::Lost { timed_out: true })
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.closed.inc();
    }
}

/// Waits for an answer, and reads its body to the end or to the bound.
async fn read(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        // The status is enough if the rest does not come.
        let Ok(data) = data else { break };
        if body.len() + data.len() > ANSWER_BYTES_MAX {
            body.clear();
            break;
        }
        body.extend_from_slice(&data);
        // It fails only if the stream has ended. Then its window does not matter.
        _ = stream.flow_control().release_capacity(data.len());
    }
    Ok(Answer(head.status, head.headers, body))
}
