//! Why a request ends without an answer.

/// Why a request has no answer. `E` is [`Protocol::Error`](crate::Protocol::Error).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError<E: std::error::Error + 'static> {
    /// Every connection that is up has `limit` requests. Nothing was sent. Try again later.
    #[error("the backlog is full: every connection has {limit} requests")]
    Backlog {
        /// [`backlog_max`](crate::PoolConfig::backlog_max), or, for a cast, the capacity of its channel.
        limit: usize,
    },
    /// No connection is up, and none is being made. Nothing was sent.
    #[error("no connection is up")]
    Unavailable,
    /// No answer within the timeout.
    #[error("no answer in time")]
    Timeout {
        /// Whether the request was written, even in part. If not, the peer has not seen it.
        sent: bool,
    },
    /// The connection broke after the request was written and before its answer. The request is not repeatable, or no
    /// other connection could take it, or it was repeated too often. The peer may have acted on it.
    #[error("the connection was lost before the answer")]
    Lost,
    /// The peer broke the protocol while this request waited on the connection. The peer may have acted on it.
    #[error("the peer broke the protocol")]
    Violation(#[source] Violation<E>),
    /// The request cannot be encoded. Nothing was sent.
    #[error("the request cannot be sent")]
    Refused(#[source] E),
    /// The pool was drained or dropped. If the request was accepted before, the peer may have acted on it.
    #[error("the pool is closed")]
    Closed,
}

impl<E: std::error::Error + 'static> CallError<E> {
    /// Whether the peer may have seen the request. Then repeat it only if doing it twice is harmless.
    pub fn may_have_been_sent(&self) -> bool {
        match self {
            Self::Backlog { .. } | Self::Unavailable | Self::Refused(_) => false,
            Self::Timeout { sent } => *sent,
            Self::Lost | Self::Violation(_) | Self::Closed => true,
        }
    }
}

/// How the peer broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation<E: std::error::Error + 'static> {
    /// The codec cannot read the bytes.
    #[error(transparent)]
    Malformed(E),
    /// An answer belongs to no request.
    #[error("an answer without a request")]
    Unsolicited,
    /// Too many bytes came without a complete answer.
    #[error("{bytes} bytes without a complete answer, the limit is {limit}")]
    Oversized {
        /// The bytes that the codec has left in the input.
        bytes: usize,
        /// [`input_bytes_max`](crate::PoolConfig::input_bytes_max).
        limit: usize,
    },
}
