//! The gateways: connections to providers, and what they answer.

use crate::metric::{Bounds, Group, Metric, group};

const POOL: &[&str] = &["provider", "pool"];
const CONFIGURED: &str = "a provider is configured";

group! {
    "Connections to providers";

    /// Notifications with a final outcome, by outcome.
    SETTLED_TOTAL = Metric::counter("tidings_gateway_settled_total")
        .labels(&["provider", "pool", "outcome"])
        .when(CONFIGURED)
        .panel("Outcomes");

    /// Notifications refused for good, by the provider's reason.
    REJECTED_TOTAL = Metric::counter("tidings_gateway_rejected_total")
        .labels(&["provider", "pool", "reason"])
        .when(CONFIGURED)
        .panel("Refusals by reason");

    /// Repeated attempts, by cause.
    REPEATS_TOTAL = Metric::counter("tidings_gateway_repeats_total")
        .labels(&["provider", "pool", "cause"])
        .when(CONFIGURED)
        .panel("Repeated attempts");

    /// Notifications that wait for a connection.
    LAKE_NOTIFICATIONS = Metric::gauge("tidings_gateway_lake_notifications")
        .labels(&["provider", "pool", "line", "priority"])
        .when(CONFIGURED)
        .panel("Waiting notifications");

    /// Time that a notification waited for a connection, counted when it has its outcome.
    LAKE_SECONDS = Metric::histogram("tidings_gateway_lake_seconds", Bounds::Long)
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Time in the lake");

    /// Time from taking a notification out of the lake to its outcome.
    LATENCY_SECONDS = Metric::histogram("tidings_gateway_latency_seconds", Bounds::Latency)
        .labels(POOL)
        .when(CONFIGURED)
        .panel("From the lake to the outcome");

    /// Time from a request to its answer.
    ROUND_TRIP_SECONDS = Metric::histogram("tidings_gateway_round_trip_seconds", Bounds::Latency)
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Round trip");

    /// Requests handed to a connection.
    STREAMS_OPENED_TOTAL = Metric::counter("tidings_gateway_streams_opened_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Streams");

    /// Requests whose stream has ended.
    STREAMS_ENDED_TOTAL = Metric::counter("tidings_gateway_streams_ended_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Streams");

    /// Streams that all connections together may have open: the provider's limits, capped by streams_max.
    STREAMS_ALLOWED = Metric::gauge("tidings_gateway_streams_allowed")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Allowed streams");

    /// Connections opened.
    CONNECTIONS_OPENED_TOTAL = Metric::counter("tidings_gateway_connections_opened_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Connections");

    /// Connections that ended.
    CONNECTIONS_CLOSED_TOTAL = Metric::counter("tidings_gateway_connections_closed_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Connections");

    /// 1 while no connection is up and every address of the provider failed several times in a row.
    BREAKER_OPEN = Metric::gauge("tidings_gateway_breaker_open")
        .labels(POOL)
        .when("APNs or FCM is configured")
        .panel("Alarms");

    /// Push services of browsers that answered after the start and then failed several times in a row; others may be made up.
    FAILING_SERVICES = Metric::gauge("tidings_gateway_failing_services")
        .labels(POOL)
        .when("Web Push is configured")
        .panel("Alarms");

    /// Seconds until the certificate ends with which we prove who we are; 0 when it has ended.
    CREDENTIAL_EXPIRY_SECONDS = Metric::gauge("tidings_gateway_credential_expiry_seconds")
        .labels(POOL)
        .when("the provider knows us by a certificate")
        .panel("Time until a certificate ends");

    /// Connections that could not be opened.
    CONNECT_FAILURES_TOTAL = Metric::counter("tidings_gateway_connect_failures_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Trouble with connections");

    /// Connections closed because the peer did not answer a PING (`silence`), or gave an idle connection no flow window
    /// (`no_window`).
    CONNECTIONS_STALLED_TOTAL = Metric::counter("tidings_gateway_connections_stalled_total")
        .labels(&["provider", "pool", "cause"])
        .when(CONFIGURED)
        .panel("Trouble with connections");

    /// Connections that the provider has asked to end (GOAWAY).
    GOAWAYS_TOTAL = Metric::counter("tidings_gateway_goaways_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Trouble with connections");

    /// Connections on which the provider refused the token, key or certificate.
    CREDENTIAL_REFUSED_TOTAL = Metric::counter("tidings_gateway_credential_refused_total")
        .labels(POOL)
        .when("APNs or FCM is configured")
        .panel("Refused credentials");

    /// Notifications that a push service refused because of the VAPID key.
    VAPID_REFUSED_TOTAL = Metric::counter("tidings_gateway_vapid_refused_total")
        .labels(POOL)
        .when("Web Push is configured")
        .panel("Refused credentials");

    /// Access tokens that were fetched.
    ACCESS_TOKENS_TOTAL = Metric::counter("tidings_gateway_access_tokens_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Access tokens");

    /// Attempts to fetch an access token that failed.
    ACCESS_TOKEN_FAILURES_TOTAL = Metric::counter("tidings_gateway_access_token_failures_total")
        .labels(POOL)
        .when(CONFIGURED)
        .panel("Access tokens");

    /// Pauses that the provider asked for because its quota was used up.
    PAUSES_TOTAL = Metric::counter("tidings_gateway_pauses_total").labels(POOL).when(CONFIGURED).panel("Pauses");
}
