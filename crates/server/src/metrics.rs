//! Metrics that are read from store, hub and lakes at each scrape.

pub(super) mod influx;

use std::sync::Arc;

use tidings_hub::Hub;
use tidings_push::Lakes;
use tidings_sender::Pool;
use tidings_store::{Counts, Store};
use tidings_telemetry::{Metric, Registry, metrics as table};
use tidings_types::EventPriority;

use super::providers::Section;

/// The commit that was built, if `TIDINGS_COMMIT` was set for the compiler.
const COMMIT: &str = match option_env!("TIDINGS_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// Makes them part of `/metrics`.
pub(super) fn register(registry: &Registry, store: &Store, hub: &Arc<Hub>, sections: &[Section]) {
    registry.gauge(&table::server::BUILD_INFO, &[env!("CARGO_PKG_VERSION"), COMMIT]).set(1);
    type Count = (&'static Metric, fn(Counts) -> u64);
    let of_store: [Count; 14] = [
        (&table::store::BATCHES_TOTAL, |counts| counts.batches),
        (&table::store::REQUESTS_TOTAL, |counts| counts.commands),
        (&table::store::FAILURES_TOTAL, |counts| counts.failures),
        (&table::store::REOPENED_TOTAL, |counts| counts.reopened),
        (&table::store::OVERLOADED_TOTAL, |counts| counts.overloaded),
        (&table::store::REPAIRED_DEVICES_TOTAL, |counts| counts.repaired),
        (&table::store::DEVICES, |counts| counts.devices),
        (&table::store::PROVEN_DEVICES, |counts| counts.proven),
        (&table::store::SUBSCRIPTIONS, |counts| counts.subscriptions),
        (&table::store::LATER_EVENTS, |counts| counts.later),
        (&table::store::BRAKES, |counts| counts.paused),
        (&table::store::HEAP_BYTES, |counts| counts.heap_bytes),
        (&table::store::HEAP_LIVE_BYTES, |counts| counts.heap_live_bytes),
        (&table::store::HEAP_SCATTERED_BYTES, |counts| counts.heap_scattered_bytes),
    ];
    for (metric, value) in of_store {
        let store = store.clone();
        registry.computed(metric, &[], Arc::new(move || value(store.counts()) as f64));
    }
    let counts = hub.clone();
    registry.computed(&table::hub::CHANNELS, &[], Arc::new(move || counts.counts().channels as f64));
    let counts = hub.clone();
    registry.computed(&table::hub::SUBSCRIPTIONS, &[], Arc::new(move || counts.counts().subscriptions as f64));
    for pool in sections.iter().flat_map(|section| &section.pools) {
        lakes(registry, pool, "main", &pool.lakes);
        if let Some(quarantine) = &pool.quarantine {
            lakes(registry, pool, "quarantine", quarantine);
        }
    }
}

fn lakes(registry: &Registry, pool: &Pool, line: &str, lakes: &Lakes) {
    for priority in EventPriority::ALL {
        let labels = [pool.provider.as_str(), pool.name.as_str(), line, priority.as_str()];
        let lake = lakes.of(priority).clone();
        let held = Arc::new(move || lake.counters().held as f64);
        registry.computed(&table::gateway::LAKE_NOTIFICATIONS, &labels, held);
    }
}

#[cfg(test)]
mod tests;
