//! Rows that lead to a device, and rows of the proven set. The row of a device itself is in `device`.

use roaring::RoaringBitmap;
use tidings_types::{DeviceId, DeviceToken, Provider};

use crate::engine::{EngineError, Table};
use crate::hash::{Hash16, hash16};

mod address;
pub(crate) mod device;

pub(crate) fn device_id_key(id: &DeviceId) -> &[u8] {
    id.as_str().as_bytes()
}

/// The bytes of an APNs token may be the identity of another provider's token. Such a token gets a different key, because
/// otherwise a device that registers it would take the token of another device.
pub(crate) fn token_key(token: &DeviceToken) -> Hash16 {
    const PREFIXES: [&[u8]; 3] = [b"apns\0", b"fcm\0", b"web_push\0"];
    let identity = token.identity();
    if token.provider() == Provider::Apns && PREFIXES.iter().any(|prefix| identity.starts_with(prefix)) {
        return hash16(&[PREFIXES[0], &identity].concat());
    }
    hash16(&identity)
}

pub(crate) fn proven_key(chunk: u16) -> [u8; 2] {
    chunk.to_be_bytes()
}

pub(crate) fn proven_row(bits: &RoaringBitmap) -> Vec<u8> {
    let mut row = Vec::with_capacity(bits.serialized_size());
    bits.serialize_into(&mut row).expect("a vector takes all that is written into it");
    row
}

pub(crate) fn decode_proven(key: &[u8], row: &[u8]) -> Result<(u16, RoaringBitmap), EngineError> {
    let damaged = || EngineError::damaged(Table::Proven, key);
    let chunk = key.try_into().map(u16::from_be_bytes).map_err(|_| damaged())?;
    let bits = RoaringBitmap::deserialize_from(row).map_err(|_| damaged())?;
    let is_ours = bits.max().is_none_or(|last| last <= u32::from(u16::MAX));
    is_ours.then_some((chunk, bits)).ok_or_else(damaged)
}
