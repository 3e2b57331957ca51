//! The index: who subscribed to which topic on which subject, and which devices a user has.
//!
//! ```text
//!  shards[number / 2^20] ─► (topic number, subject number) ─► Set of device numbers
//!                           (every topic,  user number)       one │ sorted array │ Roaring
//!  names ────────────────────────┴──────────────┘
//! ```
//!
//! A pair is two small numbers of our own ([`Names`]), so a key costs 8 bytes however long the names are. Only pairs
//! that somebody subscribed to exist: the last device takes the set with it, and a name goes with its last set. The
//! index knows no way from a device to its subscriptions or its user; the store, which has them as rows, hands them in.
//!
//! The devices of a user are a set like the others, under a topic that is no topic. They are told of an event about the
//! subject `user:<id>` whatever its topic is. A user with one device costs about 80 bytes, up to 140 just after a table
//! has grown, and its name.
//!
//! No lock is here: the store's committer changes it and everybody else asks it, under the store's lock. A change
//! costs a few hash look-ups and one set; [`Index::freeze`] a look-up per shard and subject, and a union only where a
//! device may be found twice. No bound of its own: the store limits devices, and subscriptions per device.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::{DeviceNumber, Subject, TopicName, UserId};

use crate::frozen::Frozen;
use crate::names::{NameNumber, Names};
use crate::set::Set;

/// Device numbers in one shard: a change or a union touches sets of at most this many.
pub const SHARD_DEVICE_COUNT: u32 = 1 << 20;

/// The kind of the subjects that are users: all devices of the user `42` are told what is about `user:42`.
pub const USER_KIND: &str = "user";

/// Stands where the sets of users have their topic; no topic has this number, [`Names`] counts up from 0.
const EVERY_TOPIC: NameNumber = NameNumber(u32::MAX);

/// Who subscribed to which topic on which subject, and whose each device is.
#[derive(Debug, Default)]
pub struct Index {
    topics: Names<TopicName>,
    subjects: Names<Subject>,
    users: Names<UserId>,
    /// By `number / SHARD_DEVICE_COUNT`.
    shards: Vec<Shard>,
    subscription_count: u64,
}

type Shard = HashMap<SetKey, Set, BuildHasherDefault<SetKeyHasher>>;

