//! Reading the mutes of a device.

use tidings_types::{DeviceId, DeviceNumber, Mute};

use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

impl Store {
    /// The mutes of a device: first the mute of everything, then the others in the order of their subjects. `None` when
    /// there is no such device. A mute that is over may be listed for another moment.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn mutes(&self, id: &DeviceId) -> Result<Option<Vec<Mute>>, ReadError> {
        self.with_engine(|engine| {
            let number = self.find_number(engine, id)?;
            number.map(|number| read_mutes(engine, number, Some("A mute is left out of a list"))).transpose()
        })
    }
}

/// The mutes of a device in the order of [`Store::mutes`]; see [`rows::read_rows_of_device`] for `cost`.
pub(crate) fn read_mutes(engine: &Engine, number: DeviceNumber, cost: Option<&str>) -> Result<Vec<Mute>, EngineError> {
    let decode = |key: &[u8], row: &[u8]| Ok(rows::decode_mute(key, row)?.1);
    rows::read_rows_of_device(engine, Table::Mute, number, decode, cost)
}
