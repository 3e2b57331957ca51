//! The key-value store below: tables of sorted rows, atomic batches. The only module that knows fjall.
//!
//! Four dangers of fjall 3.1 are kept out of here. A failed write poisons the database until it is opened again (the
//! committer does that). A commit sleeps for as long as flushing is behind, and for ever when the flushing thread has died
//! of a full disk; so [`Engine::commit`] waits for room itself, where it notices. And a database whose creation was interrupted
//! cannot be opened; so it is created beside its place and moved there when it is complete. And it takes some lost files for
//! a database that was never finished, and goes on without them; so `files` looks first whether all are there.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use fjall::config::{BlockSizePolicy, CompressionPolicy, FilterPolicy, PartitioningPolicy};
use fjall::{
    AbstractTree as _, AnyTree, CompressionType, Database, Keyspace, KeyspaceCreateOptions, LsmError, OwnedWriteBatch,
    PersistMode, Readable as _, Slice,
};
use tidings_telemetry::chain;
use tokio::time::Instant;
use tracing::warn;

use self::files::{Acknowledged, Behind, Found, LogNote, Manifest, current_version};

mod files;
mod log;

/// The tables; `rows.rs` says what is in them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Table {
    Meta,
    Event,
    EventId,
    Channel,
    History,
    Job,
    Device,
    DeviceId,
    Token,
    Subscription,
    Later,
    Brake,
    Cancelled,
    Proven,
    Block,
    Mute,
    MuteEnd,
    Change,
    Import,
}

impl Table {
    pub(crate) const ALL: [Self; 19] = [
        Self::Meta,
        Self::Event,
        Self::EventId,
        Self::Channel,
        Self::History,
        Self::Job,
        Self::Device,
        Self::DeviceId,
        Self::Token,
        Self::Subscription,
        Self::Later,
        Self::Brake,
        Self::Cancelled,
        Self::Proven,
        Self::Block,
        Self::Mute,
        Self::MuteEnd,
        Self::Change,
        Self::Import,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Meta => "meta",
            Self::Event => "event",
            Self::EventId => "event_id",
            Self::Channel => "channel",
            Self::History => "history",
            Self::Job => "job",
            Self::Device => "device",
            Self::DeviceId => "device_id",
            Self::Token => "token",
            Self::Subscription => "subscription",
            Self::Later => "later",
            Self::Brake => "brake",
            Self::Cancelled => "cancelled",
            Self::Proven => "proven",
            Self::Block => "block",
            Self::Mute => "mute",
            Self::MuteEnd => "mute_end",
            Self::Change => "change",
            Self::Import => "import",
        }
    }

    /// How its files are made. Tables that exist keep what they were made with.
    fn options(self) -> KeyspaceCreateOptions {
        let options = KeyspaceCreateOptions::default().max_memtable_size(self.write_buffer_bytes());
        // In parts of 4 KiB. As a whole, those of a file take megabytes, which the cache does not keep where it has many
        // shards (four for each core): then each row that is asked for reads them anew, a tenth of a millisecond or more.
        let parted = |options: KeyspaceCreateOptions| {
            options
                .index_block_partitioning_policy(PartitioningPolicy::all(true))
                .filter_block_partitioning_policy(PartitioningPolicy::all(true))
        };
        // As it comes, fjall compresses from the third level on, and a table of less than 256 MiB has two.
        let compressed = |options: KeyspaceCreateOptions, block_bytes| {
            parted(options)
                .data_block_compression_policy(CompressionPolicy::all(CompressionType::Lz4))
                .data_block_size_policy(BlockSizePolicy::all(block_bytes))
        };
        match self {
            // Never asked for a key, the index knows: only walked along. So filters are of no use.
            Self::Subscription | Self::Change => {
                compressed(options, WALKED_BLOCK_BYTES).filter_policy(FilterPolicy::disabled())
            }
            // Who asks for a number knows that it is there.
            Self::Device => compressed(options, DEVICE_BLOCK_BYTES).expect_point_read_hits(true),
            Self::DeviceId => parted(options),
            // Of hashes nothing is left out.
            Self::Token => parted(options).data_block_compression_policy(CompressionPolicy::disabled()),
            _ => options,
        }
    }

    /// Memory for rows not yet in a file of the table. Their sum, times four at worst, is the engine's memory for writes.
    fn write_buffer_bytes(self) -> u64 {
        match self {
            Self::Event | Self::History | Self::Device | Self::Subscription => 32 << 20,
            _ => 8 << 20,
        }
    }
}

