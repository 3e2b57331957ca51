//! The key-value store: tables of sorted rows, atomic batches. Only this module uses fjall.
//!
//! It handles four weaknesses of fjall 3.1:
//!
//! - A failed write poisons the database until it is opened again. The committer does that.
//! - A commit sleeps while flushing is behind, and sleeps without end if the flushing thread has died because the disk is
//!   full. So [`Engine::commit`] itself waits for room, and notices a dead thread.
//! - A database whose creation was interrupted cannot be opened. So it is created beside its place, and moved there when
//!   it is complete.
//! - If some files are lost, fjall may take the database for one that was never finished, and continue without them. So
//!   `files` first checks that all are there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fjall::{
    AbstractTree as _, AnyTree, Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode, Readable as _,
};
use tidings_telemetry::chain;
use tokio::time::Instant;
use tracing::warn;

use self::cut::CutRows;
use self::error::{open_error, read_error};
use self::files::{Acknowledged, Behind, Found, LogNote, Manifest, current_version};
#[cfg(test)]
use self::hooks::Hooks;
use self::log::{log_name, numbered_log_files};

mod batch;
mod cut;
mod error;
mod files;
#[cfg(test)]
mod hooks;
mod log;
mod scans;
mod span;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use self::batch::{Durability, Row, Rows};
pub(crate) use self::cut::Cut;
pub use self::error::EngineError;
#[cfg(test)]
pub(crate) use self::hooks::Fault;
pub(crate) use self::scans::{Place, Scanned, Scans};
pub(crate) use self::span::Span;
pub(crate) use self::table::WRITE_BUFFER_BYTES;
pub(crate) use self::table::{STATE_KEY, Table};

/// The database's folder in the store's folder.
const PLACE: &str = "data";

/// An open database. Its folder stays locked until all clones of its parts are dropped.
pub(crate) struct Engine {
    database: Database,
    keyspaces: [Keyspace; Table::ALL.len()],
    place: PathBuf,
    acknowledged: Acknowledged,
    notes: Mutex<Notes>,
    /// The last attempt to write the manifest or the number of the last synced commit failed.
    is_noting_failing: AtomicBool,
    /// Held while a batch is applied. When fjall registers a file of rows, it makes all batches visible that were begun
    /// before, so a snapshot taken meanwhile may show half of a batch.
    applying: Mutex<()>,
    scans: Arc<Scans>,
    #[cfg(test)]
    pub(crate) hooks: Hooks,
}

struct Notes {
    manifest: Manifest,
    /// Whether the manifest on the disk is the current one.
    is_written: bool,
    /// The number of the log file that fjall writes now.
    newest_log: u64,
}

/// If the log is longer, tables with old rows in it are written to files. A start after a crash has to read the log.
const JOURNALING_BYTES_MAX: u64 = 64 << 20;
/// How long the store waits at its end until all rows are in files.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// How many sealed write buffers, and how many runs of fresh files, a table may have before a commit waits. fjall sleeps
/// inside a commit at 4 and at 20, and one commit adds at most one.
const SEALED_BUFFER_COUNT_MAX: usize = 3;
const FRESH_RUN_COUNT_MAX: usize = 19;
/// The most memory for rows that are not yet in a file: for each table a buffer that is filled, and those that wait to be written.
pub(crate) const WRITE_BUFFER_BYTES_MAX: u64 = (1 + SEALED_BUFFER_COUNT_MAX as u64) * WRITE_BUFFER_BYTES;

impl Engine {
    /// Opens the database in `folder`. If there is none, creates it with the rows `first`.
    pub(crate) fn open(folder: &Path, cache_bytes: u64, first: impl FnOnce() -> Rows) -> Result<Self, EngineError> {
        if !Self::is_in(folder)? {
            Self::create(folder, cache_bytes, |engine| engine.commit(first(), Durability::Synced))?;
        }
        Self::open_again(folder, cache_bytes)
    }

