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
//! A draft reads its own rows before the engine's, so requests of one batch see each other. Nothing outside changes
//! before the batch is durable, so a failed draft is simply dropped; the callers' channels with it, which refuses
//! them. A request that meets a damaged row is taken back out of the draft and refused, and that is all: the others of
//! its batch are done, and opening again would find the row as it is.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidings_audience::Index;
use tidings_types::JournalPosition;
use tidings_types::Timestamp;
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::draft::{Ack, Draft, Effect};
use crate::brakes::Brakes;
use crate::engine::{Engine, EngineError, probe};
use crate::event::CommitSink;
use crate::message::Command;
use crate::queue::Drained;
use crate::rows::State;
use crate::service::{Shared, read_lock, write_lock};
use crate::table::DeviceTable;

mod brakes;
mod devices;
mod draft;
mod journal;
mod later;
mod load;
mod maintain;
mod proven;
#[cfg(test)]
mod tests;

pub(crate) use self::load::load;

/// Bytes of requests in one batch, over the first request.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// How often old rows are looked for when nothing else happens, and when there were more than one look takes.
const MAINTENANCE_IDLE: Duration = Duration::from_millis(250);
const MAINTENANCE_BUSY: Duration = Duration::from_millis(20);
/// How long old rows are let be after a damaged one was met among them.
const MAINTENANCE_DAMAGED: Duration = Duration::from_secs(60);
/// Effects applied under one lock, so that readers wait for a few hundred microseconds at most.
const APPLY_COUNT: usize = 1024;

/// What is in memory only to be quick, and made from the rows at open.
pub(crate) struct Derived {
    pub(crate) table: DeviceTable,
    pub(crate) index: Index,
    pub(crate) brakes: Brakes,
}

pub(crate) struct Committer {
    shared: Arc<Shared>,
    sink: Arc<dyn CommitSink>,
    state: State,
    /// The latest `now` of a write: what expires, expires by this.
    now: Timestamp,
    next_maintenance: Instant,
    /// Where the search for expired publications goes on.
    channel_cursor: Vec<u8>,
    /// Held for as long as the store is open.
    lock: Option<File>,
}

/// The disk refused: reading, or writing this.
struct Failure(Option<Doubtful>);

/// What a look for old rows found.
enum Look {
    /// No more, for now.
    Done,
    /// More than one look takes.
    More,
    /// A damaged row that it cannot pass.
    Damaged,
}

/// A batch whose commit failed: perhaps it is durable nevertheless.
struct Doubtful {
    commit: u64,
    effects: Vec<Effect>,
}

impl Committer {
    pub(crate) fn new(shared: Arc<Shared>, sink: Arc<dyn CommitSink>, state: State, lock: File) -> Self {
        let (now, next_maintenance) = (Timestamp::default(), Instant::now() + MAINTENANCE_IDLE);
        Self { shared, sink, state, now, next_maintenance, channel_cursor: Vec::new(), lock: Some(lock) }
    }

    /// Runs until the queue is closed and empty.
    pub(crate) fn run(mut self) {
        loop {
            let timeout = self.next_maintenance.saturating_duration_since(Instant::now());
            match self.shared.queue.drain(BATCH_BYTES_MAX, timeout) {
                Drained::Closed => return,
                Drained::Commands(commands) if commands.is_empty() => {}
                Drained::Commands(commands) => {
                    if let Err(Failure(doubtful)) = self.commit(commands)
                        && self.reopen(doubtful) == Reopened::Closed
                    {
                        return;
                    }
                }
            }
            if Instant::now() >= self.next_maintenance {
                let pause = match self.maintain() {
                    Ok(Look::More) => MAINTENANCE_BUSY,
                    Ok(Look::Done) => MAINTENANCE_IDLE,
                    Ok(Look::Damaged) => MAINTENANCE_DAMAGED,
                    Err(Failure(doubtful)) => match self.reopen(doubtful) {
                        Reopened::Closed => return,
                        Reopened::Open => MAINTENANCE_IDLE,
                    },
                };
                self.next_maintenance = Instant::now() + pause;
            }
        }
    }

    fn commit(&mut self, commands: Vec<Command>) -> Result<(), Failure> {
        let count = commands.len() as u64;
        let mut acks: Vec<Ack> = Vec::with_capacity(commands.len());
        // On an error `acks` is dropped on the way out, which refuses the callers before the store is opened again.
        self.write(|draft| {
            for command in commands {
                acks.extend(draft.handle(command)?); // Without one its caller is refused.
            }
            Ok(())
        })?;
        self.shared.counters.commands.fetch_add(count, Ordering::Relaxed);
        acks.into_iter().for_each(|ack| ack());
        Ok(())
    }

