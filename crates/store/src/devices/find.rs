//! How the committer finds a device: by memory, by the row of its id, and where that is damaged by all of memory.

use tidings_types::{DeviceId, DeviceNumber};

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::rows;

impl Draft<'_> {
    /// The device's number. Memory mostly knows; it does too where the row that says it is damaged.
    pub(crate) fn find_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let is_untouched = self.rows.get(Table::DeviceId, rows::device_id_key(id)).is_none();
        if is_untouched
            && let Some(number) = self.shared.table.read().number_of(id)
            && self.rows.get(Table::Device, &rows::number_key(number)) != Some(None)
        {
            return Ok(Some(number));
        }
        match damage::tolerate(self.named_number(id), "A device is looked for in memory")? {
            Some(number) => Ok(number),
            None => Ok(self.shared.table.read().find_all(|found| found.id == id.as_str()).pop()),
        }
    }

    /// What the row says that names the device.
    pub(crate) fn named_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let key = rows::device_id_key(id);
        self.get(Table::DeviceId, key)?.map(|row| rows::decode_number(Table::DeviceId, key, &row)).transpose()
    }

    pub(crate) fn is_named(&self, id: &DeviceId, number: DeviceNumber) -> bool {
        self.named_number(id).is_ok_and(|named| named == Some(number))
    }

    pub(crate) fn find(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(None) };
        // A row of another device is not this one's, whatever names it.
        Ok(self.row(number)?.filter(|row| row.device.id == *id).map(|row| (number, row)))
    }

    /// What is kept of a device. One whose row is damaged is not known: registered again, it gets a new number.
    pub(crate) fn row(&self, number: DeviceNumber) -> Result<Option<DeviceRow>, EngineError> {
        let key = rows::number_key(number);
        let row = self.get(Table::Device, &key)?.map(|row| rows::decode_device(&key, &row));
        Ok(damage::tolerate(row.transpose(), "A device is not known any more")?.flatten())
    }
}
