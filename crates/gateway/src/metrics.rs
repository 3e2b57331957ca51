//! The gateway's metrics, labelled by provider and pool. A level is two counters: begun and ended.

use tidings_push::{Outcome, Reason};
use tidings_telemetry::metrics::gateway as table;
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
    /// Push services of browsers that answered before and fail now.
    pub(crate) failing_services: Gauge,
    /// Access tokens fetched, and failed attempts.
    pub(crate) tokens_fetched: Counter,
    pub(crate) token_failures: Counter,
    pub(crate) pauses: Counter,
    pub(crate) latency: Histogram,
    /// In the lake.
    pub(crate) queued: Histogram,
    pub(crate) round_trip: Histogram,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry, provider: Provider, pool: &str) -> Self {
        let labels = [provider.as_str(), pool];
        let counter = |metric| registry.counter(metric, &labels);
        let with = |metric, value| registry.counter(metric, &[labels[0], labels[1], value]);
        let rejected = |reason: &Reason| {
            if reason.provider() == provider {
                with(&table::REJECTED_TOTAL, reason.as_str())
            } else {
                Counter::default()
            }
        };
        let is_web_push = provider == Provider::WebPush;
        let counter_if = |is_there, metric| if is_there { counter(metric) } else { Counter::default() };
        Self {
            outcomes: Outcome::NAMES.map(|name| with(&table::SETTLED_TOTAL, name)),
            rejected: Reason::ALL.iter().map(rejected).collect(),
            repeats: ["answer", "not_processed", "unknown"].map(|cause| with(&table::REPEATS_TOTAL, cause)),
            streams_opened: counter(&table::STREAMS_OPENED_TOTAL),
            streams_ended: counter(&table::STREAMS_ENDED_TOTAL),
            streams_allowed: registry.gauge(&table::STREAMS_ALLOWED, &labels),
            connections_opened: counter(&table::CONNECTIONS_OPENED_TOTAL),
            connections_closed: counter(&table::CONNECTIONS_CLOSED_TOTAL),
            connect_failures: counter(&table::CONNECT_FAILURES_TOTAL),
            silent: with(&table::CONNECTIONS_STALLED_TOTAL, "silence"),
            without_window: with(&table::CONNECTIONS_STALLED_TOTAL, "no_window"),
            goaways: counter(&table::GOAWAYS_TOTAL),
            credential_refused: counter_if(!is_web_push, &table::CREDENTIAL_REFUSED_TOTAL),
            vapid_refused: counter_if(is_web_push, &table::VAPID_REFUSED_TOTAL),
            failing_services: if is_web_push {
                registry.gauge(&table::FAILING_SERVICES, &labels)
            } else {
                Gauge::default()
            },
            tokens_fetched: counter(&table::ACCESS_TOKENS_TOTAL),
            token_failures: counter(&table::ACCESS_TOKEN_FAILURES_TOTAL),
            pauses: counter(&table::PAUSES_TOTAL),
            latency: registry.histogram(&table::LATENCY_SECONDS, &labels),
            queued: registry.histogram(&table::LAKE_SECONDS, &labels),
            round_trip: registry.histogram(&table::ROUND_TRIP_SECONDS, &labels),
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
