//! Sending spans of traces to a collector.

use crate::metric::{Group, Metric, group};

const CONFIGURED: &str = "traces.endpoint is set";

group! {
    "Traces";

    /// Spans of traces that were recorded.
    SPANS_TOTAL = Metric::counter("tidings_traces_spans_total").when(CONFIGURED).panel("Spans");

    /// Spans of traces that were lost, by reason: `full` (too many waited), `refused` (the collector did not take them).
    DROPPED_TOTAL = Metric::counter("tidings_traces_dropped_total")
        .labels(&["reason"])
        .when(CONFIGURED)
        .panel("Spans");
}
