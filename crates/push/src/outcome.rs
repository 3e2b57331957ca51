//! What became of a notification, and who is told.

use std::time::Duration;

use tidings_types::{DeviceToken, JournalPosition, Timestamp};

use crate::{Reason, Ticket};

/// What became of one notification. Every notification handed to the gateway gets exactly one, unless the process or
/// the gateway is stopped before: then the sender resumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The provider took it. Whether a device showed it nobody knows.
    Accepted,
    /// The provider refused it for good, or could not be asked.
    Rejected(Reason),
    /// Its time was over before a provider took it; it was certainly not delivered.
    Expired,
    /// Its job was cancelled before a provider took it; it was certainly not delivered.
    Cancelled,
    /// A newer one with the same collapse key took its place before a provider took it; it was certainly not delivered.
    Superseded,
    /// It was over, cancelled or superseded after an attempt whose answer never came: it may have been delivered.
    Unknown,
}

impl Outcome {
    /// The names of all, in the order of their declaration.
    pub const NAMES: [&str; 6] = ["accepted", "rejected", "expired", "cancelled", "superseded", "unknown"];

    /// Its place in [`Outcome::NAMES`].
    pub fn index(self) -> usize {
        match self {
            Self::Accepted => 0,
            Self::Rejected(_) => 1,
            Self::Expired => 2,
            Self::Cancelled => 3,
            Self::Superseded => 4,
            Self::Unknown => 5,
        }
    }

    /// A name for metrics.
    pub fn as_str(self) -> &'static str {
        Self::NAMES[self.index()]
    }

    /// What it is after an attempt that may have delivered it: "certainly not delivered" cannot be said any more.
    pub fn after_unknown(self) -> Self {
        match self {
            Self::Expired | Self::Cancelled | Self::Superseded => Self::Unknown,
            certain => certain,
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
    /// Attempts that failed and were repeated.
    pub repeats: u32,
    /// From the moment the gateway took it out of the lake to now, repeats and waiting included.
    pub latency: Duration,
}

/// Whether one notification is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is.
    Go,
    /// Its job was cancelled.
    Cancelled,
    /// A newer one with the same collapse key takes its place.
    Superseded,
}

/// Whether a job's notifications are still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobStanding {
    /// All of them.
    Go,
    /// None.
    Cancelled,
    /// Some: [`OutcomeSink::standing`] knows which.
    AskEach,
}

/// Who keeps the books. Called by connection tasks between reading and writing, so it must be quick and never block on
/// I/O or wait for the gateway.
pub trait OutcomeSink: Send + Sync {
    /// Takes all of `settled` and leaves it empty; what is left in it is forgotten by the caller.
    fn settle(&self, settled: &mut Vec<Settled>);

    /// How `job` stands. Asked once for each run of neighbours of one job in a batch, before each attempt.
    fn job_standing(&self, _job: JournalPosition) -> JobStanding {
        JobStanding::Go
    }

    /// How one notification stands. Asked only where its job says [`JobStanding::AskEach`].
    fn standing(&self, _ticket: Ticket) -> Standing {
        Standing::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_certain_stays_so_after_an_attempt_without_an_answer() {
        use Outcome as O;
        let rejected = O::Rejected(crate::apns::Reason::BadTopic.into());
        let after = [O::Accepted, rejected, O::Expired, O::Cancelled, O::Superseded, O::Unknown].map(O::after_unknown);
        assert_eq!(after, [O::Accepted, rejected, O::Unknown, O::Unknown, O::Unknown, O::Unknown]);
        assert_eq!(after.map(O::as_str), ["accepted", "rejected", "unknown", "unknown", "unknown", "unknown"]);
    }
}