    /// Whether there is a database in `folder`.
    pub(crate) fn is_in(folder: &Path) -> Result<bool, EngineError> {
        Ok(folder.join(PLACE).try_exists()?)
    }

    /// Removes the database in `folder`, which nobody has open.
    pub(crate) fn remove(folder: &Path) -> Result<(), EngineError> {
        Ok(fs::remove_dir_all(folder.join(PLACE))?)
    }

    /// Creates a database in `folder`, which has none: with all rows that `fill` writes, or not at all.
    pub(crate) fn create<E: From<EngineError>>(
        folder: &Path,
        cache_bytes: u64,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let (place, beside) = (folder.join(PLACE), folder.join("data.new"));
        let clear = || -> Result<(), EngineError> {
            if beside.try_exists()? {
                fs::remove_dir_all(&beside)?; // Of an interrupted creation. No row of it was ever acknowledged.
            }
            Ok(())
        };
        clear()?;
        let filled = Self::open_at(&beside, cache_bytes, None).map_err(E::from).and_then(|engine| fill(&engine));
        if let Err(error) = filled {
            _ = clear(); // If this fails, the next attempt clears the folder.
            return Err(error);
        }
        let moved = || -> Result<(), EngineError> {
            sync_all(&beside)?;
            fs::rename(&beside, &place)?;
            // Both may be new directory entries: the database in the folder, and the folder in its parent.
            for named_in in [Some(folder), folder.parent()].into_iter().flatten().filter(|path| path.is_dir()) {
                File::open(named_in)?.sync_all()?;
            }
            Ok(())
        };
        Ok(moved()?)
    }

    /// Opens an existing database. It never creates one, because an empty one would replace acknowledged data.
    pub(crate) fn open_again(folder: &Path, cache_bytes: u64) -> Result<Self, EngineError> {
        let place = folder.join(PLACE);
        if !place.try_exists()? {
            return Err(EngineError::missing());
        }
        let found = files::check(&place)?;
        Self::open_at(&place, cache_bytes, Some(found))
    }

