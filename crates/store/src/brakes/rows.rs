//! Rows of pauses: the scope is the key.

use tidings_types::{BrakeScope, Timestamp};

use crate::engine::{EngineError, Table};

pub(crate) fn decode_brake(key: &[u8], row: &[u8]) -> Result<(BrakeScope, Timestamp), EngineError> {
    let damaged = || EngineError::damaged(Table::Brake, key);
    let scope = std::str::from_utf8(key).ok().and_then(|text| text.parse().ok()).ok_or_else(damaged)?;
    let since = row.try_into().map(u64::from_be_bytes).map_err(|_| damaged())?;
    Ok((scope, Timestamp(since)))
}
