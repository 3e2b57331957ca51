//! The errors of a heap.

use std::io;
use std::path::PathBuf;

/// The folder cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot use the heap's folder {path:?}")]
pub struct OpenError {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: io::Error,
}

/// A segment cannot be made, usually because the disk is full.
#[derive(Debug, thiserror::Error)]
#[error("cannot reserve {bytes} bytes for the heap")]
pub struct ReserveError {
    /// The size of the segment.
    pub(crate) bytes: u32,
    #[source]
    pub(crate) source: io::Error,
}

/// No room is reserved for the record, or it is longer than [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room is reserved for a record of {bytes} bytes")]
pub struct NoRoom {
    pub(crate) bytes: usize,
}

/// The place does not have this record as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of the heap is damaged")]
pub struct Damaged;
