//! What is told of a job: its state, and how long its devices waited.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    /// Devices are still without an outcome.
    Running,
    /// Devices are still without an outcome, and a brake holds all that are not handed out yet.
    Paused,
    /// The job was cancelled: devices that had not been sent to are not pushed. Notifications in flight may still be
    /// without an outcome until `done_at` is set.
    Cancelled,
    /// Every selected device has its outcome.
    Finished,
}

/// When the provider's answers to a job came, or receipts, counted from the event's acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeTo {
    /// The first answer.
    pub first: Duration,
    /// Half of the answers.
    pub p50: Duration,
    /// Nine in ten.
    pub p90: Duration,
    /// 99 in a hundred.
    pub p99: Duration,
    /// The last answer.
    pub p100: Duration,
}
