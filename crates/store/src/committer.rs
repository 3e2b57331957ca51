//! The one writer: drains the queues, makes a batch, syncs it, applies it, tells the sink, acknowledges.
//!
//! ```text
//!           ┌────────────────────────────────────────────────────────────────┐
//!           ▼                                                                │
//!  drain ≤ 1 MiB ─► draft (rows, state, effects) ─► commit ─► apply ─► sink ─► acknowledge
//!                                                     │ error
//!                                                     ▼
//!             refuse all ─► close ─► back off until 4 MiB can be written ─► open, load ─► is the batch there? tell sink ─► go on
//! ```
//!
//! If its requests change very much in memory, a drain becomes more than one batch. A draft reads its own rows before
//! the engine's, so requests of one batch see each other. Nothing outside changes before the batch is durable. So a
//! failed draft is dropped together with the callers' channels, which refuses the callers. A request that meets a
//! damaged row is removed from the draft and refused. The other requests of its batch are done, and the store is not
//! opened again, because the row would still be damaged.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tidings_telemetry::chain;
use tidings_types::JournalPosition;
use tidings_types::Timestamp;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::draft::{Draft, Finished};
use self::effect::Effect;
use self::load::{Derived, load};
use self::rounds::Rounds;
use crate::checkpoint::Checkpointer;
use crate::engine::{self, Durability, Engine, EngineError, probe};
use crate::folder::FolderLock;
use crate::message::{Ack, Command};
use crate::meta::State;
use crate::queue::{Drained, Queue};
use crate::shared::Shared;
use crate::sink::CommitSink;
use crate::table::DeviceTable;

pub(crate) mod draft;
pub(crate) mod effect;
pub(crate) mod load;
mod rounds;
#[cfg(test)]
mod tests;

/// Bytes of requests in one batch, over the first request.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A shorter log is read quickly enough.
const LOG_BYTES_MIN: u64 = if cfg!(test) { 1 } else { 1 << 20 };
/// Effects applied under one lock, so that readers wait for a few hundred microseconds at most.
const APPLY_COUNT: usize = 1024;

pub(crate) struct Committer {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    sink: Arc<dyn CommitSink>,
    state: State,
    /// The latest `now` of a write: what expires, expires by this.
    now: Timestamp,
    rounds: Rounds,
    /// Held for as long as the store is open.
    lock: Option<FolderLock>,
}

/// The disk refused: reading, or writing this.
struct Failure(Option<Doubtful>);

