//! A batch as a record of a log that several nodes share: its rows, and what the sink is told of it.
//!
//! One node makes batches and appends each as a record ([`encode`]) before it commits it. The others read the record
//! ([`decode`]), commit the same rows, and make the same changes in memory. Most [`Effect`]s follow from the rows: those of
//! devices from the row of table `change`, others from their own rows. A publication needs more: its channel's settings are
//! in no row, and a history that is shorter than the batch has deleted its row already.
//!
//! ```text
//! record     version (a byte), number of told effects, the told effects, number of tables, the tables
//! told       kind (a byte), channel, then by kind:
//! published    offset, history_size, history_ttl in ms, flags (a byte): 1 has texts, 2 the publication follows as JSON;
//!              otherwise it is in its row of table `history`
//! removed      offset
//! forgotten    floor
//! table      name, number of rows; each row: key, 0 if it is deleted, else 1 and the value
//! ```
//! Numbers are varints, names and rows have their length in front (`packed.rs`).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tidings_types::{ChannelName, DeviceNumber, Offset, StreamPosition};

use crate::brakes::Brakes;
use crate::channels::rows::HistoryRow;
use crate::channels::{DurableChannel, StoredPublication};
use crate::committer::effect::{Before, Effect};
use crate::engine::{EngineError, Row, Rows, STATE_KEY, Table};
use crate::meta::State;
use crate::packed::{Unpack, put_bytes, put_varint};
use crate::rows::{self, Change, Changes, DeviceRow};

const VERSION: u8 = 1;

// Kinds of told effects.
const PUBLISHED: u8 = 0;
const REMOVED: u8 = 1;
const FORGOTTEN: u8 = 2;

// Flags of a publication.
const HAS_TEXTS: u8 = 1;
const HAS_PUBLICATION: u8 = 2;

/// A batch that another node has made.
pub(crate) struct Record {
    pub(crate) rows: Rows,
    /// As in its row.
    pub(crate) state: State,
    pub(crate) effects: Vec<Effect>,
    /// Changes in the batch's row of table `change`.
    pub(crate) change_count: u64,
}

/// A record is not as this version writes it: its sender is another version, or its log is damaged.
#[derive(Debug, thiserror::Error)]
#[error("a record of the log cannot be read: {0}")]
pub(crate) struct Unreadable(&'static str);

/// The record of a batch with these rows, of which there is at least the state's.
pub(crate) fn encode(rows: &Rows, effects: &[Effect]) -> Vec<u8> {
    let mut record = vec![VERSION];
    let told = || effects.iter().filter(|effect| is_told(effect));
    put_varint(&mut record, told().count() as u64);
    told().for_each(|effect| put_told(&mut record, effect, rows));
    put_varint(&mut record, rows.by_table().count() as u64);
    for (table, rows) in rows.by_table() {
        put_bytes(&mut record, table.name().as_bytes());
        put_varint(&mut record, rows.len() as u64);
        for (key, row) in rows {
            put_bytes(&mut record, key);
            record.push(u8::from(row.is_some()));
            row.iter().for_each(|row| put_bytes(&mut record, row));
        }
    }
    record
}

fn is_told(effect: &Effect) -> bool {
    matches!(effect, Effect::Published { .. } | Effect::HistoryRemoved { .. } | Effect::ChannelForgotten { .. })
}

fn put_told(record: &mut Vec<u8>, effect: &Effect, rows: &Rows) {
    let mut head = |kind: u8, channel: &ChannelName, number: Offset| {
        record.push(kind);
        put_bytes(record, channel.as_str().as_bytes());
        put_varint(record, number.0);
    };
    match effect {
        Effect::Published { channel, position, publication } => {
            head(PUBLISHED, &channel.name, position.offset);
            put_varint(record, u64::from(channel.history_size));
            put_varint(record, u64::try_from(channel.history_ttl.as_millis()).unwrap_or(u64::MAX));
            let has_row = history_row(rows, &channel.name, position.offset).is_some();
            let flags = [(channel.has_texts, HAS_TEXTS), (!has_row, HAS_PUBLICATION)];
            record.push(flags.iter().filter(|(is_so, _)| *is_so).map(|(_, flag)| flag).sum());
            if !has_row {
                put_bytes(record, &rows::encode(publication));
            }
        }
        Effect::HistoryRemoved { channel, until } => head(REMOVED, channel, *until),
        Effect::ChannelForgotten { channel, floor } => head(FORGOTTEN, channel, *floor),
        _ => unreachable!("`is_told` has left it out"),
    }
}

/// The row of a publication, unless the batch has deleted it again.
fn history_row<'r>(rows: &'r Rows, channel: &ChannelName, offset: Offset) -> Option<&'r [u8]> {
    rows.get(Table::History, &rows::history_key(channel, offset)).flatten()
}

