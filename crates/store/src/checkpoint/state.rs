//! How far the checkpoint is behind, and when the next one is due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::config::StoreConfig;

/// What committer, checkpoint thread and callers share.
#[derive(Debug, Default)]
pub(crate) struct Checkpointing {
    /// Changes before this are in table and index.
    pub(super) changed: AtomicU64,
    /// None from this on is, not even in part.
    pub(super) reached: AtomicU64,
    /// Changes before this are in the checkpoint, and it is durable.
    pub(super) taken: AtomicU64,
    /// Single changes and moved records since the last one began.
    pub(super) pending: AtomicU64,
    /// Written since the store was opened, and tried in vain.
    pub(crate) taken_count: AtomicU64,
    pub(crate) failed_count: AtomicU64,
    /// Times that there was none to begin from.
    pub(crate) rebuilt_count: AtomicU64,
    /// There is none, though there is what it would hold.
    pub(super) is_missing: AtomicBool,
    /// Held while one is written.
    pub(super) busy: Mutex<()>,
    /// The one that is being written is given up.
    pub(super) is_interrupted: AtomicBool,
    pub(super) signal: Mutex<Signal>,
    pub(super) signalled: Condvar,
}

/// What table and index were loaded from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loaded {
    /// Changes before this are in the checkpoint.
    pub(crate) taken: u64,
    /// Single changes since, made again.
    pub(crate) replayed_count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Signal {
    pub(super) is_due: bool,
    pub(super) is_over: bool,
}

impl Checkpointing {
    /// Changes before `end` are durable, and table and index begin to take them in.
    pub(crate) fn on_changing(&self, end: u64) {
        self.reached.store(end, Ordering::Relaxed); // Whoever sees any of them has taken a lock that came after this.
    }

    /// Table and index have `count` more changes, all before `changed`; at `limit` a checkpoint is due.
    pub(crate) fn on_changes(&self, changed: u64, count: u64, limit: u64) {
        self.changed.store(changed, Ordering::Release);
        if self.pending.fetch_add(count, Ordering::Relaxed) + count >= limit {
            self.signal();
        }
    }

    /// So many records of the heap were moved: their old places go with a checkpoint that has the new ones.
    pub(crate) fn on_moves(&self, count: u64, limit: u64) {
        if count > 0 && self.pending.fetch_add(count, Ordering::Relaxed) + count >= limit {
            self.signal();
        }
    }

    /// Table and index were loaded, of `device_count` devices: all changes before `changed` are in them. Where they come from
    /// no checkpoint a new one is due, unless there is nothing to put into it.
    pub(crate) fn on_loaded(&self, config: &StoreConfig, changed: u64, loaded: Option<Loaded>, device_count: u64) {
        let Loaded { taken, replayed_count } = loaded.unwrap_or_default();
        self.reached.store(changed, Ordering::Relaxed);
        self.changed.store(changed, Ordering::Release);
        self.taken.store(taken, Ordering::Relaxed);
        self.pending.store(replayed_count, Ordering::Relaxed);
        let is_missing = loaded.is_none() && device_count > 0;
        self.is_missing.store(is_missing, Ordering::Relaxed);
        self.rebuilt_count.fetch_add(u64::from(is_missing), Ordering::Relaxed);
        if is_missing || replayed_count >= config.checkpoint_change_count {
            self.signal();
        }
    }

    pub(super) fn signal(&self) {
        let mut signal = lock(&self.signal);
        if !signal.is_due {
            signal.is_due = true;
            self.signalled.notify_one();
        }
    }

    /// Changes before this need not be kept.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Gives up the one that is being written; none is begun before the guard is dropped.
    pub(crate) fn interrupt(&self) -> MutexGuard<'_, ()> {
        self.is_interrupted.store(true, Ordering::Relaxed);
        let guard = lock(&self.busy);
        self.is_interrupted.store(false, Ordering::Relaxed);
        guard
    }

    /// Waits until one is due; false when it is over.
    pub(super) fn wait_until_due(&self, not_before: Instant) -> bool {
        let mut signal = lock(&self.signal);
        loop {
            if signal.is_over {
                return false;
            }
            let rest = not_before.saturating_duration_since(Instant::now());
            signal = match (signal.is_due, rest) {
                (true, Duration::ZERO) => {
                    signal.is_due = false;
                    return true;
                }
                (true, rest) => self.signalled.wait_timeout(signal, rest).unwrap_or_else(PoisonError::into_inner).0,
                (false, _) => self.signalled.wait(signal).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Waits for a while, shorter when all is over.
    pub(super) fn rest(&self, pause: Duration) {
        let until = Instant::now() + pause;
        let mut signal = lock(&self.signal);
        while !signal.is_over && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            signal = self.signalled.wait_timeout(signal, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // What it guards is whole after every step.
}
