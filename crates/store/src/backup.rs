//! Backup of a running or stopped store, restore, and verification.
//!
//! A backup has the rows of all tables between two commits, in one flat file (`format.rs` describes its bytes). The store
//! works on meanwhile: only the current commit waits for a moment. Derived data (heap, checkpoint, changes since it) is left
//! out and made anew when the store is opened.
//!
//! ```text
//! running  Store::begin_backup ─► Backup::next_block … ─► file, response
//! stopped  Backup::of_folder   ─┘
//! file     restore, restore_copy ─► data.new ─► synced, data        verify, verify_folder ─► Report
//! ```
//!
//! A backup contains tokens, hashes of credentials and events, like the store. Anybody who can read it can push.
//!
//! There are two ways to make a store from a backup:
//!
//! | | [`restore`] | [`restore_copy`] |
//! |---|---|---|
//! | when | the store is lost | a new node joins, and another node's store lives on |
//! | the new store is | another one, with a new epoch | the same one, with the same epoch |
//! | its log | none: it is alone, and can begin a new log | the same one: it follows from the position of the backup |
//! | pushes that were due | may be paused | are the leader's, as before |
//!
//! A restored store has a new epoch, because its channels continue from the backup and may use the same offsets for other
//! publications. Clients that come back are told of the gap. Revisions of devices continue far above those of the backup,
//! so that no revision is used twice. A copy needs nothing of this: it makes no batch of its own before it has read all of
//! the log.
//!
//! A copy has the state row as it is, so it says that there are changes since the last checkpoint (`checkpoint.rs`) whose rows
//! the backup does not have. Only a checkpoint from before the copy would need them. The copy's own checkpoints are newer, and
//! one that was left in its folder is deleted.
//!
//! Bounds: a block of 1 MiB, or of one row, in memory; one backup of a store at a time. During a backup, compacted files
//! stay on the disk and the write buffers of its start stay in memory. So a backup ends early when its next block is not
//! requested for [`IDLE_MAX`], or when the store is closed or opened again after an error.

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
use crate::checkpoint;
use crate::engine::{Durability, Engine, EngineError, Place, Rows, Span, Table};
use crate::error::OpenError;
use crate::folder::{FolderLock, lock_folder};
use crate::hash;
use crate::log::{LOG_KEY, LogPosition, decode_log_position};
use crate::meta::{DISPATCHED_KEY, FORMAT, FORMAT_KEY, State};
use crate::rows;
use crate::service::Store;
use crate::shared::Shared;

/// The engine's cache during a backup of a folder or a restore. It is small, because each block is read once.
const CACHE_BYTES: u64 = 8 << 20;

/// More revisions than a store can have used between its backup and its loss.
const REVISION_LEAP: u64 = 1 << 32;

/// What a restored store does with pushes that were due at the time of its backup. Some of them may have been sent since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoredPushes {
    /// If there are jobs, events without a job, or scheduled events, everything is paused since this time. Nothing is pushed
    /// until [`Store::resume`](crate::Store::resume) ends the pause.
    Paused(Timestamp),
    /// They continue when the server starts.
    GoOn,
}

/// The result of a restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restored {
    /// The backup.
    pub summary: BackupSummary,
    /// Everything is paused, because pushes were due.
    pub is_paused: bool,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The backup; for a folder, the backup that would be made of it.
    pub summary: BackupSummary,
    /// The contradictions.
    pub findings: Findings,
}

/// A backup in progress. It is made block by block on request. Dropping it ends it.
pub struct Backup {
    source: Source,
    summary: BackupSummary,
    /// The row that says how far the store was in its log.
    log_row: Option<Vec<u8>>,
}

