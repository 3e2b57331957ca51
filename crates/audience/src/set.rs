//! A set of device numbers in the cheapest of its forms.
//!
//! | form | of | takes |
//! |---|---|---|
//! | gaps within the set's own 16 bytes | up to 4 numbers or so | nothing more |
//! | [gaps](crate::gaps) in a [pool](crate::pool) | some hundred | 2 to 3 bytes each |
//! | by shard: [halves](crate::halves) | 8192 in each shard | 2 bytes each, an eighth of slack |
//! | by shard: Roaring | more | 1 bit of a dense range, 3 bytes at worst, less for runs |
//!
//! A set that shrinks changes back to the smaller form only at half of the limit or less, so that it does not switch
//! often.

use std::sync::Arc;

use roaring::RoaringBitmap;

use crate::gaps;
use crate::halves::{HALVES_COUNT_MAX, Halves};
use crate::pool::Place;
use crate::shard::shard_of;

/// Gaps that need no memory of their own.
pub(crate) const INLINE_BYTES_MAX: usize = 14;

/// Fewer numbers than this are gaps again.
pub(crate) const WIDE_COUNT_MIN: usize = 128;

/// Fewer numbers of a shard than this are halves again.
const BITMAP_COUNT_MIN: u32 = HALVES_COUNT_MAX as u32 / 2;

/// After so many changes a bitmap is looked through for runs.
const TIDY_CHANGE_COUNT: u32 = 4096;

/// Bytes of the runs of a block at most, on average: 64 runs. More take less memory than bits do and more time.
const RUN_BYTES_MAX: u64 = 256;

/// Device numbers of one key. [`Sets`](crate::sets::Sets) has the pool and chooses the form.
#[derive(Debug)]
pub(crate) enum Set {
    Inline { length: u8, bytes: [u8; INLINE_BYTES_MAX] },
    Pooled(Place),
    Wide(Box<Wide>),
}

impl Default for Set {
    fn default() -> Self {
        Self::Inline { length: 0, bytes: [0; INLINE_BYTES_MAX] }
    }
}

/// A set with a part for each shard that somebody is in, in order.
#[derive(Debug, Default)]
pub(crate) struct Wide {
    parts: Vec<(u16, Part)>,
}

/// The members in one shard; there are some.
#[derive(Debug)]
pub(crate) enum Part {
    Halves(Halves),
    Bitmap(Bitmap),
}

/// Shared with frozen audiences; copied by the first change after a freeze.
#[derive(Debug)]
pub(crate) struct Bitmap {
    bitmap: Arc<RoaringBitmap>,
    /// Its length, which Roaring would have to count.
    count: u32,
    /// Since it was looked through for runs.
    changes: u32,
}

impl Wide {
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u16, &Part)> {
        self.parts.iter().map(|(shard, part)| (*shard, part))
    }

    pub(crate) fn part(&self, shard: u16) -> Option<&Part> {
        let place = self.parts.binary_search_by_key(&shard, |(shard, _)| *shard).ok()?;
        Some(&self.parts[place].1)
    }

    /// Puts a part behind those there are; false when its shard is not.
    pub(crate) fn push(&mut self, shard: u16, part: Part) -> bool {
        let is_next = self.parts.last().is_none_or(|(last, _)| *last < shard);
        if is_next {
            self.parts.reserve_exact(1);
            self.parts.push((shard, part));
        }
        is_next
    }

    pub(crate) fn insert(&mut self, number: u32) -> bool {
        let shard = shard_of(number);
        match self.parts.binary_search_by_key(&shard, |(shard, _)| *shard) {
            Ok(place) => self.parts[place].1.insert(shard, number),
            Err(place) => {
                let mut halves = Halves::default();
                halves.insert(number);
                self.parts.reserve_exact(1);
                self.parts.insert(place, (shard, Part::Halves(halves)));
                true
            }
        }
    }

    /// Adds numbers in order without repeats; how many were not there.
    pub(crate) fn add_sorted(&mut self, numbers: &[u32]) -> usize {
        let mut added = 0;
        for numbers in numbers.chunk_by(|one, two| shard_of(*one) == shard_of(*two)) {
            let shard = shard_of(numbers[0]);
            let found = self.parts.binary_search_by_key(&shard, |(shard, _)| *shard);
            let place = found.unwrap_or_else(|place| {
                self.parts.reserve_exact(1);
                self.parts.insert(place, (shard, Part::Halves(Halves::default())));
                place
            });
            added += self.parts[place].1.add_sorted(shard, numbers);
        }
        added
    }

    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let shard = shard_of(number);
        let Ok(place) = self.parts.binary_search_by_key(&shard, |(shard, _)| *shard) else { return false };
        let part = &mut self.parts[place].1;
        let removed = part.remove(number);
        if part.len() == 0 {
            self.parts.remove(place);
        }
        removed
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        self.part(shard_of(number)).is_some_and(|part| part.contains(number))
    }

    pub(crate) fn len(&self) -> u64 {
        self.parts.iter().map(|(_, part)| part.len() as u64).sum()
    }

    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32)) {
        for (shard, part) in &self.parts {
            match part {
                Part::Halves(halves) => halves.numbers(*shard).for_each(&mut visit),
                Part::Bitmap(part) => part.bitmap.iter().for_each(&mut visit),
            }
        }
    }

    /// Whether it should be gaps.
    pub(crate) fn is_small(&self) -> bool {
        self.len() < WIDE_COUNT_MIN as u64
    }
}

