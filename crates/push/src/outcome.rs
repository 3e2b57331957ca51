//! What became of a notification, and who is told.

use std::time::Duration;

use tidings_types::{DeviceToken, JournalPosition, Timestamp};

use crate::Ticket;
use crate::apns::Reason;

/// What became of one notification. Every notification handed to the gateway gets exactly one, unless the process or
/// the gateway is stopped before: then the sender resumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The provider took it. Whether a device showed it nobody knows.
    Accepted,
    /// The provider refused it for good.
    Rejected(Reason),
    /// Its time was over before a provider took it; it was certainly not delivered.
    Expired,
    /// Its job was cancelled before a provider took it; it was certainly not delivered.
    Cancelled,
    /// Its time was over, or its job cancelled, after an attempt whose answer never came: it may have been delivered.
    Unknown,
}

impl Outcome {
    /// A name for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected(_) => "rejected",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// The provider says that a token reaches no device any more.
///
/// To be obeyed only if the device still has this `token` and registered it no later than `at`: otherwise the app was
/// installed again in the meantime, and the answer is about the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGone {
    /// The token.
    pub token: DeviceToken,
    /// The moment of which the provider says so: from the answer where it states one, else when the answer came.
    pub at: Timestamp,
}

/// A notification that is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// Which one.
    pub ticket: Ticket,
    /// What became of it.
    pub outcome: Outcome,
    /// Set when its token must be forgotten.
    pub token_gone: Option<TokenGone>,
    /// From the moment the gateway took it out of the lake to now, repeats and waiting included.
    pub latency: Duration,
}

/// Who keeps the books. Called by connection tasks between reading and writing, so it must be quick and never block on
/// I/O or wait for the gateway.
pub trait OutcomeSink: Send + Sync {
    /// Takes all of `settled` and leaves it empty; what is left in it is forgotten by the caller.
    fn settle(&self, settled: &mut Vec<Settled>);

    /// Whether notifications of `job` must no longer be sent. Asked for each job of a batch before each attempt.
    fn is_cancelled(&self, _job: JournalPosition) -> bool {
        false
    }
}
