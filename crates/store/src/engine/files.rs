//! Checks that every file of a database exists, before fjall opens the database.
//!
//! If some files are lost, fjall takes the database for one that was never finished. Without its log it begins a new one,
//! and the next start skips the rows of the new log because their numbers are lower than those in the tables. It deletes
//! a keyspace that has no file `current`. So the store keeps two small files of its own in the database's folder, and
//! refuses to open a database that does not agree with them:
//!
//! - `manifest` names the keyspace of each table. For each log file it also names the rows that must be in tables after
//!   the older log files are gone. It is replaced as a whole when a table or a log file is created.
//! - `acknowledged` has the number of the last synced commit. It is written in place after each such commit, so it is
//!   never ahead of the log, also after a power failure.
//!
//! A missing or damaged one of these two files is made anew when the database is opened, because no stored data is in
//! them. Stores of earlier versions have neither.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use super::error::EngineError;
use super::log;
use super::table::Table;

const MANIFEST: &str = "manifest";
const ACKNOWLEDGED: &str = "acknowledged";
/// fjall's folder of keyspaces, each named by its number. fjall's own keyspace is 0.
const KEYSPACES: &str = "keyspaces";
/// fjall's file in a keyspace that names the valid version file: number u64, XXH3 of that file u128, a zero.
const CURRENT: &str = "current";
const TABLES: &str = "tables";

/// The files that the database must have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The keyspace of each table, by the table's name.
    pub(super) tables: BTreeMap<String, u64>,
    /// In the order of their numbers.
    pub(super) logs: Vec<LogNote>,
}

/// A log file, and the rows that only the older log files had when it was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogNote {
    pub(super) number: u64,
    /// By table.
    pub(super) behind: BTreeMap<String, Behind>,
}

/// Rows of a table that only the log had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Behind {
    /// The highest sequence number among them.
    pub(super) sequence_number: u64,
    /// The version of the table's keyspace at that time. It grows when rows are written into files and when files are
    /// merged. After a merge a deletion may be gone together with the deleted row, so that the sequence number proves
    /// nothing any more.
    pub(super) version: u64,
}

