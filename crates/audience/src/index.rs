//! The index: who subscribed to which topic on which subject.
//!
//! ```text
//!  shards[number / 2^20] ─► (topic number, subject number) ─► Set of device numbers
//!  names ────────────────────────┴──────────────┘             one │ sorted array │ Roaring
//! ```
//!
//! A pair is two small numbers of our own ([`Names`]), so a key costs 8 bytes however long the names are. Only pairs
//! that somebody subscribed to exist: the last device takes the set with it, and a name goes with its last set. The
//! index knows no way from a device to its subscriptions; the store, which has them as rows, hands them in.
//!
//! No lock is here: the store's committer changes it and everybody else asks it, under the store's lock. A change
//! costs a few hash look-ups and one set; [`Index::freeze`] a look-up per shard and subject, and a union only where a
//! device may be found twice. No bound of its own: the store limits devices, and subscriptions per device.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use tidings_types::{DeviceNumber, Subject, TopicName};

use crate::frozen::Frozen;
use crate::names::{NameNumber, Names};
use crate::set::Set;

/// Device numbers in one shard: a change or a union touches sets of at most this many.
pub const SHARD_DEVICE_COUNT: u32 = 1 << 20;

/// Who subscribed to which topic on which subject.
#[derive(Debug, Default)]
pub struct Index {
    topics: Names<TopicName>,
    subjects: Names<Subject>,
    /// By `number / SHARD_DEVICE_COUNT`.
    shards: Vec<HashMap<SetKey, Set, BuildHasherDefault<SetKeyHasher>>>,
    subscription_count: u64,
}

/// Topic and subject of a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SetKey {
    topic: NameNumber,
    subject: NameNumber,
}

impl Index {
    /// An index without subscriptions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the subscription of `number`; false when it was there.
    pub fn insert(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let key = SetKey { topic: self.topics.number(topic), subject: self.subjects.number(subject) };
        let shard_index = (number.0 / SHARD_DEVICE_COUNT) as usize;
        if self.shards.len() <= shard_index {
            self.shards.resize_with(shard_index + 1, HashMap::default);
        }
        let mut created = false;
        let set = self.shards[shard_index].entry(key).or_insert_with(|| {
            created = true;
            Set::One(number.0)
        });
        let added = created || set.insert(number.0);
        if created {
            self.topics.retain(key.topic);
            self.subjects.retain(key.subject);
        }
        self.subscription_count += u64::from(added);
        added
    }

    /// Removes the subscription of `number`; false when there was none.
    pub fn remove(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let Some(key) = self.key(topic, subject) else { return false };
        let Some(shard) = self.shards.get_mut((number.0 / SHARD_DEVICE_COUNT) as usize) else { return false };
        let Some(set) = shard.get_mut(&key) else { return false };
        if !set.remove(number.0) {
            return false;
        }
        if set.is_empty() {
            shard.remove(&key);
            self.topics.release(topic, key.topic);
            self.subjects.release(subject, key.subject);
        }
        self.subscription_count -= 1;
        true
    }

