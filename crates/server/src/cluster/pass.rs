//! Passes requests on to the server that leads the cluster, and its answers back.
//!
//! Only the leader runs the API. A server that does not lead has this router in its place, so that back ends and
//! operators may call any server. A request is passed on as it is: method, path, query, headers and body. Bodies are
//! streamed in both directions and never held as a whole: an import or an export may have gigabytes.
//!
//! What is changed on the way:
//! - Headers for one connection alone are left out, in both directions (RFC 9110, 7.6.1).
//! - `Tidings-Passed-By` names this server. A request that another one has passed on, because this server has led
//!   before, is passed on once more, and not by the same server. So no request goes round in a circle.
//! - `Tidings-Passed-For` has the caller's address, whether it came to the public listener, and a secret that the leader tells
//!   the other servers by its lease. So the leader treats the request as if the caller was connected to itself: limits by
//!   address, proxies that are believed, and which routes the public may use ([`Passed::take`]).
//!
//! # Waiting
//! While nobody leads, a request waits for [`HAND_OVER_MAX`]: when an operator moves the lead, nobody is refused. If this server comes
//! to lead meanwhile, it answers the request itself. A request that has been passed on twice waits for that alone.
//!
//! # Refusals
//! A request that cannot be passed on is refused with 503, as a standby refuses it, and [`Refusal`] says why. Unless the
//! leader may have got the request, it is safe to send it again. A `GET` or `HEAD` without a body changes nothing. If its
//! connection breaks off before the answer, it is sent once more by this server, over a new connection: a connection
//! that was kept may have been closed by the leader at the same moment.
//!
//! When the leader breaks off in the middle of an answer, the caller's connection breaks off too: the answer must not
//! look complete. When the caller is gone, the connection to the leader is closed, so that the leader stops its work.
//!
//! # Limits
//! | What | Limit | When it is reached |
//! |---|---|---|
//! | requests in work | connections of the listener | the listener accepts no more |
//! | idle connections to the leader | [`IDLE_COUNT_MAX`], each for [`IDLE_TIMEOUT`] | closed |
//! | a server that leads | [`HAND_OVER_MAX`] | 503 |
//! | a new connection: name, TCP and TLS | [`CONNECT_TIMEOUT`] | 503 |
//! | an answer, a body | no time: exports are long | |
//! | an answer, after the leader has closed and the request cannot be sent on | [`READ_GRACE`] to read it | as if it breaks off |
//! | a leader whose machine is gone, while its answer is awaited | [`PROBE_COUNT`] probes of TCP | as if it breaks off |
//! | what is read and not parsed, or to be written, each | [`BUFFER_BYTES_MAX`] a connection | the connection is not read |

use std::error::Error as _;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{CONNECTION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, request};
use axum::response::Response;
use hyper::body::Body as _;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::client::legacy::{Client, Error};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tidings_cluster::Standing;
use tidings_cluster::lease::{Holder, Secret};
use tidings_http1::{Origin, OriginError};
use tidings_telemetry::chain;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tower::util::BoxCloneSyncService;
use tower::{ServiceExt as _, service_fn};
use tracing::debug;

use crate::listener::BUFFER_BYTES_MAX;
use crate::listeners::Routes;

/// How long a request waits for a server that leads.
pub(super) const HAND_OVER_MAX: Duration = Duration::from_secs(2);

/// Connections to the leader that are kept for later requests.
const IDLE_COUNT_MAX: usize = 32;

/// How long such a connection is kept. The leader's listener closes it after 30 s; this is safely less.
const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

/// How long it may take to look up the leader's name, to connect, and to shake hands.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// After this time without a byte the system asks the leader's system whether the connection still exists.
const PROBE_AFTER: Duration = Duration::from_secs(15);
/// The time between two of these probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);
/// With so many unanswered probes the connection is over.
const PROBE_COUNT: u32 = 3;

/// How long after failed writing an answer that has come already may be read.
const READ_GRACE: Duration = Duration::from_secs(1);

/// Names the servers that have passed the request on.
const PASSED_BY: HeaderName = HeaderName::from_static("tidings-passed-by");
/// So often a request is passed on.
const HOP_COUNT_MAX: usize = 2;
/// Says for whom: secret, address, and `public` or `internal`.
const PASSED_FOR: HeaderName = HeaderName::from_static("tidings-passed-for");

/// A listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Anybody may reach it.
    Public,
    /// For back ends and operators.
    Internal,
}

impl Side {
    fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
        }
    }
}

/// For whom another server has passed a request on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Passed {
    caller: SocketAddr,
    /// The listener that the caller has reached.
    side: Side,
}

impl Passed {
    /// Takes what another server says of a request, which has the caller's address from then on. `None`: it was not passed on.
    ///
    /// # Errors
    /// It was passed on by a server that does not know the secret of this leader.
    fn take(request: &mut Request, secret: &Secret) -> Result<Option<Self>, Unproven> {
        let said = request.headers_mut().remove(PASSED_FOR);
        if said.is_none() && !request.headers().contains_key(PASSED_BY) {
            return Ok(None);
        }
        let passed = said.as_ref().and_then(|said| Self::read(said.to_str().ok()?, secret)).ok_or(Unproven)?;
        request.extensions_mut().insert(ConnectInfo(passed.caller));
        Ok(Some(passed))
    }

