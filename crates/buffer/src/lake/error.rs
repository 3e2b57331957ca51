//! Why a lake accepts no values, for good or for now.

use crate::bounds::NoRoom;

/// The lake takes no more values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lake is closed")]
pub struct Closed;

/// Why [`Lake::push_batch`](crate::Lake::push_batch) ended before everything was handed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The first value that is left is heavier than the bounds allow, so no waiting would help.
    #[error(transparent)]
    TooLarge(NoRoom),
    /// The lake takes no more values.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why [`Lake::try_push_batch`](crate::Lake::try_push_batch) or [`Lake::push`](crate::Lake::push) handed nothing in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryPushError {
    /// Not enough room for all of it.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Others were there first, and what room there is is theirs.
    #[error("{waiting} producers wait in line before these {count} values")]
    InLine {
        /// Values that were to go in.
        count: usize,
        /// Producers waiting in line.
        waiting: usize,
    },
    /// The lake takes no more values.
    #[error(transparent)]
    Closed(#[from] Closed),
}
