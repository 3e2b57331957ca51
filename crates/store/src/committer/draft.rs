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
use tidings_audience::{Index, Traits};
use tidings_telemetry::chain;
use tidings_types::{ChannelName, Device, DeviceNumber, Offset, StreamPosition, Subject, Timestamp, TopicName, UserId};
use tracing::error;

use crate::brakes::Brakes;
use crate::channels::{DurableChannel, StoredPublication};
use crate::checkpoint::changes;
use crate::engine::STATE_KEY;
use crate::engine::{Durability, Engine, EngineError, Rows, Table};
use crate::events::LaterKey;
use crate::hash::Hash16;
use crate::message::{Command, Reply};
use crate::meta::State;
use crate::rows;
use crate::shared::Shared;
use crate::table::DeviceTable;

/// Changes in memory with which a batch takes up no more requests.
const EFFECT_COUNT_MAX: usize = if cfg!(test) { 256 } else { 16 << 10 };

/// Answers a caller, once the batch is durable.
pub(crate) type Ack = Box<dyn FnOnce()>;

/// What a batch changes in memory, in order.
pub(crate) enum Effect {
    DeviceSet {
        number: DeviceNumber,
        device: Device,
        /// What it was before, if it was there.
        before: Option<Box<Device>>,
    },
    DeviceRemoved {
        number: DeviceNumber,
        /// What it was; nobody knows when its row was damaged.
        before: Option<Box<Device>>,
    },
    Subscribed {
        number: DeviceNumber,
        subject: Subject,
        topic: TopicName,
    },
    Unsubscribed {
        number: DeviceNumber,
        subject: Subject,
        topic: TopicName,
    },
    /// Without a subject: everything.
    Muted {
        number: DeviceNumber,
        subject: Option<Subject>,
    },
    Unmuted {
        number: DeviceNumber,
        subject: Option<Subject>,
    },
    Published {
        channel: DurableChannel,
        position: StreamPosition,
        publication: StoredPublication,
    },
    /// A durable channel is forgotten; it would begin at the floor now, as all do that are not there.
    GivenBack {
        channel: ChannelName,
        floor: Offset,
    },
    /// These bits of the proven set are now so.
    Proven {
        chunk: u16,
        bits: RoaringBitmap,
    },
    /// All brakes there are now.
    Braked(Arc<Brakes>),
}

impl Effect {
    pub(crate) fn apply_to_table(&self, table: &mut DeviceTable) {
        match self {
            Self::DeviceSet { number, device, before } => {
                table.set(*number, device.clone());
                if before.is_none() {
                    table.hint_at(&device.id, *number); // The batch has the row that names it.
                }
            }
            Self::DeviceRemoved { number, .. } => table.remove(*number),
            Self::Subscribed { number, .. } => table.count_subscription(*number, 1),
            Self::Unsubscribed { number, .. } => table.count_subscription(*number, -1),
            Self::Proven { chunk, bits } => table.set_proven_chunk(*chunk, bits),
            Self::Published { .. }
            | Self::GivenBack { .. }
            | Self::Braked(_)
            | Self::Muted { .. }
            | Self::Unmuted { .. } => {}
        }
    }

    /// What the device table reserves for it, in bytes.
    pub(crate) fn table_room(&self) -> u64 {
        match self {
            Self::DeviceSet { device, .. } => DeviceTable::room_for(device),
            _ => 0,
        }
    }

    pub(crate) fn apply_to_index(&self, index: &mut Index) {
        match self {
            Self::Subscribed { number, subject, topic } => {
                index.insert(*number, subject, topic);
            }
            Self::Unsubscribed { number, subject, topic } => {
                index.remove(*number, subject, topic);
            }
            Self::DeviceSet { number, device, before } => {
                index.set_device(*number, before.as_deref().map(traits), Some(traits(device)));
            }
            Self::DeviceRemoved { number, before: Some(before) } => {
                index.set_device(*number, Some(traits(before)), None);
            }
            Self::DeviceRemoved { number, before: None } => index.forget_devices(&[*number].into()),
            Self::Published { .. } | Self::GivenBack { .. } | Self::Proven { .. } | Self::Braked(_) => {}
            Self::Muted { number, subject } => _ = index.mute(*number, subject.as_ref()),
            Self::Unmuted { number, subject } => _ = index.unmute(*number, subject.as_ref()),
        }
    }
}

/// What the index chooses a device by.
pub(crate) fn traits(device: &Device) -> Traits<'_> {
    let Device { platform, app, locale, country, user, .. } = device;
    Traits { platform: *platform, app, locale, country: country.as_ref(), user: user.as_ref() }
}

