//! The process, under the names that every Prometheus client library uses, so that existing dashboards and alerts fit.

use crate::metric::{Group, Metric, group};

group! {
    "Process";

    /// Resident memory size in bytes.
    RESIDENT_MEMORY_BYTES = Metric::gauge("process_resident_memory_bytes").panel("Memory");

    /// Total user and system CPU time spent in seconds.
    CPU_SECONDS_TOTAL = Metric::counter("process_cpu_seconds_total").panel("Processor time");

    /// Number of threads.
    THREADS = Metric::gauge("process_threads").panel("Threads");

    /// Number of open file descriptors.
    OPEN_FDS = Metric::gauge("process_open_fds").panel("Open files");

    /// Maximum number of open file descriptors.
    MAX_FDS = Metric::gauge("process_max_fds").panel("Open files");

    /// Start time of the process since the Unix epoch in seconds.
    START_TIME_SECONDS = Metric::gauge("process_start_time_seconds").panel("Start");
}
