//! The gateway's metrics, labelled by provider and pool. A level is two counters: begun and ended.

use tidings_push::{Outcome, Reason};
use tidings_telemetry::{Counter, Gauge, Histogram, Registry};
use tidings_types::Provider;

/// Why a notification is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The provider's answer allows a repeat.
    Answer,
    /// The request was certainly not processed: GOAWAY, REFUSED_STREAM.
    NotProcessed,
    /// Nobody knows whether it was processed.
    Unknown,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    outcomes: [Counter; Outcome::NAMES.len()],
    /// By [`Reason::index`]. Reasons of other providers are not exported.
    rejected: Vec<Counter>,
    repeats: [Counter; 3],
    pub(crate) streams_opened: Counter,
    pub(crate) streams_ended: Counter,
    /// Streams that the peers allow now, over all working connections.
    pub(crate) streams_allowed: Gauge,
    pub(crate) connections_opened: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) connect_failures: Counter,
    /// Connections closed because the peer did not answer a PING.
    pub(crate) silent: Counter,
    /// Connections closed because the peer gave an idle connection no flow window.
    pub(crate) without_window: Counter,
    pub(crate) goaways: Counter,
    /// Connections.
    pub(crate) credential_refused: Counter,
    /// Notifications; Web Push only.
    pub(crate) vapid_refused: Counter,
    /// Access tokens fetched, and failed attempts.
    pub(crate) tokens_fetched: Counter,
    pub(crate) token_failures: Counter,
    pub(crate) pauses: Counter,
    pub(crate) latency: Histogram,
    pub(crate) round_trip: Histogram,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry, provider: Provider, pool: &str) -> Self {
        let labels = [("provider", provider.as_str()), ("pool", pool)];
        let with = |label, value| [labels[0], labels[1], (label, value)];
        let counter = |name: &str, help: &str| registry.counter(name, help, &labels);
        let outcome = |name| {
            let help = "Notifications with a final outcome, by outcome.";
            registry.counter("tidings_gateway_settled_total", help, &with("outcome", name))
        };
        let rejected = |reason: &Reason| {
            if reason.provider() != provider {
                return Counter::default();
            }
            let help = "Notifications refused for good, by the provider's reason.";
            registry.counter("tidings_gateway_rejected_total", help, &with("reason", reason.as_str()))
        };
        let repeat = |cause| {
            let help = "Repeated attempts, by cause.";
            registry.counter("tidings_gateway_repeats_total", help, &with("cause", cause))
        };
        let stalled = |cause| {
            let help = "Connections closed because the peer was silent or gave no flow window.";
            registry.counter("tidings_gateway_connections_stalled_total", help, &with("cause", cause))
        };
        let is_web_push = provider == Provider::WebPush;
        Self {
            outcomes: Outcome::NAMES.map(outcome),
            rejected: Reason::ALL.iter().map(rejected).collect(),
            repeats: ["answer", "not_processed", "unknown"].map(repeat),
            streams_opened: counter("tidings_gateway_streams_opened_total", "Requests handed to a connection."),
            streams_ended: counter("tidings_gateway_streams_ended_total", "Requests whose stream has ended."),
            streams_allowed: registry.gauge(
                "tidings_gateway_streams_allowed",
                "Streams that all connections together may have open: the provider's limits, capped by streams_max.",
                &labels,
            ),
            connections_opened: counter("tidings_gateway_connections_opened_total", "Connections opened."),
            connections_closed: counter("tidings_gateway_connections_closed_total", "Connections that ended."),
            connect_failures: counter(
                "tidings_gateway_connect_failures_total",
                "Connections that could not be opened.",
            ),
            silent: stalled("silence"),
            without_window: stalled("no_window"),
            goaways: counter(
                "tidings_gateway_goaways_total",
                "Connections that the provider has asked to end (GOAWAY).",
            ),
            credential_refused: if is_web_push {
                Counter::default()
            } else {
                let help = "Connections on which the provider refused the token, key or certificate.";
                counter("tidings_gateway_credential_refused_total", help)
            },
            vapid_refused: if is_web_push {
                counter("tidings_gateway_vapid_refused_total", "Notifications refused because of the VAPID key.")
            } else {
                Counter::default()
            },
            tokens_fetched: counter("tidings_gateway_access_tokens_total", "Access tokens that were fetched."),
            token_failures: counter(
                "tidings_gateway_access_token_failures_total",
                "Attempts to fetch an access token that failed.",
            ),
            pauses: counter(
                "tidings_gateway_pauses_total",
                "Pauses that the provider asked for because its quota was used up.",
            ),
            latency: registry.histogram(
                "tidings_gateway_latency_seconds",
                "From taking a notification out of the lake to its outcome.",
                &labels,
            ),
            round_trip: registry.histogram(
                "tidings_gateway_round_trip_seconds",
                "From a request to its answer.",
                &labels,
            ),
        }
    }

    pub(crate) fn on_settled(&self, outcome: Outcome) {
        if let Outcome::Rejected(reason) = outcome {
            self.rejected[reason.index()].inc();
        }
        self.outcomes[outcome.index()].inc();
    }

    pub(crate) fn on_repeat(&self, cause: Repeat) {
        self.repeats[cause as usize].inc();
    }
}
