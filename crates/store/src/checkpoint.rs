//! The checkpoint: device table and audience index in one flat file, so that opening need not read all rows.
//!
//! ```text
//!  committer: rows + change ─► sync ─► table, index ─► `changed`      every so many changes: the signal
//!                                          │ part by part, each under a short lock          ▼
//!  checkpoint ◄── sync, move ◄── sections ◄┴──────────────────────────────────── thread `store-checkpoint`
//!       │
//!       └─► open: sections + the changes since the head's ─► table, index.   Anything wrong: all rows are read instead.
//! ```
//!
//! It is fuzzy: each part shows the state at some moment after the head's change number was taken. Replaying the changes
//! from that number on makes it exact (`checkpoint/change.rs` says why). Its end names the last change that it may contain:
//! if the rows are older (somebody restored an older copy), the checkpoint is not used. The file is derived data: if it is
//! missing, damaged, of another version or store, or if changes are missing, opening takes longer, but nothing is lost.
//!
//! One thread writes one checkpoint at a time, and a new one replaces the old one in one step (`file.rs`). Between two
//! checkpoints the thread rests for at least [`REST_FACTOR`] times the duration of the last one. It writes at most
//! [`BYTES_PER_SECOND`], including the heap's new bytes, and syncs often, so that commits do not wait behind a burst of its
//! bytes. The last checkpoint, at an orderly close, is written without rests. Rows and heap are synced before the file is
//! moved to its place, so a checkpoint never contains a change that they may still lose. A failed checkpoint (a full disk)
//! leaves the old one, and is tried again after [`FAILED_REST`]. Meanwhile changes are kept, up to a bound
//! (`checkpoint/changes.rs`).

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings_telemetry::chain;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::shared::Shared;

pub(crate) mod change;
pub(crate) mod changes;
mod file;
mod state;

#[cfg(test)]
pub(crate) use self::file::begin_at;
pub(crate) use self::file::{Extent, Reader, Section, Unusable, remove};
use self::file::{Head, Writer};
use self::state::lock;
pub(crate) use self::state::{Checkpointing, Loaded};

/// The rest after a checkpoint, as a multiple of its duration.
const REST_FACTOR: u32 = if cfg!(test) { 1 } else { 10 };
/// The rest after a failed checkpoint.
const FAILED_REST: Duration = if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(10) };
/// The speed of writing while the store is open.
const BYTES_PER_SECOND: u64 = 100 << 20;
/// Bytes between two checks of the speed.
const CHUNK_BYTES: usize = 1 << 20;
/// Bytes between two syncs. A commit may have to wait behind this many.
const SYNC_BYTES: u64 = 8 << 20;

/// The speed of a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pace {
    /// Limited, because the store is in use.
    Gentle,
    /// Unlimited, because the closing store waits for it.
    Quick,
}

/// The thread that writes checkpoints. Dropping this stops it.
pub(crate) struct Checkpointer {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Checkpointer {
    /// If the thread cannot be started, there is only a checkpoint at an orderly close.
    pub(crate) fn start(shared: Arc<Shared>) -> Self {
        let of_thread = shared.clone();
        let spawned = std::thread::Builder::new().name("store-checkpoint".to_owned()).spawn(move || run(&of_thread));
        let thread = spawned.inspect_err(|error| warn!(error = chain(&error), "No thread for checkpoints")).ok();
        Self { shared, thread }
    }

    /// Writes a last checkpoint if anything has changed or moved since the last one.
    pub(crate) fn finish(mut self) {
        self.stop();
        let state = &self.shared.checkpoint;
        let is_behind = state.changed.load(Ordering::Acquire) > state.taken();
        let is_moved = state.pending.load(Ordering::Relaxed) > 0;
        if is_behind || is_moved || state.is_missing.load(Ordering::Relaxed) {
            take_one(&self.shared, Pace::Quick);
        }
    }

    fn stop(&mut self) {
        let state = &self.shared.checkpoint;
        lock(&state.signal).is_over = true;
        state.signalled.notify_all();
        drop(state.interrupt());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // If it panicked, the panic was already logged.
        }
    }
}

impl Drop for Checkpointer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn run(shared: &Shared) {
    let mut not_before = Instant::now();
    while shared.checkpoint.wait_until_due(not_before) {
        let began = Instant::now();
        let is_written = take_one(shared, Pace::Gentle);
        let rest = if is_written { began.elapsed() * REST_FACTOR } else { FAILED_REST };
        not_before = Instant::now() + rest;
        if !is_written {
            shared.checkpoint.signal(); // It is still due.
        }
    }
}

