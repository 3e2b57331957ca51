//! The server itself: what runs, its log, texts and keys, and bugs.

use crate::metric::{Group, Metric, group};

group! {
    "The server itself";

    /// Always 1; the labels say what runs.
    BUILD_INFO = Metric::gauge("tidings_build_info").labels(&["version", "commit"]).panel("Version");

    /// Free bytes of the file system of the data folder, for others than root.
    DISK_FREE_BYTES = Metric::gauge("tidings_disk_free_bytes").panel("Disk");

    /// All bytes of the file system of the data folder.
    DISK_SIZE_BYTES = Metric::gauge("tidings_disk_size_bytes").panel("Disk");

    /// Bytes that a part of the memory may take at most, as `tidings config check` says.
    MEMORY_BOUND_BYTES = Metric::gauge("tidings_memory_bound_bytes").labels(&["part"]).panel("Bounded memory");

    /// Bytes that this part takes now, if its level is known: the number of its things times what one is said to take.
    MEMORY_USED_BYTES = Metric::gauge("tidings_memory_used_bytes").labels(&["part"]).panel("Bounded memory");

    /// 1 while the topics or translations that were read last are wrong, or the configuration could not be read for
    /// them, and others are in force.
    TEXTS_FAULTY = Metric::gauge("tidings_texts_faulty").panel("Alarms");

    /// Fetches of the keys of tokens from a JWKS endpoint, by kind of token and result.
    JWKS_FETCHES_TOTAL = Metric::counter("tidings_jwks_fetches_total")
        .labels(&["token", "result"])
        .when("keys come from a JWKS endpoint")
        .panel("Fetches of keys");

    /// Keys of the last JWKS document.
    JWKS_KEYS = Metric::gauge("tidings_jwks_keys")
        .labels(&["token"])
        .when("keys come from a JWKS endpoint")
        .no_panel("it changes only when the issuer changes its keys");

    /// Log lines, written or dropped.
    LOG_LINES_TOTAL = Metric::counter("tidings_log_lines_total").panel("Log lines");

    /// Log lines that standard error did not take in time.
    LOG_DROPPED_TOTAL = Metric::counter("tidings_log_dropped_total").panel("Log lines");

    /// Bytes of log lines that wait for standard error.
    LOG_WAITING_BYTES = Metric::gauge("tidings_log_waiting_bytes")
        .no_panel("it is not zero only while standard error is slow; then lines are dropped, which is shown");

    /// Panics that ended one piece of work, by kind of work; each is a bug, and the log says where.
    PANICS_TOTAL = Metric::counter("tidings_panics_total").labels(&["work"]).panel("Bugs");

    /// Series that are not exported because there are 4096 already.
    TELEMETRY_SERIES_REFUSED_TOTAL = Metric::counter("tidings_telemetry_series_refused_total").panel("Bugs");
}
