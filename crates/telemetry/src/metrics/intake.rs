//! Sources of events besides the API. There are at most 64.

use crate::metric::{Group, Metric, group};

const CONFIGURED: &str = "a source is configured";

group! {
    "Sources of events";

    /// Documents of a source, by what reading them came to: `read`, `unchanged` (304) or `failed`.
    DOCUMENTS_TOTAL = Metric::counter("tidings_intake_documents_total")
        .labels(&["source", "result"])
        .when(CONFIGURED)
        .panel("Documents");

    /// Entries of a source, by what became of them: `sent`, `repeated`, `skipped` or `wrong`; an entry counts each time
    /// that it is read.
    ENTRIES_TOTAL = Metric::counter("tidings_intake_entries_total")
        .labels(&["source", "result"])
        .when(CONFIGURED)
        .panel("Entries");

    /// Bytes of documents, inflated.
    BYTES_TOTAL = Metric::counter("tidings_intake_bytes_total").labels(&["source"]).when(CONFIGURED).panel("Bytes");

    /// Failures in a row to read a source; 0 while it works.
    FAILURES = Metric::gauge("tidings_intake_failures").labels(&["source"]).when(CONFIGURED).panel("Failures in a row");
}
