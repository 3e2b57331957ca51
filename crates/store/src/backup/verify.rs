//! Checks whether the rows of a store contradict each other.
//!
//! Every row is decoded as the store does it, and compared with the rows to which it refers: ids, tokens, subscriptions,
//! mutes and proven tokens with devices; event ids with events; publications with channels; counters with the counted rows.
//! The rows come once, table after table, in the order of [`super::KEPT`].
//!
//! Memory: 12 bytes per device, 24 per event and idempotency key, a name per channel. Ids and tokens are held as hashes of
//! 32 bits, so of 4 billion wrong references one may be missed.

use std::collections::BTreeMap;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Offset};
use xxhash_rust::xxh3::xxh3_64;

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::engine::STATE_KEY;
use crate::engine::{EngineError, Table};
use crate::events::LaterKey;
use crate::events::rows::EventPlace;
use crate::feeds::FeedState;
use crate::hash::Hash16;
use crate::imports::ImportProgress;
use crate::meta::{DISPATCHED_KEY, FORMAT_KEY, State};
use crate::rows;

/// Findings that are kept; further ones are only counted.
const FINDING_COUNT_MAX: usize = 100;
/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 160;

/// A row that contradicts another one or cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The table of the row.
    pub table: &'static str,
    /// The row's key: numbers and positions in digits, other bytes that are not text escaped. A key has no token and no
    /// secret.
    pub key: String,
    /// The problem.
    pub what: String,
}

/// The findings of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// The first hundred, in the order of the tables.
    pub kept: Vec<Finding>,
    /// The number of all findings.
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

/// A key as text for people.
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

/// A device and the hashes of its id and its token.
struct DeviceNote {
    number: u32,
    id: u32,
    /// Only valid if the device is in `with_token`.
    token: u32,
}

/// An event, by its key in the journal or in `later`.
struct EventNote<K> {
    place: K,
    id: Hash16,
    /// A row of table `event_id` refers to it.
    is_named: bool,
}

struct ChannelNote {
    row: ChannelRow,
    /// The count of its publications.
    found: u64,
}