/// Reads a record. `brakes` are the pauses and cancelled jobs before it.
pub(crate) fn decode(record: &[u8], brakes: &Arc<Brakes>) -> Result<Record, Unreadable> {
    let mut rest = Unpack(record);
    if rest.byte() != Some(VERSION) {
        return Err(Unreadable("it has another version"));
    }
    let cut_off = || Unreadable("it is cut off or damaged");
    let told_count = rest.varint().ok_or_else(cut_off)?;
    let mut told = Vec::new();
    for _ in 0..told_count {
        told.push(Told::read(&mut rest).ok_or_else(cut_off)?);
    }
    let rows = read_rows(&mut rest).ok_or_else(cut_off)?;
    let state = rows.get(Table::Meta, STATE_KEY).flatten().ok_or(Unreadable("it has no state"))?;
    let state: State = rows::decode(Table::Meta, STATE_KEY, state).map_err(|_| Unreadable("its state is damaged"))?;
    let effects: Result<Vec<_>, _> = told.into_iter().map(|told| told.effect(&rows, &state)).collect();
    let mut effects = effects.map_err(|_| Unreadable("a publication is damaged"))?;
    let change_count = add_changes(&rows, &mut effects).ok_or(Unreadable("a change of a device is damaged"))?;
    add_sets(&rows, brakes, &mut effects).map_err(|_| Unreadable("a row of pauses or proven tokens is damaged"))?;
    Ok(Record { rows, state, effects, change_count })
}

fn read_rows(rest: &mut Unpack<'_>) -> Option<Rows> {
    let mut rows = Rows::default();
    for _ in 0..rest.varint()? {
        let name = rest.text()?;
        let table = Table::ALL.into_iter().find(|table| table.name() == name)?;
        for _ in 0..rest.varint()? {
            let key = rest.bytes()?;
            match rest.byte()? {
                0 => rows.delete(table, key),
                1 => rows.put(table, key, rest.bytes()?),
                _ => return None,
            }
        }
    }
    rows.keep();
    rest.is_empty().then_some(rows)
}

/// A told effect as it is in the record.
struct Told<'a> {
    kind: u8,
    channel: ChannelName,
    number: Offset,
    terms: Option<Terms<'a>>,
}

/// What a record has of a publication.
struct Terms<'a> {
    history_size: u32,
    history_ttl: Duration,
    has_texts: bool,
    publication: Option<&'a [u8]>,
}

impl<'a> Told<'a> {
    fn read(rest: &mut Unpack<'a>) -> Option<Self> {
        let kind = rest.byte().filter(|kind| *kind <= FORGOTTEN)?;
        let channel = ChannelName::new(rest.text()?).ok()?;
        let number = Offset(rest.varint()?);
        let terms = if kind == PUBLISHED { Some(Terms::read(rest)?) } else { None };
        Some(Self { kind, channel, number, terms })
    }