// Tables are found by their place in `ALL`.
const _: () = {
    let mut place = 0;
    while place < Table::ALL.len() {
        assert!(Table::ALL[place] as usize == place);
        place += 1;
    }
};

/// The engine failed, or a row is not what we wrote.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct EngineError(Cause);

#[derive(Debug, thiserror::Error)]
enum Cause {
    #[error("the storage engine failed")]
    Fjall(#[source] fjall::Error),
    #[error("the storage engine failed")]
    Io(#[source] std::io::Error),
    #[error("row {key} of table {table} is damaged; a copy of the folder has it as it was")]
    Damaged { table: &'static str, key: String },
    #[error("the heap of devices cannot be used")]
    Heap(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error(
        "{} cannot be opened; look at the disk, then restore a backup (docs/operations.md, \"When the store is damaged\")",
        path.display()
    )]
    Unopenable { path: PathBuf, source: fjall::Error },
    #[error("the folder holds no data any more")]
    Missing,
    #[error("the folder holds another store than before")]
    Replaced,
    #[error("the folder is in use")]
    Locked,
    /// Nothing was changed.
    #[error(
        "{} {what}: the store would come up without data that was acknowledged, so it is not opened; put the file back from a \
         copy of this folder, or restore a backup (docs/operations.md, \"When the store is damaged\")",
        path.display()
    )]
    Incomplete { path: PathBuf, what: String },
}

impl EngineError {
    /// The row under `key` is not what we wrote.
    pub(crate) fn damaged(table: Table, key: &[u8]) -> Self {
        Self(Cause::Damaged { table: table.name(), key: key.escape_ascii().to_string() })
    }

    /// The store on the disk is not the one that was open.
    pub(crate) fn replaced() -> Self {
        Self(Cause::Replaced)
    }

    /// Whether it is about one row, and not about the disk: the others can be read and written.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self.0, Cause::Damaged { .. })
    }
}

impl From<fjall::Error> for EngineError {
    fn from(error: fjall::Error) -> Self {
        match error {
            fjall::Error::Locked => Self(Cause::Locked),
            error => Self(Cause::Fjall(error)),
        }
    }
}

impl From<tidings_heap::ReserveError> for EngineError {
    fn from(error: tidings_heap::ReserveError) -> Self {
        Self(Cause::Heap(Box::new(error)))
    }
}

impl From<tidings_heap::OpenError> for EngineError {
    fn from(error: tidings_heap::OpenError) -> Self {
        Self(Cause::Heap(Box::new(error)))
    }
}

impl From<std::io::Error> for EngineError {
    fn from(error: std::io::Error) -> Self {
        Self(Cause::Io(error))
    }
}

/// Whether a batch is on the disk or only with the operating system when [`Engine::commit`] returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Survives a power failure.
    Synced,
    /// Survives the end of this process; a power failure may take it, together with everything written after it.
    Handed,
}

/// What is to be under a key; `None`: nothing.
type Row = Option<Vec<u8>>;

/// Rows to be written in one step: the last word on each key, so that a batch never holds a key twice.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    tables: [BTreeMap<Vec<u8>, Row>; Table::ALL.len()],
    /// What was there instead of the rows since the last [`Rows::keep`], the latest last.
    replaced: Vec<(Table, Vec<u8>, Option<Row>)>,
}

impl Rows {
    pub(crate) fn put(&mut self, table: Table, key: impl Into<Vec<u8>>, value: impl Into<Vec<u8>>) {
        self.set(table, key.into(), Some(value.into()));
    }

    pub(crate) fn delete(&mut self, table: Table, key: impl Into<Vec<u8>>) {
        self.set(table, key.into(), None);
    }

    fn set(&mut self, table: Table, key: Vec<u8>, row: Row) {
        let old = self.tables[table as usize].insert(key.clone(), row);
        self.replaced.push((table, key, old));
    }

