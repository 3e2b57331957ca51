//! The only writer: drains the queues, makes a batch, syncs it, applies it, calls the sink, acknowledges.
//!
//! ```text
//!           ┌────────────────────────────────────────────────────────────────┐
//!           ▼                                                                │
//!  drain ≤ 1 MiB ─► draft (rows, state, effects) ─► commit ─► apply ─► sink ─► acknowledge
//!                                                     │ error
//!                                                     ▼
//!         refuse all ─► close ─► back off until 4 MiB can be written ─► open, load ─► is the batch there? call sink ─► continue
//! ```
//!
//! If the requests of a drain change very much in memory, they become several batches. A draft reads its own rows before
//! the engine's, so requests of one batch see each other. Nothing outside changes before the batch is durable. So a
//! failed draft is dropped together with the callers' channels, which refuses the callers. A request that meets a
//! damaged row is removed from the draft and refused. The other requests of its batch are done, and the store is not
//! opened again, because the row would still be damaged.
//!
//! A store with a log (`log.rs`) appends each batch to it before the commit, or follows it (`follow.rs`).

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tidings_telemetry::chain;
use tidings_types::JournalPosition;
use tidings_types::Timestamp;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::draft::{Ack, Draft, Finished, Work};
use self::effect::Effect;
use self::load::{Derived, load};
use self::rounds::{Pace, Rounds};
use crate::checkpoint::Checkpointer;
use crate::engine::{self, Durability, Engine, EngineError, STATE_KEY, Table, probe};
use crate::folder::FolderLock;
use crate::log::{CommitLog, LOG_KEY, LogPosition, Role, position_row};
use crate::meta::State;
use crate::queue::{Drained, Queue};
use crate::rows;
use crate::shared::{Counters, Shared};
use crate::sink::CommitSink;
use crate::table::DeviceTable;

pub(crate) mod draft;
pub(crate) mod effect;
pub(crate) mod follow;
pub(crate) mod load;
mod rounds;
#[cfg(test)]
pub(crate) mod tests;

/// Bytes of requests in one batch, over the first request.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A log shorter than this is kept when the store closes: the next start reads it quickly.
const LOG_BYTES_MIN: u64 = if cfg!(test) { 1 } else { 1 << 20 };
/// Effects applied under one lock. So readers wait for a few hundred microseconds at most.
const APPLY_COUNT: usize = 1024;

pub(crate) struct Committer {
    shared: Arc<Shared>,
    queue: Arc<Queue<Work>>,
    sink: Arc<dyn CommitSink>,
    state: State,
    /// The latest `now` of any write. Publications and event ids expire by this time.
    now: Timestamp,
    rounds: Rounds,
    /// Held for as long as the store is open.
    lock: Option<FolderLock>,
    /// `None`: the store is alone.
    log: Option<Box<dyn CommitLog>>,
    /// How far the store is in the log.
    position: LogPosition,
    /// Whether the log has failed, and the log file says so already.
    is_log_failing: bool,
}

/// Why a batch is not made. Its callers are refused.
enum Failure {
    /// The disk failed. If a commit failed, with its batch.
    Disk(Option<Doubtful>),
    /// The log did not take it, so this store does not lead any more.
    Demoted,
}

/// What a batch is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Callers wait for it.
    Requests,
    Maintenance,
}

/// A batch whose commit failed. It may be durable nevertheless.
struct Doubtful {
    commit: u64,
    effects: Vec<Effect>,
}

impl Committer {
    pub(crate) fn new(
        shared: Arc<Shared>,
        queue: Arc<Queue<Work>>,
        sink: Arc<dyn CommitSink>,
        state: State,
        lock: FolderLock,
        log: Option<Box<dyn CommitLog>>,
    ) -> Self {
        let (now, rounds, position) = (Timestamp::default(), Rounds::new(Instant::now()), LogPosition::default());
        Self { shared, queue, sink, state, now, rounds, lock: Some(lock), log, position, is_log_failing: false }
    }

    /// Runs until the queue is closed and empty. Then writes a last checkpoint and empties the log.
    pub(crate) fn run(mut self) {
        let checkpointer = Checkpointer::start(self.shared.clone());
        if self.serve() == Reopened::Open {
            checkpointer.finish();
            if let Err(error) = self.empty_log() {
                warn!(error = chain(&error), "The log could not be emptied; the next start reads it");
            }
        }
    }

    /// Writes all rows into the files of their tables and empties the log. Reading a long log at the next start would
    /// take seconds.
    fn empty_log(&self) -> Result<(), EngineError> {
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
        engine::empty_log(folder)
    }

