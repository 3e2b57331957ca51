//! Starts the audit log, and records in it what the server does by itself. What callers do, the API records.

use std::io;
use std::time::Duration;

use tidings_audit::{Audit, AuditConfig, Entry};
use tidings_config::Config;
use tidings_telemetry::{Registry, unix_now};

use crate::data_folder;

/// `None`: it is off.
pub(crate) fn start(config: &Config, registry: &Registry) -> io::Result<Option<Audit>> {
    let audit = &config.audit;
    let files = AuditConfig {
        folder: config.data_dir.join(data_folder::AUDIT),
        file_bytes_max: audit.file_bytes_max.as_usize() as u64,
        file_count_max: audit.file_count_max,
        is_logged: audit.log,
    };
    audit.enabled.then(|| Audit::start(files, registry)).transpose()
}

/// Records an action of the server itself.
pub(crate) fn of_system(audit: Option<&Audit>, action: &'static str, is_done: bool) {
    if let Some(audit) = audit {
        audit.record(Entry::of_system(action, is_done));
    }
}

/// Records that events of an earlier run go on.
pub(crate) fn restored(audit: Option<&Audit>, event_count: u64) {
    if let (Some(audit), 1..) = (audit, event_count) {
        audit.record(Entry { count: event_count, ..Entry::of_system("jobs.restore", true) });
    }
}

/// Goes on until it is dropped.
pub(crate) async fn sum_up(audit: Audit) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    loop {
        interval.tick().await;
        audit.sum_up(unix_now());
    }
}
