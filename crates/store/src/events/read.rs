//! Reading the journal and the scheduled events. One call hands out at most 8 MiB, over the first event.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::Ordering;

use tidings_types::{EventId, JournalPosition};
use tokio::sync::watch;

use crate::damage;
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::events::rows::EventPlace;
use crate::events::{AcceptedEvent, LaterEvent, LaterKey};
use crate::hash::{self, Hash16};
use crate::rows;
use crate::service::Store;

/// Bytes of events handed out at once, over the first event.
const EVENTS_BYTES_MAX: usize = 8 << 20;

/// Events that cannot be read at all and are passed over one by one, in one call: a block of a file holds fewer.
const UNREADABLE_COUNT_MAX: usize = 10_000;

/// What damaged rows cost here.
const LEFT_OUT: &str = "An event is left out of the journal";
const LATER_LEFT_OUT: &str = "An event for later is left out of a list";

impl Store {
    /// Says that no event before `position` is needed any more. They go when their ids need not be remembered either.
    /// Not stored: the sender says it again after a start.
    pub fn trim(&self, position: JournalPosition) {
        self.shared().trim_to.fetch_max(position.0, Ordering::Relaxed);
    }

    /// The position the next event will get.
    pub fn journal_end(&self) -> JournalPosition {
        *self.shared().journal_end.borrow()
    }

    /// Follows [`Store::journal_end`]; changes after the sink was told.
    pub fn watch_journal_end(&self) -> watch::Receiver<JournalPosition> {
        self.shared().journal_end.subscribe()
    }

