//! Backup of a running or stopped store, restore, and verification.
//!
//! A backup is the rows of all tables between two commits, in one flat file ([`format`] has its bytes). The store
//! continues meanwhile: only the current commit waits, while the files and write buffers of the rows are noted. Derived
//! data (heap, checkpoint, changes since it) is left out and made anew when the store is opened.
//!
//! ```text
//! running  Store::begin_backup ─► Backup::next_block … ─► file, response
//! stopped  Backup::of_folder   ─┘
//! file     restore ─► data.new ─► synced, data        verify, verify_folder ─► Report
//! ```
//!
//! A backup holds what the store holds: tokens, hashes of credentials, events. Anybody who can read it can push.
//!
//! A restored store has a new epoch, because channels continue from the backup and may give the same offsets to other
//! publications. Clients that come back are told of the gap. Revisions of devices continue far above those of the
//! backup, so that none is given twice.
//!
//! Bounds: a block of 1 MiB, or of one row, in memory; one backup of a store at a time. A backup ends early when its
//! next block is not requested for [`IDLE_MAX`], or when the store is closed or opened again after an error, because
//! during a backup compacted files stay on the disk, and the write buffers of its start in memory.

use crate::engine::STATE_KEY;
use crate::meta::read_state;

mod error;
mod format;
mod slot;
mod summary;
#[cfg(test)]
mod tests;
mod verify;

use std::io::{self, Read, Write};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use tidings_types::{BrakeScope, Timestamp};
use tokio::time::Instant;

pub use self::error::BackupError;
use self::format::{Block, Decoder, Encoder, Head, Part};
pub use self::slot::IDLE_MAX;
use self::slot::Running;
pub(crate) use self::slot::Slot;
use self::summary::KEPT;
pub use self::summary::{BackupSummary, Progress, TableCount};
use self::verify::Inspector;
pub use self::verify::{Finding, Findings};
use crate::engine::{Durability, Engine, EngineError, Rows, Table};
use crate::error::OpenError;
use crate::folder::{FolderLock, lock_folder};
use crate::hash;
use crate::meta::{DISPATCHED_KEY, FORMAT, FORMAT_KEY, State};
use crate::rows;
use crate::service::Store;
use crate::shared::Shared;

/// What the engine may keep of blocks it has read, where only a backup or a restore uses it: each is read once.
const CACHE_BYTES: u64 = 8 << 20;

/// Revisions that a store may have given to devices after its backup and before it was lost.
const REVISION_LEAP: u64 = 1 << 32;

/// What a restored store does with pushes that were due at the time of its backup. Some of them may have been sent since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredPushes {
    /// If there are jobs, events without a job so far, or scheduled events, the store comes up with a pause of everything, since
    /// this time: nothing is pushed until [`Store::resume`](crate::Store::resume) ends it.
    Paused(Timestamp),
    /// They go on as soon as the store is served.
    GoOn,
}

/// What a restore did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The backup.
    pub summary: BackupSummary,
    /// Everything is paused, because pushes were due.
    pub is_paused: bool,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What it is of; of a folder, what a backup of it would be.
    pub summary: BackupSummary,
    /// What does not belong together.
    pub findings: Findings,
}

/// A backup that is being made, block by block as they are asked for. Dropped, it ends.
pub struct Backup {
    source: Source,
    summary: BackupSummary,
}

enum Source {
    /// Of a running store: its slot has it, under this number.
    Store(Arc<Shared>, u64),
    /// Of a folder, which stays locked.
    Folder(Box<Encoder>, #[expect(dead_code, reason = "held, not used")] FolderLock),
}

impl Store {
    /// Begins a backup of all that is committed now. Blocks for a commit's time.
    ///
    /// # Errors
    /// [`BackupError::Busy`] while another is being made; when the store cannot be read.
    pub fn begin_backup(&self) -> Result<Backup, BackupError> {
        let shared = self.shared_arc();
        let engine = shared.engine.read();
        let engine = engine.as_ref().ok_or(BackupError::GivenUp)?;
        let mut slot = shared.backup.lock();
        if slot.1.is_some() {
            return Err(BackupError::Busy);
        }
        let encoder = Encoder::new(engine.cut(&KEPT))?;
        let summary = encoder.summary();
        let number = slot.0 + 1;
        *slot = (number, Some(Running { encoder, asked_at: Instant::now() }));
        drop(slot);
        Ok(Backup { source: Source::Store(shared.clone(), number), summary })
    }

