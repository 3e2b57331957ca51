//! Reading at open what is kept in memory: from the checkpoint and the changes since, or else from all rows.

use std::collections::HashMap;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use tidings_audience::Index;
use tidings_types::{BrakeScope, Device, DeviceNumber, MuteScope, Subject, TopicName};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::changes::{self, NotReplayed};
use super::draft::traits;
use super::{Derived, chain};
use crate::blocks::Blocks;
use crate::brakes::Brakes;
use crate::checkpoint::{self, Extent, Loaded, Section, Unusable};
use crate::engine::{Engine, EngineError, Table};
use crate::rows::{self, DeviceRow, STATE_KEY, State};
use crate::table::DeviceTable;

/// Damaged rows that are left out, each with a word in the log. More are no accident of single rows, and rather than serve
/// without the rest the store is not opened.
const DAMAGED_COUNT_MAX: usize = 16;

/// The committer's counters, the device table and the audience index of the store in `folder`. Of a few damaged devices and
/// subscriptions only these are missing: a device that registers and subscribes again is as it was.
pub(crate) fn load(engine: &Engine, folder: &Path) -> Result<(State, Derived), EngineError> {
    let damaged = || EngineError::damaged(Table::Meta, STATE_KEY);
    let state = engine.get(Table::Meta, STATE_KEY)?.ok_or_else(damaged)?;
    let mut state: State = rows::decode(Table::Meta, STATE_KEY, state.as_ref())?;
    count_later(engine, &mut state)?;
    let mut damaged_count = 0;
    let began = Instant::now();
    let (mut table, index, checkpoint) = match from_checkpoint(engine, folder, &state) {
        Ok((table, index, loaded)) => (table, index, Some(loaded)),
        Err(NotReplayed::Engine(error)) if !error.is_damage() => return Err(error),
        Err(why) => {
            say_why(&why, &state);
            checkpoint::remove(folder)?;
            let (table, index) = from_rows(engine, folder, &state, &mut damaged_count)?;
            (table, index, None)
        }
    };
    index.count_into(table.subscription_counts_mut());
    table.flush();
    info!(
        devices = table.count(),
        subscriptions = index.subscription_count(),
        from_checkpoint = checkpoint.is_some(),
        replayed = checkpoint.map_or(0, |checkpoint| checkpoint.replayed_count),
        elapsed = began.elapsed().as_secs_f64(),
        "Devices and audience index loaded"
    );
    engine.scan(Table::Proven, Bound::Unbounded, |key, row| {
        leave_out_damaged(&mut damaged_count, || {
            let (chunk, bits) = rows::decode_proven(key, row)?;
            table.set_proven_chunk(chunk, &bits);
            Ok(())
        })
    })?;
    let brakes = load_brakes(engine, &mut damaged_count)?;
    let blocks = load_blocks(engine, &state, &table, &mut damaged_count)?;
    Ok((state, Derived { table, index, brakes, blocks, checkpoint }))
}

fn load_blocks(
    engine: &Engine,
    state: &State,
    table: &DeviceTable,
    damaged_count: &mut usize,
) -> Result<Blocks, EngineError> {
    let mut blocks = Vec::new();
    engine.scan(Table::Block, Bound::Unbounded, |key, row| {
        leave_out_damaged(damaged_count, || {
            blocks.push(rows::decode_block(key, row)?);
            Ok(())
        })
    })?;
    Ok(Blocks::new(blocks, state.device_next, table.numbers(), state.journal_end))
}

/// That there is no checkpoint is nothing new in a new store.
fn say_why(why: &NotReplayed, state: &State) {
    let why = match why {
        NotReplayed::Unusable(Unusable::Missing) if state.change_end == 0 => return,
        NotReplayed::Unusable(why) => chain(why),
        NotReplayed::Engine(why) => chain(why),
    };
    warn!(%why, "The checkpoint is of no use; all devices and subscriptions are read");
}

