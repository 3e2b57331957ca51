//! Reading devices from the engine's memory or the disk, at the caller's cost, never behind a write.
//!
//! Which number a device has, memory is asked first, unless somebody writes to it just then.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_types::{Device, DeviceId, DeviceNumber, UserId};

use crate::damage;
use crate::devices::Recipient;
use crate::devices::credential::Credential;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

/// What a damaged row costs a list.
const LEFT_OUT: &str = "A device is left out of a list";

impl Store {
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
                let found = damage::tolerate(read_device(engine, id, number), LEFT_OUT)?.flatten();
                devices.extend(found.map(|(_, row)| row.device)); // Or it was deleted, and this view still has its id.
                Ok(devices.len() < limit)
            })
        })?;
        Ok(devices)
    }

    /// Hands out ids and rows of numbers behind `after`, in order of ids, until `visit` says stop (false). Behind a block
    /// that cannot be read, memory knows them, `limit` at a look at every device; where memory has lost one too that is an
    /// error, until the committer has written its record anew. One whose row is damaged as well is known to nobody then.
    pub(crate) fn scan_ids(
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
        if scanned.as_ref().is_err_and(EngineError::is_damage) && self.has_lost() {
            return scanned;
        }
        if damage::tolerate(scanned, "Devices are listed as memory knows them")?.is_some() {
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
        // Those without a name in memory come first: they are read all.
        let mut named_count = 0;
        while let Some((name, number)) = numbers.next_if(|(name, _)| name.is_none() || named_count < limit) {
            let key = rows::number_key(number);
            let row = engine.get(Table::Device, &key).and_then(|row| {
                let row = row.map(|row| rows::decode_device(&key, row.as_ref()));
                row.transpose()
            });
            let is_named = name.is_some();
            let row = damage::tolerate(row, LEFT_OUT)?;
            if row.is_none() && (is_named || after.is_none()) {
                damaged.push(name); // One without a name on the first page only.
            }
            // Meanwhile it may have been deleted or be another's.
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

    /// Memory mostly knows the number; it does too where the row that names the device is damaged.
    pub(crate) fn find_number(&self, engine: &Engine, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let hint = self.shared().table.try_read().and_then(|table| table.number_of(id));
        if hint.is_some() {
            return Ok(hint);
        }
        let key = rows::device_id_key(id);
        let number = engine
            .get(Table::DeviceId, key)
            .and_then(|row| row.map(|row| rows::decode_number(Table::DeviceId, key, row.as_ref())).transpose());
        match damage::tolerate(number, "A device is looked for in memory")? {
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

/// The device under `number`, if it is the one that `id` names: the row of another proves nothing of this one.
pub(crate) fn read_device(
    engine: &Engine,
    id: &[u8],
    number: &[u8],
) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
    let place = rows::decode_number(Table::DeviceId, id, number)?;
    let Some(row) = engine.get(Table::Device, number)? else { return Ok(None) };
    let row = rows::decode_device(number, row.as_ref())?;
    if rows::device_id_key(&row.device.id) != id {
        return Err(EngineError::damaged(Table::DeviceId, id));
    }
    Ok(Some((place, row)))
}