    /// Writes a whole backup. Blocks; [`Store::begin_backup`] is for those who cannot.
    ///
    /// # Errors
    /// As [`Store::begin_backup`] and [`Backup::next_block`], and when `out` fails.
    pub fn backup(&self, out: impl Write) -> Result<BackupSummary, BackupError> {
        self.begin_backup()?.write_to(out, |_| ())
    }
}

impl Backup {
    /// Begins a backup of a store that no server has open; `folder` is the store's own. It stays locked until the
    /// backup is dropped. Blocks.
    ///
    /// # Errors
    /// When the folder holds no store, or one of a format that is not known, or is in use.
    pub fn of_folder(folder: &Path) -> Result<Self, BackupError> {
        let (engine, lock) = open_folder(folder)?;
        let encoder = Encoder::new(engine.cut(&KEPT))?;
        let summary = encoder.summary();
        Ok(Self { source: Source::Folder(Box::new(encoder), lock), summary })
    }

    /// The next bytes of the backup, a mebibyte or the size of a row; `None` at its end. Blocks while rows are read.
    ///
    /// # Errors
    /// [`BackupError::GivenUp`] when the store ended it, and when a row cannot be read. What was given out is then worth
    /// nothing, which a reader finds by the missing end.
    pub fn next_block(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        match &mut self.source {
            Source::Store(shared, number) => {
                let mut slot = shared.backup.lock();
                let running = if slot.0 == *number { slot.1.take() } else { None };
                let mut running = running.ok_or(BackupError::GivenUp)?; // Not put back on an error.
                let block = running.encoder.next_block()?;
                self.summary = running.encoder.summary();
                running.asked_at = Instant::now();
                slot.1 = Some(running);
                Ok(block)
            }
            Source::Folder(encoder, _) => {
                let block = encoder.next_block()?;
                self.summary = encoder.summary();
                Ok(block)
            }
        }
    }

    /// What it is of, and what is in the blocks that were asked for.
    pub fn summary(&self) -> &BackupSummary {
        &self.summary
    }

    /// Writes all blocks, and tells after each how far it has come. Blocks.
    ///
    /// # Errors
    /// As [`Backup::next_block`], and when `out` fails.
    pub fn write_to(
        mut self,
        mut out: impl Write,
        mut progress: impl FnMut(Progress),
    ) -> Result<BackupSummary, BackupError> {
        while let Some(block) = self.next_block()? {
            out.write_all(&block).map_err(|source| BackupError::Io { action: "write", source })?;
            progress(Progress { bytes: self.summary.bytes, rows: self.summary.rows() });
        }
        out.flush().map_err(|source| BackupError::Io { action: "write", source })?;
        Ok(self.summary.clone())
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        if let Source::Store(shared, number) = &self.source {
            let mut slot = shared.backup.lock();
            if slot.0 == *number {
                slot.1 = None;
            }
        }
    }
}

impl std::fmt::Debug for Backup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Backup").field("summary", &self.summary).finish_non_exhaustive()
    }
}

/// Looks at a backup's bytes as they pass: whether they are those that were written, all of them.
#[derive(Default)]
pub struct Checker(Decoder);

impl Checker {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they are not those that were written.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.0.push(bytes);
        self.0.check()
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// At their end: what they were.
    ///
    /// # Errors
    /// When the end of the backup is missing.
    pub fn finish(self) -> Result<BackupSummary, BackupError> {
        self.0.finish()
    }
}

