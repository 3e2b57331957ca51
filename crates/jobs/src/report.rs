//! A job as it is shown to callers. Plain values, true at the moment of the call.

use serde::{Deserialize, Serialize};
use tidings_types::{
    BrakeScope, EventId, EventPriority, JobState, JournalPosition, Locale, Provider, TimeTo, Timestamp, TopicName,
};

use crate::outcome::Counts;
use crate::tally::JobPart;
use crate::trail::{Note, Whereabouts};

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
    /// The same by provider; of those that have answered.
    pub time_to_by: Vec<(Provider, TimeTo)>,
    /// When devices had proven over their live connections that they have it; `None` if none has.
    pub time_to_live: Option<TimeTo>,
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

/// What one device went through in the job of one event, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceTrail {
    /// What happened before this moment is not known; `None`: it is.
    pub known_since: Option<Timestamp>,
    /// Whether the job is done.
    pub is_done: bool,
    /// In the order of time.
    pub steps: Vec<TrailStep>,
    /// Where the device is now; `None` when the job does not run.
    pub whereabouts: Option<(Whereabouts, Option<Way>)>,
    /// The brake that holds it back now.
    pub paused_by: Option<BrakeScope>,
    /// Until when it may be held back.
    pub held_until: Timestamp,
    /// The language of its text, once it was handed out: `None` in it is the source language of the topic.
    pub locale: Option<Option<Locale>>,
    /// Whether a proven connection of it read a channel of the event; `None`: nobody has asked for receipts.
    pub was_connected: Option<bool>,
    /// The connection that has received the event, and when.
    pub received: Option<(String, Timestamp)>,
}

/// One thing that happened to a device, between two moments that are the same if it is known exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrailStep {
    /// What happened.
    pub note: Note,
    /// Where it was handed out to.
    pub way: Option<Way>,
    /// Not before.
    pub from: Timestamp,
    /// Not after.
    pub to: Timestamp,
}

/// The connections that reach a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Way {
    /// The provider.
    pub provider: Provider,
    /// The operator's name for the pool.
    pub pool: String,
    /// Those for tokens that no provider has accepted yet.
    pub is_quarantine: bool,
}