    fn read(said: &str, secret: &Secret) -> Option<Self> {
        let mut words = said.split(' ');
        let (shown, caller, side) = (words.next()?, words.next()?, words.next()?);
        verify_slices_are_equal(shown.as_bytes(), secret.as_str().as_bytes()).ok()?;
        let side = if side == Side::Public.as_str() { Side::Public } else { Side::Internal };
        Some(Self { caller: caller.parse().ok()?, side })
    }
}

/// A request was passed on by a server that does not know the leader's secret.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server that passed this request on does not know the secret of this leader, which may have just begun to lead; the \
     request was not carried out, so it is safe to send it again"
)]
struct Unproven;

/// The routes for a request that another server of the cluster may have passed on: those of the listener that its caller has
/// reached.
pub(super) fn by_caller(public: Router, internal: Router, secret: Secret) -> Router {
    Router::new().fallback(async move |mut request: Request| match Passed::take(&mut request, &secret) {
        Ok(Some(Passed { side: Side::Public, .. })) => public.oneshot(request).await,
        Ok(Some(Passed { side: Side::Internal, .. }) | None) => internal.oneshot(request).await,
        Err(unproven) => Ok(tidings_api::standby_refusal(unproven.to_string())),
    })
}

/// What this server answers with while it leads.
#[derive(Clone)]
pub(super) struct Leading {
    pub(super) routes: watch::Receiver<Option<Routes>>,
    /// Those of the internal listener.
    pub(super) is_internal: bool,
    /// What other servers show that take this one for the leader.
    pub(super) secret: Secret,
}

impl Leading {
    fn router(&mut self) -> Option<Router> {
        let routes = self.routes.borrow_and_update();
        let router = |routes: &Routes| if self.is_internal { &routes.internal } else { &routes.public }.clone();
        routes.as_ref().map(router)
    }
}

/// Who answers a request.
enum Way {
    /// This server, which leads now.
    Own(Router),
    Leader(Box<Route>),
}

/// Passes requests on to the leader.
pub(super) struct Pass {
    standing: watch::Receiver<Standing>,
    own: Leading,
    side: Side,
    node: String,
    passed_by: HeaderValue,
    tls: Arc<ClientConfig>,
    /// To the leader of the last request.
    route: Mutex<Option<Route>>,
}

/// Why a request is not passed on, or has no answer; the text is for the caller.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("no server of the cluster leads now; the request was not carried out, so it is safe to send it again")]
    NoLeader,
    #[error("this server is about to lead; the request was not carried out, so it is safe to send it again")]
    Oneself,
    #[error(
        "another server took this one for the leader and passed the request on; the request was not carried out, so it \
         is safe to send it again"
    )]
    Circle,
    #[error(transparent)]
    Unproven(#[from] Unproven),
    #[error("the leader, {0}, says no address, so no request can be passed on to it: set cluster.address there")]
    NoAddress(String),
    #[error(
        "the leader, {node}, says the address {address}, but {error}: set cluster.address there to http://HOST:PORT or \
         https://HOST:PORT"
    )]
    Address { node: String, address: String, error: OriginError },
    #[error(
        "the leader, {node}, cannot be reached at {origin} ({cause}); the request was not sent, so it is safe to send it \
         again"
    )]
    Unreachable { node: String, origin: Origin, cause: String },
    #[error(
        "the connection to the leader, {node}, broke off before the answer ({cause}); whether the request was carried \
         out is not known"
    )]
    BrokeOff { node: String, cause: String },
}

impl Pass {
    /// For requests to the listeners of one `side`. `standing`: who leads now. `own`: what this server answers with when it leads.
    /// `node`: its name in the cluster. `tls`: for leaders whose address is `https`.
    pub(super) fn new(
        standing: watch::Receiver<Standing>,
        own: Leading,
        side: Side,
        node: String,
        tls: Arc<ClientConfig>,
    ) -> Self {
        let passed_by = HeaderValue::from_str(&node).expect("a node's name has letters, digits, _ and - only");
        Self { standing, own, side, node, passed_by, tls, route: Mutex::default() }
    }

    /// Passes every request on.
    pub(super) fn router(self: Arc<Self>) -> Router {
        let pass = async |State(pass): State<Arc<Self>>, request| pass.answer(request).await;
        Router::new().fallback(pass).with_state(self)
    }

    async fn answer(&self, request: Request) -> Response {
        self.pass(request).await.unwrap_or_else(|refusal| {
            debug!(error = chain(&refusal), "The leader did not answer a request");
            tidings_api::standby_refusal(refusal.to_string())
        })
    }

