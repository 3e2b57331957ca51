//! The data folder is for its owner only: folders have mode 700, files 600 (one that its owner may only read stays so).
//!
//! What a process of ours makes is so from the beginning ([`keep_private`]). What an earlier version or a copy has left
//! open is closed when the folder is used ([`secure`]). Links are not followed, so nothing outside is touched.

use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};

const FOLDER_MODE: u32 = 0o700;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// The data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// It belongs to somebody else, who could read it whatever its mode is.
    #[error("{} belongs to user {owner}, and this process runs as user {own}: run it as that user, or chown the folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        own: u32,
    },
    /// It cannot be made or looked at, or its mode cannot be changed.
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
    /// When the oldest of them was made, or last written where the file system does not say.
    pub since: SystemTime,
}

/// From here on files that this process makes are for its owner only, also those that libraries make.
pub fn keep_private() {
    umask(Mode::from_raw_mode(OTHERS));
}

/// Makes the folder if it is not there, and takes from everything of ours in it what group and others may do. Tells what they
/// could read, if there was anything. Once the folder itself is closed nobody comes to what is in it, so what is another
/// user's (`lost+found`, a snapshot) or cannot be changed stays as it is.
///
/// # Errors
/// When the folder is not ours, or cannot be made, read or changed.
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
        _ = close_all(folder, metadata); // Nobody came through a folder that was closed.
        return Ok(None);
    }
    close(folder, &metadata).map_err(at(folder))?; // Before what is in it, so that nobody else can change what is looked at.
    Ok(Some(close_all(folder, metadata)))
}

/// Closes what is in the folder; what it counts has the folder in it.
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
