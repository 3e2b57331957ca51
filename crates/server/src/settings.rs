//! The settings of each part, made of the configuration.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidings_api::{ApiConfig, Apps, ClientCounts, Node, Others, Rate};
use tidings_config::{Cluster, Config};
use tidings_edge::{Edge, EdgeConfig};
use tidings_hub::{ChangesConfig, HubConfig};
use tidings_protocol::token::TokenVerifier;
use tidings_protocol::{PersonalChannels, SessionConfig};
use tidings_sender::{SenderConfig, Shadow, Tenure};
use tidings_store::{QueueLimit, StoreConfig};
use tidings_stream::TailBounds;
use tidings_telemetry::trace::Tracer;
use tidings_telemetry::unix_now;
use tidings_types::StreamPosition;
use tokio::net::TcpListener;

use crate::error::ServeError;
use crate::{data_folder, listener};

/// How long a peer may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// A listening socket and its address. For port 0 the system chooses the port.
pub(super) fn bind(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = listener::listen(addr).and_then(|listener| listener.local_addr().map(|addr| (listener, addr)));
    bound.map_err(|source| ServeError::Listen { addr, source })
}

pub(super) fn loop_count(config: &Config) -> usize {
    match config.edge.loops {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

pub(super) fn listener_limits(config: &Config) -> listener::Limits {
    listener::Limits {
        connection_count_max: config.client.connection_count_max,
        address_count_max: config.http.address_connection_count_max,
        accept_per_second: config.http.accept_per_second,
        head_timeout: HEAD_TIMEOUT,
        stall_timeout: config.http.stall_timeout,
    }
}

pub(super) fn store_config(config: &Config) -> StoreConfig {
    let store = &config.store;
    let queue = |count, bytes: tidings_config::ByteSize| QueueLimit { count, bytes: bytes.as_usize() };
    StoreConfig {
        path: config.data_dir.join(data_folder::STORE),
        event_queue: queue(store.event_queue_count_max, store.event_queue_bytes_max),
        device_queue: queue(store.device_queue_count_max, store.device_queue_bytes_max),
        import_queue: queue(store.import_queue_count_max, store.import_queue_bytes_max),
        journal_event_count_max: store.journal_event_count_max,
        journal_bytes_max: store.journal_bytes_max.as_usize() as u64,
        id_window: store.id_window,
        id_window_count: store.id_window_count,
        device_count_max: store.device_count_max,
        subscription_count_max: store.subscription_count_max,
        channel_count_max: store.channel_count_max,
        channel_ttl: store.channel_ttl,
        namespace_ttls: config.namespace_ttls(),
        later_count_max: store.later_count_max,
        reopen_backoff_min: store.reopen_backoff_min,
        reopen_backoff_max: store.reopen_backoff_max,
        cache_bytes: store.cache_bytes.as_usize() as u64,
        checkpoint_change_count: store.checkpoint_change_count,
        mute_count_max: store.mute_count_max,
        idle_max: Some(store.device_idle_max).filter(|idle_max| !idle_max.is_zero()),
        clock: unix_now,
    }
}

/// With durable channels that begin at `durable_start`.
pub(super) fn hub_config(
    config: &Config,
    namespaces: Arc<tidings_protocol::Namespaces>,
    durable_start: StreamPosition,
) -> HubConfig {
    HubConfig {
        namespaces,
        channel_count_max: config.channels.count_max,
        tail: TailBounds {
            frame_count_max: config.edge.log_count_max,
            bytes_max: config.edge.log_bytes_max.as_usize(),
        },
        tails_bytes_max: usize::try_from(config.edge.logs_bytes_max()).unwrap_or(usize::MAX),
        history_bytes_max: config.channels.history_bytes_max.as_usize(),
        durable_start,
        receipt_event_count_max: config.edge.receipt_event_count_max,
        receipt_bytes_max: config.edge.receipt_bytes_max.as_usize(),
    }
}

/// `None`: nobody is told who comes and goes.
pub(super) fn changes_config(config: &Config) -> Option<ChangesConfig> {
    let webhook = &config.webhook;
    webhook.presence_url.as_ref().map(|_| ChangesConfig {
        users: config.client.connection_webhook,
        delay: webhook.presence_delay,
        count_max: webhook.presence_count_max,
    })
}

pub(super) fn edge_config(config: &Config, node: &str) -> EdgeConfig {
    let client = &config.client;
    EdgeConfig {
        node: node.into(),
        connection_count_max: client.connection_count_max,
        address_connection_count_max: client.address_connection_count_max,
        user_connection_count_max: client.user_connection_count_max,
        message_bytes_max: client.frame_bytes_max.as_usize(),
        turn_bytes_max: config.edge.turn_bytes_max.as_usize(),
        control_bytes_max: config.edge.control_bytes_max.as_usize(),
        reply_budget_bytes: usize::try_from(config.edge.replies_bytes_max(loop_count(config))).unwrap_or(usize::MAX),
        input_budget_bytes: usize::try_from(config.edge.input_part(loop_count(config))).unwrap_or(usize::MAX),
        reply_bytes_max: client.reply_bytes_max.as_usize(),
        write_timeout: client.write_timeout,
        recovery_count_max: client.recovery_count_max,
        channel_creations_per_minute: client.channel_creations_per_minute,
        ping_interval: client.ping_interval,
        pong_timeout: client.pong_timeout,
        stale_timeout: client.stale_close_delay,
        bytes_per_second_max: client.bytes_per_second_max.0,
        close_timeout: client.close_timeout,
        shutdown_spread: client.shutdown_spread,
        shutdown_timeout: client.shutdown_timeout,
        allowed_origins: client.allowed_origins.clone(),
    }
}

pub(super) fn session_config(config: &Config, token_verifier: Option<TokenVerifier>) -> SessionConfig {
    let client = &config.client;
    SessionConfig {
        namespaces: config.namespaces(),
        token_verifier,
        allow_anonymous: client.allow_anonymous,
        insecure: client.insecure,
        hooks: config.session_hooks(),
        channel_count_max: client.channel_count_max,
        personal_channels: personal_channels(config),
        ping_interval: client.ping_interval,
        version: format!("tidings {}", env!("CARGO_PKG_VERSION")),
    }
}

pub(super) fn personal_channels(config: &Config) -> Option<PersonalChannels> {
    let personal = &config.client.subscribe_to_user_personal_channel;
    personal.enabled.then(|| PersonalChannels {
        namespace: personal.personal_channel_namespace.clone().unwrap_or_default(),
        single_connection: personal.single_connection,
    })
}

pub(super) fn apps(config: &Config, verifier: Option<TokenVerifier>) -> Option<Apps> {
    let (apps, limits) = (&config.apps, &config.limits);
    apps.enabled.then(|| Apps {
        verifier,
        subjects: apps.subjects.clone(),
        allowed_origins: apps.allowed_origins.clone(),
        user_device_count_max: apps.user_device_count_max,
        rate: rate(limits.app_per_second, limits.app_burst),
        address_rate: rate(limits.address_per_second, limits.address_burst),
        address_header: apps.address_header.clone(),
    })
}

/// No rate means no limit.
pub(super) fn rate(per_second: u32, burst: u32) -> Option<Rate> {
    (per_second > 0).then_some(Rate { per_second, burst })
}

pub(super) fn api_config(config: &Config) -> ApiConfig {
    ApiConfig {
        body_bytes_max: config.http.body_bytes_max.as_usize(),
        request_count_max: config.http.request_count_max,
        subscription_count_max: config.store.subscription_count_max as usize,
        mute_count_max: config.store.mute_count_max as usize,
        key_rate: rate(config.limits.key_per_second, config.limits.key_burst),
        event_channels: config.events.channels,
    }
}

/// The name of this server in its cluster.
pub(super) fn node_name(cluster: &Cluster) -> String {
    cluster.node.clone().unwrap_or_else(machine_name)
}

/// The machine's name up to its first dot, with `-` for what a node's name may not have.
fn machine_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let valid = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    name.split('.').next().unwrap_or_default().chars().map(valid).collect()
}

pub(super) fn node(uid: String, config: &Config, edge: &Arc<Edge>, others: Option<Arc<dyn Others>>) -> Node {
    let edge = Arc::downgrade(edge); // The router outlives the edge when the server stops.
    let count = |edge: Arc<Edge>| ClientCounts { connections: edge.connection_count(), users: edge.user_count() };
    Node {
        uid,
        name: if others.is_some() { node_name(&config.cluster) } else { "tidings".to_owned() },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clients: Arc::new(move || edge.upgrade().map(count).unwrap_or_default()),
        others,
    }
}

pub(super) fn sender_config(config: &Config, tracer: Option<Tracer>, tenure: Option<Tenure>) -> SenderConfig {
    let sender = &config.sender;
    SenderConfig {
        job_count_max: sender.job_count_max,
        job_bytes_max: sender.job_bytes_max.as_usize(),
        window_device_count: sender.window_device_count,
        window_open_count_max: sender.window_open_count_max,
        checkpoint_interval: sender.checkpoint_interval,
        report_count_max: sender.report_count_max,
        gone_token_count_max: sender.gone_token_count_max,
        doubt_window: sender.doubt_window,
        why_ttl: sender.why_ttl,
        why_bytes_max: usize::try_from(sender.why_bytes_max.0).unwrap_or(usize::MAX),
        tell_finished: config.webhook.url.is_some(),
        tracer,
        tenure,
        shadow: config.shadow.enabled.then(|| Shadow {
            devices: config.shadow.devices.iter().cloned().collect(),
            percent: u8::try_from(config.shadow.percent).unwrap_or(100),
        }),
    }
}
