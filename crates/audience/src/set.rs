//! A set of device numbers in the cheapest of three forms.

use std::sync::Arc;

use roaring::RoaringBitmap;

/// Up to here a sorted array, above it Roaring.
pub(crate) const ARRAY_DEVICE_COUNT_MAX: usize = 4096;

/// Below this an array comes back from Roaring; lower than the limit up, so that a set at the limit does not flap.
const ARRAY_DEVICE_COUNT_BACK: u64 = ARRAY_DEVICE_COUNT_MAX as u64 * 3 / 4;

/// Device numbers of one shard for one (topic, subject).
///
/// Invariant: `Array` is sorted, without duplicates, at most `ARRAY_DEVICE_COUNT_MAX` long.
#[derive(Debug)]
pub(crate) enum Set {
    /// Most sets have one member: it needs no memory of its own.
    One(u32),
    Array(Vec<u32>),
    /// Shared with frozen audiences; copied by the first change after a freeze.
    Roaring(Arc<RoaringBitmap>),
}

impl Set {
    /// Adds `number`; false when it was there.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        match self {
            Self::One(only) if *only == number => false,
            Self::One(only) => {
                let mut pair = vec![*only, number];
                pair.sort_unstable();
                *self = Self::Array(pair);
                true
            }
            Self::Array(numbers) => {
                let Err(place) = numbers.binary_search(&number) else { return false };
                if numbers.len() == ARRAY_DEVICE_COUNT_MAX {
                    let mut bitmap: RoaringBitmap = sorted(numbers);
                    bitmap.insert(number);
                    *self = Self::Roaring(Arc::new(bitmap));
                    return true;
                }
                if numbers.len() == numbers.capacity() {
                    numbers.reserve_exact(numbers.len() / 8 + 1); // An eighth of slack instead of the usual half.
                }
                numbers.insert(place, number);
                true
            }
            Self::Roaring(bitmap) => !bitmap.contains(number) && Arc::make_mut(bitmap).insert(number),
        }
    }

    /// Removes `number`; false when it was not there. An emptied set is an empty array: the owner drops it.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        match self {
            Self::One(only) => {
                let found = *only == number;
                if found {
                    *self = Self::Array(Vec::new());
                }
                found
            }
            Self::Array(numbers) => {
                let Ok(place) = numbers.binary_search(&number) else { return false };
                numbers.remove(place);
                if numbers.len() < numbers.capacity() / 2 {
                    numbers.shrink_to(numbers.len() + numbers.len() / 8);
                }
                true
            }
            Self::Roaring(bitmap) => {
                if !bitmap.contains(number) {
                    return false;
                }
                Arc::make_mut(bitmap).remove(number);
                if bitmap.len() < ARRAY_DEVICE_COUNT_BACK {
                    let numbers: Vec<u32> = bitmap.iter().collect();
                    *self = Self::Array(numbers);
                }
                true
            }
        }
    }

    pub(crate) fn contains(&self, number: u32) -> bool {
        match self {
            Self::One(only) => *only == number,
            Self::Array(numbers) => numbers.binary_search(&number).is_ok(),
            Self::Roaring(bitmap) => bitmap.contains(number),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Self::Array(numbers) if numbers.is_empty())
    }

    /// All members as a bitmap; a large set is shared, not copied.
    pub(crate) fn to_bitmap(&self) -> Arc<RoaringBitmap> {
        match self {
            Self::One(only) => Arc::new(RoaringBitmap::from_iter([*only])),
            Self::Array(numbers) => Arc::new(sorted(numbers)),
            Self::Roaring(bitmap) => bitmap.clone(),
        }
    }

    /// Adds all members to `union`.
    pub(crate) fn add_to(&self, union: &mut RoaringBitmap) {
        match self {
            Self::One(only) => {
                union.insert(*only);
            }
            Self::Array(numbers) => *union |= sorted(numbers),
            Self::Roaring(bitmap) => *union |= &**bitmap,
        }
    }

    /// Panics when the invariant is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        match self {
            Self::One(_) => {}
            Self::Array(numbers) => {
                assert!(!numbers.is_empty() && numbers.len() <= ARRAY_DEVICE_COUNT_MAX);
                assert!(numbers.is_sorted_by(|a, b| a < b));
            }
            Self::Roaring(bitmap) => assert!(bitmap.len() >= ARRAY_DEVICE_COUNT_BACK),
        }
    }
}

fn sorted(numbers: &[u32]) -> RoaringBitmap {
    RoaringBitmap::from_sorted_iter(numbers.iter().copied()).expect("the array is sorted (invariant of Set::Array)")
}