    /// Runs until the queue is closed and empty. Returns whether the store is open at the end.
    fn serve(&mut self) -> Reopened {
        if self.log.is_some() && self.recover(Failure::Demoted) == Reopened::Closed {
            return Reopened::Closed;
        }
        loop {
            let (role, wants_to_lead) = (*self.shared.role.borrow(), *self.shared.wants_to_lead.borrow());
            let done = match role {
                Role::Following | Role::Lost if self.queue.wait_closed(Duration::ZERO) => return Reopened::Open,
                Role::Following | Role::Lost => self.follow(),
                Role::Leading if !wants_to_lead => self.commit_waiting().and(Err(Failure::Demoted)),
                Role::Leading | Role::Alone => match self.take_turn() {
                    Some(done) => done,
                    None => return Reopened::Open,
                },
            };
            if let Err(failure) = done
                && self.recover(failure) == Reopened::Closed
            {
                return Reopened::Closed;
            }
        }
    }

    /// Makes batches of what waits, and the maintenance that is due. `None` when the queue is closed and empty.
    fn take_turn(&mut self) -> Option<Result<(), Failure>> {
        let timeout = self.rounds.next().saturating_duration_since(Instant::now());
        let done = match self.queue.drain(BATCH_BYTES_MAX, timeout) {
            Drained::Closed => return None,
            Drained::Requests(requests) if requests.is_empty() => Ok(()),
            Drained::Requests(requests) => self.commit(requests),
        };
        if done.is_ok() && Instant::now() >= self.rounds.next() {
            self.shared.backup.clear_idle();
            return Some(self.maintain());
        }
        Some(done)
    }

    /// Makes batches of what waits. New requests are refused.
    fn commit_waiting(&mut self) -> Result<(), Failure> {
        self.queue.refuse();
        loop {
            match self.queue.drain(BATCH_BYTES_MAX, Duration::ZERO) {
                Drained::Requests(requests) if !requests.is_empty() => self.commit(requests)?,
                Drained::Requests(_) | Drained::Closed => return Ok(()),
            }
        }
    }

    /// Opens the store again if the disk failed. Then a store with a log follows it.
    fn recover(&mut self, mut failure: Failure) -> Reopened {
        if self.log.is_some() {
            self.shared.role.send_replace(Role::Following);
        }
        loop {
            if let Failure::Disk(doubtful) = failure
                && self.reopen(doubtful) == Reopened::Closed
            {
                return Reopened::Closed;
            }
            if self.log.is_none() {
                self.queue.resume();
                return Reopened::Open;
            }
            match self.begin_to_follow() {
                Ok(()) => return Reopened::Open,
                Err(next) => failure = next,
            }
        }
    }

    fn commit(&mut self, requests: Vec<Work>) -> Result<(), Failure> {
        let mut requests = requests.into_iter();
        while requests.len() > 0 {
            let waiting = requests.len();
            let mut acks: Vec<Ack> = Vec::with_capacity(waiting);
            // An error drops `acks` and the remaining requests. So their callers are refused before the store is opened
            // again.
            self.write(Kind::Requests, |draft| {
                for work in requests.by_ref() {
                    acks.extend(draft.attempt(work)?); // A request that meets a damaged row has none: it is refused.
                    if draft.is_full() {
                        break;
                    }
                }
                Ok(())
            })?;
            self.shared.counters.commands.fetch_add((waiting - requests.len()) as u64, Ordering::Relaxed);
            acks.into_iter().for_each(|ack| ack());
        }
        Ok(())
    }

    /// Does the maintenance that is due and changes no rows: the only one of a follower.
    fn tend(&mut self) -> Result<(), Failure> {
        if Instant::now() < self.rounds.next_tending() {
            return Ok(());
        }
        self.shared.backup.clear_idle();
        let mut rounds = mem::replace(&mut self.rounds, Rounds::new(Instant::now()));
        self.write(Kind::Maintenance, |draft| rounds.tend(draft, Instant::now()))?;
        self.rounds = rounds;
        Ok(())
    }

    /// Does the maintenance that is due. It reads the clock, so that mutes and idle devices also end when there are no
    /// writes.
    fn maintain(&mut self) -> Result<(), Failure> {
        let trim_to = JournalPosition(self.shared.trim_to.load(Ordering::Relaxed));
        let pace = Pace { has_log: self.log.is_some(), is_waited_for: !self.queue.is_empty() };
        // After an error all rounds begin anew.
        let mut rounds = mem::replace(&mut self.rounds, Rounds::new(Instant::now()));
        self.write(Kind::Maintenance, |draft| {
            draft.now = draft.now.max((draft.shared.config.clock)());
            rounds.run(draft, trim_to, (Instant::now(), pace))
        })?;
        self.shared.counters.expired.fetch_add(rounds.take_expired(), Ordering::Relaxed);
        self.rounds = rounds;
        Ok(())
    }

