//! Temporary folders, and what lies in them.

use std::path::Path;

use tidings_server::command_error::{CommandError, failed_by};

/// A temporary folder, removed when dropped; in `parent` where that is given.
pub(super) fn temporary(parent: Option<&Path>) -> Result<tempfile::TempDir, CommandError> {
    let folder = parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
    folder.map_err(|error| failed_by("cannot make a temporary folder", &error))
}

/// What the files in a folder take, holes not counted.
pub(super) fn disk_bytes(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512; // The unit of st_blocks, whatever the file system's.
    let mut sum = 0;
    each_file(folder, &mut |path| {
        sum += path.metadata()?.blocks() * BLOCK_BYTES;
        Ok(())
    })?;
    Ok(sum)
}

/// Every file in a folder and those below.
pub(super) fn each_file(folder: &Path, visit: &mut impl FnMut(&Path) -> std::io::Result<()>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            each_file(&path, visit)?;
        } else {
            visit(&path)?;
        }
    }
    Ok(())
}