    async fn pass(&self, mut request: Request) -> Result<Response, Refusal> {
        let hops = request.headers().get_all(PASSED_BY).into_iter();
        let (count, is_back) = hops.fold((0, false), |(count, back), by| (count + 1, back || *by == self.passed_by));
        let route = match self.way(count < HOP_COUNT_MAX && !is_back).await? {
            Way::Own(router) => return Ok(router.oneshot(request).await.unwrap_or_else(|never| match never {})),
            Way::Leader(route) => route,
        };
        let passed = if count > 0 { Passed::take(&mut request, &self.own.secret)? } else { None };
        let (mut head, body) = request.into_parts();
        let peer = head.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(addr)| *addr);
        let side = passed.map_or(self.side, |passed| passed.side);
        self.readdress(&mut head.headers, peer.map(|peer| (peer, side)), &route.leader);
        if body.size_hint().exact().is_none() {
            // Else hyper sends the body of a GET as an empty one.
            head.headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        // RFC 9110, 9.2.2: a proxy may repeat only what changes nothing the second time.
        let is_repeatable = matches!(head.method, Method::GET | Method::HEAD) && body.is_end_stream();
        let again = is_repeatable.then(|| route.request(&head, Body::empty()));
        let mut answer = route.kept.request(route.request(&head, body)).await;
        if let (Err(error), Some(again)) = (&answer, again)
            && !error.is_connect()
        {
            answer = route.fresh.request(again).await;
        }
        let mut answer = answer.map_err(|error| route.refusal(&error))?;
        end_hop(answer.headers_mut());
        Ok(answer.map(Body::new))
    }

    /// Makes the headers those of a request of this server. `Host` stays as the caller sent it: the console takes a form
    /// only if its `Origin` is that host (`tidings_console`, `check_origin`).
    fn readdress(&self, headers: &mut HeaderMap, caller: Option<(SocketAddr, Side)>, leader: &Holder) {
        end_hop(headers);
        headers.append(PASSED_BY, self.passed_by.clone());
        headers.remove(PASSED_FOR);
        if let Some(((peer, side), secret)) = caller.zip(leader.secret.as_ref()) {
            let said = format!("{} {peer} {}", secret.as_str(), side.as_str());
            let mut said = HeaderValue::try_from(said).expect("a secret, an address and a word are plain text");
            said.set_sensitive(true);
            headers.insert(PASSED_FOR, said);
        }
    }

    /// Who answers a request. Waits for somebody who leads; if another one `may` not answer it, for this server.
    async fn way(&self, may: bool) -> Result<Way, Refusal> {
        let (mut standing, mut own, end) = (self.standing.clone(), self.own.clone(), Instant::now() + HAND_OVER_MAX);
        loop {
            standing.mark_unchanged();
            if let Some(router) = own.router() {
                return Ok(Way::Own(router));
            }
            let refusal = match self.route() {
                _ if !may => Refusal::Circle,
                Ok(route) => return Ok(Way::Leader(route.into())),
                Err(nobody @ (Refusal::NoLeader | Refusal::Oneself)) => nobody,
                Err(refusal) => return Err(refusal),
            };
            let changed = async {
                tokio::select! {
                    changed = standing.changed() => changed,
                    changed = own.routes.changed() => changed,
                }
            };
            if !matches!(timeout_at(end, changed).await, Ok(Ok(()))) {
                return Err(refusal);
            }
        }
    }

    /// The route to the server that leads now.
    fn route(&self) -> Result<Route, Refusal> {
        let leader = self.standing.borrow().holder.clone().ok_or(Refusal::NoLeader)?;
        if leader.node == self.node {
            return Err(Refusal::Oneself);
        }
        let mut kept = self.route.lock();
        if let Some(route) = kept
            .as_ref()
            .filter(|route| route.leader.process == leader.process && route.leader.address == leader.address)
        {
            return Ok(route.clone());
        }
        *kept = None; // With it, its idle connections.
        let route = Route::new(leader, &self.tls)?;
        Ok(kept.insert(route).clone())
    }
}

/// How requests get to one leader.
#[derive(Clone)]
struct Route {
    leader: Holder,
    origin: Origin,
    /// Over connections that are kept.
    kept: Client<Connector, Body>,
    /// Each request over a new connection.
    fresh: Client<Connector, Body>,
}

impl Route {
    fn new(leader: Holder, tls: &Arc<ClientConfig>) -> Result<Self, Refusal> {
        let node = || leader.node.clone();
        let address = leader.address.as_ref().ok_or_else(|| Refusal::NoAddress(node()))?;
        let origin: Origin = address.parse().map_err(|error| {
            // A password stays a secret.
            let address = if address.contains('@') { "USER@HOST" } else { address }.to_owned();
            Refusal::Address { node: node(), address, error }
        })?;
        let connector = connector(origin.clone(), tls.clone().into());
        let client = |idle_count_max| {
            let mut builder = Client::builder(TokioExecutor::new());
            builder
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(IDLE_TIMEOUT)
                .pool_max_idle_per_host(idle_count_max);
            builder.http1_max_buf_size(BUFFER_BYTES_MAX).build(connector.clone())
        };
        Ok(Self { kept: client(IDLE_COUNT_MAX), fresh: client(0), leader, origin })
    }

    fn request(&self, head: &request::Parts, body: Body) -> Request {
        let path = head.uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let scheme = if self.origin.is_tls() { "https" } else { "http" };
        let uri = Uri::builder().scheme(scheme).authority(self.origin.authority()).path_and_query(path).build();
        // Nothing else of the head: its version and its extensions are about the caller's connection.
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.uri_mut() = uri.expect("scheme, authority and path are parts of URLs");
        *request.headers_mut() = head.headers.clone();
        request
    }

    fn refusal(&self, error: &Error) -> Refusal {
        let (node, origin) = (self.leader.node.clone(), self.origin.clone());
        let cause = error.source().map(chain).unwrap_or_default(); // The error itself says no more than where it was.
        if error.is_connect() {
            Refusal::Unreachable { node, origin, cause }
        } else {
            Refusal::BrokeOff { node, cause }
        }
    }
}

