//! The progress of checkpoints, and when the next one is due.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_telemetry::unix_now;
use tidings_types::Timestamp;
use tokio::time::Instant;

use crate::config::StoreConfig;

/// The state that committer, checkpoint thread and callers share.
#[derive(Debug, Default)]
pub(crate) struct Checkpointing {
    /// Table and index have all changes before this.
    pub(super) changed: AtomicU64,
    /// Table and index have no change from this on, not even in part.
    pub(super) reached: AtomicU64,
    /// The durable checkpoint has all changes before this.
    pub(super) taken: AtomicU64,
    /// Changes and moved records since the last checkpoint began.
    pub(super) pending: AtomicU64,
    /// Checkpoints since the store was opened.
    pub(crate) taken_count: AtomicU64,
    pub(crate) failed_count: AtomicU64,
    /// When the last one was written, in milliseconds; at first, when the store was opened.
    taken_at: AtomicU64,
    /// How often the store was opened without a usable checkpoint.
    pub(crate) rebuilt_count: AtomicU64,
    /// There is no checkpoint although there are devices.
    pub(super) is_missing: AtomicBool,
    /// Held while a checkpoint is written.
    pub(super) busy: Mutex<()>,
    /// The current checkpoint is to be cancelled.
    pub(super) is_interrupted: AtomicBool,
    pub(super) signal: Mutex<Signal>,
    pub(super) signalled: Condvar,
}

/// The checkpoint from which table and index were loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Loaded {
    /// It has all changes before this.
    pub(crate) taken: u64,
    /// Changes that were replayed after it.
    pub(crate) replayed_count: u64,
}

#[derive(Debug, Default)]
pub(super) struct Signal {
    pub(super) is_due: bool,
    pub(super) is_over: bool,
}

impl Checkpointing {
    /// Changes before `end` are durable and will now be applied to table and index.
    pub(crate) fn on_changing(&self, end: u64) {
        self.reached.store(end, Ordering::Relaxed); // A thread that sees a change has taken a lock after this store.
    }

    /// Table and index have `count` more changes, all before `changed`. At `limit` a checkpoint is due.
    pub(crate) fn on_changes(&self, changed: u64, count: u64, limit: u64) {
        self.changed.store(changed, Ordering::Release);
        if self.pending.fetch_add(count, Ordering::Relaxed) + count >= limit {
            self.signal();
        }
    }

    /// `count` records of the heap were moved. Only a new checkpoint frees their old places. At `limit` it is due.
    pub(crate) fn on_moves(&self, count: u64, limit: u64) {
        if count > 0 && self.pending.fetch_add(count, Ordering::Relaxed) + count >= limit {
            self.signal();
        }
    }

    /// Table and index of `device_count` devices were loaded and have all changes before `changed`. If no checkpoint was used
    /// and there are devices, a new one is due.
    pub(crate) fn on_loaded(&self, config: &StoreConfig, changed: u64, loaded: Option<Loaded>, device_count: u64) {
        let Loaded { taken, replayed_count } = loaded.unwrap_or_default();
        self.reached.store(changed, Ordering::Relaxed);
        self.changed.store(changed, Ordering::Release);
        self.taken.store(taken, Ordering::Relaxed);
        self.pending.store(replayed_count, Ordering::Relaxed);
        let is_missing = loaded.is_none() && device_count > 0;
        self.is_missing.store(is_missing, Ordering::Relaxed);
        self.rebuilt_count.fetch_add(u64::from(is_missing), Ordering::Relaxed);
        self.taken_at.store(unix_now().as_millis(), Ordering::Relaxed);
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

    /// One is written.
    pub(super) fn on_written(&self) {
        self.taken_count.fetch_add(1, Ordering::Relaxed);
        self.taken_at.store(unix_now().as_millis(), Ordering::Relaxed);
    }

    /// When the last one was written, or the store was opened.
    pub(crate) fn taken_at(&self) -> Timestamp {
        Timestamp(self.taken_at.load(Ordering::Relaxed))
    }

    /// Changes and moved records since the last checkpoint began.
    pub(crate) fn pending(&self) -> u64 {
        self.pending.load(Ordering::Relaxed)
    }

    /// Changes before this can be deleted.
    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    /// Cancels the current checkpoint. No other begins before the guard is dropped.
    pub(crate) fn interrupt(&self) -> MutexGuard<'_, ()> {
        self.is_interrupted.store(true, Ordering::Relaxed);
        let guard = lock(&self.busy);
        self.is_interrupted.store(false, Ordering::Relaxed);
        guard
    }

    /// Waits until a checkpoint is due; false when the thread has to end.
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

    /// Waits for `pause`, or until the thread has to end.
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
    mutex.lock().unwrap_or_else(PoisonError::into_inner) // Its content is valid after every step.
}
