//! Reading rows: from the engine's memory or the disk, at the caller's cost, never behind a write. Memory is asked first who
//! has which number, where nobody writes to it just then.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_telemetry::chain;
use tidings_types::{
    ChannelName, Device, DeviceId, DeviceNumber, DeviceToken, EventId, ImportName, JournalPosition, Mute, Offset,
    Subject, Timestamp, TopicName, UserId,
};
use tracing::error;

use crate::channels::RestoredChannel;
use crate::channels::rows::{ChannelRow, HistoryRow};
use crate::devices::credential::{Credential, CredentialHash};
use crate::devices::rows::device::DeviceRow;
use crate::devices::{ExportPage, Exported, Recipient};
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::events::rows::EventPlace;
use crate::events::{AcceptedEvent, LaterEvent, LaterKey};
use crate::hash::{self, Hash16};
use crate::imports::ImportProgress;
use crate::meta::DISPATCHED_KEY;
use crate::rows;
use crate::service::Store;
use crate::subscriptions::Selection;

/// Bytes of events handed out at once, over the first event.
const EVENTS_BYTES_MAX: usize = 8 << 20;
/// Events that cannot be read at all and are passed over one by one, in one call: a block of a file holds fewer.
const UNREADABLE_COUNT_MAX: usize = 10_000;

