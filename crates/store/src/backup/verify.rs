//! Whether the rows of a store belong together.
//!
//! Every row is read as the store reads it, and what one row says of another is held against it: names, tokens,
//! subscriptions, mutes and proofs against devices; ids against events; publications against channels; the counters
//! against what they count. Rows come table after table in the order of [`super::KEPT`], once.
//!
//! Memory: 12 bytes for each device, 24 for each event and each idempotency key, a name for each channel. What is held of a name or a token is a
//! hash of 32 bits, so that of 4 billion rows that lead astray one may be missed.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Offset};
use xxhash_rust::xxh3::xxh3_64;

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::engine::STATE_KEY;
use crate::engine::{EngineError, Table};
use crate::events::LaterKey;
use crate::events::rows::EventPlace;
use crate::hash::Hash16;
use crate::imports::ImportProgress;
use crate::meta::{DISPATCHED_KEY, FORMAT_KEY, State};
use crate::rows;

/// Findings that are kept; the others are counted.
const FINDING_COUNT_MAX: usize = 100;
/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 160;

/// Something that does not belong together, or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The table of the row that is to blame.
    pub table: &'static str,
    /// The row's key: numbers and positions in digits, other bytes that are no text escaped. No token and no secret is in
    /// a key.
    pub key: String,
    /// What is wrong with it.
    pub what: String,
}

/// What was found; there are more than are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// The first hundred, those of one table together.
    pub kept: Vec<Finding>,
    /// All of them.
    pub count: u64,
}

impl Findings {
    fn add(&mut self, table: Table, key: &[u8], what: impl Into<String>) {
        self.count += 1;
        if self.kept.len() < FINDING_COUNT_MAX {
            let key = shown(table, key).chars().take(KEY_CHARS_MAX).collect();
            self.kept.push(Finding { table: table.name(), key, what: what.into() });
        }
    }
}

/// A key for people.
fn shown(table: Table, key: &[u8]) -> String {
    let number = key.split_first_chunk().map(|(number, rest)| (u32::from_be_bytes(*number), rest));
    match (table, number) {
        (Table::Device | Table::Block, Some((number, []))) => number.to_string(),
        (Table::Subscription | Table::Mute, Some((number, names))) => {
            let names = names.escape_ascii().to_string().replace("\\x00", " ");
            format!("{number} {names}").trim_end().to_owned()
        }
        (Table::Event | Table::Job | Table::Cancelled | Table::PublishKeyOrder, _) => match key.try_into() {
            Ok(position) => u64::from_be_bytes(position).to_string(),
            Err(_) => key.escape_ascii().to_string(),
        },
        _ => key.escape_ascii().to_string(),
    }
}

/// What is remembered of a device.
struct DeviceNote {
    number: u32,
    id: u32,
    /// That of its token's key; of use if it is in `with_token`.
    token: u32,
}

/// What is remembered of an event, by its place.
struct EventNote<K> {
    place: K,
    id: Hash16,
    is_named: bool,
}

struct ChannelNote {
    row: ChannelRow,
    /// Publications of it.
    found: u64,
}

/// Looks at the rows as they come.
#[derive(Default)]
pub(super) struct Inspector {
    findings: Findings,
    state: Option<State>,
    /// In the order of their numbers, as their rows come.
    devices: Vec<DeviceNote>,
    numbers: RoaringBitmap,
    with_token: RoaringBitmap,
    named: RoaringBitmap,
    token_named: RoaringBitmap,
    /// Keys of the mutes that end, hashed, with when. Taken out by the rows that say so.
    mute_ends: BTreeMap<(u64, u64), u32>,
    /// The end of the last block of numbers.
    block_end: u32,
    events: Vec<EventNote<u64>>,
    event_bytes: u64,
    later: Vec<EventNote<LaterKey>>,
    later_bytes: u64,
    channels: BTreeMap<Box<[u8]>, ChannelNote>,
    /// Idempotency keys by their numbers.
    publish_keys: Vec<(u64, Hash16)>,
}

