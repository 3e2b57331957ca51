//! Reads durable channels at start, and replaces damaged rows of channels.

use std::ops::Bound;

use tidings_types::{ChannelName, Offset, StreamPosition, Timestamp};
use tracing::warn;

use crate::channels::RestoredChannel;
use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::damage;
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

impl Store {
    /// The position at which a new durable channel begins now. Its offset grows when channels are forgotten;
    /// [`CommitSink::on_channel_forgotten`](crate::CommitSink::on_channel_forgotten) reports that a moment later. All durable
    /// channels have the same epoch, which stays the same for one life of the store. Reads memory only.
    pub fn channel_start(&self) -> StreamPosition {
        self.shared().channel_start()
    }

    /// All durable channels with their publications that have not expired by `now`, for the start of the hub. To be read
    /// before the first write.
    ///
    /// # Errors
    /// The iterator ends with an error when the disk fails.
    pub fn durable_channels(&self, now: Timestamp) -> impl Iterator<Item = Result<RestoredChannel, ReadError>> + '_ {
        let mut after = Some(Vec::new());
        std::iter::from_fn(move || {
            let last = after.take()?;
            match self.with_engine(|engine| next_channel(engine, &last, self.channel_start().offset, now)) {
                Ok(Some(channel)) => {
                    after = Some(channel.name.as_str().as_bytes().to_vec());
                    Some(Ok(channel))
                }
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            }
        })
    }
}

/// The row of a channel, made from its history. `None`: the history is empty, so the offsets that were used are unknown.
fn channel_of_history(engine: &Engine, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
    let mut found: Option<ChannelRow> = None;
    engine.scan_prefix(Table::History, &rows::history_prefix(name), |key, row| {
        let top = rows::decode_history_offset(key)?;
        let published = rows::decode::<HistoryRow>(Table::History, key, row).map(|row| row.publication.time);
        let base = found.map_or(top, |row| row.base);
        found = Some(ChannelRow { top, base, published_at: published.unwrap_or_default(), version: None });
        Ok(true)
    })?;
    Ok(found)
}

fn read_channel(
    engine: &Engine,
    key: &[u8],
    row: &[u8],
    floor: Offset,
    now: Timestamp,
) -> Result<(ChannelName, ChannelRow), EngineError> {
    let name = rows::decode_channel_name(key)?;
    let row = match damage::understood(rows::decode(Table::Channel, key, row), REPLACED) {
        Some(row) => row,
        None => replacement(engine, &name, floor, now)?,
    };
    Ok((name, row))
}

/// The log line for a damaged row of a channel.
pub(crate) const REPLACED: &str = "A channel continues behind all offsets that it may have used";

/// Replaces the damaged row of a channel. The channel continues behind the last publication of its history. If that is
/// empty, it continues so many offsets above `floor` as there are milliseconds since 1970.
pub(crate) fn replacement(
    engine: &Engine,
    name: &ChannelName,
    floor: Offset,
    now: Timestamp,
) -> Result<ChannelRow, EngineError> {
    let row = channel_of_history(engine, name)?.unwrap_or_else(|| ChannelRow::behind_all(floor, now));
    warn!(channel = %name, top = row.top.0, "The damaged row of a channel is replaced");
    Ok(row)
}

fn next_channel(
    engine: &Engine,
    after: &[u8],
    floor: Offset,
    now: Timestamp,
) -> Result<Option<RestoredChannel>, EngineError> {
    let mut found = None;
    engine.scan(Table::Channel, Bound::Excluded(after), |key, row| {
        let channel = read_channel(engine, key, row, floor, now);
        found = damage::tolerate(channel, "A channel is not restored before its next publication")?;
        Ok(found.is_none())
    })?;
    let Some((name, row)) = found else { return Ok(None) };
    let mut publications = Vec::new();
    let (prefix, base) = (rows::history_prefix(&name), rows::history_key(&name, row.base));
    engine.scan(Table::History, Bound::Included(&base), |key, history| {
        let offset = rows::decode_history_offset(key)?;
        if !key.starts_with(&prefix) || offset > row.top {
            return Ok(false);
        }
        let history = rows::decode::<HistoryRow>(Table::History, key, history);
        match damage::understood(history, "A publication is lost; the history of its channel begins behind it") {
            Some(history) if history.expires_at > now => publications.push((offset, history.publication)),
            // A history has no gaps: it begins behind an expired or a damaged publication.
            Some(_) | None => publications.clear(),
        }
        Ok(true)
    })?;
    Ok(Some(RestoredChannel { name, top: row.top, publications }))
}
