//! Whose token its provider has accepted: a bit per number in memory, a Roaring set per 65 536 numbers in the rows.

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

/// Words of 64 numbers in a chunk.
const CHUNK_WORD_COUNT: usize = (1 << 16) / 64;

/// In which chunk of the proven set a number is, and where in it.
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
        for place in bits.iter().take_while(|place| *place <= u32::from(u16::MAX)) {
            words[place as usize / 64] |= 1 << (place % 64);
            self.count += 1;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }
}
