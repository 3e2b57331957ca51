//! The set of proven tokens: a bit per device number, in rows of 2^16 numbers each.
//!
//! A batch changes copies of these rows and writes each changed row once, however many bits it sets. A first job to a million
//! new devices writes 8 KiB per batch and 65 536 device numbers, and no device row.

use tidings_types::DeviceNumber;

use crate::committer::draft::{Draft, Undo};
use crate::engine::{EngineError, Table};
use crate::error::WriteError;
use crate::queue::Class;
use crate::rows;
use crate::service::Store;
use crate::table::{Lost, proven_place};
use crate::weight;

impl Store {
    /// Notes that providers have accepted pushes to the tokens of these devices. Devices that do not exist or have no token
    /// are skipped. A new token is unproven again. A token that was replaced between the push and this call counts as
    /// proven. Not synced: after a power failure, some tokens may be unproven again.
    ///
    /// Pass many devices at once: each call may rewrite 8 KiB per 65 536 device numbers that it changes.
    ///
    /// # Errors
    /// When the store is overloaded or cannot write.
    ///
    /// # Cancel safety
    /// Dropped: noted or not.
    pub async fn devices_proven(&self, numbers: Vec<DeviceNumber>) -> Result<(), WriteError> {
        let bytes = weight::NUMBERS + size_of::<DeviceNumber>() * numbers.len();
        self.write_lazily(Class::Devices, bytes, move |draft| draft.devices_proven(&numbers)).await
    }
}

impl Draft<'_> {
    /// See [`Store::devices_proven`].
    pub(crate) fn devices_proven(&mut self, numbers: &[DeviceNumber]) -> Result<(), EngineError> {
        for &number in numbers {
            if self.has_token(number)? {
                self.set_proven(number, true);
            }
        }
        Ok(())
    }

    pub(crate) fn set_proven(&mut self, number: DeviceNumber, is_proven: bool) {
        let (chunk, place) = proven_place(number);
        let table = self.shared.table.read();
        let known = self.proven.get(&chunk).map(|bits| bits.contains(place));
        if known.unwrap_or_else(|| table.is_proven(number)) == is_proven {
            return;
        }
        self.undo.push(Undo::Proven(number, !is_proven));
        let bits = self.proven.entry(chunk).or_insert_with(|| table.proven_chunk(chunk));
        if is_proven {
            bits.insert(place);
        } else {
            bits.remove(place);
        }
    }

    /// Reads memory unless this batch has changed the device, because a million row reads would take seconds.
    fn has_token(&self, number: DeviceNumber) -> Result<bool, EngineError> {
        let key = rows::number_key(number);
        match self.rows.get(Table::Device, &key) {
            Some(None) => Ok(false),
            Some(Some(row)) => Ok(rows::decode_device(&key, row)?.device.token.is_some()),
            None => {
                let known = self.shared.table.read().recipient(number).map(|found| found.map(|it| it.token.is_some()));
                match known {
                    Ok(has_token) => Ok(has_token.unwrap_or_default()),
                    Err(Lost) => Ok(self.row(number)?.is_some_and(|row| row.device.token.is_some())),
                }
            }
        }
    }
}
