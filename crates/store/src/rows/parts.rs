//! The parts that rows of several subjects share: JSON, positions in the journal, device numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_types::{DeviceNumber, JournalPosition};

use crate::damage;
use crate::engine::{Engine, EngineError, Place, Span, Table};

pub(crate) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    serde_json::to_vec(row).expect("our rows have string keys")
}

/// Reads a row in JSON. Here and below, `key` is only used in the error.
pub(crate) fn decode<T: DeserializeOwned>(table: Table, key: &[u8], row: &[u8]) -> Result<T, EngineError> {
    serde_json::from_slice(row).map_err(|_| EngineError::damaged(table, key))
}

pub(crate) fn position_key(position: JournalPosition) -> [u8; 8] {
    position.0.to_be_bytes()
}

pub(crate) fn decode_position(table: Table, key: &[u8], bytes: &[u8]) -> Result<JournalPosition, EngineError> {
    let bytes = bytes.try_into().map_err(|_| EngineError::damaged(table, key))?;
    Ok(JournalPosition(u64::from_be_bytes(bytes)))
}

pub(crate) fn number_key(number: DeviceNumber) -> [u8; 4] {
    number.0.to_be_bytes()
}

pub(crate) fn decode_number(table: Table, key: &[u8], bytes: &[u8]) -> Result<DeviceNumber, EngineError> {
    let bytes = bytes.try_into().map_err(|_| EngineError::damaged(table, key))?;
    Ok(DeviceNumber(u32::from_be_bytes(bytes)))
}

/// The rows of one device in a table whose keys begin with its number, decoded. Damaged rows are left out if there is a
/// `cost` to log; otherwise they are an error.
pub(crate) fn read_rows_of_device<T>(
    engine: &Engine,
    table: Table,
    number: DeviceNumber,
    decode: impl Fn(&[u8], &[u8]) -> Result<T, EngineError>,
    cost: Option<&str>,
) -> Result<Vec<T>, EngineError> {
    let mut found = Vec::new();
    engine.scan(Place::Device, table, &Span::prefix(&number_key(number)), |key, row| {
        match cost {
            Some(cost) => found.extend(damage::tolerate(decode(key, row), cost)?),
            None => found.push(decode(key, row)?),
        }
        Ok(true)
    })?;
    Ok(found)
}
