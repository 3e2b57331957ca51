//! The store: what is durable, and what it costs to write it.

use crate::metric::{Bounds, Group, Metric, group};

group! {
    "Store";

    /// Time of a commit, by durability: `synced` waits for the disk, `handed` leaves the rows with the operating
    /// system.
    COMMIT_SECONDS = Metric::histogram("tidings_store_commit_seconds", Bounds::Latency)
        .labels(&["durability"])
        .panel("Time of a commit");

    /// Batches written.
    BATCHES_TOTAL = Metric::counter("tidings_store_batches_total").panel("Batches and requests");

    /// Requests in the batches written; divided by the batches, how many share one sync.
    REQUESTS_TOTAL = Metric::counter("tidings_store_requests_total").panel("Batches and requests");

    /// Requests that wait for the committer, by queue.
    QUEUE_REQUESTS = Metric::gauge("tidings_store_queue_requests").labels(&["queue"]).panel("Waiting requests");

    /// Bytes of the requests that wait for the committer, by queue.
    QUEUE_BYTES = Metric::gauge("tidings_store_queue_bytes").labels(&["queue"]).panel("Waiting bytes");

    /// Requests refused because a queue was full.
    OVERLOADED_TOTAL = Metric::counter("tidings_store_overloaded_total").panel("Refused requests");

    /// Batches that could not be written, and requests that were refused because of a damaged row.
    FAILURES_TOTAL = Metric::counter("tidings_store_failures_total").panel("Failures of the store");

    /// Times the store was opened again after a failed batch.
    REOPENED_TOTAL = Metric::counter("tidings_store_reopened_total").panel("Failures of the store");

    /// Damaged device records that were rebuilt from their rows.
    REPAIRED_DEVICES_TOTAL = Metric::counter("tidings_store_repaired_devices_total").panel("Failures of the store");

    /// Times the store was opened without a usable checkpoint, by reading all rows.
    REBUILT_TOTAL = Metric::counter("tidings_store_rebuilt_total").panel("Failures of the store");

    /// Events that the journal keeps.
    JOURNAL_EVENTS = Metric::gauge("tidings_store_journal_events").panel("Journal");

    /// Bytes of the events that the journal keeps.
    JOURNAL_BYTES = Metric::gauge("tidings_store_journal_bytes").panel("Bytes of the journal");

    /// Checkpoints of devices and audience index written.
    CHECKPOINTS_TOTAL = Metric::counter("tidings_store_checkpoints_total").panel("Checkpoints of the store");

    /// Checkpoints that could not be written.
    CHECKPOINTS_FAILED_TOTAL = Metric::counter("tidings_store_checkpoints_failed_total").panel("Failures of the store");

    /// Time to write a checkpoint.
    CHECKPOINT_SECONDS = Metric::histogram("tidings_store_checkpoint_seconds", Bounds::Latency)
        .panel("Time of a checkpoint");

    /// Time since the last checkpoint was written, or since the start; it grows while little changes.
    CHECKPOINT_AGE_SECONDS = Metric::gauge("tidings_store_checkpoint_age_seconds").panel("Age of the checkpoint");

    /// Changes since the last checkpoint began, which the next start would have to read.
    CHECKPOINT_PENDING_CHANGES = Metric::gauge("tidings_store_checkpoint_pending_changes")
        .panel("Changes since the checkpoint");

    /// Registered devices.
    DEVICES = Metric::gauge("tidings_store_devices").panel("Devices and subscriptions");

    /// Devices that are in memory as a whole, because the disk has no room for them or one of their names has no number.
    RESIDENT_DEVICES = Metric::gauge("tidings_store_resident_devices").panel("Devices kept in memory");

    /// Different names of a kind that devices have or had until lately, and groups of devices with equal platform, locale and country: at most 4096 each.
    DEVICE_NAMES = Metric::gauge("tidings_store_device_names").labels(&["kind"]).panel("Names of devices");

    /// Devices whose token a provider has accepted.
    PROVEN_DEVICES = Metric::gauge("tidings_store_proven_devices").panel("Devices and subscriptions");

    /// Devices deleted because they were not seen for longer than store.device_idle_max.
    EXPIRED_DEVICES_TOTAL = Metric::counter("tidings_store_expired_devices_total").panel("Deleted devices");

    /// Subscriptions of devices.
    SUBSCRIPTIONS = Metric::gauge("tidings_store_subscriptions").panel("Devices and subscriptions");

    /// Scheduled events that are not due yet.
    LATER_EVENTS = Metric::gauge("tidings_store_later_events").panel("Scheduled events");

    /// Pauses of sending that are in force.
    BRAKES = Metric::gauge("tidings_store_brakes").panel("Pauses in force");

    /// How long the oldest pause in force has been on; 0 without one.
    BRAKE_SECONDS = Metric::gauge("tidings_store_brake_seconds").panel("Age of the oldest pause");

    /// Jobs that are cancelled and whose row still exists.
    CANCELLED_JOBS = Metric::gauge("tidings_store_cancelled_jobs").panel("Pauses in force");

    /// Bytes of the device heap's files.
    HEAP_BYTES = Metric::gauge("tidings_store_heap_bytes").panel("Device heap");

    /// Bytes of current device records in the heap's files.
    HEAP_LIVE_BYTES = Metric::gauge("tidings_store_heap_live_bytes").panel("Device heap");

    /// Bytes of current device records that are out of order.
    HEAP_SCATTERED_BYTES = Metric::gauge("tidings_store_heap_scattered_bytes").panel("Device heap");

    /// Scans: reads of rows in a range, by the place in the code that asks.
    SCANS_TOTAL = Metric::counter("tidings_store_scans_total").labels(&["place"]).panel("Scans of the store");

    /// Rows that scans have read, by place.
    SCANNED_ROWS_TOTAL = Metric::counter("tidings_store_scanned_rows_total").labels(&["place"]).panel("Rows in scans");

    /// Time that scans took, by place; one that takes far longer per row than before walks over deleted rows.
    SCAN_SECONDS_TOTAL = Metric::counter("tidings_store_scan_seconds_total").labels(&["place"]).panel("Time of scans");

    /// Deleted rows that the files of a table still have, until a compaction drops them.
    TOMBSTONES = Metric::gauge("tidings_store_tombstones").labels(&["table"]).panel("Deleted rows in files");
}
