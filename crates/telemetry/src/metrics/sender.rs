//! Sending in total: events, jobs and what became of their devices.

use crate::metric::{Bounds, Group, Metric, group};

group! {
    "Sending in total";

    /// Events whose job began.
    EVENTS_DISPATCHED_TOTAL = Metric::counter("tidings_sender_events_dispatched_total").panel("Events");

    /// Devices in the audiences of events whose job began.
    DEVICES_SELECTED_TOTAL = Metric::counter("tidings_sender_devices_selected_total").panel("Devices");

    /// Devices by their outcome; when all jobs are done, the sum is the number of selected devices.
    OUTCOMES_TOTAL = Metric::counter("tidings_sender_outcomes_total").labels(&["outcome", "reason"]).panel("Outcomes");

    /// Devices that were handed to a provider, by provider and outcome.
    PROVIDER_OUTCOMES_TOTAL = Metric::counter("tidings_sender_provider_outcomes_total")
        .labels(&["provider", "outcome"])
        .panel("Outcomes by provider");

    /// Devices that were handed to a provider, by app and outcome; apps are in the order of their names, from the 65th
    /// on `other`.
    APP_OUTCOMES_TOTAL = Metric::counter("tidings_sender_app_outcomes_total")
        .labels(&["app", "outcome"])
        .panel("Outcomes by app");

    /// Devices that were handed to a provider, by the language of the text and outcome: that of a catalogue (64 at
    /// most), `source` for a topic's own text, or `other` for an event's own text in `und` or in a language without a
    /// catalogue.
    LOCALE_OUTCOMES_TOTAL = Metric::counter("tidings_sender_locale_outcomes_total")
        .labels(&["locale", "outcome"])
        .panel("Outcomes by language");

    /// Attempts after the first, counted when the device has its outcome.
    ATTEMPTS_REPEATED_TOTAL = Metric::counter("tidings_sender_attempts_repeated_total").panel("Repeated attempts");

    /// Time from the event's acceptance to the provider's answer.
    LATENCY_SECONDS = Metric::histogram("tidings_sender_latency_seconds", Bounds::Long)
        .panel("From acceptance to the provider's answer");

    /// Time to select an audience.
    SELECTION_SECONDS = Metric::histogram("tidings_sender_selection_seconds", Bounds::Latency)
        .panel("Selection of audiences");

    /// Jobs that wait to begin or to go on: for a slot, for room, or for the end of a pause.
    JOBS_WAITING = Metric::gauge("tidings_sender_jobs_waiting").panel("Jobs");

    /// Waiting jobs that can go on as soon as there is a slot.
    JOBS_READY = Metric::gauge("tidings_sender_jobs_ready").panel("Jobs");

    /// Time since the event of the oldest waiting job was accepted; 0 if no job waits.
    OLDEST_WAITING_JOB_SECONDS = Metric::gauge("tidings_sender_oldest_waiting_job_seconds")
        .panel("Age of the oldest waiting job");

    /// Bytes of the sets of waiting jobs.
    WAITING_JOB_BYTES = Metric::gauge("tidings_sender_waiting_job_bytes").panel("Bytes of waiting jobs");

    /// Events in the journal that have no job yet.
    EVENTS_BEHIND = Metric::gauge("tidings_sender_events_behind").panel("Events without a job");

    /// Finished jobs whose report is kept.
    REPORTS = Metric::gauge("tidings_sender_reports")
        .no_panel("it stays at sender.report_count_max once so many events were sent");

    /// Running jobs.
    JOBS_RUNNING = Metric::gauge("tidings_sender_jobs_running").panel("Jobs");

    /// Memory that the running jobs may take, of at most sender.job_bytes_max and one job.
    JOB_BYTES = Metric::gauge("tidings_sender_job_bytes").panel("Memory of jobs");

    /// Running jobs that wait for receipts.
    JOBS_HOLDING = Metric::gauge("tidings_sender_jobs_holding").panel("Jobs");

    /// Devices that are not pushed yet because they may prove that they got the event over a live connection.
    DEVICES_HELD = Metric::gauge("tidings_sender_devices_held").panel("Held devices");

    /// Time from an event's acceptance until a device that was held had answered or was let go.
    HOLD_SECONDS = Metric::histogram("tidings_sender_hold_seconds", Bounds::Latency).panel("Time devices are held");

    /// Jobs that stopped waiting for receipts early, to make room for others.
    HOLDS_CUT_TOTAL = Metric::counter("tidings_sender_holds_cut_total").panel("Suspended jobs");

    /// Jobs suspended because they had nothing to send or a more urgent job took their slot.
    JOBS_PUT_ASIDE_TOTAL = Metric::counter("tidings_sender_jobs_put_aside_total").panel("Suspended jobs");

    /// Finished jobs whose webhook report is not delivered yet.
    JOBS_UNTOLD = Metric::gauge("tidings_sender_jobs_untold").panel("Reports not delivered");

    /// Finished jobs deleted before their webhook report was delivered, because there were more than
    /// sender.report_count_max.
    UNTOLD_FORGOTTEN_TOTAL = Metric::counter("tidings_sender_untold_forgotten_total").panel("Reports lost");

    /// Checkpoints of jobs that were written.
    CHECKPOINTS_TOTAL = Metric::counter("tidings_sender_checkpoints_total").panel("Checkpoints of jobs");

    /// Bytes of job rows in these checkpoints.
    CHECKPOINT_BYTES_TOTAL = Metric::counter("tidings_sender_checkpoint_bytes_total").panel("Bytes of checkpoints");

    /// Checkpoints of jobs that the store refused; they are repeated until they are written.
    CHECKPOINTS_FAILED_TOTAL = Metric::counter("tidings_sender_checkpoints_failed_total").panel("Failures of sending");

    /// Reads of the journal that failed; they are repeated.
    READS_FAILED_TOTAL = Metric::counter("tidings_sender_reads_failed_total").panel("Failures of sending");

    /// Events that nobody is pushed, because they are not in the journal any more or cannot be read there; the log says which.
    EVENTS_LOST_TOTAL = Metric::counter("tidings_sender_events_lost_total").panel("Failures of sending");

    /// Tokens reported to the store as dead.
    GONE_TOKENS_TOTAL = Metric::counter("tidings_sender_gone_tokens_total").panel("Dead tokens");

    /// Dead tokens that were not reported because too many waited.
    GONE_TOKENS_DROPPED_TOTAL = Metric::counter("tidings_sender_gone_tokens_dropped_total").panel("Dead tokens");

    /// Tokens rejected as belonging to another app or environment, and kept because many were rejected at once.
    GONE_TOKENS_KEPT_TOTAL = Metric::counter("tidings_sender_gone_tokens_kept_total").panel("Dead tokens");

    /// 1 while many tokens of an app are rejected as belonging to another environment: none of them is deleted.
    ENVIRONMENT_ALARM = Metric::gauge("tidings_sender_environment_alarm")
        .labels(&["provider", "environment", "app"])
        .when("a provider is configured")
        .panel("Alarms");

    /// First acceptances of a token that were not noted because too many waited; the next acceptance is noted instead.
    PROVEN_DROPPED_TOTAL = Metric::counter("tidings_sender_proven_dropped_total").panel("Failures of sending");

    /// Jobs that pushed nothing because their audience did not have the expected size.
    UNEXPECTED_AUDIENCES_TOTAL = Metric::counter("tidings_sender_unexpected_audiences_total")
        .panel("Failures of sending");

    /// Outcomes of devices that were not in flight: a bug.
    STRAYS_TOTAL = Metric::counter("tidings_sender_strays_total").panel("Bugs");
}
