//! What a provider's answer means, in words that hold for all of them. The tables that judge answers are in `apns/answer.rs`,
//! `fcm/answer.rs` and `web_push/answer.rs`; what is repeated, and when, in `retry.rs`.

use std::time::Duration;

use tidings_types::Timestamp;

use crate::Reason;

/// Bytes of an answer's body that are read; the longest that providers send are under 2 KiB.
pub const ANSWER_BYTES_MAX: usize = 4096;

/// What an answer means for the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Taken.
    Accepted,
    /// Refused for good.
    Rejected {
        /// Why.
        reason: Reason,
        /// Set when the token is dead: the moment of which that is said. Registrations after it are not meant.
        gone_at: Option<Timestamp>,
    },
    /// Not taken this time; to be repeated with back-off.
    Repeat {
        /// Why.
        reason: Reason,
        /// What has to happen beside the repeat.
        advice: Advice,
        /// How soon it may be repeated at the earliest, or with [`Advice::PauseAll`] anything sent.
        not_before: Duration,
    },
}

/// What a refusal that passes means beside repeating the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: wait and repeat.
    Wait,
    /// All that goes to this provider with this credential, or to this origin, waits: a quota is spent.
    PauseAll,
    /// Open no more streams on this connection; another one takes over.
    LeaveConnection,
    /// Make a new credential, once. With APNs the connection stays unusable and is left.
    RenewCredential,
    /// The credential is refused: leave this connection, open others slowly, tell the operator.
    CredentialRefused,
}
