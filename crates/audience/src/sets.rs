//! All sets of the index, by key.
//!
//! An entry is a key and a set in 24 bytes, and costs 6 to 12 more in the [`Lookup`]. Only large sets have parts by
//! shard, since five sets of one member would cost more than one of five. Only sets with members exist.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::DeviceNumber;

use crate::gaps;
use crate::lookup::{self, Lookup};
use crate::names::{NameNumber, Names};
use crate::pool::{POOLED_BYTES_MAX, Pool};
use crate::set::{self, INLINE_BYTES_MAX, Set, Wide};
use crate::shard::shard_of;
use crate::slots::Slots;

/// What a set is of: a family, and the name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct SetKey {
    /// The topic of a subscription, or one of [`family`].
    pub(crate) family: NameNumber,
    /// The subject of a subscription, or the name that the family says.
    pub(crate) name: NameNumber,
}

/// In the place of a subscription's topic. No topic has these numbers, because names count up from 0.
pub(crate) mod family {
    use crate::names::NameNumber;

    /// The devices of a user.
    pub(crate) const USER: NameNumber = NameNumber(u32::MAX);
    /// The devices of a platform, which is its own name.
    pub(crate) const PLATFORM: NameNumber = NameNumber(u32::MAX - 1);
    /// The devices that run an app.
    pub(crate) const APP: NameNumber = NameNumber(u32::MAX - 2);
    /// The devices whose locale is, or falls back to, a language tag.
    pub(crate) const LOCALE: NameNumber = NameNumber(u32::MAX - 3);
    /// The devices of a country.
    pub(crate) const COUNTRY: NameNumber = NameNumber(u32::MAX - 4);
    /// The devices that muted a subject.
    pub(crate) const MUTED: NameNumber = NameNumber(u32::MAX - 5);
    /// The devices that muted everything; of one name.
    pub(crate) const MUTED_ALL: NameNumber = NameNumber(u32::MAX - 6);
    /// From here on no topics.
    pub(crate) const FIRST: NameNumber = MUTED_ALL;
}

#[derive(Debug, Default)]
pub(crate) struct Sets {
    slots: Slots<Entry>,
    lookup: Lookup,
    pool: Pool,
    /// Above every shard that somebody was ever in.
    shard_count: usize,
    /// Gaps in the making.
    scratch: Vec<u8>,
}

