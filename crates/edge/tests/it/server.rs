//! An edge with its hub behind a real HTTP server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use bytes::Bytes;
use http::Request as HttpRequest;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tidings_edge::{
    Alone, ClientNetwork, DeviceDirectory, Edge, EdgeConfig, LentSocket, Others, Ports, ProveFuture, PublishFuture,
    Publisher, Socket,
};
use tidings_hub::{Changes, ChangesConfig, EventReceipts, Histories, Hub, HubConfig, NewPublication};
use tidings_protocol::token::{TokenSecret, TokenVerifier};
use tidings_protocol::{
    DeviceClaim, ErrorCode, HookId, NamespaceOptions, Namespaces, PersonalChannels, Publication, PublicationKey,
    RecoveryMode, SessionConfig, SessionHooks, SlowReaders, Tags, Thinning,
};
use tidings_stream::TailBounds;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    ChannelName, DeviceNumber, Epoch, Format, JournalPosition, Json, Offset, OriginPattern, ReceiptPolicy,
    ReceiptRequest, ReceiptTerms, StreamPosition, Transport, Variant,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use crate::hooks::Backend;
use crate::tls;

/// The node, and the one origin whose pages may connect.
pub(crate) const NODE: &str = "node-1";
pub(crate) const ORIGIN: &str = "https://app.example";

pub(crate) const JSON: Variant = Variant::websocket(Format::Json);

pub(crate) struct Options {
    /// What clients speak unless a test says otherwise.
    pub(crate) format: Format,
    pub(crate) frame_count_max: usize,
    pub(crate) tails_bytes_max: usize,
    pub(crate) ping_interval: Duration,
    pub(crate) pong_timeout: Duration,
    pub(crate) stale_timeout: Duration,
    pub(crate) connection_count_max: usize,
    pub(crate) address_connection_count_max: usize,
    pub(crate) user_connection_count_max: usize,
    pub(crate) turn_bytes_max: usize,
    pub(crate) bytes_per_second_max: u64,
    pub(crate) close_timeout: Duration,
    pub(crate) shutdown_spread: Duration,
    pub(crate) control_bytes_max: usize,
    pub(crate) reply_budget_bytes: usize,
    pub(crate) input_budget_bytes: usize,
    pub(crate) reply_bytes_max: usize,
    pub(crate) write_timeout: Duration,
    /// Clients connect over TLS.
    pub(crate) tls: bool,
    /// A user has one connection at a time.
    pub(crate) single_connection: bool,
    /// The hook says who clients without a token are.
    pub(crate) connect_hook: bool,
    /// The other servers.
    pub(crate) others: Arc<dyn Others>,
    /// What the store has of durable channels.
    pub(crate) histories: Option<Arc<dyn Histories>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            format: Format::Json,
            frame_count_max: 10_000,
            tails_bytes_max: usize::MAX,
            ping_interval: Duration::from_secs(25),
            pong_timeout: Duration::from_secs(8),
            stale_timeout: Duration::from_secs(10),
            connection_count_max: 100,
            address_connection_count_max: 0,
            user_connection_count_max: 0,
            turn_bytes_max: 256 << 10,
            bytes_per_second_max: 0,
            close_timeout: Duration::from_secs(5),
            shutdown_spread: Duration::ZERO,
            control_bytes_max: 1 << 20,
            reply_budget_bytes: 64 << 20,
            input_budget_bytes: 64 << 20,
            reply_bytes_max: 1 << 20,
            write_timeout: Duration::from_mins(2),
            tls: false,
            single_connection: false,
            connect_hook: false,
            others: Arc::new(Alone),
            histories: None,
        }
    }
}

impl Options {
    pub(crate) fn of(format: Format) -> Self {
        Self { format, ..Self::default() }
    }
}

pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) format: Format,
    pub(crate) hub: Arc<Hub>,
    /// See [`gate`].
    pub(crate) gate: Arc<AtomicU8>,
    /// For look-ups of `phone-9`.
    pub(crate) permits: Arc<Semaphore>,
    /// Look-ups of devices so far.
    pub(crate) lookups: Arc<AtomicU64>,
    pub(crate) backend: Arc<Backend>,
    edge: Arc<Edge>,
    registry: Registry,
    tasks: JoinSet<()>,
}

/// What the journal has a bug with.
pub(crate) const PANIC: &str = "panic";

/// A journal that accepts at once, except what says "refuse", and panics at [`PANIC`]; with "hold" it waits at the gate first.
struct Journal {
    hub: Arc<Hub>,
    gate: Arc<AtomicU8>,
    top: AtomicU64,
}