impl Inspector {
    pub(super) fn row(&mut self, table: Table, key: &[u8], value: &[u8]) {
        let read = match table {
            Table::Meta => self.meta(key, value),
            Table::Device => self.device(key, value),
            Table::DeviceId => self.device_id(key, value),
            Table::Token => self.token(key, value),
            Table::Subscription => self.subscription(key),
            Table::Proven => self.proven(key, value),
            Table::Mute => self.mute(key, value),
            Table::MuteEnd => self.mute_end(key),
            Table::Event => self.event(key, value),
            Table::Later => self.later(key, value),
            Table::EventId => self.event_id(key, value),
            Table::Channel => self.channel(key, value),
            Table::History => self.history(key, value),
            Table::PublishKeyOrder => self.publish_key_order(key, value),
            Table::PublishKey => self.publish_key(key, value),
            Table::Job | Table::Cancelled => self.of_event(table, key),
            Table::Brake => rows::decode_brake(key, value).map(drop),
            Table::Import => rows::decode::<ImportProgress>(table, key, value).map(drop),
            Table::Block => self.block(key, value),
            Table::Change => Ok(()),
        };
        if read.is_err() {
            self.findings.add(table, key, "cannot be read");
        }
    }

    fn meta(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        match key {
            STATE_KEY => self.state = Some(rows::decode(Table::Meta, key, value)?),
            DISPATCHED_KEY => {
                rows::decode_position(Table::Meta, key, value)?;
            }
            FORMAT_KEY if !rows::is_known_format(value) => {
                self.findings.add(Table::Meta, key, "is a format that this version does not know");
            }
            _ => {}
        }
        Ok(())
    }

    fn device(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let DeviceNumber(number) = rows::decode_number(Table::Device, key, key)?;
        let device = rows::decode_device(key, value)?.device;
        let State { device_next, revision, .. } = self.state.unwrap_or_else(unbounded);
        if number >= device_next {
            self.findings.add(
                Table::Device,
                key,
                format!("has a number that was never given: the next is {device_next}"),
            );
        }
        if device.revision > revision {
            self.findings.add(
                Table::Device,
                key,
                format!("has a revision that was never given: the last is {revision}"),
            );
        }
        let token = device.token.as_ref().map(rows::token_key);
        if token.is_some() {
            self.with_token.insert(number);
        }
        self.numbers.insert(number);
        let id = short_hash(rows::device_id_key(&device.id));
        self.devices.push(DeviceNote { number, id, token: token.map_or(0, |key| short_hash(&key)) });
        Ok(())
    }

    fn note(&self, number: u32) -> Option<&DeviceNote> {
        self.devices.binary_search_by_key(&number, |note| note.number).ok().map(|at| &self.devices[at])
    }

    fn device_id(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let DeviceNumber(number) = rows::decode_number(Table::DeviceId, key, value)?;
        match self.note(number).map(|note| note.id == short_hash(key)) {
            Some(true) => _ = self.named.insert(number),
            Some(false) => {
                self.findings.add(Table::DeviceId, key, format!("leads to device {number}, which has another id"))
            }
            None => self.findings.add(Table::DeviceId, key, format!("leads to device {number}, which is not there")),
        }
        Ok(())
    }

    fn token(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let DeviceNumber(number) = rows::decode_number(Table::Token, key, value)?;
        match self.note(number).map(|note| self.with_token.contains(number) && note.token == short_hash(key)) {
            Some(true) => _ = self.token_named.insert(number),
            Some(false) => {
                self.findings.add(Table::Token, key, format!("leads to device {number}, whose token it is not"))
            }
            None => self.findings.add(Table::Token, key, format!("leads to device {number}, which is not there")),
        }
        Ok(())
    }

    fn is_of_device(&mut self, table: Table, key: &[u8], DeviceNumber(number): DeviceNumber) {
        if !self.numbers.contains(number) {
            self.findings.add(table, key, format!("is of device {number}, which is not there"));
        }
    }

    fn subscription(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let (number, _, _) = rows::decode_subscription(key)?;
        self.is_of_device(Table::Subscription, key, number);
        Ok(())
    }

    fn proven(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let (chunk, bits) = rows::decode_proven(key, value)?;
        let numbers = bits.iter().map(|bit| u32::from(chunk) << 16 | bit);
        let stray: RoaringBitmap = numbers.filter(|number| !self.with_token.contains(*number)).collect();
        if let Some(first) = stray.min() {
            let what =
                format!("says of {} devices without a token that it is proven; the first is {first}", stray.len());
            self.findings.add(Table::Proven, key, what);
        }
        Ok(())
    }

