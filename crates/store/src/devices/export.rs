//! Reading devices with all that belongs to them, as they can be imported elsewhere, and which of them are damaged.

use tidings_types::{DeviceId, DeviceNumber, UserId};

use super::read::read_device;
use crate::damage;
use crate::devices::credential::CredentialHash;
use crate::devices::rows::device::DeviceRow;
use crate::devices::{ExportPage, Exported};
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::mutes::read::read_mutes;
use crate::rows;
use crate::service::Store;
use crate::subscriptions::read::read_subscriptions;

/// What a damaged row costs an export.
const MISSING: &str = "A device is missing from an export";

impl Store {
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
                match damage::tolerate(read_all(engine, number, row), MISSING)? {
                    Some(device) => exported.push(device),
                    None => damaged.push(Some(id)),
                }
            }
            Ok(())
        })?;
        Ok(ExportPage { devices: self.with_proven(exported), damaged, last })
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
                match damage::tolerate(read, MISSING)? {
                    Some(device) => exported.extend(device), // Or it was deleted meanwhile.
                    None => damaged.push(name.clone()),
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
                match damage::tolerate(read, MISSING)? {
                    Some(device) => exported.extend(device),
                    None => damaged.push(self.known_id(number)),
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
}

/// A device with what rows have of it.
fn read_all(engine: &Engine, number: DeviceNumber, row: DeviceRow) -> Result<(DeviceNumber, Exported), EngineError> {
    let DeviceRow { device, credential } = row;
    let (subscriptions, mutes) = (read_subscriptions(engine, number, Err)?, read_mutes(engine, number, Err)?);
    let credential = credential.map(CredentialHash);
    Ok((number, Exported { device, credential, subscriptions, mutes, proven: false }))
}
