//! Reading durable channels at start.

use std::ops::Bound;

use tidings_telemetry::chain;
use tidings_types::{ChannelName, Offset, StreamPosition, Timestamp};
use tracing::error;

use crate::channels::RestoredChannel;
use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

impl Store {
    /// Where a durable channel begins that was not there when the store was opened, until
    /// [`CommitSink::on_channel_given_back`] tells of another offset. The epoch is that of every durable channel: one life of the
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
pub(crate) fn channel_of_history(engine: &Engine, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
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

/// A channel. Where its row is damaged it is made anew from its history, or begins behind all offsets that it can have given
/// out: so many above `floor` as there are milliseconds since 1970.
fn read_channel(
    engine: &Engine,
    key: &[u8],
    row: &[u8],
    floor: Offset,
    now: Timestamp,
) -> Result<(ChannelName, ChannelRow), EngineError> {
    let name = rows::decode_channel_name(key)?;
    let damage = match rows::decode::<ChannelRow>(Table::Channel, key, row) {
        Ok(row) => return Ok((name, row)),
        Err(damage) => damage,
    };
    let row = channel_of_history(engine, &name)?.unwrap_or_else(|| ChannelRow::behind_all(floor, now));
    error!(error = chain(&damage), channel = %name, top = row.top.0, "A channel goes on behind all offsets it may have given out");
    Ok((name, row))
}

fn next_channel(
    engine: &Engine,
    after: &[u8],
    floor: Offset,
    now: Timestamp,
) -> Result<Option<RestoredChannel>, EngineError> {
    let mut found = None;
    engine.scan(Table::Channel, Bound::Excluded(after), |key, row| {
        found = match read_channel(engine, key, row, floor, now) {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "A channel comes back with its next publication only");
                None
            }
            channel => Some(channel?),
        };
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
        match rows::decode::<HistoryRow>(Table::History, key, history) {
            Ok(history) if history.expires_at > now => publications.push((offset, history.publication)),
            Ok(_) => publications.clear(), // What is before an expired one is older still, whatever its time to live.
            Err(error) => {
                error!(error = chain(&error), "A publication is lost; the history of its channel begins behind it");
                publications.clear(); // No gaps: whoever resumes from before is told.
            }
        }
        Ok::<_, EngineError>(true)
    })?;
    Ok(Some(RestoredChannel { name, top: row.top, publications }))
}