impl Store {
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
            match rows::decode_event(&rows::position_key(position), row) {
                Ok(event) => events.push((position, event)),
                Err(error) => error!(error = chain(&error), "An event is left out of the journal"),
            }
            events.len() < limit
        };
        self.with_engine(|engine| {
            for _ in 0..UNREADABLE_COUNT_MAX {
                let scanned = engine.scan(Table::Event, Bound::Included(&rows::position_key(next)), |key, row| {
                    let position = rows::decode_position(Table::Event, key, key)?;
                    next = JournalPosition(position.0 + 1);
                    Ok::<_, EngineError>(take(position, row))
                });
                match scanned {
                    Err(error) if error.is_damage() && next < end => {}
                    scanned => return scanned,
                }
                // A scan ends at a block that cannot be read, also one that begins just behind it.
                let position = next;
                next = JournalPosition(position.0 + 1);
                match engine.get(Table::Event, &rows::position_key(position)) {
                    Ok(Some(row)) if !take(position, row.as_ref()) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if error.is_damage() => {
                        error!(error = chain(&error), "An event is left out of the journal")
                    }
                    Err(error) => return Err(error),
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
            match rows::decode_later(key, row) {
                Ok(row) => events.push(row.later),
                Err(error) => error!(error = chain(&error), "An event for later is left out of a list"),
            }
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
            match scanned {
                Err(error) if error.is_damage() => {}
                scanned => return scanned,
            }
            // The scan ended at a block that cannot be read.
            for key in later_ids(engine)?.into_keys().filter(|key| Some(*key) > last) {
                match engine.get(Table::Later, &rows::later_key(key)) {
                    Ok(Some(row)) if !take(key, row.as_ref()) => return Ok(()),
                    Ok(_) => {}
                    Err(error) if error.is_damage() => {
                        error!(error = chain(&error), "An event for later is left out of a list")
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        Ok(events)
    }

    /// All jobs that were checkpointed and not removed, oldest event first.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn jobs(&self) -> Result<Vec<(JournalPosition, Vec<u8>)>, ReadError> {
        let mut jobs = Vec::new();
        self.with_engine(|engine| {
            engine.scan(Table::Job, Bound::Unbounded, |key, row| {
                jobs.push((rows::decode_position(Table::Job, key, key)?, row.to_vec()));
                Ok::<_, EngineError>(true)
            })
        })?;
        Ok(jobs)
    }

    /// Every event before this position has had its job, as last checkpointed; 0 in a new store.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn dispatched(&self) -> Result<JournalPosition, ReadError> {
        self.with_engine(|engine| match engine.get(Table::Meta, DISPATCHED_KEY)? {
            Some(row) => rows::decode_position(Table::Meta, DISPATCHED_KEY, row.as_ref()),
            None => Ok(JournalPosition::default()),
        })
    }

    /// A device by the application's name for it.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn device(&self, id: &DeviceId) -> Result<Option<Device>, ReadError> {
        self.with_engine(|engine| Ok(self.find_device(engine, id)?.map(|(_, row)| row.device)))
    }

    /// The number of a device.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn device_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, ReadError> {
        self.with_engine(|engine| self.find_number(engine, id))
    }

    /// The number of a device that has been proven: by `credential`, or without one by other means, such as a token signed
    /// for it. `None`: no such device, or not its secret; a device that was imported without one has none.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn prove(&self, id: &DeviceId, credential: Option<&str>) -> Result<Option<DeviceNumber>, ReadError> {
        let Some(credential) = credential else { return self.device_number(id) };
        self.with_engine(|engine| {
            let proven = self
                .find_device(engine, id)?
                .filter(|(_, row)| row.credential.is_some_and(|known| Credential::matches(credential, &known)));
            Ok(proven.map(|(number, _)| number))
        })
    }

    /// The devices whose ids come after `after`, in order of ids, at most `limit`; fewer means that there are no more.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn devices(&self, after: Option<&DeviceId>, limit: usize) -> Result<Vec<Device>, ReadError> {
        let mut devices = Vec::new();
        if limit == 0 {
            return Ok(devices);
        }
        self.with_engine(|engine| {
            self.scan_ids(engine, after, limit, |id, number| {
                match read_device(engine, id, number) {
                    Ok(Some((_, row))) => devices.push(row.device),
                    Ok(None) => {} // Deleted meanwhile: its row is gone, though this view still has its id.
                    Err(error) if error.is_damage() => error!(error = chain(&error), "A device is left out of a list"),
                    Err(error) => return Err(error),
                }
                Ok(devices.len() < limit)
            })
        })?;
        Ok(devices)
    }

    /// Hands out ids and rows of numbers behind `after`, in order of ids, until `visit` says stop (false). Behind a block
    /// that cannot be read, memory knows them, `limit` at a look at every device; where memory has lost one too that is an
    /// error, until the committer has written its record anew. One whose row is damaged as well is known to nobody then.
    fn scan_ids(
        &self,
        engine: &Engine,
        after: Option<&DeviceId>,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        let start = after.map_or(Bound::Unbounded, |id| Bound::Excluded(rows::device_id_key(id)));
        let mut last = after.map_or_else(String::new, |id| id.as_str().to_owned());
        let scanned = engine.scan(Table::DeviceId, start, |id, number| {
            last = String::from_utf8_lossy(id).into_owned();
            visit(id, number)
        });
        match scanned {
            Err(error) if error.is_damage() && !self.has_lost() => {
                error!(error = chain(&error), "Devices are listed as memory knows them");
            }
            scanned => return scanned,
        }
        loop {
            let known = self.ids_behind(&last, limit);
            let is_end = known.len() < limit;
            for (id, number) in known {
                if !visit(id.as_bytes(), &rows::number_key(number))? {
                    return Ok(());
                }
                last = id;
            }
            if is_end {
                return Ok(());
            }
        }
    }

    /// Whether memory has lost what a device is; the committer is told of each.
    fn has_lost(&self) -> bool {
        let lost = self.shared().table.read().lost();
        lost.iter().for_each(|number| self.shared().losses.note(*number));
        !lost.is_empty()
    }

    /// The first devices behind `after` that memory knows, in order of ids; fewer than `limit`: all of them.
    fn ids_behind(&self, after: &str, limit: usize) -> BTreeMap<String, DeviceNumber> {
        let first = RefCell::new(BTreeMap::new());
        let note = |found: &Recipient<'_>| {
            let mut first = first.borrow_mut();
            let is_full = first.len() >= limit;
            let is_first = |last: (&String, _)| found.id < last.0.as_str();
            if found.id > after && (!is_full || first.last_key_value().is_some_and(is_first)) {
                first.insert(found.id.to_owned(), found.number);
                if is_full {
                    first.pop_last();
                }
            }
            false
        };
        self.shared().table.read().find_all(note);
        first.into_inner()
    }

    /// The devices of a user whose ids come after `after`, in order of ids, at most `limit`; fewer means that there are no
    /// more. Looks at each of his devices in memory, up to [`USER_DEVICE_COUNT_MAX`](crate::USER_DEVICE_COUNT_MAX), and
    /// reads those that it tells.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn devices_of_user(
        &self,
        user: &UserId,
        after: Option<&DeviceId>,
        limit: usize,
    ) -> Result<Vec<Device>, ReadError> {
        let rows = self.with_engine(|engine| self.rows_of_user(engine, (user, after), limit, &mut Vec::new()))?;
        Ok(rows.into_values().map(|(_, row)| row.device).collect())
    }

    /// The same devices with all that belongs to them, and those that cannot be read.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export_of_user(
        &self,
        user: &UserId,
        after: Option<&DeviceId>,
        limit: usize,
    ) -> Result<ExportPage, ReadError> {
        let (mut exported, mut damaged, mut last) = (Vec::new(), Vec::new(), None);
        self.with_engine(|engine| {
            let rows = self.rows_of_user(engine, (user, after), limit, &mut damaged)?;
            last = rows.keys().next_back().filter(|_| rows.len() >= limit).cloned();
            for (id, (number, row)) in rows {
                match read_all(engine, number, row) {
                    Ok(device) => exported.push(device),
                    Err(error) if error.is_damage() => {
                        error!(error = chain(&error), "A device is missing from an export");
                        damaged.push(Some(id));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        Ok(ExportPage { devices: self.with_proven(exported), damaged, last })
    }

    fn rows_of_user(
        &self,
        engine: &Engine,
        (user, after): (&UserId, Option<&DeviceId>),
        limit: usize,
        damaged: &mut Vec<Option<DeviceId>>,
    ) -> Result<BTreeMap<DeviceId, (DeviceNumber, DeviceRow)>, EngineError> {
        let mut numbers = self.numbers_of_user(user, after).into_iter().peekable();
        let mut rows: BTreeMap<DeviceId, (DeviceNumber, DeviceRow)> = BTreeMap::new();
        let mut is_cut = false;
        // Those without a name in memory come first: they are read all.
        let mut named_count = 0;
        while let Some((name, number)) = numbers.next_if(|(name, _)| name.is_none() || named_count < limit) {
            let key = rows::number_key(number);
            let row = engine.get(Table::Device, &key).and_then(|row| {
                let row = row.map(|row| rows::decode_device(&key, row.as_ref()));
                row.transpose()
            });
            let is_named = name.is_some();
            let row = match row {
                Err(error) if error.is_damage() => {
                    error!(error = chain(&error), "A device is left out of a list");
                    if is_named || after.is_none() {
                        damaged.push(name); // One without a name on the first page only.
                    }
                    None
                }
                row => row?,
            };
            // Meanwhile it may have been deleted or be another's.
            if let Some(row) = row.filter(|row| row.device.user.as_ref() == Some(user))
                && after.is_none_or(|after| row.device.id > *after)
            {
                named_count += usize::from(is_named);
                rows.insert(row.device.id.clone(), (number, row));
                if rows.len() > limit {
                    rows.pop_last();
                    is_cut = true;
                }
            }
        }
        if let Some((last, _)) = rows.last_key_value().filter(|_| is_cut) {
            damaged.retain(|name| name.as_ref().is_none_or(|name| name <= last)); // The others are of the next page.
        }
        Ok(rows)
    }

    /// The numbers of a user's devices in the order of their ids, those that memory knows behind `after`, and first those
    /// of which it lost what they are.
    fn numbers_of_user(&self, user: &UserId, after: Option<&DeviceId>) -> Vec<(Option<DeviceId>, DeviceNumber)> {
        let numbers = self.shared().index.read().devices_of_user(user);
        let table = self.shared().table.read();
        let mut named: Vec<_> = numbers
            .into_iter()
            .map(|number| (table.recipient(number).ok().flatten().map(|found| found.id), number))
            .filter(|(name, _)| name.is_none_or(|name| after.is_none_or(|after| name > after.as_str())))
            .collect();
        named.sort_unstable();
        let owned = |name: Option<&str>| name.and_then(|name| DeviceId::new(name).ok());
        named.into_iter().map(|(name, number)| (owned(name), number)).collect()
    }

    /// The device that has this address.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn device_by_token(&self, token: &DeviceToken) -> Result<Option<Device>, ReadError> {
        let token_key = rows::token_key(token);
        self.with_engine(|engine| {
            let Some(number) = engine.get(Table::Token, &token_key)? else { return Ok(None) };
            let key = rows::number_key(rows::decode_number(Table::Token, &token_key, number.as_ref())?);
            let row =
                engine.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, row.as_ref())).transpose()?;
            // Between the two reads it may have got another.
            let has_it = |device: &Device| device.token.as_ref().is_some_and(|had| rows::token_key(had) == token_key);
            Ok(row.map(|row| row.device).filter(has_it))
        })
    }

    /// Devices with all that belongs to them, in order of ids, those behind `after`: at most `limit`, with those among
    /// them that cannot be read. A device that changes while it is read may have what belongs to it from before or after
    /// the change.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export(&self, after: Option<&DeviceId>, limit: usize) -> Result<ExportPage, ReadError> {
        let (mut exported, mut damaged, mut last) = (Vec::new(), Vec::new(), None);
        if limit == 0 {
            return Ok(ExportPage::default());
        }
        self.with_engine(|engine| {
            self.scan_ids(engine, after, limit, |id, number| {
                let name = std::str::from_utf8(id).ok().and_then(|id| DeviceId::new(id).ok());
                let read = read_device(engine, id, number)
                    .and_then(|found| found.map(|(number, row)| read_all(engine, number, row)).transpose());
                match read {
                    Ok(device) => exported.extend(device), // Or it was deleted meanwhile, as above.
                    Err(error) if error.is_damage() => {
                        error!(error = chain(&error), "A device is missing from an export");
                        damaged.push(name.clone());
                    }
                    Err(error) => return Err(error),
                }
                let is_full = exported.len() + damaged.len() >= limit;
                last = name.filter(|_| is_full);
                Ok(!is_full)
            })
        })?;
        Ok(ExportPage { devices: self.with_proven(exported), damaged, last })
    }

    /// The devices of these numbers that there are, in this order, each as [`Store::export`] has it.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export_numbers(&self, numbers: &[DeviceNumber]) -> Result<ExportPage, ReadError> {
        let (mut exported, mut damaged) = (Vec::with_capacity(numbers.len()), Vec::new());
        self.with_engine(|engine| {
            for &number in numbers {
                let key = rows::number_key(number);
                let read = engine.get(Table::Device, &key).and_then(|row| {
                    let row = row.map(|row| rows::decode_device(&key, row.as_ref())).transpose()?;
                    row.map(|row| read_all(engine, number, row)).transpose()
                });
                match read {
                    Ok(device) => exported.extend(device),
                    Err(error) if error.is_damage() => {
                        error!(error = chain(&error), "A device is missing from an export");
                        damaged.push(self.known_id(number));
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        Ok(ExportPage { devices: self.with_proven(exported), damaged, last: None })
    }

    /// The id of a device as memory has it.
    fn known_id(&self, number: DeviceNumber) -> Option<DeviceId> {
        let table = self.shared().table.read();
        table.recipient(number).ok().flatten().and_then(|found| DeviceId::new(found.id).ok())
    }

    fn with_proven(&self, devices: Vec<(DeviceNumber, Exported)>) -> Vec<Exported> {
        let table = self.shared().table.read();
        let told = |(number, device): (_, Exported)| Exported { proven: table.is_proven(number), ..device };
        devices.into_iter().map(told).collect()
    }

    /// How far the import of this name is; `None`: it never took a step, or is forgotten.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn import_progress(&self, name: &ImportName) -> Result<Option<ImportProgress>, ReadError> {
        let key = name.as_str().as_bytes();
        self.with_engine(|engine| {
            let row = engine.get(Table::Import, key)?;
            row.map(|row| rows::decode(Table::Import, key, row.as_ref())).transpose()
        })
    }

    /// What a device has muted, everything first, then in the order of subjects; `None` when there is no such device. One
    /// that is over may still be there for a moment.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn mutes(&self, id: &DeviceId) -> Result<Option<Vec<Mute>>, ReadError> {
        self.with_engine(|engine| {
            let number = self.find_number(engine, id)?;
            let leave_out = |error| {
                error!(error = chain(&error), "A mute is left out of a list");
                Ok(())
            };
            number.map(|number| read_mutes(engine, number, leave_out)).transpose()
        })
    }

    /// What a device is subscribed to, in the order of names; `None` when there is no such device.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn subscriptions(&self, id: &DeviceId) -> Result<Option<Selection>, ReadError> {
        self.with_engine(|engine| {
            let Some(number) = self.find_number(engine, id)? else { return Ok(None) };
            let mut selection = Selection::new();
            let leave_out = |error| {
                error!(error = chain(&error), "A subscription is left out of a list");
                Ok(())
            };
            for (subject, topic) in read_subscriptions(engine, number, leave_out)? {
                match selection.last_mut() {
                    Some((last, topics)) if *last == subject => topics.push(topic),
                    _ => selection.push((subject, vec![topic])),
                }
            }
            Ok(Some(selection))
        })
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

    /// Memory mostly knows the number; it does too where the row that names the device is damaged.
    fn find_number(&self, engine: &Engine, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let hint = self.shared().table.try_read().and_then(|table| table.number_of(id));
        if hint.is_some() {
            return Ok(hint);
        }
        let key = rows::device_id_key(id);
        let number = engine
            .get(Table::DeviceId, key)
            .and_then(|row| row.map(|row| rows::decode_number(Table::DeviceId, key, row.as_ref())).transpose());
        match number {
            Err(error) if error.is_damage() => {
                error!(error = chain(&error), "A device is looked for in memory");
                Ok(self.shared().table.read().find_all(|found| found.id == id.as_str()).pop())
            }
            number => number,
        }
    }

    fn find_device(&self, engine: &Engine, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(engine, id)? else { return Ok(None) };
        // Between the two reads the device may have been deleted.
        read_device(engine, rows::device_id_key(id), &rows::number_key(number))
    }

    pub(crate) fn with_engine<T>(&self, read: impl FnOnce(&Engine) -> Result<T, EngineError>) -> Result<T, ReadError> {
        let engine = self.shared().engine.read();
        Ok(read(engine.as_ref().ok_or(ReadError::Unavailable)?)?)
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

/// The device under `number`, if it is the one that `id` names: the row of another proves nothing of this one.
fn read_device(engine: &Engine, id: &[u8], number: &[u8]) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
    let place = rows::decode_number(Table::DeviceId, id, number)?;
    let Some(row) = engine.get(Table::Device, number)? else { return Ok(None) };
    let row = rows::decode_device(number, row.as_ref())?;
    if rows::device_id_key(&row.device.id) != id {
        return Err(EngineError::damaged(Table::DeviceId, id));
    }
    Ok(Some((place, row)))
}

/// A device with what rows have of it.
fn read_all(engine: &Engine, number: DeviceNumber, row: DeviceRow) -> Result<(DeviceNumber, Exported), EngineError> {
    let DeviceRow { device, credential } = row;
    let (subscriptions, mutes) = (read_subscriptions(engine, number, Err)?, read_mutes(engine, number, Err)?);
    let credential = credential.map(CredentialHash);
    Ok((number, Exported { device, credential, subscriptions, mutes, proven: false }))
}

/// What a device is subscribed to, in the order of names. `on_damage` says whether to go on without one.
fn read_subscriptions(
    engine: &Engine,
    number: DeviceNumber,
    on_damage: impl Fn(EngineError) -> Result<(), EngineError>,
) -> Result<Vec<(Subject, TopicName)>, EngineError> {
    let (prefix, mut subscriptions) = (rows::number_key(number), Vec::new());
    engine.scan(Table::Subscription, Bound::Included(&prefix), |key, _| {
        let is_ours = key.starts_with(&prefix);
        match rows::decode_subscription(key) {
            Ok((_, subject, topic)) if is_ours => subscriptions.push((subject, topic)),
            Err(error) if is_ours => on_damage(error)?,
            Ok(_) | Err(_) => {}
        }
        Ok::<_, EngineError>(is_ours)
    })?;
    Ok(subscriptions)
}

/// What a device has muted, everything first, then in the order of subjects. `on_damage` says whether to go on without one.
fn read_mutes(
    engine: &Engine,
    number: DeviceNumber,
    on_damage: impl Fn(EngineError) -> Result<(), EngineError>,
) -> Result<Vec<Mute>, EngineError> {
    let (prefix, mut mutes) = (rows::number_key(number), Vec::new());
    engine.scan(Table::Mute, Bound::Included(&prefix), |key, row| {
        let is_ours = key.starts_with(&prefix);
        match rows::decode_mute(key, row) {
            Ok((_, mute)) if is_ours => mutes.push(mute),
            Err(error) if is_ours => on_damage(error)?,
            Ok(_) | Err(_) => {}
        }
        Ok::<_, EngineError>(is_ours)
    })?;
    Ok(mutes)
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
