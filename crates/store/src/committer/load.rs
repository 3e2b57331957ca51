//! Loads the derived data at open: from the checkpoint and the changes since, or from all rows.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, ScopedJoinHandle};
use std::{io, mem, panic};

use tidings_audience::{Builder, Filling, Index, NamedShards, Naming, Shard, Subscribers};
use tidings_telemetry::chain;
use tidings_types::{BrakeScope, DeviceNumber};
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::blocks::Blocks;
use crate::brakes::Brakes;
use crate::checkpoint::changes::{self, NotReplayed};
use crate::checkpoint::{self, Extent, Loaded, Reader, Section, Unusable};
use crate::committer::effect::traits;
use crate::damage;
use crate::damage::LeftOut;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{Engine, EngineError, Place, Span, Table};
use crate::meta::State;
use crate::meta::read_state;
use crate::rows;
use crate::table::DeviceTable;

/// Data in memory that is made from the rows at open.
pub(crate) struct Derived {
    pub(crate) table: DeviceTable,
    pub(crate) index: Index,
    pub(crate) brakes: Brakes,
    pub(crate) blocks: Blocks,
    /// The checkpoint from which table and index were loaded; `None`: they were made from all rows.
    pub(crate) checkpoint: Option<Loaded>,
}

/// The committer's counters and the derived data of the store in `folder`. A few damaged rows of devices and subscriptions
/// are left out. A device comes back when it registers and subscribes again.
pub(crate) fn load(engine: &Engine, folder: &Path) -> Result<(State, Derived), EngineError> {
    let mut state = read_state(engine)?;
    count_later(engine, &mut state)?;
    count_publish_keys(engine, &mut state)?;
    let left_out = LeftOut::default();
    let began = Instant::now();
    let (mut table, index, checkpoint) = match from_checkpoint(engine, folder, &state) {
        Ok((table, index, loaded)) => (table, index, Some(loaded)),
        Err(NotReplayed::Engine(error)) if !error.is_damage() => return Err(error),
        Err(why) => {
            log_why(&why, &state);
            checkpoint::remove(folder)?;
            let (table, index) = from_rows(engine, folder, &state, &left_out)?;
            (table, index, None)
        }
    };
    table.flush();
    info!(
        devices = table.count(),
        subscriptions = index.subscription_count(),
        from_checkpoint = checkpoint.is_some(),
        replayed = checkpoint.map_or(0, |checkpoint| checkpoint.replayed_count),
        elapsed = began.elapsed().as_secs_f64(),
        "Devices and audience index loaded"
    );
    engine.scan(Place::Open, Table::Proven, &Span::all(), |key, row| {
        left_out.tolerate(|| {
            let (chunk, bits) = rows::decode_proven(key, row)?;
            table.set_proven_chunk(chunk, &bits);
            Ok(())
        })
    })?;
    let brakes = load_brakes(engine, &left_out)?;
    let blocks = load_blocks(engine, &state, &table, &left_out)?;
    Ok((state, Derived { table, index, brakes, blocks, checkpoint }))
}

pub(super) fn load_blocks(
    engine: &Engine,
    state: &State,
    table: &DeviceTable,
    left_out: &LeftOut,
) -> Result<Blocks, EngineError> {
    let mut blocks = Vec::new();
    engine.scan(Place::Open, Table::Block, &Span::all(), |key, row| {
        left_out.tolerate(|| {
            blocks.push(rows::decode_block(key, row)?);
            Ok(())
        })
    })?;
    Ok(Blocks::new(blocks, state.device_next, table.numbers(), state.journal_end))
}

/// A new store has no checkpoint, so this is not logged.
fn log_why(why: &NotReplayed, state: &State) {
    let why = match why {
        NotReplayed::Unusable(Unusable::Missing) if state.change_end == 0 => return,
        NotReplayed::Unusable(why) => chain(why),
        NotReplayed::Engine(why) => chain(why),
    };
    warn!(%why, "The checkpoint cannot be used; all devices and subscriptions are read");
}

/// Table and index from the checkpoint and the changes since.
fn from_checkpoint(engine: &Engine, folder: &Path, state: &State) -> Result<(DeviceTable, Index, Loaded), NotReplayed> {
    let reader = Reader::open(folder, state.epoch)?;
    let Extent { change, reached } = reader.extent();
    if reached > state.change_end {
        return Err(Unusable::Ahead { reached, end: state.change_end }.into());
    }
    let (mut table, mut index) = decode(&reader, folder, state.device_next)?;
    let replayed_count = changes::replay(engine, change, state, &mut table, &mut index)?;
    for number in table.take_unread() {
        let row = engine.read(Table::Device, &rows::number_key(number), rows::decode_device);
        // A damaged row is reported when the device is read.
        if let Some(row) = damage::tolerate_quietly(row)?.flatten() {
            table.set_reserving(number, row.device);
        }
    }
    Ok((table, index, Loaded { taken: change, replayed_count }))
}

/// Shards of the index that are named together. As many wait in the channel, and as many are added meanwhile.
const SHARD_COUNT: usize = 4;

