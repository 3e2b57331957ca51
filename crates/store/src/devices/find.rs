//! How the committer finds a device: in memory, by the row of its id, or, if that row is damaged, by searching all of memory.

use tidings_types::{DeviceId, DeviceNumber};

use crate::committer::draft::Draft;
use crate::damage;
use crate::devices::rows::device::DeviceRow;
use crate::engine::{EngineError, Table};
use crate::rows;

impl Draft<'_> {
    /// The device's number. If the row is damaged, all devices in memory are searched.
    pub(crate) fn find_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let is_untouched = self.rows.get(Table::DeviceId, rows::device_id_key(id)).is_none();
        if is_untouched
            && let Some(number) = self.shared.table.read().number_of(id)
            && self.rows.get(Table::Device, &rows::number_key(number)) != Some(None)
        {
            return Ok(Some(number));
        }
        match damage::tolerate(self.named_number(id), "A device is searched in memory")? {
            Some(number) => Ok(number),
            None => Ok(self.shared.table.read().find_all(|found| found.id == id.as_str()).pop()),
        }
    }

    /// The number in the row of the id.
    pub(crate) fn named_number(&self, id: &DeviceId) -> Result<Option<DeviceNumber>, EngineError> {
        let decode = |key: &[u8], row: &[u8]| rows::decode_number(Table::DeviceId, key, row);
        self.read(Table::DeviceId, rows::device_id_key(id), decode)
    }

    pub(crate) fn is_named(&self, id: &DeviceId, number: DeviceNumber) -> bool {
        self.named_number(id).is_ok_and(|named| named == Some(number))
    }

    pub(crate) fn find(&self, id: &DeviceId) -> Result<Option<(DeviceNumber, DeviceRow)>, EngineError> {
        let Some(number) = self.find_number(id)? else { return Ok(None) };
        // After damage, the number may belong to another device.
        Ok(self.row(number)?.filter(|row| row.device.id == *id).map(|row| (number, row)))
    }

    /// The row of a device. A device with a damaged row counts as unknown: if it registers again, it gets a new number.
    pub(crate) fn row(&self, number: DeviceNumber) -> Result<Option<DeviceRow>, EngineError> {
        let row = self.read(Table::Device, &rows::number_key(number), rows::decode_device);
        Ok(damage::tolerate(row, "A device is not known any more")?.flatten())
    }
}