impl std::fmt::Debug for Checker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Checker").field(&self.progress()).finish()
    }
}

/// Makes a store in `folder` of a backup, as a whole or not at all: it is filled beside its place and moved there when
/// everything was found right and is synced. What an interrupted one leaves, the next one or the next start clears away.
/// `progress` is told after each block. Blocks.
///
/// # Errors
/// When the folder holds a store or is in use, and when the backup is not whole.
pub fn restore(
    input: impl Read,
    folder: &Path,
    pushes: RestoredPushes,
    progress: impl FnMut(Progress),
) -> Result<Restored, BackupError> {
    let _lock = lock_folder(folder)?;
    if Engine::is_in(folder)? {
        return Err(BackupError::HasStore { path: folder.to_owned() });
    }
    let mut reader = Reader::new(input, progress);
    let first = reader.next_rows()?; // Before anything is made: most of what is no backup shows here.
    let mut is_paused = false;
    Engine::create(folder, CACHE_BYTES, |engine| {
        let mut meta = fill(engine, first, &mut reader)?;
        if let RestoredPushes::Paused(now) = pushes {
            is_paused = pause_due_pushes(engine, &mut meta, now)?;
        }
        Ok::<_, BackupError>(engine.commit(meta, Durability::Synced)?)
    })?;
    Ok(Restored { summary: reader.decoder.finish()?, is_paused })
}

/// Pauses everything if a push is due: whether it is.
fn pause_due_pushes(engine: &Engine, rows: &mut Rows, now: Timestamp) -> Result<bool, EngineError> {
    let mut is_due = false;
    for table in [Table::Job, Table::Later] {
        engine.scan(table, Bound::Unbounded, |_, _| {
            is_due = true;
            Ok::<_, EngineError>(false)
        })?;
    }
    let meta = |key| rows.get(Table::Meta, key).flatten();
    let state = meta(STATE_KEY).map(|row| rows::decode::<State>(Table::Meta, STATE_KEY, row)).transpose()?;
    let dispatched =
        meta(DISPATCHED_KEY).map(|row| rows::decode_position(Table::Meta, DISPATCHED_KEY, row)).transpose()?;
    is_due |= state.is_some_and(|state| dispatched.map_or(state.journal_base, |end| end.0) < state.journal_end);
    let scope = BrakeScope::Everything.to_string();
    if is_due && engine.get(Table::Brake, scope.as_bytes())?.is_none() {
        rows.put(Table::Brake, scope, now.0.to_be_bytes());
    }
    Ok(is_due)
}

/// Writes the rows of a backup into an empty engine, all but those of `meta`: with these, which it returns, it is a store.
fn fill<R: Read, P: FnMut(Progress)>(
    engine: &Engine,
    mut next: Option<Block>,
    reader: &mut Reader<R, P>,
) -> Result<Rows, BackupError> {
    let mut meta = Rows::default();
    while let Some(block) = next.take() {
        if block.table == Table::Meta {
            for (key, value) in block.rows() {
                match key {
                    STATE_KEY => meta.put(Table::Meta, key, restored_state(value)?),
                    _ => meta.put(Table::Meta, key, value),
                }
            }
            next = reader.next_rows()?;
            continue;
        }
        let table = block.table;
        engine.fill(table, |write| {
            let mut block = block;
            loop {
                block.rows().try_for_each(|(key, value)| write(key, value))?;
                match reader.next_rows()? {
                    Some(of_same) if of_same.table == table => block = of_same,
                    other => {
                        next = other;
                        return Ok::<_, BackupError>(());
                    }
                }
            }
        })?;
    }
    if [FORMAT_KEY, STATE_KEY].iter().any(|key| meta.get(Table::Meta, key).is_none()) {
        return Err(BackupError::NoStore);
    }
    Ok(meta)
}