    fn effect(self, rows: &Rows, state: &State) -> Result<Effect, EngineError> {
        let Self { kind, channel: name, number, terms } = self;
        let Some(Terms { history_size, history_ttl, has_texts, publication }) = terms else {
            return Ok(match kind {
                REMOVED => Effect::HistoryRemoved { channel: name, until: number },
                _ => Effect::ChannelForgotten { channel: name, floor: number },
            });
        };
        let key = rows::history_key(&name, number);
        let publication: StoredPublication = match publication {
            Some(json) => rows::decode(Table::History, &key, json)?,
            None => {
                let row = history_row(rows, &name, number).ok_or_else(|| EngineError::damaged(Table::History, &key))?;
                rows::decode::<HistoryRow>(Table::History, &key, row)?.publication
            }
        };
        let position = StreamPosition { offset: number, epoch: state.epoch };
        let channel = DurableChannel { name, history_size, history_ttl, has_texts };
        Ok(Effect::Published { channel, position, publication })
    }
}

impl<'a> Terms<'a> {
    fn read(rest: &mut Unpack<'a>) -> Option<Self> {
        let (history_size, history_ttl) = (rest.varint_u32()?, Duration::from_millis(rest.varint()?));
        let flags = rest.byte().filter(|flags| flags & !(HAS_TEXTS | HAS_PUBLICATION) == 0)?;
        let publication = if flags & HAS_PUBLICATION == 0 { None } else { Some(rest.bytes()?) };
        Some(Self { history_size, history_ttl, has_texts: flags & HAS_TEXTS != 0, publication })
    }
}

/// Adds what the row of table `change` says, and returns the number of its changes.
///
/// The row does not have the data of a device, and its own row has only the last. So a device first leaves the sets of the
/// traits that it had before, then it gets its last data, at each of its changes.
fn add_changes(rows: &Rows, effects: &mut Vec<Effect>) -> Option<u64> {
    let Some(row) = rows.of(Table::Change).values().flatten().next() else { return Some(0) };
    let changes: Vec<(DeviceNumber, Change)> = Changes::new(row).collect::<Option<_>>()?;
    let of_devices = |change: &Change| matches!(change, Change::Device { .. } | Change::Forgotten);
    let places = changes.iter().enumerate().filter(|(_, (_, change))| of_devices(change));
    let last: HashMap<DeviceNumber, usize> = places.map(|(place, (number, _))| (*number, place)).collect();
    let count = changes.len() as u64;
    for (place, (number, change)) in changes.into_iter().enumerate() {
        let is_last = last.get(&number) == Some(&place);
        match change {
            Change::Device { before } => {
                effects.extend(before.map(|traits| Effect::TraitsLeft { number, traits }));
                match device(rows, number)? {
                    Some(device) => effects.push(Effect::DeviceSet { number, device, before: Before::Nothing }),
                    None if is_last => effects.push(Effect::DeviceRemoved { number, before: Before::Nothing }),
                    None => {}
                }
            }
            Change::Forgotten => effects.push(Effect::DeviceRemoved { number, before: Before::Unknown }),
            Change::Subscription { subject, topic, is_there: true } => {
                effects.push(Effect::Subscribed { number, subject, topic });
            }
            Change::Subscription { subject, topic, is_there: false } => {
                effects.push(Effect::Unsubscribed { number, subject, topic });
            }
            Change::Mute { subject, is_there: true } => effects.push(Effect::Muted { number, subject }),
            Change::Mute { subject, is_there: false } => effects.push(Effect::Unmuted { number, subject }),
        }
    }
    Some(count)
}

/// The device as the batch leaves it; the inner `None`: it is deleted.
fn device(rows: &Rows, number: DeviceNumber) -> Option<Option<tidings_types::Device>> {
    let key = rows::number_key(number);
    match rows.get(Table::Device, &key)? {
        Some(row) => rows::decode_device(&key, row).ok().map(|DeviceRow { device, .. }| Some(device)),
        None => Some(None),
    }
}

