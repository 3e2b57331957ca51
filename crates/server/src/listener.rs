//! The HTTP listener: accepts connections, and lets nobody hold one without using it.
//!
//! # Limits
//! | What | Limit | When it is reached |
//! |---|---|---|
//! | connections that are still HTTP (a WebSocket or a stream counts in the edge) | `connection_count_max` a listener | nothing is accepted, new ones wait in the system's queue |
//! | connections of one address (of IPv6: of one /64) that are still HTTP | `address_count_max`, and half of the open files for connections, of the public listener | closed at once |
//! | new connections in a second | `accept_per_second` of the public listener | they wait in the system's queue |
//! | open files | [`FILE_RESERVE`] are left to the store and the gateways; the internal listener may use half of these | closed at once, and nothing is accepted for [`ACCEPT_PAUSE`] |
//! | the first byte of a connection; the head of a request, also of the next one | `head_timeout` each | closed |
//! | a TLS handshake | `head_timeout` after its first byte; 64 KiB of a message (rustls) | closed |
//! | bytes that wait for a peer that takes none | `stall_timeout` | closed by the system |
//! | what is read and not parsed, or answered and not written, each | [`BUFFER_BYTES_MAX`] a connection | the connection is not read; too long a head: 431 |
//!
//! With TLS as many bytes again may be held encrypted in each direction. A peer that speaks plain HTTP where TLS is
//! expected is told so (400).
//!
//! Stopping: no new connections, requests in work are finished. Those that do not end in time are cut off, and the log names their peers.

use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error as _;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::{StatusCode, Version};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::SockRef;
use tidings_edge::{LentSocket, NetworkPlace, Networks, Socket};
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{Counter, Registry, chain, metrics};
use tidings_types::Timestamp;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::server::TlsStream;
use tower::ServiceExt as _;
use tracing::{debug, warn};

use crate::tls::Tls;

/// What a listener allows.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections that are still HTTP.
    pub(super) connection_count_max: usize,
    /// Connections of one address; 0: any number.
    pub(super) address_count_max: usize,
    /// New connections in a second; 0: any number.
    pub(super) accept_per_second: u32,
    /// How long a connection may say nothing, and how long the head of a request may take then, or from the last response on.
    pub(super) head_timeout: Duration,
    /// How long bytes may wait for a peer that takes none.
    pub(super) stall_timeout: Duration,
}

/// Open files that connections leave to the store, the gateways and the rest; half of all where there are few.
pub const FILE_RESERVE: u64 = 1024;

/// Raises this process's limit of open files to `needed`, or as far as the system allows. Returns the limit that holds
/// then. A limit that is already higher stays.
pub fn raise_file_limit(needed: u64) -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let Some(current) = current.filter(|current| *current < needed) else { return current.unwrap_or(u64::MAX) };
    let wanted = maximum.map_or(needed, |maximum| maximum.min(needed));
    match setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum }) {
        Ok(()) => wanted,
        Err(error) => {
            warn!(error = chain(&error), "The limit of open files cannot be raised");
            current
        }
    }
}

/// Bytes of a connection that are read and not parsed; as many that are to be written.
pub(super) const BUFFER_BYTES_MAX: usize = 16 << 10;

impl Limits {
    /// What requests and answers of all connections of so many listeners may take that are read and not parsed, or not written.
    pub(super) fn memory_terms(&self, listener_count: usize) -> Vec<Term> {
        let connections = self.connection_count_max.saturating_mul(listener_count);
        let settings = "client.connection_count_max, http.internal_listen, http.tls.listen";
        vec![Term::peak("HTTP buffers", connections, 2 * BUFFER_BYTES_MAX, settings)]
    }
}

/// A reason to refuse connections is logged once in this time.
const NOTICE_INTERVAL: Duration = Duration::from_secs(60);

/// Connections on which nothing is asked have so long to notice the stop.
const STOP_GRACE: Duration = Duration::from_millis(100);

/// Peers that one line of the log names.
const TOLD_COUNT_MAX: usize = 8;