/// The counters of a backup as those of another life.
fn restored_state(row: &[u8]) -> Result<Vec<u8>, EngineError> {
    let mut state: State = rows::decode(Table::Meta, STATE_KEY, row)?;
    state.epoch = hash::new_epoch();
    state.revision = state.revision.saturating_add(REVISION_LEAP);
    (state.change_base, state.change_bytes) = (state.change_end, 0); // Changes are derived and left out.
    Ok(rows::encode(&state))
}

/// Reads a backup to its end and looks at every row. Blocks.
///
/// # Errors
/// When it is not whole. Rows that do not belong together are no error: they are in the report.
pub fn verify(input: impl Read, progress: impl FnMut(Progress)) -> Result<Report, BackupError> {
    let mut reader = Reader::new(input, progress);
    let mut inspector = Inspector::default();
    while let Some(block) = reader.next_rows()? {
        block.rows().for_each(|(key, value)| inspector.row(block.table, key, value));
    }
    Ok(Report { summary: reader.decoder.finish()?, findings: inspector.end() })
}

/// The same of a store that no server has open; `folder` is the store's own. What is not there is not looked at: heap
/// and checkpoint are made anew where they are wrong.
///
/// # Errors
/// As [`Backup::of_folder`], and when rows cannot be read.
pub fn verify_folder(folder: &Path, progress: impl FnMut(Progress)) -> Result<Report, BackupError> {
    verify(BackupReader { backup: Backup::of_folder(folder)?, block: Vec::new(), taken: 0 }, progress)
}

/// The bytes of a backup as it is made.
struct BackupReader {
    backup: Backup,
    block: Vec<u8>,
    taken: usize,
}

impl Read for BackupReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.block.len() {
            self.block = self.backup.next_block().map_err(io::Error::other)?.unwrap_or_default();
            self.taken = 0;
        }
        let count = out.len().min(self.block.len() - self.taken);
        out[..count].copy_from_slice(&self.block[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

/// The blocks of a backup that is read.
struct Reader<R, P> {
    input: R,
    progress: P,
    decoder: Decoder,
    chunk: Vec<u8>,
}

const CHUNK_BYTES: usize = 256 << 10;

impl<R: Read, P: FnMut(Progress)> Reader<R, P> {
    fn new(input: R, progress: P) -> Self {
        Self { input, progress, decoder: Decoder::default(), chunk: vec![0; CHUNK_BYTES] }
    }

    /// The next rows; `None` at the end, which was found right.
    fn next_rows(&mut self) -> Result<Option<Block>, BackupError> {
        loop {
            match self.decoder.next()? {
                Some(Part::Rows(block)) => {
                    (self.progress)(self.decoder.progress());
                    return Ok(Some(block));
                }
                Some(Part::Head(Head { .. }) | Part::End) => continue,
                None => {}
            }
            let read = match self.input.read(&mut self.chunk) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.map_err(read_failed)?,
            };
            if read == 0 {
                return self.decoder.finish().map(|_| None);
            }
            self.decoder.push(&self.chunk[..read]);
        }
    }
}

/// An error of our own that came through a reader is told as it is.
fn read_failed(error: io::Error) -> BackupError {
    match error.downcast::<BackupError>() {
        Ok(error) => error,
        Err(source) => BackupError::Io { action: "read", source },
    }
}

/// A store that no server has open, and its lock. It is not made where there is none.
fn open_folder(folder: &Path) -> Result<(Engine, FolderLock), BackupError> {
    if !Engine::is_in(folder)? {
        return Err(BackupError::NoStore);
    }
    let lock = lock_folder(folder)?;
    let engine = Engine::open_again(folder, CACHE_BYTES)?;
    let found = engine.get(Table::Meta, FORMAT_KEY)?.map(|row| row.as_ref().to_vec()).unwrap_or_default();
    if !rows::is_known_format(&found) {
        let found = String::from_utf8_lossy(&found).chars().take(64).collect();
        return Err(OpenError::Format { found, known: FORMAT }.into());
    }
    read_state(&engine)?;
    Ok((engine, lock))
}
