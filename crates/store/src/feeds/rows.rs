//! The rows of known entries. Their keys begin with the feed's name, so that one scan finds them all.

use tidings_types::FeedName;

use crate::engine::{EngineError, Table};
use crate::feeds::FeedEntry;

/// The beginning of the keys of a feed's entries.
pub(crate) fn feed_entry_prefix(name: &FeedName) -> Vec<u8> {
    [name.as_str().as_bytes(), &[0]].concat()
}

pub(crate) fn feed_entry_key(name: &FeedName, key: &[u8; 16]) -> Vec<u8> {
    [name.as_str().as_bytes(), &[0], key].concat()
}

pub(crate) fn decode_feed_entry(key: &[u8], row: &[u8]) -> Result<FeedEntry, EngineError> {
    let damaged = || EngineError::damaged(Table::FeedEntry, key);
    let (name, entry) = key.split_last_chunk::<16>().ok_or_else(damaged)?;
    let seen = row.try_into().map_err(|_| damaged())?;
    if name.last() == Some(&0) { Ok((*entry, u64::from_be_bytes(seen))) } else { Err(damaged()) }
}