/// How far connections may be ahead of their rate.
const ACCEPT_AHEAD_MAX: Duration = Duration::from_millis(100);
/// After the system refused a connection (no more open files), before it is asked again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that wait to be accepted. With the libraries' 128, thousands of clients that come back at once have their
/// SYNs dropped and sent again a second later. The system may allow fewer (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// The first byte of a TLS connection: a record of the handshake (RFC 8446, 5.1).
const TLS_HANDSHAKE: u8 = 22;

/// What a peer is told that speaks plain HTTP where TLS is expected.
const NEEDS_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 39\r\n\
Connection: close\r\n\r\nthis port speaks TLS: use https or wss\n";

/// The beginning of the year 10 000.
const HTTP_DATE_END: Timestamp = Timestamp(253_402_300_800_000);

/// Opens a listening socket.
pub fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?; // A restart need not wait for the connections of the life before.
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Decides which connections are let in.
pub(super) struct Admission {
    limits: Limits,
    /// A connection with this file number, or a larger one, is in the reserve. `None`: there are as many files as one likes.
    file_number_max: Option<u64>,
    networks: Arc<Networks>,
    refused_by_address: Refused,
    refused_by_files: Refused,
    stalled: Counter,
    tls_failed: Counter,
}

impl Admission {
    /// Of the listener that anybody may reach.
    pub(super) fn public(limits: Limits, registry: &Registry) -> Arc<Self> {
        let file_number_max = getrlimit(Resource::Nofile).current.map(connection_files);
        Self::with_files(limits, file_number_max, registry)
    }

    /// Of a listener for back ends: they may use half of what the public leaves, so that it cannot keep them out.
    pub(super) fn internal(limits: Limits, registry: &Registry) -> Arc<Self> {
        let files = getrlimit(Resource::Nofile).current;
        let file_number_max = files.map(|files| files.midpoint(connection_files(files)));
        Self::with_files(Limits { address_count_max: 0, accept_per_second: 0, ..limits }, file_number_max, registry)
    }

    fn with_files(mut limits: Limits, file_number_max: Option<u64>, registry: &Registry) -> Arc<Self> {
        if let Some(files) = file_number_max.and_then(|files| usize::try_from(files).ok()) {
            // So that one address cannot take all files, however few there are; 0 stays no limit.
            limits.address_count_max = limits.address_count_max.min((files / 2).max(1));
        }
        Arc::new(Self {
            limits,
            file_number_max,
            networks: Arc::default(),
            refused_by_address: Refused::new(registry, "address"),
            refused_by_files: Refused::new(registry, "files"),
            stalled: registry.counter(&metrics::http::STALLED_TOTAL, &[]),
            tls_failed: registry.counter(&metrics::http::TLS_FAILED_TOTAL, &[]),
        })
    }

    /// Whether so many files are open that the rest is for others. The system gives the lowest number that is free
    /// (POSIX, `open`), so all below the number of a new socket are taken.
    fn is_in_reserve(&self, socket: &TcpStream) -> bool {
        let number = u64::try_from(socket.as_raw_fd()).unwrap_or(u64::MAX);
        let Some(limit) = self.file_number_max.filter(|limit| number >= *limit) else { return false };
        if self.refused_by_files.count() {
            warn!(limit, "So many files are open that connections are refused: raise the limit of open files");
        }
        true
    }

    /// `None`: its address has as many connections as it may.
    fn enter(self: &Arc<Self>, addr: SocketAddr) -> Option<Lease> {
        let (address, limit) = (tidings_api::network(addr.ip()), self.limits.address_count_max);
        let place = self.networks.enter(address, limit);
        if place.is_none() && self.refused_by_address.count() {
            warn!(
                peer.addr = %address,
                limit,
                "An address has as many connections as http.address_connection_count_max allows; behind a proxy all clients have \
                 the proxy's address"
            );
        }
        Some(Lease { admission: self.clone(), _place: place? })
    }
}