impl Publisher for Journal {
    fn is_home(&self) -> bool {
        true
    }

    fn publish(&self, channel: ChannelName, NewPublication { publication, .. }: NewPublication) -> PublishFuture {
        let data = &publication.data;
        if data.as_str().contains("hold") {
            let _ = self.gate.compare_exchange(gate::SHUT, gate::WAITED_AT, Ordering::Relaxed, Ordering::Relaxed);
            while self.gate.load(Ordering::Relaxed) == gate::WAITED_AT {
                std::thread::yield_now();
            }
        }
        assert!(!data.as_str().contains(PANIC), "as asked");
        if data.as_str().contains("refuse") {
            return Box::pin(async { Err(ErrorCode::TooManyRequests) });
        }
        let offset = Offset(self.top.fetch_add(1, Ordering::Relaxed) + 1);
        let publication = Publication { offset, ..publication };
        self.hub.publish_durable(&channel, offset, publication, unix_now()).unwrap();
        Box::pin(async {
            tokio::task::yield_now().await;
            Ok(())
        })
    }
}

/// Knows `phone-1` to `phone-9`, each with its number and the credential `secret-<number>`; the look-up of `phone-9` waits
/// for a permit.
struct Phones {
    permits: Arc<Semaphore>,
    lookups: Arc<AtomicU64>,
}

impl DeviceDirectory for Phones {
    fn prove(&self, claim: DeviceClaim) -> ProveFuture {
        let permits = self.permits.clone();
        self.lookups.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            if claim.device().as_str() == "phone-9" {
                permits.acquire().await.ok()?.forget();
            }
            let number = claim.device().as_str().strip_prefix("phone-")?.parse().ok()?;
            let is_proven = match &claim {
                DeviceClaim::Signed(_) => true,
                DeviceClaim::Credential { credential, .. } => credential.as_str() == format!("secret-{number}"),
            };
            (is_proven && (1..=9).contains(&number)).then_some(DeviceNumber(number))
        })
    }
}

/// Where the publication "hold" stands, and with it the loop of whoever publishes it.
pub(crate) mod gate {
    pub(crate) const OPEN: u8 = 0;
    pub(crate) const SHUT: u8 = 1;
    /// A loop waits for it to be opened.
    pub(crate) const WAITED_AT: u8 = 2;
}

pub(crate) fn token_secret() -> TokenSecret {
    TokenSecret::new(b"of the tests").unwrap()
}

/// What an event asks for: only of visible devices, of any device, or of every client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    Visible,
    Any,
    Everybody,
}

pub(crate) fn channel(name: &str) -> ChannelName {
    ChannelName::new(name).unwrap()
}

pub(crate) fn publish(hub: &Hub, name: &str, data: &serde_json::Value) {
    publish_tagged(hub, name, data, &[]);
}

pub(crate) fn publish_tagged(hub: &Hub, name: &str, data: &serde_json::Value, tags: &[(&str, &str)]) {
    let tags = tags.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let tags = tags.collect::<BTreeMap<_, _>>().into();
    let publication =
        Publication { offset: Offset(0), data: Json::of(data), info: None, tags, receipt: None, texts: None };
    hub.publish(&channel(name), NewPublication { publication, skip_history: false }, unix_now()).unwrap();
}

