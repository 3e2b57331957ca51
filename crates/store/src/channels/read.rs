//! Reading durable channels at start, and making the row of a channel anew where it is damaged.

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
    /// Where a durable channel begins that was not there when the store was opened, until
    /// [`CommitSink::on_channel_given_back`](crate::CommitSink::on_channel_given_back) tells of another offset. The epoch is that of every durable channel: one life of the
    /// store.
    pub fn channel_start(&self) -> StreamPosition {
        self.shared().channel_start
    }

    /// All durable channels with what has not expired by `now`, one at a time, for the hub to begin with. To be read before
    /// the first write.
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

/// A channel's row as its history tells it, which ends with the last publication as long as it holds any. `None`: it
/// holds none, and which offsets were given out nobody knows.
fn channel_of_history(engine: &Engine, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
    let prefix = rows::history_prefix(name);
    let mut found: Option<ChannelRow> = None;
    engine.scan(Table::History, Bound::Included(&prefix), |key, row| {
        if !key.starts_with(&prefix) {
            return Ok(false);
        }
        let top = rows::decode_history_offset(key)?;
        let published = rows::decode::<HistoryRow>(Table::History, key, row).map(|row| row.publication.time);
        let base = found.map_or(top, |row| row.base);
        found = Some(ChannelRow { top, base, published_at: published.unwrap_or_default() });
        Ok::<_, EngineError>(true)
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
    let row = match damage::understood(rows::decode(Table::Channel, key, row), MADE_ANEW) {
        Some(row) => row,
        None => made_anew(engine, &name, floor, now)?,
    };
    Ok((name, row))
}

/// What a damaged row of a channel costs.
pub(crate) const MADE_ANEW: &str = "A channel goes on behind all offsets that it may have given out";

/// The row of a channel whose own is damaged: as its history tells it, or else behind all offsets that it can have given out,
/// so many above `floor` as there are milliseconds since 1970.
pub(crate) fn made_anew(
    engine: &Engine,
    name: &ChannelName,
    floor: Offset,
    now: Timestamp,
) -> Result<ChannelRow, EngineError> {
    let row = channel_of_history(engine, name)?.unwrap_or_else(|| ChannelRow::behind_all(floor, now));
    warn!(channel = %name, top = row.top.0, "The row of a channel is made anew");
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
        found = damage::tolerate(channel, "A channel comes back with its next publication only")?;
        Ok::<_, EngineError>(found.is_none())
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
            Some(_) => publications.clear(), // What is before an expired one is older still, whatever its time to live.
            None => publications.clear(),    // No gaps: whoever resumes from before is told.
        }
        Ok::<_, EngineError>(true)
    })?;
    Ok(Some(RestoredChannel { name, top: row.top, publications }))
}