/// The right of one connection to be there, until it is dropped.
struct Lease {
    admission: Arc<Admission>,
    _place: NetworkPlace,
}

/// Connections refused for one reason: counted, and told of now and then.
struct Refused {
    counter: Counter,
    told_at: Mutex<Option<Instant>>,
}

impl Refused {
    fn new(registry: &Registry, reason: &str) -> Self {
        let counter = registry.counter(&metrics::http::REFUSED_TOTAL, &[reason]);
        Self { counter, told_at: Mutex::default() }
    }

    /// Counts one, and says whether the log is to tell of it.
    fn count(&self) -> bool {
        self.counter.inc();
        let mut told_at = self.told_at.lock();
        let is_due = told_at.is_none_or(|at| at.elapsed() >= NOTICE_INTERVAL);
        if is_due {
            *told_at = Some(Instant::now());
        }
        is_due
    }
}

/// How many of the files that may be open connections may take.
fn connection_files(limit: u64) -> u64 {
    limit - FILE_RESERVE.min(limit / 2)
}

/// When a listener that was told to stop cuts off the requests that are still in work. `None`: it was not told.
pub(super) type StopBy = Option<Instant>;

/// Serves the routes until `stopped`, with TLS if there is one. Routes that take the place of others hold for the next request.
pub(super) async fn serve(
    listener: TcpListener,
    routes: watch::Receiver<Router>,
    admission: Arc<Admission>,
    tls: Option<Arc<Tls>>,
    mut stopped: watch::Receiver<StopBy>,
) {
    let permits = Arc::new(Semaphore::new(admission.limits.connection_count_max));
    let to_stop = stopped.clone();
    let (mut tasks, mut peers) = (JoinSet::new(), HashMap::new());
    let mut pace = Pace::new(admission.limits.accept_per_second, Instant::now());
    loop {
        tokio::select! {
            _ = stopped.wait_for(Option::is_some) => break,
            accepted = accept(&listener, &permits, &admission, &mut pace) => {
                let addr = accepted.peer.addr;
                let conversation = attend(accepted, routes.clone(), tls.clone(), to_stop.clone());
                // A request's own panic is answered by the router; one of its connection closes that.
                let task = tasks.spawn(panics::catch_async(Work::Connection, conversation));
                peers.insert(task.id(), addr);
            }
            Some(closed) = tasks.join_next_with_id() => drop(peers.remove(&task_id(closed))),
        }
    }
    drop(listener);
    let told = *stopped.borrow(); // Without an order, the server is gone.
    let stop_by = told.unwrap_or_else(Instant::now).max(Instant::now() + STOP_GRACE);
    while let Ok(Some(closed)) = timeout_at(stop_by, tasks.join_next_with_id()).await {
        peers.remove(&task_id(closed));
    }
    if told.is_some() && !peers.is_empty() {
        let examples: Vec<_> = peers.values().take(TOLD_COUNT_MAX).collect();
        warn!(
            count = peers.len(),
            peers = ?examples,
            "Connections were cut off because their requests did not end within client.shutdown_timeout after the server began to stop"
        );
    }
    tasks.shutdown().await;
}

fn task_id<T>(closed: Result<(Id, T), JoinError>) -> Id {
    closed.map_or_else(|error| error.id(), |(id, _)| id)
}

/// A connection that was let in.
struct Accepted {
    socket: TcpStream,
    peer: Peer,
}

/// Who is on the other side, and its right to be there.
struct Peer {
    addr: SocketAddr,
    lease: Lease,
    _permit: OwnedSemaphorePermit,
}

/// When the next connection is accepted (GCRA, ITU-T I.371: a rate, and how far it may be ahead).
struct Pace {
    /// Between two connections.
    interval: Duration,
    /// When the next connection is due by the rate alone.
    due: Instant,
    paused_until: Instant,
}

impl Pace {
    fn new(per_second: u32, now: Instant) -> Self {
        let interval = Duration::from_secs(1).checked_div(per_second).unwrap_or_default();
        Self { interval, due: now, paused_until: now }
    }

