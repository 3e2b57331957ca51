//! Rows of events in the journal, of scheduled events, and of event ids.

use serde::Deserialize;
use serde_json::value::RawValue;
use tidings_types::{ChannelName, Event, JournalPosition, StreamPosition, Timestamp, TraceContext};

use crate::channels::DurableChannel;
use crate::engine::{EngineError, Table};
use crate::events::prepared::PreparedEvent;
use crate::events::{AcceptedEvent, LaterEvent, LaterKey};
use crate::hash::{Hash16, Hash32, hash16};
use crate::rows::parts::decode;

/// The head of an event row. Trimming reads only this, not the JSON behind it.
pub(crate) struct EventHead {
    pub(crate) accepted_at: Timestamp,
    pub(crate) id_hash: Hash16,
}

const EVENT_HEAD_BYTES: usize = 24;

/// The event's own JSON is copied as the caller's task made it.
pub(crate) fn event_row(
    head: &EventHead,
    published: &[(ChannelName, StreamPosition)],
    audience_max: Option<u64>,
    trace: Option<&TraceContext>,
    event_json: &[u8],
) -> Vec<u8> {
    let mut row = Vec::with_capacity(EVENT_HEAD_BYTES + event_json.len() + 96 + 320 * published.len());
    row.extend_from_slice(&head.accepted_at.0.to_be_bytes());
    row.extend_from_slice(&head.id_hash);
    row.extend_from_slice(b"{\"published\":");
    serde_json::to_writer(&mut row, published).expect("names and positions are JSON");
    push_rest(&mut row, audience_max, trace, event_json);
    row
}

/// The last fields of the JSON in an event's row.
fn push_rest(row: &mut Vec<u8>, audience_max: Option<u64>, trace: Option<&TraceContext>, event_json: &[u8]) {
    if let Some(max) = audience_max {
        row.extend_from_slice(format!(",\"audience_max\":{max}").as_bytes());
    }
    if let Some(trace) = trace {
        row.extend_from_slice(b",\"trace\":");
        serde_json::to_writer(&mut *row, trace).expect("texts are JSON");
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
        #[serde(default)]
        trace: Option<Box<TraceContext>>,
        event: Event,
    }
    let accepted_at = decode_event_head(key, row)?.accepted_at;
    let Body { published, audience_max, trace, event } = decode(Table::Event, key, &row[EVENT_HEAD_BYTES..])?;
    Ok(AcceptedEvent { accepted_at, published, audience_max, event: Event { trace, ..event } })
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
    push_rest(&mut row, event.audience_max, event.trace.as_deref(), &event.json);
    row
}

/// The id hash at the beginning of a scheduled event's row.
pub(crate) fn later_id_hash(row: &[u8]) -> Option<Hash16> {
    row.first_chunk::<LATER_HEAD_BYTES>().copied()
}

/// A scheduled event with the data for appending it.
pub(crate) struct LaterRow<'a> {
    pub(crate) id_hash: Hash16,
    /// The event's JSON as the caller's task made it.
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
        #[serde(default)]
        trace: Option<Box<TraceContext>>,
        #[serde(borrow)]
        event: &'a RawValue,
    }
    let damaged = || EngineError::damaged(Table::Later, &later_key(key));
    let id_hash = later_id_hash(row).ok_or_else(damaged)?;
    let body: Body<'_> = serde_json::from_slice(&row[LATER_HEAD_BYTES..]).map_err(|_| damaged())?;
    let Body { accepted_at, channels, audience_max, trace, event } = body;
    let json = event.get();
    let event: Event = serde_json::from_str(json).map_err(|_| damaged())?;
    let event = Event { trace, ..event };
    if id_hash != hash16(event.id.as_str().as_bytes()) {
        return Err(damaged()); // One of both was changed. Under a wrong id, a repeat would count as a new event.
    }
    Ok(LaterRow { id_hash, json, channels, later: LaterEvent { key, accepted_at, audience_max, event } })
}

/// Where the event of an id is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventPlace {
    Journal(JournalPosition),
    Later(LaterKey),
}

/// The row of an id: the event's position and the hash of its content.
pub(crate) fn event_id_row(position: JournalPosition, content: &Hash32) -> [u8; 40] {
    let mut row = [0; 40];
    row[..8].copy_from_slice(&position.0.to_be_bytes());
    row[8..].copy_from_slice(content);
    row
}

/// The row of an id while its event is scheduled.
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
