//! What the store may hold in memory. Subscriptions are not in it: they take about 5 bytes each.

use tidings_telemetry::memory::Term;

use crate::config::{QueueLimit, StoreConfig};
use crate::engine::{WRITE_BUFFER_BYTES, WRITE_BUFFER_BYTES_MAX};
use crate::queue::{BRAKE_QUEUE, JOB_QUEUE};

/// A registered device: the place of its record, hints, its entries in the sets of its traits (60 bytes, measured), and
/// its user with the list of the user's devices. The record itself is in a file.
const DEVICE_BYTES: usize = 160;

impl StoreConfig {
    /// What requests that wait, devices, and tables may take.
    pub fn memory_terms(&self) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            event_queue,
            device_queue,
            import_queue,
            device_count_max,
            cache_bytes,
            // These bound what is on the disk, or are no bounds.
            path: _,
            journal_event_count_max: _,
            journal_bytes_max: _,
            later_count_max: _,
            id_window: _,
            id_window_count: _,
            subscription_count_max: _,
            mute_count_max: _,
            idle_max: _,
            channel_count_max: _,
            channel_ttl: _,
            namespace_ttls: _,
            checkpoint_change_count: _,
            reopen_backoff_min: _,
            reopen_backoff_max: _,
            clock: _,
        } = self;
        let queues = [event_queue, device_queue, import_queue, &JOB_QUEUE, &BRAKE_QUEUE];
        let queued = queues.iter().fold(0, |sum: usize, QueueLimit { bytes, .. }| sum.saturating_add(*bytes));
        vec![
            Term::peak("store queues", 1, queued, "store.*_queue_bytes_max"),
            // While it is made, the write buffers of the moment when it began stay in memory.
            Term::peak("backup", 1, WRITE_BUFFER_BYTES as usize, "fixed"),
            Term::peak("store write buffers", 1, WRITE_BUFFER_BYTES_MAX as usize, "fixed"),
            Term::standing("store cache", 1, *cache_bytes as usize, "store.cache_bytes"),
            Term::standing("devices", *device_count_max as usize, DEVICE_BYTES, "store.device_count_max"),
        ]
    }
}
