//! How rows are spelt. Numbers in keys are big-endian, so that the order of keys is the order of numbers. Names hold no
//! zero byte (types: visible ASCII), so a zero byte ends a name in a key.
//!
//! ```text
//! meta          "format" → text, "state" → State, "dispatched" → position
//! event         position → accepted_at u64, hash16 of id, JSON {published, audience_max?, event}
//! event_id      hash16 of id → position u64, hash32 of content; while the event is in `later`, its key instead of a position
//! later         at u64, arrival u64 → hash16 of id, JSON {accepted_at, channels, audience_max?, event}
//! channel       name → ChannelRow
//! history       name 0 offset → HistoryRow
//! job           position → bytes of the sender
//! brake         scope → paused at u64
//! cancelled     position → nothing
//! device        number u32 → DeviceRow (`rows/device.rs`)
//! device_id     id → number u32
//! token         hash16 of token (`token_key`) → number u32
//! subscription  number u32, subject 0 topic → nothing
//! block         first number u32 → group, length, numbers given (`rows/block.rs`)
//! change        number u64 → what one batch changed of what the checkpoint holds
//! proven        upper 16 bits of numbers → Roaring set of the lower 16
//! mute          number u32, subject or nothing → until u64, 0 for never
//! mute_end      until u64, key of the mute → nothing
//! import        name → ImportProgress
//! ```

use roaring::RoaringBitmap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tidings_types::{
    BrakeScope, ChannelName, DeviceId, DeviceNumber, DeviceToken, Epoch, Event, JournalPosition, Offset, Provider,
    StreamPosition, Subject, Timestamp, TopicName,
};

pub(crate) use crate::engine::STATE_KEY;
use crate::engine::{EngineError, Table};
use crate::events::{AcceptedEvent, DurableChannel, LaterEvent, LaterKey, StoredPublication};
use crate::hash::{Hash16, Hash32, hash16};
use crate::message::PreparedEvent;

pub(crate) use crate::blocks::rows::{block_key, block_row, decode_block};
pub(crate) use crate::checkpoint::change::{Change, ChangeWriter, Changes};
pub(crate) use crate::devices::rows::device::{DeviceRow, decode_device, encode_device};
pub(crate) use crate::mutes::rows::{decode_mute, decode_mute_end, decode_mute_key, mute_end_key, mute_key, mute_row};

/// What `meta/format` says.
pub(crate) const FORMAT: &str = "tidings-store-4";
/// The formats before, which are read too. Rows tell themselves of which they are, and stay as they are until they change, so
/// that a store has rows of several: no channel is given back in 3; texts of tokens are not packed in 2; devices are JSON in 1, and
/// there is no `change`.
const FORMATS_BEFORE: [&str; 3] = ["tidings-store-3", "tidings-store-2", "tidings-store-1"];

/// Whether stores of this format are read; any other is refused at open.
pub(crate) fn is_known_format(format: &[u8]) -> bool {
    [FORMAT].iter().chain(&FORMATS_BEFORE).any(|known| known.as_bytes() == format)
}

pub(crate) const FORMAT_KEY: &[u8] = b"format";
pub(crate) const DISPATCHED_KEY: &[u8] = b"dispatched";

/// The committer's own counters; written in every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Number of the batch that wrote this row: tells after a failure whether that batch is durable.
    pub(crate) commit: u64,
    /// The oldest event that is kept.
    pub(crate) journal_base: u64,
    /// The position of the next event.
    pub(crate) journal_end: u64,
    /// Bytes of the event rows kept.
    pub(crate) journal_bytes: u64,
    /// The number of the next new device.
    pub(crate) device_next: u32,
    /// Rows of `channel`.
    pub(crate) channel_count: u64,
    /// The life of all durable channels: that of the store.
    pub(crate) epoch: Epoch,
    /// No channel that was given back has a publication behind this: here a channel begins that is not there.
    #[serde(default)]
    pub(crate) channel_floor: Offset,
    /// The number of the oldest row of `change`, and of the next one; the bytes of those kept.
    #[serde(default)]
    pub(crate) change_base: u64,
    #[serde(default)]
    pub(crate) change_end: u64,
    #[serde(default)]
    pub(crate) change_bytes: u64,
    /// The latest revision of any device.
    #[serde(default)]
    pub(crate) revision: u64,
    /// The last part of the next later event's key.
    #[serde(default)]
    pub(crate) later_arrival: u64,
    /// Rows of `later`, and their bytes.
    #[serde(default)]
    pub(crate) later_count: u64,
    #[serde(default)]
    pub(crate) later_bytes: u64,
    /// The first key of `later`.
    #[serde(default)]
    pub(crate) later_first: Option<LaterKey>,
}