    /// Fills a draft, makes it durable, applies it to memory and calls the sink, in this order.
    fn write(
        &mut self,
        kind: Kind,
        fill: impl FnOnce(&mut Draft<'_>) -> Result<(), EngineError>,
    ) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let engine = shared.engine.read();
        let engine =
            engine.as_ref().expect("only `reopen` removes the engine, and it sets a new one or ends this loop");
        let mut draft = Draft::new(engine, &shared, self.state, self.now);
        fill(&mut draft).map_err(|error| self.refuse(&error))?;
        let mut batch = draft.finish();
        self.now = batch.now;
        if batch.rows.is_empty() && kind == Kind::Requests && self.log.is_some() {
            // The answers rest on what this store has. Only the log knows whether another node leads by now.
            batch.rows.put(Table::Meta, STATE_KEY, rows::encode(&batch.state));
        }
        if batch.rows.is_empty() {
            return Ok(());
        }
        self.reserve(&batch.effects)?;
        if self.log.is_some() {
            self.append(&batch.rows, &batch.effects)?;
            batch.durability = Durability::Handed; // The log has it.
        }
        self.land(engine, batch)
    }

    /// Reserves what the device table needs for these effects.
    fn reserve(&self, effects: &[Effect]) -> Result<(), Failure> {
        let room: u64 = effects.iter().map(Effect::table_room).sum();
        let reserved = if room > 0 { DeviceTable::reserve(&self.shared.table, room) } else { Ok(()) };
        reserved.map_err(|error| self.refuse(&error.into()))
    }

    /// Commits a batch, applies it to memory and calls the sink, in this order.
    fn land(&mut self, engine: &Engine, batch: Finished) -> Result<(), Failure> {
        let Finished { mut rows, durability, state, effects, change_count, .. } = batch;
        if self.log.is_some() {
            rows.put(Table::Meta, LOG_KEY, position_row(self.position));
        }
        let shared = self.shared.clone();
        let began = Instant::now();
        if let Err(error) = engine.commit(rows, durability) {
            self.refuse(&error);
            return Err(Failure::Disk(Some(Doubtful { commit: state.commit, effects })));
        }
        let Counters { synced, handed, .. } = &self.shared.counters;
        let timed = if durability == Durability::Synced { synced } else { handed };
        timed.record(began.elapsed());
        if durability == Durability::Synced {
            engine.acknowledge(state.commit);
        }
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        shared.checkpoint.on_changing(state.change_end);
        effects.chunks(APPLY_COUNT).for_each(|chunk| self.apply(chunk));
        let limit = shared.config.checkpoint_change_count;
        shared.checkpoint.on_changes(state.change_end, change_count, limit);
        self.tell(&effects, state);
        shared.log_position.send_replace(self.position);
        Ok(())
    }

    /// Refuses every caller until the store has been opened again.
    fn refuse(&self, error: &EngineError) -> Failure {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.queue.suspend();
        error!(error = chain(error), "Store cannot write");
        Failure::Disk(None)
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
        // Before the sink is told: a reader that begins too late for the sink's call finds the floor here.
        self.shared.channel_floor.store(state.channel_floor.0, Ordering::Relaxed);
        for effect in effects {
            match effect {
                Effect::Published { channel, position, publication } => {
                    self.sink.on_publication(&channel.name, *position, publication, channel);
                }
                Effect::HistoryRemoved { channel, until } => self.sink.on_history_removed(channel, *until),
                Effect::ChannelForgotten { channel, floor } => self.sink.on_channel_forgotten(channel, *floor),
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
        self.shared.journal_events.store(state.journal_events(), Ordering::Relaxed);
        self.shared.journal_bytes.store(state.journal_bytes, Ordering::Relaxed);
        self.state = state;
        if grown {
            self.shared.journal_end.send_replace(end);
            self.sink.on_events(end);
        }
    }

    /// Closes the engine and opens it again when the disk takes writes. The rows that are then on the disk count.
    fn reopen(&mut self, doubtful: Option<Doubtful>) -> Reopened {
        let shared = self.shared.clone();
        // No checkpoint is written meanwhile: its file is read here, and the table and index are replaced.
        let _no_checkpoint = shared.checkpoint.interrupt();
        let mut pause = self.shared.config.reopen_backoff_min;
        let (engine, state, derived) = loop {
            if self.queue.wait_closed(pause) {
                return Reopened::Closed;
            }
            // Until the disk takes writes again, the old engine answers reads.
            let opened = probe(&self.shared.config.path).and_then(|()| {
                let broken = self.shared.engine.write().take();
                drop(broken);
                self.shared.backup.clear(); // A running backup keeps the folder locked.
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
        // The old ones are dropped after the locks are released.
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
        Reopened::Open
    }

    fn try_open(&self) -> Result<(Engine, State, Derived), EngineError> {
        let config = &self.shared.config;
        let engine = Engine::open_again(&config.path, config.cache_bytes)?;
        let engine = engine.counting_on(self.shared.counters.scans.clone());
        let (state, derived) = load(&engine, &config.path)?;
        if state.epoch != self.shared.epoch {
            return Err(EngineError::replaced());
        }
        Ok((engine, state, derived))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reopened {
    Open,
    /// The store was closed while it was not open.
    Closed,
}

impl Drop for Committer {
    // Also runs when this thread panics, so that no caller waits for ever.
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
