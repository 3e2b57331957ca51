//! Reads durable channels and their histories, and replaces damaged rows of channels.

use tidings_types::{ChannelName, Offset, StreamPosition, Timestamp};
use tracing::warn;

use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::channels::{RestoredChannel, StoredPublication};
use crate::damage;
use crate::engine::{Engine, EngineError, Place, Span, Table};
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

    /// All durable channels, for the start of the hub.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn durable_channels(&self, now: Timestamp) -> Result<Vec<RestoredChannel>, ReadError> {
        let floor = self.channel_start().offset;
        self.with_engine(|engine| {
            let mut channels = Vec::new();
            engine.scan(Place::Open, Table::Channel, &Span::all(), |key, row| {
                let channel = read_channel(engine, key, row, floor, now);
                let channel = damage::tolerate(channel, "A channel is not restored before its next publication")?;
                let restored = |(name, row): (ChannelName, ChannelRow)| {
                    let ChannelRow { top, published_at, .. } = row;
                    RestoredChannel { name, top, published_at }
                };
                channels.extend(channel.map(restored));
                Ok(true)
            })?;
            Ok(channels)
        })
    }

    /// The publications that a durable channel keeps at `now`, oldest first, without gaps: up to the last one. None if that
    /// one has expired.
    ///
    /// # Errors
    /// When the disk fails.
    pub fn history(
        &self,
        channel: &ChannelName,
        now: Timestamp,
    ) -> Result<Vec<(Offset, StoredPublication)>, ReadError> {
        self.with_engine(|engine| read_history(engine, channel, now))
    }
}

/// The row of a channel, made from its history. `None`: the history is empty, so the offsets that were used are unknown.
fn channel_of_history(engine: &Engine, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
    let mut found: Option<ChannelRow> = None;
    engine.scan(Place::History, Table::History, &Span::prefix(&rows::history_prefix(name)), |key, row| {
        let top = rows::decode_history_offset(key)?;
        let published = rows::decode::<HistoryRow>(Table::History, key, row).map(|row| row.publication.time);
        let base = found.map_or(top, |row| row.base);
        found =
            Some(ChannelRow { top, base, published_at: published.unwrap_or_default(), version: None, due_at: None });
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

/// A history has no gaps: it begins behind a damaged publication.
fn read_history(
    engine: &Engine,
    name: &ChannelName,
    now: Timestamp,
) -> Result<Vec<(Offset, StoredPublication)>, EngineError> {
    let (mut publications, mut expires_at) = (Vec::<(Offset, StoredPublication)>::new(), Timestamp::default());
    let row = engine.read(Table::Channel, name.as_str().as_bytes(), |key, row| {
        rows::decode::<ChannelRow>(Table::Channel, key, row)
    });
    let base = damage::tolerate_quietly(row)?.flatten().map(|row| row.base).unwrap_or_default();
    let span = Span::closed(&rows::history_key(name, base), &rows::history_key(name, Offset(u64::MAX)));
    engine.scan(Place::History, Table::History, &span, |key, row| {
        let offset = rows::decode_history_offset(key)?;
        if publications.last().is_some_and(|(last, _)| last.next() != offset) {
            publications.clear(); // Rows of lost files are missing.
        }
        let row = rows::decode::<HistoryRow>(Table::History, key, row);
        match damage::understood(row, "A publication is lost; the history of its channel begins behind it") {
            Some(row) => {
                if expires_at <= row.publication.time {
                    publications.clear(); // When it came, those before had expired.
                }
                expires_at = row.expires_at;
                publications.push((offset, row.publication));
            }
            None => publications.clear(),
        }
        Ok(true)
    })?;
    if expires_at <= now {
        publications.clear();
    }
    Ok(publications)
}