    /// What there is now is not taken back any more.
    pub(crate) fn keep(&mut self) {
        self.replaced.clear();
    }

    /// Takes back all since the last [`Rows::keep`].
    pub(crate) fn take_back(&mut self) {
        while let Some((table, key, old)) = self.replaced.pop() {
            match old {
                Some(old) => self.tables[table as usize].insert(key, old),
                None => self.tables[table as usize].remove(&key),
            };
        }
    }

    /// What will be under the key: `None` when these rows do not say.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Option<Option<&[u8]>> {
        self.tables[table as usize].get(key).map(Option::as_deref)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tables.iter().all(BTreeMap::is_empty)
    }

    /// The rows whose key comes after `key`, deleted ones too.
    pub(crate) fn after(&self, table: Table, key: &[u8]) -> impl Iterator<Item = (&Vec<u8>, &Option<Vec<u8>>)> {
        self.tables[table as usize].range::<[u8], _>((Bound::Excluded(key), Bound::Unbounded))
    }

    /// The rows whose key begins with `prefix`, deleted ones too.
    pub(crate) fn prefix<'a>(
        &'a self,
        table: Table,
        prefix: &'a [u8],
    ) -> impl Iterator<Item = (&'a Vec<u8>, &'a Option<Vec<u8>>)> {
        let from = (Bound::Included(prefix), Bound::Unbounded);
        self.tables[table as usize].range::<[u8], _>(from).take_while(move |(key, _)| key.starts_with(prefix))
    }
}

/// Where a store's folder has the database.
const PLACE: &str = "data";

/// One opened database. The folder stays locked until all clones of its parts are gone.
pub(crate) struct Engine {
    database: Database,
    keyspaces: [Keyspace; Table::ALL.len()],
    place: PathBuf,
    acknowledged: Acknowledged,
    notes: Mutex<Notes>,
    /// The manifest, or the number of the last synced commit, could not be written.
    is_noting_failing: AtomicBool,
    /// Held while a batch is applied. fjall makes all visible that was begun before a file of rows is registered, so a
    /// snapshot taken meanwhile may show half of the batch.
    applying: Mutex<()>,
    #[cfg(test)]
    pub(crate) hooks: Hooks,
}

/// What the manifest says, and whether it is on the disk.
struct Notes {
    manifest: Manifest,
    is_written: bool,
    /// The log file that is written.
    newest_log: u64,
}

/// All rows as they were between two commits, table after table.
///
/// It holds the write buffers and files of that moment and nothing that is written later: a snapshot would, in memory,
/// for as long as it lives. The folder cannot be opened again before this is dropped.
pub(crate) struct Cut {
    tables: std::vec::IntoIter<(Table, CutRows)>,
    current: Option<(Table, CutRows)>,
    /// The key of the last row: one that cannot be read comes behind it.
    last: Slice,
    _database: Database,
}

type CutRows = Box<dyn Iterator<Item = Result<(Slice, Slice), LsmError>> + Send>;

impl Iterator for Cut {
    type Item = Result<(Table, Slice, Slice), EngineError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if self.current.is_none() {
                self.current = Some(self.tables.next()?);
                self.last = Slice::empty();
            }
            let (table, rows) = self.current.as_mut().expect("there is one now");
            let Some(row) = rows.next() else {
                self.current = None;
                continue;
            };
            let row = row.map_err(|error| read_error(error.into(), *table, &self.last));
            return Some(row.map(|(key, value)| {
                self.last = key.clone();
                (*table, key, value)
            }));
        }
    }
}

/// What tests see of the disk, and do to it.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Hooks {
    /// What the next commit is to do wrong.
    pub(crate) fault: std::sync::Mutex<Option<Fault>>,
    /// How each batch was written.
    pub(crate) commits: std::sync::Mutex<Vec<Durability>>,
}

/// A disk that fails.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing of the batch is written.
    BeforeCommit,
    /// The batch is durable, but the caller is told otherwise, as when only the sync fails.
    AfterCommit,
}

