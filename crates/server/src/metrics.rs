//! Metrics that are read from store, hub and lakes at each scrape.

pub(super) mod influx;

use std::sync::Arc;

use tidings_hub::Hub;
use tidings_push::Lakes;
use tidings_sender::Pool;
use tidings_store::{Counts, Store};
use tidings_telemetry::Registry;
use tidings_types::EventPriority;

use super::providers::Section;

/// The commit that was built, if `TIDINGS_COMMIT` was set for the compiler.
const COMMIT: &str = match option_env!("TIDINGS_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Makes them part of `/metrics`.
pub(super) fn register(registry: &Registry, store: &Store, hub: &Arc<Hub>, sections: &[Section]) {
    let version = [("version", env!("CARGO_PKG_VERSION")), ("commit", COMMIT)];
    registry.gauge("tidings_build_info", "Always 1; the labels say what runs", &version).set(1);
    let counter = |name: &str, help: &str, value: fn(Counts) -> u64| {
        let store = store.clone();
        let value = Arc::new(move || value(store.counts()) as f64);
        registry.counter_fn(&format!("tidings_store_{name}_total"), help, &[], value);
    };
    counter("batches", "Batches written and synced", |counts| counts.batches);
    counter("requests", "Requests in the batches written", |counts| counts.commands);
    counter("failures", "Batches that could not be written", |counts| counts.failures);
    counter("reopened", "Times the store was opened again after a failed batch", |counts| counts.reopened);
    counter("overloaded", "Requests refused because a queue was full", |counts| counts.overloaded);
    let help = "Damaged device records that were rebuilt from their rows";
    counter("repaired_devices", help, |counts| counts.repaired);
    let gauge =
        |name: &str, help: &str, value: Arc<dyn Fn() -> f64 + Send + Sync>| registry.gauge_fn(name, help, &[], value);
    let counts = store.clone();
    gauge("tidings_store_devices", "Registered devices", Arc::new(move || counts.counts().devices as f64));
    for (name, help, bytes) in [
        (
            "tidings_store_heap_bytes",
            "Bytes of the device heap's files",
            (|counts| counts.heap_bytes) as fn(Counts) -> u64,
        ),
        ("tidings_store_heap_live_bytes", "Bytes of current device records in the heap's files", |counts| {
            counts.heap_live_bytes
        }),
        ("tidings_store_heap_scattered_bytes", "Bytes of current device records that are out of order", |counts| {
            counts.heap_scattered_bytes
        }),
    ] {
        let counts = store.clone();
        gauge(name, help, Arc::new(move || bytes(counts.counts()) as f64));
    }
    let counts = store.clone();
    gauge("tidings_store_subscriptions", "Subscriptions", Arc::new(move || counts.counts().subscriptions as f64));
    let counts = store.clone();
    gauge(
        "tidings_store_later_events",
        "Scheduled events that are not due yet",
        Arc::new(move || counts.counts().later as f64),
    );
    let counts = store.clone();
    gauge(
        "tidings_store_proven_devices",
        "Devices whose token a provider has accepted",
        Arc::new(move || counts.counts().proven as f64),
    );
    let counts = store.clone();
    gauge("tidings_store_brakes", "Pauses in force", Arc::new(move || counts.counts().paused as f64));
    let counts = hub.clone();
    gauge("tidings_hub_channels", "Channels that exist", Arc::new(move || counts.counts().channels as f64));
    let counts = hub.clone();
    let help = "Subscriptions of live connections";
    gauge("tidings_hub_subscriptions", help, Arc::new(move || counts.counts().subscriptions as f64));
    for pool in sections.iter().flat_map(|section| &section.pools) {
        lakes(registry, pool, "main", &pool.lakes);
        if let Some(quarantine) = &pool.quarantine {
            lakes(registry, pool, "quarantine", quarantine);
        }
    }
}

fn lakes(registry: &Registry, pool: &Pool, line: &str, lakes: &Lakes) {
    for priority in EventPriority::ALL {
        let labels = [
            ("provider", pool.provider.as_str()),
            ("pool", pool.name.as_str()),
            ("line", line),
            ("priority", priority.as_str()),
        ];
        let lake = lakes.of(priority).clone();
        let held = Arc::new(move || lake.counters().held as f64);
        let help = "Notifications that wait for a connection";
        registry.gauge_fn("tidings_gateway_lake_notifications", help, &labels, held);
    }
}