/// Adds the new chunks of proven tokens, and the new pauses and cancelled jobs.
fn add_sets(rows: &Rows, brakes: &Arc<Brakes>, effects: &mut Vec<Effect>) -> Result<(), EngineError> {
    for (key, row) in rows.of(Table::Proven) {
        let (chunk, bits) = rows::decode_proven(key, row.as_deref().unwrap_or_default())?;
        effects.push(Effect::Proven { chunk, bits });
    }
    let (paused, cancelled) = (rows.of(Table::Brake), rows.of(Table::Cancelled));
    if paused.is_empty() && cancelled.is_empty() {
        return Ok(());
    }
    let mut brakes = Brakes::clone(brakes);
    pause(paused, &mut brakes)?;
    for (key, row) in cancelled {
        let position = rows::decode_position(Table::Cancelled, key, key)?;
        match row {
            Some(_) => brakes.cancelled.insert(position),
            None => brakes.cancelled.remove(position),
        }
    }
    effects.push(Effect::Braked(Arc::new(brakes)));
    Ok(())
}

fn pause(rows: &BTreeMap<Vec<u8>, Row>, brakes: &mut Brakes) -> Result<(), EngineError> {
    let paused = Arc::make_mut(&mut brakes.paused);
    for (key, row) in rows {
        match row {
            Some(row) => {
                let (scope, since) = rows::decode_brake(key, row)?;
                paused.insert(scope, since);
            }
            None => {
                // A key that cannot be read is that of a damaged pause, which is deleted.
                let scope = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok());
                scope.map(|scope| paused.remove(&scope));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tidings_types::{AppId, Epoch, Locale, Platform, Subject, TopicName};

    use super::*;
    use crate::rows::{ChangeWriter, KnownTraits};

    fn traits(app: &str) -> KnownTraits {
        let (app, locale) = (AppId::new(app).unwrap(), Locale::new("sv").unwrap());
        KnownTraits { platform: Platform::Ios, app, locale, country: None, user: None }
    }

    /// A batch that has changed the traits of device 7 and then removed it, and has a subscription of device 8.
    fn batch() -> Rows {
        let mut changes = ChangeWriter::default();
        changes.device(DeviceNumber(7), Some(traits("one").get()));
        let (subject, topic) = (Subject::new("team:1").unwrap(), TopicName::new("goal").unwrap());
        changes.subscription(DeviceNumber(8), &subject, &topic, true);
        changes.device(DeviceNumber(7), Some(traits("two").get()));
        let mut rows = Rows::default();
        rows.put(Table::Meta, STATE_KEY, rows::encode(&State::empty(Epoch::from_random(1))));
        rows.put(Table::Change, rows::change_key(0), changes.finish().0);
        rows.delete(Table::Device, rows::number_key(DeviceNumber(7)));
        rows
    }

    #[test]
    fn a_device_that_is_removed_leaves_all_its_sets_and_is_told_once() {
        let Record { effects, change_count, .. } = decode(&encode(&batch(), &[]), &Arc::default()).unwrap();
        let left = |effect: &Effect| match effect {
            Effect::TraitsLeft { number: DeviceNumber(7), traits } => Some(traits.app.as_str().to_owned()),
            _ => None,
        };
        assert_eq!(effects.iter().filter_map(left).collect::<Vec<_>>(), ["one", "two"]);
        let removed = |effect: &&Effect| matches!(effect, Effect::DeviceRemoved { number: DeviceNumber(7), .. });
        assert_eq!((effects.iter().filter(removed).count(), effects.len(), change_count), (1, 4, 3));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in any::<prop::sample::Index>()) {
            let mut record = encode(&batch(), &[]);
            let at = at.index(record.len());
            record[at] = byte;
            let _ = decode(&record, &Arc::default()); // It may be right by chance.
            prop_assert!(decode(&record[..cut.index(record.len())], &Arc::default()).is_err());
        }
    }
}
