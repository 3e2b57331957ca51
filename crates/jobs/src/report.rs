//! A job as it is shown to those who ask. Plain values, true at the moment of asking.

use serde::{Deserialize, Serialize};
use tidings_types::{BrakeScope, EventId, EventPriority, JournalPosition, Timestamp, TopicName};

use crate::latency::TimeTo;
use crate::outcome::Counts;
use crate::tally::JobPart;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Devices are still without an outcome.
    Running,
    /// As running, and a brake holds all that are not handed out yet.
    Paused,
    /// It was cancelled; once `done_at` is there, the last outcome of what was on its way is too.
    Cancelled,
    /// Every selected device has its outcome.
    Finished,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// The job's name: the event's position in the journal.
    pub position: JournalPosition,
    /// The event.
    pub event: EventId,
    /// Its topic; `None` for a job that an older version has finished.
    pub topic: Option<TopicName>,
    /// Before which others it goes.
    pub priority: EventPriority,
    /// Where it stands.
    pub state: JobState,
    /// The brake that holds it, when it is paused: the widest.
    pub paused_by: Option<BrakeScope>,
    /// When the event was accepted.
    pub accepted_at: Timestamp,
    /// When the sender saw that all devices have their outcome; `None` while it runs, and for one that an older version
    /// has finished.
    pub done_at: Option<Timestamp>,
    /// Devices selected. For a finished job exactly those counted; a restart selects the rest of the audience anew, and
    /// until a job of an earlier run goes on only those are known that it had looked at; 0 before the event's turn.
    pub audience: u64,
    /// Devices held back now, because they may prove that they got it over a live connection.
    pub held: u64,
    /// Devices by outcome.
    pub counts: Counts,
    /// Of these the ones that were handed out, by provider, app and language: at most 512 parts, others are in `counts`
    /// only.
    pub by: Vec<JobPart>,
    /// Attempts that failed and were repeated.
    pub retried: u64,
    /// When the provider's answers came; `None` without any.
    pub time_to: Option<TimeTo>,
}

/// Whether somebody outside is told that a job is done, as the job's row keeps it. A job without is told to nobody: it
/// finished while `tell_finished` was off, or under a version that knew nothing of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Telling {
    /// Still to be told.
    Owed,
    /// They have taken it.
    Told,
    /// They have not, and are not told any more.
    GivenUp,
}
