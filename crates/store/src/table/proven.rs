//! The set of proven tokens: a bit per device number in memory, a Roaring set per 65 536 numbers in the rows.

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

/// Words of 64 numbers in a chunk.
const CHUNK_WORD_COUNT: usize = (1 << 16) / 64;

/// The chunk of a number in the proven set, and its place in the chunk.
pub(crate) fn proven_place(number: DeviceNumber) -> (u16, u32) {
    ((number.0 >> 16) as u16, number.0 & 0xffff)
}

#[derive(Debug, Default)]
pub(super) struct Proven {
    /// Whole chunks.
    words: Vec<u64>,
    count: u64,
}

impl Proven {
    pub(super) fn contains(&self, number: DeviceNumber) -> bool {
        let word = self.words.get(number.0 as usize / 64).copied().unwrap_or_default();
        word >> (number.0 % 64) & 1 == 1
    }

    pub(super) fn chunk(&self, chunk: u16) -> RoaringBitmap {
        let start = usize::from(chunk) * CHUNK_WORD_COUNT;
        let words = self.words.get(start..start + CHUNK_WORD_COUNT).unwrap_or_default();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        RoaringBitmap::from_lsb0_bytes(0, &bytes)
    }

    pub(super) fn set_chunk(&mut self, chunk: u16, bits: &RoaringBitmap) {
        let start = usize::from(chunk) * CHUNK_WORD_COUNT;
        if self.words.len() < start + CHUNK_WORD_COUNT {
            self.words.resize(start + CHUNK_WORD_COUNT, 0);
        }
        let words = &mut self.words[start..start + CHUNK_WORD_COUNT];
        self.count -= words.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        words.fill(0);
        let mut runs = bits.iter();
        while let Some((start, end)) = runs.next_range().map(|run| (*run.start() as usize, *run.end() as usize)) {
            // Word by word, because usually nearly all are proven.
            for (index, word) in words.iter_mut().enumerate().take(end / 64 + 1).skip(start / 64) {
                let (first, last) = (start.max(64 * index) % 64, end.min(64 * index + 63) % 64);
                let mask = u64::MAX << first & u64::MAX >> (63 - last);
                *word |= mask;
                self.count += u64::from(mask.count_ones());
            }
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_chunk_reads_back(
            runs in prop::collection::vec((0..70_000_u32, prop_oneof![1..4_u32, 1..300_u32, Just(66_000)]), 0..20),
            before in prop::collection::vec(0..65_536_u32, 0..20),
        ) {
            let bits: RoaringBitmap = runs.into_iter().flat_map(|(start, count)| start..start + count).collect();
            let mut proven = Proven::default();
            proven.set_chunk(3, &before.into_iter().collect());
            proven.set_chunk(3, &bits);
            let within: RoaringBitmap = bits.range(0..65_536).collect();
            prop_assert_eq!(proven.count(), within.len());
            prop_assert_eq!(proven.chunk(3), within);
            prop_assert!(!proven.contains(DeviceNumber((3 << 16) - 1)) && !proven.contains(DeviceNumber(4 << 16)));
        }
    }
}