    fn next(&self) -> Instant {
        self.paused_until.max(self.due.checked_sub(ACCEPT_AHEAD_MAX).unwrap_or(self.due))
    }

    fn on_accepted(&mut self, now: Instant) {
        self.due = self.due.max(now) + self.interval;
    }

    fn pause(&mut self, now: Instant) {
        self.paused_until = now + ACCEPT_PAUSE;
    }
}

/// The next connection that may be there. `pace` outlives a call that is given up because a connection has ended.
async fn accept(
    listener: &TcpListener,
    permits: &Arc<Semaphore>,
    admission: &Arc<Admission>,
    pace: &mut Pace,
) -> Accepted {
    let permit = permits.clone().acquire_owned().await.expect("the semaphore is never closed");
    loop {
        tokio::time::sleep_until(pace.next()).await;
        match listener.accept().await {
            Ok((socket, _)) if admission.is_in_reserve(&socket) => pace.pause(Instant::now()),
            Ok((socket, addr)) => {
                pace.on_accepted(Instant::now());
                if let Some(lease) = admission.enter(addr) {
                    return Accepted { socket, peer: Peer { addr, lease, _permit: permit } };
                }
            }
            Err(error) => {
                warn!(error = chain(&error), "A connection cannot be accepted");
                pace.pause(Instant::now());
            }
        }
    }
}

/// Waits for the first byte of a connection, which holds little until then: what HTTP needs, some 10 KiB, is made for those
/// that say something.
async fn attend(
    accepted: Accepted,
    routes: watch::Receiver<Router>,
    tls: Option<Arc<Tls>>,
    mut stopped: watch::Receiver<StopBy>,
) {
    let Accepted { socket, peer } = accepted;
    let limits = peer.lease.admission.limits;
    let mut first = [0];
    let heard = timeout(limits.head_timeout, socket.peek(&mut first));
    let is_heard = tokio::select! {
        heard = heard => matches!(heard, Ok(Ok(1))),
        _ = stopped.wait_for(Option::is_some) => false,
    };
    if !is_heard {
        return;
    }
    // The system sees better than we what the peer takes, and also frees its own buffers. A WebSocket keeps it.
    if let Err(error) = SockRef::from(&socket).set_tcp_user_timeout(Some(limits.stall_timeout)) {
        debug!(peer.addr = %peer.addr, error = chain(&error), "A connection takes no time limit for writing");
    }
    match tls {
        None => Box::pin(converse(Socket::Plain(socket), peer, routes, stopped)).await,
        Some(tls) => {
            let secured = tokio::select! {
                secured = Box::pin(secure(socket, &peer, &tls, first[0])) => secured,
                _ = stopped.wait_for(Option::is_some) => None,
            };
            if let Some(socket) = secured {
                Box::pin(converse(Socket::Tls(Box::new(socket)), peer, routes, stopped)).await;
            }
        }
    }
}

/// Shakes hands with a peer whose first byte has come.
async fn secure(socket: TcpStream, peer: &Peer, tls: &Tls, first: u8) -> Option<TlsStream<TcpStream>> {
    let admission = &peer.lease.admission;
    if first != TLS_HANDSHAKE {
        admission.tls_failed.inc();
        if first.is_ascii_uppercase() {
            refuse_plain(socket).await;
        }
        return None;
    }
    // Tickets and answers are small writes, one right after the other.
    let _ = socket.set_nodelay(true);
    let failed = match timeout(admission.limits.head_timeout, tls.acceptor().accept(socket)).await {
        Ok(Ok(secured)) => return Some(secured),
        Ok(Err(error)) => chain(&error).to_string(),
        Err(_) => "it took too long".to_owned(),
    };
    admission.tls_failed.inc();
    debug!(peer.addr = %peer.addr, error = failed, "A TLS handshake failed");
    None
}

