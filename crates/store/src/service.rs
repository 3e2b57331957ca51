//! The handle of a store, and how a request gets to the committer.
//!
//! Each write is prepared in the caller's task (encoded, hashed) and put into its queue without waiting. The committer
//! answers over the request's own channel. A request that does not fit into its queue is refused at once. The methods
//! are in the folders of their subjects.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{oneshot, watch};

use crate::committer::draft::{Ack, Draft, Work};
use crate::engine::{Engine, EngineError};
use crate::error::{ReadError, WriteError};
use crate::log::{LogPosition, Role};
use crate::queue::{Class, Queue};
use crate::shared::Shared;

/// Handle to the store; cheap to clone. Dropping the last handle closes the store; [`Store::close`] also waits for that.
///
/// Writes wait for their acknowledgement. The future of a write may be dropped at any time: the write is then made or
/// not, and nothing says which. Reads answer at once, from memory or, where they say so, from the disk.
#[derive(Clone)]
pub struct Store {
    handle: Arc<Handle>,
}

struct Handle {
    shared: Arc<Shared>,
    queue: Arc<Queue<Work>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Counters since the store was opened. From `devices` on, the fields say what the store holds now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Batches written.
    pub batches: u64,
    /// Requests in them.
    pub commands: u64,
    /// Batches that could not be written, and requests that were refused because of a damaged row.
    pub failures: u64,
    /// Times the store was opened again after a failed batch.
    pub reopened: u64,
    /// Requests refused because a queue was full.
    pub overloaded: u64,
    /// Checkpoints of devices and audience index written.
    pub checkpoints: u64,
    /// Checkpoints that could not be written.
    pub checkpoints_failed: u64,
    /// Times the store was opened or opened again without a usable checkpoint, by reading all rows.
    pub rebuilt: u64,
    /// Devices deleted because they were not seen for longer than `idle_max`.
    pub expired: u64,
    /// Devices whose damaged record in the heap was written anew from the row.
    pub repaired: u64,
    /// Devices.
    pub devices: u64,
    /// Devices that are in memory as a whole, because the heap has no room for them or one of their names has no number.
    pub resident: u64,
    /// Bytes of the heap's files.
    pub heap_bytes: u64,
    /// Bytes of the living records in the heap's files.
    pub heap_live_bytes: u64,
    /// Bytes of the living records that are out of order, which makes reading slower. The store moves them.
    pub heap_scattered_bytes: u64,
    /// Subscriptions.
    pub subscriptions: u64,
    /// Devices whose token was accepted by its provider.
    pub proven: u64,
    /// Events that are accepted and not yet due.
    pub later: u64,
    /// Scopes that are paused.
    pub paused: u64,
    /// Jobs that are cancelled and whose row still exists.
    pub cancelled: u64,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>, queue: Arc<Queue<Work>>) -> Self {
        Self { handle: Arc::new(Handle { shared, queue }) }
    }

    /// Takes no more writes, writes all waiting requests, and waits until the folder is free.
    ///
    /// # Cancel safety
    /// Dropped: the store closes nevertheless. Another call waits for the end.
    pub async fn close(&self) {
        self.handle.queue.close();
        let mut ended = self.shared().ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await; // Its sender lives in `shared`, so this cannot fail.
    }

    /// What the store does with its log. Writes are refused while it follows.
    pub fn role(&self) -> watch::Receiver<Role> {
        self.shared().role.subscribe()
    }

    /// Tells a store with a log to lead as soon as it has read all of it, or to follow from now on. Writes that wait are
    /// made before, and new ones are refused. Returns at once; [`Store::role`] shows when it is done.
    ///
    /// Only one node should be told to lead. If another one is, it leads, and this store follows when it tries to write, until
    /// it is told again. Nothing that was acknowledged is lost.
    pub fn lead(&self, wants_to_lead: bool) {
        self.shared().wants_to_lead.send_replace(wants_to_lead);
        self.handle.queue.wake();
    }

    /// How far the store is in its log: its rows, its data in memory and its sink have all records up to this position.
    /// [`LogPosition::default`] if it has no log or nothing of it. Reads memory only, and does not wait.
    ///
    /// It is the position of a record, also while the store leads: a term that has begun does not count, because others do not
    /// have more rows for it. It grows, unless the disk fails: then it goes back to what the disk has.
    pub fn log_position(&self) -> LogPosition {
        *self.shared().log_position.borrow()
    }

    /// The counters of now.
    pub fn counts(&self) -> Counts {
        let shared = self.shared();
        let value = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Each lock is released before the next is taken (see `shared.rs`).
        let (devices, resident, proven, heap) = {
            let table = shared.table.read();
            (table.count(), table.resident_count(), table.proven_count(), table.heap_usage())
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
            resident,
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

    /// Whether the store takes writes: it is not closed, and the disk does not fail. Reads memory only.
    pub fn is_open(&self) -> bool {
        self.handle.queue.is_open()
    }

    /// The bytes of all requests that wait for the committer.
    pub fn waiting_bytes(&self) -> usize {
        Class::ALL.iter().map(|&class| self.waiting(class).1).sum()
    }

    /// The requests that wait for the committer in a queue, and their bytes.
    pub(crate) fn waiting(&self, class: Class) -> (usize, usize) {
        self.handle.queue.level(class)
    }

    /// A clone of it does not keep the store open.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.handle.shared
    }

    /// Has the committer do `work` in a batch that is synced before the answer. `weight` is the room that the request
    /// takes in its queue ([`weight`](crate::weight)).
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

    /// Like [`Store::write`] without the sync: a power failure may undo the write.
    pub(crate) async fn write_lazily<T: Send + 'static>(
        &self,
        class: Class,
        weight: usize,
        work: impl FnOnce(&mut Draft<'_>) -> Result<T, EngineError> + Send + 'static,
    ) -> Result<T, WriteError> {
        let (reply, answer) = oneshot::channel();
        let work: Work = Box::new(move |draft| {
            let value = work(draft)?;
            let ack: Ack = Box::new(move || drop(reply.send(value))); // A caller that has gone away needs no answer.
            Ok(ack)
        });
        self.handle.queue.push(class, work, weight).inspect_err(|error| {
            let overloaded = matches!(error, WriteError::Overloaded { .. });
            self.shared().counters.overloaded.fetch_add(u64::from(overloaded), Ordering::Relaxed);
        })?;
        answer.await.map_err(|_| WriteError::Unavailable)
    }

    pub(crate) fn with_engine<T>(&self, read: impl FnOnce(&Engine) -> Result<T, EngineError>) -> Result<T, ReadError> {
        let engine = self.shared().engine.read();
        Ok(read(engine.as_ref().ok_or(ReadError::Unavailable)?)?)
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("path", &self.shared().config.path).finish_non_exhaustive()
    }
}