#[derive(Debug, Default)]
struct Entry {
    key: SetKey,
    /// Empty while the slot is free.
    set: Set,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Added {
    Not,
    /// Its set is new.
    First,
    More,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Removed {
    Not,
    Some,
    /// Its set is gone.
    Last,
}

/// The members of a set as they are kept.
pub(crate) enum Members<'a> {
    /// As [gaps](crate::gaps).
    Gaps(&'a [u8]),
    Wide(&'a Wide),
}

impl Members<'_> {
    pub(crate) fn contains(&self, number: u32) -> bool {
        match self {
            Self::Gaps(bytes) => gaps::contains(bytes, number),
            Self::Wide(wide) => wide.contains(number),
        }
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }

    pub(crate) fn for_each(&self, visit: impl FnMut(u32)) {
        match self {
            Self::Gaps(bytes) => gaps::numbers(bytes).for_each(visit),
            Self::Wide(wide) => wide.for_each(visit),
        }
    }
}

impl Sets {
    pub(crate) fn insert(&mut self, key: SetKey, DeviceNumber(number): DeviceNumber) -> Added {
        self.shard_count = self.shard_count.max(usize::from(shard_of(number)) + 1);
        let Some(slot) = self.find(key) else {
            let slot = self.new_slot(key);
            self.scratch.clear();
            gaps::push(&mut self.scratch, [number]);
            self.put_scratch(slot);
            return Added::First;
        };
        match self.insert_at(slot, number) {
            true => Added::More,
            false => Added::Not,
        }
    }

    fn insert_at(&mut self, slot: u32, number: u32) -> bool {
        if let Set::Wide(wide) = &mut self.slots[slot].set {
            return wide.insert(number);
        }
        let edit = gaps::insert(self.gaps(slot), number);
        self.edit(slot, edit)
    }

    /// Adds numbers in order without repeats; whether the set is new, and how many were not there. At least one.
    pub(crate) fn add_sorted(&mut self, key: SetKey, numbers: &[u32]) -> (bool, usize) {
        let highest = numbers.last().map_or(0, |&last| usize::from(shard_of(last)) + 1);
        self.shard_count = self.shard_count.max(highest);
        let found = self.find(key);
        let slot = found.unwrap_or_else(|| self.new_slot(key));
        (found.is_none(), self.add_sorted_at(slot, numbers))
    }

    fn add_sorted_at(&mut self, slot: u32, numbers: &[u32]) -> usize {
        if let Set::Wide(wide) = &mut self.slots[slot].set {
            return wide.add_sorted(numbers);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let is_wide = numbers.len() > POOLED_BYTES_MAX; // Each number takes a byte at least.
        let mut wide = is_wide.then(|| set::wide(self.gaps(slot)));
        scratch.clear();
        let added = match &mut wide {
            Some(wide) => wide.add_sorted(numbers),
            None => gaps::merge(self.gaps(slot), numbers, &mut scratch),
        };
        self.scratch = scratch;
        if added > 0 {
            self.put_scratch(slot);
        }
        if let Some(wide) = wide {
            self.slots[slot].set = Set::Wide(wide);
        }
        added
    }

    /// The slots of sets, in this order where they are new, and which are: they must get members. A part of the table
    /// is looked at after the other, which is quicker than one by one.
    pub(crate) fn slots_of(&mut self, keys: &[SetKey]) -> Vec<(u32, bool)> {
        let slot = |&key: &SetKey| (self.slots.insert(Entry { key, set: Set::default() }), true);
        let mut slots: Vec<(u32, bool)> = keys.iter().map(slot).collect();
        for place in lookup::by_part(keys.iter().map(|&key| hash(key))) {
            let (slot, _) = slots[place];
            if let Some(found) = self.find(keys[place]) {
                self.slots.remove(slot);
                slots[place] = (found, false);
            } else {
                self.lookup.insert(hash(keys[place]), slot, |slot| hash(self.slots[slot].key));
            }
        }
        slots
    }

    /// Adds the numbers of gaps that are right and no longer than a set has them; how many were not there.
    pub(crate) fn add_gaps_at(&mut self, slot: u32, gaps: &[u8], (count, last): (usize, u32)) -> usize {
        self.shard_count = self.shard_count.max(usize::from(shard_of(last)) + 1);
        if let Set::Inline { length: 0, .. } = self.slots[slot].set {
            self.slots[slot].set = of_gaps(&mut self.pool, slot, gaps);
            return count;
        }
        self.add_sorted_at(slot, &gaps::numbers(gaps).collect::<Vec<_>>())
    }

    /// The same with the members of `wide`.
    pub(crate) fn add_wide_at(&mut self, slot: u32, wide: Box<Wide>) -> usize {
        let highest = wide.parts().last().map_or(0, |(shard, _)| usize::from(shard) + 1);
        self.shard_count = self.shard_count.max(highest);
        if let Set::Inline { length: 0, .. } = self.slots[slot].set
            && !wide.is_small()
        {
            let count = wide.len() as usize;
            self.slots[slot].set = Set::Wide(wide);
            return count;
        }
        let mut numbers = Vec::new();
        wide.for_each(|number| numbers.push(number));
        self.add_sorted_at(slot, &numbers)
    }

    pub(crate) fn remove(&mut self, key: SetKey, DeviceNumber(number): DeviceNumber) -> Removed {
        let Some(slot) = self.find(key) else { return Removed::Not };
        let removed = match &mut self.slots[slot].set {
            Set::Wide(wide) => {
                let removed = wide.remove(number);
                if wide.is_small() {
                    self.scratch.clear();
                    let mut numbers = Vec::new();
                    wide.for_each(|number| numbers.push(number));
                    gaps::push(&mut self.scratch, numbers);
                    self.put_scratch(slot);
                }
                removed
            }
            Set::Inline { .. } | Set::Pooled(_) => {
                let edit = gaps::remove(self.gaps(slot), number);
                self.edit(slot, edit)
            }
        };
        match &self.slots[slot].set {
            Set::Inline { length: 0, .. } => {
                self.slots.remove(slot);
                self.lookup.remove(hash(key), slot);
                Removed::Last
            }
            _ if removed => Removed::Some,
            _ => Removed::Not,
        }
    }

    pub(crate) fn contains(&self, key: SetKey, DeviceNumber(number): DeviceNumber) -> bool {
        self.members(key).is_some_and(|members| members.contains(number))
    }

    /// The members of a set in a shard; a large set is shared, not copied. `None`: nobody.
    pub(crate) fn bitmap(&self, shard: usize, key: SetKey) -> Option<Arc<RoaringBitmap>> {
        let shard = u16::try_from(shard).ok()?;
        match self.members(key)? {
            Members::Wide(wide) => wide.part(shard).map(|part| part.to_bitmap(shard)),
            Members::Gaps(bytes) => {
                let behind = gaps::numbers(bytes).skip_while(|&number| shard_of(number) < shard);
                let within = behind.take_while(|&number| shard_of(number) == shard);
                let bitmap = RoaringBitmap::from_sorted_iter(within).expect("gaps are in order");
                (!bitmap.is_empty()).then(|| Arc::new(bitmap))
            }
        }
    }

    /// How many members a set has.
    pub(crate) fn len(&self, key: SetKey) -> u64 {
        match self.members(key) {
            None => 0,
            Some(Members::Wide(wide)) => wide.len(),
            Some(Members::Gaps(bytes)) => gaps::numbers(bytes).count() as u64,
        }
    }

    /// The sets of whatever topic and one of the `subjects`. Looks for each pair or at each set, whichever are fewer.
    pub(crate) fn topic_keys(&self, topics: &Names, subjects: &[NameNumber]) -> Vec<SetKey> {
        if topics.len().saturating_mul(subjects.len()) > self.lookup.len() {
            let subjects: HashSet<NameNumber> = subjects.iter().copied().collect();
            let keys = self.iter_from(0).map(|(key, _)| key);
            return keys.filter(|key| key.family.0 < family::FIRST.0 && subjects.contains(&key.name)).collect();
        }
        let of_subject = |&name| topics.numbers().map(move |family| SetKey { family, name });
        subjects.iter().flat_map(of_subject).filter(|&key| self.find(key).is_some()).collect()
    }

    /// Shards that somebody may be in.
    pub(crate) fn shard_count(&self) -> usize {
        self.shard_count
    }

    pub(crate) fn members(&self, key: SetKey) -> Option<Members<'_>> {
        Some(self.members_at(self.find(key)?))
    }

    /// All sets in the slots from `start` on.
    pub(crate) fn iter_from(&self, start: usize) -> impl Iterator<Item = (SetKey, Members<'_>)> {
        self.iter_within(start..self.end())
    }

    /// All sets in these slots.
    pub(crate) fn iter_within(&self, slots: Range<usize>) -> impl Iterator<Item = (SetKey, Members<'_>)> {
        let used = self.slots.iter_from(slots.start).take(slots.len());
        used.map(|(slot, entry)| (entry.key, self.members_at(slot))).filter(|(_, members)| !members.is_empty())
    }

    /// Above the slots of all sets.
    pub(crate) fn end(&self) -> usize {
        self.slots.end()
    }

    fn members_at(&self, slot: u32) -> Members<'_> {
        match &self.slots[slot].set {
            Set::Wide(wide) => Members::Wide(wide),
            Set::Inline { .. } | Set::Pooled(_) => Members::Gaps(self.gaps(slot)),
        }
    }

    fn find(&self, key: SetKey) -> Option<u32> {
        self.lookup.find(hash(key), |slot| self.slots[slot].key == key)
    }

    fn new_slot(&mut self, key: SetKey) -> u32 {
        let slot = self.slots.insert(Entry { key, set: Set::default() });
        self.lookup.insert(hash(key), slot, |slot| hash(self.slots[slot].key));
        slot
    }

    /// The gaps of a set that is not by shard.
    fn gaps(&self, slot: u32) -> &[u8] {
        match &self.slots[slot].set {
            Set::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Set::Pooled(place) => self.pool.bytes_at(*place),
            Set::Wide(_) => &[],
        }
    }

    fn edit(&mut self, slot: u32, edit: Option<gaps::Edit>) -> bool {
        let Some(edit) = edit else { return false };
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        let gaps = self.gaps(slot);
        scratch.extend_from_slice(&gaps[..edit.start]);
        scratch.extend_from_slice(edit.bytes());
        scratch.extend_from_slice(&gaps[edit.end..]);
        self.scratch = scratch;
        self.put_scratch(slot);
        true
    }

    /// The set in `slot` is what `scratch` says, in the form that is for so many bytes.
    fn put_scratch(&mut self, slot: u32) {
        let Self { slots, pool, scratch, .. } = self;
        let is_pooled = (INLINE_BYTES_MAX + 1..=POOLED_BYTES_MAX).contains(&scratch.len());
        if let Set::Pooled(place) = &mut slots[slot].set {
            if is_pooled && place.fits(scratch.len()) {
                return pool.replace(place, scratch);
            }
            let place = *place;
            if let Some(moved) = pool.remove(place)
                && let Set::Pooled(place) = &mut slots[moved.owner].set
            {
                place.move_to(moved);
            }
        }
        slots[slot].set = of_gaps(pool, slot, scratch);
    }
}

#[cfg(test)]
impl Sets {
    pub(crate) fn bytes(&self) -> usize {
        let wide =
            self.slots.iter_from(0).map(|(_, entry)| if let Set::Wide(wide) = &entry.set { wide.bytes() } else { 0 });
        self.slots.bytes() + self.lookup.bytes() + self.pool.bytes() + wide.sum::<usize>()
    }

