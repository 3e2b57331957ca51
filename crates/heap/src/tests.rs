//! The heap compared with a model under random operations, and with damaged files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use crate::{Damaged, Heap, Limits, Place, RECORD_BYTES_MAX, stored_bytes};

/// Small segments, so that many are made and deleted.
const LIMITS: Limits = Limits { segment_bytes_min: 64 << 10, segment_bytes_max: 256 << 10 };

fn record(key: u32, version: u32, bytes: usize) -> Vec<u8> {
    (0..bytes as u32).map(|at| (at ^ key.wrapping_mul(31) ^ version.wrapping_mul(7)) as u8).collect()
}

fn put(heap: &mut Heap, key: u32, record: &[u8]) -> Place {
    heap.reserve(stored_bytes(record.len())).unwrap();
    heap.append(key, record).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[derive(Debug, Clone)]
enum Act {
    /// Adds or replaces records of some keys as a batch: reserved together, and perhaps flushed.
    Put {
        keys: Vec<(u32, usize)>,
        flush: bool,
    },
    Remove {
        key: u32,
    },
    /// Moves up to `count` records out of untidy segments, then deletes empty segments.
    Collect {
        count: usize,
    },
    /// Opens the heap as after a kill. Flushed records are there, and the places are known from a checkpoint.
    Reopen,
    /// Begins again without a checkpoint.
    Begin,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![8 => 0_usize..300, 1 => 0..=RECORD_BYTES_MAX];
    prop_oneof![
        8 => (prop::collection::vec((0_u32..40, bytes), 1..60), any::<bool>())
            .prop_map(|(keys, flush)| Act::Put { keys, flush }),
        3 => (0_u32..40).prop_map(|key| Act::Remove { key }),
        3 => (0_usize..60).prop_map(|count| Act::Collect { count }),
        1 => Just(Act::Reopen),
        1 => Just(Act::Begin),
    ]
}

/// The expected place and bytes of each key.
#[derive(Default)]
struct Model(BTreeMap<u32, (Place, Vec<u8>)>);

impl Model {
    fn apply(&mut self, act: Act, heap: &mut Heap, folder: &Path, version: u32) {
        match act {
            Act::Put { keys, flush } => {
                heap.reserve(keys.iter().map(|(_, bytes)| stored_bytes(*bytes)).sum()).unwrap();
                let files_before = files(folder);
                for (key, bytes) in keys {
                    let record = record(key, version, bytes);
                    let place = heap.append(key, &record).expect("it was reserved");
                    if let Some((old, _)) = self.0.insert(key, (place, record)) {
                        heap.release(old);
                    }
                }
                assert_eq!(files(folder), files_before, "no file is made after the reservation");
                if flush {
                    heap.flush().unwrap();
                }
            }
            Act::Remove { key } => {
                if let Some((place, _)) = self.0.remove(&key) {
                    heap.release(place);
                }
            }
            Act::Collect { count } => {
                let untidy = heap.untidy(u64::MAX);
                let moved = self.0.iter_mut().filter(|(_, (place, _))| untidy.contains(&place.segment()));
                for (key, (place, record)) in moved.take(count) {
                    let copy = heap.get(*key, *place).unwrap().to_vec();
                    assert_eq!(copy, *record);
                    let old = std::mem::replace(place, put(heap, *key, &copy));
                    heap.release(old);
                }
                heap.retire();
                heap.take_retired().delete().unwrap();
            }
            Act::Reopen => {
                heap.flush().unwrap();
                *heap = Heap::open(folder, LIMITS).unwrap();
                assert!(self.0.values().all(|(place, _)| heap.adopt(*place)));
                heap.remove_unused().unwrap();
            }
            Act::Begin => {
                *heap = Heap::create(folder, LIMITS).unwrap();
                assert_eq!(files(folder).len(), 0);
                for (key, (place, record)) in &mut self.0 {
                    *place = put(heap, *key, record);
                }
            }
        }
    }

    fn check(&self, heap: &Heap, folder: &Path) {
        for (key, (place, record)) in &self.0 {
            assert_eq!(heap.get(*key, *place), Ok(&record[..]));
            assert_eq!(heap.get(key + 1, *place), Err(Damaged), "a place of another record");
            assert_eq!(Place::from_bits(place.to_bits()), Some(*place));
        }
        let usage = heap.usage();
        let live: u64 = self.0.values().map(|(_, record)| stored_bytes(record.len())).sum();
        assert_eq!((usage.live_bytes, usage.segment_count), (live, files(folder).len() as u64));
        let disk: u64 = files(folder).iter().map(|file| file.metadata().unwrap().len()).sum();
        assert_eq!(usage.disk_bytes, disk);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_heap_equals_the_model(acts in prop::collection::vec(act(), 1..60)) {
        let folder = tempfile::tempdir().unwrap();
        let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
        let mut model = Model::default();
        for (version, act) in acts.into_iter().enumerate() {
            model.apply(act, &mut heap, folder.path(), version as u32);
            model.check(&heap, folder.path());
        }
        // When all untidy segments are moved, garbage is left only in the tail and in segments that are mostly live.
        while !heap.untidy(u64::MAX).is_empty() {
            model.apply(Act::Collect { count: 10 }, &mut heap, folder.path(), 0);
        }
        let (usage, tail) = (heap.usage(), u64::from(LIMITS.segment_bytes_max));
        prop_assert!(usage.disk_bytes <= 2 * usage.live_bytes + 3 * tail, "{:?}", usage);
        model.check(&heap, folder.path());
    }

    #[test]
    fn changed_bytes_and_truncated_files_are_damage_and_never_wrong_bytes(
        sizes in prop::collection::vec(0_usize..3000, 1..60),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0_u32..8), 0..20),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
        let records: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(key, bytes)| record(key as u32, 1, *bytes)).collect();
        let places: Vec<Place> = records.iter().enumerate().map(|(key, record)| put(&mut heap, key as u32, record)).collect();
        heap.flush().unwrap();
        drop(heap);
        let file = files(folder.path()).remove(0);
        let mut bytes = fs::read(&file).unwrap();
        let mut touched = Vec::new();
        for (index, bit) in flips {
            let at = index.index(bytes.len().min(100_000));
            bytes[at] ^= 1 << bit;
            touched.push(at as u32);
        }
        bytes.truncate(cut.map_or(bytes.len(), |cut| cut.index(bytes.len() + 1)));
        fs::write(&file, &bytes).unwrap();
        let mut heap = Heap::open(folder.path(), LIMITS).unwrap();
        for (key, (place, record)) in places.iter().zip(&records).enumerate() {
            let was_first = place.segment() == 1;
            let is_cut = was_first && place.end() as usize > bytes.len();
            prop_assert_eq!(heap.adopt(*place), !is_cut);
            let found = heap.get(key as u32, *place).map(<[u8]>::to_vec);
            let is_touched = was_first && touched.iter().any(|at| (place.offset()..place.end()).contains(at));
            // A bit may have been flipped twice.
            prop_assert!(found == Ok(record.clone()) || (is_cut || is_touched) && found == Err(Damaged));
            prop_assert!(!is_cut || found.is_err());
        }
        let place = put(&mut heap, 7, b"goes on");
        prop_assert_eq!(heap.get(7, place), Ok(&b"goes on"[..]));
    }

    #[test]
    fn reserved_bytes_can_be_appended(batches in prop::collection::vec(prop::collection::vec(0..=RECORD_BYTES_MAX, 1..40), 1..8)) {
        let folder = tempfile::tempdir().unwrap();
        let limits = Limits { segment_bytes_max: 64 << 10, ..LIMITS };
        let mut heap = Heap::create(folder.path(), limits).unwrap();
        for batch in batches {
            heap.reserve(batch.iter().map(|bytes| stored_bytes(*bytes)).sum()).unwrap();
            let count = heap.usage().segment_count;
            for bytes in batch {
                prop_assert!(heap.append(1, &vec![1; bytes]).is_ok());
            }
            prop_assert_eq!(heap.usage().segment_count, count);
        }
    }

    #[test]
    fn any_bits_are_a_place_or_none_and_never_panic(bits: u64, key: u32, small in 0_u64..1 << 41) {
        let folder = tempfile::tempdir().unwrap();
        let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
        put(&mut heap, 1, b"one");
        for bits in [bits, small, bits >> 20, 1 << 40 | bits >> 40] {
            prop_assert_eq!(Place::from_bits(bits).is_some(), bits >= 1 << 40);
            let Some(place) = Place::from_bits(bits) else { continue };
            prop_assert_eq!(heap.get(key, place).err(), Some(Damaged));
            heap.stored(place).prefetch();
            heap.will_need([place].into_iter());
            heap.adopt(place);
            heap.release(place);
        }
    }
}

