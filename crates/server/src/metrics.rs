//! Metrics that are read from hub, lakes, disk and memory sum at each scrape, and those of the store.

pub(super) mod influx;
mod memory;

use std::path::Path;
use std::sync::Arc;

use rustix::fs::{StatVfs, statvfs};
use tidings_hub::Hub;
use tidings_push::Lakes;
use tidings_sender::Pool;
use tidings_store::Store;
use tidings_telemetry::memory::MemorySum;
use tidings_telemetry::{Registry, metrics as table};
use tidings_types::EventPriority;

use super::providers::Section;
use memory::Live;

/// The commit that was built, if `TIDINGS_COMMIT` was set for the compiler.
const COMMIT: &str = match option_env!("TIDINGS_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// What these metrics are read from.
pub(super) struct Sources<'a> {
    pub(super) data_dir: &'a Path,
    pub(super) memory: &'a MemorySum,
    pub(super) store: &'a Store,
    pub(super) hub: &'a Arc<Hub>,
}

/// Makes them part of `/metrics`.
pub(super) fn register(registry: &Registry, sources: &Sources<'_>) {
    let Sources { data_dir, memory, store, hub } = sources;
    registry.gauge(&table::server::BUILD_INFO, &[env!("CARGO_PKG_VERSION"), COMMIT]).set(1);
    store.register(registry);
    let counts = Arc::clone(hub);
    registry.computed(&table::hub::CHANNELS, &[], Arc::new(move || counts.counts().channels as f64));
    let counts = Arc::clone(hub);
    registry.computed(&table::hub::SUBSCRIPTIONS, &[], Arc::new(move || counts.counts().subscriptions as f64));
    let receipts = Arc::clone(hub.receipts());
    registry.computed(&table::hub::RECEIPTS_FORGOTTEN_TOTAL, &[], Arc::new(move || receipts.dropped_count() as f64));
    let histories = Arc::clone(hub);
    let dropped = move || histories.dropped_history_count() as f64;
    registry.computed(&table::hub::HISTORIES_DROPPED_TOTAL, &[], Arc::new(dropped));
    let histories = Arc::clone(hub);
    registry.computed(&table::hub::HISTORIES_CUT_TOTAL, &[], Arc::new(move || histories.histories_cut() as f64));
    disk(registry, data_dir);
    memory::register_bounds(registry, memory);
    memory::register_use(registry, memory, live(registry, sources));
}

/// The same of what sends pushes.
pub(super) fn register_sections(registry: &Registry, memory: &MemorySum, sections: &[Section]) {
    for pool in sections.iter().flat_map(|section| &section.pools) {
        lakes(registry, pool, "main", &pool.lakes);
        if let Some(quarantine) = &pool.quarantine {
            lakes(registry, pool, "quarantine", quarantine);
        }
    }
    memory::register_use(registry, memory, live_of(registry, sections));
}

/// The parts of the memory sum whose level is known.
fn live(registry: &Registry, Sources { store, hub, .. }: &Sources<'_>) -> [(&'static str, Live); 11] {
    let connections = registry.gauge(&table::edge::CONNECTIONS, &[]);
    let replies = registry.gauge(&table::edge::REPLY_BYTES, &[]);
    let input = registry.gauge(&table::edge::INPUT_BYTES, &[]);
    let (channels, subscriptions) = (Arc::clone(hub), Arc::clone(hub));
    let (queues, devices, logs) = (Store::clone(store), Store::clone(store), Arc::clone(hub));
    let (receipts, histories, in_memory) = (Arc::clone(hub.receipts()), Arc::clone(hub), Arc::clone(hub));
    [
        ("connections", Live::Count(Arc::new(move || connections.value() as f64))),
        ("received commands", Live::Bytes(Arc::new(move || input.value() as f64))),
        ("waiting replies", Live::Bytes(Arc::new(move || replies.value() as f64))),
        ("subscriptions", Live::Count(Arc::new(move || subscriptions.counts().subscriptions as f64))),
        ("channels", Live::Count(Arc::new(move || channels.counts().channels as f64))),
        ("channel logs", Live::Bytes(Arc::new(move || logs.tail_bytes() as f64))),
        ("channel histories", Live::Bytes(Arc::new(move || in_memory.history_bytes() as f64))),
        ("durable histories", Live::Bytes(Arc::new(move || histories.held_history_bytes() as f64))),
        ("receipts", Live::Bytes(Arc::new(move || receipts.bytes_len() as f64))),
        ("store queues", Live::Bytes(Arc::new(move || queues.waiting_bytes() as f64))),
        ("devices", Live::Count(Arc::new(move || devices.counts().devices as f64))),
    ]
}

/// The same of what sends pushes.
fn live_of(registry: &Registry, sections: &[Section]) -> [(&'static str, Live); 2] {
    let running = registry.gauge(&table::sender::JOB_BYTES, &[]);
    let pools = sections.iter().flat_map(|section| &section.pools);
    let lakes: Vec<Lakes> =
        pools.flat_map(|pool| [Some(&pool.lakes), pool.quarantine.as_ref()]).flatten().cloned().collect();
    [
        ("jobs", Live::Bytes(Arc::new(move || running.value() as f64))),
        ("lakes", Live::Count(Arc::new(move || lakes.iter().map(Lakes::held).sum::<usize>() as f64))),
    ]
}

/// The file system of the data folder. `NaN` if it cannot be asked.
fn disk(registry: &Registry, folder: &Path) {
    let computed = |metric, blocks: fn(&StatVfs) -> u64| {
        let folder = folder.to_owned();
        let read = move || statvfs(&folder).map_or(f64::NAN, |disk| (blocks(&disk) * disk.f_frsize) as f64);
        registry.computed(metric, &[], Arc::new(read));
    };
    computed(&table::server::DISK_FREE_BYTES, |disk| disk.f_bavail);
    computed(&table::server::DISK_SIZE_BYTES, |disk| disk.f_blocks);
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