    /// Panics when an invariant is broken.
    pub(crate) fn check(&self) {
        let (mut pooled, mut count) = (0, 0);
        for (slot, entry) in self.slots.iter_from(0) {
            match &entry.set {
                Set::Inline { length: 0, .. } => continue,
                Set::Inline { .. } => {}
                Set::Pooled(place) => {
                    pooled += 1;
                    assert_eq!(self.pool.owner(*place), slot);
                    assert!(self.gaps(slot).len() > INLINE_BYTES_MAX);
                }
                Set::Wide(wide) => wide.check(),
            }
            count += 1;
            assert!(matches!(entry.set, Set::Wide(_)) || gaps::check(self.gaps(slot)).is_some());
            assert_eq!(self.find(entry.key), Some(slot));
        }
        assert_eq!((self.pool.count(), self.lookup.len()), (pooled, count));
    }
}

impl Members<'_> {
    fn is_empty(&self) -> bool {
        matches!(self, Self::Gaps([]))
    }
}

/// A new set in `slot`, in the form that is for so many bytes.
fn of_gaps(pool: &mut Pool, slot: u32, gaps: &[u8]) -> Set {
    match set::inline(gaps) {
        Some(set) => set,
        None if gaps.len() <= POOLED_BYTES_MAX => Set::Pooled(pool.insert(slot, gaps)),
        None => Set::Wide(set::wide(gaps)),
    }
}

/// Multiply and fold. The keys are numbers we gave ourselves, so nobody outside can make them meet.
fn hash(SetKey { family, name }: SetKey) -> u64 {
    // 2^64 divided by the golden ratio: neighbouring numbers spread over all bits (Knuth, volume 3, 6.4).
    let key = u64::from(family.0) << 32 | u64::from(name.0);
    let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
    product as u64 ^ (product >> 64) as u64
}
