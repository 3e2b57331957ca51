//! What the gateway counts. Levels are two counters: what began and what ended.

use tidings_push::Outcome;
use tidings_push::apns::Reason;
use tidings_telemetry::{Counter, Histogram, Registry};

/// Why a notification is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// The provider's answer allows it.
    Answer,
    /// It was certainly not processed: GOAWAY, REFUSED_STREAM.
    NotProcessed,
    /// Nobody knows whether it was processed.
    Unknown,
}

#[derive(Clone)]
pub(crate) struct Metrics {
    outcomes: [Counter; 5],
    rejected: Vec<Counter>,
    repeats: [Counter; 3],
    pub(crate) streams_opened: Counter,
    pub(crate) streams_ended: Counter,
    pub(crate) connections_opened: Counter,
    pub(crate) connections_closed: Counter,
    pub(crate) connect_failures: Counter,
    pub(crate) stalled: Counter,
    pub(crate) credential_refused: Counter,
    pub(crate) latency: Histogram,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let counter = |name: &str, help: &str| registry.counter(name, help, &[]);
        let outcome = |name| {
            let help = "Notifications that are done, by what became of them.";
            registry.counter("tidings_gateway_settled_total", help, &[("outcome", name)])
        };
        let rejected = |reason: &Reason| {
            let help = "Notifications refused for good, by the provider's reason.";
            registry.counter("tidings_gateway_rejected_total", help, &[("reason", reason.as_str())])
        };
        let repeat = |cause| {
            let help = "Attempts that are made again, by why.";
            registry.counter("tidings_gateway_repeats_total", help, &[("cause", cause)])
        };
        Self {
            outcomes: ["accepted", "rejected", "expired", "cancelled", "unknown"].map(outcome),
            rejected: Reason::ALL.iter().map(rejected).collect(),
            repeats: ["answer", "not_processed", "unknown"].map(repeat),
            streams_opened: counter("tidings_gateway_streams_opened_total", "Requests handed to a connection."),
            streams_ended: counter("tidings_gateway_streams_ended_total", "Requests whose stream has ended."),
            connections_opened: counter("tidings_gateway_connections_opened_total", "Connections made."),
            connections_closed: counter("tidings_gateway_connections_closed_total", "Connections that ended."),
            connect_failures: counter("tidings_gateway_connect_failures_total", "Connections that were not made."),
            stalled: counter("tidings_gateway_connections_stalled_total", "Connections closed for their silence."),
            credential_refused: counter(
                "tidings_gateway_credential_refused_total",
                "Connections on which the provider refused token, key or certificate.",
            ),
            latency: registry.histogram(
                "tidings_gateway_latency_seconds",
                "From taking a notification out of the lake to its outcome.",
                &[],
            ),
        }
    }

    pub(crate) fn on_settled(&self, outcome: Outcome) {
        let index = match outcome {
            Outcome::Accepted => 0,
            Outcome::Rejected(reason) => {
                self.rejected[Reason::ALL.iter().position(|it| *it == reason).expect("ALL holds all")].inc();
                1
            }
            Outcome::Expired => 2,
            Outcome::Cancelled => 3,
            Outcome::Unknown => 4,
        };
        self.outcomes[index].inc();
    }

    pub(crate) fn on_repeat(&self, cause: Repeat) {
        self.repeats[cause as usize].inc();
    }
}
