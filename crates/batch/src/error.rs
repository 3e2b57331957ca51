//! Why a message was not accepted, and why a flush did not finish.

/// Why a message was not taken. It counts as refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// There is no room, and the policy is [`Full::Reject`](crate::Full::Reject), or the wait for room is over.
    #[error("no room for a message of {bytes} bytes")]
    Full {
        /// Its size.
        bytes: usize,
    },
    /// It will never fit, neither into `bytes_max` nor, if the sink has a largest page, into that.
    #[error("a message of {bytes} bytes is larger than {bytes_max}, the most this writer takes")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The writer is closed or being closed.
    #[error("the writer is closed")]
    Closed,
}

/// Why not everything has reached the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The sink has not taken it in time.
    #[error("the sink has not taken {held} messages in time")]
    Deadline {
        /// Messages that still wait or are in flight; after a close they are dropped.
        held: usize,
    },
    /// The sink failed on the way, or there is none since it panicked.
    #[error("the sink failed, {held} messages are left")]
    Failed {
        /// Messages that still wait; after a close they are dropped.
        held: usize,
    },
}