/// A block whose checksum is wrong is damaged like a row: opening the store again finds it as it is. `key` is that of
/// the row, or of the one before it.
fn read_error(error: fjall::Error, table: Table, key: &[u8]) -> EngineError {
    use fjall::LsmError;
    match error {
        fjall::Error::Storage(
            LsmError::ChecksumMismatch { .. }
            | LsmError::Decompress(_)
            | LsmError::InvalidTag(_)
            | LsmError::InvalidTrailer
            | LsmError::InvalidHeader(_)
            | LsmError::Utf8(_),
        ) => EngineError::damaged(table, key),
        error => error.into(),
    }
}

/// A disk that fails may work the next time; whatever else the database is refused for, it stays so.
fn open_error(path: &Path, error: fjall::Error) -> EngineError {
    match error {
        fjall::Error::Io(source) | fjall::Error::Storage(LsmError::Io(source))
            if source.kind() != std::io::ErrorKind::UnexpectedEof =>
        {
            source.into()
        }
        fjall::Error::Locked => error.into(),
        source => EngineError(Cause::Unopenable { path: path.to_owned(), source }),
    }
}

/// Bytes of a block before it is compressed, in tables that are walked along. With 16 KiB a table is 4 % smaller, but the
/// few rows of one device take twice the time to read.
const WALKED_BLOCK_BYTES: u32 = 4 << 10;
/// The same of devices, which are asked for one by one: that takes the time of 4 KiB without compression.
const DEVICE_BLOCK_BYTES: u32 = 2 << 10;
/// With more in the log, tables with old rows in it are written to files. A part of what a start after a crash has to read.
const JOURNALING_BYTES_MAX: u64 = 64 << 20;
/// How long to wait at the end for rows to be in files.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(60);
/// How many sealed write buffers, and how many runs of fresh files, a table may have before a commit waits. fjall
/// sleeps inside a commit at 4 and at 20, and a commit of ours adds at most one.
const SEALED_BUFFER_COUNT_MAX: usize = 3;
const FRESH_RUN_COUNT_MAX: usize = 19;

impl Engine {
    /// Opens the database in `folder`, creating it with `first` rows when there is none.
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

    /// Makes a database in `folder`, which has none: with all that `fill` writes, or not at all.
    pub(crate) fn create<E: From<EngineError>>(
        folder: &Path,
        cache_bytes: u64,
        fill: impl FnOnce(&Self) -> Result<(), E>,
    ) -> Result<(), E> {
        let (place, beside) = (folder.join(PLACE), folder.join("data.new"));
        let clear = || -> Result<(), EngineError> {
            if beside.try_exists()? {
                fs::remove_dir_all(&beside)?; // A creation that was interrupted; nothing was ever acknowledged from it.
            }
            Ok(())
        };
        clear()?;
        let filled = Self::open_at(&beside, cache_bytes, None).map_err(E::from).and_then(|engine| fill(&engine));
        if let Err(error) = filled {
            _ = clear(); // What is left goes with the next try.
            return Err(error);
        }
        let moved = || -> Result<(), EngineError> {
            sync_all(&beside)?;
            fs::rename(&beside, &place)?;
            // Both may be new names: ours in the folder, and the folder in its own.
            for named_in in [Some(folder), folder.parent()].into_iter().flatten().filter(|path| path.is_dir()) {
                File::open(named_in)?.sync_all()?;
            }
            Ok(())
        };
        Ok(moved()?)
    }

    /// Opens the database that was in `folder` before; never creates one, which would be empty in place of what was
    /// acknowledged.
    pub(crate) fn open_again(folder: &Path, cache_bytes: u64) -> Result<Self, EngineError> {
        let place = folder.join(PLACE);
        if !place.try_exists()? {
            return Err(EngineError(Cause::Missing));
        }
        let found = files::check(&place)?;
        Self::open_at(&place, cache_bytes, Some(found))
    }

