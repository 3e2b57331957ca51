//! One batch before it is durable: the rows that its requests write, and the changes that they make in memory.
//!
//! A [`Draft`] is built from the current state and changes nothing outside. After its rows are durable, the committer
//! applies its [`Effect`]s and answers the callers. A draft that is dropped leaves no trace, except device numbers that it
//! has given: then the committer opens the store again and reads the numbers in use from the rows.
//!
//! Bounds: the bytes of a drain (1 MiB over its first request), the limits of each request, and [`EFFECT_COUNT_MAX`],
//! because a request of a few bytes may delete thousands of subscriptions.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Timestamp, UserId};
use tokio::time::Instant;

use super::effect::change_row;
use crate::brakes::Brakes;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{Durability, Engine, EngineError, Place, Rows, STATE_KEY, Span, Table};
use crate::events::LaterKey;
use crate::hash::Hash16;
use crate::meta::State;
use crate::rows;
use crate::shared::Shared;

/// A batch with this many changes in memory takes no more requests.
const EFFECT_COUNT_MAX: usize = if cfg!(test) { 256 } else { 16 << 10 };

/// Steps that a round may do without having time.
const STEP_COUNT_MIN: usize = 8;

/// Answers a caller, after the batch is durable.
pub(crate) type Ack = Box<dyn FnOnce()>;

/// A request: adds something to a batch, and returns how to answer the caller. A refusal is answered in the same way,
/// because it may rest on rows of the batch. If the work is dropped, its caller is told that the store cannot write now.
pub(crate) type Work = Box<dyn FnOnce(&mut Draft<'_>) -> Result<Ack, EngineError> + Send>;

/// One batch before it is durable. Reads see its own rows first, then the engine's.
pub(crate) struct Draft<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) shared: &'a Shared,
    pub(crate) rows: Rows,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) effects: Vec<Effect>,
    /// New subscription counts of the devices that this batch changes.
    pub(crate) subscription_counts: HashMap<DeviceNumber, u32>,
    /// New device counts of the users that this batch changes.
    pub(crate) user_device_counts: HashMap<UserId, u64>,
    /// The new content of the chunks of the proven set that this batch changes.
    pub(crate) proven: BTreeMap<u16, RoaringBitmap>,
    /// The former values of the three fields above since the current request began, the latest change last.
    pub(crate) undo: Vec<Undo>,
    /// The pauses and cancelled jobs after this batch.
    pub(crate) brakes: Arc<Brakes>,
    pub(crate) brakes_changed: bool,
    /// The ids of scheduled events, if this batch had to look for them; at most `later_count_max`.
    pub(crate) later_ids: Option<BTreeMap<LaterKey, Hash16>>,
    pub(crate) synced: bool,
    /// Until when work may go on that nobody waits for.
    pub(crate) deadline: Option<Instant>,
}

/// A former value of a draft's field, to undo a change.
pub(crate) enum Undo {
    SubscriptionCount(DeviceNumber, Option<u32>),
    UserDeviceCount(UserId, Option<u64>),
    Proven(DeviceNumber, bool),
}

/// A batch that is ready to be written.
pub(crate) struct Finished {
    pub(crate) rows: Rows,
    pub(crate) durability: Durability,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) effects: Vec<Effect>,
    /// Changes in the batch's row of table `change`.
    pub(crate) change_count: u64,
}

impl<'a> Draft<'a> {
    pub(crate) fn new(engine: &'a Engine, shared: &'a Shared, state: State, now: Timestamp) -> Self {
        Self {
            engine,
            shared,
            rows: Rows::default(),
            state: State { commit: state.commit + 1, ..state },
            now,
            effects: Vec::new(),
            subscription_counts: HashMap::new(),
            user_device_counts: HashMap::new(),
            proven: BTreeMap::new(),
            undo: Vec::new(),
            brakes: shared.brakes.borrow().clone(),
            brakes_changed: false,
            later_ids: None,
            synced: false,
            deadline: None,
        }
    }

