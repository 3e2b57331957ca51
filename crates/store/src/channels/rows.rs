//! Rows of durable channels and of their histories, both in JSON, and of idempotency keys.

use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, Offset, Timestamp};

use crate::channels::StoredPublication;
use crate::engine::{EngineError, Table};
use crate::hash::Hash16;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChannelRow {
    /// The offset of the last publication. 0: none was published yet, and the row reserves room for a scheduled event.
    pub(crate) top: Offset,
    /// The oldest kept publication; `top` + 1 if none is kept.
    pub(crate) base: Offset,
    /// When the last publication was added, or when the last scheduled event is due if that is later.
    pub(crate) published_at: Timestamp,
    /// The version of the newest publication that has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) version: Option<VersionRow>,
    /// The time of the channel's row in `channel_due`. `None`: it has none yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) due_at: Option<Timestamp>,
}

/// A version number, and the hash of its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VersionRow(pub(crate) u64, pub(crate) Hash16);

impl ChannelRow {
    /// For a channel with unknown offsets. It continues behind all of them, unless it had more than one publication per
    /// millisecond since 1970.
    pub(crate) fn behind_all(floor: Offset, now: Timestamp) -> Self {
        let top = Offset(floor.0.saturating_add(now.as_millis()));
        Self { top, base: top.next(), published_at: now, version: None, due_at: None }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct HistoryRow {
    pub(crate) expires_at: Timestamp,
    pub(crate) publication: StoredPublication,
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

pub(crate) fn channel_due_key(at: Timestamp, channel: &ChannelName) -> Vec<u8> {
    [&at.0.to_be_bytes(), channel.as_str().as_bytes()].concat()
}

pub(crate) fn decode_channel_due(key: &[u8]) -> Result<(Timestamp, ChannelName), EngineError> {
    let (at, name) = key.split_first_chunk().ok_or_else(|| EngineError::damaged(Table::ChannelDue, key))?;
    let name = decode_channel_name(name).map_err(|_| EngineError::damaged(Table::ChannelDue, key))?;
    Ok((Timestamp(u64::from_be_bytes(*at)), name))
}

/// The row of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PublishKeyRow {
    /// The key's place in the order of keys.
    pub(crate) number: u64,
    pub(crate) published_at: Timestamp,
    pub(crate) offset: Offset,
}

pub(crate) fn publish_key_row(row: &PublishKeyRow) -> Vec<u8> {
    [row.number, row.published_at.0, row.offset.0].map(u64::to_be_bytes).concat()
}

pub(crate) fn decode_publish_key(key: &[u8], row: &[u8]) -> Result<PublishKeyRow, EngineError> {
    let row: &[u8; 24] = row.try_into().map_err(|_| EngineError::damaged(Table::PublishKey, key))?;
    let number = |at: usize| u64::from_be_bytes(row[at..at + 8].try_into().expect("8 of 24 bytes"));
    Ok(PublishKeyRow { number: number(0), published_at: Timestamp(number(8)), offset: Offset(number(16)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_keys_differ_if_a_channel_name_begins_with_another() {
        let (short, long) = (ChannelName::new("a").unwrap(), ChannelName::new("ab").unwrap());
        assert!(!history_key(&long, Offset(1)).starts_with(&history_prefix(&short)));
        assert_eq!(decode_history_offset(&history_key(&long, Offset(7))).unwrap(), Offset(7));
    }
}