/// Table and index from the checkpoint. Another thread reads the shards of the index. This thread reads the table and then
/// fills the sets of the index.
fn decode(reader: &Reader, folder: &Path, number_end: u32) -> Result<(DeviceTable, Index), Unusable> {
    let mut table = DeviceTable::open(folder).map_err(|error| Unusable::Io(io::Error::other(error)))?;
    let mut filling = Filling::default();
    let naming = thread::scope(|scope| {
        let (tx, rx) = sync_channel(1);
        let naming = scope.spawn(move || read_shards(reader, &tx));
        decode_table(reader, &mut table, number_end)?;
        rx.into_iter().for_each(|shards| filling.add(shards));
        joined(naming)
    })?;
    table.finish_decoding().map_err(Unusable::Io)?;
    Ok((table, filling.finish(naming)))
}

fn decode_table(reader: &Reader, table: &mut DeviceTable, number_end: u32) -> Result<(), Unusable> {
    let mut bytes = Vec::new();
    for (index, section) in (0..).map_while(|index| Some((index, reader.section(index)?))) {
        if let Section::Table(part) = section {
            reader.read(index, &mut bytes)?;
            table.decode(part, &bytes, number_end).map_err(|_| Unusable::Damaged("a part of the table"))?;
        }
    }
    Ok(())
}

fn read_shards(reader: &Reader, tx: &SyncSender<NamedShards>) -> Result<Naming, Unusable> {
    let (mut naming, mut shards) = (Naming::default(), Vec::new());
    for (index, section) in (0..).map_while(|index| Some((index, reader.section(index)?))) {
        let Section::Index(number) = section else { continue };
        let mut bytes = Vec::new();
        reader.read(index, &mut bytes)?;
        let shard = Shard::read(number as usize, bytes);
        shards.push(shard.map_err(|_| Unusable::Damaged("a shard of the index"))?);
        if shards.len() == SHARD_COUNT && tx.send(naming.name(mem::take(&mut shards))).is_err() {
            break; // The receiver is gone because the table is damaged.
        }
    }
    let _ = tx.send(naming.name(shards)); // As above.
    Ok(naming)
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| panic::resume_unwind(panic))
}

/// Table and index from all rows. One thread reads devices and puts them into the table, one reads the keys of
/// subscriptions, and this one puts these into the index.
///
/// Memory beside table and index: 96 MiB in two builders, and 16 bytes per set; about 100 MiB for a million pairs of names;
/// for further pairs 16 bytes per subscription.
fn from_rows(
    engine: &Engine,
    folder: &Path,
    state: &State,
    left_out: &LeftOut,
) -> Result<(DeviceTable, Index), EngineError> {
    let mut table = DeviceTable::create(folder).map_err(io::Error::other)?;
    let mut subscriptions = Subscriptions::new(state.device_next);
    let devices = thread::scope(|scope| {
        let (tx, rx) = sync_channel(READ_AHEAD_COUNT);
        let devices = scope.spawn(|| read_devices(engine, state, &mut table, left_out));
        let keys = scope.spawn(move || read_keys(engine, Table::Subscription, &tx));
        for keys in rx {
            for key in keys.iter() {
                left_out.tolerate(|| subscriptions.add(key))?;
            }
        }
        joined(keys)?;
        joined(devices)
    })?;
    let Subscriptions { mut builder, counts, known } = subscriptions;
    drop(known);
    builder.add(devices);
    table.subscription_counts_mut().iter_mut().zip(counts).for_each(|(count, counted)| *count = counted);
    Ok((table, builder.finish()))
}

/// Puts all devices into the table, and their traits and mutes into the builder of an index.
fn read_devices(
    engine: &Engine,
    state: &State,
    table: &mut DeviceTable,
    left_out: &LeftOut,
) -> Result<Builder, EngineError> {
    let mut builder = Builder::new();
    engine.scan(Place::Open, Table::Device, &Span::all(), |key, row| {
        left_out.tolerate(|| {
            let DeviceRow { device, .. } = rows::decode_device(key, row)?;
            let number = rows::decode_number(Table::Device, key, key)?;
            if number.0 >= state.device_next {
                return Err(EngineError::damaged(Table::Device, key)); // Otherwise the table would grow up to this number.
            }
            builder.set_device(number, traits(&device));
            table.set_reserving(number, device);
            Ok(())
        })
    })?;
    engine.scan(Place::Open, Table::Mute, &Span::all(), |key, _| {
        left_out.tolerate(|| {
            let mute = rows::decode_mute_key(key).ok_or_else(|| EngineError::damaged(Table::Mute, key))?;
            builder.mute(mute.0, mute.1.subject());
            Ok(())
        })
    })?;
    Ok(builder)
}

/// Puts subscriptions into the builder of an index, and counts them.
struct Subscriptions {
    builder: Builder,
    /// By subject and topic as in keys; at most [`KNOWN_COUNT_MAX`].
    known: HashMap<Box<[u8]>, Subscribers>,
    /// Per device number.
    counts: Vec<u16>,
}