impl State {
    /// That of a store without anything: the first event gets position 1, so that 0 is before all.
    pub(crate) const fn empty(epoch: Epoch) -> Self {
        Self {
            commit: 0,
            journal_base: 1,
            journal_end: 1,
            journal_bytes: 0,
            device_next: 0,
            channel_count: 0,
            epoch,
            channel_floor: Offset(0),
            change_base: 0,
            change_end: 0,
            change_bytes: 0,
            revision: 0,
            later_arrival: 0,
            later_count: 0,
            later_bytes: 0,
            later_first: None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChannelRow {
    /// The last publication's offset; 0 before the first, of a row that keeps room for an event that is not yet due.
    pub(crate) top: Offset,
    /// The oldest publication kept; `top` + 1 when none is.
    pub(crate) base: Offset,
    /// When the last publication was added, or is due if that is later.
    pub(crate) published_at: Timestamp,
}

impl ChannelRow {
    /// For a channel of which nobody knows which offsets it gave out: behind them all, unless it had more than one publication a
    /// millisecond ever since 1970.
    pub(crate) fn behind_all(floor: Offset, now: Timestamp) -> Self {
        let top = Offset(floor.0.saturating_add(now.as_millis()));
        Self { top, base: top.next(), published_at: now }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HistoryRow {
    pub(crate) expires_at: Timestamp,
    pub(crate) publication: StoredPublication,
}

pub(crate) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    serde_json::to_vec(row).expect("our rows have string keys")
}

/// Reads a row in JSON; `key` is for the error only, here and below.
pub(crate) fn decode<T: DeserializeOwned>(table: Table, key: &[u8], row: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(row).map_err(|_| EngineError::damaged(table, key))
}

pub(crate) fn position_key(position: JournalPosition) -> [u8; 8] {
    position.0.to_be_bytes()
}

pub(crate) fn decode_position(table: Table, key: &[u8], bytes: &[u8]) -> Result<JournalPosition, EngineError> {
    let bytes = bytes.try_into().map_err(|_| EngineError::damaged(table, key))?;
    Ok(JournalPosition(u64::from_be_bytes(bytes)))
}

pub(crate) fn change_key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

pub(crate) fn number_key(number: DeviceNumber) -> [u8; 4] {
    number.0.to_be_bytes()
}

pub(crate) fn decode_number(table: Table, key: &[u8], bytes: &[u8]) -> Result<DeviceNumber, EngineError> {
    let bytes = bytes.try_into().map_err(|_| EngineError::damaged(table, key))?;
    Ok(DeviceNumber(u32::from_be_bytes(bytes)))
}

pub(crate) fn device_id_key(id: &DeviceId) -> &[u8] {
    id.as_str().as_bytes()
}

/// An APNs token may be spelt like the identity of another provider's token: such a one gets a key apart, or whoever
/// registers it takes a stranger's token away.
pub(crate) fn token_key(token: &DeviceToken) -> Hash16 {
    const PREFIXES: [&[u8]; 3] = [b"apns\0", b"fcm\0", b"web_push\0"];
    let identity = token.identity();
    if token.provider() == Provider::Apns && PREFIXES.iter().any(|prefix| identity.starts_with(prefix)) {
        return hash16(&[PREFIXES[0], &identity].concat());
    }
    hash16(&identity)
}

/// The head of an event row: what trimming needs without reading the JSON behind it.
pub(crate) struct EventHead {
    pub(crate) accepted_at: Timestamp,
    pub(crate) id_hash: Hash16,
}

const EVENT_HEAD_BYTES: usize = 24;

/// The JSON behind the head. The event's own JSON is spliced in as the caller's task made it.
pub(crate) fn event_row(
    head: &EventHead,
    published: &[(ChannelName, StreamPosition)],
    audience_max: Option<u64>,
    event_json: &[u8],
) -> Vec<u8> {
    let mut row = Vec::with_capacity(EVENT_HEAD_BYTES + event_json.len() + 96 + 320 * published.len());
    row.extend_from_slice(&head.accepted_at.0.to_be_bytes());
    row.extend_from_slice(&head.id_hash);
    row.extend_from_slice(b"{\"published\":");
    serde_json::to_writer(&mut row, published).expect("names and positions are JSON");
    push_rest(&mut row, audience_max, event_json);
    row
}

/// The fields with which the JSON of an event's row ends.
fn push_rest(row: &mut Vec<u8>, audience_max: Option<u64>, event_json: &[u8]) {
    if let Some(max) = audience_max {
        row.extend_from_slice(format!(",\"audience_max\":{max}").as_bytes());
    }
    row.extend_from_slice(b",\"event\":");
    row.extend_from_slice(event_json);
    row.push(b'}');
}

pub(crate) fn decode_event_head(key: &[u8], row: &[u8]) -> Result<EventHead, EngineError> {
    let head = row.first_chunk::<EVENT_HEAD_BYTES>().ok_or_else(|| EngineError::damaged(Table::Event, key))?;
    let (accepted_at, id_hash) = head.split_at(8);
    Ok(EventHead {
        accepted_at: Timestamp(u64::from_be_bytes(accepted_at.try_into().expect("8 of 24 bytes"))),
        id_hash: id_hash.try_into().expect("16 of 24 bytes"),
    })
}

pub(crate) fn decode_event(key: &[u8], row: &[u8]) -> Result<AcceptedEvent, EngineError> {
    #[derive(Deserialize)]
    struct Body {
        published: Vec<(ChannelName, StreamPosition)>,
        #[serde(default)]
        audience_max: Option<u64>,
        event: Event,
    }
    let accepted_at = decode_event_head(key, row)?.accepted_at;
    let Body { published, audience_max, event } = decode(Table::Event, key, &row[EVENT_HEAD_BYTES..])?;
    Ok(AcceptedEvent { accepted_at, published, audience_max, event })
}

pub(crate) fn later_key(key: LaterKey) -> [u8; 16] {
    (u128::from(key.at.0) << 64 | u128::from(key.arrival)).to_be_bytes()
}

pub(crate) fn decode_later_key(bytes: &[u8]) -> Option<LaterKey> {
    let key = u128::from_be_bytes(bytes.try_into().ok()?);
    Some(LaterKey { at: Timestamp((key >> 64) as u64), arrival: key as u64 })
}

const LATER_HEAD_BYTES: usize = 16;

pub(crate) fn later_row(event: &PreparedEvent, accepted_at: Timestamp) -> Vec<u8> {
    let mut row = Vec::with_capacity(LATER_HEAD_BYTES + event.json.len() + 128 + 320 * event.channels.len());
    row.extend_from_slice(&event.id_hash);
    row.extend_from_slice(format!("{{\"accepted_at\":{},\"channels\":", accepted_at.0).as_bytes());
    serde_json::to_writer(&mut row, &event.channels).expect("names and numbers are JSON");
    push_rest(&mut row, event.audience_max, &event.json);
    row
}

/// The head of a later event's row: what is to be forgotten with it.
pub(crate) fn later_id_hash(row: &[u8]) -> Option<Hash16> {
    row.first_chunk::<LATER_HEAD_BYTES>().copied()
}

/// A later event with what is needed to append it.
pub(crate) struct LaterRow<'a> {
    pub(crate) id_hash: Hash16,
    /// The event as its caller's task spelt it.
    pub(crate) json: &'a str,
    pub(crate) channels: Vec<DurableChannel>,
    pub(crate) later: LaterEvent,
}

pub(crate) fn decode_later(key: LaterKey, row: &[u8]) -> Result<LaterRow<'_>, EngineError> {
    #[derive(Deserialize)]
    struct Body<'a> {
        accepted_at: Timestamp,
        channels: Vec<DurableChannel>,
        #[serde(default)]
        audience_max: Option<u64>,
        #[serde(borrow)]
        event: &'a RawValue,
    }
    let damaged = || EngineError::damaged(Table::Later, &later_key(key));
    let id_hash = later_id_hash(row).ok_or_else(damaged)?;
    let body: Body<'_> = serde_json::from_slice(&row[LATER_HEAD_BYTES..]).map_err(|_| damaged())?;
    let Body { accepted_at, channels, audience_max, event } = body;
    let json = event.get();
    let event: Event = serde_json::from_str(json).map_err(|_| damaged())?;
    if id_hash != hash16(event.id.as_str().as_bytes()) {
        return Err(damaged()); // One of the two is not what it was: under a wrong id a retry would be another event.
    }
    Ok(LaterRow { id_hash, json, channels, later: LaterEvent { key, accepted_at, audience_max, event } })
}

/// Where an event is that an id belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventPlace {
    Journal(JournalPosition),
    Later(LaterKey),
}