/// The number of the valid version in a keyspace's folder; 0 before the first.
pub(super) fn current_version(keyspace: &Path) -> io::Result<u64> {
    match fs::read(keyspace.join(CURRENT)) {
        Ok(bytes) => Ok(bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

impl Manifest {
    /// Reads the manifest in `place`. It is empty if the file is missing or damaged.
    fn read(place: &Path) -> io::Result<Self> {
        let path = place.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        let found = bytes.split_first_chunk().filter(|(sum, json)| u64::from_le_bytes(**sum) == xxh3_64(json));
        let manifest = found.and_then(|(_, json)| serde_json::from_slice(json).ok());
        Ok(manifest.unwrap_or_else(|| {
            warn!(path = %path.display(), "The list of the store's files is damaged and is made anew");
            Self::default()
        }))
    }

    /// Replaces the file in one step.
    pub(super) fn write(&self, place: &Path) -> io::Result<()> {
        let (path, new) = (place.join(MANIFEST), place.join("manifest.new"));
        let json = serde_json::to_vec(self).expect("its keys are strings");
        let mut file = File::create(&new)?;
        file.write_all(&xxh3_64(&json).to_le_bytes())?;
        file.write_all(&json)?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        File::open(place)?.sync_all()
    }

    /// The rows that must be in tables if `oldest` is the oldest log file: those of the last note that is not newer.
    pub(super) fn behind(&self, oldest: u64) -> Option<&BTreeMap<String, Behind>> {
        let note = self.logs.iter().rev().find(|note| note.number <= oldest)?;
        Some(&note.behind).filter(|behind| !behind.is_empty())
    }
}

/// The result of [`check`].
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) manifest: Manifest,
    /// The numbers of the log files; at least one, without a gap.
    pub(super) logs: Vec<u64>,
}

/// Checks that a database has all its files and that its log can be read. Changes nothing.
///
/// Cost: reads the whole log, and the list of parts of each table file.
pub(super) fn check(place: &Path) -> Result<Found, EngineError> {
    for name in ["version", "lock"] {
        present(&place.join(name))?;
    }
    let manifest = Manifest::read(place)?;
    check_keyspaces(&place.join(KEYSPACES), &manifest)?;
    let acknowledged = match place.join(ACKNOWLEDGED).try_exists()? {
        true => Acknowledged::open(place)?.read()?,
        false => None,
    };
    let logs = check_logs(place, &manifest, acknowledged)?;
    Ok(Found { manifest, logs })
}

fn present(path: &Path) -> Result<(), EngineError> {
    if path.try_exists()? { Ok(()) } else { Err(missing(path)) }
}

fn missing(path: &Path) -> EngineError {
    EngineError::incomplete(path, "is missing")
}

fn check_keyspaces(folder: &Path, manifest: &Manifest) -> Result<(), EngineError> {
    present(folder)?;
    let known = manifest.tables.values().map(|number| folder.join(number.to_string()));
    for keyspace in known.chain([folder.join("0")]) {
        present(&keyspace)?;
        present(&keyspace.join(CURRENT))?;
    }
    for entry in fs::read_dir(folder)? {
        let keyspace = entry?.path();
        let tables = keyspace.join(TABLES);
        if keyspace.join(CURRENT).try_exists()? {
            check_keyspace(&keyspace)?;
        } else if tables.try_exists()? && fs::read_dir(&tables)?.next().is_some() {
            // A keyspace whose creation was interrupted has no tables.
            return Err(missing(&keyspace.join(CURRENT)));
        }
    }
    Ok(())
}

/// Checks that the version file is the one that `current` names, and that all tables in it exist.
fn check_keyspace(keyspace: &Path) -> Result<(), EngineError> {
    let current = keyspace.join(CURRENT);
    let damaged = |path: &Path| EngineError::incomplete(path, "is damaged");
    let bytes = fs::read(&current)?;
    let (number, sum) = bytes.split_first_chunk().ok_or_else(|| damaged(&current))?;
    let sum = sum.first_chunk().ok_or_else(|| damaged(&current))?;
    let version = keyspace.join(format!("v{}", u64::from_le_bytes(*number)));
    present(&version)?;
    let content = fs::read(&version)?;
    if xxh3_128(&content) != u128::from_le_bytes(*sum) {
        return Err(EngineError::incomplete(&version, format!("does not have the checksum in {}", current.display())));
    }
    for table in tables_of(&version, &content).ok_or_else(|| damaged(&version))? {
        let path = keyspace.join(TABLES).join(table.to_string());
        present(&path)?;
        if !is_list_of_parts_whole(&path)? {
            return Err(damaged(&path));
        }
    }
    Ok(())
}

/// The tables that a version file names; `None` if it cannot be read.
///
/// Its section `tables`: the number of levels u8; per level the number of runs u8; per run the number of tables u32; per
/// table its number u64 and 25 more bytes.
fn tables_of(path: &Path, content: &[u8]) -> Option<Vec<u64>> {
    let reader = sfa::Reader::new(path).ok()?;
    let section = reader.toc().section(b"tables")?;
    let from = usize::try_from(section.pos()).ok()?;
    let mut bytes = content.get(from..from.checked_add(usize::try_from(section.len()).ok()?)?)?;
    let mut take = |count: usize| bytes.split_off(..count);
    let mut tables = Vec::new();
    for _ in 0..take(1)?[0] {
        for _ in 0..take(1)?[0] {
            for _ in 0..u32::from_le_bytes(take(4)?.try_into().ok()?) {
                tables.push(u64::from_le_bytes(*take(33)?.first_chunk()?));
            }
        }
    }
    Some(tables)
}

/// Whether the checksum of the list of a table's parts, at the end of its file, is right. fjall allocates memory for the
/// count in the list before it compares the checksum, so a changed byte could end the process.
///
/// The file ends with "SFA!", 1, 0, the list's XXH3 u128, its position u64, its length u64.
fn is_list_of_parts_whole(path: &Path) -> io::Result<bool> {
    const TRAILER_BYTES: usize = 38;
    const LIST_BYTES_MAX: u64 = 64 << 10;
    let file = File::open(path)?;
    let Some(list_end) = file.metadata()?.len().checked_sub(TRAILER_BYTES as u64) else { return Ok(false) };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, list_end)?;
    let sum = u128::from_le_bytes(*trailer[6..].first_chunk().expect("38 bytes"));
    let place = u64::from_le_bytes(*trailer[22..].first_chunk().expect("38 bytes"));
    let Some(bytes) = list_end.checked_sub(place).filter(|bytes| *bytes <= LIST_BYTES_MAX) else { return Ok(false) };
    let mut list = vec![0; bytes as usize];
    file.read_exact_at(&mut list, place)?;
    Ok(trailer.starts_with(b"SFA!\x01\x00") && xxh3_128(&list) == sum)
}

