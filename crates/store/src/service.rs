//! The handle of a store, and how a request gets to the committer.
//!
//! Each write is prepared in the caller's task (encoded, hashed) and put into its queue without waiting. The committer
//! answers it over a channel of its own. A request that cannot be queued is refused at once. What can be asked is in the
//! folders of the subjects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::oneshot;

use crate::committer::draft::Draft;
use crate::engine::{Engine, EngineError};
use crate::error::{ReadError, WriteError};
use crate::message::answer;
use crate::message::{Command, Reply};
use crate::queue::{Class, Queue};
use crate::shared::Shared;

/// Handle to the store; cheap to clone. With the last one the store closes on its own; [`Store::close`] also waits for it.
///
/// Writes wait for their acknowledgement. Their futures may be dropped at any time: what was asked is then done
/// or not, and nobody is told. Reads answer at once, from memory or, where they say so, from the disk.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// What the store has done since it was opened, which only grows; and from `devices` on, what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Batches written.
    pub batches: u64,
    /// Requests in them.
    pub commands: u64,
    /// Batches the disk refused.
    pub failures: u64,
    /// Times the store was opened again after that.
    pub reopened: u64,
    /// Requests refused because a queue was full.
    pub overloaded: u64,
    /// Checkpoints of devices and audience index written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub checkpoints_failed: u64,
    /// Times, of opening and opening again, that no checkpoint could be used, and all rows were read.
    pub rebuilt: u64,
    /// Devices deleted because nobody had seen them for longer than `idle_max`.
    pub expired: u64,
    /// Devices whose record in the heap was damaged, written anew from their rows.
    pub repaired: u64,
    /// Devices known.
    pub devices: u64,
    /// Bytes of the heap's files, and of what lives in them.
    pub heap_bytes: u64,
    /// See `heap_bytes`.
    pub heap_live_bytes: u64,
    /// Of these, of devices whose records are out of order, so that handing them out takes longer. They are moved.
    pub heap_scattered_bytes: u64,
    /// Subscriptions known.
    pub subscriptions: u64,
    /// Devices whose token was accepted by its provider.
    pub proven: u64,
    /// Events accepted and not yet due.
    pub later: u64,
    /// Scopes that are paused.
    pub paused: u64,
    /// Jobs that are cancelled and not forgotten.
    pub cancelled: u64,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<Queue>) -> Self {
        Self { handle: Arc::new(Handle { shared, queue }) }
    }

    /// Takes no more writes, writes what waits, and waits until the folder is free.
    ///
    /// # Cancel safety
    /// Dropped: the store closes nevertheless; calling it again waits for that.
    pub async fn close(&self) {
        self.handle.queue.close();
        let mut ended = self.shared().ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await; // The sender of this lives in `shared`.
    }

    /// What the store has done so far.
    pub fn counts(&self) -> Counts {
        let shared = self.shared();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Each lock is let go before the next: who reads twice waits for a writer who waits for him.
        let (devices, proven, heap) = {
            let table = shared.table.read();
            (table.count(), table.proven_count(), table.heap_usage())
        };
        let subscriptions = shared.index.read().subscription_count();
        let (paused, cancelled) = {
            let brakes = shared.brakes.borrow();
            (brakes.paused.len() as u64, brakes.cancelled.len() as u64)
        };
        Counts {
            batches: value(&shared.counters.batches),
            commands: value(&shared.counters.commands),
            failures: value(&shared.counters.failures),
            reopened: value(&shared.counters.reopened),
            overloaded: value(&shared.counters.overloaded),
            checkpoints: value(&shared.checkpoint.taken_count),
            checkpoints_failed: value(&shared.checkpoint.failed_count),
            rebuilt: value(&shared.checkpoint.rebuilt_count),
            expired: value(&shared.counters.expired),
            repaired: value(&shared.counters.repaired),
            devices,
            heap_bytes: heap.disk_bytes,
            heap_live_bytes: heap.live_bytes,
            heap_scattered_bytes: heap.scattered_bytes,
            subscriptions,
            proven,
            later: value(&shared.later_count),
            paused,
            cancelled,
        }
    }

    /// Whether it takes writes: neither closed, nor waiting for a disk that takes them again. Asks memory only.
    pub fn is_open(&self) -> bool {
        self.handle.queue.is_open()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.handle.shared
    }

    /// For what goes on without keeping the store open.
    pub(crate) fn shared_arc(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Has the committer do `work` in a batch that is synced before the answer; what it weighs says how much room it takes in
    /// its queue ([`weight`]).
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        class: Class,
        weight: usize,
        work: impl FnOnce(&mut Draft<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let synced = move |draft: &mut Draft<'_>| {
            draft.synced = true;
            work(draft)
        };
        self.write_lazily(class, weight, synced).await
    }

    /// The same, but a power failure may take what is done.
    pub(crate) async fn write_lazily<T: Send + 'static>(
        &self,
        class: Class,
        weight: usize,
        work: impl FnOnce(&mut Draft<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, WriteError> {
        self.ask(class, weight, |reply| Command::Write(Box::new(move |draft| Ok(answer(reply, work(draft)?))))).await
    }

    pub(crate) fn with_engine<T>(&self, read: impl FnOnce(&Engine) -> Result<T, EngineError>) -> Result<T, ReadError> {
        let engine = self.shared().engine.read();
        Ok(read(engine.as_ref().ok_or(ReadError::Unavailable)?)?)
    }

    pub(crate) async fn ask<T>(
        &self,
        class: Class,
        bytes: usize,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, WriteError> {
        let (reply, answer) = oneshot::channel();
        self.handle.queue.push(class, command(reply), bytes).inspect_err(|error| {
            let overloaded = matches!(error, WriteError::Overloaded { .. });
            self.shared().counters.overloaded.fetch_add(u64::from(overloaded), Ordering::Relaxed);
        })?;
        answer.await.map_err(|_| WriteError::Unavailable)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.shared().config.path).finish_non_exhaustive()
    }
}