/// What is remembered of an id: the event's place and the hash of its content.
pub(crate) fn event_id_row(position: JournalPosition, content: &Hash32) -> [u8; 40] {
    let mut row = [0; 40];
    row[..8].copy_from_slice(&position.0.to_be_bytes());
    row[8..].copy_from_slice(content);
    row
}

/// The same while the event is not in the journal yet.
pub(crate) fn later_id_row(key: LaterKey, content: &Hash32) -> [u8; 48] {
    let mut row = [0; 48];
    row[..16].copy_from_slice(&later_key(key));
    row[16..].copy_from_slice(content);
    row
}

pub(crate) fn decode_event_id(key: &[u8], row: &[u8]) -> Result<(EventPlace, Hash32), EngineError> {
    let damaged = || EngineError::damaged(Table::EventId, key);
    let (place, content) = row.split_last_chunk::<32>().ok_or_else(damaged)?;
    let place = match (place.try_into().map(u64::from_be_bytes), decode_later_key(place)) {
        (Ok(position), _) => EventPlace::Journal(JournalPosition(position)),
        (Err(_), Some(key)) => EventPlace::Later(key),
        (Err(_), None) => return Err(damaged()),
    };
    Ok((place, *content))
}

pub(crate) fn history_prefix(channel: &ChannelName) -> Vec<u8> {
    [channel.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn history_key(channel: &ChannelName, offset: Offset) -> Vec<u8> {
    [channel.as_str().as_bytes(), &[0], &offset.0.to_be_bytes()].concat()
}

pub(crate) fn decode_history_offset(key: &[u8]) -> Result<Offset, EngineError> {
    let offset = key.last_chunk::<8>().ok_or_else(|| EngineError::damaged(Table::History, key))?;
    Ok(Offset(u64::from_be_bytes(*offset)))
}

pub(crate) fn decode_channel_name(key: &[u8]) -> Result<ChannelName, EngineError> {
    let name = std::str::from_utf8(key).ok().and_then(|name| ChannelName::new(name).ok());
    name.ok_or_else(|| EngineError::damaged(Table::Channel, key))
}

pub(crate) fn subscription_key(number: DeviceNumber, subject: &Subject, topic: &TopicName) -> Vec<u8> {
    [&number_key(number), subject.as_str().as_bytes(), &[0], topic.as_str().as_bytes()].concat()
}

pub(crate) fn subject_prefix(number: DeviceNumber, subject: &Subject) -> Vec<u8> {
    [&number_key(number), subject.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn decode_subscription(key: &[u8]) -> Result<(DeviceNumber, Subject, TopicName), EngineError> {
    fn parse(key: &[u8]) -> Option<(DeviceNumber, Subject, TopicName)> {
        let (number, names) = key.split_first_chunk::<4>()?;
        let (subject, topic) = std::str::from_utf8(names).ok()?.split_once('\0')?;
        let number = DeviceNumber(u32::from_be_bytes(*number));
        Some((number, Subject::new(subject).ok()?, TopicName::new(topic).ok()?))
    }
    parse(key).ok_or_else(|| EngineError::damaged(Table::Subscription, key))
}

pub(crate) fn decode_brake(key: &[u8], row: &[u8]) -> Result<(BrakeScope, Timestamp), EngineError> {
    let damaged = || EngineError::damaged(Table::Brake, key);
    let scope = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
    let since = row.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
    Ok((scope, Timestamp(since)))
}

pub(crate) fn proven_key(chunk: u16) -> [u8; 2] {
    chunk.to_be_bytes()
}

pub(crate) fn proven_row(bits: &RoaringBitmap) -> Vec<u8> {
    let mut row = Vec::with_capacity(bits.serialized_size());
    bits.serialize_into(&mut row).expect("a vector takes all that is written into it");
    row
}

pub(crate) fn decode_proven(key: &[u8], row: &[u8]) -> Result<(u16, RoaringBitmap), EngineError> {
    let damaged = || EngineError::damaged(Table::Proven, key);
    let chunk = key.try_into().map(u16::from_be_bytes).map_err(|_| damaged())?;
    let bits = RoaringBitmap::deserialize_from(row).map_err(|_| damaged())?;
    let is_ours = bits.max().is_none_or(|last| last <= u32::from(u16::MAX));
    is_ours.then_some((chunk, bits)).ok_or_else(damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_key_reads_back() {
        let (subject, topic) = (Subject::new("team:42").unwrap(), TopicName::new("goal").unwrap());
        let key = subscription_key(DeviceNumber(0x0100), &subject, &topic);
        assert!(key.starts_with(&subject_prefix(DeviceNumber(0x0100), &subject)));
        assert!(key.starts_with(&number_key(DeviceNumber(0x0100))));
        assert_eq!(decode_subscription(&key).unwrap(), (DeviceNumber(0x0100), subject, topic));
        assert!(decode_subscription(b"\0\0\0\x01team:42").is_err());
    }

    #[test]
    fn a_channel_whose_name_begins_like_another_has_other_history_keys() {
        let (short, long) = (ChannelName::new("a").unwrap(), ChannelName::new("ab").unwrap());
        assert!(!history_key(&long, Offset(1)).starts_with(&history_prefix(&short)));
        assert_eq!(decode_history_offset(&history_key(&long, Offset(7))).unwrap(), Offset(7));
    }
}
