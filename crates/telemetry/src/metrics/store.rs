//! The store: what is durable, and what it costs to write it.

use crate::metric::{Group, Metric, group};

group! {
    "Store";

    /// Batches written and synced.
    BATCHES_TOTAL = Metric::counter("tidings_store_batches_total").panel("Batches and requests");

    /// Requests in the batches written.
    REQUESTS_TOTAL = Metric::counter("tidings_store_requests_total").panel("Batches and requests");

    /// Batches that could not be written.
    FAILURES_TOTAL = Metric::counter("tidings_store_failures_total").panel("Failures of the store");

    /// Times the store was opened again after a failed batch.
    REOPENED_TOTAL = Metric::counter("tidings_store_reopened_total").panel("Failures of the store");

    /// Requests refused because a queue was full.
    OVERLOADED_TOTAL = Metric::counter("tidings_store_overloaded_total").panel("Refused requests");

    /// Damaged device records that were rebuilt from their rows.
    REPAIRED_DEVICES_TOTAL = Metric::counter("tidings_store_repaired_devices_total").panel("Failures of the store");

    /// Registered devices.
    DEVICES = Metric::gauge("tidings_store_devices").panel("Devices and subscriptions");

    /// Devices whose token a provider has accepted.
    PROVEN_DEVICES = Metric::gauge("tidings_store_proven_devices").panel("Devices and subscriptions");

    /// Subscriptions of devices.
    SUBSCRIPTIONS = Metric::gauge("tidings_store_subscriptions").panel("Devices and subscriptions");

    /// Scheduled events that are not due yet.
    LATER_EVENTS = Metric::gauge("tidings_store_later_events").panel("Scheduled events");

    /// Pauses of sending that are in force.
    BRAKES = Metric::gauge("tidings_store_brakes").panel("Pauses in force");

    /// Bytes of the device heap's files.
    HEAP_BYTES = Metric::gauge("tidings_store_heap_bytes").panel("Device heap");

    /// Bytes of current device records in the heap's files.
    HEAP_LIVE_BYTES = Metric::gauge("tidings_store_heap_live_bytes").panel("Device heap");

    /// Bytes of current device records that are out of order.
    HEAP_SCATTERED_BYTES = Metric::gauge("tidings_store_heap_scattered_bytes").panel("Device heap");
}
