//! Events, publications and jobs.

use std::collections::{BTreeMap, HashMap, HashSet};

use tidings_telemetry::chain;
use tidings_types::{ChannelName, JournalPosition, Offset, ReceiptRequest, StreamPosition, Timestamp};
use tracing::error;

use super::former;
use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::channels::{DurableChannel, StoredPublication};
use crate::committer::draft::{Draft, Effect};
use crate::engine::{EngineError, Table};
use crate::error::{AppendError, WriteError};
use crate::events::prepared::PreparedEvent;
use crate::events::rows::{EventHead, EventPlace};
use crate::events::{Appended, AppendedTo};
use crate::hash::{Hash16, Hash32};
use crate::meta::DISPATCHED_KEY;
use crate::read;
use crate::rows;

/// What an event of a request turned out to be.
enum Fate {
    /// To be appended, or kept for later.
    New,
    /// Known from before.
    Known(EventPlace),
    /// The same as an earlier one of this request, at that index.
    Same(usize),
}

impl Draft<'_> {
    pub(crate) fn append_events(
        &mut self,
        events: Vec<PreparedEvent>,
        now: Timestamp,
    ) -> Result<Result<Vec<Appended>, AppendError>, EngineError> {
        let fates = match self.fates(&events)? {
            Ok(fates) => fates,
            Err(error) => return Ok(Err(error)),
        };
        if let Err(error) = self.check_room(&events, &fates)? {
            return Ok(Err(error.into()));
        }
        let mut answers: Vec<Appended> = Vec::with_capacity(events.len());
        for (event, fate) in events.into_iter().zip(fates) {
            answers.push(match fate {
                Fate::New => match event.later_at {
                    Some(at) => self.put_later(event, at, now)?,
                    None => self.append_event(event, now, now)?,
                },
                Fate::Known(place) => Appended { to: self.known_place(place)?, repeated: true },
                Fate::Same(index) => Appended { repeated: true, ..answers[index].clone() },
            });
        }
        Ok(Ok(answers))
    }

    /// What each event is, without changing anything: a request is done as a whole or not at all.
    fn fates(&self, events: &[PreparedEvent]) -> Result<Result<Vec<Fate>, AppendError>, EngineError> {
        let mut seen: HashMap<Hash16, (usize, Hash32)> = HashMap::with_capacity(events.len());
        let mut fates = Vec::with_capacity(events.len());
        for (index, event) in events.iter().enumerate() {
            let fate = if let Some(&(earlier, content)) = seen.get(&event.id_hash) {
                (content == event.content).then_some(Fate::Same(earlier))
            } else if let Some((place, content)) = self.known_id(&event.id_hash)? {
                let same = content == event.content || former::content(&event.json) == Some(content);
                same.then_some(Fate::Known(place))
            } else {
                seen.insert(event.id_hash, (index, event.content));
                Some(Fate::New)
            };
            let Some(fate) = fate else {
                return Ok(Err(AppendError::Conflict { index, id: event.id.clone() }));
            };
            fates.push(fate);
        }
        Ok(Ok(fates))
    }

    /// What is remembered of an id. One that waited for its time and was lost by a damaged row is not known, nor is one
    /// whose event was trimmed unread.
    pub(crate) fn known_id(&self, id_hash: &Hash16) -> Result<Option<(EventPlace, Hash32)>, EngineError> {
        let Some(row) = self.get(Table::EventId, id_hash)? else { return Ok(None) };
        let known = rows::decode_event_id(id_hash, &row)?;
        let is_lost = match known.0 {
            EventPlace::Later(key) => self.get(Table::Later, &rows::later_key(key))?.is_none(),
            EventPlace::Journal(position) => position.0 < self.state.journal_base,
        };
        Ok((!is_lost).then_some(known))
    }

    fn check_room(&self, events: &[PreparedEvent], fates: &[Fate]) -> Result<Result<(), WriteError>, EngineError> {
        let new = || events.iter().zip(fates).filter(|(_, fate)| matches!(fate, Fate::New)).map(|(event, _)| event);
        let sum = |is_later: bool| {
            let sizes = new().filter(|event| event.later_at.is_some() == is_later).map(|event| event.json.len() as u64);
            sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
        };
        let ((count, bytes), (later_count, later_bytes)) = (sum(false), sum(true));
        let room = self.check_journal_room(count, bytes).and(self.check_later_room(later_count, later_bytes));
        if let Err(error) = room {
            return Ok(Err(error));
        }
        self.check_channel_room(new().flat_map(|event| &event.channels).map(|channel| &channel.name))
    }

    /// Whether the journal takes so many events more.
    pub(crate) fn check_journal_room(&self, count: u64, bytes: u64) -> Result<(), WriteError> {
        let (count_max, bytes_max) = (self.shared.config.journal_event_count_max, self.shared.config.journal_bytes_max);
        let kept = self.state.journal_end - self.state.journal_base;
        match count {
            0 => Ok(()),
            _ if kept + count > count_max => Err(WriteError::Overloaded { what: "the journal", limit: count_max }),
            _ if self.state.journal_bytes + bytes > bytes_max => {
                Err(WriteError::Overloaded { what: "the journal", limit: bytes_max })
            }
            _ => Ok(()),
        }
    }

    /// The same of events that are not yet due. No more bytes of them than the journal takes: there they are to go.
    fn check_later_room(&self, count: u64, bytes: u64) -> Result<(), WriteError> {
        let (count_max, bytes_max) = (self.shared.config.later_count_max, self.shared.config.journal_bytes_max);
        let full = |limit| Err(WriteError::Overloaded { what: "the set of events for later", limit });
        match count {
            0 => Ok(()),
            _ if self.state.later_count + count > count_max => full(count_max),
            _ if self.state.later_bytes + bytes > bytes_max => full(bytes_max),
            _ => Ok(()),
        }
    }

    fn check_channel_room<'n>(
        &self,
        names: impl Iterator<Item = &'n ChannelName> + Clone,
    ) -> Result<Result<(), WriteError>, EngineError> {
        let limit = self.shared.config.channel_count_max;
        if self.state.channel_count + names.clone().count() as u64 <= limit {
            return Ok(Ok(())); // Room for all even if all were new: no need to look.
        }
        let mut born = HashSet::new();
        for name in names {
            if !born.contains(name) && self.channel(name)?.is_none() {
                born.insert(name);
            }
        }
        let fits = self.state.channel_count + born.len() as u64 <= limit;
        Ok(if fits { Ok(()) } else { Err(WriteError::Overloaded { what: "the set of durable channels", limit }) })
    }

    /// Its time to live counts from `accepted_at`, its publications are of `now`: those of a channel follow each other
    /// in time.
    pub(crate) fn append_event(
        &mut self,
        event: PreparedEvent,
        accepted_at: Timestamp,
        now: Timestamp,
    ) -> Result<Appended, EngineError> {
        let position = JournalPosition(self.state.journal_end);
        self.state.journal_end += 1;
        let publication = StoredPublication {
            data: event.data,
            tags: BTreeMap::from([("event".to_owned(), event.id.as_str().to_owned())]),
            info: None,
            time: now,
            receipt: event.receipt.map(|terms| ReceiptRequest { event: position, terms }),
        };
        let mut published = Vec::with_capacity(event.channels.len());
        for channel in event.channels {
            let name = channel.name.clone();
            published.push((name, self.add_publication(channel, publication.clone())?));
        }
        let head = EventHead { accepted_at, id_hash: event.id_hash };
        let row = rows::event_row(&head, &published, event.audience_max, &event.json);
        self.state.journal_bytes += row.len() as u64;
        self.rows.put(Table::Event, rows::position_key(position), row);
        self.rows.put(Table::EventId, event.id_hash, rows::event_id_row(position, &event.content));
        Ok(Appended { to: AppendedTo::Journal { position, published }, repeated: false })
    }

    /// Where a known event is now. Id and event are trimmed together, so the event is there.
    fn known_place(&self, place: EventPlace) -> Result<AppendedTo, EngineError> {
        let position = match place {
            EventPlace::Journal(position) => position,
            EventPlace::Later(key) => return Ok(AppendedTo::Later { at: key.at }),
        };
        let key = rows::position_key(position);
        let row = self.get(Table::Event, &key)?.ok_or_else(|| EngineError::damaged(Table::Event, &key))?;
        let published = rows::decode_event(&key, &row)?.published;
        Ok(AppendedTo::Journal { position, published })
    }

    pub(crate) fn publish(
        &mut self,
        channel: DurableChannel,
        publication: StoredPublication,
    ) -> Result<Result<StreamPosition, WriteError>, EngineError> {
        if let Err(error) = self.check_channel_room([&channel.name].into_iter())? {
            return Ok(Err(error));
        }
        self.add_publication(channel, publication).map(Ok)
    }

    /// Gives the publication the next offset of its channel, and takes away what the history has no room for.
    fn add_publication(
        &mut self,
        channel: DurableChannel,
        publication: StoredPublication,
    ) -> Result<StreamPosition, EngineError> {
        let mut row = self.found_channel(&channel.name)?;
        if row.top == Offset(0) {
            (row.top, row.base) = (self.state.channel_floor, self.state.channel_floor.next());
        }
        row.top = row.top.next();
        row.published_at = row.published_at.max(publication.time);
        let history = HistoryRow { expires_at: publication.time.saturating_add(channel.history_ttl), publication };
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

    /// The channel is there until `at` at least, for an event that is due then; the caller has found room for it.
    pub(crate) fn keep_channel(&mut self, name: &ChannelName, at: Timestamp) -> Result<(), EngineError> {
        let mut row = self.found_channel(name)?;
        row.published_at = row.published_at.max(at);
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(())
    }

    /// An event that a channel was kept for is called off. If others wait for it, it may be forgotten all the same, and be there
    /// again when they are due: over the bound by one then.
    pub(crate) fn release_channel(&mut self, name: &ChannelName) -> Result<(), EngineError> {
        let Some(mut row) = self.channel(name)? else { return Ok(()) };
        row.published_at = row.published_at.min(self.now);
        self.rows.put(Table::Channel, name.as_str().as_bytes(), rows::encode(&row));
        Ok(())
    }

    /// The channel, which the caller writes.
    fn found_channel(&mut self, name: &ChannelName) -> Result<ChannelRow, EngineError> {
        if let Some(row) = self.channel(name)? {
            return Ok(row);
        }
        self.state.channel_count += 1;
        Ok(ChannelRow { top: Offset(0), base: Offset(1), published_at: Timestamp(0) })
    }

    /// A channel's row. One that is damaged is made anew from the channel's history, which ends with the last
    /// publication, or else behind all offsets that it can have given out: who resumes from before is told of the gap.
    pub(crate) fn channel(&self, name: &ChannelName) -> Result<Option<ChannelRow>, EngineError> {
        let key = name.as_str().as_bytes();
        let read = self
            .get(Table::Channel, key)
            .and_then(|row| row.map(|row| rows::decode(Table::Channel, key, &row)).transpose());
        match read {
            Err(error) if error.is_damage() => {
                let anew = || ChannelRow::behind_all(self.state.channel_floor, self.now);
                let row = read::channel_of_history(self.engine, name)?.unwrap_or_else(anew);
                error!(
                    error = chain(&error),
                    top = row.top.0,
                    "A channel goes on behind the last offset that it may have given out"
                );
                Ok(Some(row))
            }
            read => read,
        }
    }

    pub(crate) fn jobs(
        &mut self,
        put: Vec<(JournalPosition, Vec<u8>)>,
        remove: Vec<JournalPosition>,
        dispatched: Option<JournalPosition>,
    ) {
        for (position, job) in put {
            self.rows.put(Table::Job, rows::position_key(position), job);
        }
        for position in remove {
            self.rows.delete(Table::Job, rows::position_key(position));
            self.forget_cancelled(position);
        }
        if let Some(position) = dispatched {
            self.rows.put(Table::Meta, DISPATCHED_KEY, rows::position_key(position));
        }
    }
}
