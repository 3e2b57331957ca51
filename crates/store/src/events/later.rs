//! Events that are accepted and not yet due: kept in the order in which they are, until they are moved into the journal.
//!
//! Moving is one atomic step with the publication into the event's channels: a crash leaves an event here or there, never
//! both or neither. Its id stays taken all the time; only trimming the journal or cancelling the event gives it free.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_types::{EventId, Timestamp};
use tokio::sync::watch;
use tracing::warn;

use super::read::later_ids;
use crate::committer::draft::Draft;
use crate::damage;
use crate::engine::{EngineError, Table};
use crate::error::WriteError;
use crate::events::prepared::PreparedEvent;
use crate::events::rows::{EventPlace, LaterRow};
use crate::events::{Appended, AppendedTo, LaterEvent, LaterKey, publication_data};
use crate::hash::{Hash16, hash16, hash32};
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::weight;

/// Events that are moved in one batch, and their bytes, over the first one.
const RELEASE_COUNT_MAX: usize = 256;
const RELEASE_BYTES_MAX: usize = 1 << 20;

impl Store {
    /// Moves events that are due at `now` into the journal and publishes each in its channels, in the order of their times
    /// and, at one time, of their acceptance: as many as one batch takes, so call again until it is 0. They count as accepted
    /// when they were due, their publications are of `now`. One whose time is over is published nowhere. Each is moved in
    /// one step: a crash neither loses nor doubles it.
    ///
    /// # Errors
    /// [`WriteError::Overloaded`] when the journal has no room for the first; it stays where it is, try again.
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

    /// Forgets an event that is not yet due, and its id; false when none with this id waits.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: forgotten or not.
    pub async fn cancel_later(&self, id: &EventId) -> Result<bool, WriteError> {
        let id_hash = hash16(id.as_str().as_bytes());
        self.write(Class::Brakes, weight::NAMES, move |draft| draft.cancel_later(id_hash)).await
    }

    /// Follows when the earliest event that is not yet due will be; `None` when there is none.
    pub fn next_later(&self) -> watch::Receiver<Option<Timestamp>> {
        self.shared().next_later.subscribe()
    }
}

impl Draft<'_> {
    /// Keeps an event until `at`; the caller has found room for it.
    pub(crate) fn put_later(
        &mut self,
        event: PreparedEvent,
        at: Timestamp,
        now: Timestamp,
    ) -> Result<Appended, EngineError> {
        let key = LaterKey { at, arrival: self.state.later_arrival };
        self.state.later_arrival += 1;
        for channel in &event.channels {
            self.keep_channel(&channel.name, at)?; // When the event is due there must be room for its channels.
        }
        let row = rows::later_row(&event, now);
        self.state.later_count += 1;
        self.state.later_bytes += row.len() as u64;
        self.state.later_first = Some(self.state.later_first.map_or(key, |first| first.min(key)));
        self.rows.put(Table::Later, rows::later_key(key), row);
        self.rows.put(Table::EventId, event.id_hash, rows::later_id_row(key, &event.content));
        Ok(Appended { to: AppendedTo::Later { at }, repeated: false })
    }

    /// Moves what is due into the journal, the earliest first, as far as there is room and one batch goes. Tells how
    /// many; an error only if there was no room for the first.
    pub(crate) fn release_later(&mut self, now: Timestamp) -> Result<Result<usize, WriteError>, EngineError> {
        let (mut released, mut bytes) = (0, 0);
        for _ in 0..RELEASE_COUNT_MAX {
            let Some(key) = self.state.later_first.filter(|key| key.at <= now && bytes < RELEASE_BYTES_MAX) else {
                break;
            };
            // One that cannot be read is lost like one that holds nothing.
            let row = damage::tolerate_quietly(self.get(Table::Later, &rows::later_key(key)))?.flatten();
            let row = row.unwrap_or_default();
            match damage::understood(rows::decode_later(key, &row), "An event that was to be sent later is lost") {
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

    /// Leaves an event only the channels that it is still published in: none when its time is over, and not one whose row
    /// is damaged, for which it and all behind it would wait for ever.
    fn keep_publishable(&self, row: &mut LaterRow<'_>, now: Timestamp) -> Result<(), EngineError> {
        let LaterEvent { key, event, .. } = &row.later;
        if key.at.saturating_add(event.ttl) <= now {
            row.channels.clear();
        }
        for channel in std::mem::take(&mut row.channels) {
            let cost = format_args!("Event {} is due, and is not published in a channel", event.id);
            if damage::tolerate(self.channel(&channel.name), cost)?.is_some() {
                row.channels.push(channel);
            }
        }
        Ok(())
    }

    /// Forgets an event that is not yet due, and its id. False when there is none.
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
            0 => 0, // Also those of rows that could not be read.
            _ => self.state.later_bytes.saturating_sub(row_bytes as u64),
        };
        if self.state.later_first == Some(key) {
            self.state.later_first = self.later_after(key)?;
        }
        Ok(())
    }

    /// The next one behind `key` as this batch will leave them. What was taken lies before, so it is not walked over again.
    fn later_after(&mut self, key: LaterKey) -> Result<Option<LaterKey>, EngineError> {
        let start = rows::later_key(key);
        let mut stored = None;
        let scanned = self.engine.scan(Table::Later, Bound::Excluded(&start), |found, _| {
            let is_taken = self.rows.get(Table::Later, found) == Some(None);
            stored = rows::decode_later_key(found).filter(|_| !is_taken);
            Ok::<_, EngineError>(stored.is_none())
        });
        if damage::tolerate_quietly(scanned)?.is_none() {
            stored = self.later_after_by_ids(key)?;
        }
        let drafted = self.rows.after(Table::Later, &start).find(|(_, row)| row.is_some());
        let drafted = drafted.and_then(|(found, _)| rows::decode_later_key(found));
        Ok(stored.into_iter().chain(drafted).min())
    }

    /// The next one that is stored, where a block that cannot be read ends the scan. It may be in that block itself: then
    /// it is lost when its turn comes.
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

    /// What [`later_ids`] found, once in a batch: it looks at every id that is remembered.
    fn later_ids(&mut self) -> Result<&BTreeMap<LaterKey, Hash16>, EngineError> {
        let ids = match self.later_ids.take() {
            Some(ids) => ids,
            None => {
                let ids = later_ids(self.engine)?;
                warn!(
                    count = ids.len(),
                    "A block of events for later cannot be read; the others are found by their ids"
                );
                ids
            }
        };
        Ok(self.later_ids.insert(ids))
    }
}

/// The event as if it were handed in now. What its publications ask of connections counts from when it was due, as its time
/// to live does.
fn prepared(LaterRow { id_hash, json, channels, later }: LaterRow<'_>) -> PreparedEvent {
    let LaterEvent { key, event, audience_max, .. } = later;
    PreparedEvent {
        id_hash,
        content: hash32(json.as_bytes()),
        data: publication_data(&event),
        receipt: event.receipt_terms(key.at),
        id: event.id,
        json: json.as_bytes().to_vec(),
        channels,
        audience_max,
        later_at: None,
    }
}
