//! Opens files of a folder into which others put files: translators, providers of feeds.
//!
//! Such a file may be a link to a file that only this process may read, or a pipe that nobody writes into. Links within the folder
//! are followed: Kubernetes mounts files as links.

use std::fs::File;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How often a file is tried to be opened while others rename.
const TRY_COUNT: usize = 16;

/// Opens a regular file for reading. `path` begins in the folder. Does not wait for a pipe's other end.
///
/// # Errors
/// If it is no regular file, if its path leads out of the folder, or if it cannot be opened.
pub fn open_within(folder: &Path, path: &Path) -> Result<File> {
    let root = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let open = || openat2(&root, path, flags, Mode::empty(), beneath);
    // openat2(2): it says so when something was renamed meanwhile, and may be called again.
    let opened = (0..TRY_COUNT).map(|_| open()).find(|opened| !matches!(opened, Err(Errno::AGAIN)));
    let file: File = match opened.unwrap_or(Err(Errno::AGAIN)) {
        Ok(file) => file.into(),
        Err(Errno::NOSYS) => {
            return Err(Error::new(ErrorKind::Unsupported, "the system has no openat2 (Linux 5.6 or later)"));
        }
        Err(Errno::XDEV) => {
            return Err(Error::new(
                ErrorKind::PermissionDenied,
                "it is an absolute link, or one that leads out of its folder",
            ));
        }
        Err(error) => return Err(error.into()),
    };
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    Err(Error::new(ErrorKind::InvalidInput, "it is no regular file"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, mknodat};

    use super::*;

    #[test]
    fn only_regular_files_of_the_folder_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("texts");
        fs::create_dir_all(folder.join("..data/sv")).unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        fs::write(folder.join("..data/sv/goals.po"), "text").unwrap();
        // As Kubernetes mounts a ConfigMap.
        symlink("..data/sv", folder.join("sv")).unwrap();
        for (name, target) in
            [("absolute", dir.path().join("secret")), ("relative", "../secret".into()), ("up", "..".into())]
        {
            symlink(target, folder.join(name)).unwrap();
        }
        symlink("nothing", folder.join("broken")).unwrap();
        mknodat(CWD, folder.join("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let open = |path: &str| open_within(&folder, Path::new(path));
        let mut text = String::new();
        open("sv/goals.po").unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        let kind = |path: &str| open(path).unwrap_err().kind();
        for path in ["absolute", "relative", "up/secret", "../secret"] {
            assert_eq!(kind(path), ErrorKind::PermissionDenied, "{path}");
        }
        assert_eq!(["pipe", "sv"].map(kind), [ErrorKind::InvalidInput; 2]);
        assert_eq!(["broken", "absent"].map(kind), [ErrorKind::NotFound; 2]);
    }
}