impl Subscriptions {
    fn new(number_end: u32) -> Self {
        Self { builder: Builder::new(), known: HashMap::new(), counts: vec![0; number_end as usize] }
    }

    fn add(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let damaged = || EngineError::damaged(Table::Subscription, key);
        let (number, names) = key.split_first_chunk::<4>().ok_or_else(damaged)?;
        let number = DeviceNumber(u32::from_be_bytes(*number));
        if let Some(&subscribers) = self.known.get(names) {
            self.builder.subscribe_too(number, subscribers);
        } else {
            let (number, subject, topic) = rows::decode_subscription(key)?;
            let subscribers = self.builder.subscribe(number, &subject, &topic);
            if self.known.len() < KNOWN_COUNT_MAX {
                self.known.insert(names.into(), subscribers);
            }
        }
        if let Some(count) = self.counts.get_mut(number.0 as usize) {
            *count = count.saturating_add(1);
        }
        Ok(())
    }
}

/// Pairs of subject and topic that are parsed once. Further pairs are parsed for each subscription.
const KNOWN_COUNT_MAX: usize = 1 << 20;
/// Keys in one message, and messages in the channel before the reader waits.
const KEY_COUNT: usize = 2048;
const READ_AHEAD_COUNT: usize = 8;

/// Keys of a table, in order.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Keys {
    fn push(&mut self, key: &[u8]) {
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = [0].into_iter().chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.bytes[start..end])
    }
}

/// Sends all keys of a table until the receiver is gone.
fn read_keys(engine: &Engine, table: Table, tx: &SyncSender<Keys>) -> Result<(), EngineError> {
    let mut keys = Keys::default();
    engine.scan(Place::Open, table, &Span::all(), |key, _| {
        keys.push(key);
        let is_full = keys.ends.len() >= KEY_COUNT;
        Ok(!is_full || tx.send(mem::take(&mut keys)).is_ok())
    })?;
    let _ = tx.send(keys); // If the receiver is gone, it has failed and reports its own error.
    Ok(())
}

/// An unreadable pause pauses everything, because the pushes that it paused must not be sent. Resuming everything deletes
/// it.
fn load_brakes(engine: &Engine, left_out: &LeftOut) -> Result<Brakes, EngineError> {
    let mut brakes = Brakes::default();
    engine.scan(Place::Open, Table::Brake, &Span::all(), |key, row| {
        left_out.tolerate(|| {
            let (scope, since) = rows::decode_brake(key, row).inspect_err(|error| {
                error!(
                    error = chain(&error),
                    "All sending is paused because a pause cannot be read; `tidings jobs resume everything` ends this"
                );
                Arc::make_mut(&mut brakes.paused).entry(BrakeScope::Everything).or_default();
            })?;
            Arc::make_mut(&mut brakes.paused).insert(scope, since);
            Ok(())
        })
    })?;
    engine.scan(Place::Open, Table::Cancelled, &Span::all(), |key, _| {
        left_out.tolerate(|| {
            brakes.cancelled.insert(rows::decode_position(Table::Cancelled, key, key)?);
            Ok(())
        })
    })?;
    Ok(brakes)
}

/// Counts the scheduled events anew if the first one is not the one in the counters. Then an older version without
/// scheduled events has written the counters meanwhile.
fn count_later(engine: &Engine, state: &mut State) -> Result<(), EngineError> {
    let mut first = None;
    let scanned = engine.scan(Place::Open, Table::Later, &Span::all(), |key, _| {
        first = rows::decode_later_key(key);
        Ok(first.is_none())
    });
    if damage::tolerate(scanned, "Scheduled events cannot be counted; their stored count is used")?.is_none() {
        return Ok(());
    }
    if first == state.later_first {
        return Ok(());
    }
    (state.later_first, state.later_count, state.later_bytes) = (first, 0, 0);
    engine.scan(Place::Open, Table::Later, &Span::all(), |key, row| {
        state.later_count += 1;
        state.later_bytes += row.len() as u64;
        let arrival = rows::decode_later_key(key).map_or(0, |key| key.arrival + 1);
        state.later_arrival = state.later_arrival.max(arrival);
        Ok(true)
    })?;
    warn!(count = state.later_count, "Scheduled events were counted anew");
    Ok(())
}

/// Counts the idempotency keys anew if the counters say that there never was one. Then an older version without such keys
/// may have written the counters meanwhile.
fn count_publish_keys(engine: &Engine, state: &mut State) -> Result<(), EngineError> {
    if state.publish_key_end > 0 {
        return Ok(());
    }
    let mut numbers: Option<(u64, u64)> = None;
    let scanned = engine.scan(Place::Open, Table::PublishKeyOrder, &Span::all(), |key, _| {
        if let Ok(number) = key.try_into().map(u64::from_be_bytes) {
            let first = numbers.map_or(number, |(first, _)| first);
            numbers = Some((first, number));
        }
        Ok(true)
    });
    damage::tolerate(scanned, "Idempotency keys cannot all be counted")?;
    if let Some((first, last)) = numbers {
        (state.publish_key_base, state.publish_key_end) = (first, last + 1);
    }
    Ok(())
}
