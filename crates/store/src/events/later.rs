//! Scheduled events: kept in the order of their times until they are due and move into the journal.
//!
//! An event moves and is published in its channels in one atomic step. So after a crash it is in exactly one of both
//! places. Its id stays in use until the journal is trimmed or the event is cancelled.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_types::{EventId, Timestamp};
use tokio::sync::watch;
use tracing::warn;

use super::read::later_ids;
use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Place, Span, Table};
use crate::error::WriteError;
use crate::events::prepared::PreparedEvent;
use crate::events::rows::{EventPlace, LaterRow};
use crate::events::{Appended, AppendedTo, LaterEvent, LaterKey, publication_data, texts};
use crate::hash::{Hash16, hash16, hash32};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// Events that are moved in one batch, and their bytes over the first one.
const RELEASE_COUNT_MAX: usize = 256;
const RELEASE_BYTES_MAX: usize = 1 << 20;

impl Store {
    /// Moves events that are due at `now` into the journal and publishes them in their channels, in the order of
    /// [`LaterKey`]. Moves as many as fit into one batch and returns their number, so call it again until it returns 0. They
    /// count as accepted when they were due; the time of their publications is `now`. An event whose time to live is over is
    /// not published. A crash neither loses nor doubles an event.
    ///
    /// # Errors
    /// [`WriteError::Overloaded`] when the journal has no room for the first event. It stays scheduled; call again later.
    ///
    /// # Cancel safety
    /// Dropped: moved or not.
    pub async fn release_later(&self, now: Timestamp) -> Result<usize, WriteError> {
        let release = move |draft: &mut Draft<'_>| {
            draft.advance(now);
            draft.release_later(now)
        };
        self.write(Class::Jobs, weight::RELEASE, release).await?
    }

    /// Deletes a scheduled event and its id; false when there is none with this id.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: deleted or not.
    pub async fn cancel_later(&self, id: &EventId) -> Result<bool, WriteError> {
        let id_hash = hash16(id.as_str().as_bytes());
        self.write(Class::Brakes, weight::NAMES, move |draft| draft.cancel_later(id_hash)).await
    }

    /// Watches the time of the earliest scheduled event; `None` when there is none.
    pub fn next_later(&self) -> watch::Receiver<Option<Timestamp>> {
        self.shared().next_later.subscribe()
    }
}