impl Part {
    /// `None` when the bitmap has none or others than of this shard.
    pub(crate) fn from_bitmap(shard: u16, bitmap: RoaringBitmap) -> Option<Self> {
        let is_within = shard_of(bitmap.min()?) == shard && shard_of(bitmap.max()?) == shard;
        let count = bitmap.len() as u32;
        if is_within && count < BITMAP_COUNT_MIN {
            return Some(Self::Halves(Halves::from_sorted(bitmap.iter())));
        }
        is_within.then(|| Self::Bitmap(Bitmap { bitmap: Arc::new(bitmap), count, changes: 0 }))
    }

    fn insert(&mut self, shard: u16, number: u32) -> bool {
        match self {
            Self::Halves(halves) if halves.len() < HALVES_COUNT_MAX => halves.insert(number),
            Self::Halves(halves) => {
                if halves.contains(number) {
                    return false;
                }
                let mut bitmap = halves.to_bitmap(shard);
                bitmap.insert(number);
                tidy(&mut bitmap);
                let count = bitmap.len() as u32;
                *self = Self::Bitmap(Bitmap { bitmap: Arc::new(bitmap), count, changes: 0 });
                true
            }
            Self::Bitmap(part) => part.change(number, true),
        }
    }

    /// Adds numbers of its shard, in order without repeats; how many were not there.
    fn add_sorted(&mut self, shard: u16, numbers: &[u32]) -> usize {
        let halves = match self {
            Self::Bitmap(part) => return part.add_sorted(numbers),
            Self::Halves(halves) => halves,
        };
        let before = halves.len();
        if before + numbers.len() <= HALVES_COUNT_MAX {
            *halves = Halves::from_sorted(gaps::merged(halves.numbers(shard), numbers.iter().copied()));
            return halves.len() - before;
        }
        let mut bitmap = halves.to_bitmap(shard) | bitmap_of(numbers);
        let count = bitmap.len() as usize;
        if count <= HALVES_COUNT_MAX {
            *halves = Halves::from_sorted(bitmap.iter());
        } else {
            tidy(&mut bitmap);
            *self = Self::Bitmap(Bitmap { bitmap: Arc::new(bitmap), count: count as u32, changes: 0 });
        }
        count - before
    }

    fn remove(&mut self, number: u32) -> bool {
        match self {
            Self::Halves(halves) => halves.remove(number),
            Self::Bitmap(part) => {
                let removed = part.change(number, false);
                if part.count < BITMAP_COUNT_MIN {
                    *self = Self::Halves(Halves::from_sorted(part.bitmap.iter()));
                }
                removed
            }
        }
    }

