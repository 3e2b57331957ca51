//! Finds a number by a key that is stored elsewhere.
//!
//! The table has only the numbers: 4 bytes each, and one byte of the table. The caller has the keys, at places that the
//! numbers name; it computes hashes and compares keys. The table is split into [`PART_COUNT`] parts by the hash, so
//! that growth moves a 64th of all at a time.

use hashbrown::HashTable;

const PART_COUNT: usize = 64;

#[derive(Debug)]
pub(crate) struct Lookup {
    parts: Box<[HashTable<u32>]>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self { parts: std::iter::repeat_with(HashTable::new).take(PART_COUNT).collect() }
    }
}

impl Lookup {
    /// The number with this hash that `is_it`.
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        self.parts[part(hash)].find(hash, |&number| is_it(number)).copied()
    }

    /// Adds a number that is not there; `hash_of` says the hash of those that are.
    pub(crate) fn insert(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        self.parts[part(hash)].insert_unique(hash, number, |&number| hash_of(number));
    }

    pub(crate) fn remove(&mut self, hash: u64, number: u32) {
        if let Ok(found) = self.parts[part(hash)].find_entry(hash, |&found| found == number) {
            found.remove();
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.allocation_size() + size_of::<HashTable<u32>>()).sum()
    }
}

/// The indices of these hashes, part by part: in this order look-ups find a part in the processor's cache.
pub(crate) fn by_part(hashes: impl Iterator<Item = u64>) -> impl Iterator<Item = usize> {
    let mut parts: [Vec<usize>; PART_COUNT] = std::array::from_fn(|_| Vec::new());
    hashes.enumerate().for_each(|(place, hash)| parts[part(hash)].push(place));
    parts.into_iter().flatten()
}

/// The table uses the lowest bits to place and the highest to compare; a part uses others.
fn part(hash: u64) -> usize {
    (hash >> 40) as usize % PART_COUNT
}
