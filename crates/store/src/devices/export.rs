//! Reads devices with all their data for an import elsewhere, and reports damaged ones.

use tidings_types::{DeviceId, DeviceNumber, Mute, MuteScope, UserId};

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

/// A page ends with the device whose subscriptions and mutes reach so many bytes.
pub const PAGE_BYTES: usize = if cfg!(test) { 30 << 10 } else { 4 << 20 };
/// A subscription or a mute without its names.
const ENTRY_BYTES: usize = 64;

/// The log line for a damaged device.
const MISSING: &str = "A device is missing from an export";

impl Store {
    /// The devices of [`Store::devices_of_user`] with all their data, and those that cannot be read.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export_of_user(
        &self,
        user: &UserId,
        after: Option<&DeviceId>,
        limit: usize,
    ) -> Result<ExportPage, ReadError> {
        let mut found = Found::default();
        self.with_engine(|engine| {
            let rows = self.rows_of_user(engine, (user, after), limit, &mut found.damaged)?;
            found.last = rows.keys().next_back().filter(|_| rows.len() >= limit).cloned();
            for (id, (number, row)) in rows {
                found.add(read_all(engine, number, row).map(Some), || Some(id.clone()))?;
                if found.bytes >= PAGE_BYTES {
                    found.last = Some(id);
                    break;
                }
            }
            Ok(())
        })?;
        Ok(self.page(found))
    }

    /// Devices with all their data, behind `after` in order of their ids: at most `limit`, including the unreadable ones. If
    /// a device changes meanwhile, its data may be from before or after the change.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export(&self, after: Option<&DeviceId>, limit: usize) -> Result<ExportPage, ReadError> {
        let mut found = Found::default();
        if limit == 0 {
            return Ok(ExportPage::default());
        }
        self.with_engine(|engine| {
            self.scan_ids(engine, after, limit, |id, number| {
                let name = std::str::from_utf8(id).ok().and_then(|id| DeviceId::new(id).ok());
                let read = read_device(engine, id, number)
                    .and_then(|found| found.map(|(number, row)| read_all(engine, number, row)).transpose());
                found.add(read, || name.clone())?;
                let is_full = found.bytes >= PAGE_BYTES || found.devices.len() + found.damaged.len() >= limit;
                found.last = name.filter(|_| is_full);
                Ok(!is_full)
            })
        })?;
        Ok(self.page(found))
    }

    /// The devices with these numbers that exist, in this order, each as in [`Store::export`], and how many of the numbers the
    /// page covers: at least one, if there are any.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn export_numbers(&self, numbers: &[DeviceNumber]) -> Result<(ExportPage, usize), ReadError> {
        let (mut found, mut covered) = (Found::default(), 0);
        self.with_engine(|engine| {
            for &number in numbers {
                if found.bytes >= PAGE_BYTES {
                    break;
                }
                covered += 1;
                let row = engine.read(Table::Device, &rows::number_key(number), rows::decode_device);
                let read = row.and_then(|row| row.map(|row| read_all(engine, number, row)).transpose());
                found.add(read, || self.known_id(number))?;
            }
            Ok(())
        })?;
        Ok((self.page(found), covered))
    }

    /// The id of a device in memory.
    fn known_id(&self, number: DeviceNumber) -> Option<DeviceId> {
        let table = self.shared().table.read();
        table.recipient(number).ok().flatten().and_then(|found| DeviceId::new(found.id).ok())
    }

    fn page(&self, Found { devices, damaged, last, bytes: _ }: Found) -> ExportPage {
        let table = self.shared().table.read();
        let complete = |(number, device): (_, Exported)| Exported { proven: table.is_proven(number), ..device };
        ExportPage { devices: devices.into_iter().map(complete).collect(), damaged, last }
    }
}

/// A page in the making: only the device table knows which tokens are proven.
#[derive(Default)]
struct Found {
    devices: Vec<(DeviceNumber, Exported)>,
    damaged: Vec<Option<DeviceId>>,
    last: Option<DeviceId>,
    /// Of subscriptions and mutes.
    bytes: usize,
}

impl Found {
    /// Adds what was read of a device, unless the device was deleted meanwhile (`None`). `id` names a damaged device.
    fn add(
        &mut self,
        read: Result<Option<(DeviceNumber, Exported)>, EngineError>,
        id: impl FnOnce() -> Option<DeviceId>,
    ) -> Result<(), EngineError> {
        match damage::tolerate(read, MISSING)? {
            Some(device) => {
                self.bytes += device.as_ref().map_or(0, |(_, device)| entries_bytes(device));
                self.devices.extend(device);
            }
            None => self.damaged.push(id()),
        }
        Ok(())
    }
}

fn entries_bytes(Exported { subscriptions, mutes, .. }: &Exported) -> usize {
    let subscriptions =
        subscriptions.iter().map(|(subject, topic)| subject.as_str().len() + topic.as_str().len() + ENTRY_BYTES);
    let of_mute = |mute: &Mute| match &mute.scope {
        MuteScope::Everything => ENTRY_BYTES,
        MuteScope::Subject(subject) => subject.as_str().len() + ENTRY_BYTES,
    };
    subscriptions.sum::<usize>() + mutes.iter().map(of_mute).sum::<usize>()
}

/// A device with its data from rows.
fn read_all(engine: &Engine, number: DeviceNumber, row: DeviceRow) -> Result<(DeviceNumber, Exported), EngineError> {
    let DeviceRow { device, credential } = row;
    let (subscriptions, mutes) = (read_subscriptions(engine, number, None)?, read_mutes(engine, number, None)?);
    let credential = credential.map(CredentialHash);
    Ok((number, Exported { device, credential, subscriptions, mutes, proven: false }))
}
