//! Reading the mutes of a device.

use std::ops::Bound;

use tidings_types::{DeviceId, DeviceNumber, Mute};

use crate::damage;
use crate::engine::{Engine, EngineError, Table};
use crate::error::ReadError;
use crate::rows;
use crate::service::Store;

impl Store {
    /// What a device has muted, everything first, then in the order of subjects; `None` when there is no such device. One
    /// that is over may still be there for a moment.
    ///
    /// # Errors
    /// When the store is being opened again or the disk fails.
    pub fn mutes(&self, id: &DeviceId) -> Result<Option<Vec<Mute>>, ReadError> {
        self.with_engine(|engine| {
            let number = self.find_number(engine, id)?;
            let leave_out = |error| damage::tolerate(Err::<(), _>(error), "A mute is left out of a list").map(drop);
            number.map(|number| read_mutes(engine, number, leave_out)).transpose()
        })
    }
}

/// What a device has muted, everything first, then in the order of subjects. `on_damage` says whether to go on without one.
pub(crate) fn read_mutes(
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