/// One batch in the making: reads see its own rows first, then the engine's.
pub(crate) struct Draft<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) shared: &'a Shared,
    pub(crate) rows: Rows,
    pub(crate) state: State,
    pub(crate) now: Timestamp,
    pub(crate) effects: Vec<Effect>,
    /// Subscriptions of the devices this batch touches, as they will be.
    subscription_counts: HashMap<DeviceNumber, u32>,
    /// Devices of the users this batch touches, as they will be.
    user_device_counts: HashMap<UserId, u64>,
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

    /// Adds what a caller asks for. `None`: it rests on a damaged row, nothing of it is done, and the caller is
    /// refused.
    pub(crate) fn handle(&mut self, command: Command) -> Result<Option<Ack>, EngineError> {
        self.attempt(|draft| draft.perform(command))
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
        match what(self) {
            Err(error) if error.is_damage() => {
                self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
                error!(error = chain(&error), "What rests on a damaged row is refused");
                self.rows.take_back();
                self.blocks().take_back();
                self.take_back();
                (self.state, self.brakes, self.brakes_changed) = (state, brakes, brakes_changed);
                self.effects.truncate(effect_count);
                Ok(None)
            }
            done => done.map(Some),
        }
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

    /// A refusal is an answer too and waits like the others: it may rest on rows of this batch.
    fn perform(&mut self, command: Command) -> Result<Ack, EngineError> {
        if !matches!(command, Command::Jobs { .. } | Command::DevicesProven { .. } | Command::Touch { .. }) {
            self.synced = true;
        }
        Ok(match command {
            Command::AppendEvents { events, now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.append_events(events, now)?)
            }
            Command::Publish { channel, publication, reply } => {
                self.now = self.now.max(publication.time);
                answer(reply, self.publish(channel, publication)?)
            }
            Command::Jobs { put, remove, dispatched, reply } => {
                self.jobs(put, remove, dispatched);
                answer(reply, ())
            }
            Command::Pause { scope, now, reply } => answer(reply, self.pause(scope, now)),
            Command::Resume { scope, reply } => answer(reply, self.resume(&scope)?),
            Command::Cancel { position, reply } => answer(reply, self.cancel(position)),
            Command::CancelLater { id_hash, reply } => answer(reply, self.cancel_later(id_hash)?),
            Command::ReleaseLater { now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.release_later(now)?)
            }
            Command::DevicesProven { numbers, reply } => answer(reply, self.devices_proven(&numbers)?),
            Command::PutDevice { device, terms, now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.put_device(device, terms, now)?)
            }
            Command::DeleteDevice { id, precondition, reply } => answer(reply, self.delete_device(&id, precondition)?),
            Command::EraseUser { user, reply } => answer(reply, self.erase_user(&user)?),
            Command::Touch { id, now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.touch(&id, now)?)
            }
            Command::Mute { id, mute, now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.mute(&id, mute)?)
            }
            Command::Unmute { id, scope, reply } => answer(reply, self.unmute(&id, &scope)?),
            Command::RotateCredential { id, reply } => answer(reply, self.rotate_credential(&id)?),
            Command::LogOut { id, reply } => answer(reply, self.log_out(&id)?),
            Command::Subscribe { id, selection, reply } => answer(reply, self.subscribe(&id, selection)?),
            Command::Unsubscribe { id, selection, reply } => answer(reply, self.unsubscribe(&id, selection)?),
            Command::TokensGone { tokens, reply } => answer(reply, self.tokens_gone(tokens)?),
            Command::Import { devices, part, now, reply } => {
                self.now = self.now.max(now);
                answer(reply, self.import(devices, part, now)?)
            }
        })
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
        if let Some((row, count)) = changes::row(&self.effects) {
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

    /// Whether a subscription is there: the index knows all that are durable.
    pub(crate) fn is_subscribed(&self, key: &[u8], number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        match self.rows.get(Table::Subscription, key) {
            Some(row) => row.is_some(),
            None => self.shared.index.read().contains(number, subject, topic),
        }
    }

    pub(crate) fn set_subscription_count(&mut self, number: DeviceNumber, count: u32) {
        let before = self.subscription_counts.insert(number, count);
        self.undo.push(Undo::SubscriptionCount(number, before));
    }

    pub(crate) fn subscription_count(&self, number: DeviceNumber) -> u32 {
        let pending = self.subscription_counts.get(&number).copied();
        pending.unwrap_or_else(|| self.shared.table.read().subscription_count(number))
    }

    /// A device that was the one's is the other's.
    pub(crate) fn count_user_device(&mut self, before: Option<&UserId>, after: Option<&UserId>) {
        if before == after {
            return;
        }
        for (user, change) in [(before, -1), (after, 1)] {
            let Some(user) = user else { continue };
            let count = self.user_device_count(user).saturating_add_signed(change);
            let known = self.user_device_counts.insert(user.clone(), count);
            self.undo.push(Undo::UserDeviceCount(user.clone(), known));
        }
    }

    /// Devices of a user as this batch will leave them.
    pub(crate) fn user_device_count(&self, user: &UserId) -> u64 {
        self.user_device_counts
            .get(user)
            .copied()
            .unwrap_or_else(|| self.shared.index.read().devices_of_user_from(user, DeviceNumber(0)).count() as u64)
    }

    /// Whether the batch has enough: what is in it is written and applied before more is taken up.
    pub(crate) fn is_full(&self) -> bool {
        self.effects.len() >= EFFECT_COUNT_MAX
    }
}

fn answer<T: 'static>(reply: Reply<T>, value: T) -> Ack {
    Box::new(move || drop(reply.send(value))) // A caller that went away needs no answer.
}