    /// Removes all subscriptions of a device, which the caller knows: the index has no way from a device to its sets.
    pub fn remove_device<'a>(
        &mut self,
        number: DeviceNumber,
        subscriptions: impl IntoIterator<Item = (&'a Subject, &'a TopicName)>,
    ) {
        for (subject, topic) in subscriptions {
            self.remove(number, subject, topic);
        }
    }

    /// Whether `number` subscribed to `topic` on `subject`.
    pub fn contains(&self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let shard = self.shards.get((number.0 / SHARD_DEVICE_COUNT) as usize);
        let set = shard.zip(self.key(topic, subject)).and_then(|(shard, key)| shard.get(&key));
        set.is_some_and(|set| set.contains(number.0))
    }

    /// Everyone who subscribed to `topic` on any of `subjects`, each once, as it is now.
    pub fn freeze(&self, topic: &TopicName, subjects: &[Subject]) -> Frozen {
        let Some(topic) = self.topics.find(topic) else { return Frozen::default() };
        let keys: Vec<SetKey> = subjects
            .iter()
            .filter_map(|subject| Some(SetKey { topic, subject: self.subjects.find(subject)? }))
            .collect();
        Frozen::from_shards(self.shards.iter().map(|shard| {
            let mut sets = keys.iter().filter_map(|key| shard.get(key));
            let mut union = sets.next()?.to_bitmap();
            for set in sets {
                set.add_to(Arc::make_mut(&mut union));
            }
            Some(union)
        }))
    }

    /// Subscriptions in the index.
    pub fn subscription_count(&self) -> u64 {
        self.subscription_count
    }

    /// Subjects somebody is subscribed to.
    pub fn subject_count(&self) -> usize {
        self.subjects.len()
    }

    fn key(&self, topic: &TopicName, subject: &Subject) -> Option<SetKey> {
        Some(SetKey { topic: self.topics.find(topic)?, subject: self.subjects.find(subject)? })
    }

    /// Panics when an invariant is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        self.shards.iter().flat_map(HashMap::values).for_each(Set::check);
        if self.subscription_count == 0 {
            assert!(self.shards.iter().all(HashMap::is_empty), "a set without members is kept");
            assert_eq!((self.topics.len(), self.subjects.len()), (0, 0), "a name without sets is kept");
        }
    }
}

impl std::hash::Hash for SetKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(u64::from(self.topic.0) << 32 | u64::from(self.subject.0));
    }
}

/// Multiply and fold. The keys are numbers we gave ourselves, so nobody outside can make them collide.
#[derive(Debug, Default)]
struct SetKeyHasher(u64);