    fn mute(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let (number, mute) = rows::decode_mute(key, value)?;
        self.is_of_device(Table::Mute, key, number);
        if let Some(until) = mute.until {
            self.mute_ends.insert((until.0, xxh3_64(key)), number.0);
        }
        Ok(())
    }

    fn mute_end(&mut self, key: &[u8]) -> Result<(), EngineError> {
        let end = rows::decode_mute_end(key).ok_or_else(|| EngineError::damaged(Table::MuteEnd, key))?;
        if self.mute_ends.remove(&(end.0.0, xxh3_64(end.1))).is_none() {
            self.findings.add(Table::MuteEnd, key, "ends a mute that is not there, or ends at another time");
        }
        Ok(())
    }

    fn block(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let (first, block) = rows::decode_block(key, value)?;
        let device_next = self.state.unwrap_or_else(unbounded).device_next;
        let end = first.checked_add(block.length).filter(|end| *end <= device_next && block.length > 0);
        let Some(end) = end.filter(|_| first >= self.block_end) else {
            let what = format!("fits nowhere: the block before ends at {}, all at {device_next}", self.block_end);
            self.findings.add(Table::Block, key, what);
            return Ok(());
        };
        self.block_end = end;
        if let Some(number) = self.numbers.range(first.saturating_add(block.given)..end).next() {
            let what = format!("has given {} numbers, and device {number} behind them lives", block.given);
            self.findings.add(Table::Block, key, what);
        }
        Ok(())
    }

    fn event(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let position = rows::decode_position(Table::Event, key, key)?.0;
        self.event_bytes += value.len() as u64;
        let State { journal_base, journal_end, .. } = self.state.unwrap_or_else(unbounded);
        if !(journal_base..journal_end).contains(&position) {
            let what = format!("is outside of the journal, which is {journal_base} to before {journal_end}");
            self.findings.add(Table::Event, key, what);
        }
        let expected = self.events.last().map_or(journal_base, |last| last.place + 1);
        if position > expected {
            self.findings.add(
                Table::Event,
                key,
                format!("follows a gap: {} events before it are missing", position - expected),
            );
        }
        let id = rows::decode_event_head(key, value)?.id_hash;
        self.events.push(EventNote { place: position, id, is_named: false });
        let event = rows::decode_event(key, value)?.event;
        if crate::hash::hash16(event.id.as_str().as_bytes()) != id {
            self.findings.add(Table::Event, key, "has another id than its head says");
        }
        Ok(())
    }

    fn later(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let place = rows::decode_later_key(key).ok_or_else(|| EngineError::damaged(Table::Later, key))?;
        self.later_bytes += value.len() as u64;
        if place.arrival >= self.state.unwrap_or_else(unbounded).later_arrival {
            self.findings.add(Table::Later, key, "has an arrival that was never given");
        }
        let row = rows::decode_later(place, value)?;
        self.later.push(EventNote { place, id: row.id_hash, is_named: false });
        Ok(())
    }

    fn event_id(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        fn name<K: Ord + Copy>(notes: &mut [EventNote<K>], place: K, id: &[u8]) -> bool {
            let found = notes.binary_search_by_key(&place, |note| note.place).ok();
            let note = found.map(|at| &mut notes[at]).filter(|note| note.id == *id);
            note.map(|note| note.is_named = true).is_some()
        }
        let (place, _) = rows::decode_event_id(key, value)?;
        let is_there = match place {
            EventPlace::Journal(position) => name(&mut self.events, position.0, key),
            EventPlace::Later(place) => name(&mut self.later, place, key),
        };
        if !is_there {
            self.findings.add(Table::EventId, key, "leads to an event that is not there, or has another id");
        }
        Ok(())
    }

    fn channel(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        rows::decode_channel_name(key)?;
        let row: ChannelRow = rows::decode(Table::Channel, key, value)?;
        self.channels.insert(key.into(), ChannelNote { row, found: 0 });
        Ok(())
    }

    fn history(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let offset = rows::decode_history_offset(key)?;
        rows::decode::<HistoryRow>(Table::History, key, value)?;
        let name = key.get(..key.len().saturating_sub(9)).unwrap_or_default(); // Behind it a zero and the offset.
        match self.channels.get_mut(name) {
            Some(ChannelNote { row, found }) if (row.base..=row.top).contains(&offset) => *found += 1,
            Some(_) => self.findings.add(Table::History, key, "is outside of what its channel has"),
            None => self.findings.add(Table::History, key, "is of a channel that is not there"),
        }
        Ok(())
    }

