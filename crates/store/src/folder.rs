//! The lock of a store's folder: only one process, and one store in it, uses the folder at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::error::OpenError;

/// The store's folder is locked as long as this lives.
pub(crate) struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is just being started has a copy of the file.
        _ = self.0.unlock();
    }
}

/// Locks a store's folder. Creates it if it is missing.
pub(crate) fn lock_folder(path: &Path) -> Result<FolderLock, OpenError> {
    let folder = |source| OpenError::Folder { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(folder)?; // It contains every device's token.
    let file = File::options().create(true).truncate(false).write(true).open(path.join("lock")).map_err(folder)?;
    match file.try_lock() {
        Ok(()) => Ok(FolderLock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::Locked { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(folder(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::{OpenError, lock_folder};

    #[test]
    fn a_copy_of_the_lock_file_does_not_keep_the_folder_locked() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock_folder(folder.path()).unwrap();
        assert!(matches!(lock_folder(folder.path()), Err(OpenError::Locked { .. })));
        let _copy_of_a_child = lock.0.try_clone().unwrap();
        drop(lock);
        drop(lock_folder(folder.path()).unwrap());
    }
}
