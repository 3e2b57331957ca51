//! Taking a store's folder: one process, and one handle of it, has it at a time.

use std::fs::{DirBuilder, File, TryLockError};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use crate::error::OpenError;

/// A store's folder is taken for as long as this lives.
pub(crate) struct FolderLock(File);

impl Drop for FolderLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that this process starts just now has a copy until it runs.
        _ = self.0.unlock();
    }
}

/// Takes a store's folder, which is made if it is not there.
pub(crate) fn lock_folder(path: &Path) -> Result<FolderLock, OpenError> {
    let folder = |source| OpenError::Folder { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(folder)?; // It holds every device's address.
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
    fn a_copy_of_its_file_keeps_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let lock = lock_folder(folder.path()).unwrap();
        assert!(matches!(lock_folder(folder.path()), Err(OpenError::Locked { .. })));
        let _copy_of_a_child = lock.0.try_clone().unwrap();
        drop(lock);
        drop(lock_folder(folder.path()).unwrap());
    }
}