fn namespaces() -> Namespaces {
    let kept = |history_size| NamespaceOptions {
        history_size,
        history_ttl: Duration::from_secs(60),
        force_recovery: true,
        presence: true,
        ..NamespaceOptions::closed()
    };
    let hook = Some(HookId(0));
    let asked = NamespaceOptions {
        subscribe_hook: hook,
        publish_hook: hook,
        sub_refresh_hook: hook,
        join_leave: true,
        ..kept(10)
    };
    let named = BTreeMap::from([
        ("kept".to_owned(), kept(1000)),
        ("small".to_owned(), kept(1)),
        ("own".to_owned(), kept(10)),
        ("durable".to_owned(), NamespaceOptions { durable: true, ..kept(10) }),
        ("picky".to_owned(), NamespaceOptions { durable: true, allow_tags_filter: true, ..kept(10) }),
        (
            "state".to_owned(),
            NamespaceOptions { recovery_mode: RecoveryMode::Cache, auto_cache_recover: true, ..kept(10) },
        ),
        (
            "small-frames".to_owned(),
            NamespaceOptions {
                allow_deltas: true,
                allow_channel_compaction: true,
                allow_tags_filter: true,
                join_leave: true,
                ..kept(100)
            },
        ),
        ("lively".to_owned(), NamespaceOptions { join_leave: true, allow_tags_filter: true, ..kept(1000) }),
        (
            "told".to_owned(),
            NamespaceOptions {
                join_leave: true,
                force_push_join_leave: true,
                occupancy_webhook: true,
                ..NamespaceOptions::closed()
            },
        ),
        ("asked".to_owned(), asked),
        ("asked-durable".to_owned(), NamespaceOptions { durable: true, ..asked }),
    ]);
    let thin = |slow_readers| NamespaceOptions {
        thinning: Thinning { slow_readers, per_second_max: 0 },
        allow_thinning: true,
        allow_deltas: true,
        allow_tags_filter: true,
        allow_history_for_subscriber: true,
        allow_history_for_anonymous: true,
        ..kept(100_000)
    };
    let thinned = [
        ("map".to_owned(), thin(SlowReaders::Latest)),
        ("things".to_owned(), thin(SlowReaders::Latest)),
        ("newest".to_owned(), thin(SlowReaders::Latest)),
        ("skipping".to_owned(), thin(SlowReaders::Skip)),
        ("asking".to_owned(), thin(SlowReaders::Disconnect)),
        ("fleeting".to_owned(), NamespaceOptions { history_size: 0, force_recovery: false, ..thin(SlowReaders::Skip) }),
    ];
    let keys = [("map", "thing"), ("things", "/1")].map(|(name, key)| (name.to_owned(), PublicationKey::new(key)));
    Namespaces::new(NamespaceOptions::closed(), named.into_iter().chain(thinned).collect()).with_keys(keys.into())
}

