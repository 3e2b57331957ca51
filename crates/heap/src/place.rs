//! Where a record is.

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

/// What a record of `bytes` takes of what is reserved.
pub const fn stored_bytes(bytes: usize) -> u64 {
    (CHECKSUM_BYTES + bytes) as u64
}

/// Where a record is, as a number: segment (24 bits), offset (26) and length (14) in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(NonZeroU64);

impl Place {
    pub(crate) fn new(segment: u32, offset: u32, bytes: usize) -> Self {
        debug_assert!((1..=SEGMENT_NUMBER_MAX).contains(&segment) && offset < SEGMENT_BYTES_MAX);
        debug_assert!((CHECKSUM_BYTES..1 << BYTES_BITS).contains(&bytes));
        let bits = u64::from(segment) << (OFFSET_BITS + BYTES_BITS) | u64::from(offset) << BYTES_BITS | bytes as u64;
        Self(NonZeroU64::new(bits).expect("a segment's number is not 0"))
    }

    /// The place of which these are the bits. `None` below 2^40, which no place has: its owner may give them a meaning.
    /// Any other bits are taken; if they are not [`Place::to_bits`] of a record that is there, it is damaged.
    #[inline]
    pub fn from_bits(bits: u64) -> Option<Self> {
        NonZeroU64::new(bits).filter(|bits| bits.get() >> (OFFSET_BITS + BYTES_BITS) > 0).map(Self)
    }

    /// All of it: at least 2^40.
    pub fn to_bits(self) -> u64 {
        self.0.get()
    }

    /// The number of its segment.
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
