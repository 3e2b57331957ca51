//! A snapshot of an audience.
//!
//! If an audience is one large set of the index, the snapshot shares it until the index changes it; then the index
//! copies it, so a snapshot never changes. Memory: at most one bit per device number of every shard that has a member,
//! less if there are few members. Snapshots are not durable: after a restart a job takes a new one and continues after
//! its cursor.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

use crate::shard::SHARD_DEVICE_COUNT;

/// Numbers that are searched for at a time.
const FOUND_COUNT: usize = 64;
/// Numbers in one of Roaring's containers.
const BLOCK_NUMBER_COUNT: u32 = 1 << 16;

/// The audience of one event at the moment of the request: device numbers, each once, in order. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Frozen {
    /// By shard; `None` if it has no member.
    shards: Arc<[Option<Arc<RoaringBitmap>>]>,
    count: u64,
    muted: Arc<RoaringBitmap>,
}

impl Frozen {
    pub(crate) fn from_shards(shards: impl Iterator<Item = Option<Arc<RoaringBitmap>>>) -> Self {
        let shards: Arc<[_]> = shards.collect();
        let count = shards.iter().flatten().map(|shard| shard.len()).sum();
        Self { shards, count, muted: Arc::default() }
    }

    /// The same members; these would be members, but are muted.
    pub(crate) fn without_muted(self, muted: RoaringBitmap) -> Self {
        Self { muted: Arc::new(muted), ..self }
    }

    /// The devices that would be members if they had not muted everything or a subject of the event.
    pub fn muted(&self) -> &RoaringBitmap {
        &self.muted
    }

    /// The members of either.
    pub fn union(&self, other: &Self) -> Self {
        let shards = |frozen: &Self, index: usize| frozen.shards.get(index).cloned().flatten();
        let count = self.shards.len().max(other.shards.len());
        let union = Self::from_shards((0..count).map(|index| match (shards(self, index), shards(other, index)) {
            (Some(one), Some(two)) => Some(Arc::new(&*one | &*two)),
            (one, two) => one.or(two),
        }));
        union.without_muted(&*self.muted | &*other.muted)
    }

    /// How many devices.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Whether there are no devices.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the device is a member.
    pub fn contains(&self, number: DeviceNumber) -> bool {
        self.shard(number).is_some_and(|shard| shard.contains(number.0))
    }

    /// The devices from `start` on, in order of their numbers. The first one comes after one look-up. An interrupted
    /// job continues after the last number that it handled.
    pub fn iter_from(&self, start: DeviceNumber) -> impl Iterator<Item = DeviceNumber> + '_ {
        Walk { shards: &self.shards, next: Some(start.0), block: Block::None, found: [0; FOUND_COUNT], left: 0..0 }
    }

    /// The sets of which it consists, which have no device in common.
    pub fn shards(&self) -> impl Iterator<Item = &RoaringBitmap> {
        self.shards.iter().flatten().map(|shard| &**shard)
    }

    fn shard(&self, number: DeviceNumber) -> Option<&RoaringBitmap> {
        self.shards.get((number.0 / SHARD_DEVICE_COUNT) as usize)?.as_deref()
    }
}

/// Searches for several numbers at a time: one by one, Roaring takes several times longer for each.
struct Walk<'a> {
    shards: &'a [Option<Arc<RoaringBitmap>>],
    /// The first number of the blocks that were not looked at; `None`: the last one was.
    next: Option<u32>,
    block: Block<'a>,
    found: [u32; FOUND_COUNT],
    /// What of `found` is still to be handed out.
    left: Range<usize>,
}

/// What is in one of Roaring's containers, or in a part of it.
enum Block<'a> {
    None,
    /// A full container: Roaring 0.12 may lose its numbers if it is asked for several at a time.
    All(RangeInclusive<u32>),
    Some(roaring::bitmap::Iter<'a>),
}

impl Iterator for Walk<'_> {
    type Item = DeviceNumber;

    #[inline]
    fn next(&mut self) -> Option<DeviceNumber> {
        if self.left.is_empty() {
            self.find()?;
        }
        self.left.next().map(|index| DeviceNumber(self.found[index]))
    }
}

impl Walk<'_> {
    /// Finds one at least, or there are no more.
    fn find(&mut self) -> Option<()> {
        while self.left.is_empty() {
            let count = match &mut self.block {
                Block::None => 0,
                Block::All(numbers) => {
                    self.found.iter_mut().zip(numbers).map(|(found, number)| *found = number).count()
                }
                Block::Some(numbers) => numbers.next_many(&mut self.found).len(),
            };
            self.left = 0..count;
            if count == 0 {
                self.look_at_next()?;
            }
        }
        Some(())
    }

    fn look_at_next(&mut self) -> Option<()> {
        let first = self.next?;
        let shard = self.shards.get((first / SHARD_DEVICE_COUNT) as usize)?;
        let size = if shard.is_some() { BLOCK_NUMBER_COUNT } else { SHARD_DEVICE_COUNT };
        let last = first | (size - 1);
        self.next = last.checked_add(1);
        self.block = match shard {
            None => Block::None,
            Some(shard) if shard.contains_range(first..=last) => Block::All(first..=last),
            Some(shard) => Block::Some(shard.range(first..=last)),
        };
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs of numbers, some longer than a container, and every `step`th of some: as Roaring keeps few, many and all.
    fn numbers() -> impl Strategy<Value = RoaringBitmap> {
        let start = prop_oneof![0..200_000_u32, Just(65_536), Just(131_071), Just(1_048_576), Just(u32::MAX - 70_000)];
        let len = prop_oneof![0..70_u32, Just(65_535), Just(65_536), 0..200_000_u32];
        let part =
            (start, len, 1..4_usize).prop_map(|(start, len, step)| (start..=start.saturating_add(len)).step_by(step));
        let all = prop::collection::vec(part, 0..5).prop_map(|parts| parts.into_iter().flatten().collect());
        (all, any::<bool>()).prop_map(|(mut all, has_runs): (RoaringBitmap, bool)| {
            if has_runs {
                all.optimize();
            }
            all
        })
    }

    fn frozen(numbers: &RoaringBitmap) -> Frozen {
        let shard_count = numbers.max().map_or(0, |last| last / SHARD_DEVICE_COUNT + 1);
        Frozen::from_shards((0..shard_count).map(|shard| {
            let first = shard * SHARD_DEVICE_COUNT;
            let mut shard = numbers.clone();
            shard.remove_range(..first);
            if let Some(behind) = first.checked_add(SHARD_DEVICE_COUNT) {
                shard.remove_range(behind..);
            }
            (!shard.is_empty()).then(|| Arc::new(shard))
        }))
    }

    proptest! {
        #[test]
        fn everyone_from_a_number_on_comes_in_order(numbers in numbers(), start in 0..300_000_u32, back in 0..3_usize) {
            let frozen = frozen(&numbers);
            // Also from one that is among them, and from the one behind.
            let start = numbers.select(start).map_or(start, |number| number.saturating_add(back as u32));
            let walked: Vec<u32> = frozen.iter_from(DeviceNumber(start)).map(|number| number.0).collect();
            prop_assert!(walked.iter().copied().eq(numbers.range(start..)), "{} of {}", walked.len(), numbers.len());
        }
    }
}
