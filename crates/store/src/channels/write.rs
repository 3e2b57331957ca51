//! Publishes into durable channels. Each publication gets the next offset, and replaces the oldest one of a full history.
//!
//! Bound: `channel_count_max` channels; publishing into a further one is refused.

use std::collections::{BTreeMap, HashSet};

use tidings_types::{ChannelName, Json, Offset, StreamPosition, Timestamp};

use super::keys::publish_key;
use super::read::{REPLACED, replacement};
use crate::channels::rows::{ChannelRow, HistoryRow, VersionRow};
use crate::channels::{DurableChannel, Once, StoredPublication};
use crate::committer::draft::Draft;
use crate::committer::effect::Effect;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::error::WriteError;
use crate::hash::{Hash16, hash16};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

impl Store {
    /// Publishes into a durable channel.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: published or not.
    pub async fn append_publication(
        &self,
        channel: DurableChannel,
        data: Json,
        tags: BTreeMap<String, String>,
        info: Option<Json>,
        now: Timestamp,
    ) -> Result<StreamPosition, WriteError> {
        let publication = StoredPublication { data, tags, info, time: now, receipt: None, texts: None, trace: None };
        self.publish(channel, publication, None, None).await
    }

    /// Like [`Store::append_publication`], but a second publication with the same idempotency key in the same channel is
    /// not published: the answer is the position of the first one. Nor is a publication published whose version is not
    /// newer: the answer is the position of the channel. A key is remembered for five minutes, the newest version as long
    /// as the channel. Both are written together with their publication, so this also holds after a crash or a failed
    /// write.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write. Repeating the call with the same key is safe.
    ///
    /// # Cancel safety
    /// Dropped: published or not. Repeating the call with the same key shows which.
    pub async fn append_publication_once(
        &self,
        channel: DurableChannel,
        once: Once<'_>,
        data: Json,
        tags: BTreeMap<String, String>,
        now: Timestamp,
    ) -> Result<StreamPosition, WriteError> {
        let key = once.key.map(|key| publish_key(&channel.name, key));
        let version = once.version.map(|version| VersionRow(version.number, hash16(version.epoch.as_bytes())));
        let publication =
            StoredPublication { data, tags, info: None, time: now, receipt: None, texts: None, trace: None };
        self.publish(channel, publication, key, version).await
    }

    async fn publish(
        &self,
        channel: DurableChannel,
        publication: StoredPublication,
        key: Option<Hash16>,
        version: Option<VersionRow>,
    ) -> Result<StreamPosition, WriteError> {
        let StoredPublication { data, info, .. } = &publication;
        let bytes = data.bytes().len() + info.as_ref().map_or(0, |info| info.bytes().len()) + weight::PUBLICATION;
        let publish = move |draft: &mut Draft<'_>| {
            draft.advance(publication.time);
            draft.publish(channel, publication, key, version)
        };
        self.write(Class::Events, bytes, publish).await?
    }
}

