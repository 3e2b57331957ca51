//! What the sender may hold in memory.

use tidings_jobs::{Extent, JobSize, WAITING_BYTES_PART, WAITING_PER_SLOT};
use tidings_telemetry::memory::Term;

use crate::config::SenderConfig;

/// Renderings of the largest job for each app: in all places that typed values may have, and in as many languages.
const RENDERING_COUNT: usize = 1024;
/// A waiting job without its sets and counts: its row and its entries in the sets of waiting jobs.
const WAITING_JOB_BYTES: usize = 1 << 10;
/// A dead token that waits for the store, about the size of a waiting notification.
const GONE_BYTES: usize = 512;
/// The counts of a finished job.
const REPORT_BYTES: usize = 1 << 10;

impl SenderConfig {
    /// What jobs, their reports and trails may take, with so many devices, of which so many may be connected, and so many
    /// apps of all pools.
    pub fn memory_terms(&self, device_count_max: usize, connection_count_max: usize, lane_count: usize) -> Vec<Term> {
        // Each setting is named, so that a new one is not forgotten here.
        let Self {
            job_count_max,
            job_bytes_max,
            window_device_count: _, // In the largest job.
            window_open_count_max: _,
            report_count_max,
            gone_token_count_max,
            why_bytes_max,
            checkpoint_interval: _,
            doubt_window: _,
            tell_finished: _,
            why_ttl: _,
            shadow: _,
            tracer: _,
            tenure: _,
        } = self;
        // The largest job may begin while there is room for a small one.
        let jobs = job_bytes_max.saturating_add(self.largest_job(device_count_max, connection_count_max, lane_count));
        let waiting = WAITING_PER_SLOT.saturating_mul(*job_count_max);
        vec![
            Term::peak("jobs", 1, jobs, "sender.job_bytes_max, store.device_count_max, *.apps"),
            Term::peak("waiting jobs", waiting, WAITING_JOB_BYTES, "sender.job_count_max"),
            Term::peak("sets of waiting jobs", 1, job_bytes_max / WAITING_BYTES_PART, "sender.job_bytes_max"),
            // New jobs wait when there are twice as many.
            Term::standing("reports", report_count_max.saturating_mul(2), REPORT_BYTES, "sender.report_count_max"),
            Term::peak("dead tokens", *gone_token_count_max, GONE_BYTES, "sender.gone_token_count_max"),
            Term::peak("trails of jobs", 1, *why_bytes_max, "sender.why_bytes_max"),
        ]
    }

    /// Bytes of a job for all devices, of which as many answer as may be connected.
    fn largest_job(&self, device_count_max: usize, connection_count_max: usize, lane_count: usize) -> usize {
        let audience = Extent::dense(device_count_max as u64);
        let size = JobSize {
            audience,
            muted: audience,
            lane_count,
            in_flight_max: (self.window_device_count * self.window_open_count_max) as u64,
            rendering_count: lane_count * RENDERING_COUNT,
        };
        let answered = Extent { len: audience.len.min(connection_count_max as u64), ..audience };
        size.bytes().saturating_add(answered.bytes(1) as usize)
    }
}
