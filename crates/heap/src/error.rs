//! What can go wrong with a heap.

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

/// No segment can be made: the disk is full, above all.
#[derive(Debug, thiserror::Error)]
#[error("cannot reserve {bytes} bytes for the heap")]
pub struct ReserveError {
    /// What the file was to have.
    pub(crate) bytes: u32,
    #[source]
    pub(crate) source: io::Error,
}

/// There is no room reserved for the record, or it is longer than [`RECORD_BYTES_MAX`](crate::RECORD_BYTES_MAX).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room is reserved for a record of {bytes} bytes")]
pub struct NoRoom {
    pub(crate) bytes: usize,
}

/// What is at the place is not this record as it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a record of the heap is damaged")]
pub struct Damaged;