/// Removes what is for one connection alone (RFC 9110, 7.6.1).
fn end_hop(headers: &mut HeaderMap) {
    let named = headers.get_all(CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let named = named.flat_map(|names| names.split(',')).filter_map(|name| name.trim().parse().ok());
    let of_proxies = headers.keys().filter(|name| name.as_str().starts_with("proxy-")).cloned();
    let known = [CONNECTION, HeaderName::from_static("keep-alive"), TE, TRAILER, TRANSFER_ENCODING, UPGRADE];
    let all: Vec<HeaderName> = named.chain(of_proxies).chain(known).collect();
    for name in all {
        headers.remove(name);
    }
}

/// Makes connections to one leader; the address in a request is not looked at.
type Connector = BoxCloneSyncService<Uri, TokioIo<Stream>, io::Error>;

fn connector(origin: Origin, tls: TlsConnector) -> Connector {
    BoxCloneSyncService::new(service_fn(move |_: Uri| {
        let (origin, tls) = (origin.clone(), tls.clone());
        async move {
            let connected = timeout(CONNECT_TIMEOUT, connect(&origin, &tls)).await;
            let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("not within {CONNECT_TIMEOUT:?}"));
            connected.map_err(late)?.map(TokioIo::new)
        }
    }))
}

async fn connect(origin: &Origin, tls: &TlsConnector) -> io::Result<Stream> {
    let socket = TcpStream::connect((origin.host(), origin.port())).await?;
    socket.set_nodelay(true)?; // A part of a body is passed on when it comes.
    let probes = TcpKeepalive::new().with_time(PROBE_AFTER).with_interval(PROBE_INTERVAL).with_retries(PROBE_COUNT);
    SockRef::from(&socket).set_tcp_keepalive(&probes)?;
    if !origin.is_tls() {
        return Ok(Stream::new(socket));
    }
    let name = ServerName::try_from(origin.host().to_owned()).expect("an origin with TLS has such a host");
    Ok(Stream::new(tls.connect(name, socket).await?))
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection, with TLS or without, that reports failed writing only after [`READ_GRACE`].
///
/// A leader may refuse a request before it has read the body, such as an import with a wrong key. It answers and closes.
/// hyper gives a request up as soon as a part of the body cannot be written, even if the answer has arrived already. So
/// reading comes first: it finds the answer, or that there is none.
struct Stream {
    io: Box<dyn Io>,
    /// Set when writing has failed.
    grace: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    fn new(io: impl Io + 'static) -> Self {
        Self { io: Box::new(io), grace: None }
    }

    fn poll_with<T>(
        &mut self,
        context: &mut Context<'_>,
        mut write: impl FnMut(Pin<&mut Box<dyn Io>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.grace.is_none() {
            let written = write(Pin::new(&mut self.io), context);
            if !matches!(written, Poll::Ready(Err(_))) {
                return written;
            }
        }
        ready!(self.grace.get_or_insert_with(|| Box::pin(sleep(READ_GRACE))).as_mut().poll(context));
        write(Pin::new(&mut self.io), context) // Fails again.
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_with(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_with(context, |io, context| io.poll_write_vectored(context, parts))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_with(context, AsyncWrite::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;
    use axum::response::IntoResponse as _;
    use http_body_util::BodyExt as _;
    use serde_json::Value;
    use tidings_telemetry::Registry;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio::task::JoinSet;

    use super::*;
    use crate::listener::{self, Admission, Limits, StopBy};
    use crate::tls::Tls;

    const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone";

    /// A router on a real socket. Its connections break off when it is dropped.
    struct Served {
        addr: SocketAddr,
        _stop: watch::Sender<StopBy>,
        _tasks: JoinSet<()>,
    }

    impl Served {
        fn start(router: Router, tls: Option<Arc<Tls>>) -> Self {
            let minute = Duration::from_secs(60);
            let limits = Limits {
                connection_count_max: 100,
                address_count_max: 0,
                accept_per_second: 0,
                head_timeout: minute,
                stall_timeout: minute,
            };
            let listener = listener::listen(([127, 0, 0, 1], 0).into()).unwrap();
            let addr = listener.local_addr().unwrap();
            let (stop, stopped) = watch::channel(None);
            let (admission, routes) = (Admission::internal(limits, &Registry::new()), watch::channel(router).1);
            let mut tasks = JoinSet::new();
            tasks.spawn(listener::serve(listener, routes, admission, tls, stopped));
            Self { addr, _stop: stop, _tasks: tasks }
        }

        async fn send(&self, bytes: &[u8]) -> TcpStream {
            let mut socket = TcpStream::connect(self.addr).await.unwrap();
            socket.write_all(bytes).await.unwrap();
            socket
        }

        /// All of the answer; the request must ask for the connection to be closed.
        async fn ask(&self, request: &str) -> String {
            rest(&mut self.send(request.as_bytes()).await).await
        }

        /// The detail of a refusal, which may be asked again in a second.
        async fn refusal(&self, request: &str) -> String {
            let answer = self.ask(request).await;
            let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
            let head = head.to_ascii_lowercase();
            assert!(head.starts_with("http/1.1 503 ") && head.contains("retry-after: 1\r\n"), "{answer}");
            assert!(head.contains("content-type: application/problem+json"), "{answer}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["type"], "urn:tidings:problem:unavailable");
            body["detail"].as_str().unwrap().to_owned()
        }
    }

    const SECRET_OF_B: u128 = 9;

    /// Server `b`, and what it knows about the leader.
    struct Passing {
        served: Served,
        standing: watch::Sender<Standing>,
        leading: watch::Sender<Option<Routes>>,
    }

    impl Passing {
        fn start() -> Self {
            Self::with_tls(rustls::RootCertStore::empty())
        }

        fn to(leader: SocketAddr) -> Self {
            let passing = Self::start();
            passing.lead("a", Some(&format!("http://{leader}")));
            passing
        }

        fn with_tls(roots: rustls::RootCertStore) -> Self {
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            let tls = tls.with_root_certificates(roots).with_no_client_auth();
            let (standing, leading) = (watch::Sender::new(Standing::default()), watch::Sender::new(None));
            let own =
                Leading { routes: leading.subscribe(), is_internal: false, secret: Secret::from_random(SECRET_OF_B) };
            let pass = Pass::new(standing.subscribe(), own, Side::Public, "b".to_owned(), Arc::new(tls));
            Self { served: Served::start(Arc::new(pass).router(), None), standing, leading }
        }

        fn lead(&self, node: &str, address: Option<&str>) {
            let (node, address) = (node.to_owned(), address.map(str::to_owned));
            let (secret, process) = (Some(Secret::from_random(7)), rand::random());
            let holder = Holder { node, process, address, secret, sequence: 0, released: false, to: None };
            self.standing.send_modify(|standing| standing.holder = Some(holder));
        }
    }

    async fn within<T>(work: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(20), work).await.expect("it happens in time")
    }

    /// What comes until the peer closes.
    async fn rest(socket: &mut TcpStream) -> String {
        let mut bytes = Vec::new();
        let _ = within(socket.read_to_end(&mut bytes)).await; // Reset or not.
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Reads until `end` has come; returns everything up to there.
    async fn until(socket: &mut (impl AsyncRead + Unpin), end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let byte = within(socket.read_u8()).await;
            text.push(byte.unwrap_or_else(|error| panic!("{error} after {text:?}")).into());
        }
        text
    }

    /// A socket on which the test itself plays the leader.
    async fn scripted() -> (TcpListener, Passing) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let passing = Passing::to(listener.local_addr().unwrap());
        (listener, passing)
    }

    /// The next connection, when the head of a request has come over it.
    async fn asked(listener: &TcpListener) -> TcpStream {
        let (mut socket, _) = within(listener.accept()).await.unwrap();
        until(&mut socket, "\r\n\r\n").await;
        socket
    }

    /// Waits until the peer closes.
    async fn ends(socket: &mut TcpStream) {
        rest(socket).await;
    }

    /// Answers with what it was asked.
    async fn echo(request: Request) -> Response {
        let (head, body) = request.into_parts();
        let mut seen = vec![format!("{} {}", head.method, head.uri)];
        let shown = head.headers.iter().filter(|(name, _)| **name != PASSED_FOR); // Its port is another one each time.
        seen.extend(shown.map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())));
        seen[1..].sort();
        seen.push(String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap());
        let headers =
            [("x-answer", "1"), ("connection", "x-hop"), ("x-hop", "1"), ("keep-alive", "timeout=9"), ("date", "now")];
        (StatusCode::IM_A_TEAPOT, headers, seen.join("\n")).into_response()
    }

    #[tokio::test]
    async fn a_request_and_its_answer_are_the_same_on_the_other_side_but_for_what_is_of_one_hop() {
        let leader = Served::start(Router::new().fallback(echo), None);
        let passing = Passing::to(leader.addr);
        let request = "PUT /v1/x%2Fy?a=%20&b HTTP/1.1\r\nHost: console.example.com\r\nAuthorization: apikey k\r\n\
                       Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authorization: p\r\n\
                       TE: trailers\r\nTrailer: x-t\r\nUpgrade: websocket\r\nTidings-Passed-For: x\r\nX-Same: 1\r\n\
                       X-Same: 2\r\nContent-Length: 5\r\n\r\nhello";
        let answer = passing.served.ask(request).await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let seen = "PUT /v1/x%2Fy?a=%20&b\nauthorization: apikey k\ncontent-length: 5\nhost: console.example.com\n\
                    tidings-passed-by: b\nx-same: 1\nx-same: 2\n\
                    hello";
        assert_eq!(body, seen);
        let mut head: Vec<&str> = head.lines().collect();
        head[1..].sort_unstable();
        let length = format!("content-length: {}", seen.len());
        let kind = "content-type: text/plain; charset=utf-8";
        let told = ["HTTP/1.1 418 I'm a teapot", "connection: close", &length, kind, "date: now", "x-answer: 1"];
        assert_eq!(head, told);
    }

    #[tokio::test]
    async fn the_leader_sees_the_caller_as_if_it_was_connected_to_it() {
        for (bits, is_believed) in [(7, true), (8, false)] {
            let seen = async move |mut request: Request| {
                let passed = Passed::take(&mut request, &Secret::from_random(bits));
                let Ok(passed) = passed else { return "unproven".to_owned() };
                assert!(!request.headers().contains_key(PASSED_FOR), "nobody else needs to see it");
                let ConnectInfo(addr) = request.extensions().get::<ConnectInfo<SocketAddr>>().unwrap();
                format!("{addr} {:?}", passed.map(|passed| (passed.caller, passed.side)))
            };
            let leader = Served::start(Router::new().fallback(seen), None);
            let passing = Passing::to(leader.addr);
            let mut caller = passing.served.send(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
            let addr = caller.local_addr().unwrap();
            let answer = rest(&mut caller).await;
            let told = format!("{addr} Some(({addr}, Public))");
            assert_eq!(answer.ends_with(&told), is_believed, "{answer}");
            assert_eq!(answer.ends_with("unproven"), !is_believed, "{answer}");
        }
    }

    #[tokio::test]
    async fn bodies_of_all_kinds_arrive() {
        let leader = Served::start(Router::new().fallback(echo), None);
        let passing = Passing::to(leader.addr);
        let chunked = "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
        for method in ["GET", "POST", "DELETE"] {
            let answer = passing.served.ask(&format!("{method} / HTTP/1.1\r\nHost: x\r\n{chunked}")).await;
            assert!(answer.ends_with("transfer-encoding: chunked\nonetwo"), "{answer}");
            let empty = format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let answer = passing.served.ask(&empty).await;
            assert!(answer.ends_with("tidings-passed-by: b\n"), "{answer}");
        }
        let expecting =
            "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
        let mut client = passing.served.send(expecting.as_bytes()).await;
        assert_eq!(until(&mut client, "\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
        client.write_all(b"hello").await.unwrap();
        let answer = rest(&mut client).await;
        assert!(answer.starts_with("HTTP/1.1 418 ") && answer.ends_with("\nhello"), "{answer}");
        let head = passing.served.ask("HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(head.ends_with("\r\n\r\n") && head.contains("content-length: "), "{head}");
        let old = passing.served.ask("GET / HTTP/1.0\r\n\r\n").await;
        assert!(old.contains(&format!("\nhost: {}\n", leader.addr)), "HTTP/1.0 needs no host: {old}");
        let options = passing.served.ask("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(options.contains("OPTIONS *\n"), "{options}");
        let whole = passing.served.ask("GET http://y/z?a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(whole.contains("GET /z?a\nhost: x\n"), "{whole}");
        let tunnel = passing.served.ask("CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\nConnection: close\r\n\r\n").await;
        assert!(tunnel.starts_with("HTTP/1.1 418 "), "{tunnel}");
    }

    #[tokio::test]
    async fn a_body_is_passed_on_part_by_part_in_both_directions() {
        let back = async |request: Request| request.into_body().into_response();
        let leader = Served::start(Router::new().fallback(back), None);
        let passing = Passing::to(leader.addr);
        let head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut client = passing.served.send(head).await;
        until(&mut client, "\r\n\r\n").await;
        for part in ["one", "two"] {
            let chunk = format!("3\r\n{part}\r\n");
            client.write_all(chunk.as_bytes()).await.unwrap();
            assert_eq!(until(&mut client, &chunk).await, chunk); // Before the next part is sent.
        }
        client.write_all(b"0\r\n\r\n").await.unwrap();
        assert_eq!(until(&mut client, "0\r\n\r\n").await, "0\r\n\r\n");
    }

    #[tokio::test]
    async fn a_large_body_that_the_leader_refuses_has_the_leaders_answer() {
        let refuse = Router::new().fallback(async || StatusCode::PAYLOAD_TOO_LARGE);
        let folder = tempfile::tempdir().unwrap();
        let (tls, roots) = identity(folder.path());
        let (plain, secure) = (Served::start(refuse.clone(), None), Served::start(refuse, Some(tls)));
        let passing = Passing::with_tls(roots);
        let addresses = [format!("http://{}", plain.addr), format!("https://localhost:{}", secure.addr.port())];
        for address in addresses.iter().cycle().take(20) {
            passing.lead("a", Some(address));
            let head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 33554432\r\nConnection: close\r\n\r\n";
            let (mut from, mut to) = passing.served.send(head).await.into_split();
            let body = vec![b'x'; 32 << 20];
            let (told, _broken_off) = tokio::join!(until(&mut from, "\r\n"), within(to.write_all(&body)));
            assert_eq!(told, "HTTP/1.1 413 Payload Too Large\r\n", "{address}");
        }
    }

    #[tokio::test]
    async fn each_refusal_says_what_is_the_matter_and_what_to_do() {
        const GET: &str = "GET /v1/events HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let passing = Passing::start();
        let safe = "so it is safe to send it again";
        let refusal = async || passing.served.refusal(GET).await;
        assert_eq!(
            refusal().await,
            format!("no server of the cluster leads now; the request was not carried out, {safe}")
        );
        passing.lead("b", Some("http://127.0.0.1:1"));
        assert_eq!(refusal().await, format!("this server is about to lead; the request was not carried out, {safe}"));
        passing.lead("a", None);
        let told = "the leader, a, says no address, so no request can be passed on to it: set cluster.address there";
        assert_eq!(refusal().await, told);
        for (address, shown, error) in [
            ("https://a/tidings", "https://a/tidings", "an origin has no path, query or fragment"),
            ("a.example.com", "a.example.com", "the scheme must be http or https"),
            ("http://u:secret@a", "USER@HOST", "user names and passwords are not allowed in a URL"),
        ] {
            passing.lead("a", Some(address));
            let told = format!(
                "the leader, a, says the address {shown}, but {error}: set cluster.address there to http://HOST:PORT or \
                 https://HOST:PORT"
            );
            assert_eq!(refusal().await, told);
        }
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        passing.lead("a", Some(&format!("http://{free}/")));
        let told = format!(
            "the leader, a, cannot be reached at http://{free} (Connection refused (os error 111)); the request was not \
             sent, {safe}"
        );
        assert_eq!(refusal().await, told);
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = silent.local_addr().unwrap();
        passing.lead("a", Some(&format!("https://{addr}")));
        let told = format!(
            "the leader, a, cannot be reached at https://{addr} (not within 2s); the request was not sent, {safe}"
        );
        assert_eq!(refusal().await, told);
    }

    #[tokio::test]
    async fn two_servers_that_take_each_other_for_the_leader_do_not_pass_a_request_to_and_fro() {
        let (one, other) = (Passing::start(), Passing::start());
        one.lead("a", Some(&format!("http://{}", other.served.addr)));
        other.lead("c", Some(&format!("http://{}", one.served.addr)));
        let request = "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let told = "another server took this one for the leader and passed the request on; the request was not carried \
                    out, so it is safe to send it again";
        assert_eq!(one.served.refusal(request).await, told);
    }

    /// What a server sends that takes `b` for the leader and has the secret of these bits.
    fn passed_on(by: &[&str], bits: u128) -> String {
        let by: String = by.iter().map(|by| format!("Tidings-Passed-By: {by}\r\n")).collect();
        let secret = Secret::from_random(bits);
        let said = format!("Tidings-Passed-For: {} 192.0.2.7:1 internal\r\n", secret.as_str());
        format!("PUT /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{by}{said}Content-Length: 0\r\n\r\n")
    }

    #[tokio::test]
    async fn who_has_just_led_passes_on_what_others_pass_to_it_once_and_only_with_its_secret() {
        let seen = async |mut request: Request| {
            let by = request.headers().get_all(PASSED_BY).into_iter().map(|by| by.to_str().unwrap().to_owned());
            let by = by.collect::<Vec<_>>().join("+");
            let Passed { caller, side } = Passed::take(&mut request, &Secret::from_random(7)).unwrap().unwrap();
            format!("by {by} for {caller} {side:?}")
        };
        let leader = Served::start(Router::new().fallback(seen), None);
        let passing = Passing::to(leader.addr);
        let answer = passing.served.ask(&passed_on(&["c"], SECRET_OF_B)).await;
        assert!(answer.ends_with("by c+b for 192.0.2.7:1 Internal"), "{answer}");
        let unproven = passing.served.refusal(&passed_on(&["c"], 7)).await;
        assert!(unproven.contains("does not know the secret of this leader"), "{unproven}");
        for by in [&["c", "d"][..], &["b"]] {
            let circle = passing.served.refusal(&passed_on(by, SECRET_OF_B)).await;
            assert!(circle.contains("took this one for the leader"), "{by:?}: {circle}");
        }
    }

    #[tokio::test]
    async fn a_request_waits_for_a_leader_and_this_server_may_be_the_one() {
        let leader = Served::start(Router::new().fallback(async || "the other"), None);
        let request = "PUT / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        let passing = Passing::start();
        let mut client = passing.served.send(request.as_bytes()).await;
        passing.lead("b", Some("http://127.0.0.1:1")); // It does not lead yet.
        passing.lead("a", Some(&format!("http://{}", leader.addr)));
        assert!(rest(&mut client).await.ends_with("the other"));
        passing.standing.send_replace(Standing::default());
        let public = Router::new().fallback(async || "this one");
        for request in [request.to_owned(), passed_on(&["c", "d"], SECRET_OF_B)] {
            let mut client = passing.served.send(request.as_bytes()).await;
            passing.leading.send_replace(Some(Routes { public: public.clone(), internal: Router::new() }));
            assert!(rest(&mut client).await.ends_with("this one"));
            passing.leading.send_replace(None);
        }
    }

    #[tokio::test]
    async fn a_leader_that_breaks_off_before_its_answer_is_asked_again_only_where_nothing_changes() {
        let (listener, passing) = scripted().await;
        let request = |method, body: &str| {
            let length = body.len();
            format!("{method} / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let told = "the connection to the leader, a, broke off before the answer (connection closed before message \
                    completed); whether the request was carried out is not known";
        for (request, asked_count) in [
            (request("POST", "x"), 1),
            (request("POST", ""), 1),
            (request("GET", "x"), 1),
            (request("GET", ""), 2),
            (request("HEAD", ""), 2),
        ] {
            let mut client = passing.served.send(request.as_bytes()).await;
            for _ in 0..asked_count {
                let mut socket = asked(&listener).await;
                if request.ends_with('x') {
                    until(&mut socket, "x").await;
                }
            }
            let answer = rest(&mut client).await;
            assert!(answer.starts_with("HTTP/1.1 503 "), "{request}: {answer}");
            assert!(request.starts_with("HEAD") || answer.contains(told), "{request}: {answer}");
        }
        // Over a connection that was kept, and that the leader closes when the next request comes.
        let mut client = passing.served.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut kept = asked(&listener).await;
        kept.write_all(OK).await.unwrap();
        until(&mut client, "done").await;
        client.write_all(b"GET /again HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        until(&mut kept, "\r\n\r\n").await;
        drop(kept);
        asked(&listener).await.write_all(OK).await.unwrap();
        assert!(until(&mut client, "done").await.starts_with("HTTP/1.1 200 "));
    }

    #[tokio::test]
    async fn when_the_leader_changes_requests_go_to_the_new_one_and_connections_to_the_old_one_are_closed() {
        let (old, passing) = scripted().await;
        let mut client = passing.served.send(b"").await;
        let mut kept = None;
        for request in 0..3 {
            client.write_all(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            let mut socket = match kept {
                None => asked(&old).await,
                Some(mut socket) => {
                    until(&mut socket, "\r\n\r\n").await;
                    socket
                }
            };
            socket.write_all(OK).await.unwrap();
            assert!(until(&mut client, "done").await.starts_with("HTTP/1.1 200 "), "request {request}");
            kept = Some(socket);
        }
        let new = Served::start(Router::new().fallback(echo), None);
        passing.lead("c", Some(&format!("http://{}", new.addr)));
        client.write_all(b"GET /new HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
        assert!(rest(&mut client).await.contains("GET /new\n"));
        ends(&mut kept.unwrap()).await;
    }

    #[tokio::test]
    async fn an_answer_that_the_leader_breaks_off_does_not_look_complete() {
        let (listener, passing) = scripted().await;
        for (head, part) in [("Transfer-Encoding: chunked", "3\r\none\r\n"), ("Content-Length: 6", "one")] {
            let mut client = passing.served.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
            let mut leader = asked(&listener).await;
            leader.write_all(format!("HTTP/1.1 200 OK\r\n{head}\r\n\r\n{part}").as_bytes()).await.unwrap();
            let answer = until(&mut client, part).await;
            assert!(answer.to_ascii_lowercase().contains(&head.to_ascii_lowercase()), "{answer}");
            drop(leader);
            assert_eq!(rest(&mut client).await, "", "no end of the answer");
        }
        let streaming = async || Body::new(Endless);
        let leader = Served::start(Router::new().fallback(streaming), None);
        let passing = Passing::to(leader.addr);
        let mut client = passing.served.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        until(&mut client, "more\n").await;
        drop(leader);
        let mut text = String::new();
        while let Ok(byte @ 1..) = within(client.read_u8()).await {
            text.push(byte.into());
        }
        assert!(!text.ends_with("0\r\n\r\n"));
    }

    /// A body without an end.
    struct Endless;

    impl hyper::body::Body for Endless {
        type Data = bytes::Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, Self::Error>>> {
            Poll::Ready(Some(Ok(hyper::body::Frame::data(bytes::Bytes::from_static(b"more\n")))))
        }
    }

    #[tokio::test]
    async fn when_the_caller_goes_away_the_leader_is_told() {
        let (listener, passing) = scripted().await;
        // Before the answer.
        let client = passing.served.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        let mut leader = asked(&listener).await;
        drop(client);
        ends(&mut leader).await;
        // In the middle of the request's body.
        let client = passing.served.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await;
        let mut leader = asked(&listener).await;
        until(&mut leader, "half").await;
        drop(client);
        ends(&mut leader).await;
        // In the middle of the answer's body.
        let mut client = passing.served.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let mut leader = asked(&listener).await;
        leader.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf").await.unwrap();
        until(&mut client, "half").await;
        drop(client);
        ends(&mut leader).await;
    }

    /// A certificate for `localhost` and what trusts it.
    fn identity(folder: &std::path::Path) -> (Arc<Tls>, rustls::RootCertStore) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let path = folder.join("own.pem");
        std::fs::write(&path, made.cert.pem() + &made.signing_key.serialize_pem()).unwrap();
        let (certificate_file, certificate_key_file) = (Some(path.clone()), Some(path));
        let section = tidings_config::Tls { certificate_file, certificate_key_file, listen: None };
        let mut roots = rustls::RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        (Tls::start(&section).unwrap().unwrap(), roots)
    }

    #[tokio::test]
    async fn a_leader_is_reached_over_tls_and_only_if_its_certificate_is_trusted() {
        let folder = tempfile::tempdir().unwrap();
        let (tls, roots) = identity(folder.path());
        let leader = Served::start(Router::new().fallback(echo), Some(tls));
        let address = format!("https://localhost:{}", leader.addr.port());
        let request = "POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        let trusting = Passing::with_tls(roots);
        trusting.lead("a", Some(&address));
        let answer = trusting.served.ask(request).await;
        assert!(answer.contains("POST /x\n") && answer.ends_with("\nhello"), "{answer}");
        let wary = Passing::start();
        wary.lead("a", Some(&address));
        let told = format!(
            "the leader, a, cannot be reached at {address} (invalid peer certificate: UnknownIssuer); the request was not \
             sent, so it is safe to send it again"
        );
        assert_eq!(wary.served.refusal(request).await, told);
    }
}
