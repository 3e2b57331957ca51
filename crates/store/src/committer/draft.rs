//! One batch in the making: what the requests of a drain want written, and what that changes in memory.
//!
//! A [`Draft`] is built from the state before it and touches nothing else; only when its rows are durable does the
//! committer apply its [`Effect`]s and answer. Dropped, it never was, but for the numbers it gave: then the store is opened
//! again, which knows who lives. Its rows are bounded by the drain (1 MiB of requests over the first one), the limits of
//! each request, and [`EFFECT_COUNT_MAX`]: a request of a few bytes may take thousands of subscriptions away.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Timestamp, UserId};

use super::effect::change_row;
use crate::brakes::Brakes;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{Durability, Engine, EngineError, Rows, STATE_KEY, Table};
use crate::events::LaterKey;
use crate::hash::Hash16;
use crate::meta::State;
use crate::rows;
use crate::shared::Shared;

/// Changes in memory with which a batch takes up no more requests.
const EFFECT_COUNT_MAX: usize = if cfg!(test) { 256 } else { 16 << 10 };

/// One batch in the making: reads see its own rows first, then the engine's.
pub(crate) struct Draft<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) shared: &'a Shared,
    pub(crate) rows: Rows,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) effects: Vec<Effect>,
    /// Subscriptions of the devices this batch touches, as they will be.
    pub(crate) subscription_counts: HashMap<DeviceNumber, u32>,
    /// Devices of the users this batch touches, as they will be.
    pub(crate) user_device_counts: HashMap<UserId, u64>,
    /// The chunks of the proven set that this batch changes, as they will be.
    pub(crate) proven: BTreeMap<u16, RoaringBitmap>,
    /// What has changed in these three since the request at hand began, the latest last.
    pub(crate) undo: Vec<Undo>,
    /// As they will be.
    pub(crate) brakes: Arc<Brakes>,
    pub(crate) brakes_changed: bool,
    /// Where the events for later were when they were first looked up by their ids, if they were; at most
    /// `later_count_max`.
    pub(crate) later_ids: Option<BTreeMap<LaterKey, Hash16>>,
    pub(crate) synced: bool,
}

/// How to take back a change of what a draft holds in memory.
pub(crate) enum Undo {
    SubscriptionCount(DeviceNumber, Option<u32>),
    UserDeviceCount(UserId, Option<u64>),
    /// Whether the device was proven.
    Proven(DeviceNumber, bool),
}

/// A batch that is ready to be written.
pub(crate) struct Finished {
    pub(crate) rows: Rows,
    pub(crate) durability: Durability,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) effects: Vec<Effect>,
    /// Changes in its row of `change`.
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
        }
    }

    /// What ends by itself ends by this: the clock, or the latest `now` where that is earlier. A clock that was ahead for a
    /// moment has then ended what it met, and ends no more.
    pub(crate) fn wall(&self) -> Timestamp {
        self.now.min((self.shared.config.clock)())
    }

    /// Something is asked for at `now`.
    pub(crate) fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
    }

    /// Does something as a whole, or nothing of it where it meets a damaged row: then `None`, and a word in the log.
    /// Everything else of the batch stays.
    pub(crate) fn attempt<T>(
        &mut self,
        what: impl FnOnce(&mut Self) -> Result<T, EngineError>,
    ) -> Result<Option<T>, EngineError> {
        self.rows.keep();
        self.blocks().keep();
        self.undo.clear();
        let (state, effect_count) = (self.state, self.effects.len());
        let (brakes, brakes_changed) = (self.brakes.clone(), self.brakes_changed);
        let done = damage::tolerate(what(self), "What rests on a damaged row is refused")?;
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

    /// What there is to write; nothing when nothing changed.
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

    /// Whether the batch has enough: what is in it is written and applied before more is taken up.
    pub(crate) fn is_full(&self) -> bool {
        self.effects.len() >= EFFECT_COUNT_MAX
    }
}
