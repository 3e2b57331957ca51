//! The outputs, and what comes out of them: nothing, a pipe, a file, a terminal.
//!
//! A pipe or a terminal (a pseudo-terminal in its initial mode) has a thread that reads everything into memory. What
//! came out is checked after the time was taken.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The kind of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Nothing,
    Pipe,
    File,
    Terminal,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::Nothing, Self::Pipe, Self::File, Self::Terminal];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "no-op",
            Self::Pipe => "pipe",
            Self::File => "file",
            Self::Terminal => "terminal",
        }
    }
}

/// The writing end. Each call is one system call, or none for [`Kind::Nothing`].
pub(super) struct Output {
    file: Option<File>,
    written: Written,
}

/// Bytes written so far, for writers with a thread of their own.
#[derive(Clone, Default)]
pub(super) struct Written(Arc<AtomicU64>);

impl Written {
    pub(super) fn bytes(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.as_mut().map_or(Ok(bytes.len()), |file| file.write(bytes))?;
        self.written.0.fetch_add(count as u64, Ordering::Release);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reading end.
pub(super) enum Input {
    Nothing,
    Reading(JoinHandle<io::Result<Vec<u8>>>),
    File(PathBuf),
}

impl Input {
    /// Waits until the last [`Output`] is dropped and returns all bytes. `None` for [`Kind::Nothing`].
    pub(super) fn finish(self) -> io::Result<Option<Vec<u8>>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Reading(thread) => thread.join().expect("the reader does not panic").map(Some),
            Self::File(path) => {
                let bytes = std::fs::read(&path)?;
                std::fs::remove_file(path)?;
                Ok(Some(bytes))
            }
        }
    }
}

/// Opens an output. A file is made in `folder`; about `bytes` bytes will be written.
pub(super) fn open(kind: Kind, folder: &std::path::Path, bytes: usize) -> io::Result<(Output, Written, Input)> {
    let (file, input) = match kind {
        Kind::Nothing => (None, Input::Nothing),
        Kind::Pipe => {
            let (reader, writer) = io::pipe()?;
            (Some(OwnedFd::from(writer).into()), reading(OwnedFd::from(reader).into(), bytes))
        }
        Kind::File => {
            let path = folder.join("messages");
            (Some(File::create(&path)?), Input::File(path))
        }
        Kind::Terminal => {
            let (screen, terminal) = pty()?;
            (Some(terminal), reading(screen, bytes + bytes / 8)) // A line break becomes two bytes.
        }
    };
    let written = Written::default();
    Ok((Output { file, written: written.clone() }, written, input))
}

/// A pseudo-terminal: the end that a terminal emulator reads, and the end that programs write to.
fn pty() -> io::Result<(File, File)> {
    let screen = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&screen)?;
    unlockpt(&screen)?;
    let name = ptsname(&screen, Vec::new())?;
    let name = name.to_str().map_err(io::Error::other)?;
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    let terminal = {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(rustix::fs::OFlags::NOCTTY.bits().cast_signed()).open(name)?
    };
    Ok((screen.into(), terminal))
}

/// Reads to the end on a thread, into memory that was allocated before.
fn reading(mut file: File, bytes: usize) -> Input {
    let mut all = vec![1; bytes + 4096];
    all.clear();
    Input::Reading(std::thread::spawn(move || {
        match file.read_to_end(&mut all) {
            // Reading a terminal without a writer fails.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {}
            result => drop(result?),
        }
        Ok(all)
    }))
}
