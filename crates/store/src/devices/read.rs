//! Reads devices from the engine, in the caller's thread, without waiting for a write.
//!
//! The number of a device is first searched in memory, unless the memory is just being written.

use std::cell::RefCell;
use std::collections::BTreeMap;

use tidings_types::{Device, DeviceId, DeviceNumber, UserId};

use crate::damage;
use crate::devices::Recipient;
use crate::devices::credential::Credential;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{Engine, EngineError, Place, Span, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

/// The log line for a damaged device in a list.
const LEFT_OUT: &str = "A device is left out of a list";

impl Store {
    /// The device with this id.
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

    /// The number of a device that proves its identity by `credential`, or, if this is `None`, has proven it by other means
    /// such as a signed token. `None`: there is no such device, the secret is wrong, or the device was imported without one.
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

    /// The devices behind `after` in order of their ids, at most `limit`. Fewer means that there are no more.
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
                let found = damage::tolerate(read_device(engine, id, number), LEFT_OUT)?.flatten();
                devices.extend(found.map(|(_, row)| row.device)); // `None`: it was deleted meanwhile.
                Ok(devices.len() < limit)
            })
        })?;
        Ok(devices)
    }

    /// Visits the rows of ids behind `after` in order of the ids, until `visit` returns false. Behind an unreadable block, the
    /// ids are taken from memory, `limit` at each search through all devices. If the record of a device in memory is damaged
    /// too, this is an error until the committer has written the record anew. A device whose row is also damaged is then
    /// left out.
    pub(crate) fn scan_ids(
        &self,
        engine: &Engine,
        after: Option<&DeviceId>,
        limit: usize,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<bool, EngineError>,
    ) -> Result<(), EngineError> {
        let span = after.map_or(Span::all(), |id| Span::all().behind(rows::device_id_key(id)));
        let mut last = after.map_or_else(String::new, |id| id.as_str().to_owned());
        let scanned = engine.scan(Place::DeviceIds, Table::DeviceId, &span, |id, number| {
            last = String::from_utf8_lossy(id).into_owned();
            visit(id, number)
        });
        if scanned.as_ref().is_err_and(EngineError::is_damage) && self.has_lost() {
            return scanned;
        }
        if damage::tolerate(scanned, "Devices are listed from memory")?.is_some() {
            return Ok(());
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

    /// Whether a record in memory is damaged. Notes each for the committer.
    fn has_lost(&self) -> bool {
        let lost = self.shared().table.read().lost();
        lost.iter().for_each(|number| self.shared().losses.note(*number));
        !lost.is_empty()
    }

    /// The first `limit` devices in memory behind `after`, in order of their ids.
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

    /// The devices of a user behind `after` in order of their ids, at most `limit`. Fewer means that there are no more. It
    /// reads all devices of the user in memory, up to [`USER_DEVICE_COUNT_MAX`](crate::USER_DEVICE_COUNT_MAX), and the rows
    /// of those that it returns.
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

    pub(crate) fn rows_of_user(
        &self,
        engine: &Engine,
        (user, after): (&UserId, Option<&DeviceId>),
        limit: usize,
        damaged: &mut Vec<Option<DeviceId>>,
    ) -> Result<BTreeMap<DeviceId, (DeviceNumber, DeviceRow)>, EngineError> {
        let mut numbers = self.numbers_of_user(user, after).into_iter().peekable();
        let mut rows: BTreeMap<DeviceId, (DeviceNumber, DeviceRow)> = BTreeMap::new();
        let mut is_cut = false;
        // The devices whose name is not in memory come first. All of them are read.
        let mut named_count = 0;
        while let Some((name, number)) = numbers.next_if(|(name, _)| name.is_none() || named_count < limit) {
            let row = engine.read(Table::Device, &rows::number_key(number), rows::decode_device);
            let is_named = name.is_some();
            let row = damage::tolerate(row, LEFT_OUT)?;
            if row.is_none() && (is_named || after.is_none()) {
                damaged.push(name); // A device without a name is only on the first page.
            }
            // Meanwhile it may have been deleted or have another user.
            if let Some(row) = row.flatten().filter(|row| row.device.user.as_ref() == Some(user))
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
            damaged.retain(|name| name.as_ref().is_none_or(|name| name <= last)); // The others are on the next page.
        }
        Ok(rows)
    }

    /// The devices of a user behind `after` in order of their ids. The devices with a damaged record come first, without an
    /// id.
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

    /// The device's number. If the row is damaged, all devices in memory are searched.
    pub(crate) fn find_number(&self, engine: &Engine, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let hint = self.shared().table.try_read().and_then(|table| table.number_of(id));
        if hint.is_some() {
            return Ok(hint);
        }
        let decode = |key: &[u8], row: &[u8]| rows::decode_number(Table::DeviceId, key, row);
        let number = engine.read(Table::DeviceId, rows::device_id_key(id), decode);
        match damage::tolerate(number, "A device is searched in memory")? {
            Some(number) => Ok(number),
            None => Ok(self.shared().table.read().find_all(|found| found.id == id.as_str()).pop()),
        }
    }

    fn find_device(&self, engine: &Engine, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(engine, id)? else { return Ok(None) };
        // Between the two reads the device may have been deleted.
        read_device(engine, rows::device_id_key(id), &rows::number_key(number))
    }
}

/// The device under `number`; an error if it has another id.
pub(crate) fn read_device(
    engine: &Engine,
    id: &[u8],
    number: &[u8],
) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
    let place = rows::decode_number(Table::DeviceId, id, number)?;
    let Some(row) = engine.read(Table::Device, number, rows::decode_device)? else { return Ok(None) };
    if rows::device_id_key(&row.device.id) != id {
        return Err(EngineError::damaged(Table::DeviceId, id));
    }
    Ok(Some((place, row)))
}