    /// Opens the database at `path`, which is there if `found` has what was found there.
    fn open_at(path: &Path, cache_bytes: u64, found: Option<Found>) -> Result<Self, EngineError> {
        let builder = || {
            Database::builder(path).cache_size(cache_bytes).worker_threads(2).max_journaling_size(JOURNALING_BYTES_MAX)
        };
        let is_new = found.is_none();
        let Found { mut manifest, logs } = found.unwrap_or_default();
        let behind = logs.first().and_then(|oldest| manifest.behind(*oldest));
        if let Some(behind) = behind.filter(|_| logs.len() > 1) {
            // Without its threads, which would write rows of the other log files into tables before these were asked.
            let database = builder().worker_threads_unchecked(0).open().map_err(|error| open_error(path, error))?;
            check_behind(&database, path, behind)?;
        }
        let database = builder().open().map_err(|error| open_error(path, error))?;
        if let Some(behind) = behind {
            check_behind(&database, path, behind)?;
        }
        if let Some(lost) = manifest.tables.keys().find(|name| !database.keyspace_exists(name)) {
            return Err(files::incomplete(path, format!("has no table {lost} any more")));
        }
        let mut keyspaces = Vec::with_capacity(Table::ALL.len());
        for table in Table::ALL {
            keyspaces.push(database.keyspace(table.name(), || table.options())?);
        }
        let keyspaces: [Keyspace; Table::ALL.len()] =
            keyspaces.try_into().ok().expect("one keyspace was opened per table");
        for (table, keyspace) in Table::ALL.iter().zip(&keyspaces) {
            let number = keyspace.path().file_name().and_then(|name| name.to_str()?.parse().ok());
            manifest.tables.extend(number.map(|number| (table.name().to_owned(), number)));
        }
        manifest.logs.retain(|note| logs.contains(&note.number));
        manifest.write(path)?;
        let newest_log = if is_new { 0 } else { *logs.last().expect("a database that is there has a log") };
        Ok(Self {
            database,
            keyspaces,
            place: path.to_owned(),
            acknowledged: Acknowledged::open(path)?,
            notes: Mutex::new(Notes { manifest, is_written: true, newest_log }),
            is_noting_failing: AtomicBool::new(false),
            applying: Mutex::new(()),
            #[cfg(test)]
            hooks: Hooks::default(),
        })
    }

    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<impl AsRef<[u8]> + use<>>, EngineError> {
        self.keyspace(table).get(key).map_err(|error| read_error(error, table, key))
    }

