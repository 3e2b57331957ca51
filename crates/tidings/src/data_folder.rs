//! The data folder is for its owner only: folders have mode 700, files 600.
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
const FILE_MODE: u32 = 0o600;
/// What group and others may do.
const OTHERS: u32 = 0o077;

/// The data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DataFolderError {
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
    /// It cannot be made or read, or its mode cannot be changed.
    #[error("cannot make {} readable for its owner only", path.display())]
    Unusable {
        /// The folder, or what is in it.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// What others could read until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// Files and folders.
    pub(crate) count: usize,
    /// When the oldest of them was made, or last written where the file system does not say.
    pub(crate) since: SystemTime,
}

/// From here on files that this process makes are for its owner only, also those that libraries make.
pub(crate) fn keep_private() {
    umask(Mode::from_raw_mode(OTHERS));
}

/// Makes the folder if it is not there, and takes from everything in it what group and others may do. Tells what they
/// could read, if there was anything.
///
/// # Errors
/// When the folder is not ours, or something in it cannot be read or changed.
pub(crate) fn secure(folder: &Path) -> Result<Option<Exposed>, DataFolderError> {
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
    let is_open = metadata.mode() & OTHERS != 0;
    let mut exposed: Option<Exposed> = None;
    // A folder before what is in it, so that nobody else can change what is looked at.
    let mut rest = vec![(folder.to_owned(), metadata)];
    while let Some((path, metadata)) = rest.pop() {
        if metadata.mode() & OTHERS != 0 {
            let mode = if metadata.is_dir() { FOLDER_MODE } else { FILE_MODE };
            fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(at(&path))?;
            let made = made_at(&metadata);
            let before = exposed.unwrap_or(Exposed { count: 0, since: made });
            exposed = Some(Exposed { count: before.count + 1, since: before.since.min(made) });
        }
        if metadata.is_dir() {
            for entry in fs::read_dir(&path).map_err(at(&path))? {
                let path = entry.map_err(at(&path))?.path();
                let metadata = fs::symlink_metadata(&path).map_err(at(&path))?;
                if metadata.is_dir() || metadata.is_file() {
                    rest.push((path, metadata));
                }
            }
        }
    }
    Ok(exposed.filter(|_| is_open)) // Nobody came through a folder that was closed.
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
        assert_eq!(secure(&folder).unwrap(), None);
    }
}
