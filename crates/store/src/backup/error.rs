//! The errors of backups.

use std::io;
use std::path::PathBuf;

use crate::engine::EngineError;
use crate::error::OpenError;

/// A backup was not made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// There is another backup in progress.
    #[error("another backup of this store is being made")]
    Busy,
    /// The store is closed or being opened again after an error, or the next block was not requested in time.
    #[error("the store ended the backup: it is closed or being opened again, or the backup was not read for 60 s")]
    GivenUp,
    /// The folder has no store.
    #[error("there is no store")]
    NoStore,
    /// The backup to copy from is of a store that is alone, so its copy would have no log to follow.
    #[error("the backup is of a store that shares no log with other nodes; it can be restored, but not copied")]
    NoLog,
    /// The folder to restore into has a store.
    #[error("{path} already has a store; move it away first, or name another folder")]
    HasStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The file does not begin like a backup.
    #[error("this is not a backup of Tidings")]
    NotABackup,
    /// The backup has another file format.
    #[error(
        "the backup has version {found}, this program reads version {known}; restore it with the program that made it"
    )]
    Version {
        /// The version of the file.
        found: u32,
        /// The version that this program reads.
        known: u32,
    },
    /// The store in the backup has an unknown format.
    #[error("the backup is of a store with format {found}, this program reads {known} and older formats")]
    Format {
        /// The format in the file.
        found: String,
        /// The format that this program writes.
        known: &'static str,
    },
    /// The store in the backup has an unknown table.
    #[error("the backup has a table {name}, which this program does not know; a newer program made it")]
    Table {
        /// The table.
        name: String,
    },
    /// The end is missing.
    #[error("the backup is cut off after {bytes} bytes; make or copy it again")]
    CutOff {
        /// The bytes of the file.
        bytes: u64,
    },
    /// The bytes were changed.
    #[error("the backup is damaged at byte {offset}: {what}; copy it again, or use another one")]
    Damaged {
        /// The beginning of the damaged part.
        offset: u64,
        /// The damage.
        what: &'static str,
    },
    /// A row does not fit into a block.
    #[error("a row of table {table} is larger than {limit} bytes")]
    RowTooLarge {
        /// The table.
        table: &'static str,
        /// Bytes that a row may have.
        limit: usize,
    },
    /// Reading or writing the file failed.
    #[error("cannot {action} the backup")]
    Io {
        /// "read" or "write".
        action: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