/// Tells a peer that it is to speak TLS. The little text fits into an empty socket.
async fn refuse_plain(mut socket: TcpStream) {
    // To close over bytes that were not read would reset the connection, and the answer could be lost.
    let _ = socket.try_read(&mut [0; 4096]);
    let _ = socket.write_all(NEEDS_TLS).await;
    let _ = socket.shutdown().await;
}

/// One connection from its first request to its last, or until an edge loop takes its socket. hyper itself rather than hyper-util's automatic
/// server: that one first waits, without a limit, for the bytes that tell HTTP/1 from HTTP/2.
async fn converse(socket: Socket, peer: Peer, routes: watch::Receiver<Router>, mut stopped: watch::Receiver<StopBy>) {
    let Peer { addr, lease, _permit } = peer;
    let limits = lease.admission.limits;
    let socket = LentSocket::new(socket);
    let taker = socket.taker().clone();
    let given = taker.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(addr));
        request.extensions_mut().insert(given.clone());
        answer(routes.borrow().clone(), request)
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(limits.head_timeout).max_buf_size(BUFFER_BYTES_MAX);
    builder.auto_date_header(has_http_date(tidings_telemetry::unix_now()));
    let mut connection = pin!(builder.serve_connection(TokioIo::new(socket), service).with_upgrades());
    let stop = async move {
        let _ = stopped.wait_for(Option::is_some).await; // An error: the server is gone, which is the same.
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended
        && !taker.has_taken()
    {
        if is_stall(&error) {
            lease.admission.stalled.inc();
        }
        debug!(peer.addr = %addr, error = chain(&error), "An HTTP connection broke off");
    }
}

/// Whether the system gave the connection up because its peer took nothing.
fn is_stall(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_some_and(|cause| cause.kind() == io::ErrorKind::TimedOut)
}

async fn answer(router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    let host_count = request.headers().get_all(HOST).iter().count();
    // RFC 9112, 3.2: one in HTTP/1.1; who reads only one of two may read another one than a proxy before us did.
    if host_count > 1 || (host_count == 0 && request.version() >= Version::HTTP_11) {
        let told = format!("a request must have one Host header, this one has {host_count}\n");
        return Ok((StatusCode::BAD_REQUEST, told).into_response());
    }
    router.oneshot(request.map(axum::body::Body::new)).await
}

