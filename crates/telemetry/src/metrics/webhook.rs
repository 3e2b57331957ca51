//! The webhook: reports of jobs, and changes of who is here.

use crate::metric::{Bounds, Group, Metric, group};

const REPORTS: &str = "the webhook is configured";
const PRESENCE: &str = "the webhook is told who is here";

group! {
    "Webhook";

    /// Attempts to send a report, by result.
    ATTEMPTS_TOTAL = Metric::counter("tidings_webhook_attempts_total")
        .labels(&["result"])
        .when(REPORTS)
        .panel("Attempts");

    /// Reports that the receiver has taken.
    TOLD_TOTAL = Metric::counter("tidings_webhook_told_total").when(REPORTS).panel("Reports");

    /// Reports that the receiver had not taken when webhook.give_up_after was over.
    GIVEN_UP_TOTAL = Metric::counter("tidings_webhook_given_up_total").when(REPORTS).panel("Reports");

    /// Reports in flight.
    IN_FLIGHT = Metric::gauge("tidings_webhook_in_flight").when(REPORTS).panel("In flight");

    /// 1 when the receiver has answered 410 (Gone): nothing is sent until SIGHUP or a restart.
    CLOSED = Metric::gauge("tidings_webhook_closed").when(REPORTS).panel("Receiver gone");

    /// How long an attempt took.
    ATTEMPT_SECONDS = Metric::histogram("tidings_webhook_attempt_seconds", Bounds::Latency)
        .when(REPORTS)
        .panel("Time of an attempt");

    /// Time from the end of a job until the receiver has taken its report.
    DELAY_SECONDS = Metric::histogram("tidings_webhook_delay_seconds", Bounds::Long)
        .when(REPORTS)
        .panel("From the job's end to its report");

    /// Attempts to send a batch of changes of who is here, by result.
    PRESENCE_WEBHOOK_ATTEMPTS_TOTAL = Metric::counter("tidings_presence_webhook_attempts_total")
        .labels(&["result"])
        .when(PRESENCE)
        .panel("Attempts");

    /// Changes of who is here that the receiver has taken.
    PRESENCE_WEBHOOK_TOLD_TOTAL = Metric::counter("tidings_presence_webhook_told_total")
        .when(PRESENCE)
        .panel("Changes of who is here");

    /// Changes of who is here that were dropped, because more than webhook.presence_count_max waited.
    PRESENCE_WEBHOOK_LOST_TOTAL = Metric::counter("tidings_presence_webhook_lost_total")
        .when(PRESENCE)
        .panel("Changes of who is here");

    /// Changes of who is here that wait.
    PRESENCE_WEBHOOK_BACKLOG = Metric::gauge("tidings_presence_webhook_backlog")
        .when(PRESENCE)
        .panel("Waiting changes of who is here");

    /// 1 when the receiver has answered 410 (Gone): nothing is sent until SIGHUP or a restart.
    PRESENCE_WEBHOOK_CLOSED = Metric::gauge("tidings_presence_webhook_closed").when(PRESENCE).panel("Receiver gone");
}
