//! `/v1/system` and `/v1/providers`: the server and its push providers at this moment, for operators.
//!
//! Most numbers are those of `/metrics`, put together for one look. They count since the process began.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use tidings_hub::HubCounts;
use tidings_store::Counts;
use tidings_telemetry::metrics::{edge, gateway, process, server};
use tidings_telemetry::{Histogram, Registry};
use tidings_types::Provider;

use crate::ports::MemoryTerm;
use crate::problem::json;
use crate::readiness::{ProviderStatus, ReadyListener, ReadyProvider};
use crate::rfc3339::Rfc3339;
use crate::shared::Shared;

/// Why connections are closed that are too slow.
const SLOW: [&str; 3] = ["slow", "stalled", "reply_budget"];

/// The disk with the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct Disk {
    free_bytes: u64,
    total_bytes: u64,
}

impl Disk {
    /// `None` if the disk cannot be asked.
    fn read(registry: &Registry) -> Option<Self> {
        let bytes = |metric| whole(registry.sum(metric, &[]));
        let total_bytes = bytes(&server::DISK_SIZE_BYTES);
        (total_bytes > 0).then(|| Self { free_bytes: bytes(&server::DISK_FREE_BYTES), total_bytes })
    }
}

#[derive(Debug, Serialize)]
struct View {
    version: String,
    node: String,
    uptime_seconds: u64,
    listeners: Vec<ReadyListener>,
    clients: Clients,
    store: StoreView,
    process: Process,
    memory: Vec<MemoryTerm>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<Disk>,
}

#[derive(Debug, Serialize)]
struct Clients {
    connections: usize,
    users: usize,
    channels: usize,
    subscriptions: usize,
    /// Readers closed because they were too slow, and connections cut off because they took nothing.
    slow_closed: u64,
}

