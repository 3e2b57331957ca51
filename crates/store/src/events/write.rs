//! Accepts events: each goes into the journal or is scheduled.
//!
//! A request is done as a whole or not at all. An event whose id is known with the same content is not accepted again; its
//! answer is the first one. Full (journal, scheduled events, channels): the request is refused.

use std::collections::{BTreeMap, HashMap};

use tidings_types::{JournalPosition, ReceiptRequest, Timestamp};

use crate::channels::StoredPublication;
use crate::committer::draft::Draft;
use crate::engine::{EngineError, Table};
use crate::error::{AppendError, WriteError};
use crate::events::prepared::{PreparedEvent, prepare};
use crate::events::rows::{EventHead, EventPlace};
use crate::events::{Appended, AppendedTo, NewEvent};
use crate::hash::{Hash16, Hash32};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;

use super::former;

/// What to do with an event of a request.
enum Fate {
    /// It is new: append or schedule it.
    New,
    /// Its id is known with the same content.
    Known(EventPlace),
    /// It is the same as the earlier event of this request at this index.
    Same(usize),
}

impl Store {
    /// Appends events and publishes each in its channels, in this order: all or nothing. An event whose id is known with
    /// the same content is not appended again; its answer is the first one. An event whose `at` is later than `now` is
    /// scheduled: its id is in use, and [`Store::release_later`] appends it.
    ///
    /// # Errors
    /// [`AppendError::Conflict`] for an id known with other content. [`WriteError::Overloaded`] also when the journal is
    /// full, or `later_count_max` events are scheduled.
    ///
    /// # Cancel safety
    /// Dropped: appended or not. Repeating the call with the same ids shows which.
    pub async fn append_events(&self, events: Vec<NewEvent>, now: Timestamp) -> Result<Vec<Appended>, AppendError> {
        let events: Vec<PreparedEvent> = events.into_iter().map(|event| prepare(event, now)).collect();
        let bytes = events.iter().map(PreparedEvent::bytes).sum();
        let append = move |draft: &mut Draft<'_>| {
            draft.advance(now);
            draft.append_events(events, now)
        };
        self.write(Class::Events, bytes, append).await?
    }
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

    /// Decides for each event, without a change, because a request is done as a whole or not at all.
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

    /// Where the event with this id is, and the hash of its content. An id whose event was lost by damage counts as unknown.
    pub(crate) fn known_id(&self, id_hash: &Hash16) -> Result<Option<(EventPlace, Hash32)>, EngineError> {
        let Some(known) = self.read(Table::EventId, id_hash, rows::decode_event_id)? else { return Ok(None) };
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

    /// Whether the journal has room for `count` events with `bytes`.
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

    /// Whether there is room for scheduled events. They may take as many bytes as the journal, because they move there.
    fn check_later_room(&self, count: u64, bytes: u64) -> Result<(), WriteError> {
        let (count_max, bytes_max) = (self.shared.config.later_count_max, self.shared.config.journal_bytes_max);
        let full = |limit| Err(WriteError::Overloaded { what: "the set of scheduled events", limit });
        match count {
            0 => Ok(()),
            _ if self.state.later_count + count > count_max => full(count_max),
            _ if self.state.later_bytes + bytes > bytes_max => full(bytes_max),
            _ => Ok(()),
        }
    }

    /// The event's time to live begins at `accepted_at`. The time of its publications is `now`, so that the publications of
    /// a channel are in the order of their times.
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
            texts: None,
            trace: event.trace.clone(),
        };
        let mut published = Vec::with_capacity(event.channels.len());
        for channel in event.channels {
            let name = channel.name.clone();
            let texts = event.texts.clone().filter(|_| channel.has_texts);
            let publication = StoredPublication { texts, ..publication.clone() };
            published.push((name, self.add_publication(channel, publication)?));
        }
        let head = EventHead { accepted_at, id_hash: event.id_hash };
        let row = rows::event_row(&head, &published, event.audience_max, event.trace.as_deref(), &event.json);
        self.state.journal_bytes += row.len() as u64;
        self.rows.put(Table::Event, rows::position_key(position), row);
        self.rows.put(Table::EventId, event.id_hash, rows::event_id_row(position, &event.content));
        Ok(Appended { to: AppendedTo::Journal { position, published }, repeated: false })
    }

    /// Where a known event is now. Id and event are trimmed together, so a missing event is damage.
    fn known_place(&self, place: EventPlace) -> Result<AppendedTo, EngineError> {
        let position = match place {
            EventPlace::Journal(position) => position,
            EventPlace::Later(key) => return Ok(AppendedTo::Later { at: key.at }),
        };
        let key = rows::position_key(position);
        let event = self.read(Table::Event, &key, rows::decode_event)?;
        let published = event.ok_or_else(|| EngineError::damaged(Table::Event, &key))?.published;
        Ok(AppendedTo::Journal { position, published })
    }
}
