//! Why the engine refuses: the disk, a lost file, or one damaged row.

use std::path::{Path, PathBuf};

use fjall::LsmError;

use super::table::Table;

/// The engine failed, or a row is not what we wrote.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the storage engine failed")]
    Fjall(#[source] fjall::Error),
    #[error("the storage engine failed")]
    Io(#[source] std::io::Error),
    #[error("row {key} of table {table} is damaged; a copy of the folder has it as it was")]
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
        "{} {what}: the store would come up without data that was acknowledged, so it is not opened; put the file back from a \
         copy of this folder, or restore a backup (docs/operations.md, \"When the store is damaged\")",
        path.display()
    )]
    Incomplete { path: PathBuf, what: String },
}

impl EngineError {
    /// The row under `key` is not what we wrote.
    pub(crate) fn damaged(table: Table, key: &[u8]) -> Self {
        Self(Cause::Damaged { table: table.name(), key: key.escape_ascii().to_string() })
    }

    /// The store on the disk is not the one that was open.
    pub(crate) fn replaced() -> Self {
        Self(Cause::Replaced)
    }

    /// A file of the database is missing or is not what was written.
    pub(super) fn incomplete(path: &Path, what: impl Into<String>) -> Self {
        Self(Cause::Incomplete { path: path.to_owned(), what: what.into() })
    }

    /// There is no database where one was.
    pub(super) fn missing() -> Self {
        Self(Cause::Missing)
    }

    /// Whether it is about one row, and not about the disk: the others can be read and written.
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

/// A block whose checksum is wrong is damaged like a row: opening the store again finds it as it is. `key` is that of
/// the row, or of the one before it.
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

/// A disk that fails may work the next time; whatever else the database is refused for, it stays so.
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
