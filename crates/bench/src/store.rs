//! Our store for a benchmark, with limits that no benchmark reaches.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidings_server::command_error::{CommandError, failed_by};
use tidings_store::{CommitSink, DurableChannel, QueueLimit, Store, StoreConfig, StoredPublication};
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, JournalPosition, StreamPosition};

/// Ignores what the store commits.
struct NoSink;

impl CommitSink for NoSink {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {}
}

/// Opens the store in a folder, or makes it. On a blocking thread, because opening reads everything into memory.
pub(super) async fn open(path: &Path) -> Result<Store, CommandError> {
    let config = config(path);
    let opened = tokio::task::spawn_blocking(move || Store::open(config, Arc::new(NoSink))).await;
    opened.expect("opening does not panic").map_err(|error| failed_by("cannot open the store", &error))
}

/// As [`open`], as one of the stores that share a log.
#[cfg(feature = "cluster")]
pub(super) async fn join(path: &Path, log: Box<dyn tidings_store::CommitLog>) -> Result<Store, CommandError> {
    let config = config(path);
    let opened = tokio::task::spawn_blocking(move || Store::join(config, log, Arc::new(NoSink))).await;
    opened.expect("opening does not panic").map_err(|error| failed_by("cannot open the store", &error))
}

fn config(path: &Path) -> StoreConfig {
    let queue = QueueLimit { count: 4096, bytes: 64 << 20 };
    StoreConfig {
        path: path.to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 1_000_000,
        journal_bytes_max: 1 << 30,
        id_window: Duration::from_secs(3600),
        id_window_count: 1_000_000,
        device_count_max: 100_000_000,
        subscription_count_max: 65_535,
        later_count_max: 1000,
        channel_count_max: 1000,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(100),
        reopen_backoff_max: Duration::from_secs(1),
        cache_bytes: 64 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: 256,
        idle_max: None,
        clock: unix_now,
    }
}
