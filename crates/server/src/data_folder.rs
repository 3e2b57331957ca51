//! Makes the data folder private: folders have mode 700, files 600 (a file that its owner may only read stays
//! read-only).
//!
//! Files that this process makes are private from the beginning ([`keep_private`]). Files that an earlier version or a
//! copy left open are closed when the folder is used ([`secure`]). Links are not followed, so nothing outside the
//! folder is changed.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use tracing::warn;

const FOLDER_MODE: u32 = 0o700;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// The data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// It belongs to another user, who could read it whatever its mode is.
    #[error("{} belongs to user {owner}, and this process runs as user {own}: run it as that user, or chown the folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// The folder's user.
        owner: u32,
        /// This process's user.
        own: u32,
    },
    /// It cannot be made or read, or its mode cannot be changed.
    #[error("cannot make {} readable for its owner only", path.display())]
    Unusable {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What others could read until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exposed {
    /// Files and folders.
    pub count: usize,
    /// When the oldest of them was made, or last written if the file system does not say when it was made.
    pub since: SystemTime,
}

/// From here on, all files that this process makes are private, also those that libraries make.
pub fn keep_private() {
    umask(Mode::from_raw_mode(OTHERS));
}

/// Makes the folder if it does not exist, and removes the rights of group and others from all our files in it. Returns
/// what they could read until now. Once the folder itself is closed, nobody else can reach its content, so files of
/// other users (`lost+found`, a snapshot) and files that cannot be changed stay as they are.
///
/// # Errors
/// If the folder is not ours, or cannot be made, read or changed.
pub fn secure(folder: &Path) -> Result<Option<Exposed>, DataFolderError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |source| DataFolderError::Unusable { path, source }
    };
    DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder).map_err(at(folder))?;
    let metadata = fs::metadata(folder).map_err(at(folder))?;
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own {
        return Err(DataFolderError::Foreign { path: folder.to_owned(), owner, own });
    }
    if metadata.mode() & OTHERS == 0 {
        _ = close_all(folder, metadata); // A folder that was closed exposed nothing.
        return Ok(None);
    }
    close(folder, &metadata).map_err(at(folder))?; // Before its content, so that nobody can change the content meanwhile.
    Ok(Some(close_all(folder, metadata)))
}

/// As [`secure`], and says in the log what others could read.
///
/// # Errors
/// As [`secure`].
pub(super) fn secure_and_say(folder: &Path) -> Result<(), DataFolderError> {
    if let Some(Exposed { count, since }) = secure(folder)? {
        warn!(
            folder = %folder.display(),
            count,
            since = httpdate::fmt_http_date(since),
            "Other users of this machine could read files of the data folder, device tokens among them; they no longer can"
        );
    }
    Ok(())
}

/// Closes the content of the folder. The count includes the folder.
fn close_all(folder: &Path, metadata: Metadata) -> Exposed {
    let mut exposed = Exposed { count: 1, since: made_at(&metadata) };
    let own = metadata.uid();
    let mut rest = vec![folder.to_owned()];
    while let Some(folder) = rest.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for path in entries.map(|entry| entry.path()) {
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue }; // Gone meanwhile.
            if metadata.uid() != own || !(metadata.is_dir() || metadata.is_file()) {
                continue;
            }
            if metadata.mode() & OTHERS != 0 && close(&path, &metadata).is_ok() {
                exposed = Exposed { count: exposed.count + 1, since: exposed.since.min(made_at(&metadata)) };
            }
            if metadata.is_dir() {
                rest.push(path);
            }
        }
    }
    exposed
}

fn close(path: &Path, metadata: &Metadata) -> io::Result<()> {
    fs::set_permissions(path, Permissions::from_mode(metadata.mode() & 0o7777 & !OTHERS))
}

fn made_at(metadata: &Metadata) -> SystemTime {
    metadata.created().or_else(|_| metadata.modified()).unwrap_or(UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes(folder: &Path) -> Vec<u32> {
        ["", "store", "store/data", "store/data/0.jnl"]
            .map(|name| fs::metadata(folder.join(name)).unwrap().mode() & 0o777)
            .to_vec()
    }

    #[test]
    fn an_open_folder_is_closed_and_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        assert_eq!(secure(&folder).unwrap(), None);
        let inside = folder.join("store/data");
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("0.jnl"), "a token").unwrap();
        let elsewhere = dir.path().join("elsewhere");
        fs::write(&elsewhere, "not ours to change").unwrap();
        std::os::unix::fs::symlink(&elsewhere, inside.join("link")).unwrap();
        let open = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        let open_all = || {
            [&folder.join("store"), &inside].into_iter().for_each(|path| open(path, 0o755));
            [&inside.join("0.jnl"), &elsewhere].into_iter().for_each(|path| open(path, 0o644));
        };
        open_all();
        assert_eq!(secure(&folder).unwrap(), None, "nobody came in from above");
        assert_eq!(modes(&folder), [0o700, 0o700, 0o700, 0o600]);
        open_all();
        open(&folder, 0o755);
        let exposed = secure(&folder).unwrap().unwrap();
        assert_eq!((exposed.count, exposed.since > UNIX_EPOCH), (4, true));
        assert_eq!(modes(&folder), [0o700, 0o700, 0o700, 0o600]);
        assert_eq!(fs::metadata(&elsewhere).unwrap().mode() & 0o777, 0o644, "links are not followed");
        open(&inside.join("0.jnl"), 0o455);
        assert_eq!(secure(&folder).unwrap(), None);
        assert_eq!(modes(&folder)[3], 0o400, "what its owner may do stays");
        assert_eq!(secure(&folder).unwrap(), None);
    }
}