impl Hasher for SetKeyHasher {
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("a set key is hashed as one number");
    }

    fn write_u64(&mut self, key: u64) {
        // 2^64 divided by the golden ratio: neighbouring numbers spread over all bits (Knuth, volume 3, 6.4).
        let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const TOPICS: [&str; 3] = ["goal", "red_card", "kick-off"];
    const SUBJECTS: [&str; 5] = ["team:1", "team:2", "match:9", "user:42", "league:x"];

    fn topic(index: usize) -> TopicName {
        TopicName::new(TOPICS[index]).unwrap()
    }

    fn subject(index: usize) -> Subject {
        Subject::new(SUBJECTS[index]).unwrap()
    }

    #[derive(Debug, Clone)]
    enum Operation {
        Insert(u32, usize, usize),
        Remove(u32, usize, usize),
        /// Many at once, so that sets cross the limit between array and Roaring in both directions.
        InsertRange(u32, u32, usize, usize),
        RemoveRange(u32, u32, usize, usize),
        RemoveDevice(u32),
        Freeze(usize, Vec<usize>, u32),
    }

    fn operation() -> impl Strategy<Value = Operation> {
        // Few numbers, on both sides of shard borders, so that operations meet.
        let number = || prop_oneof![0..40u32, (SHARD_DEVICE_COUNT - 20)..(SHARD_DEVICE_COUNT + 20), Just(u32::MAX)];
        let start = || prop_oneof![Just(0u32), Just(2000), Just(SHARD_DEVICE_COUNT - 3000)];
        let topic = || 0..TOPICS.len();
        let subject = || 0..SUBJECTS.len();
        prop_oneof![
            6 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Insert(n, s, t)),
            4 => (number(), subject(), topic()).prop_map(|(n, s, t)| Operation::Remove(n, s, t)),
            1 => (start(), 1..6000u32, subject(), topic()).prop_map(|(a, n, s, t)| Operation::InsertRange(a, n, s, t)),
            1 => (start(), 1..6000u32, subject(), topic()).prop_map(|(a, n, s, t)| Operation::RemoveRange(a, n, s, t)),
            1 => number().prop_map(Operation::RemoveDevice),
            3 => (topic(), prop::collection::vec(subject(), 0..5), number())
                .prop_map(|(t, s, from)| Operation::Freeze(t, s, from)),
        ]
    }

    type Model = BTreeSet<(u32, usize, usize)>;

    fn change(index: &mut Index, model: &mut Model, add: bool, (number, s, t): (u32, usize, usize)) {
        if add {
            assert_eq!(index.insert(DeviceNumber(number), &subject(s), &topic(t)), model.insert((number, s, t)));
        } else {
            assert_eq!(index.remove(DeviceNumber(number), &subject(s), &topic(t)), model.remove(&(number, s, t)));
        }
    }

    fn check_frozen(frozen: &Frozen, expected: &BTreeSet<u32>, from: u32) {
        assert_eq!(frozen.len(), expected.len() as u64);
        assert_eq!(frozen.is_empty(), expected.is_empty());
        assert!(frozen.iter_from(DeviceNumber(0)).map(|number| number.0).eq(expected.iter().copied()));
        assert!(frozen.iter_from(DeviceNumber(from)).map(|number| number.0).eq(expected.range(from..).copied()));
        assert_eq!(frozen.contains(DeviceNumber(from)), expected.contains(&from));
    }

    fn expected_audience(model: &Model, t: usize, subjects: &[usize]) -> BTreeSet<u32> {
        model.iter().filter(|&&(_, s, topic)| topic == t && subjects.contains(&s)).map(|&(number, ..)| number).collect()
    }

    fn apply(index: &mut Index, model: &mut Model, frozen: &mut Vec<(Frozen, BTreeSet<u32>)>, operation: Operation) {
        match operation {
            Operation::Insert(number, s, t) => change(index, model, true, (number, s, t)),
            Operation::Remove(number, s, t) => change(index, model, false, (number, s, t)),
            Operation::InsertRange(start, count, s, t) => {
                (start..start + count).for_each(|number| change(index, model, true, (number, s, t)));
            }
            Operation::RemoveRange(start, count, s, t) => {
                (start..start + count).for_each(|number| change(index, model, false, (number, s, t)));
            }
            Operation::RemoveDevice(number) => {
                let rows: Vec<_> = model.range((number, 0, 0)..=(number, usize::MAX, usize::MAX)).copied().collect();
                let names: Vec<_> = rows.iter().map(|&(_, s, t)| (subject(s), topic(t))).collect();
                index.remove_device(DeviceNumber(number), names.iter().map(|(subject, topic)| (subject, topic)));
                rows.iter().for_each(|row| assert!(model.remove(row)));
            }
            Operation::Freeze(t, subjects, from) => {
                let names: Vec<Subject> = subjects.iter().map(|&s| subject(s)).collect();
                let expected = expected_audience(model, t, &subjects);
                let audience = index.freeze(&topic(t), &names);
                check_frozen(&audience, &expected, from);
                frozen.push((audience, expected));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_index_answers_like_a_plain_set(operations in prop::collection::vec(operation(), 1..60)) {
            let (mut index, mut model, mut frozen) = (Index::new(), Model::new(), Vec::new());
            for operation in operations {
                apply(&mut index, &mut model, &mut frozen, operation);
                index.check();
                prop_assert_eq!(index.subscription_count(), model.len() as u64);
            }
            // What was frozen has not moved with the index.
            for (audience, expected) in &frozen {
                check_frozen(audience, expected, SHARD_DEVICE_COUNT);
            }
            for &(number, s, t) in &model {
                prop_assert!(index.contains(DeviceNumber(number), &subject(s), &topic(t)));
            }
            for row in model.clone() {
                change(&mut index, &mut model, false, row);
            }
            index.check();
        }
    }

    #[test]
    fn a_name_in_use_elsewhere_survives_the_end_of_a_set() {
        let mut index = Index::new();
        index.insert(DeviceNumber(1), &subject(0), &topic(0));
        index.insert(DeviceNumber(1), &subject(0), &topic(1));
        index.remove(DeviceNumber(1), &subject(0), &topic(0));
        // A new pair may take the freed numbers; the old one must not be mistaken for it.
        index.insert(DeviceNumber(2), &subject(1), &topic(2));
        assert!(index.contains(DeviceNumber(1), &subject(0), &topic(1)));
        assert!(!index.contains(DeviceNumber(1), &subject(1), &topic(2)));
        assert_eq!(index.subject_count(), 2);
    }

    #[test]
    fn one_slot_of_a_shard_stays_small() {
        assert!(size_of::<(SetKey, Set)>() <= 32, "what one (topic, subject) costs in a shard beside its numbers");
    }
}
