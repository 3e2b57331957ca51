//! Why a backup is not made, read or restored.

use std::io;
use std::path::PathBuf;

use crate::engine::EngineError;
use crate::error::OpenError;

/// A backup was not made, read or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another is being made.
    #[error("another backup of this store is being made")]
    Busy,
    /// The store is being opened again after an error, or closed, or nobody asked for the next block for too long.
    #[error("the store gave the backup up: it is closed or being opened again, or the backup was not read for 60 s")]
    GivenUp,
    /// The folder holds none.
    #[error("there is no store")]
    NoStore,
    /// The folder to restore into holds one.
    #[error("{path} holds a store already; move it away first, or name another folder")]
    HasStore {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be used.
    #[error(transparent)]
    Folder(#[from] OpenError),
    /// The file does not begin like a backup.
    #[error("this is no backup of Tidings")]
    NotABackup,
    /// A version wrote it that spells backups otherwise.
    #[error(
        "the backup has version {found}, this program reads version {known}; restore it with the program that made it"
    )]
    Version {
        /// What the file says.
        found: u32,
        /// What is read here.
        known: u32,
    },
    /// The store in it has a format that is not read here.
    #[error("the backup is of a store of format {found}, this program reads {known} and those before")]
    Format {
        /// What the file says.
        found: String,
        /// What is written here.
        known: &'static str,
    },
    /// The store in it has a table that is not known here.
    #[error("the backup has a table {name}, which this program does not know; a newer one made it")]
    Table {
        /// The table.
        name: String,
    },
    /// Its end is missing.
    #[error("the backup is cut off after {bytes} bytes; make or copy it again")]
    CutOff {
        /// Bytes there are.
        bytes: u64,
    },
    /// Its bytes are not those that were written.
    #[error("the backup is damaged at byte {offset}: {what}; copy it again, or take another")]
    Damaged {
        /// Where the part begins that is not right.
        offset: u64,
        /// What is not right.
        what: &'static str,
    },
    /// A row has no place in a block.
    #[error("a row of table {table} is larger than {limit} bytes")]
    RowTooLarge {
        /// The table.
        table: &'static str,
        /// Bytes a row may have.
        limit: usize,
    },
    /// The file, or whatever is in its place, failed.
    #[error("cannot {action} the backup")]
    Io {
        /// "read" or "write".
        action: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The engine below refused.
    #[error(transparent)]
    Engine(#[from] EngineError),
}
