//! What the committer, the thread of checkpoints and the callers share: what is in memory, what is followed, and counters.
//!
//! A lock is never taken twice, nor one inside another, except that whoever holds `engine` for reading may take one of the
//! others: a reader waits behind a writer that waits. So a writer that waits is next, and readers of window after window
//! let it in between. (The standard library's lock lets new readers past a writer that was woken and does not run yet.)

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use parking_lot::RwLock;
use tidings_audience::Index;
use tidings_types::{JournalPosition, StreamPosition, Timestamp};
use tokio::sync::watch;

use crate::backup::Slot;
use crate::blocks::Blocks;
use crate::brakes::Brakes;
use crate::checkpoint::Checkpointing;
use crate::config::StoreConfig;
use crate::engine::Engine;
use crate::table::{DeviceTable, Losses};

/// What the committer and the callers share. A lock is never taken twice, nor one inside another, except that whoever holds
/// `engine` for reading may take one of the others: who reads waits behind a writer who waits.
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    /// `None` while the store is opened again after an error, and after its end. Only the committer writes here.
    pub(crate) engine: RwLock<Option<Engine>>,
    pub(crate) table: RwLock<DeviceTable>,
    pub(crate) index: RwLock<Index>,
    /// Devices of the table that are to be read anew.
    pub(crate) losses: Losses,
    /// Which numbers devices get; the committer's alone.
    pub(crate) blocks: Mutex<Blocks>,
    /// Where a durable channel began at open that was not there.
    pub(crate) channel_start: StreamPosition,
    pub(crate) journal_end: watch::Sender<JournalPosition>,
    pub(crate) brakes: watch::Sender<Arc<Brakes>>,
    pub(crate) next_later: watch::Sender<Option<Timestamp>>,
    /// Events not yet due.
    pub(crate) later_count: AtomicU64,
    /// The sender needs no event before this position.
    pub(crate) trim_to: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) backup: Slot,
    pub(crate) checkpoint: Checkpointing,
    /// True when the committer has ended and the folder is free.
    pub(crate) ended: watch::Sender<bool>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) batches: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) reopened: AtomicU64,
    /// Tries to open the store again that failed.
    pub(crate) not_reopened: AtomicU64,
    pub(crate) overloaded: AtomicU64,
    /// Devices whose record was written anew.
    pub(crate) repaired: AtomicU64,
    /// Looks for numbers that may be given again.
    pub(crate) looks: AtomicU64,
    pub(crate) expired: AtomicU64,
}