    /// Opens the database at `path`. `found` is `None` for a new database.
    fn open_at(path: &Path, cache_bytes: u64, found: Option<Found>) -> Result<Self, EngineError> {
        let builder = || {
            Database::builder(path).cache_size(cache_bytes).worker_threads(2).max_journaling_size(JOURNALING_BYTES_MAX)
        };
        let is_new = found.is_none();
        let Found { mut manifest, logs } = found.unwrap_or_default();
        let behind = logs.first().and_then(|oldest| manifest.behind(*oldest));
        if let Some(behind) = behind.filter(|_| logs.len() > 1) {
            // Without fjall's threads: they would write rows of the other log files into tables before the check.
            let database = builder().worker_threads_unchecked(0).open().map_err(|error| open_error(path, error))?;
            check_behind(&database, path, behind)?;
        }
        let database = builder().open().map_err(|error| open_error(path, error))?;
        if let Some(behind) = behind {
            check_behind(&database, path, behind)?;
        }
        if let Some(lost) = manifest.tables.keys().find(|name| !database.keyspace_exists(name)) {
            return Err(EngineError::incomplete(path, format!("has no table {lost} any more")));
        }
        let mut keyspaces = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            keyspaces.push(database.keyspace(table.name(), || table.options())?);
        }
        let keyspaces: [Keyspace; Table::ALL.len()] =
            keyspaces.try_into().ok().expect("there is one keyspace per table");
        for (table, keyspace) in Table::ALL.iter().zip(&keyspaces) {
            let number = keyspace.path().file_name().and_then(|name| name.to_str()?.parse().ok());
            manifest.tables.extend(number.map(|number| (table.name().to_owned(), number)));
        }
        manifest.logs.retain(|note| logs.contains(&note.number));
        manifest.write(path)?;
        let newest_log = if is_new { 0 } else { *logs.last().expect("`files::check` found at least one log file") };
        Ok(Self {
            database,
            keyspaces,
            place: path.to_owned(),
            acknowledged: Acknowledged::open(path)?,
            notes: Mutex::new(Notes { manifest, is_written: true, newest_log }),
            is_noting_failing: AtomicBool::new(false),
            applying: Mutex::new(()),
            scans: Arc::default(),
            #[cfg(test)]
            hooks: Hooks::default(),
        })
    }

    /// What scans have read.
    pub(crate) fn scans(&self) -> &Arc<Scans> {
        &self.scans
    }

    /// Goes on counting where the engine before this one ended.
    pub(crate) fn counting_on(self, scans: Arc<Scans>) -> Self {
        Self { scans, ..self }
    }

    /// Deleted rows of a table that its files still have. Those that are only in memory are not counted.
    pub(crate) fn tombstones(&self, table: Table) -> u64 {
        self.keyspace(table).tree.tombstone_count()
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<impl AsRef<[u8]> + use<>>, EngineError> {
        self.keyspace(table).get(key).map_err(|error| read_error(error, table, key))
    }

    /// The row under `key`, decoded.
    pub(crate) fn read<T>(
        &self,
        table: Table,
        key: &[u8],
        decode: impl FnOnce(&[u8], &[u8]) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        self.get(table, key)?.map(|row| decode(key, row.as_ref())).transpose()
    }

    /// Visits the rows of `span` in the order of their keys, until `visit` returns false. It sees a snapshot.
    pub(crate) fn scan(
        &self,
        place: Place,
        table: Table,
        span: &Span,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        if span.is_empty() {
            return Ok(());
        }
        let snapshot = self.database.snapshot();
        let mut last = span.first_key().to_vec();
        let mut scan = self.scans.begin(place);
        for row in snapshot.range::<&[u8], _>(self.keyspace(table), span.bounds()) {
            // The key of an unreadable row is unknown. The error names the last readable key before it.
            let (key, value) = row.into_inner().map_err(|error| read_error(error, table, &last))?;
            scan.visit();
            if !visit(&key, &value)? {
                break;
            }
            last.clear();
            last.extend_from_slice(&key);
        }
        Ok(())
    }

    /// Writes all rows in one step.
    ///
    /// # Errors
    /// When the disk fails now or failed before. The rows are then durable as a whole or not at all. Only opening the
    /// database again shows which.
    pub(crate) fn commit(&self, rows: Rows, durability: Durability) -> Result<(), EngineError> {
        #[cfg(test)]
        let fault = {
            self.hooks.commits.lock().unwrap().push(durability);
            self.hooks.fault.lock().unwrap().take()
        };
        #[cfg(test)]
        if fault == Some(Fault::BeforeCommit) {
            return Err(fjall::Error::Poisoned.into());
        }
        self.wait_for_room()?;
        let mode = match durability {
            Durability::Synced => PersistMode::SyncData,
            Durability::Handed => PersistMode::Buffer,
        };
        let count = rows.tables.iter().map(BTreeMap::len).sum();
        let touched = Table::ALL.into_iter().zip(&rows.tables).filter(|(_, rows)| !rows.is_empty());
        let unflushed: Vec<_> = touched.map(|(table, _)| (table, self.unflushed(table))).collect();
        let mut batch = OwnedWriteBatch::with_capacity(self.database.clone(), count).durability(Some(mode));
        for (table, rows) in Table::ALL.into_iter().zip(rows.tables) {
            for (key, value) in rows {
                match value {
                    Some(value) => batch.insert(self.keyspace(table), key, value),
                    None => batch.remove(self.keyspace(table), key),
                }
            }
        }
        let applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        batch.commit()?;
        drop(applying);
        let noted = self.note_log(&unflushed);
        self.log_failed_note(noted);
        #[cfg(test)]
        if fault == Some(Fault::AfterCommit) {
            return Err(fjall::Error::Poisoned.into());
        }
        Ok(())
    }

    /// Notes that the commits up to this one are synced. From now on, a log that ends before this commit is refused.
    pub(crate) fn acknowledge(&self, commit: u64) {
        self.log_failed_note(self.acknowledged.write(commit).map_err(EngineError::from));
    }

    /// A failed note does not make a commit fail. The next commit writes the note again. Until then the check at the next
    /// start would find fewer losses.
    fn log_failed_note(&self, noted: Result<(), EngineError>) {
        let was_failing = self.is_noting_failing.swap(noted.is_err(), Ordering::Relaxed);
        if let Err(error) = noted
            && !was_failing
        {
            warn!(error = chain(&error), "The store's list of its files cannot be written; it is tried again");
        }
    }

    /// Refuses rows that end with `commit` if a later commit was synced. The rows themselves are synced, because fjall
    /// syncs its log when it opens it.
    pub(crate) fn check_acknowledged(&self, commit: u64) -> Result<(), EngineError> {
        if let Some(acknowledged) = self.acknowledged.read()?
            && acknowledged > commit
        {
            let what =
                format!("ends with commit {commit}, and commit {acknowledged} was acknowledged: its log is cut off");
            return Err(EngineError::incomplete(&self.place, what));
        }
        self.acknowledge(commit);
        Ok(())
    }

    /// The highest sequence number of the table's rows that are only in the log.
    fn unflushed(&self, table: Table) -> Option<u64> {
        self.keyspace(table).tree.get_highest_memtable_seqno()
    }

    /// After a commit: if fjall has begun another log file, notes the rows that are only in the older ones. `before` has
    /// the sequence numbers of the commit's tables before the commit, because the commit may be in either file.
    fn note_log(&self, before: &[(Table, Option<u64>)]) -> Result<(), EngineError> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let number = notes.newest_log + 1;
        if self.place.join(log_name(number)).try_exists()? {
            let behind = Table::ALL.into_iter().filter_map(|table| {
                let known = before.iter().find(|(touched, _)| *touched == table);
                let unflushed = known.map_or_else(|| self.unflushed(table), |(_, unflushed)| *unflushed);
                Some((table, unflushed?))
            });
            let behind = behind.map(|(table, sequence_number)| {
                let version = current_version(self.keyspace(table).path())?;
                Ok((table.name().to_owned(), Behind { sequence_number, version }))
            });
            let note = LogNote { number, behind: behind.collect::<Result<_, EngineError>>()? };
            let place = self.place.clone();
            notes.manifest.logs.retain(|note| place.join(log_name(note.number)).exists());
            notes.manifest.logs.push(note);
            (notes.newest_log, notes.is_written) = (number, false);
        }
        if !notes.is_written {
            notes.manifest.write(&self.place)?;
            notes.is_written = true;
        }
        Ok(())
    }

    /// Writes all rows into the files of their tables, so that the log is not needed. False if rows are written meanwhile
    /// or if it takes too long.
    pub(crate) fn flush_all(&self) -> Result<bool, EngineError> {
        for keyspace in &self.keyspaces {
            keyspace.rotate_memtable()?;
        }
        let deadline = Instant::now() + FLUSH_TIMEOUT;
        while self.keyspaces.iter().any(|keyspace| keyspace.sealed_memtable_count() > 0) {
            if Instant::now() > deadline {
                return Ok(false);
            }
            self.database.persist(PersistMode::Buffer)?; // Fails when the flushing thread has died.
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(self.keyspaces.iter().all(|keyspace| keyspace.tree.active_memtable().is_empty()))
    }

    /// Syncs the rows that were only handed to the operating system.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    /// The rows of these tables between two commits. Waits for the current commit.
    pub(crate) fn cut(&self, tables: &[Table]) -> Cut {
        let _not_applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.database.snapshot(); // Keeps the files until every iterator holds its own.
        let rows = |table: Table| -> CutRows {
            match &self.keyspace(table).tree {
                AnyTree::Standard(tree) => Box::new(tree.create_iter(snapshot.seqno(), None)),
                AnyTree::Blob(_) => unreachable!("no table keeps its values in separate files"),
            }
        };
        Cut::new(tables.iter().map(|&table| (table, rows(table))).collect(), self.database.clone())
    }

    /// Fills an empty table with the rows that `rows` gives to its argument. It bypasses the log, so it is fast and not
    /// atomic. The rows are on the disk when it returns.
    ///
    /// # Panics
    /// When the keys do not increase.
    pub(crate) fn fill<E: From<EngineError>>(
        &self,
        table: Table,
        rows: impl FnOnce(&mut dyn FnMut(&[u8], &[u8]) -> Result<(), EngineError>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut ingestion = self.keyspace(table).start_ingestion().map_err(EngineError::from)?;
        rows(&mut |key, value| Ok(ingestion.write(key, value)?))?;
        Ok(ingestion.finish().map_err(EngineError::from)?)
    }

    /// Waits while flushing is behind. Meanwhile the queues fill and then refuse requests: this is the backpressure.
    fn wait_for_room(&self) -> Result<(), EngineError> {
        let behind = |keyspace: &Keyspace| {
            keyspace.sealed_memtable_count() >= SEALED_BUFFER_COUNT_MAX
                || keyspace.tree.l0_run_count() >= FRESH_RUN_COUNT_MAX
        };
        while self.keyspaces.iter().any(behind) {
            self.database.persist(PersistMode::Buffer)?; // Fails when the flushing thread has died.
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Writes the rows of a table that are only in memory and in the log into its files.
    #[cfg(test)]
    pub(crate) fn flush(&self, table: Table) {
        self.keyspace(table).rotate_memtable_and_wait().unwrap();
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.keyspaces[table as usize]
    }
}

/// Syncs a folder and all files and folders in it.
fn sync_all(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { sync_all(&entry.path())? } else { File::open(entry.path())?.sync_all()? }
    }
    File::open(folder)?.sync_all()
}

/// Refuses a database whose tables lack rows of log files that do not exist any more.
fn check_behind(database: &Database, place: &Path, behind: &BTreeMap<String, Behind>) -> Result<(), EngineError> {
    for (name, needed) in behind.iter().filter(|(name, _)| database.keyspace_exists(name)) {
        let keyspace = database.keyspace(name, KeyspaceCreateOptions::default)?;
        let is_persisted = keyspace.tree.get_highest_persisted_seqno() >= Some(needed.sequence_number);
        if !is_persisted && current_version(keyspace.path())? <= needed.version {
            let what = format!("has rows of table {name} in a log file (*.jnl) that is missing");
            return Err(EngineError::incomplete(place, what));
        }
    }
    Ok(())
}

/// The bytes that the log takes on the disk, without holes. Opening the database reads all of it.
pub(crate) fn log_bytes(folder: &Path) -> Result<u64, EngineError> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512; // The unit of st_blocks, whatever the file system's block size is.
    let files = numbered_log_files(&folder.join(PLACE))?;
    files.iter().try_fold(0, |sum, (_, file)| Ok(sum + fs::metadata(file)?.blocks() * BLOCK_BYTES))
}

/// Empties the log of a closed database after [`Engine::flush_all`]. fjall itself also leaves an empty log if it ends
/// right after it began a new log file.
pub(crate) fn empty_log(folder: &Path) -> Result<(), EngineError> {
    // If there is an older file, emptying the newest would bring back old rows that the newest one changed or deleted.
    if let [(_, last)] = &numbered_log_files(&folder.join(PLACE))?[..] {
        let file = File::options().write(true).open(last)?;
        file.set_len(0)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Bytes that must be writable before a failed store is opened again, because opening rebuilds all derived data.
const PROBE_BYTES: usize = 4 << 20;

/// Checks that the folder's disk takes `PROBE_BYTES`. The bytes are really written, because a hole needs no space.
pub(crate) fn probe(folder: &Path) -> Result<(), EngineError> {
    let path = folder.join("probe");
    let written = File::create(&path).and_then(|mut file| {
        let chunk = [0xa5; 64 << 10];
        (0..PROBE_BYTES / chunk.len()).try_for_each(|_| file.write_all(&chunk))?;
        file.sync_all()
    });
    fs::remove_file(&path)?;
    Ok(written?)
}
