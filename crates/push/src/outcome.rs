//! The outcome of a notification, and the port to which it is reported.

use std::time::Duration;

use tidings_types::{DeviceToken, JournalPosition, Timestamp};

use crate::{Reason, Ticket};

/// The outcome of one notification. Every notification handed to the gateway gets exactly one, unless the process or
/// the gateway is stopped before: then the sender resumes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The provider accepted it. Whether the device showed it is unknown.
    Accepted,
    /// The provider refused it for good, or could not be called.
    Rejected(Reason),
    /// Its time was over before a provider accepted it; it was certainly not delivered.
    Expired,
    /// Its job was cancelled before a provider accepted it; it was certainly not delivered.
    Cancelled,
    /// A newer one with the same collapse key replaced it before a provider accepted it; it was certainly not
    /// delivered.
    Superseded,
    /// It expired, was cancelled or was superseded after an attempt without an answer: it may have been delivered.
    Unknown,
}

impl Outcome {
    /// All names in the order of their declaration.
    pub const NAMES: [&str; 6] = ["accepted", "rejected", "expired", "cancelled", "superseded", "unknown"];

    /// Its index in [`Outcome::NAMES`].
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

    /// The outcome after an attempt without an answer: the notification may have been delivered.
    pub fn after_unknown(self) -> Self {
        match self {
            Self::Expired | Self::Cancelled | Self::Superseded => Self::Unknown,
            certain => certain,
        }
    }
}

/// The provider says that a token reaches no device any more.
///
/// Obey it only if the device still has this `token` and registered it no later than `at`. Otherwise the app was
/// installed again in the meantime, and the answer is about the past.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGone {
    /// The token.
    pub token: DeviceToken,
    /// Since when: from the answer if it has a time, else the time of the answer.
    pub at: Timestamp,
}

/// A notification with its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The sender's key.
    pub ticket: Ticket,
    /// The outcome.
    pub outcome: Outcome,
    /// Set if its token must be removed.
    pub token_gone: Option<TokenGone>,
    /// Attempts that failed and were repeated.
    pub repeats: u32,
    /// The time since the gateway took it from the lake, including repeats and waiting.
    pub latency: Duration,
}

/// Whether one notification is still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is still to be sent.
    Go,
    /// Its job was cancelled.
    Cancelled,
    /// A newer one with the same collapse key replaces it.
    Superseded,
}

/// Whether a job's notifications are still to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JobStanding {
    /// All of them are.
    Go,
    /// None is.
    Cancelled,
    /// Some are: ask [`OutcomeSink::standing`] for each.
    AskEach,
}

/// The sender's side. Called by connection tasks between reading and writing, so it must be quick, and must never block
/// on I/O or wait for the gateway.
pub trait OutcomeSink: Send + Sync {
    /// Takes all of `settled` and leaves it empty. The caller drops what is left in it.
    fn settle(&self, settled: &mut Vec<Settled>);

    /// The standing of `job`. Called before each attempt, once for consecutive notifications of one job in a batch.
    fn job_standing(&self, _job: JournalPosition) -> JobStanding {
        JobStanding::Go
    }

    /// The standing of one notification. Called only if its job says [`JobStanding::AskEach`].
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
