//! The store's metrics. Levels and counts are read at each scrape; only the durations of commits and checkpoints are
//! recorded when they end.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tidings_telemetry::metrics::store as table;
use tidings_telemetry::{Metric, Registry, ValueFn, unix_now};
use tidings_types::Timestamp;

use crate::engine::{Place, Scanned, Table};
use crate::queue::Class;
use crate::service::{Counts, Store};
use crate::table::NAME_KINDS;

impl Store {
    /// Makes what the store measures part of `registry`.
    pub fn register(&self, registry: &Registry) {
        self.register_counts(registry);
        self.register_queues(registry);
        self.register_scans(registry);
        let counters = &self.shared().counters;
        for (at, kind) in NAME_KINDS.into_iter().enumerate() {
            let store = self.clone();
            let count = move || store.shared().table.read().name_counts()[at] as f64;
            registry.computed(&table::DEVICE_NAMES, &[kind], Arc::new(count));
        }
        let store = self.clone();
        let groups = move || store.shared().blocks.lock().unwrap_or_else(PoisonError::into_inner).group_count() as f64;
        registry.computed(&table::DEVICE_NAMES, &["group"], Arc::new(groups));
        registry.adopt(&table::COMMIT_SECONDS, &["synced"], &counters.synced);
        registry.adopt(&table::COMMIT_SECONDS, &["handed"], &counters.handed);
        registry.adopt(&table::CHECKPOINT_SECONDS, &[], &counters.checkpointed);
        let computed = |metric, value: fn(&Self) -> f64| {
            let store = self.clone();
            registry.computed(metric, &[], Arc::new(move || value(&store)));
        };
        computed(&table::JOURNAL_EVENTS, |store| store.shared().journal_events.load(Ordering::Relaxed) as f64);
        computed(&table::JOURNAL_BYTES, |store| store.shared().journal_bytes.load(Ordering::Relaxed) as f64);
        computed(&table::CHECKPOINT_AGE_SECONDS, |store| seconds_since(store.shared().checkpoint.taken_at()));
        computed(&table::CHECKPOINT_PENDING_CHANGES, |store| store.shared().checkpoint.pending() as f64);
        computed(&table::BRAKE_SECONDS, |store| {
            let first = store.shared().brakes.borrow().paused.values().min().copied();
            first.map_or(0.0, seconds_since)
        });
    }

    fn register_counts(&self, registry: &Registry) {
        type Count = (&'static Metric, fn(Counts) -> u64);
        let counts: [Count; 20] = [
            (&table::BATCHES_TOTAL, |counts| counts.batches),
            (&table::REQUESTS_TOTAL, |counts| counts.commands),
            (&table::FAILURES_TOTAL, |counts| counts.failures),
            (&table::REOPENED_TOTAL, |counts| counts.reopened),
            (&table::OVERLOADED_TOTAL, |counts| counts.overloaded),
            (&table::REPAIRED_DEVICES_TOTAL, |counts| counts.repaired),
            (&table::EXPIRED_DEVICES_TOTAL, |counts| counts.expired),
            (&table::CHECKPOINTS_TOTAL, |counts| counts.checkpoints),
            (&table::CHECKPOINTS_FAILED_TOTAL, |counts| counts.checkpoints_failed),
            (&table::REBUILT_TOTAL, |counts| counts.rebuilt),
            (&table::DEVICES, |counts| counts.devices),
            (&table::RESIDENT_DEVICES, |counts| counts.resident),
            (&table::PROVEN_DEVICES, |counts| counts.proven),
            (&table::SUBSCRIPTIONS, |counts| counts.subscriptions),
            (&table::LATER_EVENTS, |counts| counts.later),
            (&table::BRAKES, |counts| counts.paused),
            (&table::CANCELLED_JOBS, |counts| counts.cancelled),
            (&table::HEAP_BYTES, |counts| counts.heap_bytes),
            (&table::HEAP_LIVE_BYTES, |counts| counts.heap_live_bytes),
            (&table::HEAP_SCATTERED_BYTES, |counts| counts.heap_scattered_bytes),
        ];
        for (metric, value) in counts {
            let store = self.clone();
            registry.computed(metric, &[], Arc::new(move || value(store.counts()) as f64));
        }
    }

    fn register_queues(&self, registry: &Registry) {
        for class in Class::ALL {
            let level = |value: fn((usize, usize)) -> usize| -> ValueFn {
                let store = self.clone();
                Arc::new(move || value(store.waiting(class)) as f64)
            };
            registry.computed(&table::QUEUE_REQUESTS, &[class.label()], level(|(requests, _)| requests));
            registry.computed(&table::QUEUE_BYTES, &[class.label()], level(|(_, bytes)| bytes));
        }
    }

    fn register_scans(&self, registry: &Registry) {
        for place in Place::ALL {
            let scanned = |value: fn(Scanned) -> f64| -> ValueFn {
                let scans = self.shared().counters.scans.clone();
                Arc::new(move || value(scans.of(place)))
            };
            registry.computed(&table::SCANS_TOTAL, &[place.label()], scanned(|it| it.scans as f64));
            registry.computed(&table::SCANNED_ROWS_TOTAL, &[place.label()], scanned(|it| it.rows as f64));
            registry.computed(&table::SCAN_SECONDS_TOTAL, &[place.label()], scanned(|it| it.elapsed.as_secs_f64()));
        }
        for of in Table::ALL {
            let store = self.clone();
            let tombstones = move || store.shared().engine.read().as_ref().map_or(0, |engine| engine.tombstones(of));
            registry.computed(&table::TOMBSTONES, &[of.name()], Arc::new(move || tombstones() as f64));
        }
    }
}

/// By the wall clock; zero if it was set back since.
fn seconds_since(at: Timestamp) -> f64 {
    unix_now().saturating_since(at).as_secs_f64()
}
