//! What the webhook counts and times.

use tidings_telemetry::metrics::webhook as table;
use tidings_telemetry::{Counter, Gauge, Histogram, Metric, Registry};

use super::answer::Answer;

/// Attempts by their result.
pub(super) struct Attempts {
    taken: Counter,
    failed: Counter,
    busy: Counter,
    gone: Counter,
    unsent: Counter,
}

impl Attempts {
    pub(super) fn new(registry: &Registry, metric: &'static Metric) -> Self {
        let of = |result| registry.counter(metric, &[result]);
        Self { taken: of("taken"), failed: of("failed"), busy: of("busy"), gone: of("gone"), unsent: of("unsent") }
    }

    pub(super) fn count(&self, answer: Answer) {
        match answer {
            Answer::Taken => &self.taken,
            Answer::Failed { .. } => &self.failed,
            Answer::Busy { .. } => &self.busy,
            Answer::Gone => &self.gone,
            Answer::Unsent => &self.unsent,
        }
        .inc();
    }
}

pub(super) struct Metrics {
    pub(super) attempts: Attempts,
    pub(super) told: Counter,
    pub(super) given_up: Counter,
    pub(super) in_flight: Gauge,
    pub(super) closed: Gauge,
    pub(super) attempt: Histogram,
    /// From the job's end to the receiver's acceptance.
    pub(super) delay: Histogram,
}

impl Metrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let gauge = |metric| registry.gauge(metric, &[]);
        Self {
            attempts: Attempts::new(registry, &table::ATTEMPTS_TOTAL),
            told: registry.counter(&table::TOLD_TOTAL, &[]),
            given_up: registry.counter(&table::GIVEN_UP_TOTAL, &[]),
            in_flight: gauge(&table::IN_FLIGHT),
            closed: gauge(&table::CLOSED),
            attempt: registry.histogram(&table::ATTEMPT_SECONDS, &[]),
            delay: registry.histogram(&table::DELAY_SECONDS, &[]),
        }
    }
}
