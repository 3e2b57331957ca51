//! Reads the files of a folder as documents of a feed.
//!
//! The folder is looked at in intervals. A file is read when it did not change between two looks, so a file that is
//! still being written is left alone. A file that was read is known by its name, size and time of change, and stays
//! where it is: the folder may be somebody else's, or read-only. When it changes, it is read again, and entries that
//! are known are not sent again. The files are read one after the other, the oldest first.
//!
//! A file that is malformed has sent what came before the mistake. It counts as one wrong entry, and is read again when
//! it changes.
//!
//! Bound: [`FILE_COUNT_MAX`] files of one folder; with more, the oldest are read, and the status says so.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidings_store::FileMark;
use tidings_telemetry::chain;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::door::Patience;
use crate::feed::{Feed, ReadError, Source};
use crate::pieces::Fault;
use crate::status::{Counts, WrongEntry};
use crate::within::open_within;

/// Files of one feed.
pub const FILE_COUNT_MAX: usize = 1000;

type Files = BTreeMap<String, FileMark>;

/// Looks at the folder until it is dropped.
pub(crate) async fn run(
    feed: Arc<Feed>,
    folder: PathBuf,
    affixes: (String, String),
    interval: Duration,
    reads: Arc<Semaphore>,
) {
    let mut before = Files::new();
    let mut pause = Duration::ZERO;
    loop {
        feed.wait(pause).await;
        let permit = reads.acquire().await.expect("it is never closed");
        feed.tracker.began();
        let (place, names) = (folder.clone(), affixes.clone());
        let listed = spawn_blocking(move || list(&place, &names)).await;
        match listed.map_err(|error| error.to_string()).and_then(|listed| listed) {
            Ok(now) => {
                match feed.read_files(&folder, &before, &now).await {
                    Ok(()) if now.len() < FILE_COUNT_MAX => {}
                    Ok(()) => feed.tracker.failed(&format!(
                        "the folder has {FILE_COUNT_MAX} such files or more: remove some that were read"
                    )),
                    Err(error) => feed.tracker.failed(&error),
                }
                before = now;
            }
            Err(error) => feed.tracker.failed(&error),
        }
        drop(permit);
        pause = interval;
        feed.read_count.send_modify(|count| *count += 1);
    }
}

impl Feed {
    /// Reads the files that are new and did not change since `before`.
    async fn read_files(&self, folder: &Path, before: &Files, now: &Files) -> Result<(), String> {
        let mut memory = self.memory.lock().await;
        memory.state.files.retain(|name, _| now.contains_key(name));
        let is_new = |(name, mark): &(&String, &FileMark)| {
            before.get(*name) == Some(*mark) && memory.state.files.get(*name) != Some(*mark)
        };
        let mut new: Vec<_> = now.iter().filter(is_new).collect();
        new.sort_by_key(|(_, mark)| mark.modified_nanos);
        for (name, mark) in new {
            let (folder, path) = (folder.to_owned(), PathBuf::from(name));
            let opened =
                spawn_blocking(move || open_within(&folder, &path)).await.map_err(|error| error.to_string())?;
            let file = match opened {
                Ok(file) => file,
                // It is no file of this folder, and reading it again does not mend it.
                Err(error) if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::InvalidInput) => {
                    self.tracker.note_wrong(WrongEntry { at: name.clone(), reason: error.to_string() });
                    self.tracker.count(Counts { wrong: 1, ..Counts::default() });
                    memory.state.files.insert(name.clone(), *mark);
                    self.keep(&mut memory, Vec::new(), Patience::Wait).await.map_err(|error| error.to_string())?;
                    continue;
                }
                Err(error) => return Err(format!("{name}: {error}")),
            };
            match self.read(&mut memory, Source::File(file), Patience::Wait).await {
                (report, Ok(())) => self.tracker.worked(Some(report.counts)),
                // Reading it again does not mend it, so the next files have their turn.
                (_, Err(error @ (ReadError::Malformed(_) | ReadError::Fault(Fault::TooLarge(_))))) => {
                    self.tracker.note_wrong(WrongEntry { at: name.clone(), reason: error.to_string() });
                    self.tracker.count(Counts { wrong: 1, ..Counts::default() });
                }
                (_, Err(error)) => return Err(format!("{name}: {}", chain(&error))),
            }
            memory.state.files.insert(name.clone(), *mark);
            self.keep(&mut memory, Vec::new(), Patience::Wait).await.map_err(|error| error.to_string())?;
        }
        self.tracker.looked();
        Ok(())
    }
}

/// The files whose names fit.
fn list(folder: &Path, (begin, end): &(String, String)) -> Result<Files, String> {
    let told = |error: std::io::Error| format!("{}: {error}", folder.display());
    let mut files = Files::new();
    let mut ages = std::collections::BTreeSet::new();
    for entry in std::fs::read_dir(folder).map_err(told)? {
        let entry = entry.map_err(told)?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let fits = name.len() >= begin.len() + end.len() && name.starts_with(begin) && name.ends_with(end);
        // A file that is gone since the folder was read is none.
        let Some(data) = fits.then(|| std::fs::metadata(entry.path()).ok()).flatten().filter(|data| data.is_file())
        else {
            continue;
        };
        let modified = data.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        let modified_nanos = u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX);
        files.insert(name.clone(), FileMark { bytes: data.len(), modified_nanos });
        ages.insert((modified_nanos, name));
        if files.len() > FILE_COUNT_MAX {
            files.remove(&ages.pop_last().expect("it has as many").1);
        }
    }
    Ok(files)
}
