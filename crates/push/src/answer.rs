//! What a provider's answer means, in terms that all providers share. The tables that judge answers are in
//! `apns/answer.rs`, `fcm/answer.rs` and `web_push/answer.rs`; `retry.rs` says what is repeated, and when.

use std::time::Duration;

use tidings_types::Timestamp;

use crate::Reason;

/// The most bytes of an answer's body that are read; the longest that providers send are under 2 KiB.
pub const ANSWER_BYTES_MAX: usize = 4096;

/// What an answer means for the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The provider accepted the notification.
    Accepted,
    /// Refused for good.
    Rejected {
        /// The reason.
        reason: Reason,
        /// Set if the token is dead: since this moment. It does not count for later registrations of the token.
        gone_at: Option<Timestamp>,
    },
    /// Not accepted this time; to be repeated with back-off.
    Repeat {
        /// The reason.
        reason: Reason,
        /// What must happen besides the repeat.
        advice: Advice,
        /// The earliest time of the repeat; with [`Advice::PauseAll`] also of anything else.
        not_before: Duration,
    },
}

/// What a temporary refusal requires besides the repeat of the notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// Nothing: wait and repeat.
    Wait,
    /// Everything for this provider with this credential, or for this origin, waits: a quota is used up.
    PauseAll,
    /// Open no more streams on this connection; use another one.
    LeaveConnection,
    /// Make a new credential, once. With APNs the connection is unusable and is closed.
    RenewCredential,
    /// The credential is refused: close this connection, open others slowly, inform the operator.
    CredentialRefused,
}