/// A batch whose commit failed: perhaps it is durable nevertheless.
struct Doubtful {
    commit: u64,
    effects: Vec<Effect>,
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue>,
        sink: Arc<dyn CommitSink>,
        state: State,
        lock: FolderLock,
    ) -> Self {
        let rounds = Rounds::new(Instant::now());
        Self { shared, queue, sink, state, now: Timestamp::default(), rounds, lock: Some(lock) }
    }

    /// Runs until the queue is closed and empty, and leaves a checkpoint of the end and little of a log.
    pub(crate) fn run(mut self) {
        let checkpointer = Checkpointer::start(self.shared.clone());
        if self.serve() == Reopened::Open {
            checkpointer.finish();
            if let Err(error) = self.settle() {
                warn!(error = chain(&error), "The log stays as it is, and is read at the next start");
            }
        }
    }

    /// Writes all rows into files: reading a long log at the next start would take seconds.
    fn settle(&self) -> Result<(), EngineError> {
        let folder = &self.shared.config.path;
        if engine::log_bytes(folder)? < LOG_BYTES_MIN {
            return Ok(());
        }
        let flushed = self.shared.engine.read().as_ref().map(Engine::flush_all).transpose()?;
        if flushed != Some(true) {
            return Ok(());
        }
        *self.shared.engine.write() = None;
        self.shared.backup.clear();
        engine::forget_log(folder)
    }

    /// Runs until the queue is closed and empty; whether the store is open then.
    fn serve(&mut self) -> Reopened {
        loop {
            let timeout = self.rounds.next().saturating_duration_since(Instant::now());
            match self.queue.drain(BATCH_BYTES_MAX, timeout) {
                Drained::Closed => return Reopened::Open,
                Drained::Commands(commands) if commands.is_empty() => {}
                Drained::Commands(commands) => {
                    if let Err(Failure(doubtful)) = self.commit(commands)
                        && self.reopen(doubtful) == Reopened::Closed
                    {
                        return Reopened::Closed;
                    }
                }
            }
            if Instant::now() >= self.rounds.next() {
                self.shared.backup.clear_idle();
                if let Err(Failure(doubtful)) = self.maintain()
                    && self.reopen(doubtful) == Reopened::Closed
                {
                    return Reopened::Closed;
                }
            }
        }
    }

    fn commit(&mut self, commands: Vec<Command>) -> Result<(), Failure> {
        let mut commands = commands.into_iter();
        while commands.len() > 0 {
            let waiting = commands.len();
            let mut acks: Vec<Ack> = Vec::with_capacity(waiting);
            // On an error `acks` and the other commands are dropped on the way out, which refuses the callers before the
            // store is opened again.
            self.write(|draft| {
                for command in commands.by_ref() {
                    acks.extend(draft.attempt(|draft| command.perform(draft))?); // Without one its caller is refused.
                    if draft.is_full() {
                        break;
                    }
                }
                Ok(())
            })?;
            self.shared.counters.commands.fetch_add((waiting - commands.len()) as u64, Ordering::Relaxed);
            acks.into_iter().for_each(|ack| ack());
        }
        Ok(())
    }

    /// Looks for old rows, wherever it is time to. Here alone the clock is read: what ends by itself does so also when
    /// nobody writes.
    fn maintain(&mut self) -> Result<(), Failure> {
        let trim_to = JournalPosition(self.shared.trim_to.load(Ordering::Relaxed));
        // After an error all begins anew.
        let mut rounds = std::mem::replace(&mut self.rounds, Rounds::new(Instant::now()));
        self.write(|draft| {
            draft.now = draft.now.max((draft.shared.config.clock)());
            rounds.look(draft, trim_to, Instant::now())
        })?;
        self.shared.counters.expired.fetch_add(rounds.take_expired(), Ordering::Relaxed);
        self.rounds = rounds;
        Ok(())
    }

    /// Fills a draft and makes it durable, visible and known, in this order.
    fn write(&mut self, fill: impl FnOnce(&mut Draft<'_>) -> Result<(), EngineError>) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let engine = shared.engine.read();
        let engine =
            engine.as_ref().expect("only reopen takes the engine away, and it ends this committer or puts one back");
        let mut draft = Draft::new(engine, &shared, self.state, self.now);
        if let Err(error) = fill(&mut draft) {
            self.refuse(&error);
            return Err(Failure(None));
        }
        let Finished { rows, durability, state, now, effects, change_count } = draft.finish();
        self.now = now;
        if rows.is_empty() {
            return Ok(());
        }
        let room: u64 = effects.iter().map(Effect::table_room).sum();
        let reserved = if room > 0 { DeviceTable::reserve(&shared.table, room) } else { Ok(()) };
        if let Err(error) = reserved {
            self.refuse(&error.into());
            return Err(Failure(None));
        }
        if let Err(error) = engine.commit(rows, durability) {
            self.refuse(&error);
            return Err(Failure(Some(Doubtful { commit: state.commit, effects })));
        }
        if durability == Durability::Synced {
            engine.acknowledge(state.commit);
        }
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        shared.checkpoint.on_changing(state.change_end);
        effects.chunks(APPLY_COUNT).for_each(|chunk| self.apply(chunk));
        let limit = shared.config.checkpoint_change_count;
        shared.checkpoint.on_changes(state.change_end, change_count, limit);
        self.tell(&effects, state);
        Ok(())
    }

    /// From here on every caller is refused, until the store has been opened again.
    fn refuse(&self, error: &EngineError) {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.queue.suspend();
        error!(error = chain(error), "Store cannot write");
    }

    fn apply(&self, effects: &[Effect]) {
        let mut table = self.shared.table.write();
        for effect in effects {
            effect.apply_to_table(&mut table);
        }
        table.flush();
        drop(table);
        let mut index = self.shared.index.write();
        for effect in effects {
            effect.apply_to_index(&mut index);
        }
        drop(index);
        for effect in effects {
            if let Effect::Braked(brakes) = effect {
                self.shared.brakes.send_replace(brakes.clone());
            }
        }
    }

    fn tell(&mut self, effects: &[Effect], state: State) {
        for effect in effects {
            match effect {
                Effect::Published { channel, position, publication } => {
                    self.sink.on_publication(&channel.name, *position, publication, channel);
                }
                Effect::GivenBack { channel, floor } => self.sink.on_channel_given_back(channel, *floor),
                Effect::DeviceRemoved { number, .. } => self.sink.on_device_removed(*number),
                _ => {}
            }
        }
        let end = JournalPosition(state.journal_end);
        let grown = state.journal_end > self.state.journal_end;
        if state.later_first != self.state.later_first {
            self.shared.next_later.send_replace(state.later_first.map(|first| first.at));
        }
        self.shared.later_count.store(state.later_count, Ordering::Relaxed);
        self.state = state;
        if grown {
            self.shared.journal_end.send_replace(end);
            self.sink.on_events(end);
        }
    }

    /// Closes the engine and opens it again as soon as the disk takes writes; what is durable then is the truth.
    fn reopen(&mut self, doubtful: Option<Doubtful>) -> Reopened {
        let shared = self.shared.clone();
        let _no_checkpoint = shared.checkpoint.interrupt(); // Its file is read, and what it would be of is replaced.
        let mut pause = self.shared.config.reopen_backoff_min;
        let (engine, state, derived) = loop {
            if self.queue.wait_closed(pause) {
                return Reopened::Closed;
            }
            // Until the disk takes writes again, the old engine answers what is read.
            let opened = probe(&self.shared.config.path).and_then(|()| {
                let broken = self.shared.engine.write().take();
                drop(broken);
                self.shared.backup.clear(); // It holds the folder.
                self.try_open()
            });
            match opened {
                Ok(opened) => break opened,
                Err(error) => {
                    self.shared.counters.not_reopened.fetch_add(1, Ordering::Relaxed);
                    warn!(error = chain(&error), retry_in = ?pause, "Store cannot be opened again");
                }
            }
            pause = (pause * 2).min(self.shared.config.reopen_backoff_max);
        };
        shared.checkpoint.on_loaded(&shared.config, state.change_end, derived.checkpoint, derived.table.count());
        // The old ones go when the locks are free again.
        let old_table = mem::replace(&mut *self.shared.table.write(), derived.table);
        let old_index = mem::replace(&mut *self.shared.index.write(), derived.index);
        drop((old_table, old_index));
        *self.shared.blocks.lock().unwrap_or_else(PoisonError::into_inner) = derived.blocks;
        self.shared.brakes.send_if_modified(|brakes| {
            let is_other = **brakes != derived.brakes;
            if is_other {
                *brakes = Arc::new(derived.brakes);
            }
            is_other
        });
        *self.shared.engine.write() = Some(engine);
        let effects = doubtful.filter(|doubtful| doubtful.commit == state.commit).map_or(Vec::new(), |it| it.effects);
        info!(durable = !effects.is_empty(), "Store opened again");
        self.tell(&effects, state);
        self.shared.counters.reopened.fetch_add(1, Ordering::Relaxed);
        self.queue.resume();
        Reopened::Open
    }

    fn try_open(&self) -> Result<(Engine, State, Derived), EngineError> {
        let config = &self.shared.config;
        let engine = Engine::open_again(&config.path, config.cache_bytes)?;
        let (state, derived) = load(&engine, &config.path)?;
        if state.epoch != self.shared.channel_start.epoch {
            return Err(EngineError::replaced());
        }
        Ok((engine, state, derived))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reopened {
    Open,
    /// The store was closed meanwhile.
    Closed,
}

impl Drop for Committer {
    // Also when a bug makes this thread panic: nobody may wait for an answer for ever.
    fn drop(&mut self) {
        self.queue.close();
        self.queue.suspend();
        *self.shared.engine.write() = None;
        self.shared.backup.clear();
        self.lock = None;
        self.shared.ended.send_replace(true);
        info!("Store closed");
    }
}
