//! What the API asks of sender and edge, which it does not see.

use std::sync::Weak;

use tidings_api::{JobState, JobView, Outcomes, TimeTo};
use tidings_edge::Edge;
use tidings_sender::{DeviceOutcome, JobReport, Sender};
use tidings_types::{DeviceNumber, JournalPosition};

/// What became of events. The router outlives the sender when the server stops: then nothing is known.
pub(super) struct Jobs(pub(super) Weak<Sender>);

impl tidings_api::Jobs for Jobs {
    fn job(&self, position: JournalPosition) -> Option<JobView> {
        self.0.upgrade()?.job(position).map(view)
    }

    fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobView> {
        let jobs = self.0.upgrade().map(|sender| sender.jobs(before, limit)).unwrap_or_default();
        jobs.into_iter().map(view).collect()
    }
}

/// Live connections.
pub(super) struct Connections(pub(super) Weak<Edge>);

impl tidings_api::Connections for Connections {
    fn revoke(&self, device: DeviceNumber, close: bool) {
        if let Some(edge) = self.0.upgrade() {
            edge.revoke(device, close);
        }
    }
}

pub(super) fn view(report: JobReport) -> JobView {
    let JobReport { position, event, state, accepted_at, done_at, audience, held, counts, time_to } = report;
    let mut outcomes = Outcomes::default();
    for (outcome, count) in counts.iter() {
        match outcome {
            DeviceOutcome::Accepted => outcomes.accepted = count,
            DeviceOutcome::Received => outcomes.received = count,
            DeviceOutcome::Expired => outcomes.expired = count,
            DeviceOutcome::Unknown => outcomes.unknown = count,
            DeviceOutcome::Cancelled => outcomes.cancelled = count,
            DeviceOutcome::Rejected(_) => _ = outcomes.rejected.insert(outcome.reason(), count),
            DeviceOutcome::Suppressed(_) => _ = outcomes.suppressed.insert(outcome.reason(), count),
        }
    }
    let state = match state {
        tidings_sender::JobState::Running => JobState::Running,
        tidings_sender::JobState::Finished => JobState::Finished,
    };
    let time_to =
        time_to.map(|tidings_sender::TimeTo { first, p50, p90, p99, p100 }| TimeTo { first, p50, p90, p99, p100 });
    JobView { position, event, accepted_at, done_at, state, audience, held, outcomes, time_to }
}