/// Topic and subject of a set; or [`EVERY_TOPIC`] and a user.
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
        let added = self.add(number, key);
        if added == Added::First {
            self.topics.retain(key.topic);
            self.subjects.retain(key.subject);
        }
        self.subscription_count += u64::from(added != Added::Not);
        added != Added::Not
    }

    /// Removes the subscription of `number`; false when there was none.
    pub fn remove(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let Some(key) = self.key(topic, subject) else { return false };
        let removed = self.take(number, key);
        if removed == Removed::Last {
            self.topics.release(topic, key.topic);
            self.subjects.release(subject, key.subject);
        }
        self.subscription_count -= u64::from(removed != Removed::Not);
        removed != Removed::Not
    }

    /// Says whose device `number` is from now on: it leaves the devices of `before` and is one of `after`.
    pub fn set_user(&mut self, number: DeviceNumber, before: Option<&UserId>, after: Option<&UserId>) {
        if before == after {
            return;
        }
        if let Some(user) = before
            && let Some(name) = self.users.find(user)
            && self.take(number, SetKey { topic: EVERY_TOPIC, subject: name }) == Removed::Last
        {
            self.users.release(user, name);
        }
        if let Some(user) = after {
            let name = self.users.number(user);
            if self.add(number, SetKey { topic: EVERY_TOPIC, subject: name }) == Added::First {
                self.users.retain(name);
            }
        }
    }

    fn add(&mut self, number: DeviceNumber, key: SetKey) -> Added {
        let shard_index = shard_index(number);
        if self.shards.len() <= shard_index {
            self.shards.resize_with(shard_index + 1, HashMap::default);
        }
        match self.shards[shard_index].entry(key) {
            Entry::Vacant(place) => {
                place.insert(Set::One(number.0));
                Added::First
            }
            Entry::Occupied(mut set) => match set.get_mut().insert(number.0) {
                true => Added::More,
                false => Added::Not,
            },
        }
    }

    fn take(&mut self, number: DeviceNumber, key: SetKey) -> Removed {
        let Some(shard) = self.shards.get_mut(shard_index(number)) else { return Removed::Not };
        let Some(set) = shard.get_mut(&key) else { return Removed::Not };
        if !set.remove(number.0) {
            return Removed::Not;
        }
        if !set.is_empty() {
            return Removed::Some;
        }
        shard.remove(&key);
        Removed::Last
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
        let shard = self.shards.get(shard_index(number));
        let set = shard.zip(self.key(topic, subject)).and_then(|(shard, key)| shard.get(&key));
        set.is_some_and(|set| set.contains(number.0))
    }

    /// Everyone who subscribed to `topic` on any of `subjects`, and all devices of those subjects that are users, each
    /// once, as it is now.
    pub fn freeze(&self, topic: &TopicName, subjects: &[Subject]) -> Frozen {
        let topic = self.topics.find(topic);
        let subscribed = |subject| Some(SetKey { topic: topic?, subject: self.subjects.find(subject)? });
        let keys: Vec<SetKey> = subjects
            .iter()
            .flat_map(|subject| [subscribed(subject), user_of(subject).and_then(|user| self.user_key(user))])
            .flatten()
            .collect();
        Frozen::from_shards(self.shards.iter().map(|shard| union(shard, &keys)))
    }

    /// All devices of `users`, and `devices` themselves, each once, as it is now.
    pub fn freeze_named(&self, users: &[UserId], devices: &[DeviceNumber]) -> Frozen {
        let keys: Vec<SetKey> = users.iter().filter_map(|user| self.user_key(user.as_str())).collect();
        let mut shards: Vec<_> = self.shards.iter().map(|shard| union(shard, &keys)).collect();
        for &number in devices {
            let shard_index = shard_index(number);
            if shards.len() <= shard_index {
                shards.resize(shard_index + 1, None);
            }
            Arc::make_mut(shards[shard_index].get_or_insert_default()).insert(number.0);
        }
        Frozen::from_shards(shards.into_iter())
    }

    /// Subscriptions in the index.
    pub fn subscription_count(&self) -> u64 {
        self.subscription_count
    }

    /// Subjects somebody is subscribed to.
    pub fn subject_count(&self) -> usize {
        self.subjects.len()
    }

    /// Users that have a device.
    pub fn user_count(&self) -> usize {
        self.users.len()
    }

    fn key(&self, topic: &TopicName, subject: &Subject) -> Option<SetKey> {
        Some(SetKey { topic: self.topics.find(topic)?, subject: self.subjects.find(subject)? })
    }

    fn user_key(&self, user: &str) -> Option<SetKey> {
        Some(SetKey { topic: EVERY_TOPIC, subject: self.users.find(user)? })
    }

    /// Panics when an invariant is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        let sets = || self.shards.iter().flatten();
        sets().for_each(|(_, set)| set.check());
        if self.subscription_count == 0 {
            assert!(sets().all(|(key, _)| key.topic == EVERY_TOPIC), "a set without members is kept");
            assert_eq!((self.topics.len(), self.subjects.len()), (0, 0), "a name without sets is kept");
        }
        let of_users = sets().filter(|(key, _)| key.topic == EVERY_TOPIC);
        let users: std::collections::HashSet<_> = of_users.map(|(key, _)| key.subject).collect();
        assert_eq!(users.len(), self.users.len(), "a user is kept without devices, or forgotten with them");
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Added {
    Not,
    /// Its set is new.
    First,
    More,
}

#[derive(Debug, PartialEq, Eq)]
enum Removed {
    Not,
    Some,
    /// Its set is gone.
    Last,
}

fn shard_index(number: DeviceNumber) -> usize {
    (number.0 / SHARD_DEVICE_COUNT) as usize
}

/// The user that a subject is, when it is one.
fn user_of(subject: &Subject) -> Option<&str> {
    subject.as_str().split_once(':').filter(|(kind, _)| *kind == USER_KIND).map(|(_, user)| user)
}

/// All members of the sets under `keys`; a large set alone is shared, not copied.
fn union(shard: &Shard, keys: &[SetKey]) -> Option<Arc<RoaringBitmap>> {
    let mut sets = keys.iter().filter_map(|key| shard.get(key));
    let mut union = sets.next()?.to_bitmap();
    for set in sets {
        set.add_to(Arc::make_mut(&mut union));
    }
    Some(union)
}

/// What the table of a map takes: hashbrown keeps a power of two of places, 7 of 8 filled at most, and a byte for each.
#[cfg(test)]
pub(crate) fn map_bytes<K, V, S>(map: &HashMap<K, V, S>) -> usize {
    (map.capacity() * 8).div_ceil(7).next_power_of_two() * (size_of::<(K, V)>() + 1)
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
mod tests;
