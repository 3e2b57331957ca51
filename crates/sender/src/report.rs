//! What can be asked about jobs and about the sender as a whole. Plain values, true at the moment of asking.

use tidings_types::{EventId, JournalPosition, Timestamp};

use crate::latency::TimeTo;
use crate::outcome::Counts;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobState {
    /// Devices are still without an outcome.
    Running,
    /// Every selected device has its outcome.
    Finished,
}

/// What became of one event.
#[derive(Debug, Clone, PartialEq)]
pub struct JobReport {
    /// The job's name: the event's place in the journal.
    pub position: JournalPosition,
    /// The event.
    pub event: EventId,
    /// Where it stands.
    pub state: JobState,
    /// When the event was accepted.
    pub accepted_at: Timestamp,
    /// Devices selected. For a finished job exactly those counted; a restart selects the rest of the audience anew.
    pub audience: u64,
    /// Devices by outcome.
    pub counts: Counts,
    /// When the provider's answers came; `None` without any.
    pub time_to: Option<TimeTo>,
}

/// What is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Accepted events that have no job yet, jobs of an earlier run that are not resumed yet included.
    pub events_waiting: u64,
    /// Jobs in work.
    pub jobs_running: u64,
    /// Devices that were handed to a lake and have no outcome.
    pub devices_in_flight: u64,
}

impl Backlog {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How draining ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Devices that had no answer by the deadline: handed out again at the next start.
    pub devices_in_flight: u64,
    /// Whether the last checkpoint was written; if not, the one before counts.
    pub checkpointed: bool,
}