/// Whether `now` can be the value of a `Date` header, whose years have four digits. A clock that is before 1970 reads as 1970
/// exactly. hyper would panic at both; a server without a clock sends no `Date` (RFC 9110, 6.6.1).
fn has_http_date(now: Timestamp) -> bool {
    (1..HTTP_DATE_END.0).contains(&now.0)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_rustls::TlsConnector;

    use super::*;

    const LIMITS: Limits = Limits {
        connection_count_max: 100,
        address_count_max: 0,
        accept_per_second: 0,
        head_timeout: Duration::from_secs(60),
        stall_timeout: Duration::from_secs(60),
    };
    #[test]
    fn connections_are_accepted_at_the_rate_and_some_ahead_of_it() {
        let begin = Instant::now();
        let mut pace = Pace::new(100, begin);
        let accepted_at = |pace: &mut Pace, now: Instant| {
            let at = pace.next().max(now);
            pace.on_accepted(at);
            at - begin
        };
        let storm: Vec<_> = (0..111).map(|_| accepted_at(&mut pace, begin)).collect();
        assert_eq!((storm[0], storm[10]), (Duration::ZERO, Duration::ZERO), "a tenth of a second ahead");
        assert_eq!((storm[11], storm[110]), (Duration::from_millis(10), Duration::from_secs(1)));
        let quiet = begin + Duration::from_secs(60);
        assert_eq!(accepted_at(&mut pace, quiet), Duration::from_secs(60), "what was not used is not saved up");
        let again: Vec<_> = (0..11).map(|_| accepted_at(&mut pace, quiet)).collect();
        assert_eq!((again[9], again[10]), (Duration::from_secs(60), Duration::from_millis(60_010)));
        let mut free = Pace::new(0, begin);
        assert!((0..1000).all(|_| accepted_at(&mut free, begin) == Duration::ZERO), "no limit");
        free.pause(begin);
        assert_eq!(free.next(), begin + ACCEPT_PAUSE);
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    struct Served {
        addr: SocketAddr,
        registry: Registry,
        stop: watch::Sender<StopBy>,
        tasks: JoinSet<()>,
    }

    impl Served {
        fn start(limits: Limits, file_number_max: Option<u64>, router: Router) -> Self {
            Self::start_with(limits, file_number_max, router, None)
        }

        fn start_with(limits: Limits, file_number_max: Option<u64>, router: Router, tls: Option<Arc<Tls>>) -> Self {
            let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
            let addr = listener.local_addr().unwrap();
            let (registry, (stop, stopped)) = (Registry::new(), watch::channel(None));
            let admission = Admission::with_files(limits, file_number_max, &registry);
            let mut tasks = JoinSet::new();
            tasks.spawn(serve(listener, watch::channel(router).1, admission, tls, stopped));
            Self { addr, registry, stop, tasks }
        }

        async fn connect(&self) -> TcpStream {
            TcpStream::connect(self.addr).await.unwrap()
        }

        /// What is answered to `bytes` until the connection is closed.
        async fn ask(&self, bytes: &[u8]) -> String {
            let mut socket = self.connect().await;
            let _ = socket.write_all(bytes).await; // It may be closed already.
            all(&mut socket).await
        }

        /// Waits until a metric has this value.
        async fn until(&self, line: &str) {
            let found = async {
                while !self.registry.prometheus().lines().any(|found| found == line) {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            assert!(within(found).await.is_some(), "{line} is not in\n{}", self.registry.prometheus());
        }
    }

    async fn within<T>(work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_secs(20), work).await.ok()
    }

    /// What comes until the peer closes.
    async fn all(socket: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = within(socket.read_to_end(&mut bytes)).await.expect("it is closed"); // Reset or not.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    #[tokio::test]
    async fn a_head_may_have_16_kib() {
        let served = Served::start(LIMITS, None, Router::new());
        let end = " HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        let begin = |bytes: usize| format!("{:x<bytes$}", "GET /?");
        let whole = begin((16 << 10) - end.len()) + end;
        assert!(served.ask(whole.as_bytes()).await.starts_with("HTTP/1.1 404"));
        let without_end = begin(16 << 10); // The server has read all of it when it answers.
        assert!(served.ask(without_end.as_bytes()).await.starts_with("HTTP/1.1 431"));
    }

    #[test]
    fn a_clock_beyond_what_a_date_can_say_is_told_to_nobody() {
        let day = 86_400_000;
        for (now, expected) in [
            (0, false), // The epoch, or before it.
            (1, true),
            (HTTP_DATE_END.0 - day, true),
            (HTTP_DATE_END.0 - 1, true),
            (HTTP_DATE_END.0, false),
            (u64::MAX, false),
        ] {
            assert_eq!(has_http_date(Timestamp(now)), expected, "{now}");
            let time = std::time::UNIX_EPOCH + Duration::from_millis(now.min(HTTP_DATE_END.0 + day));
            let told = std::panic::catch_unwind(|| httpdate::fmt_http_date(time));
            assert_eq!(told.is_ok(), expected || now == 0, "what hyper does at {now}");
        }
    }

    #[tokio::test]
    async fn a_peer_that_sends_no_whole_request_is_closed_and_then_stopping_is_quick() {
        let limits = Limits { connection_count_max: 2, head_timeout: Duration::from_millis(100), ..LIMITS };
        let mut served = Served::start(limits, None, Router::new());
        for bytes in [&b""[..], b"G", b"PRI * HT", b"GET /health HTTP/1.1\r\nHo"] {
            served.ask(bytes).await;
        }
        assert!(served.ask(GET).await.starts_with("HTTP/1.1 404"), "and one that asks nothing more is closed as well");
        served.stop.send_replace(Some(Instant::now() + Duration::from_secs(60)));
        within(served.tasks.join_next()).await.unwrap().unwrap().unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_closed_and_counted() {
        let limits = Limits { stall_timeout: Duration::from_millis(100), ..LIMITS };
        let large = axum::routing::get(async || vec![b'x'; 32 << 20]); // More than the system's buffers take.
        let served = Served::start(limits, None, Router::new().route("/", large));
        let mut socket = served.connect().await;
        socket.write_all(GET).await.unwrap();
        served.until("tidings_http_stalled_total 1").await;
        let answer = all(&mut socket).await;
        assert!(answer.len() < 32 << 20, "it had {} bytes", answer.len());
    }

    #[tokio::test]
    async fn a_peer_that_asks_on_and_takes_no_answer_is_closed_and_counted() {
        let limits = Limits { stall_timeout: Duration::from_millis(100), ..LIMITS };
        let served = Served::start(limits, None, Router::new());
        let mut socket = served.connect().await;
        let asking = async { while socket.write_all(&GET.repeat(1000)).await.is_ok() {} };
        tokio::join!(within(asking), served.until("tidings_http_stalled_total 1"));
    }

    #[tokio::test]
    async fn an_address_has_only_so_many_connections() {
        let served = Served::start(Limits { address_count_max: 2, ..LIMITS }, None, Router::new());
        let mut held = [served.connect().await, served.connect().await];
        for socket in &mut held {
            socket.write_all(GET).await.unwrap();
            socket.readable().await.unwrap(); // Both are let in.
        }
        assert_eq!(served.ask(GET).await, "");
        served.until("tidings_http_refused_total{reason=\"address\"} 1").await;
        let [first, _second] = held;
        drop(first);
        let again = async {
            while !served
                .ask(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                .await
                .starts_with("HTTP/1.1 404")
            {}
        };
        within(again).await.expect("a connection that ends makes room");
    }

    #[test]
    fn where_few_files_may_be_open_one_address_has_half_of_them() {
        let limit = |address_count_max, files| {
            let limits = Limits { address_count_max, ..LIMITS };
            Admission::with_files(limits, files, &Registry::new()).limits.address_count_max
        };
        assert_eq!(
            [limit(10_000, None), limit(10_000, Some(1 << 20)), limit(10_000, Some(200))],
            [10_000, 10_000, 100]
        );
        assert_eq!([limit(50, Some(200)), limit(50, Some(1)), limit(0, Some(200))], [50, 1, 0]);
    }

    #[tokio::test]
    async fn files_are_left_for_the_store() {
        let served = Served::start(LIMITS, Some(0), Router::new());
        assert_eq!(served.ask(GET).await, "");
        served.until("tidings_http_refused_total{reason=\"files\"} 1").await;
        for (limit, left) in [(1_048_576, 1024), (4096, 1024), (1024, 512), (20, 10), (0, 0)] {
            assert_eq!(limit - connection_files(limit), left, "{limit}");
        }
    }

    #[tokio::test]
    async fn a_request_has_one_host() {
        let served = Served::start(Limits { head_timeout: Duration::from_millis(100), ..LIMITS }, None, Router::new());
        for (head, status) in [
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            ("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", 404),
            ("GET / HTTP/1.0\r\n\r\n", 404),
        ] {
            let answer = served.ask(head.as_bytes()).await;
            assert_eq!(answer.split(' ').nth(1), Some(status.to_string().as_str()), "{head:?}: {answer}");
        }
    }

    /// A certificate and its key in files, and a client that trusts no other.
    fn identity(folder: &std::path::Path, name: &str) -> (tidings_config::Tls, TlsConnector) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let path = folder.join(name);
        std::fs::write(&path, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        let (certificate_file, certificate_key_file) = (Some(path.clone()), Some(path));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let client = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let mut client = client.unwrap().with_root_certificates(roots).with_no_client_auth();
        client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        (tidings_config::Tls { certificate_file, certificate_key_file, listen: None }, Arc::new(client).into())
    }

    async fn shake(
        served: &Served,
        connector: &TlsConnector,
    ) -> io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
        connector.connect("localhost".try_into().unwrap(), served.connect().await).await
    }

    /// The status of an answer over TLS.
    async fn status(socket: &mut tokio_rustls::client::TlsStream<TcpStream>) -> String {
        socket.write_all(GET).await.unwrap();
        let mut answer = [0; 1024];
        let count = within(socket.read(&mut answer)).await.unwrap().unwrap();
        String::from_utf8_lossy(&answer[..count]).chars().take(12).collect()
    }

    #[tokio::test]
    async fn with_tls_http_is_served_and_whoever_speaks_anything_else_is_closed() {
        let folder = tempfile::tempdir().unwrap();
        let (section, client) = identity(folder.path(), "own.pem");
        let tls = Tls::start(&section).unwrap();
        let limits = Limits { head_timeout: Duration::from_secs(2), ..LIMITS };
        let served = Served::start_with(limits, None, Router::new(), tls);
        let mut bystander = shake(&served, &client).await.unwrap();
        assert_eq!(bystander.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
        assert_eq!(status(&mut bystander).await, "HTTP/1.1 404");
        let told = served.ask(GET).await;
        assert!(
            told.starts_with("HTTP/1.1 400 ") && told.ends_with("\r\n\r\nthis port speaks TLS: use https or wss\n"),
            "{told}"
        );
        assert_eq!(served.ask(b"\0\0\0\0 no hello").await, "");
        // A record of a handshake that holds none: an alert may come.
        assert!(!served.ask(&[&[22, 3, 1, 0, 9][..], b"no hello!"].concat()).await.contains("HTTP"));
        let hello = [22, 3, 1, 2, 0, 1, 0, 1, 0xFC];
        let began = Instant::now();
        assert_eq!(served.ask(&hello).await, "", "half a handshake");
        assert!(began.elapsed() < Duration::from_secs(15));
        served.until("tidings_http_tls_failed_total 4").await;
        let (_, stranger) = identity(folder.path(), "other.pem");
        shake(&served, &stranger).await.unwrap_err();
        served.until("tidings_http_tls_failed_total 5").await;
        let mut later = shake(&served, &client).await.unwrap();
        assert_eq!(status(&mut later).await, "HTTP/1.1 404");
    }

    #[tokio::test]
    async fn a_new_certificate_is_for_new_connections_and_a_broken_one_for_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let (section, old) = identity(folder.path(), "own.pem");
        let tls = Tls::start(&section).unwrap().unwrap();
        let served = Served::start_with(LIMITS, None, Router::new(), Some(tls.clone()));
        let mut open = shake(&served, &old).await.unwrap();
        assert_eq!(status(&mut open).await, "HTTP/1.1 404");
        std::fs::write(folder.path().join("own.pem"), "broken").unwrap();
        tls.reload(&section);
        shake(&served, &old).await.unwrap();
        let (_, new) = identity(folder.path(), "own.pem");
        tls.reload(&section);
        assert_eq!(status(&mut open).await, "HTTP/1.1 404", "what is open stays");
        shake(&served, &old).await.unwrap_err();
        let mut fresh = shake(&served, &new).await.unwrap();
        assert_eq!(status(&mut fresh).await, "HTTP/1.1 404");
        tls.reload(&tidings_config::Tls { certificate_file: None, certificate_key_file: None, listen: None });
        shake(&served, &new).await.unwrap();
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_over_tls_is_closed_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let (section, client) = identity(folder.path(), "own.pem");
        let limits = Limits { stall_timeout: Duration::from_millis(100), ..LIMITS };
        let large = axum::routing::get(async || vec![b'x'; 32 << 20]);
        let router = Router::new().route("/", large);
        let served = Served::start_with(limits, None, router, Tls::start(&section).unwrap());
        let mut socket = shake(&served, &client).await.unwrap();
        socket.write_all(GET).await.unwrap();
        served.until("tidings_http_stalled_total 1").await;
    }
}
