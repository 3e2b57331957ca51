//! A job as it is shown to callers. Plain values, true at the moment of the call.

use serde::{Deserialize, Serialize};
use tidings_types::{BrakeScope, EventId, EventPriority, JobState, JournalPosition, TimeTo, Timestamp, TopicName};

use crate::outcome::Counts;
use crate::tally::JobPart;

/// The outcomes of one event.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// The job's name: the event's position in the journal.
    pub position: JournalPosition,
    /// The event.
    pub event: EventId,
    /// Its topic; `None` for a job that an older version has finished.
    pub topic: Option<TopicName>,
    /// Jobs of a higher priority go first.
    pub priority: EventPriority,
    /// Its state.
    pub state: JobState,
    /// The widest brake that pauses it, if it is paused.
    pub paused_by: Option<BrakeScope>,
    /// When the event was accepted.
    pub accepted_at: Timestamp,
    /// When the sender saw that all devices have their outcome; `None` while it runs, and for a job that an older
    /// version has finished.
    pub done_at: Option<Timestamp>,
    /// Devices selected. For a finished job, exactly the devices counted. A restart selects the rest of the audience
    /// anew: until a job of an earlier run continues, only the devices that it had looked at are known. 0 before the
    /// event's turn.
    pub audience: u64,
    /// Devices held back now, because they may prove that they got it over a live connection.
    pub held: u64,
    /// Devices by outcome.
    pub counts: Counts,
    /// The devices that were handed out, by provider, app and language: at most 512 parts; the rest is in `counts`
    /// only.
    pub by: Vec<JobPart>,
    /// Attempts that failed and were repeated.
    pub retried: u64,
    /// When the provider's answers came; `None` without any.
    pub time_to: Option<TimeTo>,
}

/// The state of a finished job's report, as in the job's row. A job without this state owes no report: it finished
/// while `tell_finished` was off, or under a version that had no reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telling {
    /// The report is not delivered yet.
    Owed,
    /// The receiver has taken it.
    Told,
    /// The receiver has not taken it, and it is not sent any more.
    GivenUp,
}
