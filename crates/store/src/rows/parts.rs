//! What the rows of several subjects are made of: JSON, positions in the journal, device numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;
use tidings_types::{DeviceNumber, JournalPosition};

use crate::engine::{EngineError, Table};

pub(crate) fn encode<T: Serialize>(row: &T) -> Vec<u8> {
    serde_json::to_vec(row).expect("our rows have string keys")
}

/// Reads a row in JSON; `key` is for the error only, here and below.
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
