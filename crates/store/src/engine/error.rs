//! The errors of the engine: a failing disk, a lost file, or one damaged row.

use std::path::{Path, PathBuf};

use fjall::LsmError;

use super::table::Table;

/// The engine failed, or a row is not as the store wrote it.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the storage engine failed")]
    Fjall(#[source] fjall::Error),
    #[error("the storage engine failed")]
    Io(#[source] std::io::Error),
    #[error("row {key} of table {table} is damaged; only a copy of the folder has the original row")]
    Damaged { table: &'static str, key: String },
    #[error("the heap of devices cannot be used")]
    Heap(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "{} cannot be opened; look at the disk, then restore a backup (docs/operations.md, \"When the store is damaged\")",
        path.display()
    )]
    Unopenable { path: PathBuf, source: fjall::Error },
    #[error("the folder holds no data any more")]
    Missing,
    #[error("the folder holds another store than before")]
    Replaced,
    #[error("the folder is in use")]
    Locked,
    /// Nothing was changed.
    #[error(
        "{} {what}: the store is not opened, because data that was acknowledged would be missing; put the file back from a \
         copy of this folder, or restore a backup (docs/operations.md, \"When the store is damaged\")",
        path.display()
    )]
    Incomplete { path: PathBuf, what: String },
}

impl EngineError {
    /// The row under `key` is not as the store wrote it.
    pub(crate) fn damaged(table: Table, key: &[u8]) -> Self {
        Self(Cause::Damaged { table: table.name(), key: key.escape_ascii().to_string() })
    }

    /// The store on the disk is not the one that was open.
    pub(crate) fn replaced() -> Self {
        Self(Cause::Replaced)
    }

    /// A file of the database is missing or was changed.
    pub(super) fn incomplete(path: &Path, what: impl Into<String>) -> Self {
        Self(Cause::Incomplete { path: path.to_owned(), what: what.into() })
    }

    /// The database does not exist any more.
    pub(super) fn missing() -> Self {
        Self(Cause::Missing)
    }

    /// Whether only one row is damaged. The disk works, and other rows can be read and written.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.0, Cause::Damaged { .. })
    }
}

impl From<fjall::Error> for EngineError {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Locked => Self(Cause::Locked),
            error => Self(Cause::Fjall(error)),
        }
    }
}

impl From<tidings_heap::ReserveError> for EngineError {
    fn from(error: tidings_heap::ReserveError) -> Self {
        Self(Cause::Heap(Box::new(error)))
    }
}

impl From<tidings_heap::OpenError> for EngineError {
    fn from(error: tidings_heap::OpenError) -> Self {
        Self(Cause::Heap(Box::new(error)))
    }
}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self(Cause::Io(error))
    }
}

/// A block with a wrong checksum counts as a damaged row, because opening the store again would not repair it. `key` is
/// the key of the row, or of the row before it.
pub(super) fn read_error(error: fjall::Error, table: Table, key: &[u8]) -> EngineError {
    match error {
        fjall::Error::Storage(
            LsmError::ChecksumMismatch { .. }
            | LsmError::Decompress(_)
            | LsmError::InvalidTag(_)
            | LsmError::InvalidTrailer
            | LsmError::InvalidHeader(_)
            | LsmError::Utf8(_),
        ) => EngineError::damaged(table, key),
        error => error.into(),
    }
}

/// A failing disk may work at the next attempt. Any other reason stays.
pub(super) fn open_error(path: &Path, error: fjall::Error) -> EngineError {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source))
            if source.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            source.into()
        }
        fjall::Error::Locked => error.into(),
        source => EngineError(Cause::Unopenable { path: path.to_owned(), source }),
    }
}