#[test]
fn a_record_without_reservation_or_too_long_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
    assert!(heap.append(1, b"x").is_err());
    heap.reserve(1).unwrap();
    assert!(heap.append(1, &vec![0; RECORD_BYTES_MAX]).is_ok());
    assert!(heap.append(1, &vec![0; RECORD_BYTES_MAX + 1]).is_err());
    while heap.append(1, &[1; 1000]).is_ok() {}
    assert_eq!(files(folder.path()).len(), 1, "only reserving makes a segment");
    heap.reserve(100_000).unwrap();
    assert!((0..100).all(|_| heap.append(1, &[1; 992]).is_ok()));
}

#[test]
fn records_out_of_order_are_untidy_until_they_are_moved() {
    const COUNT: u32 = 3000;
    let folder = tempfile::tempdir().unwrap();
    let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
    let reopened = |mut heap: Heap, places: &BTreeMap<u32, Place>| {
        heap.flush().unwrap();
        let mut heap = Heap::open(folder.path(), LIMITS).unwrap();
        assert!(places.values().all(|place| heap.adopt(*place)));
        heap
    };
    // There are thirty groups of keys. Each next record has the next key of a random group.
    let mut next: Vec<u32> = (0..COUNT).step_by(100).collect();
    let mut places = BTreeMap::new();
    for draw in 0_u64.. {
        let group = (draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize % next.len();
        let key = next[group];
        places.insert(key, put(&mut heap, key, &record(key, 0, 100)));
        next[group] += 1;
        if next[group].is_multiple_of(100) {
            next.swap_remove(group);
        }
        if next.is_empty() {
            break;
        }
    }
    assert_eq!(places.len() as u32, COUNT);
    let last = places.values().map(|place| place.segment()).max().unwrap();
    assert!(heap.untidy(u64::MAX).into_iter().eq(1..last), "all but the segment that is written");
    heap = reopened(heap, &places);
    assert!(heap.untidy(u64::MAX).into_iter().eq(1..=last), "the order is counted again when records are adopted");
    assert_eq!(heap.untidy(100_000), [1], "there is no room for the second segment");

    for (key, place) in &mut places {
        let copy = heap.get(*key, *place).unwrap().to_vec();
        let old = std::mem::replace(place, put(&mut heap, *key, &copy));
        heap.release(old);
    }
    assert_eq!(heap.untidy(u64::MAX), []);
    heap = reopened(heap, &places);
    assert_eq!(heap.untidy(u64::MAX), [], "this includes the segment that was written last");
    assert!(places.iter().all(|(key, place)| heap.get(*key, *place) == Ok(&record(*key, 0, 100)[..])));
}

#[test]
fn two_heaps_of_one_folder_do_not_disturb_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut old = Heap::create(folder.path(), LIMITS).unwrap();
    let place = put(&mut old, 1, b"old");
    old.flush().unwrap();
    let mut new = Heap::create(folder.path(), LIMITS).unwrap();
    let newer = put(&mut new, 1, b"new");
    new.flush().unwrap();
    assert_eq!((old.get(1, place), new.get(1, newer)), (Ok(&b"old"[..]), Ok(&b"new"[..])));
    assert_eq!((old.get(1, newer), new.get(1, place)), (Err(Damaged), Err(Damaged)));
    drop(old);
    let mut synced = Vec::new();
    let mut sync = |heap: &Heap| {
        heap.unsynced()
            .sync(|bytes| {
                synced.push(bytes);
                Ok(())
            })
            .unwrap();
        std::mem::take(&mut synced)
    };
    let written = stored_bytes(3);
    assert_eq!((sync(&new), sync(&new)), (vec![written], vec![]), "nothing is synced twice");
    put(&mut new, 2, b"more");
    new.flush().unwrap();
    assert_eq!(sync(&new), [stored_bytes(4)]);
    let file_bytes = new.usage().disk_bytes;
    let found = Heap::open(folder.path(), LIMITS).unwrap();
    assert_eq!(sync(&found).iter().sum::<u64>(), file_bytes, "after opening, all bytes count as unsynced");
    assert_eq!(new.get(1, newer), Ok(&b"new"[..]));
}