impl Server {
    pub(crate) async fn start(options: Options) -> Self {
        let registry = Registry::new();
        let hub_config = HubConfig {
            namespaces: Arc::new(namespaces()),
            channel_count_max: 100,
            tail: TailBounds { frame_count_max: options.frame_count_max, bytes_max: 100 << 20 },
            tails_bytes_max: options.tails_bytes_max,
            history_bytes_max: usize::MAX,
            durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(1) },
            receipt_event_count_max: 2000,
            receipt_bytes_max: 256 << 20,
        };
        let changes = ChangesConfig { users: true, delay: Duration::ZERO, count_max: 1000 };
        let hub = Hub::new(hub_config, 2).with_changes(Some(Arc::new(Changes::new(&changes))));
        let hub = Arc::new(match options.histories {
            Some(histories) => hub.with_histories(histories, usize::MAX),
            None => hub,
        });
        let session = SessionConfig {
            namespaces: namespaces(),
            token_verifier: Some(TokenVerifier::new(&token_secret(), None)),
            allow_anonymous: true,
            insecure: true,
            hooks: SessionHooks {
                connect: options.connect_hook.then_some(HookId(0)),
                rpc: Some(HookId(0)),
                refresh: Some(HookId(0)),
                headers: vec!["cookie".into()],
                ..SessionHooks::default()
            },
            channel_count_max: 128,
            personal_channels: Some(PersonalChannels {
                namespace: "own".to_owned(),
                single_connection: options.single_connection,
            }),
            ping_interval: options.ping_interval,
            version: "test".to_owned(),
        };
        let config = EdgeConfig {
            node: NODE.into(),
            connection_count_max: options.connection_count_max,
            address_connection_count_max: options.address_connection_count_max,
            user_connection_count_max: options.user_connection_count_max,
            message_bytes_max: 65_536,
            turn_bytes_max: options.turn_bytes_max,
            control_bytes_max: options.control_bytes_max,
            reply_budget_bytes: options.reply_budget_bytes,
            input_budget_bytes: options.input_budget_bytes,
            reply_bytes_max: options.reply_bytes_max,
            recovery_count_max: 300,
            channel_creations_per_minute: 20,
            ping_interval: options.ping_interval,
            pong_timeout: options.pong_timeout,
            write_timeout: options.write_timeout,
            stale_timeout: options.stale_timeout,
            bytes_per_second_max: options.bytes_per_second_max,
            close_timeout: options.close_timeout,
            shutdown_spread: options.shutdown_spread,
            shutdown_timeout: Duration::from_secs(10),
            allowed_origins: vec![OriginPattern::new(ORIGIN).unwrap()],
        };
        let gate = Arc::new(AtomicU8::new(gate::OPEN));
        let journal = Arc::new(Journal { hub: hub.clone(), gate: gate.clone(), top: AtomicU64::new(0) });
        let (permits, lookups) = (Arc::new(Semaphore::new(0)), Arc::<AtomicU64>::default());
        let phones = Arc::new(Phones { permits: permits.clone(), lookups: lookups.clone() });
        let backend = Arc::new(Backend::default());
        let hooks = backend.clone();
        let ports = Ports { publisher: journal, devices: phones, hooks, others: options.others };
        let edge = Edge::start(config, Arc::new(session), hub.clone(), ports, &registry).unwrap();
        let edge = Arc::new(edge);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut addr = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/connection/websocket", get(|edge, request| upgrade(Transport::WebSocket, edge, request)))
            .route("/connection/uni_websocket", get(|edge, request| upgrade(Transport::UniWebSocket, edge, request)))
            .route("/connection/uni_sse", any(|edge, request| stream(Transport::UniSse, edge, request)))
            .route("/connection/uni_http_stream", any(|edge, request| stream(Transport::UniHttpStream, edge, request)))
            .route("/connection/sse", any(|edge, request| stream(Transport::Sse, edge, request)))
            .route("/connection/http_stream", any(|edge, request| stream(Transport::HttpStream, edge, request)))
            .route("/emulation", any(emulate))
            .with_state(edge.clone());
        let mut tasks = JoinSet::new();
        let format = options.format;
        if options.tls {
            addr = tls::start(listener, router, &mut tasks).await;
        } else {
            tasks.spawn(serve(listener, router, None));
        }
        Self { addr, format, hub, gate, permits, lookups, backend, edge, registry, tasks }
    }

    pub(crate) fn edge(&self) -> &Edge {
        &self.edge
    }

    pub(crate) fn publish(&self, name: &str, data: serde_json::Value) {
        publish(&self.hub, name, &data);
    }

    /// Publishes an event that collects receipts.
    pub(crate) fn publish_event(&self, event: u64, asks: Asks, name: &str, offset: u64) -> Arc<EventReceipts> {
        let policy = if asks == Asks::Any { ReceiptPolicy::Any } else { ReceiptPolicy::Visible };
        let until = unix_now().saturating_add(Duration::from_secs(60));
        let terms = ReceiptTerms { until, every_client: asks == Asks::Everybody, policy };
        let event = JournalPosition(event);
        let data = Json::of(&serde_json::json!(format!("event {}", event.0)));
        let receipt = Some(ReceiptRequest { event, terms });
        let publication =
            Publication { offset: Offset(0), data, info: None, tags: Tags::default(), receipt, texts: None };
        self.hub.publish_durable(&channel(name), Offset(offset), publication, unix_now()).unwrap();
        self.hub.receipts().get(event).unwrap()
    }

    /// The value of one line of the metrics page.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let page = self.registry.prometheus();
        let line = page.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn() -> bool) {
        self.until_mut(what, condition).await;
    }

    pub(crate) async fn until_mut(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !condition() {
            assert!(Instant::now() < deadline, "waited 30 s until {what}");
            tokio::task::yield_now().await;
        }
    }

    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
        self.edge().shutdown().await;
    }
}

async fn upgrade(transport: Transport, State(edge): State<Arc<Edge>>, mut request: Request) -> Response {
    match edge.upgrade(transport, &mut request) {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => Response::builder().status(error.status()).body(Body::from(error.to_string())).unwrap(),
    }
}

async fn stream(transport: Transport, State(edge): State<Arc<Edge>>, request: Request) -> Response {
    edge.stream(transport, whole(request).await).await.map(Body::from)
}

async fn emulate(State(edge): State<Arc<Edge>>, request: Request) -> Response {
    edge.emulate(&whole(request).await).await.map(Body::from)
}

async fn whole(request: Request) -> HttpRequest<Bytes> {
    let (head, body) = request.into_parts();
    HttpRequest::from_parts(head, to_bytes(body, usize::MAX).await.unwrap())
}

/// Serves HTTP, with TLS if there is an acceptor, and lends the sockets.
pub(crate) async fn serve(listener: TcpListener, router: Router, acceptor: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, peer) = listener.accept().await.unwrap();
        let (router, acceptor) = (router.clone(), acceptor.clone());
        connections.spawn(async move {
            let socket = LentSocket::new(match acceptor {
                None => Socket::Plain(socket),
                Some(acceptor) => Socket::Tls(Box::new(acceptor.accept(socket).await.unwrap())),
            });
            let router = router.layer(Extension(ClientNetwork(peer.ip())));
            let service = TowerToHyperService::new(router.layer(Extension(socket.taker().clone())));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), service).with_upgrades().await;
        });
    }
}