/// Writes a checkpoint and logs the result. False if it could not be written.
fn take_one(shared: &Shared, pace: Pace) -> bool {
    let (state, began) = (&shared.checkpoint, Instant::now());
    let _busy = lock(&state.busy);
    let pending = state.pending.swap(0, Ordering::Relaxed);
    let written = write(shared, pace);
    if written.is_err() {
        state.pending.fetch_add(pending, Ordering::Relaxed);
    }
    // After a failure, the old checkpoint may still use all files. They are deleted only if the disk is full.
    let is_full = |error: &io::Error| matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
    if written.as_ref().err().is_none_or(is_full) {
        let retired = shared.table.write().take_retired(); // Deleted after the lock is released.
        if let Err(error) = retired.delete() {
            warn!(error = chain(&error), "Unused files of the heap cannot be deleted");
        }
    }
    match &written {
        Ok(bytes) => {
            let elapsed = began.elapsed();
            state.on_written();
            shared.counters.checkpointed.record(elapsed);
            info!(bytes, elapsed = elapsed.as_secs_f64(), "Checkpoint written");
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => info!("Checkpoint cancelled"),
        Err(error) => {
            state.failed_count.fetch_add(1, Ordering::Relaxed);
            warn!(error = chain(&error), "Checkpoint cannot be written; changes are kept until one is");
        }
    }
    written.is_ok()
}

/// Writes a checkpoint of the current table and index; returns its size in bytes.
fn write(shared: &Shared, pace: Pace) -> io::Result<u64> {
    let state = &shared.checkpoint;
    // The number is read before the parts, so that each part has at least all changes before it.
    let head = Head { epoch: shared.epoch, change: state.changed.load(Ordering::Acquire) };
    let mut writer = Writer::create(&shared.config.path, head)?;
    let mut throttle = Throttle { state, pace, began: Instant::now(), bytes: 0, unsynced_bytes: 0 };
    let mut bytes = Vec::new();
    shared.table.write().begin_checkpoint();
    let written = write_table(shared, &mut writer, &mut throttle, &mut bytes);
    shared.table.write().end_checkpoint();
    written?;
    // The records must be durable before the slots that point to them.
    let unsynced = shared.table.read().unsynced();
    unsynced.sync(|bytes| throttle.rest_after(bytes))?;
    for shard in 0.. {
        bytes.clear();
        let index = shared.index.read();
        if shard >= index.shard_count() {
            break;
        }
        index.encode_shard(shard, &mut bytes);
        drop(index);
        writer.section(Section::Index(shard as u32), &bytes, CHUNK_BYTES, |file| throttle.after_chunk(file))?;
    }
    let reached = state.reached.load(Ordering::Relaxed);
    // So must the rows: a power failure must not undo changes that the checkpoint has.
    let engine = shared.engine.read();
    engine.as_ref().ok_or(io::ErrorKind::Interrupted)?.sync().map_err(io::Error::other)?;
    drop(engine);
    let bytes = writer.finish(reached)?;
    state.taken.store(head.change, Ordering::Relaxed);
    state.is_missing.store(false, Ordering::Relaxed);
    Ok(bytes)
}

fn write_table(
    shared: &Shared,
    writer: &mut Writer,
    throttle: &mut Throttle<'_>,
    bytes: &mut Vec<u8>,
) -> io::Result<()> {
    for part in 0.. {
        bytes.clear();
        let table = shared.table.read();
        if part >= table.part_count() {
            break;
        }
        table.encode(part, bytes);
        drop(table);
        writer.section(Section::Table(part), bytes, CHUNK_BYTES, |file| throttle.after_chunk(file))?;
    }
    Ok(())
}

/// Limits the speed of writing.
struct Throttle<'a> {
    state: &'a Checkpointing,
    pace: Pace,
    began: Instant,
    /// Bytes of the file and of the heap.
    bytes: u64,
    /// Bytes of the file since its last sync.
    unsynced_bytes: u64,
}

impl Throttle<'_> {
    fn after_chunk(&mut self, file: &File) -> io::Result<()> {
        self.unsynced_bytes += CHUNK_BYTES as u64;
        if self.pace == Pace::Gentle && self.unsynced_bytes >= SYNC_BYTES {
            file.sync_data()?;
            self.unsynced_bytes = 0;
        }
        self.rest_after(CHUNK_BYTES as u64)
    }

    fn rest_after(&mut self, bytes: u64) -> io::Result<()> {
        if self.state.is_interrupted.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        self.bytes += bytes;
        if self.pace == Pace::Quick {
            return Ok(());
        }
        let due = Duration::from_millis(self.bytes * 1000 / BYTES_PER_SECOND);
        self.state.rest(due.saturating_sub(self.began.elapsed()));
        Ok(())
    }
}