#[test]
fn only_taken_segments_are_deleted_and_other_files_stay() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("notes.txt");
    fs::write(&other, "not ours").unwrap();
    fs::write(folder.path().join("000009.heap"), "").unwrap();
    let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
    let first = put(&mut heap, 1, b"first");
    heap.retire();
    while heap.usage().segment_count < 2 {
        put(&mut heap, 2, &[2; 1000]);
    }
    while put(&mut heap, 2, &[2; 1000]).segment() == first.segment() {}
    assert!(first.segment() > 9, "a number is never used again");
    heap.retire();
    assert!(heap.take_retired().is_empty(), "its record is live");
    heap.flush().unwrap();
    let mut heap = Heap::open(folder.path(), LIMITS).unwrap();
    assert!(heap.adopt(first));
    heap.retire();
    heap.release(first);
    let (count, retired) = (heap.usage().segment_count, heap.take_retired());
    assert!(heap.get(1, first).is_ok(), "it was live at the last retire");
    assert_eq!(files(folder.path()).len() as u64, count + 1);
    retired.delete().unwrap();
    heap.remove_unused().unwrap();
    assert_eq!((heap.get(1, first), files(folder.path())), (Err(Damaged), vec![other]));
}

#[test]
fn a_failed_write_is_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut heap = Heap::create(folder.path(), LIMITS).unwrap();
    heap.reserve(1000).unwrap();
    heap.set_file(File::open(&files(folder.path())[0]).unwrap()); // Opened for reading only.
    let place = heap.append(1, b"lost").unwrap();
    assert_eq!(heap.get(1, place), Ok(&b"lost"[..]), "it is still in memory");
    assert!(heap.flush().is_err() && heap.flush().is_ok());
    assert_eq!(heap.get(1, place), Err(Damaged));
    heap.set_file(File::options().write(true).open(&files(folder.path())[0]).unwrap());
    let place = heap.append(1, b"kept").unwrap();
    heap.flush().unwrap();
    let mut bytes = [0; 4];
    let file = File::open(&files(folder.path())[0]).unwrap();
    file.read_exact_at(&mut bytes, u64::from(place.offset()) + 8).unwrap();
    assert_eq!((heap.get(1, place), &bytes), (Ok(&b"kept"[..]), b"kept"));
}
