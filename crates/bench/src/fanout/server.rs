//! The measured server: hub, edge and listener as in `serve`, without the other parts.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{any, get};
use axum::{Extension, Router, http};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tidings_edge::{
    Alone, DeviceDirectory, Edge, EdgeConfig, LentSocket, NoHooks, Ports, ProveFuture, PublishFuture, Publisher, Socket,
};
use tidings_hub::{Hub, HubConfig, NewPublication};
use tidings_protocol::{DeviceClaim, ErrorCode, NamespaceOptions, Namespaces, Publication, SessionConfig, Tags};
use tidings_server::command_error::{CommandError, failed_by};
use tidings_stream::TailBounds;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    ChannelName, Epoch, JournalPosition, Json, Offset, ReceiptPolicy, ReceiptRequest, ReceiptTerms, StreamPosition,
    Transport, event_limits,
};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::command::{Command, Listening, Mark, PROOF_CHANNEL};
use crate::peer;
use crate::process::Usage;

/// Refuses publications of clients: the benchmark has none.
struct NoJournal;

impl Publisher for NoJournal {
    fn is_home(&self) -> bool {
        true
    }

    fn publish(&self, _: ChannelName, _: NewPublication) -> PublishFuture {
        Box::pin(std::future::ready(Err(ErrorCode::NotAvailable)))
    }
}

/// Knows no device: no client of the benchmark claims to be one.
struct NoDevices;

impl DeviceDirectory for NoDevices {
    fn prove(&self, _: DeviceClaim) -> ProveFuture {
        Box::pin(std::future::ready(None))
    }
}

/// Serves until standard input ends.
pub(in super::super) async fn serve() -> Result<(), CommandError> {
    let hub = Arc::new(Hub::new(hub_config(), 1)); // One loop: one core.
    let edge = {
        let (publisher, devices) = (Arc::new(NoJournal), Arc::new(NoDevices));
        let ports = Ports { publisher, devices, hooks: Arc::new(NoHooks), others: Arc::new(Alone) };
        Edge::start(edge_config(), Arc::new(session()), hub.clone(), ports, &Registry::new())?
    };
    let edge = Arc::new(edge);
    let listener = tidings_server::listen((Ipv4Addr::LOCALHOST, 0).into())?;
    let addr = listener.local_addr()?;
    let streaming = |transport| any(move |edge, request| stream(transport, edge, request));
    let router = Router::new()
        .route("/connection/websocket", get(upgrade))
        .route("/connection/sse", streaming(Transport::Sse))
        .route("/connection/http_stream", streaming(Transport::HttpStream))
        .route("/connection/uni_sse", streaming(Transport::UniSse))
        .route("/connection/uni_http_stream", streaming(Transport::UniHttpStream))
        .with_state(edge.clone());
    let mut tasks = JoinSet::new();
    tasks.spawn(listen(listener, router));
    peer::answer(Listening(addr))?;
    let followed = tokio::task::spawn_blocking(move || peer::follow(|command| perform(&hub, &edge, command))).await;
    followed.map_err(|error| failed_by("the benchmark's server ended", &error))?
}

