//! Hooks: questions to a back end.

use crate::metric::{Bounds, Group, Metric, group};

const CONFIGURED: &str = "a hook is configured";

group! {
    "Hooks";

    /// Calls of a hook, by result; `busy` and `breaker` were refused without asking the back end.
    CALLS_TOTAL = Metric::counter("tidings_hooks_calls_total")
        .labels(&["hook", "result"])
        .when(CONFIGURED)
        .panel("Calls");

    /// How long a call of a hook took.
    CALL_SECONDS = Metric::histogram("tidings_hooks_call_seconds", Bounds::Latency)
        .labels(&["hook"])
        .when(CONFIGURED)
        .panel("Time of a call");

    /// Calls of a hook in flight.
    IN_FLIGHT = Metric::gauge("tidings_hooks_in_flight").labels(&["hook"]).when(CONFIGURED).panel("In flight");
}