/// Table and index as the checkpoint has them and the changes since leave them. One thread makes the index of what this one
/// reads.
fn from_checkpoint(engine: &Engine, folder: &Path, state: &State) -> Result<(DeviceTable, Index, Loaded), NotReplayed> {
    let mut table = DeviceTable::open(folder).map_err(|error| Unusable::Io(std::io::Error::other(error)))?;
    let (extent, mut index) = std::thread::scope(|scope| {
        let (tx, rx) = sync_channel::<(u32, Vec<u8>)>(READ_AHEAD_COUNT);
        let indexer = scope.spawn(move || {
            let mut index = Index::new();
            rx.iter().try_for_each(|(shard, bytes)| index.decode_shard(shard as usize, &bytes))?;
            Ok::<_, tidings_audience::DecodeError>(index)
        });
        let read = checkpoint::read(folder, state.epoch, |section, bytes| match section {
            Section::Table(part) => {
                table.decode(part, bytes, state.device_next).map_err(|_| Unusable::Damaged("a part of the table"))
            }
            Section::Index(shard) => {
                tx.send((shard, bytes.to_vec())).map_err(|_| Unusable::Damaged("a shard of the index"))
            }
        });
        drop(tx); // Otherwise the other waits for more.
        let index = indexer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok::<_, Unusable>((read?, index.map_err(|_| Unusable::Damaged("a shard of the index"))?))
    })?;
    let Extent { change, reached } = extent;
    if reached > state.change_end {
        return Err(Unusable::Ahead { reached, end: state.change_end }.into());
    }
    table.finish_decoding().map_err(Unusable::Io)?;
    let replayed_count = changes::replay(engine, change, state, &mut table, &mut index)?;
    Ok((table, index, Loaded { taken: change, replayed_count }))
}

/// Table and index as the rows say. One thread reads, this one fills.
fn from_rows(
    engine: &Engine,
    folder: &Path,
    state: &State,
    damaged_count: &mut usize,
) -> Result<(DeviceTable, Index), EngineError> {
    let mut table = DeviceTable::create(folder).map_err(std::io::Error::other)?;
    let mut index = Index::new();
    std::thread::scope(|scope| {
        let (tx, rx) = sync_channel(READ_AHEAD_COUNT);
        let reader = scope.spawn(move || RowReader { tx, items: Vec::new(), damaged_count }.read(engine, state));
        for item in rx.iter().flatten() {
            match item {
                Item::Device(number, device) => set(&mut table, &mut index, number, *device),
                Item::Subscription(number, subject, topic) => _ = index.insert(number, &subject, &topic),
                Item::Mute(number, scope) => _ = index.mute(number, scope.subject()),
            }
        }
        reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok((table, index))
}

/// What a row says that is kept in memory.
enum Item {
    Device(DeviceNumber, Box<Device>),
    Subscription(DeviceNumber, Subject, TopicName),
    Mute(DeviceNumber, MuteScope),
}

/// Items handed over at once, and how often until the reader waits.
const ITEM_COUNT: usize = 1024;
const READ_AHEAD_COUNT: usize = 8;
/// Pairs of names that are read once.
const NAMES_COUNT_MAX: usize = 1 << 16;

/// Reads all rows and hands over what they say.
struct RowReader<'a> {
    tx: SyncSender<Vec<Item>>,
    items: Vec<Item>,
    damaged_count: &'a mut usize,
}

impl RowReader<'_> {
    fn read(mut self, engine: &Engine, state: &State) -> Result<(), EngineError> {
        engine.scan(Table::Device, Bound::Unbounded, |key, row| {
            self.add(|| {
                let DeviceRow { device, .. } = rows::decode_device(key, row)?;
                let number = rows::decode_number(Table::Device, key, key)?;
                if number.0 >= state.device_next {
                    return Err(EngineError::damaged(Table::Device, key)); // Never given out; the table would grow up to it.
                }
                Ok(Item::Device(number, Box::new(device)))
            })
        })?;
        let mut known: HashMap<Vec<u8>, (Subject, TopicName)> = HashMap::new();
        engine.scan(Table::Subscription, Bound::Unbounded, |key, _| {
            self.add(|| {
                let Some((number, names)) = key.split_first_chunk::<4>() else {
                    return Err(EngineError::damaged(Table::Subscription, key));
                };
                if let Some((subject, topic)) = known.get(names) {
                    let number = DeviceNumber(u32::from_be_bytes(*number));
                    return Ok(Item::Subscription(number, subject.clone(), topic.clone()));
                }
                let (number, subject, topic) = rows::decode_subscription(key)?;
                if known.len() < NAMES_COUNT_MAX {
                    known.insert(names.to_vec(), (subject.clone(), topic.clone()));
                }
                Ok(Item::Subscription(number, subject, topic))
            })
        })?;
        engine.scan(Table::Mute, Bound::Unbounded, |key, _| {
            self.add(|| {
                let mute = rows::decode_mute_key(key).ok_or_else(|| EngineError::damaged(Table::Mute, key))?;
                Ok(Item::Mute(mute.0, mute.1))
            })
        })?;
        let _ = self.tx.send(self.items); // Who takes them waits for the end of this.
        Ok(())
    }

    fn add(&mut self, read: impl FnOnce() -> Result<Item, EngineError>) -> Result<bool, EngineError> {
        let items = &mut self.items;
        leave_out_damaged(self.damaged_count, || {
            items.push(read()?);
            Ok(())
        })?;
        if self.items.len() < ITEM_COUNT {
            return Ok(true);
        }
        Ok(self.tx.send(std::mem::take(&mut self.items)).is_ok())
    }
}

