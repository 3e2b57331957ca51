//! The files of the log, as the sink of a batching writer. They are named `00000001.ndjson`, `00000002.ndjson` and so on;
//! the newest one grows.
//!
//! A page that does not fit into the newest file begins a new one, and then the oldest files beyond `file_count_max` are
//! removed. Files have mode 600.
//!
//! When a write fails (a full disk), what was written of the page is cut off again, the page is lost, and the next page
//! tries to open the file anew. The log of the server says once that lines are lost, and once that they are written again.
//! A line that a crash has cut off gets its end when the file is opened, so that the next line is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use tidings_batch::Sink;
use tidings_telemetry::chain;
use tracing::{error, info};

const ENDING: &str = "ndjson";

/// The numbers of the files in the folder, in order. A folder that does not exist has none.
pub(crate) fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut numbers = Vec::new();
    for entry in entries {
        let name = PathBuf::from(entry?.file_name());
        if name.extension().is_some_and(|ending| ending == ENDING) {
            numbers.extend(name.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(crate) fn path(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number:08}.{ENDING}"))
}

/// Writes pages into the newest file.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) folder: PathBuf,
    pub(crate) file_bytes_max: u64,
    pub(crate) file_count_max: usize,
    /// `None`: it is not open, or the last write failed.
    newest: Option<Newest>,
    is_failing: bool,
}

#[derive(Debug)]
struct Newest {
    number: u64,
    file: File,
    bytes: u64,
}

impl Files {
    pub(crate) fn new(folder: PathBuf, file_bytes_max: u64, file_count_max: usize) -> Self {
        Self { folder, file_bytes_max, file_count_max, newest: None, is_failing: false }
    }

    fn write(&mut self, page: &[u8]) -> io::Result<()> {
        let newest = match self.newest.take() {
            Some(newest) => newest,
            None => self.open()?,
        };
        let is_full = newest.bytes > 0 && newest.bytes + page.len() as u64 > self.file_bytes_max;
        let mut newest = if is_full { self.begin(newest.number + 1)? } else { newest };
        if let Err(error) = newest.file.write_all(page) {
            drop(newest.file.set_len(newest.bytes)); // Else the torn line counts as damaged.
            return Err(error);
        }
        newest.bytes += page.len() as u64;
        self.newest = Some(newest);
        Ok(())
    }

    fn open(&self) -> io::Result<Newest> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let number = numbers(&self.folder)?.last().copied().unwrap_or(1);
        let mut newest = self.begin(number)?;
        if newest.bytes > 0 {
            let mut last = [0];
            newest.file.seek(SeekFrom::End(-1))?;
            newest.file.read_exact(&mut last)?;
            if last != *b"\n" {
                newest.file.write_all(b"\n")?;
                newest.bytes += 1;
            }
        }
        Ok(newest)
    }

    /// Opens the file with this number, and removes those that are too old.
    fn begin(&self, number: u64) -> io::Result<Newest> {
        let path = path(&self.folder, number);
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let bytes = file.metadata()?.len();
        let numbers = numbers(&self.folder)?;
        for old in &numbers[..numbers.len().saturating_sub(self.file_count_max)] {
            fs::remove_file(self::path(&self.folder, *old))?;
        }
        Ok(Newest { number, file, bytes })
    }
}

impl Sink for Files {
    async fn write_page(&mut self, page: &[u8]) -> io::Result<()> {
        let written = self.write(page);
        match &written {
            Err(error) if !self.is_failing => {
                error!(folder = %self.folder.display(), error = chain(error), "Cannot write the audit log, its lines are lost");
            }
            Ok(()) if self.is_failing => info!(folder = %self.folder.display(), "The audit log is written again"),
            _ => {}
        }
        self.is_failing = written.is_err();
        written
    }
}
