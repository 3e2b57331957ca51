//! Makes the data folder private: folders have mode 700, files 600 (a file that its owner may only read stays
//! read-only).
//!
//! A folder that is not ours is refused before anything in it is changed. A folder is ours if it has the [`MARKER`], which is
//! put into an empty one, and into one with a store that an earlier version left without it. In a folder of ours, only what
//! we make ([`OWN`]) is changed.
//!
//! Files that this process makes are private from the beginning ([`keep_private`]). Files that an earlier version or a
//! copy left open are closed when the folder is used ([`secure`]). Links are not followed, so nothing outside the
//! folder is changed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::Mode;
use rustix::process::{geteuid, umask};
use tidings_store::Store;
use tracing::warn;

use crate::keys::ADMIN_KEY_FILE;
use crate::texts::KEPT_TEXTS_FILE;

const FOLDER_MODE: u32 = 0o700;
/// The file that says that a folder is ours.
const MARKER: &str = ".tidings-data";
/// What the marker says, to whoever finds it.
const MARKER_TEXT: &str =
    "This is the data folder of a Tidings server. Without this file the server does not start on it.\n";
/// The folder of the store.
pub(crate) const STORE: &str = "store";
/// The folder of the audit log.
pub(crate) const AUDIT: &str = "audit";
/// What we make in the folder, without the endings `.new` and `.before` of files that are being replaced.
const OWN: [&str; 5] = [MARKER, STORE, AUDIT, ADMIN_KEY_FILE, KEPT_TEXTS_FILE];
/// What a file system makes in its own root folder.
const OF_FILE_SYSTEM: &str = "lost+found";
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
    /// It has files of somebody else, whose rights must not be changed.
    #[error(
        "{} is not a data folder of Tidings, because it has {found:?}: name an empty folder, or one that does not exist", path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What is in it.
        found: OsString,
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
/// what they could read until now. Once the folder itself is closed, nobody else can reach its content, so all other files
/// (`lost+found`, a snapshot) and files that cannot be changed stay as they are.
///
/// # Errors
/// If the folder is not ours, or cannot be made, read or changed. Then nothing in it was changed.
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
    claim(folder)?;
    if metadata.mode() & OTHERS == 0 {
        _ = close_all(folder, metadata); // A folder that was closed exposed nothing.
        return Ok(None);
    }
    close(folder, &metadata).map_err(at(folder))?; // Before its content, so that nobody can change the content meanwhile.
    Ok(Some(close_all(folder, metadata)))
}

/// Marks the folder as ours, if it may be.
fn claim(folder: &Path) -> Result<(), DataFolderError> {
    let at = |source| DataFolderError::Unusable { path: folder.to_owned(), source };
    let marker = folder.join(MARKER);
    if fs::symlink_metadata(&marker).is_ok_and(|metadata| metadata.is_file()) {
        return Ok(());
    }
    let has_store = Store::is_in(&folder.join(STORE)).is_ok_and(|has_store| has_store);
    for entry in fs::read_dir(folder).map_err(at)? {
        let found = entry.map_err(at)?.file_name();
        let is_ours = found != STORE && is_own(&found);
        if !has_store && !is_ours && found != OF_FILE_SYSTEM {
            return Err(DataFolderError::NotOurs { path: folder.to_owned(), found });
        }
    }
    // Not through a link that somebody else has put there.
    let written = File::create_new(marker).and_then(|mut file| file.write_all(MARKER_TEXT.as_bytes()));
    match written {
        Err(_) if has_store => Ok(()), // A full disk: the store says what the folder is, and waits for room itself.
        written => written.map_err(at),
    }
}

/// Whether we make what has this name in the folder.
fn is_own(name: &OsStr) -> bool {
    let path = Path::new(name);
    let is_replacing = path.extension().is_some_and(|ending| ending == "new" || ending == "before");
    OWN.iter().any(|own| name == *own || is_replacing && path.file_stem() == Path::new(own).file_stem())
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
fn close_all(top: &Path, metadata: Metadata) -> Exposed {
    let mut exposed = Exposed { count: 1, since: made_at(&metadata) };
    let own = metadata.uid();
    let mut rest = vec![top.to_owned()];
    while let Some(folder) = rest.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let is_ours = |entry: &fs::DirEntry| folder != top || is_own(&entry.file_name());
        for path in entries.filter(is_ours).map(|entry| entry.path()) {
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
        let note = folder.join("note");
        fs::write(&note, "of the operator").unwrap();
        open(&note, 0o644);
        open(&inside.join("0.jnl"), 0o455);
        assert_eq!(secure(&folder).unwrap(), None);
        assert_eq!(modes(&folder)[3], 0o400, "what its owner may do stays");
        assert_eq!(fs::metadata(&note).unwrap().mode() & 0o777, 0o644, "what is not ours stays as it is");
        assert_eq!(secure(&folder).unwrap(), None);
    }
    #[test]
    fn a_folder_of_somebody_else_is_refused_and_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        for (number, names) in
            [&["thesis.tex"][..], &["lost+found", "Music"], &["store"], &["api-key", "id_rsa"]].into_iter().enumerate()
        {
            let folder = dir.path().join(number.to_string());
            for name in names {
                fs::create_dir_all(folder.join(name)).unwrap();
                fs::set_permissions(folder.join(name), Permissions::from_mode(0o755)).unwrap();
            }
            fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
            let refusal = secure(&folder).unwrap_err();
            let found = format!("because it has {:?}: name an empty folder", names.last().unwrap());
            assert!(
                matches!(refusal, DataFolderError::NotOurs { .. }) && refusal.to_string().contains(&found),
                "{refusal}"
            );
            assert_eq!((mode(&folder), mode(&folder.join(names[0]))), (0o777, 0o755));
            assert!(!folder.join(MARKER).exists());
        }
    }

    #[test]
    fn an_empty_folder_and_one_with_a_store_from_before_become_ours() {
        let dir = tempfile::tempdir().unwrap();
        for names in [&[][..], &["lost+found"], &["api-key", "last-good-texts.before"], &["store/data", "note"]] {
            let folder = dir.path().join(names.len().to_string() + names.first().unwrap_or(&""));
            fs::create_dir_all(&folder).unwrap();
            names.iter().for_each(|name| fs::create_dir_all(folder.join(name)).unwrap());
            secure(&folder).unwrap();
            assert!(folder.join(MARKER).exists());
            fs::write(folder.join("more"), "of the operator").unwrap();
            assert_eq!(secure(&folder).unwrap(), None, "it is ours from then on");
        }
    }
}