    /// The events from `start` on, oldest first: at most `limit` and about 8 MiB; fewer than asked does not mean the
    /// end, none does. Events that have been trimmed are left out, so the first position may be a later one; and so
    /// are damaged ones, each with a word in the log.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn events_from(
        &self,
        start: JournalPosition,
        limit: usize,
    ) -> Result<Vec<(JournalPosition, AcceptedEvent)>, ReadError> {
        let end = self.journal_end(); // A later event may be readable already, but the sink was not told of it yet.
        let (mut events, mut bytes, mut next) = (Vec::new(), 0, start);
        if limit == 0 {
            return Ok(events);
        }
        // False: it has enough.
        let mut take = |position: JournalPosition, row: &[u8]| {
            bytes += row.len();
            if position >= end || (bytes > EVENTS_BYTES_MAX && !events.is_empty()) {
                return false;
            }
            let event = damage::understood(rows::decode_event(&rows::position_key(position), row), LEFT_OUT);
            events.extend(event.map(|event| (position, event)));
            events.len() < limit
        };
        self.with_engine(|engine| {
            for _ in 0..UNREADABLE_COUNT_MAX {
                let scanned = engine.scan(Table::Event, Bound::Included(&rows::position_key(next)), |key, row| {
                    let position = rows::decode_position(Table::Event, key, key)?;
                    next = JournalPosition(position.0 + 1);
                    Ok::<_, EngineError>(take(position, row))
                });
                if next >= end {
                    return scanned;
                }
                if damage::tolerate_quietly(scanned)?.is_some() {
                    return Ok(());
                }
                // A scan ends at a block that cannot be read, also one that begins just behind it.
                let position = next;
                next = JournalPosition(position.0 + 1);
                let row = engine.get(Table::Event, &rows::position_key(position));
                match damage::tolerate(row, LEFT_OUT)?.flatten() {
                    Some(row) if !take(position, row.as_ref()) => return Ok(()),
                    Some(_) | None => {}
                }
            }
            Err(EngineError::damaged(Table::Event, &rows::position_key(next)))
        })?;
        Ok(events)
    }

    /// The event at `position`, unless it was trimmed or is not there yet.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn event(&self, position: JournalPosition) -> Result<Option<AcceptedEvent>, ReadError> {
        if position >= self.journal_end() {
            return Ok(None);
        }
        self.with_engine(|engine| {
            let key = rows::position_key(position);
            engine.get(Table::Event, &key)?.map(|row| rows::decode_event(&key, row.as_ref())).transpose()
        })
    }

    /// Where the event with this id is in the journal, as long as it is remembered. One that is not yet due is not there.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn event_position(&self, id: &EventId) -> Result<Option<JournalPosition>, ReadError> {
        let end = self.journal_end(); // As in `events_from`.
        self.with_engine(|engine| {
            Ok(match find_event(engine, id)? {
                Some(EventPlace::Journal(position)) if position < end => Some(position),
                _ => None,
            })
        })
    }

    /// Whether an event with this id was accepted and is remembered: in the journal, not yet due, or on its way from
    /// the one to the other. Who was told that it is accepted finds it here at once, until its id is forgotten.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn is_known(&self, id: &EventId) -> Result<bool, ReadError> {
        self.with_engine(|engine| {
            let mut place = find_event(engine, id)?;
            while let Some(EventPlace::Later(key)) = place {
                if engine.get(Table::Later, &rows::later_key(key))?.is_some() {
                    return Ok(true);
                }
                // Between the two reads it was moved or called off; if not, its row is lost.
                let again = find_event(engine, id)?;
                if again == place {
                    return Ok(false);
                }
                place = again;
            }
            Ok(place.is_some())
        })
    }

    /// The event with this id while it is not yet due. It moves from here into the journal: ask for this first, then for
    /// [`Store::event_position`]. For the moment between a release's commit and its acknowledgement neither knows it; after a
    /// [`Store::cancel_later`] that found none, the journal does.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn later(&self, id: &EventId) -> Result<Option<LaterEvent>, ReadError> {
        self.with_engine(|engine| {
            let Some(EventPlace::Later(key)) = find_event(engine, id)? else { return Ok(None) };
            // Between the two reads it may have become due.
            let row = engine.get(Table::Later, &rows::later_key(key))?;
            row.map(|row| Ok(rows::decode_later(key, row.as_ref())?.later)).transpose()
        })
    }

    /// The events that are not yet due, the earliest first, behind `after`: at most `limit` and about 8 MiB; none means that
    /// there are no more. Damaged ones are left out, each with a word in the log.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn later_events(&self, after: Option<LaterKey>, limit: usize) -> Result<Vec<LaterEvent>, ReadError> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        if limit == 0 {
            return Ok(events);
        }
        // False: it has enough.
        let mut take = |key: LaterKey, row: &[u8]| {
            bytes += row.len();
            if bytes > EVENTS_BYTES_MAX && !events.is_empty() {
                return false;
            }
            events.extend(damage::understood(rows::decode_later(key, row), LATER_LEFT_OUT).map(|row| row.later));
            events.len() < limit
        };
        let mut last = after;
        let after = after.map(rows::later_key);
        let start = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(&key[..]));
        self.with_engine(|engine| {
            let scanned = engine.scan(Table::Later, start, |key, row| {
                let Some(key) = rows::decode_later_key(key) else { return Ok(true) };
                last = Some(key);
                Ok::<_, EngineError>(take(key, row))
            });
            if damage::tolerate_quietly(scanned)?.is_some() {
                return Ok(());
            }
            // The scan ended at a block that cannot be read.
            for key in later_ids(engine)?.into_keys().filter(|key| Some(*key) > last) {
                match damage::tolerate(engine.get(Table::Later, &rows::later_key(key)), LATER_LEFT_OUT)?.flatten() {
                    Some(row) if !take(key, row.as_ref()) => return Ok(()),
                    Some(_) | None => {}
                }
            }
            Ok(())
        })?;
        Ok(events)
    }
}

/// Where the events for later are, by the ids that lead there; of some the row may be gone. For when their own table
/// cannot be walked over: this walks over every id that is remembered.
pub(crate) fn later_ids(engine: &Engine) -> Result<BTreeMap<LaterKey, Hash16>, EngineError> {
    let mut ids = BTreeMap::new();
    engine.scan(Table::EventId, Bound::Unbounded, |id, row| {
        if let (Ok(id), Ok((EventPlace::Later(key), _))) = (id.try_into(), rows::decode_event_id(id, row)) {
            ids.insert(key, id);
        }
        Ok::<_, EngineError>(true)
    })?;
    Ok(ids)
}

fn find_event(engine: &Engine, id: &EventId) -> Result<Option<EventPlace>, EngineError> {
    let key = hash::hash16(id.as_str().as_bytes());
    let row = engine.get(Table::EventId, &key)?;
    Ok(row.map(|row| rows::decode_event_id(&key, row.as_ref())).transpose()?.map(|(place, _)| place))
}
