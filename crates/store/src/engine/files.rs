//! Whether every file of a database is there, asked before fjall opens it.
//!
//! fjall takes some lost files for a database that was never finished: without its log it begins a new one, whose writes
//! the next start then skips as older than the tables; a keyspace without `current` it deletes. So the store keeps two
//! small files of its own in the database's folder, and refuses to open what does not agree with them:
//!
//! - `manifest` names the keyspace of each table, and for each log file the rows that must be in tables once the log files
//!   before it are gone. It is replaced as a whole when a table is made, or a log file is begun.
//! - `acknowledged` has the number of the last commit that was synced. It is written in place after each such commit, so it
//!   is never ahead of the log, also after a power failure.
//!
//! Stores of earlier versions have neither; they get both when they are opened. A lost or damaged one is made anew too:
//! nothing that was stored is in them.

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
/// fjall's folder of keyspaces, each named by its number. The one of fjall's own is 0.
const KEYSPACES: &str = "keyspaces";
/// fjall's file in a keyspace that says which version file counts: number u64, XXH3 of that file u128, a zero.
const CURRENT: &str = "current";
const TABLES: &str = "tables";

/// What the database is known to have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// The keyspace of each table, by the table's name.
    pub(super) tables: BTreeMap<String, u64>,
    /// In the order of their numbers.
    pub(super) logs: Vec<LogNote>,
}

/// A log file, and what is needed of those before it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogNote {
    pub(super) number: u64,
    /// The tables that have rows in the log files before this one which were in none of their files.
    pub(super) behind: BTreeMap<String, Behind>,
}

/// Rows of a table that only the log had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Behind {
    /// The highest sequence number among them.
    pub(super) sequence_number: u64,
    /// The version of the table's keyspace then. It grows whenever rows get into files, and when files are merged: after that a
    /// deletion may be gone with what it deleted, so the sequence number says nothing any more.
    pub(super) version: u64,
}

/// The number of the version that counts in a keyspace's folder; none before its first.
pub(super) fn current_version(keyspace: &Path) -> io::Result<u64> {
    match fs::read(keyspace.join(CURRENT)) {
        Ok(bytes) => Ok(bytes.first_chunk().map_or(0, |number| u64::from_le_bytes(*number))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

impl Manifest {
    /// The one in `place`; an empty one where there is none.
    fn read(place: &Path) -> io::Result<Self> {
        let path = place.join(MANIFEST);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        let found = bytes.split_first_chunk().filter(|(sum, json)| u64::from_le_bytes(**sum) == xxh3_64(json));
        let manifest = found.and_then(|(_, json)| serde_json::from_slice(json).ok());
        Ok(manifest.unwrap_or_else(|| {
            warn!(path = %path.display(), "The list of the store's files is damaged, and is made anew");
            Self::default()
        }))
    }

    /// Puts it in the place of the old one, in one step.
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

    /// What must be in tables where `oldest` is the first log file: of the last note that is not behind it.
    pub(super) fn behind(&self, oldest: u64) -> Option<&BTreeMap<String, Behind>> {
        let note = self.logs.iter().rev().find(|note| note.number <= oldest)?;
        Some(&note.behind).filter(|behind| !behind.is_empty())
    }
}

/// What was found in a folder that has every file.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) manifest: Manifest,
    /// The numbers of the log files; at least one, without a gap.
    pub(super) logs: Vec<u64>,
}

/// Looks whether a database has all its files, and its log can be read. Changes nothing.
///
/// Cost: the log is read once, and of each table the list of its parts.
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
            // One whose making was interrupted has no tables.
            return Err(missing(&keyspace.join(CURRENT)));
        }
    }
    Ok(())
}

/// The version file is the one that `current` means, and every table that it names is there.
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
        return Err(EngineError::incomplete(&version, format!("is not what {} says", current.display())));
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

/// The tables that a version file names; `None` where it cannot be read.
///
/// Its section `tables`: levels u8, in each runs u8, in each tables u32, of each its number u64 and 25 bytes more.
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

/// Whether the list of a table's parts, at the end of its file, is what was written. fjall trusts its count before it
/// compares the checksum, and asks for as much memory: a changed byte would end the process.
///
/// The file ends with "SFA!", 1, 0, the list's XXH3 u128, its place u64, its length u64.
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

/// The log files follow on each other, and so do the commits in them.
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
            // A power failure may leave the pages of commits that were not synced in any order.
            warn!(path = %path.display(), offset, "The log ends with commits that were never acknowledged, and is cut off there");
        }
        if log.batch_count == 0 && !is_last {
            return Err(EngineError::incomplete(path, "is empty, and is not the newest"));
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

    /// Nothing where the file is new or damaged.
    pub(super) fn read(&self) -> io::Result<Option<u64>> {
        let mut bytes = [0; 16];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            read => read?,
        }
        let [commit, sum] = [0, 8].map(|at| u64::from_le_bytes(*bytes[at..].first_chunk().expect("16 bytes")));
        if sum != xxh3_64(&commit.to_le_bytes()) {
            warn!(path = %self.path.display(), "The number of the last commit is damaged, and is made anew");
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