impl Draft<'_> {
    pub(crate) fn check_channel_room<'n>(
        &self,
        names: impl Iterator<Item = &'n ChannelName> + Clone,
    ) -> Result<Result<(), WriteError>, EngineError> {
        let limit = self.shared.config.channel_count_max;
        if self.state.channel_count + names.clone().count() as u64 <= limit {
            return Ok(Ok(())); // There is room even if all channels are new.
        }
        let mut new = HashSet::new();
        for name in names {
            if !new.contains(name) && self.channel(name)?.is_none() {
                new.insert(name);
            }
        }
        let fits = self.state.channel_count + new.len() as u64 <= limit;
        Ok(if fits { Ok(()) } else { Err(WriteError::Overloaded { what: "the set of durable channels", limit }) })
    }

    pub(crate) fn publish(
        &mut self,
        channel: DurableChannel,
        publication: StoredPublication,
        key: Option<Hash16>,
        version: Option<VersionRow>,
    ) -> Result<Result<StreamPosition, WriteError>, EngineError> {
        if let Some(key) = &key
            && let Some(offset) = self.published_before(key)?
        {
            return Ok(Ok(StreamPosition { offset, epoch: self.state.epoch }));
        }
        if let Err(error) = self.check_channel_room([&channel.name].into_iter())? {
            return Ok(Err(error));
        }
        let position = match version.map(|version| self.top_if_behind(&channel.name, version)).transpose()?.flatten() {
            Some(position) => position,
            None => {
                let name = version.is_some().then(|| channel.name.clone());
                let position = self.add_publication(channel, publication)?;
                name.map(|name| self.set_version(&name, version)).transpose()?;
                position
            }
        };
        if let Some(key) = key {
            self.remember_key(key, position.offset)?;
        }
        Ok(Ok(position))
    }

    /// The channel's position, if it has a publication of this version or a later one.
    fn top_if_behind(&self, name: &ChannelName, version: VersionRow) -> Result<Option<StreamPosition>, EngineError> {
        let row = self.channel(name)?;
        let row = row.filter(|row| row.version.is_some_and(|top| top.1 == version.1 && version.0 <= top.0));
        Ok(row.map(|row| StreamPosition { offset: row.top, epoch: self.state.epoch }))
    }

    fn set_version(&mut self, name: &ChannelName, version: Option<VersionRow>) -> Result<(), EngineError> {
        let row = ChannelRow { version, ..self.channel_or_new(name)? };
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(())
    }

    /// Gives the publication the next offset of its channel, and deletes the publications that exceed the history.
    pub(crate) fn add_publication(
        &mut self,
        channel: DurableChannel,
        publication: StoredPublication,
    ) -> Result<StreamPosition, EngineError> {
        let mut row = self.channel_or_new(&channel.name)?;
        if row.top == Offset(0) {
            (row.top, row.base) = (self.state.channel_floor, self.state.channel_floor.next());
        }
        row.top = row.top.next();
        row.published_at = row.published_at.max(publication.time);
        let history = HistoryRow { expires_at: publication.time.saturating_add(channel.history_ttl), publication };
        self.order_channel(&channel.name, &mut row, history.expires_at);
        self.rows.put(Table::History, rows::history_key(&channel.name, row.top), rows::encode(&history));
        let kept_from = Offset((row.top.0 + 1).saturating_sub(u64::from(channel.history_size)));
        while row.base < kept_from {
            self.rows.delete(Table::History, rows::history_key(&channel.name, row.base));
            row.base = row.base.next();
        }
        self.rows.put(Table::Channel, channel.name.as_str().as_bytes(), rows::encode(&row));
        let position = StreamPosition { offset: row.top, epoch: self.state.epoch };
        self.effects.push(Effect::Published { channel, position, publication: history.publication });
        Ok(position)
    }

    /// Reserves the channel until `at` at least, for an event that is due then. The caller has checked that there is room.
    pub(crate) fn keep_channel(&mut self, name: &ChannelName, at: Timestamp) -> Result<(), EngineError> {
        let mut row = self.channel_or_new(name)?;
        row.published_at = row.published_at.max(at);
        self.order_idle(name, &mut row);
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(())
    }

    /// A scheduled event for which the channel was reserved is cancelled. The channel may then be forgotten although other
    /// events for it are scheduled. When they are due, it is created again, which may exceed the bound by one.
    pub(crate) fn release_channel(&mut self, name: &ChannelName) -> Result<(), EngineError> {
        let Some(mut row) = self.channel(name)? else { return Ok(()) };
        row.published_at = row.published_at.min(self.now);
        self.order_idle(name, &mut row);
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(())
    }

    /// The channel's row or a new one. The caller writes it.
    fn channel_or_new(&mut self, name: &ChannelName) -> Result<ChannelRow, EngineError> {
        if let Some(row) = self.channel(name)? {
            return Ok(row);
        }
        self.state.channel_count += 1;
        Ok(ChannelRow { top: Offset(0), base: Offset(1), published_at: Timestamp(0), version: None, due_at: None })
    }

    /// A channel's row. A damaged one gets a [`replacement`]; clients that resume from before it are told of the gap.
    pub(crate) fn channel(&self, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
        let decode = |key: &[u8], row: &[u8]| rows::decode(Table::Channel, key, row);
        match damage::tolerate(self.read(Table::Channel, name.as_str().as_bytes(), decode), REPLACED)? {
            Some(row) => Ok(row),
            None => replacement(self.engine, name, self.state.channel_floor, self.now).map(Some),
        }
    }
}