enum Source {
    /// A running store. Its slot has the backup, under this number.
    Store(Arc<Shared>, u64),
    /// A folder, which stays locked.
    Folder(Box<Encoder>, #[expect(dead_code, reason = "held, not used")] FolderLock),
}

impl Store {
    /// Begins a backup of all committed data. Blocks for the time of a commit.
    ///
    /// # Errors
    /// [`BackupError::Busy`] during another backup; also when the store cannot be read.
    pub fn begin_backup(&self) -> Result<Backup, BackupError> {
        let shared = self.shared();
        let engine = shared.engine.read();
        let engine = engine.as_ref().ok_or(BackupError::GivenUp)?;
        let mut slot = shared.backup.lock();
        if slot.1.is_some() {
            return Err(BackupError::Busy);
        }
        let encoder = Encoder::new(engine.cut(&KEPT))?;
        let (summary, log_row) = (encoder.summary(), encoder.log_row().map(<[u8]>::to_vec));
        let number = slot.0 + 1;
        *slot = (number, Some(Running { encoder, asked_at: Instant::now() }));
        drop(slot);
        Ok(Backup { source: Source::Store(shared.clone(), number), summary, log_row })
    }

    /// Writes a whole backup. Blocks; use [`Store::begin_backup`] in async code.
    ///
    /// # Errors
    /// As [`Store::begin_backup`] and [`Backup::next_block`], and when `out` fails.
    pub fn backup(&self, out: impl Write) -> Result<BackupSummary, BackupError> {
        self.begin_backup()?.write_to(out, |_| ())
    }
}

impl Backup {
    /// Begins a backup of a store that no server has open; `folder` is the store's own. It stays locked until the backup is
    /// dropped. Blocks.
    ///
    /// # Errors
    /// When the folder has no store or one of an unknown format, or is in use.
    pub fn of_folder(folder: &Path) -> Result<Self, BackupError> {
        let (engine, lock) = open_folder(folder)?;
        let encoder = Encoder::new(engine.cut(&KEPT))?;
        let (summary, log_row) = (encoder.summary(), encoder.log_row().map(<[u8]>::to_vec));
        Ok(Self { source: Source::Folder(Box::new(encoder), lock), summary, log_row })
    }

