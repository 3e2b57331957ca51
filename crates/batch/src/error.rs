//! Why a message was refused, and why a flush did not finish.

/// Why a message was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// There is no room, and the policy is [`Full::Reject`](crate::Full::Reject), or the wait for room is over.
    #[error("no room for a message of {bytes} bytes")]
    Full {
        /// The size of the message.
        bytes: usize,
    },
    /// The message is larger than `bytes_max`, or than the sink's largest page.
    #[error("a message of {bytes} bytes is larger than the limit of {bytes_max}")]
    TooLarge {
        /// The size of the message.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// The writer is closed or being closed.
    #[error("the writer is closed")]
    Closed,
}

/// Why a flush or a close has not written all messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    /// The sink has not written them in time.
    #[error("the sink has not written {held} messages in time")]
    Deadline {
        /// Messages that still wait or are in flight. After a close they are dropped.
        held: usize,
    },
    /// The sink has failed, or there is no sink because it panicked.
    #[error("the sink failed, {held} messages are left")]
    Failed {
        /// Messages that still wait. After a close they are dropped.
        held: usize,
    },
}
