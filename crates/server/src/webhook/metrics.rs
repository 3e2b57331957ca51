//! What the webhook counts and times.

use tidings_telemetry::{Counter, Gauge, Histogram, Registry};

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
    pub(super) fn new(registry: &Registry, name: &'static str, help: &'static str) -> Self {
        let of = |result| registry.counter(name, help, &[("result", result)]);
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
        let help = "Attempts to send a report, by result.";
        Self {
            attempts: Attempts::new(registry, "tidings_webhook_attempts_total", help),
            told: registry.counter("tidings_webhook_told_total", "Reports that the receiver has taken.", &[]),
            given_up: registry.counter(
                "tidings_webhook_given_up_total",
                "Reports that the receiver had not taken when webhook.give_up_after was over.",
                &[],
            ),
            in_flight: registry.gauge("tidings_webhook_in_flight", "Reports in flight.", &[]),
            closed: registry.gauge(
                "tidings_webhook_closed",
                "1 when the receiver has answered 410 (Gone): nothing is sent until SIGHUP or a restart.",
                &[],
            ),
            attempt: registry.histogram("tidings_webhook_attempt_seconds", "How long an attempt took.", &[]),
            delay: registry.histogram(
                "tidings_webhook_delay_seconds",
                "From the end of a job until the receiver has taken its report.",
                &[],
            ),
        }
    }
}
