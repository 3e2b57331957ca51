//! How much memory a job may take, before it runs.
//!
//! Devices are kept in Roaring bitmaps: in blocks of 65 536 numbers, each a sorted list of two bytes a number, or 8 KiB of
//! bits from 4096 numbers on. A list that grows may have twice the room that it needs.
//!
//! Source: "Consistently faster and smaller compressed bitmaps with Roaring" (Lemire, Ssi-Yan-Kai, Kaser, 2016), section 2.

use roaring::RoaringBitmap;
use tidings_audience::Frozen;

/// A block without its numbers: its entry in the bitmap, which may have room for twice as many, and the allocation of its list.
const BLOCK_BYTES: u64 = 96;
/// The most that the numbers of a block take.
const BITS_BYTES: u64 = 8 << 10;
/// A job without its sets and renderings: an event with all limits used, its tasks and its counts.
const JOB_BYTES: u64 = 72 << 10;
/// The notification of one language, provider and app: one or two kilobytes. Where it needs its 4 KiB, it is counted too low.
const RENDERING_BYTES: u64 = 2 << 10;
/// Sets that may have any device of the audience: the audience itself, what an earlier run has left, and those that may answer.
const WHOLE_SETS: u64 = 3;
/// Those of a lane. A device is in that of one lane.
const LANE_SETS: u64 = 2;
/// Sets of devices that were handed out: those that newer jobs take over, those that wait for them, those that an older job has
/// handed out, at the start and now, and those whose token is not proven.
const HANDED_OUT_SETS: u64 = 5;
/// Those of a lane.
const HANDED_OUT_LANE_SETS: u64 = 2;

/// How many devices there are, and in how many blocks. Invariant of both: no set of some of them has more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Extent {
    /// The devices.
    pub len: u64,
    /// Blocks of 65 536 numbers with some of them.
    pub blocks: u64,
}

impl Extent {
    /// The extent of a set.
    pub fn of(set: &RoaringBitmap) -> Self {
        let statistics = set.statistics();
        Self { len: statistics.cardinality, blocks: statistics.n_containers.into() }
    }

    /// The extent of an audience.
    pub fn of_audience(audience: &Frozen) -> Self {
        audience.shards().map(Self::of).fold(Self::default(), Self::with)
    }

    /// So many devices, whose numbers are next to each other.
    pub fn dense(len: u64) -> Self {
        Self { len, blocks: len.div_ceil(1 << 16) }
    }

    /// These devices and others.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { len: self.len + other.len, blocks: self.blocks + other.blocks }
    }

    /// The most bytes of `count` sets that have no device in common.
    pub fn bytes(self, count: u64) -> u64 {
        let blocks = count.saturating_mul(self.blocks).min(self.len);
        blocks * BLOCK_BYTES + (4 * self.len).min(blocks * BITS_BYTES)
    }
}

/// What decides how much memory a running job may take.
#[derive(Debug, Clone, Copy)]
pub struct JobSize {
    /// Its devices.
    pub audience: Extent,
    /// Devices that have muted it.
    pub muted: Extent,
    /// Its lanes.
    pub lane_count: usize,
    /// Devices that may be handed out and unanswered at a time, in each lane.
    pub in_flight_max: u64,
    /// Renderings that its texts may need; a device needs one.
    pub rendering_count: usize,
}

impl JobSize {
    /// The most bytes that the job takes, without the devices that have answered or may.
    pub fn bytes(&self) -> usize {
        let Self { audience, muted, lane_count, in_flight_max, rendering_count } = *self;
        let lanes = lane_count as u64;
        let handed_out = Extent { len: audience.len.min(in_flight_max.saturating_mul(lanes)), ..audience };
        let sets = muted.bytes(1)
            + WHOLE_SETS * audience.bytes(1)
            + LANE_SETS * audience.bytes(lanes)
            + HANDED_OUT_SETS * handed_out.bytes(1)
            + HANDED_OUT_LANE_SETS * handed_out.bytes(lanes);
        let renderings = (rendering_count as u64).min(audience.len) * RENDERING_BYTES;
        usize::try_from(JOB_BYTES + sets + renderings).unwrap_or(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of a set as Roaring keeps it, which counts four bytes for each number of a list and has two.
    fn taken(set: &RoaringBitmap) -> u64 {
        let statistics = set.statistics();
        u64::from(statistics.n_bitset_containers) * BITS_BYTES + statistics.n_bytes_array_containers / 2
    }

    proptest! {
        #[test]
        fn sets_without_a_common_device_take_no_more_than_said(
            ranges in prop::collection::vec((0_u32..400_000, 1_u32..30_000, 1_usize..9), 1..6),
            count in 1_u64..9,
        ) {
            let numbers = ranges.iter().flat_map(|&(from, len, step)| (from..from + len).step_by(step));
            let whole: RoaringBitmap = numbers.collect();
            let parts = (0..count).map(|part| {
                whole.iter().enumerate().filter(|(index, _)| *index as u64 % count == part).map(|(_, number)| number).collect()
            });
            let parts: Vec<RoaringBitmap> = parts.collect();
            let extent = Extent::of(&whole);
            prop_assert!(parts.iter().map(taken).sum::<u64>() <= extent.bytes(count));
            prop_assert!(extent.bytes(count) <= Extent { blocks: extent.len, ..extent }.bytes(count), "it is told the blocks");
        }
    }
}
