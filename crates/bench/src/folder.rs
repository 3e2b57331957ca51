//! Temporary folders and their files.

use std::path::Path;

use tidings_server::command_error::{CommandError, failed_by};

/// Makes a temporary folder, which is removed when dropped: in `parent`, or in the system's temporary folder.
pub(super) fn temporary(parent: Option<&Path>) -> Result<tempfile::TempDir, CommandError> {
    let folder = parent.map_or_else(tempfile::tempdir, tempfile::tempdir_in);
    folder.map_err(|error| failed_by("cannot make a temporary folder", &error))
}

/// Bytes that a folder's files take on the disk, without holes.
pub(super) fn disk_bytes(folder: &Path) -> std::io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512; // The unit of st_blocks, independent of the file system's block size.
    let mut sum = 0;
    each_file(folder, &mut |path| {
        sum += path.metadata()?.blocks() * BLOCK_BYTES;
        Ok(())
    })?;
    Ok(sum)
}

/// Visits every file in a folder and its subfolders.
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
