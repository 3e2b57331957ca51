//! The HTTP API for back ends and apps.

use crate::metric::{Bounds, Group, Metric, group};

group! {
    "API";

    /// Requests answered, by route and HTTP status.
    REQUESTS_TOTAL = Metric::counter("tidings_api_requests_total")
        .labels(&["route", "status"])
        .when("the route has answered with this status")
        .panel("Requests");

    /// Time from a request's headers to its 202: reading, checking and making its events durable.
    ACCEPT_SECONDS = Metric::histogram("tidings_api_accept_seconds", Bounds::Latency).panel("Time to accept events");

    /// Requests refused because their API key, app or address asks too fast.
    LIMITED_TOTAL = Metric::counter("tidings_api_limited_total")
        .labels(&["by"])
        .when("limits.key_per_second is set or apps are enabled")
        .panel("Requests that came too fast");

    /// Errors in answers of Centrifugo's server API, by code.
    CENTRIFUGO_ERRORS_TOTAL = Metric::counter("tidings_api_centrifugo_errors_total")
        .labels(&["code"])
        .panel("Errors of /api");

    /// Answers that could not be converted to MessagePack; each is a bug and was answered with 500.
    UNPACKABLE_TOTAL = Metric::counter("tidings_api_unpackable_total").panel("Bugs");
}
