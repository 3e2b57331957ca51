//! The audit log.

use crate::metric::{Group, Metric, group};

const CONFIGURED: &str = "audit.enabled is set";

group! {
    "Audit log";

    /// Lines of the audit log that are in its files.
    LINES_TOTAL = Metric::counter("tidings_audit_lines_total").when(CONFIGURED).panel("Lines");

    /// Entries of the audit log that were lost: the disk refused them, or there were too many at once.
    LOST_TOTAL = Metric::counter("tidings_audit_lost_total").when(CONFIGURED).panel("Lines");
}
