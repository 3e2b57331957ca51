//! Levels of the sender that are read at each scrape: the jobs that wait, and the events without a job.

use std::sync::Arc;

use tidings_telemetry::metrics::sender as metrics;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::JournalPosition;
use tokio::sync::watch;

use crate::registry::{JobRegistry, Table};

/// Makes them part of `registry`. They are zero after the sender's end.
pub(crate) fn register(registry: &Registry, jobs: &Arc<JobRegistry>, journal_end: watch::Receiver<JournalPosition>) {
    let level = |metric, value: fn(&Table) -> f64| {
        let jobs = Arc::downgrade(jobs);
        let read = move || jobs.upgrade().map_or(0.0, |jobs| value(&jobs.table()));
        registry.computed(metric, &[], Arc::new(read));
    };
    level(&metrics::JOBS_WAITING, |table| table.waiting.len() as f64);
    level(&metrics::JOBS_READY, |table| table.waiting.ready_count() as f64);
    level(&metrics::OLDEST_WAITING_JOB_SECONDS, |table| {
        let accepted_at = table.waiting.first_accepted_at();
        accepted_at.map_or(0.0, |at| unix_now().saturating_since(at).as_secs_f64())
    });
    level(&metrics::WAITING_JOB_BYTES, |table| table.waiting.bytes() as f64);
    level(&metrics::REPORTS, |table| table.finished.len() as f64);
    let jobs = Arc::downgrade(jobs);
    let behind = move || {
        let next = jobs.upgrade().map(|jobs| jobs.table().next);
        next.map_or(0.0, |next| journal_end.borrow().0.saturating_sub(next.0) as f64)
    };
    registry.computed(&metrics::EVENTS_BEHIND, &[], Arc::new(behind));
}