#[derive(Debug, Serialize)]
struct StoreView {
    status: &'static str,
    devices: u64,
    proven: u64,
    subscriptions: u64,
    scheduled: u64,
    batches: u64,
    requests: u64,
    failures: u64,
    reopened: u64,
    overloaded: u64,
    checkpoints: u64,
    checkpoints_failed: u64,
    rebuilt: u64,
    heap_bytes: u64,
    heap_live_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Process {
    resident_bytes: u64,
    cpu_seconds: u64,
    threads: u64,
    open_files: u64,
    open_files_max: u64,
}

pub(crate) async fn system(State(shared): State<Arc<Shared>>) -> Response {
    let shared = shared.clone();
    let Shared { node, system, registry, store, hub, .. } = &*shared;
    let clients = (node.clients)();
    let HubCounts { channels, subscriptions, .. } = hub.counts();
    let view = View {
        version: node.version.clone(),
        node: node.uid.clone(),
        uptime_seconds: shared.started.elapsed().as_secs(),
        listeners: system.readiness().listeners,
        clients: Clients {
            connections: clients.connections,
            users: clients.users,
            channels,
            subscriptions,
            slow_closed: SLOW
                .iter()
                .map(|reason| whole(registry.sum(&edge::DISCONNECTS_TOTAL, &[("reason", reason)])))
                .sum(),
        },
        store: store_view(store.is_open(), store.counts()),
        process: process_view(registry),
        memory: system.memory(),
        disk: Disk::read(registry),
    };
    json(StatusCode::OK, &view)
}

fn store_view(is_open: bool, counts: Counts) -> StoreView {
    let Counts { batches, commands, failures, reopened, overloaded, checkpoints, checkpoints_failed, .. } = counts;
    let Counts { rebuilt, devices, proven, subscriptions, later, heap_bytes, heap_live_bytes, .. } = counts;
    StoreView {
        status: if is_open { "ok" } else { "refuses_writes" },
        devices,
        proven,
        subscriptions,
        scheduled: later,
        batches,
        requests: commands,
        failures,
        reopened,
        overloaded,
        checkpoints,
        checkpoints_failed,
        rebuilt,
        heap_bytes,
        heap_live_bytes,
    }
}

fn process_view(registry: &Registry) -> Process {
    let number = |metric| whole(registry.sum(metric, &[]));
    Process {
        resident_bytes: number(&process::RESIDENT_MEMORY_BYTES),
        cpu_seconds: number(&process::CPU_SECONDS_TOTAL),
        threads: number(&process::THREADS),
        open_files: number(&process::OPEN_FDS),
        open_files_max: number(&process::MAX_FDS),
    }
}

/// What cannot be read (NaN) is 0.
fn whole(value: f64) -> u64 {
    value as u64
}

#[derive(Debug, Serialize)]
struct Providers {
    providers: Vec<ProviderView>,
}

#[derive(Debug, Serialize)]
struct ProviderView {
    provider: Provider,
    name: String,
    status: ProviderStatus,
    since: Rfc3339,
    pools: Vec<PoolView>,
}

/// One credential and service with its connections.
#[derive(Debug, Serialize)]
struct PoolView {
    name: String,
    connections: u64,
    streams: u64,
    streams_allowed: u64,
    waiting: u64,
    outcomes: BTreeMap<String, u64>,
    rejected: BTreeMap<String, u64>,
    repeats: u64,
    pauses: u64,
    connect_failures: u64,
    goaways: u64,
    credential_refused: u64,
    /// Only of a certificate: other credentials do not end by themselves.
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_ends_in_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_p50_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round_trip_p99_ms: Option<u64>,
}

pub(crate) async fn providers(State(shared): State<Arc<Shared>>) -> Response {
    let registry = &shared.registry;
    let view = |ReadyProvider { provider, name, status, since }: ReadyProvider| {
        let pools = registry.sum_by(&gateway::SETTLED_TOTAL, &[("provider", provider.as_str())], "pool");
        // A pool is called like its section, and may have the name of a service or `quarantine` behind it.
        let is_own =
            |pool: &String| pool.strip_prefix(&*name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
        let pools = pools.into_keys().filter(is_own).map(|pool| PoolView::read(registry, provider, pool)).collect();
        ProviderView { provider, name, status, since, pools }
    };
    let providers = shared.system.readiness().providers.into_iter().map(view).collect();
    json(StatusCode::OK, &Providers { providers })
}

impl PoolView {
    fn read(registry: &Registry, provider: Provider, name: String) -> Self {
        let labels = [("provider", provider.as_str()), ("pool", name.as_str())];
        let sum = |metric| whole(registry.sum(metric, &labels));
        // Both lines of a pool wait in lakes under its own name.
        let (pool, line) = name.strip_suffix(" quarantine").map_or((&*name, "main"), |pool| (pool, "quarantine"));
        let lakes = [labels[0], ("pool", pool), ("line", line)];
        let by = |metric, label| {
            let sums = registry.sum_by(metric, &labels, label);
            sums.into_iter().map(|(name, sum)| (name, whole(sum))).filter(|(_, sum)| *sum > 0).collect()
        };
        let round_trips = registry.histograms(&gateway::ROUND_TRIP_SECONDS, &labels);
        let round_trip = round_trips.first().map(Histogram::snapshot).filter(|it| it.count() > 0);
        let quantile = |share: f64| u64::try_from(round_trip.as_ref()?.quantile(share).as_millis()).ok();
        Self {
            connections: sum(&gateway::CONNECTIONS_OPENED_TOTAL)
                .saturating_sub(sum(&gateway::CONNECTIONS_CLOSED_TOTAL)),
            streams: sum(&gateway::STREAMS_OPENED_TOTAL).saturating_sub(sum(&gateway::STREAMS_ENDED_TOTAL)),
            streams_allowed: sum(&gateway::STREAMS_ALLOWED),
            waiting: whole(registry.sum(&gateway::LAKE_NOTIFICATIONS, &lakes)),
            outcomes: by(&gateway::SETTLED_TOTAL, "outcome"),
            rejected: by(&gateway::REJECTED_TOTAL, "reason"),
            repeats: sum(&gateway::REPEATS_TOTAL),
            pauses: sum(&gateway::PAUSES_TOTAL),
            connect_failures: sum(&gateway::CONNECT_FAILURES_TOTAL),
            goaways: sum(&gateway::GOAWAYS_TOTAL),
            credential_refused: sum(&gateway::CREDENTIAL_REFUSED_TOTAL) + sum(&gateway::VAPID_REFUSED_TOTAL),
            credential_ends_in_seconds: registry
                .sum_by(&gateway::CREDENTIAL_EXPIRY_SECONDS, &labels, "pool")
                .get(&name)
                .map(|seconds| whole(*seconds)),
            round_trip_p50_ms: quantile(0.5),
            round_trip_p99_ms: quantile(0.99),
            name: name.clone(),
        }
    }
}