/// Checks the rows one after the other.
#[derive(Default)]
pub(super) struct Inspector {
    findings: Findings,
    state: Option<State>,
    /// In the order of their numbers, as their rows come.
    devices: Vec<DeviceNote>,
    numbers: RoaringBitmap,
    with_token: RoaringBitmap,
    /// Devices to which a row of `device_id` refers.
    named: RoaringBitmap,
    /// Devices to which a row of `token` refers.
    token_named: RoaringBitmap,
    /// The ends and hashed keys of mutes with an end, and their devices. The rows of `mute_end` remove them.
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
            Table::Feed => rows::decode::<FeedState>(table, key, value).map(drop),
            Table::FeedEntry => rows::decode_feed_entry(key, value).map(drop),
            Table::Block => self.block(key, value),
            Table::ChannelDue => rows::decode_channel_due(key).map(drop), // The store itself mends what is missing.
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
                self.findings.add(Table::Meta, key, "is an unknown format");
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
                self.findings.add(Table::DeviceId, key, format!("refers to device {number}, which has another id"))
            }
            None => self.findings.add(Table::DeviceId, key, format!("refers to device {number}, which does not exist")),
        }
        Ok(())
    }

    fn token(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let DeviceNumber(number) = rows::decode_number(Table::Token, key, value)?;
        match self.note(number).map(|note| self.with_token.contains(number) && note.token == short_hash(key)) {
            Some(true) => _ = self.token_named.insert(number),
            Some(false) => {
                self.findings.add(Table::Token, key, format!("refers to device {number}, which has another token"))
            }
            None => self.findings.add(Table::Token, key, format!("refers to device {number}, which does not exist")),
        }
        Ok(())
    }

    fn is_of_device(&mut self, table: Table, key: &[u8], DeviceNumber(number): DeviceNumber) {
        if !self.numbers.contains(number) {
            self.findings.add(table, key, format!("belongs to device {number}, which does not exist"));
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
            let what = format!("has {} devices without a token; the first is {first}", stray.len());
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
            self.findings.add(Table::MuteEnd, key, "refers to a mute that does not exist or has another end");
        }
        Ok(())
    }

    fn block(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let (first, block) = rows::decode_block(key, value)?;
        let device_next = self.state.unwrap_or_else(unbounded).device_next;
        let end = first.checked_add(block.length).filter(|end| *end <= device_next && block.length > 0);
        let Some(end) = end.filter(|_| first >= self.block_end) else {
            let what =
                format!("does not fit: the block before it ends at {}, and all end at {device_next}", self.block_end);
            self.findings.add(Table::Block, key, what);
            return Ok(());
        };
        self.block_end = end;
        if let Some(number) = self.numbers.range(first.saturating_add(block.given)..end).next() {
            let what = format!("has given {} numbers, but device {number} behind them exists", block.given);
            self.findings.add(Table::Block, key, what);
        }
        Ok(())
    }

    fn event(&mut self, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        let position = rows::decode_position(Table::Event, key, key)?.0;
        self.event_bytes += value.len() as u64;
        let State { journal_base, journal_end, .. } = self.state.unwrap_or_else(unbounded);
        if !(journal_base..journal_end).contains(&position) {
            let what =
                format!("is outside of the journal, which begins at {journal_base} and ends before {journal_end}");
            self.findings.add(Table::Event, key, what);
        }
        let expected = self.events.last().map_or(journal_base, |last| last.place + 1);
        if position > expected {
            self.findings.add(Table::Event, key, format!("{} events before it are missing", position - expected));
        }
        let id = rows::decode_event_head(key, value)?.id_hash;
        self.events.push(EventNote { place: position, id, is_named: false });
        let event = rows::decode_event(key, value)?.event;
        if crate::hash::hash16(event.id.as_str().as_bytes()) != id {
            self.findings.add(Table::Event, key, "has another id than its head");
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
            self.findings.add(Table::EventId, key, "refers to an event that does not exist or has another id");
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
        let name = key.get(..key.len().saturating_sub(9)).unwrap_or_default(); // Without the zero byte and the offset.
        match self.channels.get_mut(name) {
            Some(ChannelNote { row, found }) if (row.base..=row.top).contains(&offset) => *found += 1,
            Some(_) => self.findings.add(Table::History, key, "is outside of its channel's history"),
            None => self.findings.add(Table::History, key, "belongs to a channel that does not exist"),
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
            self.findings.add(Table::PublishKey, key, "has a number that does not exist or belongs to another key");
        }
        Ok(())
    }

    /// A row about an event. The event may have been trimmed, but its position must have been used.
    fn of_event(&mut self, table: Table, key: &[u8]) -> Result<(), EngineError> {
        let position = rows::decode_position(table, key, key)?.0;
        let journal_end = self.state.unwrap_or_else(unbounded).journal_end;
        if position >= journal_end {
            let what = format!("belongs to an event that was never accepted: the next is {journal_end}");
            self.findings.add(table, key, what);
        }
        Ok(())
    }

    /// To be called after the last row. Finds rows to which no other row refers, and wrong counters.
    pub(super) fn end(mut self) -> Findings {
        self.unnamed_devices();
        for (_, number) in std::mem::take(&mut self.mute_ends) {
            self.findings.add(Table::Mute, &number.to_be_bytes(), "has a mute that will not end at its time");
        }
        let of_journal =
            self.events.iter().map(|note| (Table::Event, note.place.to_be_bytes().to_vec(), note.is_named));
        let of_later =
            self.later.iter().map(|note| (Table::Later, rows::later_key(note.place).to_vec(), note.is_named));
        for (table, key, _) in of_journal.chain(of_later).filter(|(_, _, is_named)| !is_named) {
            self.findings.add(table, &key, "is not found by its id: a repeat would count as a new event");
        }
        for (name, ChannelNote { row, found }) in &self.channels {
            let expected = (row.top.0 + 1).checked_sub(row.base.0);
            if expected != Some(*found) {
                let Offset(base) = row.base;
                let what = format!("has {found} publications, but should have those from {base} to {}", row.top.0);
                self.findings.add(Table::Channel, name, what);
            }
        }
        match self.state {
            Some(state) => self.counters(&state),
            None => self.findings.add(Table::Meta, STATE_KEY, "does not exist"),
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
            ("scheduled events", state.later_count, self.later.len() as u64),
            ("bytes of scheduled events", state.later_bytes, self.later_bytes),
            (
                "idempotency keys",
                state.publish_key_end.saturating_sub(state.publish_key_base),
                self.publish_keys.len() as u64,
            ),
            ("channels", state.channel_count, self.channels.len() as u64),
        ];
        for (what, says, counted) in counted.into_iter().filter(|(_, says, counted)| says != counted) {
            self.findings.add(Table::Meta, STATE_KEY, format!("counts {says} {what}, but there are {counted}"));
        }
        if state.later_first != first {
            self.findings.add(Table::Meta, STATE_KEY, "names another event as the first scheduled one");
        }
    }
}

/// Counters that allow everything, so that unreadable counters are the only finding.
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