    /// The next bytes of the backup: one mebibyte, or more for a large row; `None` at its end. Blocks while rows are read.
    ///
    /// # Errors
    /// [`BackupError::GivenUp`] when the store ended the backup; also when a row cannot be read. The bytes up to then are
    /// unusable, and a reader notices the missing end.
    pub fn next_block(&mut self) -> Result<Option<Vec<u8>>, BackupError> {
        match &mut self.source {
            Source::Store(shared, number) => {
                let mut slot = shared.backup.lock();
                let running = if slot.0 == *number { slot.1.take() } else { None };
                let mut running = running.ok_or(BackupError::GivenUp)?; // After an error it is not put back.
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

    /// The summary of the blocks so far.
    pub fn summary(&self) -> &BackupSummary {
        &self.summary
    }

    /// How far the store was in its log when the backup began: the backup has exactly the records up to this position. A copy
    /// of it ([`restore_copy`]) reads the log behind it. `None`: the store shares no log. Does not block.
    ///
    /// # Errors
    /// [`BackupError::Engine`] when the row that has the position is damaged.
    pub fn log_position(&self) -> Result<Option<LogPosition>, BackupError> {
        Ok(self.log_row.as_deref().map(decode_log_position).transpose()?)
    }

    /// Writes all blocks, and reports the progress after each. Blocks.
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

/// Checks in a stream of bytes whether a backup is complete and undamaged.
#[derive(Default)]
pub struct Checker(Decoder);

impl Checker {
    /// Checks the next bytes.
    ///
    /// # Errors
    /// When they are damaged.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.0.push(bytes);
        self.0.check()
    }

    /// The progress.
    pub fn progress(&self) -> Progress {
        self.0.progress()
    }

    /// To be called after the last bytes. Returns the summary.
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

/// Makes a store in `folder` from a backup of a lost one, as a whole or not at all. It is filled beside its place, and moved
/// there after everything was checked and synced. The next restore or start removes the files of an interrupted restore.
/// Calls `progress` after each block. Blocks.
///
/// If the lost store shared a log, this one does not: it is opened alone ([`Store::open`]), or begins a new log
/// ([`Store::join`]). To add a node to the nodes of a log that goes on, use [`restore_copy`].
///
/// # Errors
/// When the folder has a store or is in use, and when the backup is incomplete or damaged.
pub fn restore(
    input: impl Read,
    folder: &Path,
    pushes: RestoredPushes,
    progress: impl FnMut(Progress),
) -> Result<Restored, BackupError> {
    make_store(Life::New(pushes), input, folder, progress)
}

/// Makes a copy of a store in `folder` from a backup of it, to follow the same log from there ([`Store::join`]). Everything
/// stays as it is in the backup: the epoch, the revisions, the position in the log; nothing is paused. Safe as [`restore`]: as
/// a whole or not at all. Calls `progress` after each block. Blocks.
///
/// The log must still have all records behind the position of the backup ([`Backup::log_position`]). Otherwise the copy
/// cannot follow ([`Role::Lost`](crate::Role::Lost)). A copy of a copy is as good as a copy of the leader.
///
/// # Errors
/// [`BackupError::NoLog`] when the backup is of a store without a log. When the folder has a store or is in use, and when the
/// backup is incomplete or damaged.
pub fn restore_copy(
    input: impl Read,
    folder: &Path,
    progress: impl FnMut(Progress),
) -> Result<BackupSummary, BackupError> {
    make_store(Life::Same, input, folder, progress).map(|restored| restored.summary)
}

/// What the store that is made from a backup is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Another store, which is alone.
    New(RestoredPushes),
    /// The same store, on another node.
    Same,
}

fn make_store(
    life: Life,
    input: impl Read,
    folder: &Path,
    progress: impl FnMut(Progress),
) -> Result<Restored, BackupError> {
    let _lock = lock_folder(folder)?;
    if Engine::is_in(folder)? {
        return Err(BackupError::HasStore { path: folder.to_owned() });
    }
    let mut reader = Reader::new(input, progress);
    // Most invalid files are noticed here, before anything is written.
    let (mut meta, first) = read_meta(&mut reader)?;
    match life {
        Life::New(_) => begin_new_life(&mut meta)?,
        Life::Same => check_has_log(&meta)?,
    }
    let mut is_paused = false;
    Engine::create(folder, CACHE_BYTES, |engine| {
        fill(engine, first, &mut reader)?;
        if let Life::New(RestoredPushes::Paused(now)) = life {
            is_paused = pause_due_pushes(engine, &mut meta, now)?;
        }
        // The epoch may be that of a store that was here before. Then its checkpoint would seem usable.
        checkpoint::remove(folder).map_err(EngineError::from)?;
        Ok::<_, BackupError>(engine.commit(meta, Durability::Synced)?)
    })?;
    Ok(Restored { summary: reader.decoder.finish()?, is_paused })
}

/// Changes the rows of `meta` of a backup for a store that is another one.
fn begin_new_life(meta: &mut Rows) -> Result<(), EngineError> {
    let row = meta.get(Table::Meta, STATE_KEY).flatten().unwrap_or_default();
    let mut state = another_life(rows::decode(Table::Meta, STATE_KEY, row)?);
    (state.change_base, state.change_bytes) = (state.change_end, 0); // Changes are derived and left out.
    meta.put(Table::Meta, STATE_KEY, rows::encode(&state));
    meta.delete(Table::Meta, LOG_KEY);
    Ok(())
}

/// The state of a store that goes on from here, while another one may have gone on from here, too.
fn another_life(state: State) -> State {
    let revision = state.revision.saturating_add(REVISION_LEAP);
    State { epoch: hash::new_epoch(), revision, ..state }
}

/// Makes a store that shares a log one that is alone, with a new epoch, as a restored one. It can then begin a new log. No
/// server may have it open. Returns whether it shared a log; if not, nothing changes. Blocks.
///
/// # Errors
/// As [`Backup::of_folder`], and when the store cannot be written.
pub fn leave_log(folder: &Path) -> Result<bool, BackupError> {
    let (engine, _lock) = open_folder(folder)?;
    if engine.get(Table::Meta, LOG_KEY)?.is_none() {
        return Ok(false);
    }
    let mut changed = Rows::default();
    changed.put(Table::Meta, STATE_KEY, rows::encode(&another_life(read_state(&engine)?)));
    changed.delete(Table::Meta, LOG_KEY);
    engine.commit(changed, Durability::Synced)?;
    Ok(true)
}

/// Refuses the rows of `meta` of a store that does not know how far it is in its log.
fn check_has_log(meta: &Rows) -> Result<(), BackupError> {
    let row = meta.get(Table::Meta, LOG_KEY).flatten().ok_or(BackupError::NoLog)?;
    decode_log_position(row)?;
    Ok(())
}

/// Pauses everything if a push is due. True if one is due.
fn pause_due_pushes(engine: &Engine, rows: &mut Rows, now: Timestamp) -> Result<bool, EngineError> {
    let mut is_due = false;
    for table in [Table::Job, Table::Later] {
        engine.scan(Place::Backup, table, &Span::all(), |_, _| {
            is_due = true;
            Ok(false)
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

/// The rows of `meta`, which come first in a backup, and the block behind them.
fn read_meta<R: Read, P: FnMut(Progress)>(reader: &mut Reader<R, P>) -> Result<(Rows, Option<Block>), BackupError> {
    let (mut meta, mut next) = (Rows::default(), reader.next_rows()?);
    while let Some(block) = next.take_if(|block| block.table == Table::Meta) {
        block.rows().for_each(|(key, value)| meta.put(Table::Meta, key, value));
        next = reader.next_rows()?;
    }
    if [FORMAT_KEY, STATE_KEY].iter().any(|key| meta.get(Table::Meta, key).is_none()) {
        return Err(BackupError::NoStore);
    }
    Ok((meta, next))
}

/// Writes the rows of a backup behind those of `meta` into an empty engine.
fn fill<R: Read, P: FnMut(Progress)>(
    engine: &Engine,
    mut next: Option<Block>,
    reader: &mut Reader<R, P>,
) -> Result<(), BackupError> {
    while let Some(mut block) = next.take() {
        let table = block.table;
        engine.fill(table, |write| {
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
    Ok(())
}

/// Reads a backup to its end and checks every row. Blocks.
///
/// # Errors
/// When the backup is incomplete or damaged. Rows that contradict each other are no error; they are in the report.
pub fn verify(input: impl Read, progress: impl FnMut(Progress)) -> Result<Report, BackupError> {
    let mut reader = Reader::new(input, progress);
    let mut inspector = Inspector::default();
    while let Some(block) = reader.next_rows()? {
        block.rows().for_each(|(key, value)| inspector.row(block.table, key, value));
    }
    Ok(Report { summary: reader.decoder.finish()?, findings: inspector.end() })
}

/// Like [`verify`], for a store that no server has open; `folder` is the store's own. Heap and checkpoint are not checked,
/// because the store makes them anew if they are damaged.
///
/// # Errors
/// As [`Backup::of_folder`], and when rows cannot be read.
pub fn verify_folder(folder: &Path, progress: impl FnMut(Progress)) -> Result<Report, BackupError> {
    verify(BackupReader { backup: Backup::of_folder(folder)?, block: Vec::new(), taken: 0 }, progress)
}

/// Reads the bytes of a backup while it is made.
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

/// Reads the blocks of a backup.
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

    /// The next rows; `None` at a valid end.
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

/// A [`BackupError`] that came through a reader stays as it is.
fn read_failed(error: io::Error) -> BackupError {
    match error.downcast::<BackupError>() {
        Ok(error) => error,
        Err(source) => BackupError::Io { action: "read", source },
    }
}

/// Opens and locks a store that no server has open.
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
