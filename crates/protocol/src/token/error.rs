//! Why a token is not accepted.

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It was never valid. The text says what is wrong, without repeating any part of the token.
    #[error("token is not valid: {0}")]
    Invalid(&'static str),
    /// It has expired, or is not valid yet.
    #[error("token has expired or is not valid yet")]
    Expired,
    /// It names a key that is not known yet, but may be known soon.
    #[error("token is signed with a key that is not known yet")]
    KeyPending,
}