    /// Hands out the rows from `start` on, in order of their keys, until `visit` says stop (false). The view is of one moment.
    pub(crate) fn scan<E: From<EngineError>>(
        &self,
        table: Table,
        start: Bound<&[u8]>,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, E>,
    ) -> Result<(), E> {
        let snapshot = self.database.snapshot();
        let mut last = match start {
            Bound::Included(key) | Bound::Excluded(key) => key.to_vec(),
            Bound::Unbounded => Vec::new(),
        };
        for row in snapshot.range::<&[u8], _>(self.keyspace(table), (start, Bound::Unbounded)) {
            // Which key it is, nobody can tell: it comes behind the last that could be read.
            let (key, value) = row.into_inner().map_err(|error| read_error(error, table, &last))?;
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
    /// When the disk refuses, or refused before. The rows are then durable as a whole or not at all, and only opening
    /// the database again tells which.
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
        self.tell_whether_noted(noted);
        #[cfg(test)]
        if fault == Some(Fault::AfterCommit) {
            return Err(fjall::Error::Poisoned.into());
        }
        Ok(())
    }

    /// Notes that commits up to this one are synced: a log that ends before it is refused from here on.
    pub(crate) fn acknowledge(&self, commit: u64) {
        self.tell_whether_noted(self.acknowledged.write(commit).map_err(EngineError::from));
    }

    /// What cannot be noted does not make a commit fail: it is tried again with the next one, and until then the next start
    /// only knows less of what should be there.
    fn tell_whether_noted(&self, noted: Result<(), EngineError>) {
        let was_failing = self.is_noting_failing.swap(noted.is_err(), Ordering::Relaxed);
        if let Err(error) = noted
            && !was_failing
        {
            warn!(error = chain(&error), "The store's list of its files cannot be written; it is tried again");
        }
    }

    /// Whether the rows, whose state says `commit`, have every commit that was synced. They are synced themselves: fjall
    /// syncs its log when it opens it.
    pub(crate) fn check_acknowledged(&self, commit: u64) -> Result<(), EngineError> {
        if let Some(acknowledged) = self.acknowledged.read()?
            && acknowledged > commit
        {
            let what =
                format!("ends with commit {commit}, and commit {acknowledged} was acknowledged: its log is cut off");
            return Err(files::incomplete(&self.place, what));
        }
        self.acknowledge(commit);
        Ok(())
    }

    /// The highest sequence number of a table that is only in the log.
    fn unflushed(&self, table: Table) -> Option<u64> {
        self.keyspace(table).tree.get_highest_memtable_seqno()
    }

    /// After a commit: if fjall has begun another log file, notes which rows those before it have. `before` is what the
    /// commit's tables had in the log before it, since nobody knows which of the files has the commit itself.
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

    /// Writes all rows into the files of their tables, so that nothing of the log is needed. Whether it is so: not while
    /// rows are written, nor when it takes too long.
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

    /// Makes durable what was only handed to the operating system.
    pub(crate) fn sync(&self) -> Result<(), EngineError> {
        Ok(self.database.persist(PersistMode::SyncData)?)
    }

    /// The rows of these tables between two commits. Waits for the commit at hand.
    pub(crate) fn cut(&self, tables: &[Table]) -> Cut {
        let _not_applying = self.applying.lock().unwrap_or_else(PoisonError::into_inner);
        let snapshot = self.database.snapshot(); // Keeps what it sees until every iterator has its files.
        let rows = |table: Table| -> CutRows {
            match &self.keyspace(table).tree {
                AnyTree::Standard(tree) => Box::new(tree.create_iter(snapshot.seqno(), None)),
                AnyTree::Blob(_) => unreachable!("no table keeps its values apart"),
            }
        };
        let tables: Vec<_> = tables.iter().map(|&table| (table, rows(table))).collect();
        let (tables, last, _database) = (tables.into_iter(), Slice::empty(), self.database.clone());
        Cut { tables, current: None, last, _database }
    }

    /// Writes the rows that `rows` hands to its argument, into a table that holds none: past the log, which is quick, and
    /// not atomic. They are on the disk when it returns.
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

    /// Waits while flushing is behind; the queues fill meanwhile and refuse, which is the back-pressure we want.
    fn wait_for_room(&self) -> Result<(), EngineError> {
        let behind = |keyspace: &Keyspace| {
            keyspace.sealed_memtable_count() >= SEALED_BUFFER_COUNT_MAX
                || keyspace.tree.l0_run_count() >= FRESH_RUN_COUNT_MAX
        };
        while self.keyspaces.iter().any(behind) {
            self.database.persist(PersistMode::Buffer)?; // Fails when the flushing thread has died: nobody makes room.
            std::thread::park_timeout(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Writes a table into files: until then its rows are in memory and in the log.
    #[cfg(test)]
    pub(crate) fn flush(&self, table: Table) {
        self.keyspace(table).rotate_memtable_and_wait().unwrap();
    }

    fn keyspace(&self, table: Table) -> &Keyspace {
        &self.keyspaces[table as usize]
    }
}

/// Syncs a folder with all that is in it.
fn sync_all(folder: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() { sync_all(&entry.path())? } else { File::open(entry.path())?.sync_all()? }
    }
    File::open(folder)?.sync_all()
}

/// Whether the tables have what the log files that are gone had.
fn check_behind(database: &Database, place: &Path, behind: &BTreeMap<String, Behind>) -> Result<(), EngineError> {
    for (name, needed) in behind.iter().filter(|(name, _)| database.keyspace_exists(name)) {
        let keyspace = database.keyspace(name, KeyspaceCreateOptions::default)?;
        let is_persisted = keyspace.tree.get_highest_persisted_seqno() >= Some(needed.sequence_number);
        if !is_persisted && current_version(keyspace.path())? <= needed.version {
            let what = format!("has rows of table {name} in a log file (*.jnl) that is missing");
            return Err(files::incomplete(place, what));
        }
    }
    Ok(())
}

fn log_name(number: u64) -> String {
    format!("{number}.jnl")
}

/// The log files of the database at `place`, the one that is written last.
fn numbered_log_files(place: &Path) -> Result<Vec<(u64, PathBuf)>, EngineError> {
    let mut files = Vec::new();
    for file in fs::read_dir(place)? {
        let path = file?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".jnl")?.parse::<u64>().ok());
        files.extend(number.map(|number| (number, path)));
    }
    files.sort_unstable();
    Ok(files)
}

/// The files of the log of the database in `folder`, the one that is written last.
fn log_files(folder: &Path) -> Result<Vec<PathBuf>, EngineError> {
    Ok(numbered_log_files(&folder.join(PLACE))?.into_iter().map(|(_, path)| path).collect())
}

/// What the log takes, holes not counted: all of it is read when the database is opened.
pub(crate) fn log_bytes(folder: &Path) -> Result<u64, EngineError> {
    use std::os::unix::fs::MetadataExt as _;
    const BLOCK_BYTES: u64 = 512; // The unit of st_blocks, whatever the file system's.
    let files = log_files(folder)?;
    files.iter().try_fold(0, |sum, file| Ok(sum + fs::metadata(file)?.blocks() * BLOCK_BYTES))
}

/// Empties the log of a closed database after [`Engine::flush_all`]. An empty one is what fjall leaves itself when it
/// ends right behind a new log file.
pub(crate) fn forget_log(folder: &Path) -> Result<(), EngineError> {
    // With an older file beside it, that one's rows would come back without what the newest says of them.
    if let [last] = &log_files(folder)?[..] {
        let file = File::options().write(true).open(last)?;
        file.set_len(0)?;
        file.sync_all()?;
    }
    Ok(())
}

/// Bytes that must be writable before a failed store is opened again; opening means to rebuild all that is derived.
const PROBE_BYTES: usize = 4 << 20;

/// Whether the folder's disk takes `PROBE_BYTES`. The file is written, not only made long: a hole costs no space.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// As fjall comes, neither what was just written nor a table that was filled would be compressed.
    #[test]
    fn what_rows_share_takes_little_room_from_the_beginning() {
        for table in [Table::Device, Table::Subscription, Table::Change] {
            let row =
                |number: u32| ([&number.to_be_bytes()[..], b"team:42\0goal"].concat(), b"com.example.app\x02en\x02GB");
            let all = || (0..2000).map(row);
            let plain: usize = all().map(|(key, value)| key.len() + value.len()).sum();
            let folder = tempfile::tempdir().unwrap();
            let open = |name| Engine::open(&folder.path().join(name), 1 << 20, Rows::default).unwrap();
            let [written, filled] = ["written", "filled"].map(open);
            let mut rows = Rows::default();
            all().for_each(|(key, value)| rows.put(table, key, value));
            written.commit(rows, Durability::Handed).unwrap();
            written.flush(table);
            let fill = filled.fill(table, |write| all().try_for_each(|(key, value)| write(&key, value)));
            fill.unwrap_or_else(|error: EngineError| panic!("{error}"));
            for engine in [written, filled] {
                let disk = engine.keyspace(table).disk_space();
                assert!(disk < plain as u64 / 2, "{}: {disk} of {plain} bytes", table.name());
                let mut read = all();
                let scanned = engine.scan(table, Bound::Unbounded, |key, value| {
                    assert_eq!(read.next(), Some((key.to_vec(), value.try_into().unwrap())));
                    Ok::<_, EngineError>(true)
                });
                scanned.unwrap();
                assert_eq!(read.next(), None);
            }
        }
    }

