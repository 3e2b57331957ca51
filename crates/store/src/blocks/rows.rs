//! The row of a block of device numbers: a byte (0 for the common group, else 1 + platform); locale, and country or nothing,
//! unless it is the common group; length and given numbers as varints.

use tidings_types::{Country, DeviceNumber, Locale};

use super::{BlockRow, Traits};
use crate::devices::rows::device::{PLATFORMS, place};
use crate::engine::{EngineError, Table};
use crate::packed::{Unpack, put_bytes, put_varint};
use crate::rows::{decode_number, number_key};

/// The key of the block with this first number.
pub(crate) fn block_key(first: u32) -> [u8; 4] {
    number_key(DeviceNumber(first))
}

pub(crate) fn block_row(block: &BlockRow) -> Vec<u8> {
    let mut row = Vec::with_capacity(16);
    match &block.group {
        None => row.push(0),
        Some(Traits { platform, locale, country }) => {
            row.push(1 + place(&PLATFORMS, platform));
            put_bytes(&mut row, locale.as_str().as_bytes());
            put_bytes(&mut row, country.as_ref().map_or("", Country::as_str).as_bytes());
        }
    }
    put_varint(&mut row, u64::from(block.length));
    put_varint(&mut row, u64::from(block.given));
    row
}

pub(crate) fn decode_block(key: &[u8], row: &[u8]) -> Result<(u32, BlockRow), EngineError> {
    let first = decode_number(Table::Block, key, key)?.0;
    decode(row).map(|block| (first, block)).ok_or_else(|| EngineError::damaged(Table::Block, key))
}

fn decode(row: &[u8]) -> Option<BlockRow> {
    let mut rest = Unpack(row);
    let group = match rest.byte()? {
        0 => None,
        kind => {
            let platform = *PLATFORMS.get(usize::from(kind) - 1)?;
            let locale = Locale::new(rest.text()?).ok()?;
            let country = Some(rest.text()?).filter(|text| !text.is_empty());
            let country = country.map(Country::new).transpose().ok()?;
            Some(Traits { platform, locale, country })
        }
    };
    let (length, given) = (rest.varint_u32()?, rest.varint_u32()?);
    (rest.is_empty() && given <= length).then_some(BlockRow { group, length, given })
}
