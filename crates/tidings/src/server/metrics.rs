//! Numbers that their owners keep themselves, read at each scrape: store, hub, lakes.

pub(super) mod influx;

use std::sync::Arc;

use tidings_buffer::Lake;
use tidings_hub::Hub;
use tidings_push::Notification;
use tidings_store::{Counts, Store};
use tidings_telemetry::Registry;

/// Makes them part of `/metrics`.
pub(super) fn register(
    registry: &Registry,
    store: &Store,
    hub: &Arc<Hub>,
    lakes: &[(&String, Arc<Lake<Notification>>)],
) {
    let counter = |name: &str, help: &str, value: fn(Counts) -> u64| {
        let store = store.clone();
        let value = Arc::new(move || value(store.counts()) as f64);
        registry.counter_fn(&format!("tidings_store_{name}_total"), help, &[], value);
    };
    counter("batches", "Batches written and synced", |counts| counts.batches);
    counter("requests", "Requests written in them", |counts| counts.commands);
    counter("failures", "Batches the disk refused", |counts| counts.failures);
    counter("reopened", "Times the store was opened again after that", |counts| counts.reopened);
    counter("overloaded", "Requests refused because a queue was full", |counts| counts.overloaded);
    let gauge =
        |name: &str, help: &str, value: Arc<dyn Fn() -> f64 + Send + Sync>| registry.gauge_fn(name, help, &[], value);
    let counts = store.clone();
    gauge("tidings_store_devices", "Registered devices", Arc::new(move || counts.counts().devices as f64));
    let counts = store.clone();
    gauge("tidings_store_subscriptions", "Subscriptions", Arc::new(move || counts.counts().subscriptions as f64));
    let counts = hub.clone();
    gauge("tidings_hub_channels", "Channels that exist", Arc::new(move || counts.counts().channels as f64));
    let counts = hub.clone();
    let help = "Subscriptions of live connections";
    gauge("tidings_hub_subscriptions", help, Arc::new(move || counts.counts().subscriptions as f64));
    for (pool, lake) in lakes {
        let (labels, lake) = ([("pool", pool.as_str())], lake.clone());
        let held = Arc::new(move || lake.counters().held as f64);
        registry.gauge_fn(
            "tidings_gateway_lake_notifications",
            "Notifications that wait for a connection",
            &labels,
            held,
        );
    }
}