    /// The folder is as fjall leaves it right behind a new log file: the one before has rows that are in no table.
    #[test]
    fn a_log_file_that_the_tables_still_need_is_missed() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
        let write = |engine: &Engine, key: u8| {
            let mut rows = Rows::default();
            rows.put(Table::Device, [key], "a row");
            engine.commit(rows, Durability::Handed).unwrap();
        };
        let place = folder.path().join(PLACE);
        let (first, aside) = (place.join("0.jnl"), folder.path().join("aside"));
        let engine = open().unwrap();
        write(&engine, 1);
        File::create(place.join("1.jnl")).unwrap();
        write(&engine, 2);
        drop(engine);
        fs::rename(&first, &aside).unwrap();
        let error = open().err().expect("rows are lost").to_string();
        assert!(error.contains("has rows of table device in a log file (*.jnl) that is missing"), "{error}");
        fs::rename(&aside, &first).unwrap();
        let engine = open().unwrap();
        assert!([1, 2].iter().all(|key| engine.get(Table::Device, &[*key]).unwrap().is_some()));
        assert!(engine.flush_all().unwrap());
        drop(engine);
        // Now the tables have them, and fjall deletes the file itself.
        if first.exists() {
            fs::remove_file(&first).unwrap();
        }
        let engine = open().unwrap();
        assert!([1, 2].iter().all(|key| engine.get(Table::Device, &[*key]).unwrap().is_some()));
    }

    /// A deletion goes with what it deleted when files are merged, and its sequence number with it.
    #[test]
    fn merged_files_are_not_taken_for_lost_ones() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
        let commit = |engine: &Engine, change: fn(&mut Rows)| {
            let mut rows = Rows::default();
            change(&mut rows);
            engine.commit(rows, Durability::Handed).unwrap();
        };
        let place = folder.path().join(PLACE);
        let engine = open().unwrap();
        commit(&engine, |rows| rows.put(Table::Brake, "everything", "a row"));
        assert!(engine.flush_all().unwrap());
        commit(&engine, |rows| rows.delete(Table::Brake, "everything"));
        File::create(place.join("1.jnl")).unwrap();
        commit(&engine, |rows| rows.put(Table::Device, "1", "a row"));
        assert!(engine.flush_all().unwrap());
        engine.keyspace(Table::Brake).major_compact().unwrap();
        assert_eq!(engine.keyspace(Table::Brake).tree.get_highest_persisted_seqno(), None, "both are gone");
        drop(engine);
        if place.join("0.jnl").exists() {
            fs::remove_file(place.join("0.jnl")).unwrap(); // As fjall does.
        }
        let engine = open().unwrap();
        assert!(engine.get(Table::Brake, b"everything").unwrap().is_none());
        assert!(engine.get(Table::Device, b"1").unwrap().is_some());
    }

    /// A power failure may leave pages of what was not synced in any order.
    #[test]
    fn a_torn_end_that_nobody_was_told_of_is_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
        let log = folder.path().join(PLACE).join("0.jnl");
        let write = |engine: &Engine, commit: u64| {
            let mut rows = Rows::default();
            rows.put(Table::Meta, crate::rows::STATE_KEY, format!("{{\"commit\":{commit}}}"));
            rows.put(Table::Device, [commit as u8], "a row of some length");
            engine.commit(rows, Durability::Synced).unwrap();
        };
        let engine = open().unwrap();
        write(&engine, 1);
        engine.acknowledge(1);
        let torn_at = usize::try_from(log::read(&log, None).unwrap().bytes).unwrap();
        write(&engine, 2);
        drop(engine);
        let mut bytes = fs::read(&log).unwrap();
        bytes[torn_at..torn_at + 8].fill(0);
        fs::write(&log, &bytes).unwrap();
        let engine = open().unwrap();
        assert!(
            engine.get(Table::Device, &[1]).unwrap().is_some() && engine.get(Table::Device, &[2]).unwrap().is_none()
        );
        // If the second commit was acknowledged, it is missed.
        engine.acknowledge(2);
        drop(engine);
        fs::write(&log, &bytes).unwrap();
        let error = open().err().expect("a commit is lost").to_string();
        assert!(error.contains("is damaged at byte"), "{error}");
    }

    #[test]
    fn a_log_that_is_cut_off_before_what_was_synced_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Engine::open(folder.path(), 1 << 20, Rows::default);
        let engine = open().unwrap();
        engine.check_acknowledged(7).unwrap(); // The store of an earlier version gets its number.
        engine.acknowledge(8);
        drop(engine);
        let engine = open().unwrap();
        let error = engine.check_acknowledged(7).unwrap_err().to_string();
        assert!(error.contains("ends with commit 7, and commit 8 was acknowledged"), "{error}");
        engine.check_acknowledged(9).unwrap();
        drop(engine);
        fs::write(folder.path().join(PLACE).join("acknowledged"), [0; 16]).unwrap();
        open().unwrap().check_acknowledged(7).unwrap();
    }
}
