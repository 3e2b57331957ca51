//! The state that the committer, the checkpoint thread and the callers share: data in memory, watched values, counters.
//!
//! **Locks.** A thread holds one lock at a time, with one exception: while it holds `engine` for reading, it may take one
//! other lock. A thread that took the same lock twice for reading could block for ever, because a new reader waits behind
//! a waiting writer. In return a waiting writer is always next, also when readers come one after another. (With the
//! standard library's lock, new readers may overtake a writer that was woken and does not run yet.)

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use parking_lot::RwLock;
use tidings_audience::Index;
use tidings_telemetry::Histogram;
use tidings_types::{Epoch, JournalPosition, Offset, StreamPosition, Timestamp};
use tokio::sync::watch;

use crate::backup::Slot;
use crate::blocks::Blocks;
use crate::brakes::Brakes;
use crate::checkpoint::Checkpointing;
use crate::config::StoreConfig;
use crate::engine::{Engine, Scans};
use crate::log::{LogPosition, Role};
use crate::table::{DeviceTable, Losses};

/// See the module for the rule about locks.
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    /// `None` while the store is opened again after an error, and after it was closed. Only the committer replaces it.
    pub(crate) engine: RwLock<Option<Engine>>,
    pub(crate) table: RwLock<DeviceTable>,
    pub(crate) index: RwLock<Index>,
    /// Devices whose record in the table has to be written anew from the row.
    pub(crate) losses: Losses,
    /// Device numbers in use and free. Only the committer uses it.
    pub(crate) blocks: Mutex<Blocks>,
    /// The epoch of all durable channels.
    pub(crate) epoch: Epoch,
    /// New durable channels begin behind this offset.
    pub(crate) channel_floor: AtomicU64,
    pub(crate) journal_end: watch::Sender<JournalPosition>,
    pub(crate) brakes: watch::Sender<Arc<Brakes>>,
    pub(crate) next_later: watch::Sender<Option<Timestamp>>,
    /// Events that are not yet due.
    pub(crate) later_count: AtomicU64,
    /// The events of the journal, and their bytes.
    pub(crate) journal_events: AtomicU64,
    pub(crate) journal_bytes: AtomicU64,
    /// The sender needs no event before this position.
    pub(crate) trim_to: AtomicU64,
    /// Of what was written since the last look: when the device was seen that was seen first (`devices/expire.rs`), and when
    /// the first mute ends (`mutes/ends.rs`).
    pub(crate) devices_seen: AtomicU64,
    pub(crate) mutes_due: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) backup: Slot,
    pub(crate) checkpoint: Checkpointing,
    /// What the store does with its log.
    pub(crate) role: watch::Sender<Role>,
    /// How far it is in its log: rows and memory have all records up to this one.
    pub(crate) log_position: watch::Sender<LogPosition>,
    /// Whether the store is told to lead.
    pub(crate) wants_to_lead: watch::Sender<bool>,
    /// True after the committer has ended and the folder is free.
    pub(crate) ended: watch::Sender<bool>,
}

impl Shared {
    /// The position at which a new durable channel begins.
    pub(crate) fn channel_start(&self) -> StreamPosition {
        StreamPosition { offset: Offset(self.channel_floor.load(Ordering::Relaxed)), epoch: self.epoch }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) scans: Arc<Scans>,
    pub(crate) batches: AtomicU64,
    pub(crate) commands: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) reopened: AtomicU64,
    /// Failed attempts to open the store again.
    pub(crate) not_reopened: AtomicU64,
    pub(crate) overloaded: AtomicU64,
    pub(crate) repaired: AtomicU64,
    /// Searches for numbers that may be used again.
    pub(crate) looks: AtomicU64,
    pub(crate) expired: AtomicU64,
    /// How long commits took that were synced, and that were only handed to the operating system.
    pub(crate) synced: Histogram,
    pub(crate) handed: Histogram,
    /// How long it took to write a checkpoint.
    pub(crate) checkpointed: Histogram,
}
