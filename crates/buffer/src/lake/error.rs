//! Why a lake accepts no values.

use crate::bounds::NoRoom;

/// The lake takes no more values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the lake is closed")]
pub struct Closed;

/// Why [`Lake::push_batch`](crate::Lake::push_batch) ended before the batch was empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// The first remaining value is heavier than the bounds allow, so waiting would not help.
    #[error(transparent)]
    TooLarge(NoRoom),
    /// The lake takes no more values.
    #[error(transparent)]
    Closed(#[from] Closed),
}

/// Why [`Lake::try_push_batch`](crate::Lake::try_push_batch) or [`Lake::push`](crate::Lake::push) accepted nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TryPushError {
    /// There is not enough room for all values.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// Other producers wait, and get the room first.
    #[error("{waiting} producers wait in line before these {count} values")]
    InLine {
        /// The number of values.
        count: usize,
        /// The number of waiting producers.
        waiting: usize,
    },
    /// The lake takes no more values.
    #[error(transparent)]
    Closed(#[from] Closed),
}
