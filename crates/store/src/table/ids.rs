//! Which number an id may have: hints, so that rows need not be asked. Whoever follows one compares the id in the record it
//! leads to; whatever is not found here is asked of the rows.
//!
//! A hint is a number and a byte of the id's hash. Twelve are a bucket, in one line of the processor's cache; where one is
//! full, an older hint gives way. The buckets are made for twice as many devices as there are; when there are more, all
//! begins anew, and the rows are walked over once ([`Ids::next`]).
//!
//! Bound: 16 bytes per device.

use tidings_types::DeviceNumber;
use xxhash_rust::xxh3::xxh3_64;

const HINT_COUNT: usize = 12;
/// Devices of which a bucket is made for the hints, so that hardly one is full.
const BUCKET_DEVICE_COUNT: u64 = 8;
const BUCKET_COUNT_MIN: usize = if cfg!(test) { 1 } else { 1024 };

#[derive(Debug, Clone, Default)]
#[repr(align(64))]
struct Bucket {
    numbers: [u32; HINT_COUNT],
    /// 0: no hint.
    tags: [u8; HINT_COUNT],
}

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
pub(super) struct Ids {
    buckets: Vec<Bucket>,
    /// Behind which id the walk over the rows goes on; `None`: all were walked over.
    next: Option<String>,
}

impl Default for Ids {
    fn default() -> Self {
        Self { buckets: vec![Bucket::default(); BUCKET_COUNT_MIN], next: Some(String::new()) }
    }
}

impl Ids {
    /// Numbers of which one may be the id's.
    pub(super) fn find(&self, hash: IdHash) -> impl Iterator<Item = DeviceNumber> + '_ {
        let Bucket { numbers, tags } = &self.buckets[self.bucket_of(hash)];
        tags.iter().zip(numbers).filter(move |(tag, _)| **tag == hash.tag()).map(|(_, number)| DeviceNumber(*number))
    }

    pub(super) fn insert(&mut self, hash: IdHash, number: DeviceNumber) {
        let place = self.bucket_of(hash);
        let Bucket { numbers, tags } = &mut self.buckets[place];
        if (0..HINT_COUNT).any(|hint| tags[hint] == hash.tag() && numbers[hint] == number.0) {
            return;
        }
        let free = tags.iter().position(|tag| *tag == 0).unwrap_or((hash.0 >> 8) as usize % HINT_COUNT);
        (numbers[free], tags[free]) = (number.0, hash.tag());
    }

    pub(super) fn remove(&mut self, hash: IdHash, number: DeviceNumber) {
        let place = self.bucket_of(hash);
        let Bucket { numbers, tags } = &mut self.buckets[place];
        for hint in 0..HINT_COUNT {
            if tags[hint] == hash.tag() && numbers[hint] == number.0 {
                tags[hint] = 0;
            }
        }
    }

    /// Behind which id the walk over all rows is to go on, if it is not over. Where so many devices are too many for the
    /// buckets it begins anew, with more of them.
    pub(super) fn next(&mut self, device_count: u64) -> Option<&str> {
        if device_count > BUCKET_DEVICE_COUNT * self.buckets.len() as u64 {
            let bucket_count = (2 * device_count).div_ceil(BUCKET_DEVICE_COUNT);
            self.buckets = vec![Bucket::default(); bucket_count as usize];
            self.next = Some(String::new());
        }
        self.next.as_deref()
    }

    /// The rows were walked over to behind this id; `None`: to the end.
    pub(super) fn on_walked(&mut self, next: Option<String>) {
        self.next = next;
    }

    fn bucket_of(&self, hash: IdHash) -> usize {
        (((hash.0 >> 32) * self.buckets.len() as u64) >> 32) as usize // Below 2^32 buckets.
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn id(number: u32) -> String {
        format!("phone-{number}")
    }

    fn is_found(ids: &Ids, number: u32) -> bool {
        ids.find(IdHash::of(&id(number))).any(|found| found.0 == number)
    }

    #[test]
    fn nearly_all_are_found_where_there_are_as_many_as_it_is_made_for() {
        const COUNT: u32 = 10_000;
        let mut ids = Ids::default();
        assert_eq!(ids.next(u64::from(COUNT) / 2), Some(""));
        (0..COUNT).for_each(|number| ids.insert(IdHash::of(&id(number)), DeviceNumber(number)));
        let missing = (0..COUNT).filter(|number| !is_found(&ids, *number)).count();
        assert!(missing < COUNT as usize / 20, "{missing} are missing");
        // Few are looked at in vain.
        let looks: usize = (0..COUNT).map(|number| ids.find(IdHash::of(&id(number))).count()).sum();
        assert!(looks < COUNT as usize * 21 / 20, "{looks} looks");
    }

    #[test]
    fn with_more_devices_the_walk_begins_anew() {
        let mut ids = Ids::default();
        ids.on_walked(None);
        assert_eq!(ids.next(BUCKET_DEVICE_COUNT), None);
        ids.insert(IdHash::of("phone-7"), DeviceNumber(7));
        assert_eq!(ids.next(BUCKET_DEVICE_COUNT + 1), Some(""));
        assert!(!is_found(&ids, 7));
        ids.on_walked(Some("m".to_owned()));
        assert_eq!(ids.next(2 * BUCKET_DEVICE_COUNT + 2), Some("m"));
    }

    #[test]
    fn what_was_removed_is_not_found() {
        let mut ids = Ids::default();
        let mut numbers = BTreeMap::new();
        for number in (0..HINT_COUNT as u32).chain(3..5) {
            ids.insert(IdHash::of(&id(number)), DeviceNumber(number));
            numbers.insert(number, true);
        }
        ids.remove(IdHash::of(&id(4)), DeviceNumber(4));
        ids.remove(IdHash::of(&id(5)), DeviceNumber(6)); // Another's.
        for number in numbers.into_keys() {
            assert_eq!(is_found(&ids, number), number != 4, "{number}");
        }
    }
}
