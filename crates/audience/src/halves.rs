//! Some thousand numbers of one shard, 2 bytes each.
//!
//! A shard is 16 blocks of 2^16 numbers. One array has the lower halves of all numbers, block by block, each block in
//! order; `ends` has the end of each block.

use roaring::RoaringBitmap;

use crate::shard::SHARD_DEVICE_COUNT;

/// The most numbers: adding one moves half of 16 KiB.
pub(crate) const HALVES_COUNT_MAX: usize = 8192;

/// The first value of Roaring's serialized form without runs (RoaringFormatSpec, "cookie header").
const ROARING_COOKIE: u32 = 12_346;

/// A block with more numbers is written as bits.
const ROARING_ARRAY_MAX: usize = 4096;

pub(crate) const BLOCK_COUNT: usize = (SHARD_DEVICE_COUNT >> 16) as usize;

/// Invariant: `ends` does not fall and its last is the length; each block is sorted without repeats; at most
/// [`HALVES_COUNT_MAX`].
#[derive(Debug, Default)]
pub(crate) struct Halves {
    ends: [u16; BLOCK_COUNT],
    lows: Vec<u16>,
}

impl Halves {
    /// Of the shape that the invariant says, or none.
    pub(crate) fn from_parts(ends: [u16; BLOCK_COUNT], lows: Vec<u16>) -> Option<Self> {
        let is_whole = ends.is_sorted() && usize::from(ends[BLOCK_COUNT - 1]) == lows.len();
        if !is_whole || lows.is_empty() || lows.len() > HALVES_COUNT_MAX {
            return None;
        }
        let halves = Self { ends, lows };
        (0..BLOCK_COUNT).all(|block| halves.block(block).is_sorted_by(|a, b| a < b)).then_some(halves)
    }

    /// Of numbers of one shard, in order without repeats, at most [`HALVES_COUNT_MAX`].
    pub(crate) fn from_sorted(numbers: impl Iterator<Item = u32>) -> Self {
        let (mut ends, mut lows) = ([0; BLOCK_COUNT], Vec::new());
        for number in numbers {
            lows.push(number as u16);
            ends[(number >> 16) as usize % BLOCK_COUNT] = lows.len() as u16;
        }
        debug_assert!(lows.len() <= HALVES_COUNT_MAX);
        lows.shrink_to_fit();
        let mut above = 0;
        for end in &mut ends {
            above = above.max(*end); // A block without numbers ends where the one before does.
            *end = above;
        }
        Self { ends, lows }
    }

    pub(crate) fn ends(&self) -> &[u16; BLOCK_COUNT] {
        &self.ends
    }

    pub(crate) fn lows(&self) -> &[u16] {
        &self.lows
    }

    pub(crate) fn len(&self) -> usize {
        self.lows.len()
    }

    fn start(&self, block: usize) -> usize {
        if block == 0 { 0 } else { usize::from(self.ends[block - 1]) }
    }

    fn block(&self, block: usize) -> &[u16] {
        &self.lows[self.start(block)..usize::from(self.ends[block])]
    }

    /// Where the number is, or where it would be.
    fn place(&self, number: u32) -> (usize, Result<usize, usize>) {
        let block = (number >> 16) as usize % BLOCK_COUNT;
        let start = self.start(block);
        let place = self.block(block).binary_search(&(number as u16));
        (block, place.map(|place| start + place).map_err(|place| start + place))
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.place(number).1.is_ok()
    }

    /// Adds `number`; false when it was there. There must be room.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        debug_assert!(self.len() < HALVES_COUNT_MAX);
        let (block, Err(place)) = self.place(number) else { return false };
        if self.lows.len() == self.lows.capacity() {
            self.lows.reserve_exact(self.lows.len() / 8 + 1); // An eighth of slack instead of the usual half.
        }
        self.lows.insert(place, number as u16);
        self.ends[block..].iter_mut().for_each(|end| *end += 1);
        true
    }

    /// Removes `number`; false when it was not there.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let (block, Ok(place)) = self.place(number) else { return false };
        self.lows.remove(place);
        self.ends[block..].iter_mut().for_each(|end| *end -= 1);
        if self.lows.len() < self.lows.capacity() / 2 {
            self.lows.shrink_to(self.lows.len() + self.lows.len() / 8);
        }
        true
    }

    /// The numbers in order, those of shard `shard`.
    pub(crate) fn numbers(&self, shard: u16) -> impl Iterator<Item = u32> + '_ {
        let base = u32::from(shard) * SHARD_DEVICE_COUNT;
        (0..BLOCK_COUNT).flat_map(move |block| {
            self.block(block).iter().map(move |&low| base + ((block as u32) << 16) + u32::from(low))
        })
    }

    /// As a bitmap. Blocks are what Roaring writes for few numbers, so they are put together as it would write them,
    /// which takes a tenth of the time of adding number by number.
    pub(crate) fn to_bitmap(&self, shard: u16) -> RoaringBitmap {
        let blocks = || (0..BLOCK_COUNT).filter(|&block| !self.block(block).is_empty());
        if blocks().any(|block| self.block(block).len() > ROARING_ARRAY_MAX) {
            let numbers = self.numbers(shard);
            return RoaringBitmap::from_sorted_iter(numbers)
                .expect("blocks and what is in them are in order (invariant)");
        }
        let count = blocks().count();
        let mut bytes = Vec::with_capacity(8 + 8 * count + 2 * self.len());
        bytes.extend_from_slice(&ROARING_COOKIE.to_le_bytes());
        bytes.extend_from_slice(&(count as u32).to_le_bytes());
        for block in blocks() {
            let key = usize::from(shard) * BLOCK_COUNT + block;
            bytes.extend_from_slice(&(key as u16).to_le_bytes());
            bytes.extend_from_slice(&(self.block(block).len() as u16 - 1).to_le_bytes());
        }
        bytes.resize(bytes.len() + 4 * count, 0); // Where each block begins: not read when all are.
        bytes.extend(self.lows.iter().flat_map(|low| low.to_le_bytes()));
        RoaringBitmap::deserialize_unchecked_from(&bytes[..]).expect("it is written as Roaring writes it")
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.lows.capacity() * size_of::<u16>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_bitmap_of_halves_is_what_roaring_makes_of_the_numbers(
            shard in prop_oneof![Just(0_u16), Just(7), Just(4095)],
            places in prop::collection::btree_set(prop_oneof![0..70_000_u32, 0..SHARD_DEVICE_COUNT], 1..300),
            dense in prop_oneof![Just(0_u32), 4090..4100_u32],
        ) {
            let base = u32::from(shard) * SHARD_DEVICE_COUNT;
            let mut halves = Halves::default();
            let places = places.into_iter().chain(200_000..200_000 + dense);
            let numbers: RoaringBitmap = places.map(|at| base + at).collect();
            numbers.iter().for_each(|number| assert!(halves.insert(number)));
            let bitmap = halves.to_bitmap(shard);
            prop_assert_eq!(bitmap.internal_validate(), Ok(()));
            prop_assert_eq!(bitmap, numbers);
        }
    }
}
