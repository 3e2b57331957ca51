//! The address of a record, and the limits that its layout sets.

use std::num::NonZeroU64;

/// Bytes of a record's checksum.
pub(crate) const CHECKSUM_BYTES: usize = 8;

const OFFSET_BITS: u32 = 26;
const BYTES_BITS: u32 = 14;

/// Bytes of the largest segment.
pub(crate) const SEGMENT_BYTES_MAX: u32 = 1 << OFFSET_BITS;
/// Segments are numbered from 1, and no number is used again.
pub(crate) const SEGMENT_NUMBER_MAX: u32 = (1 << (64 - OFFSET_BITS - BYTES_BITS)) - 1;

/// Bytes of the longest record.
pub const RECORD_BYTES_MAX: usize = (1 << BYTES_BITS) - 1 - CHECKSUM_BYTES;

/// The reserved bytes that a record of `bytes` uses.
pub const fn stored_bytes(bytes: usize) -> u64 {
    (CHECKSUM_BYTES + bytes) as u64
}

/// The address of a record, as a number: segment (24 bits), offset (26 bits) and length (14 bits), both in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(NonZeroU64);

impl Place {
    pub(crate) fn new(segment: u32, offset: u32, bytes: usize) -> Self {
        debug_assert!((1..=SEGMENT_NUMBER_MAX).contains(&segment) && offset < SEGMENT_BYTES_MAX);
        debug_assert!((CHECKSUM_BYTES..1 << BYTES_BITS).contains(&bytes));
        let bits = u64::from(segment) << (OFFSET_BITS + BYTES_BITS) | u64::from(offset) << BYTES_BITS | bytes as u64;
        Self(NonZeroU64::new(bits).expect("a segment number is at least 1"))
    }

    /// Makes a place of the bits from [`Place::to_bits`]. `None` below 2^40: no place has such bits, so the owner may use
    /// them for something else. All other bits are accepted; without a record there, reading reports damage.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> (OFFSET_BITS + BYTES_BITS) > 0).map(Self)
    }

    /// The place as a number, at least 2^40.
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The number of the segment.
    #[inline]
    pub fn segment(self) -> u32 {
        (self.to_bits() >> (OFFSET_BITS + BYTES_BITS)) as u32
    }

    #[inline]
    pub(crate) fn offset(self) -> u32 {
        (self.to_bits() >> BYTES_BITS) as u32 & (SEGMENT_BYTES_MAX - 1)
    }

    /// Bytes of the record with its checksum.
    #[inline]
    pub(crate) fn bytes(self) -> u32 {
        self.to_bits() as u32 & ((1 << BYTES_BITS) - 1)
    }

    #[inline]
    pub(crate) fn end(self) -> u32 {
        self.offset() + self.bytes()
    }
}
