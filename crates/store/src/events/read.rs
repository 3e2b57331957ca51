//! Reads the journal and the scheduled events. One call returns at most 8 MiB over the first event.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use tidings_types::{EventId, JournalPosition};
use tokio::sync::watch;

use crate::damage;
use crate::engine::{Engine, EngineError, Place, Span, Table};
use crate::error::ReadError;
use crate::events::rows::EventPlace;
use crate::events::{AcceptedEvent, LaterEvent, LaterKey};
use crate::hash::{Hash16, hash16};
use crate::rows;
use crate::service::Store;

/// Bytes of events that one call returns, over the first event.
const EVENTS_BYTES_MAX: usize = 8 << 20;

/// Unreadable events that one call skips one by one. A block of a file has fewer events.
const UNREADABLE_COUNT_MAX: usize = 10_000;

/// Log lines for damaged rows.
const LEFT_OUT: &str = "An event is left out of the journal";
const LATER_LEFT_OUT: &str = "A scheduled event is left out of a list";

impl Store {
    /// Says that no event before `position` is needed any more. The store deletes these events when their ids need not be
    /// remembered any more. Not stored: the sender calls this again after a start.
    pub fn trim(&self, position: JournalPosition) {
        self.shared().trim_to.fetch_max(position.0, Ordering::Relaxed);
    }

    /// The position of the next event.
    pub fn journal_end(&self) -> JournalPosition {
        *self.shared().journal_end.borrow()
    }

    /// Watches [`Store::journal_end`]. It changes after the sink was called.
    pub fn watch_journal_end(&self) -> watch::Receiver<JournalPosition> {
        self.shared().journal_end.subscribe()
    }

    /// The events from `start` on, oldest first: at most `limit`, and about 8 MiB. An empty result means the end; a result
    /// with fewer than `limit` events does not. Trimmed events are left out, so the first position may be later than
    /// `start`. Damaged events are left out and logged.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn events_from(
        &self,
        start: JournalPosition,
        limit: usize,
    ) -> Result<Vec<(JournalPosition, AcceptedEvent)>, ReadError> {
        let end = self.journal_end(); // The sink does not know of later events yet.
        let (mut events, mut bytes, mut next) = (Vec::new(), 0, start);
        if limit == 0 {
            return Ok(events);
        }
        // False: enough events.
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
                let span = Span::closed(&rows::position_key(next), &rows::position_key(end));
                let scanned = engine.scan(Place::Journal, Table::Event, &span, |key, row| {
                    let position = rows::decode_position(Table::Event, key, key)?;
                    next = JournalPosition(position.0 + 1);
                    Ok(take(position, row))
                });
                if next >= end {
                    return scanned;
                }
                if damage::tolerate_quietly(scanned)?.is_some() {
                    return Ok(());
                }
                // The scan ended at an unreadable block, so the next event is read alone.
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

    /// The event at `position`; `None` if it was trimmed or does not exist yet.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn event(&self, position: JournalPosition) -> Result<Option<AcceptedEvent>, ReadError> {
        if position >= self.journal_end() {
            return Ok(None);
        }
        self.with_engine(|engine| engine.read(Table::Event, &rows::position_key(position), rows::decode_event))
    }

    /// The position of the event with this id in the journal, as long as the id is remembered. A scheduled event has none.
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

    /// Whether an event with this id was accepted and its id is remembered: in the journal, scheduled, or on its way from
    /// the schedule to the journal. True from the acknowledgement until the id is forgotten.
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
                // Between the two reads it was moved or cancelled. If neither, its row is lost.
                let again = find_event(engine, id)?;
                if again == place {
                    return Ok(false);
                }
                place = again;
            }
            Ok(place.is_some())
        })
    }

    /// The scheduled event with this id. Because it moves into the journal, ask for this first and then for
    /// [`Store::event_position`]. Neither finds it for the moment between the commit of its release and the
    /// acknowledgement. After a [`Store::cancel_later`] that found none, the journal has it.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn later(&self, id: &EventId) -> Result<Option<LaterEvent>, ReadError> {
        self.with_engine(|engine| {
            let Some(EventPlace::Later(key)) = find_event(engine, id)? else { return Ok(None) };
            // Between the two reads it may have moved.
            let decode = |_: &[u8], row: &[u8]| Ok(rows::decode_later(key, row)?.later);
            engine.read(Table::Later, &rows::later_key(key), decode)
        })
    }

    /// The scheduled events behind `after`, the earliest first: at most `limit`, and about 8 MiB. An empty result means that
    /// there are no more. Damaged events are left out and logged.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn later_events(&self, after: Option<LaterKey>, limit: usize) -> Result<Vec<LaterEvent>, ReadError> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        if limit == 0 {
            return Ok(events);
        }
        // False: enough events.
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
        let span = after.map_or(Span::all(), |key| Span::all().behind(&key));
        self.with_engine(|engine| {
            let scanned = engine.scan(Place::Later, Table::Later, &span, |key, row| {
                let Some(key) = rows::decode_later_key(key) else { return Ok(true) };
                last = Some(key);
                Ok(take(key, row))
            });
            if damage::tolerate_quietly(scanned)?.is_some() {
                return Ok(());
            }
            // The scan ended at an unreadable block.
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

/// The keys of scheduled events, found by scanning all ids. For use when a scan of their own table fails. Some of their rows
/// may not exist any more.
pub(crate) fn later_ids(engine: &Engine) -> Result<BTreeMap<LaterKey, Hash16>, EngineError> {
    let mut ids = BTreeMap::new();
    engine.scan(Place::LaterIds, Table::EventId, &Span::all(), |id, row| {
        if let (Ok(id), Ok((EventPlace::Later(key), _))) = (id.try_into(), rows::decode_event_id(id, row)) {
            ids.insert(key, id);
        }
        Ok(true)
    })?;
    Ok(ids)
}

fn find_event(engine: &Engine, id: &EventId) -> Result<Option<EventPlace>, EngineError> {
    let key = hash16(id.as_str().as_bytes());
    Ok(engine.read(Table::EventId, &key, rows::decode_event_id)?.map(|(place, _)| place))
}