async fn listen(listener: TcpListener, router: Router) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Ok((socket, _)) = listener.accept() => {
                let socket = LentSocket::new(Socket::Plain(socket));
                let service = TowerToHyperService::new(router.clone().layer(Extension(socket.taker().clone())));
                connections.spawn(http1::Builder::new().serve_connection(TokioIo::new(socket), service).with_upgrades());
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

fn perform(hub: &Hub, edge: &Edge, command: Command) -> Result<(), CommandError> {
    match command {
        Command::Publish { channel, number, data } => publish(hub, &channel, number, data),
        Command::Mark => peer::answer(Mark { usage: Usage::now()?, connections: edge.connection_count() }),
    }
}

/// In [`PROOF_CHANNEL`], publishes as an event that wants a receipt of every client; elsewhere, as a client does.
fn publish(hub: &Hub, channel: &str, number: u64, data: Json) -> Result<(), CommandError> {
    let (proof, now) = (channel == PROOF_CHANNEL, unix_now());
    let until = now.saturating_add(event_limits::RECEIPT_WAIT_MAX);
    let terms = ReceiptTerms { until, every_client: true, policy: ReceiptPolicy::default() };
    let receipt = proof.then_some(ReceiptRequest { event: JournalPosition(number), terms });
    let publication = Publication { offset: Offset(0), data, info: None, tags: Tags::default(), receipt, texts: None };
    let channel = ChannelName::new(channel).map_err(|error| failed_by("channel", &error))?;
    let published = if proof {
        hub.publish_durable(&channel, Offset(number), publication, now)
    } else {
        hub.publish(&channel, NewPublication { publication, skip_history: false }, now).map(drop)
    };
    published.map_err(|error| failed_by("cannot publish", &error))
}

async fn upgrade(State(edge): State<Arc<Edge>>, mut request: Request) -> Response {
    match edge.upgrade(Transport::WebSocket, &mut request) {
        Ok(response) => response.map(|()| Body::empty()),
        Err(error) => (error.status(), error.to_string()).into_response(),
    }
}

async fn stream(transport: Transport, State(edge): State<Arc<Edge>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    match to_bytes(body, edge.body_bytes_max()).await {
        Ok(body) => edge.stream(transport, http::Request::from_parts(head, body)).await.map(Body::from),
        Err(error) => (http::StatusCode::BAD_REQUEST, error.to_string()).into_response(),
    }
}

fn namespaces() -> Namespaces {
    let proof = NamespaceOptions {
        durable: true,
        history_size: 100,
        history_ttl: Duration::from_secs(600),
        force_recovery: true,
        ..NamespaceOptions::closed()
    };
    let thin = NamespaceOptions { allow_thinning: true, ..NamespaceOptions::closed() };
    let named = [("proof", proof), ("thin", thin)].map(|(name, it)| (name.to_owned(), it));
    Namespaces::new(NamespaceOptions::closed(), BTreeMap::from(named))
}

/// With the defaults of `serve` where they affect the measurement.
fn hub_config() -> HubConfig {
    HubConfig {
        namespaces: Arc::new(namespaces()),
        channel_count_max: 100,
        tail: TailBounds { frame_count_max: 4096, bytes_max: 1 << 20 },
        tails_bytes_max: usize::MAX,
        history_bytes_max: usize::MAX,
        durable_start: StreamPosition { offset: Offset(0), epoch: Epoch::from_random(0) },
        receipt_event_count_max: 10_000,
        receipt_bytes_max: 256 << 20,
    }
}

fn edge_config() -> EdgeConfig {
    EdgeConfig {
        node: "bench".into(),
        connection_count_max: 100_000,
        address_connection_count_max: 0,
        user_connection_count_max: 0,
        message_bytes_max: 64 << 10,
        turn_bytes_max: 256 << 10,
        control_bytes_max: 1 << 20,
        reply_budget_bytes: 64 << 20,
        input_budget_bytes: 64 << 20,
        reply_bytes_max: 1 << 20,
        write_timeout: Duration::from_secs(10),
        recovery_count_max: 300,
        channel_creations_per_minute: 60,
        ping_interval: Duration::from_secs(25),
        pong_timeout: Duration::from_secs(8),
        stale_timeout: Duration::from_secs(10),
        bytes_per_second_max: 0,
        close_timeout: Duration::from_secs(5),
        shutdown_spread: Duration::ZERO,
        shutdown_timeout: Duration::from_secs(10),
        allowed_origins: Vec::new(),
    }
}

fn session() -> SessionConfig {
    SessionConfig {
        namespaces: namespaces(),
        token_verifier: None,
        allow_anonymous: true,
        insecure: true,
        hooks: Default::default(),
        channel_count_max: 128,
        personal_channels: None,
        ping_interval: Duration::from_secs(25),
        version: "bench".to_owned(),
    }
}