impl Draft<'_> {
    /// Schedules an event for `at`. The caller has checked that there is room.
    pub(crate) fn put_later(
        &mut self,
        event: PreparedEvent,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Appended, EngineError> {
        let key = LaterKey { at, arrival: self.state.later_arrival };
        self.state.later_arrival += 1;
        for channel in &event.channels {
            self.keep_channel(&channel.name, at)?; // Reserves the room for its channels until the event is due.
        }
        let row = rows::later_row(&event, now);
        self.state.later_count += 1;
        self.state.later_bytes += row.len() as u64;
        self.state.later_first = Some(self.state.later_first.map_or(key, |first| first.min(key)));
        self.rows.put(Table::Later, rows::later_key(key), row);
        self.rows.put(Table::EventId, event.id_hash, rows::later_id_row(key, &event.content));
        Ok(Appended { to: AppendedTo::Later { at }, repeated: false })
    }

    /// See [`Store::release_later`].
    pub(crate) fn release_later(&mut self, now: Timestamp) -> Result<Result<usize, WriteError>, EngineError> {
        let (mut released, mut bytes) = (0, 0);
        for _ in 0..RELEASE_COUNT_MAX {
            let Some(key) = self.state.later_first.filter(|key| key.at <= now && bytes < RELEASE_BYTES_MAX) else {
                break;
            };
            // An unreadable or missing row counts as an empty one, which cannot be decoded.
            let row = damage::tolerate_quietly(self.get(Table::Later, &rows::later_key(key)))?.flatten();
            let row = row.unwrap_or_default();
            match damage::understood(rows::decode_later(key, &row), "A scheduled event is lost") {
                Some(mut later) => {
                    if let Err(full) = self.check_journal_room(1, later.json.len() as u64) {
                        return Ok(if released == 0 { Err(full) } else { Ok(released) });
                    }
                    self.keep_publishable(&mut later, now)?;
                    self.append_event(prepared(later), key.at, now)?;
                    released += 1;
                }
                None => {
                    let id = match rows::later_id_hash(&row) {
                        Some(id) => Some(id),
                        None => self.later_ids()?.get(&key).copied(),
                    };
                    id.into_iter().for_each(|id| self.rows.delete(Table::EventId, id));
                }
            }
            bytes += row.len();
            self.take_later(key, row.len())?;
        }
        Ok(Ok(released))
    }

    /// Removes the channels in which an event is not published: all if its time to live is over, and those whose state
    /// cannot be read, because otherwise it and all later events would wait for ever.
    fn keep_publishable(&self, row: &mut LaterRow<'_>, now: Timestamp) -> Result<(), EngineError> {
        let LaterEvent { key, event, .. } = &row.later;
        if key.at.saturating_add(event.ttl) <= now {
            row.channels.clear();
        }
        for channel in std::mem::take(&mut row.channels) {
            let cost = format_args!("Event {} is due and is not published in a channel", event.id);
            if damage::tolerate(self.channel(&channel.name), cost)?.is_some() {
                row.channels.push(channel);
            }
        }
        Ok(())
    }

    /// See [`Store::cancel_later`].
    pub(crate) fn cancel_later(&mut self, id_hash: Hash16) -> Result<bool, EngineError> {
        let Some((EventPlace::Later(key), _)) = self.known_id(&id_hash)? else { return Ok(false) };
        let row = self.get(Table::Later, &rows::later_key(key))?.unwrap_or_default();
        if let Ok(later) = rows::decode_later(key, &row) {
            for channel in &later.channels {
                self.release_channel(&channel.name)?;
            }
        }
        self.rows.delete(Table::EventId, id_hash);
        self.take_later(key, row.len())?;
        Ok(true)
    }

    fn take_later(&mut self, key: LaterKey, row_bytes: usize) -> Result<(), EngineError> {
        self.rows.delete(Table::Later, rows::later_key(key));
        self.state.later_count = self.state.later_count.saturating_sub(1);
        self.state.later_bytes = match self.state.later_count {
            0 => 0, // Corrects the sum if rows could not be read.
            _ => self.state.later_bytes.saturating_sub(row_bytes as u64),
        };
        if self.state.later_first == Some(key) {
            self.state.later_first = self.later_after(key)?;
        }
        Ok(())
    }

    /// The first scheduled event behind `key`, as this batch will leave them.
    fn later_after(&mut self, key: LaterKey) -> Result<Option<LaterKey>, EngineError> {
        let start = rows::later_key(key);
        let mut stored = None;
        let scanned = self.engine.scan(Place::Later, Table::Later, &Span::all().behind(&start), |found, _| {
            let is_taken = self.rows.get(Table::Later, found) == Some(None);
            stored = rows::decode_later_key(found).filter(|_| !is_taken);
            Ok(stored.is_none())
        });
        if damage::tolerate_quietly(scanned)?.is_none() {
            stored = self.later_after_by_ids(key)?;
        }
        let drafted = self.rows.after(Table::Later, &start).find(|(_, row)| row.is_some());
        let drafted = drafted.and_then(|(found, _)| rows::decode_later_key(found));
        Ok(stored.into_iter().chain(drafted).min())
    }

    /// The first stored scheduled event behind `key`, if an unreadable block ends the scan. It may be in that block; then it
    /// is lost when it is due.
    fn later_after_by_ids(&mut self, key: LaterKey) -> Result<Option<LaterKey>, EngineError> {
        self.later_ids()?;
        let behind = (Bound::Excluded(key), Bound::Unbounded);
        for (&key, _) in self.later_ids.iter().flat_map(|ids| ids.range(behind)) {
            let is_lost = damage::tolerate_quietly(self.get(Table::Later, &rows::later_key(key)))? == Some(None);
            if !is_lost {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    /// The result of [`later_ids`]. It is computed once per batch, because it scans all ids.
    fn later_ids(&mut self) -> Result<&BTreeMap<LaterKey, Hash16>, EngineError> {
        let ids = match self.later_ids.take() {
            Some(ids) => ids,
            None => {
                let ids = later_ids(self.engine)?;
                warn!(
                    count = ids.len(),
                    "A block of scheduled events cannot be read; the others are found by their ids"
                );
                ids
            }
        };
        Ok(self.later_ids.insert(ids))
    }
}

/// The event as if it were new. The wait for its receipts begins when it was due, like its time to live.
fn prepared(LaterRow { id_hash, json, channels, later }: LaterRow<'_>) -> PreparedEvent {
    let LaterEvent { key, mut event, audience_max, .. } = later;
    PreparedEvent {
        id_hash,
        content: hash32(json.as_bytes()),
        data: publication_data(&event),
        texts: texts(&event, &channels),
        receipt: event.receipt_terms(key.at),
        trace: event.trace.take(),
        id: event.id,
        json: json.as_bytes().to_vec(),
        channels,
        audience_max,
        later_at: None,
    }
}
