//! A cache of device numbers by id, so that most lookups read no row. Its entries are hints: a reader compares the id in the
//! record of the number. If there is no hint, the row is read. Hints are made only from rows: if damage has left two records
//! with one id, the row decides.
//!
//! A hint is a number and a byte of the id's hash. A bucket has room for twelve hints; a new hint replaces another one in a
//! full bucket. The buckets are sized for twice the number of devices. When there are more devices, larger buckets are made
//! and filled again from the rows.
//!
//! Bound: 60 KiB, and 15 bytes per device at the highest count since the opening; 23 for a moment.

use tidings_types::DeviceNumber;
use xxhash_rust::xxh3::xxh3_64;

const HINT_COUNT: usize = 12;
/// The expected number of devices per bucket, so that few buckets are full.
const BUCKET_DEVICE_COUNT: u64 = 8;
const BUCKET_COUNT_MIN: usize = if cfg!(test) { 1 } else { 1024 };

#[derive(Debug, Clone, Copy)]
pub(super) struct IdHash(u64);

impl IdHash {
    pub(super) fn of(id: &str) -> Self {
        Self(xxh3_64(id.as_bytes()))
    }

    fn tag(self) -> u8 {
        (self.0 as u8).max(1)
    }
}

#[derive(Debug)]
pub(crate) struct Ids {
    /// Per bucket; 0: no hint. Tags and numbers are allocated as zeros, so that unused pages take no memory.
    tags: Vec<[u8; HINT_COUNT]>,
    numbers: Vec<[u32; HINT_COUNT]>,
    /// The id behind which the filling from the rows continues; `None`: it is complete.
    pub(super) next: Option<Vec<u8>>,
}

impl Default for Ids {
    fn default() -> Self {
        Self::with_buckets(BUCKET_COUNT_MIN)
    }
}

impl Ids {
    fn with_buckets(count: usize) -> Self {
        Self { tags: vec![[0; HINT_COUNT]; count], numbers: vec![[0; HINT_COUNT]; count], next: Some(Vec::new()) }
    }

    /// An empty cache for twice as many devices.
    pub(crate) fn for_twice(device_count: u64) -> Self {
        Self::with_buckets((2 * device_count).div_ceil(BUCKET_DEVICE_COUNT) as usize)
    }

    /// Whether there are too few buckets for this many devices.
    pub(super) fn is_outgrown(&self, device_count: u64) -> bool {
        device_count > BUCKET_DEVICE_COUNT * self.tags.len() as u64
    }

    /// The numbers that the id may have.
    pub(super) fn find(&self, hash: IdHash) -> impl Iterator<Item = DeviceNumber> + '_ {
        let bucket = self.bucket_of(hash);
        let hints = self.tags[bucket].iter().zip(&self.numbers[bucket]);
        hints.filter(move |(tag, _)| **tag == hash.tag()).map(|(_, number)| DeviceNumber(*number))
    }

    pub(super) fn insert(&mut self, hash: IdHash, number: DeviceNumber) {
        let bucket = self.bucket_of(hash);
        let (tags, numbers) = (&mut self.tags[bucket], &mut self.numbers[bucket]);
        if (0..HINT_COUNT).any(|hint| tags[hint] == hash.tag() && numbers[hint] == number.0) {
            return;
        }
        let free = tags.iter().position(|tag| *tag == 0).unwrap_or((hash.0 >> 8) as usize % HINT_COUNT);
        (numbers[free], tags[free]) = (number.0, hash.tag());
    }

    /// Removes the hints of the id, and of other ids with the same tag.
    pub(super) fn remove(&mut self, hash: IdHash) {
        let bucket = self.bucket_of(hash);
        self.tags[bucket].iter_mut().filter(|tag| **tag == hash.tag()).for_each(|tag| *tag = 0);
    }

    fn bucket_of(&self, hash: IdHash) -> usize {
        (((hash.0 >> 32) * self.tags.len() as u64) >> 32) as usize // Below 2^32 buckets.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> String {
        format!("phone-{number}")
    }

    fn is_found(ids: &Ids, number: u32) -> bool {
        ids.find(IdHash::of(&id(number))).any(|found| found.0 == number)
    }

    #[test]
    fn nearly_all_are_found_up_to_the_expected_number() {
        const COUNT: u32 = 10_000;
        let mut ids = Ids::for_twice(u64::from(COUNT) / 2);
        assert!(!ids.is_outgrown(u64::from(COUNT)) && ids.is_outgrown(u64::from(COUNT) + BUCKET_DEVICE_COUNT));
        (0..COUNT).for_each(|number| ids.insert(IdHash::of(&id(number)), DeviceNumber(number)));
        let missing = (0..COUNT).filter(|number| !is_found(&ids, *number)).count();
        assert!(missing < COUNT as usize / 20, "{missing} are missing");
        // Few hints are wrong.
        let looks: usize = (0..COUNT).map(|number| ids.find(IdHash::of(&id(number))).count()).sum();
        assert!(looks < COUNT as usize * 21 / 20, "{looks} looks");
    }

    #[test]
    fn a_new_hint_is_found_even_if_its_bucket_is_full() {
        let mut ids = Ids::default();
        for number in 0..100 {
            ids.insert(IdHash::of(&id(number)), DeviceNumber(number));
            assert!(is_found(&ids, number), "{number}");
        }
        assert!((0..100).filter(|number| is_found(&ids, *number)).count() <= HINT_COUNT);
    }

    #[test]
    fn a_removed_hint_is_not_found() {
        let mut ids = Ids::default();
        (0..HINT_COUNT as u32).for_each(|number| ids.insert(IdHash::of(&id(number)), DeviceNumber(number)));
        ids.insert(IdHash::of(&id(4)), DeviceNumber(50)); // Replaces another hint.
        ids.remove(IdHash::of(&id(4)));
        assert_eq!(ids.find(IdHash::of(&id(4))).count(), 0);
        let left = (0..HINT_COUNT as u32).filter(|number| is_found(&ids, *number)).count();
        assert!(left >= HINT_COUNT - 3, "{left}");
    }
}
