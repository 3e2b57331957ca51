//! Shards: ranges of device numbers, so that no step touches more than one range.

use tidings_types::DeviceNumber;

/// Device numbers in one shard: a change or a union touches sets of at most this many.
pub const SHARD_DEVICE_COUNT: u32 = 1 << 20;

/// The shard that a number is in.
pub(crate) fn shard_of(number: u32) -> u16 {
    (number / SHARD_DEVICE_COUNT) as u16
}

/// The shard that a device is in.
pub(crate) fn shard_index(number: DeviceNumber) -> usize {
    usize::from(shard_of(number.0))
}
