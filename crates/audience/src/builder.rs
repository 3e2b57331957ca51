//! Builds an index from all rows at once, in a tenth of the time that adding one row at a time takes.
//!
//! Rows arrive device by device. A row that is added alone must look up its set, somewhere in memory, and its place in
//! the set. The builder first collects the memberships and then sorts them by set (a counting sort), so each set is
//! looked up once for all its new members. The order of the devices does not change the index; the order of their
//! numbers is the fastest.
//!
//! Memory besides the index: 12 bytes for each of [`PAIR_COUNT_MAX`] (48 MiB), and 16 bytes per set.

use std::collections::HashMap;

use tidings_types::{AppId, Country, DeviceNumber, Locale, Platform, Subject, TopicName};

use crate::index::{Index, Traits, platform_key};
use crate::sets::{SetKey, family};

/// Memberships that are collected before they are put into their sets.
const PAIR_COUNT_MAX: usize = if cfg!(test) { 1000 } else { 4 << 20 };

/// An unfinished index, which answers no questions yet.
#[derive(Debug, Default)]
pub struct Builder {
    index: Index,
    /// By place.
    keys: Vec<SetKey>,
    /// The places of sets of what devices are.
    places: HashMap<SetKey, u32>,
    /// The place of a set, and a member.
    pairs: Vec<(u32, u32)>,
    last: Option<Last>,
}

/// The subscribers of one topic on one subject; see [`Builder::subscribe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribers(u32);

/// The traits of the last device, and the places of its sets. Neighbours mostly have the same traits.
#[derive(Debug)]
struct Last {
    platform: Platform,
    app: AppId,
    locale: Locale,
    country: Option<Country>,
    has_user: bool,
    places: Vec<u32>,
}

impl Last {
    fn is_like(&self, traits: Traits<'_>) -> bool {
        let Self { platform, app, locale, country, has_user, .. } = self;
        let of_last = (*platform, app, locale, country.as_ref(), *has_user);
        of_last == (traits.platform, traits.app, traits.locale, traits.country, traits.user.is_some())
    }
}

impl Builder {
    /// A builder of an empty index.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a subscription. Further ones for the same topic and subject are faster with [`Builder::subscribe_too`].
    pub fn subscribe(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> Subscribers {
        let (topics, subjects) = (self.index.topics_mut().number(topic.as_str()), self.index.subjects_mut());
        let key = SetKey { family: topics, name: subjects.number(subject.as_str()) };
        let place = self.new_place(key);
        self.push(place, number);
        Subscribers(place)
    }

    /// Adds a subscription for a topic and subject that this builder has returned before.
    pub fn subscribe_too(&mut self, number: DeviceNumber, Subscribers(place): Subscribers) {
        self.push(place, number);
    }

    /// Sets the traits of a device; once for each device.
    pub fn set_device(&mut self, number: DeviceNumber, traits: Traits<'_>) {
        let last = self.last.take().filter(|last| last.is_like(traits)).unwrap_or_else(|| self.make_last(traits));
        last.places.iter().for_each(|&place| self.push(place, number));
        self.last = Some(last);
        if let Some(user) = traits.user {
            self.index.put(number, family::USER, user.as_str()); // Users have few devices.
        }
    }

    /// Takes `number` out of every event about `subject`, or without a subject out of all events.
    pub fn mute(&mut self, number: DeviceNumber, subject: Option<&Subject>) {
        self.index.mute(number, subject); // Few do.
    }

    /// Adds the rows of another builder, for instance of another thread.
    pub fn add(&mut self, other: Self) {
        let (other, mut bytes) = (other.finish(), Vec::new());
        for shard in 0..other.shard_count() {
            bytes.clear();
            other.encode_shard(shard, &mut bytes);
            self.index.decode_shard(shard, &bytes).expect("it is as we wrote it");
        }
    }

    /// The index of all that was added.
    pub fn finish(mut self) -> Index {
        self.flush();
        self.index
    }

    fn make_last(&mut self, traits: Traits<'_>) -> Last {
        let mut places = vec![self.place(platform_key(traits.platform))];
        let is_shared = |family| family != family::USER || traits.user.is_none();
        for (family, name) in traits.sets().filter(|(family, _)| is_shared(*family)) {
            let name = self.index.names_mut(family).number(name);
            places.push(self.place(SetKey { family, name }));
        }
        let Traits { platform, app, locale, country, user } = traits;
        let (app, locale, country) = (app.clone(), locale.clone(), country.cloned());
        Last { platform, app, locale, country, has_user: user.is_some(), places }
    }

    fn place(&mut self, key: SetKey) -> u32 {
        let known = self.places.get(&key).copied();
        known.unwrap_or_else(|| {
            let place = self.new_place(key);
            self.places.insert(key, place);
            place
        })
    }

    fn new_place(&mut self, key: SetKey) -> u32 {
        self.keys.push(key);
        u32::try_from(self.keys.len() - 1).expect("2^32 sets are more than memory holds")
    }

    fn push(&mut self, place: u32, DeviceNumber(number): DeviceNumber) {
        if self.pairs.len() == PAIR_COUNT_MAX {
            self.flush();
        }
        self.pairs.push((place, number));
    }

    /// Puts what was gathered into the sets.
    fn flush(&mut self) {
        let mut ends = vec![0; self.keys.len() + 1];
        self.pairs.iter().for_each(|&(place, _)| ends[place as usize + 1] += 1);
        for place in 1..ends.len() {
            ends[place] += ends[place - 1]; // Where the set begins, until all its members are there.
        }
        let mut members = vec![0; self.pairs.len()];
        for (place, number) in self.pairs.drain(..) {
            let end = &mut ends[place as usize];
            members[*end] = number;
            *end += 1;
        }
        let mut start = 0;
        for (&key, &end) in self.keys.iter().zip(&ends) {
            let numbers = &mut members[start..end];
            start = end;
            if numbers.is_sorted_by(|one, two| one < two) {
                self.index.add_sorted(key, numbers);
            } else {
                numbers.sort_unstable();
                let mut numbers = numbers.to_vec();
                numbers.dedup();
                self.index.add_sorted(key, &numbers);
            }
        }
    }
}

#[cfg(test)]
mod tests;