    /// Looks for old rows.
    fn maintain(&mut self) -> Result<Look, Failure> {
        let trim_to = JournalPosition(self.shared.trim_to.load(Ordering::Relaxed));
        let mut cursor = std::mem::take(&mut self.channel_cursor);
        let mut looks = [None; 2];
        self.write(|draft| {
            // Each for itself: a damaged channel is no reason to keep all events.
            looks[0] = draft.attempt(|draft| draft.trim_journal(trim_to))?;
            looks[1] = draft.attempt(|draft| draft.trim_channels(&mut cursor))?;
            Ok(())
        })?;
        self.channel_cursor = cursor;
        Ok(match looks {
            [Some(true), _] | [_, Some(true)] => Look::More,
            [Some(false), Some(false)] => Look::Done,
            _ => Look::Damaged,
        })
    }

    /// Fills a draft and makes it durable, visible and known, in this order.
    fn write(&mut self, fill: impl FnOnce(&mut Draft<'_>) -> Result<(), EngineError>) -> Result<(), Failure> {
        let shared = self.shared.clone();
        let engine = read_lock(&shared.engine);
        let engine =
            engine.as_ref().expect("only reopen takes the engine away, and it ends this committer or puts one back");
        let mut draft = Draft::new(engine, &shared, self.state, self.now);
        if let Err(error) = fill(&mut draft) {
            self.refuse(&error);
            return Err(Failure(None));
        }
        let (rows, durability, state, now, effects) = draft.finish();
        self.now = now;
        if rows.is_empty() {
            return Ok(());
        }
        if let Err(error) = engine.commit(rows, durability) {
            self.refuse(&error);
            return Err(Failure(Some(Doubtful { commit: state.commit, effects })));
        }
        self.shared.counters.batches.fetch_add(1, Ordering::Relaxed);
        effects.chunks(APPLY_COUNT).for_each(|chunk| self.apply(chunk));
        self.tell(&effects, state);
        Ok(())
    }

    /// From here on every caller is refused, until the store has been opened again.
    fn refuse(&self, error: &EngineError) {
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.suspend();
        error!(error = %chain(error), "Store cannot write");
    }

    fn apply(&self, effects: &[Effect]) {
        let mut table = write_lock(&self.shared.table);
        for effect in effects {
            effect.apply_to_table(&mut table);
        }
        drop(table);
        let mut index = write_lock(&self.shared.index);
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
            if let Effect::Published { channel, position, publication } = effect {
                self.sink.on_publication(&channel.name, *position, publication, channel);
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
        *write_lock(&self.shared.engine) = None;
        let mut pause = self.shared.config.reopen_backoff_min;
        let (engine, state, derived) = loop {
            if self.shared.queue.wait_closed(pause) {
                return Reopened::Closed;
            }
            match self.try_open() {
                Ok(opened) => break opened,
                Err(error) => {
                    self.shared.counters.not_reopened.fetch_add(1, Ordering::Relaxed);
                    warn!(error = %chain(&error), retry_in = ?pause, "Store cannot be opened again");
                }
            }
            pause = (pause * 2).min(self.shared.config.reopen_backoff_max);
        };
        *write_lock(&self.shared.table) = derived.table;
        *write_lock(&self.shared.index) = derived.index;
        self.shared.brakes.send_if_modified(|brakes| {
            let is_other = **brakes != derived.brakes;
            if is_other {
                *brakes = Arc::new(derived.brakes);
            }
            is_other
        });
        *write_lock(&self.shared.engine) = Some(engine);
        let effects = doubtful.filter(|doubtful| doubtful.commit == state.commit).map_or(Vec::new(), |it| it.effects);
        info!(durable = !effects.is_empty(), "Store opened again");
        self.tell(&effects, state);
        self.shared.counters.reopened.fetch_add(1, Ordering::Relaxed);
        self.shared.queue.resume();
        Reopened::Open
    }

    fn try_open(&self) -> Result<(Engine, State, Derived), EngineError> {
        let config = &self.shared.config;
        probe(&config.path)?;
        let engine = Engine::open_again(&config.path, config.cache_bytes)?;
        let (state, derived) = load(&engine)?;
        if state.epoch != self.shared.epoch {
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
        self.shared.queue.close();
        self.shared.queue.suspend();
        *write_lock(&self.shared.engine) = None;
        self.lock = None;
        self.shared.ended.send_replace(true);
        info!("Store closed");
    }
}

/// The error with all its causes; none of them carries tokens or payloads.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