    fn publish_key_order(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let row = key.try_into().map(u64::from_be_bytes).ok().zip(value.try_into().ok());
        let (number, hash) = row.ok_or_else(|| EngineError::damaged(Table::PublishKeyOrder, key))?;
        self.publish_keys.push((number, hash));
        Ok(())
    }

    fn publish_key(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let number = rows::decode_publish_key(key, value)?.number;
        let at = self.publish_keys.binary_search_by_key(&number, |(number, _)| *number);
        if !at.is_ok_and(|at| self.publish_keys[at].1 == *key) {
            self.findings.add(Table::PublishKey, key, "has a number that is not there, or that another key has");
        }
        Ok(())
    }

    /// A row about the event at a position: it may be trimmed by now, but it has been.
    fn of_event(&mut self, table: Table, key: &[u8]) -> Result<(), EngineError> {
        let position = rows::decode_position(table, key, key)?.0;
        let journal_end = self.state.unwrap_or_else(unbounded).journal_end;
        if position >= journal_end {
            self.findings.add(table, key, format!("is of an event that never was: the next is {journal_end}"));
        }
        Ok(())
    }

    /// At the end of the rows: what nothing led to, and whether the counters count right.
    pub(super) fn end(mut self) -> Findings {
        self.unnamed_devices();
        for (_, number) in std::mem::take(&mut self.mute_ends) {
            self.findings.add(Table::Mute, &number.to_be_bytes(), "has a mute that nothing ends at its time");
        }
        let of_journal =
            self.events.iter().map(|note| (Table::Event, note.place.to_be_bytes().to_vec(), note.is_named));
        let of_later =
            self.later.iter().map(|note| (Table::Later, rows::later_key(note.place).to_vec(), note.is_named));
        for (table, key, _) in of_journal.chain(of_later).filter(|(_, _, is_named)| !is_named) {
            self.findings.add(table, &key, "is not found by its id: a repetition would be another event");
        }
        for (name, ChannelNote { row, found }) in &self.channels {
            let expected = (row.top.0 + 1).checked_sub(row.base.0);
            if expected != Some(*found) {
                let Offset(base) = row.base;
                let what = format!("has {found} publications where it says that it has {base} to {}", row.top.0);
                self.findings.add(Table::Channel, name, what);
            }
        }
        match self.state {
            Some(state) => self.counters(&state),
            None => self.findings.add(Table::Meta, STATE_KEY, "is not there"),
        }
        self.findings
    }

    fn unnamed_devices(&mut self) {
        for number in &self.numbers - &self.named {
            self.findings.add(Table::Device, &number.to_be_bytes(), "is not found by its id");
        }
        for number in &self.with_token - &self.token_named {
            self.findings.add(Table::Device, &number.to_be_bytes(), "is not found by its token");
        }
    }

    fn counters(&mut self, state: &State) {
        let journal_count = state.journal_end.saturating_sub(state.journal_base);
        let first = self.later.first().map(|note| note.place);
        let counted = [
            ("events", journal_count, self.events.len() as u64),
            ("bytes of events", state.journal_bytes, self.event_bytes),
            ("events for later", state.later_count, self.later.len() as u64),
            ("bytes of events for later", state.later_bytes, self.later_bytes),
            (
                "idempotency keys",
                state.publish_key_end.saturating_sub(state.publish_key_base),
                self.publish_keys.len() as u64,
            ),
            ("channels", state.channel_count, self.channels.len() as u64),
        ];
        for (what, says, counted) in counted.into_iter().filter(|(_, says, counted)| says != counted) {
            self.findings.add(
                Table::Meta,
                STATE_KEY,
                format!("says that there are {says} {what}; there are {counted}"),
            );
        }
        if state.later_first != first {
            self.findings.add(Table::Meta, STATE_KEY, "says that another event for later is the first");
        }
    }
}

/// Numbers that nothing is beyond: where the counters cannot be read, that alone is to be told.
fn unbounded() -> State {
    let epoch = tidings_types::Epoch::from_random(0);
    State {
        journal_base: 0,
        journal_end: u64::MAX,
        device_next: u32::MAX,
        revision: u64::MAX,
        later_arrival: u64::MAX,
        ..State::empty(epoch)
    }
}

fn short_hash(bytes: &[u8]) -> u32 {
    xxh3_64(bytes) as u32
}
