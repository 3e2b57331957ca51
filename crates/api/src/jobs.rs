//! `GET /v1/jobs`, and what a job looks like from outside.
//!
//! Who runs the jobs is asked through [`Jobs`]; the API knows no sender. A job is named by its event's place in the journal.
//! Finished jobs are remembered for a while, newest first; a page ends where that memory does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use tidings_types::{EventId, JournalPosition, Timestamp};

use crate::Shared;
use crate::input::shown;
use crate::problem::{Invalid, Problem, json};
use crate::query::Params;
use crate::rfc3339::Rfc3339;

/// Knows what became of the events that are pushed. Must not wait.
pub trait Jobs: Send + Sync {
    /// The job of the event at `position`; `None` before the event's turn and when the job is forgotten. One that an earlier
    /// run began and that waits to go on is a running one.
    fn job(&self, position: JournalPosition) -> Option<JobView>;

    /// The newest jobs of events before `before`, newest first.
    fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobView>;
}

/// What became of one event's audience so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobView {
    /// The event's place in the journal.
    pub position: JournalPosition,
    /// The event.
    pub event: EventId,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// When the job was done; `None` while it runs, and for one that an older version has finished.
    pub done_at: Option<Timestamp>,
    /// Where the job stands.
    pub state: JobState,
    /// Devices selected.
    pub audience: u64,
    /// Devices that are not pushed yet because they may still prove that they got it.
    pub held: u64,
    /// Devices by what became of them; the others are still on their way.
    pub outcomes: Outcomes,
    /// When the provider's answers came; `None` before the first.
    pub time_to: Option<TimeTo>,
}

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Devices are still without an outcome.
    Running,
    /// Every selected device has its outcome.
    Finished,
}

/// Devices by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Outcomes {
    /// The provider took the notification.
    pub accepted: u64,
    /// Not pushed: the device proved that it has it.
    pub received: u64,
    /// The event's time was over before a provider took it.
    pub expired: u64,
    /// An attempt was made, and what came of it is not known.
    pub unknown: u64,
    /// The job was cancelled before a provider took it.
    pub cancelled: u64,
    /// The provider refused it for good, by its reason.
    pub rejected: BTreeMap<&'static str, u64>,
    /// Not sent to, by our reason.
    pub suppressed: BTreeMap<&'static str, u64>,
}

/// When a job's answers came, counted from the event's acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeTo {
    /// The first answer.
    pub first: Duration,
    /// Half of them.
    pub p50: Duration,
    /// Nine in ten.
    pub p90: Duration,
    /// 99 in a hundred.
    pub p99: Duration,
    /// The last one.
    pub p100: Duration,
}

/// The counts of a job, as they are spelt.
#[derive(Debug, Serialize)]
pub(crate) struct Progress {
    #[serde(skip_serializing_if = "Option::is_none")]
    done_at: Option<Rfc3339>,
    audience: u64,
    held: u64,
    outcomes: Outcomes,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_to: Option<TimeToMillis>,
}

#[derive(Debug, Serialize)]
struct TimeToMillis {
    first_ms: u64,
    p50_ms: u64,
    p90_ms: u64,
    p99_ms: u64,
    p100_ms: u64,
}

impl Progress {
    pub(crate) fn new(job: JobView) -> Self {
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let time_to = |TimeTo { first, p50, p90, p99, p100 }| TimeToMillis {
            first_ms: millis(first),
            p50_ms: millis(p50),
            p90_ms: millis(p90),
            p99_ms: millis(p99),
            p100_ms: millis(p100),
        };
        let JobView { audience, held, outcomes, .. } = job;
        Self { done_at: job.done_at.map(Rfc3339), audience, held, outcomes, time_to: job.time_to.map(time_to) }
    }
}

/// A job as `GET /v1/jobs` spells it, for others who tell of jobs.
#[derive(Debug, Serialize)]
pub struct JobEntry {
    id: EventId,
    position: JournalPosition,
    accepted_at: Rfc3339,
    state: JobState,
    #[serde(flatten)]
    progress: Progress,
}

impl From<JobView> for JobEntry {
    fn from(job: JobView) -> Self {
        Self {
            id: job.event.clone(),
            position: job.position,
            accepted_at: Rfc3339(job.accepted_at),
            state: job.state,
            progress: Progress::new(job),
        }
    }
}

/// A page of the jobs, newest first.
pub(crate) async fn jobs(State(shared): State<Arc<Shared>>, uri: Uri) -> Result<Response, Problem> {
    #[derive(Serialize)]
    struct Page {
        jobs: Vec<JobEntry>,
        /// What to ask for as `before`; absent on the last page.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<JournalPosition>,
    }
    let mut params = Params::read(&uri, &["before", "limit"])?;
    let limit = params.limit()?;
    let before = params.take("before").map(|before| position(&before)).transpose()?;
    let mut jobs = shared.jobs.jobs(before, limit + 1); // One more tells whether there is a next page.
    let is_last = jobs.len() <= limit;
    jobs.truncate(limit);
    let next = jobs.last().filter(|_| !is_last).map(|job| job.position);
    Ok(json(StatusCode::OK, &Page { jobs: jobs.into_iter().map(JobEntry::from).collect(), next }))
}

fn position(text: &str) -> Result<JournalPosition, Invalid> {
    text.parse().map(JournalPosition).map_err(|_| {
        let got = shown(text);
        Invalid::new("before", format_args!("must be a place in the journal, a whole number, got {got:?}")).value(got)
    })
}
