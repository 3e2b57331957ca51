//! The log that several nodes share: one node appends its batches, and all read them.
//!
//! A store without a log is alone: it syncs each batch itself. A store with one ([`Store::join`](crate::Store::join)) leads
//! or follows. The leader appends each batch to the log and commits it only then, unsynced: the log is what survives. A
//! follower commits what it reads. So all have the same rows, except that each notes how far it is ([`LogPosition`]).
//!
//! A store that is new reads the log from its first record. If the log does not have that any more, or reading all of it would
//! take too long, a store begins as a copy of another one ([`restore_copy`](crate::backup::restore_copy)).

use std::fmt;
use std::time::Duration;

use crate::engine::{EngineError, Table};

/// The key of the row in [`Table::Meta`] that says how far the store is in the log.
pub(crate) const LOG_KEY: &[u8] = b"log";

/// A record's place in the log, and a hash of the log up to it. Two logs that differ anywhere before have different hashes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LogPosition {
    /// Grows with each record, and may leave numbers out; 0: before all records.
    pub sequence: u64,
    /// As the log defines it.
    pub hash: u128,
    /// Grows whenever a node begins to lead.
    pub term: u64,
}

/// A record that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Where it is.
    pub position: LogPosition,
    /// As it was appended.
    pub bytes: Vec<u8>,
}

// Payloads never reach a log.
impl fmt::Debug for LogRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogRecord({:?}, {} bytes)", self.position, self.bytes.len())
    }
}

/// A log as one node sees it. Its methods are called by one thread at a time, and may block.
pub trait CommitLog: Send {
    /// Reading continues behind this position, and this node does not lead any more. Returns at once.
    fn seek(&mut self, after: LogPosition);

    /// The next record that some node appended; `None` if there was none for `patience`.
    ///
    /// # Errors
    /// When it cannot be read now, or never: [`LogError::Lost`] if the log does not have the position of the last
    /// [`CommitLog::seek`] any more, or not all behind it.
    fn next(&mut self, patience: Duration) -> Result<Option<LogRecord>, LogError>;

    /// Begins a term of this node: from then on nobody else appends, unless another node begins a term. Returns where it
    /// began. `None`: there are records to be read before, or another node was first.
    ///
    /// # Errors
    /// When the log cannot be written now.
    fn lead(&mut self) -> Result<Option<LogPosition>, LogError>;

    /// Appends a record in the term of this node. Returns when the record is in the log for good, however long it takes.
    ///
    /// # Errors
    /// [`LogError::Fenced`]: the record is not in the log and never will be. After any other error it may be.
    fn append(&mut self, record: &[u8]) -> Result<LogPosition, LogError>;
}

/// The log was not read or written.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// Another node has written here, or this one does not lead.
    #[error("this node does not lead: entry {sequence} of the log is not its own")]
    Fenced {
        /// The sequence number.
        sequence: u64,
    },
    /// It cannot be reached, or this node stops. Trying again helps.
    #[error("the log cannot be reached")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// It is not the log that this store has followed, or it has forgotten what comes next. Trying again does not help: the
    /// store has to begin anew from a copy of another one ([`restore_copy`](crate::backup::restore_copy)).
    #[error("the log does not continue this store: {0}")]
    Lost(String),
}

/// What a store does with its log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// There is no log.
    Alone,
    /// It takes writes and appends them.
    Leading,
    /// It reads, and refuses writes.
    Following,
    /// It refuses writes, and cannot read on: see [`LogError::Lost`].
    Lost,
}

pub(crate) fn position_row(position: LogPosition) -> Vec<u8> {
    let LogPosition { sequence, hash, term } = position;
    [&sequence.to_be_bytes()[..], &hash.to_be_bytes(), &term.to_be_bytes()].concat()
}

pub(crate) fn decode_log_position(row: &[u8]) -> Result<LogPosition, EngineError> {
    let row: &[u8; 32] = row.try_into().map_err(|_| EngineError::damaged(Table::Meta, LOG_KEY))?;
    let number = |at: usize| u64::from_be_bytes(row[at..at + 8].try_into().expect("8 of 32 bytes"));
    let hash = u128::from_be_bytes(row[8..24].try_into().expect("16 of 32 bytes"));
    Ok(LogPosition { sequence: number(0), hash, term: number(24) })
}