/// Puts a device into the table and into the sets of its traits.
pub(super) fn set(table: &mut DeviceTable, index: &mut Index, number: DeviceNumber, device: Device) {
    index.set_device(number, None, Some(traits(&device)));
    table.set_reserving(number, device);
}

/// A pause that cannot be read holds everything: what it held must not be sent. Resuming everything forgets it.
fn load_brakes(engine: &Engine, damaged_count: &mut usize) -> Result<Brakes, EngineError> {
    let mut brakes = Brakes::default();
    engine.scan(Table::Brake, Bound::Unbounded, |key, row| {
        leave_out_damaged(damaged_count, || {
            let (scope, since) = rows::decode_brake(key, row).inspect_err(|error| {
                error!(%error, "All sending is paused, for a pause cannot be read; `tidings jobs resume everything` ends it");
                Arc::make_mut(&mut brakes.paused).entry(BrakeScope::Everything).or_default();
            })?;
            Arc::make_mut(&mut brakes.paused).insert(scope, since);
            Ok(())
        })
    })?;
    engine.scan(Table::Cancelled, Bound::Unbounded, |key, _| {
        leave_out_damaged(damaged_count, || {
            brakes.cancelled.insert(rows::decode_position(Table::Cancelled, key, key)?);
            Ok(())
        })
    })?;
    Ok(brakes)
}

/// Counts the events for later anew if the first is not the one that the counters say: a version that knows of none has
/// written them meanwhile, and what was accepted is still owed.
fn count_later(engine: &Engine, state: &mut State) -> Result<(), EngineError> {
    let mut first = None;
    let scanned = engine.scan(Table::Later, Bound::Unbounded, |key, _| {
        first = rows::decode_later_key(key);
        Ok::<_, EngineError>(first.is_none())
    });
    match scanned {
        Err(error) if error.is_damage() => {
            error!(%error, "Events for later cannot be counted; the counters are believed");
            return Ok(());
        }
        scanned => scanned?,
    }
    if first == state.later_first {
        return Ok(());
    }
    (state.later_first, state.later_count, state.later_bytes) = (first, 0, 0);
    engine.scan(Table::Later, Bound::Unbounded, |key, row| {
        state.later_count += 1;
        state.later_bytes += row.len() as u64;
        let arrival = rows::decode_later_key(key).map_or(0, |key| key.arrival + 1);
        state.later_arrival = state.later_arrival.max(arrival);
        Ok::<_, EngineError>(true)
    })?;
    warn!(count = state.later_count, "Events for later were counted anew");
    Ok(())
}

fn leave_out_damaged(count: &mut usize, read: impl FnOnce() -> Result<(), EngineError>) -> Result<bool, EngineError> {
    match read() {
        Err(error) if error.is_damage() && *count < DAMAGED_COUNT_MAX => {
            error!(%error, "A damaged row is left out");
            *count += 1;
            Ok(true)
        }
        read => read.map(|()| true),
    }
}