    fn contains(&self, number: u32) -> bool {
        match self {
            Self::Halves(halves) => halves.contains(number),
            Self::Bitmap(part) => part.bitmap.contains(number),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Halves(halves) => halves.len(),
            Self::Bitmap(part) => part.count as usize,
        }
    }

    /// As a bitmap; one that is one is shared, not copied.
    pub(crate) fn to_bitmap(&self, shard: u16) -> Arc<RoaringBitmap> {
        match self {
            Self::Halves(halves) => Arc::new(halves.to_bitmap(shard)),
            Self::Bitmap(part) => part.bitmap.clone(),
        }
    }
}

impl Bitmap {
    pub(crate) fn roaring(&self) -> &RoaringBitmap {
        &self.bitmap
    }

    /// Adds or removes `number`; false when that was so.
    fn change(&mut self, number: u32, add: bool) -> bool {
        if self.bitmap.contains(number) == add {
            return false;
        }
        let bitmap = Arc::make_mut(&mut self.bitmap);
        if add {
            bitmap.insert(number);
            self.count += 1;
        } else {
            bitmap.remove(number);
            self.count -= 1;
        }
        self.on_changes(1);
        true
    }

    /// Adds numbers in order without repeats; how many were not there.
    fn add_sorted(&mut self, numbers: &[u32]) -> usize {
        *Arc::make_mut(&mut self.bitmap) |= bitmap_of(numbers);
        let before = std::mem::replace(&mut self.count, self.bitmap.len() as u32);
        self.on_changes(self.count - before);
        (self.count - before) as usize
    }

    fn on_changes(&mut self, count: u32) {
        self.changes += count;
        if self.changes >= TIDY_CHANGE_COUNT {
            tidy(Arc::make_mut(&mut self.bitmap));
            self.changes = 0;
        }
    }
}

/// Of numbers in order without repeats.
fn bitmap_of(numbers: &[u32]) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(numbers.iter().copied()).expect("they are in order")
}

/// Keeps as runs what has few, and as bits or numbers what has many.
fn tidy(bitmap: &mut RoaringBitmap) {
    bitmap.optimize();
    let statistics = bitmap.statistics();
    if statistics.n_bytes_run_containers > u64::from(statistics.n_run_containers) * RUN_BYTES_MAX {
        bitmap.remove_run_compression();
    }
}

/// Gaps as they lie within a set.
pub(crate) fn inline(gaps: &[u8]) -> Option<Set> {
    let mut bytes = [0; INLINE_BYTES_MAX];
    bytes.get_mut(..gaps.len())?.copy_from_slice(gaps);
    Some(Set::Inline { length: gaps.len() as u8, bytes })
}

/// The numbers of gaps by shard.
pub(crate) fn wide(gaps: &[u8]) -> Box<Wide> {
    let mut wide = Wide::default();
    wide.add_sorted(&gaps::numbers(gaps).collect::<Vec<_>>());
    Box::new(wide)
}

#[cfg(test)]
impl Part {
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Halves(halves) => halves.bytes(),
            // A head for each block, and what is in it as it would be written.
            Self::Bitmap(part) => part.bitmap.serialized_size() + 16 * 40,
        }
    }
}

#[cfg(test)]
impl Wide {
    pub(crate) fn bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|(_, part)| part.bytes()).sum();
        size_of::<Self>() + self.parts.capacity() * size_of::<(u16, Part)>() + parts
    }

    /// Panics when an invariant is broken.
    pub(crate) fn check(&self) {
        assert!(!self.is_small());
        assert!(self.parts.is_sorted_by(|(a, _), (b, _)| a < b));
        for (shard, part) in &self.parts {
            assert!(part.len() > 0);
            match part {
                Part::Halves(halves) => {
                    assert!(Halves::from_parts(*halves.ends(), halves.lows().to_vec()).is_some());
                }
                Part::Bitmap(part) => {
                    assert!(part.count >= BITMAP_COUNT_MIN && u64::from(part.count) == part.bitmap.len());
                    assert!(part.bitmap.iter().all(|number| shard_of(number) == *shard));
                    assert_eq!(part.bitmap.internal_validate(), Ok(()));
                }
            }
        }
    }
}