    /// Whether there is time for work that nobody waits for.
    pub(crate) fn has_time(&self) -> bool {
        self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Whether a round that has done so many steps may go on. It may always do a few, so that it gets somewhere however slow
    /// the disk is.
    pub(crate) fn may_go_on(&self, done_count: usize) -> bool {
        done_count < STEP_COUNT_MIN || self.has_time()
    }

    /// The time by which mutes, idle devices and idle channels end: the clock, or the latest `now` if that is earlier. So
    /// a clock that was ahead for a moment does no more harm after it was set back.
    pub(crate) fn wall(&self) -> Timestamp {
        self.now.min((self.shared.config.clock)())
    }

    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Does `what` as a whole. If it meets a damaged row, all of its changes are undone, the log says so, and the result is
    /// `None`. The rest of the batch stays.
    pub(crate) fn attempt<T>(
        &mut self,
        what: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        self.rows.keep();
        self.blocks().keep();
        self.undo.clear();
        let (state, effect_count) = (self.state, self.effects.len());
        let (brakes, brakes_changed) = (self.brakes.clone(), self.brakes_changed);
        let done = damage::tolerate(what(self), "A request is refused because it needs a damaged row")?;
        if done.is_none() {
            self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
            self.rows.take_back();
            self.blocks().take_back();
            self.take_back();
            (self.state, self.brakes, self.brakes_changed) = (state, brakes, brakes_changed);
            self.effects.truncate(effect_count);
        }
        Ok(done)
    }

    fn take_back(&mut self) {
        for change in std::mem::take(&mut self.undo).into_iter().rev() {
            match change {
                Undo::SubscriptionCount(number, Some(count)) => _ = self.subscription_counts.insert(number, count),
                Undo::SubscriptionCount(number, None) => _ = self.subscription_counts.remove(&number),
                Undo::UserDeviceCount(user, Some(count)) => _ = self.user_device_counts.insert(user, count),
                Undo::UserDeviceCount(user, None) => _ = self.user_device_counts.remove(&user),
                Undo::Proven(number, was) => self.set_proven(number, was),
            }
        }
    }

    /// Completes the rows with the state and the changes. No rows if nothing changed.
    pub(crate) fn finish(mut self) -> Finished {
        for (chunk, bits) in self.proven {
            self.rows.put(Table::Proven, rows::proven_key(chunk), rows::proven_row(&bits));
            self.effects.push(Effect::Proven { chunk, bits });
        }
        if self.brakes_changed {
            self.effects.push(Effect::Braked(self.brakes));
        }
        let mut change_count = 0;
        if let Some((row, count)) = change_row(&self.effects) {
            self.state.change_bytes += row.len() as u64;
            self.rows.put(Table::Change, rows::change_key(self.state.change_end), row);
            self.state.change_end += 1;
            change_count = count;
        }
        if !self.rows.is_empty() {
            self.rows.put(Table::Meta, STATE_KEY, rows::encode(&self.state));
        }
        let durability = if self.synced { Durability::Synced } else { Durability::Handed };
        let Self { rows, state, now, effects, .. } = self;
        Finished { rows, durability, state, now, effects, change_count }
    }

    /// The row under `key` as this batch will leave it.
    pub(crate) fn get(&self, table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, EngineError> {
        if let Some(row) = self.rows.get(table, key) {
            return Ok(row.map(<[u8]>::to_vec));
        }
        Ok(self.engine.get(table, key)?.map(|row| row.as_ref().to_vec()))
    }

    /// The row under `key` as this batch will leave it, decoded.
    pub(crate) fn read<T>(
        &self,
        table: Table,
        key: &[u8],
        decode: impl FnOnce(&[u8], &[u8]) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        self.get(table, key)?.map(|row| decode(key, &row)).transpose()
    }

    /// The rows whose keys begin with `prefix`, as this batch will leave them.
    pub(crate) fn with_prefix(&self, table: Table, prefix: &[u8]) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, EngineError> {
        let mut found = BTreeMap::new();
        self.engine.scan(Place::Device, table, &Span::prefix(prefix), |key, row| {
            found.insert(key.to_vec(), row.to_vec());
            Ok(true)
        })?;
        for (key, row) in self.rows.prefix(table, prefix) {
            match row {
                Some(row) => found.insert(key.clone(), row.clone()),
                None => found.remove(key),
            };
        }
        Ok(found)
    }

    /// Whether the batch must be written and applied before it takes more requests.
    pub(crate) fn is_full(&self) -> bool {
        self.effects.len() >= EFFECT_COUNT_MAX
    }
}