/// Checks that neither a log file nor a commit between two log files is missing.
fn check_logs(place: &Path, manifest: &Manifest, acknowledged: Option<u64>) -> Result<Vec<u64>, EngineError> {
    let files = log::numbered_log_files(place)?;
    let meta = manifest.tables.get(Table::Meta.name()).copied();
    let mut last: Option<(u64, Option<u64>)> = None;
    for (at, (number, path)) in files.iter().enumerate() {
        if let Some((before, _)) = last
            && *number != before + 1
        {
            return Err(missing(&place.join(format!("{}.jnl", before + 1))));
        }
        let log = log::read(path, meta)?;
        let is_last = at + 1 == files.len();
        if let Some(offset) = log.damaged_at {
            let known = log.commits.map(|(_, last)| last).or(last.and_then(|(_, before)| before));
            if !is_last || acknowledged.is_none_or(|acknowledged| known < Some(acknowledged)) {
                return Err(EngineError::incomplete(path, format!("is damaged at byte {offset}")));
            }
            // After a power failure, any pages of unsynced commits may be missing.
            warn!(path = %path.display(), offset, "The end of the log has commits that were never acknowledged and is cut off");
        }
        if log.batch_count == 0 && !is_last {
            return Err(EngineError::incomplete(path, "is empty, and is not the newest log file"));
        }
        let (first_commit, last_commit) = log.commits.unzip();
        if let (Some((_, Some(before))), Some(first)) = (last, first_commit)
            && first != before + 1
        {
            let what = format!("begins with commit {first}, and the log file before it ends with commit {before}");
            return Err(EngineError::incomplete(path, what));
        }
        last = Some((*number, last_commit));
    }
    if files.is_empty() {
        return Err(EngineError::incomplete(&place.join("*.jnl"), "is missing: there is no log file"));
    }
    Ok(files.into_iter().map(|(number, _)| number).collect())
}

/// The number of the last commit that was synced.
#[derive(Debug)]
pub(super) struct Acknowledged {
    file: File,
    path: PathBuf,
}

impl Acknowledged {
    pub(super) fn open(place: &Path) -> io::Result<Self> {
        let path = place.join(ACKNOWLEDGED);
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path)?;
        Ok(Self { file, path })
    }

    /// `None` if the file is new or damaged.
    pub(super) fn read(&self) -> io::Result<Option<u64>> {
        let mut bytes = [0; 16];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let [commit, sum] = [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("16 bytes")));
        if sum != xxh3_64(&commit.to_le_bytes()) {
            warn!(path = %self.path.display(), "The number of the last commit is damaged and is made anew");
            return Ok(None);
        }
        Ok(Some(commit))
    }

    pub(super) fn write(&self, commit: u64) -> io::Result<()> {
        let commit = commit.to_le_bytes();
        let bytes = [commit, xxh3_64(&commit).to_le_bytes()];
        self.file.write_all_at(bytes.as_flattened(), 0)
    }
}
