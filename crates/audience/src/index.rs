//! The index: which devices subscribed to which topic on which subject, their traits, and their mutes.
//!
//! ```text
//!  sets: (topic, subject) ─► device numbers      (family, name) ─► device numbers
//!           └───────┴─ names ─┴──────────────────────────┘         family: user, app, locale, country, platform, muted
//! ```
//!
//! Traits of devices are sets like subscriptions, so a filter and a mute are set algebra ([`Index::freeze`]). A locale
//! is in the set of each tag that it falls back to: `pt` in a filter means one set, exactly as in [`Filter::admits`].
//! Only sets with members exist, and a name is deleted with its last set. The index cannot find the sets of a device;
//! the store, which has them as rows, passes them in.
//!
//! An event about the subject `user:<id>` is for all devices of this user, whatever its topic.
//!
//! No lock is here: the store's committer changes the index and all others read it, under the store's lock. A change
//! costs a few hash look-ups and one set. The index has no bound of its own: the store limits devices, and
//! subscriptions per device.
//! costs a few hash look-ups and one set. No bound of its own: the store limits devices, and subscriptions per device.

use std::collections::BTreeSet;
use std::sync::Arc;

use roaring::RoaringBitmap;
use tidings_types::{AppId, Country, DeviceNumber, Filter, Locale, Platform, Subject, TopicName, UserId};

use crate::frozen::Frozen;
use crate::gaps;
use crate::names::{NameNumber, Names};
use crate::sets::{Added, Members, Removed, SetKey, Sets, family};
use crate::shard::shard_index;

/// The kind of subjects that are users: an event about `user:42` is for all devices of the user `42`.
pub const USER_KIND: &str = "user";

/// The name of "no country" and of "no user"; other names have at least one character.
pub(crate) const NO_NAME: &str = "";

/// Devices by subscription, by trait, and by mute.
#[derive(Debug, Default)]
pub struct Index {
    topics: Names,
    subjects: Names,
    users: Names,
    apps: Names,
    /// Language tags: `pt-BR` of a device, and `pt`, which it falls back to.
    locales: Names,
    countries: Names,
    muted_subjects: Names,
    sets: Sets,
    subscription_count: u64,
}

/// The traits by which audiences select devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traits<'a> {
    /// Its kind.
    pub platform: Platform,
    /// The application it runs.
    pub app: &'a AppId,
    /// The language of its user.
    pub locale: &'a Locale,
    /// Its country.
    pub country: Option<&'a Country>,
    /// Its user.
    pub user: Option<&'a UserId>,
}

impl<'a> Traits<'a> {
    /// Family and name of each set that the device is in; the name of a platform is already a number. "No user" and "no
    /// country" have sets too, under [`NO_NAME`], so that selectors find them.
    pub(crate) fn sets(self) -> impl Iterator<Item = (NameNumber, &'a str)> {
        let locales = self.locale.fallbacks().map(|tag| (family::LOCALE, tag));
        let country = (family::COUNTRY, self.country.map_or(NO_NAME, Country::as_str));
        let user = (family::USER, self.user.map_or(NO_NAME, UserId::as_str));
        locales.chain([(family::APP, self.app.as_str()), country, user])
    }
}

impl Index {
    /// An index without subscriptions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the subscription of `number`; false when it was there.
    pub fn insert(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let key = SetKey { family: self.topics.number(topic.as_str()), name: self.subjects.number(subject.as_str()) };
        let added = self.sets.insert(key, number);
        if added == Added::First {
            self.topics.retain(key.family);
            self.subjects.retain(key.name);
        }
        self.subscription_count += u64::from(added != Added::Not);
        added != Added::Not
    }

    /// Removes the subscription of `number`; false when there was none.
    pub fn remove(&mut self, number: DeviceNumber, subject: &Subject, topic: &TopicName) -> bool {
        let Some(key) = self.subscription_key(topic, subject) else { return false };
        let removed = self.sets.remove(key, number);
        if removed == Removed::Last {
            self.topics.release(key.family);
            self.subjects.release(key.name);
        }
        self.subscription_count -= u64::from(removed != Removed::Not);
        removed != Removed::Not
    }

    /// Changes the traits of device `number`: it leaves the sets of `before` and joins those of `after`. A repeated
    /// call changes nothing.
    pub fn set_device(&mut self, number: DeviceNumber, before: Option<Traits<'_>>, after: Option<Traits<'_>>) {
        if let Some(before) = before {
            self.sets.remove(platform_key(before.platform), number);
            before.sets().for_each(|(family, name)| _ = self.take(number, family, name));
        }
        if let Some(after) = after {
            self.sets.insert(platform_key(after.platform), number);
            after.sets().for_each(|(family, name)| _ = self.put(number, family, name));
        }
    }

    /// Takes `number` out of every event about `subject`, or without a subject out of all; false if it was out already.
    pub fn mute(&mut self, number: DeviceNumber, subject: Option<&Subject>) -> bool {
        match subject {
            Some(subject) => self.put(number, family::MUTED, subject.as_str()),
            None => self.sets.insert(MUTED_ALL, number) != Added::Not,
        }
    }

    /// Ends a mute; false if there was none.
    pub fn unmute(&mut self, number: DeviceNumber, subject: Option<&Subject>) -> bool {
        match subject {
            Some(subject) => self.take(number, family::MUTED, subject.as_str()),
            None => self.sets.remove(MUTED_ALL, number) != Removed::Not,
        }
    }

    /// Adds `number` to a set that is no subscription; false when it was there.
    pub(crate) fn put(&mut self, number: DeviceNumber, family: NameNumber, name: &str) -> bool {
        let names = self.names_mut(family);
        let key = SetKey { family, name: names.number(name) };
        let added = self.sets.insert(key, number);
        if added == Added::First {
            self.names_mut(family).retain(key.name);
        }
        added != Added::Not
    }

    /// Takes `number` out of a set that is no subscription; false when it was not there.
    fn take(&mut self, number: DeviceNumber, family: NameNumber, name: &str) -> bool {
        let Some(key) = self.key(family, name) else { return false };
        let removed = self.sets.remove(key, number);
        if removed == Removed::Last {
            self.names_mut(family).release(key.name);
        }
        removed != Removed::Not
    }

    /// Removes devices from all sets except those of their subscriptions, which the caller knows. Used if their traits
    /// are unknown. Searches all sets once.
    pub fn forget_devices(&mut self, numbers: &BTreeSet<DeviceNumber>) {
        let mut found = Vec::new();
        for (key, members) in self.sets.iter_from(0).filter(|(key, _)| key.family.0 >= family::FIRST.0) {
            match members {
                Members::Wide(wide) => {
                    found.extend(numbers.iter().filter(|it| wide.contains(it.0)).map(|&it| (key, it)));
                }
                Members::Gaps(gaps) => {
                    let members = gaps::numbers(gaps).map(DeviceNumber);
                    found.extend(members.filter(|it| numbers.contains(it)).map(|it| (key, it)));
                }
            }
        }
        for (key, number) in found {
            if self.sets.remove(key, number) == Removed::Last && has_name(key) {
                self.names_mut(key.family).release(key.name);
            }
        }
    }

    /// Adds one, for each subscription of a device that `is_counted`, at the device's index; devices beyond the end are
    /// left out. Searches all sets once.
    pub fn count_into(&self, counts: &mut [u16], is_counted: impl Fn(DeviceNumber) -> bool) {
        let subscriptions = self.sets.iter_from(0).filter(|(key, _)| key.family.0 < family::FIRST.0);
        for (_, members) in subscriptions {
            members.for_each(|number| {
                if is_counted(DeviceNumber(number))
                    && let Some(count) = counts.get_mut(number as usize)
                {
                    *count = count.saturating_add(1);
                }
            });
        }
    }

    /// Adds numbers, which are in order without repeats, to a set.
    pub(crate) fn add_sorted(&mut self, key: SetKey, numbers: &[u32]) {
        if !numbers.is_empty() {
            let (is_new, count) = self.sets.add_sorted(key, numbers);
            self.count_added(key, count);
            if is_new {
                self.retain_names(key);
            }
        }
    }

    /// Takes note that so many members were added to a set.
    pub(crate) fn count_added(&mut self, key: SetKey, count: usize) {
        if key.family.0 < family::FIRST.0 {
            self.subscription_count += count as u64;
        }
    }

    /// A set that uses the names of its key is there.
    fn retain_names(&mut self, key: SetKey) {
        if key.family.0 < family::FIRST.0 {
            self.topics.retain(key.family);
            self.subjects.retain(key.name);
        } else if has_name(key) {
            self.names_mut(key.family).retain(key.name);
        }
    }

    /// It is not there, or does not use them once more.
    pub(crate) fn release_names(&mut self, key: SetKey) {
        if key.family.0 < family::FIRST.0 {
            self.topics.release(key.family);
            self.subjects.release(key.name);
        } else if has_name(key) {
            self.names_mut(key.family).release(key.name);
        }
    }

    /// The sets of this one, of which the names are in the other.
    pub(crate) fn with_names_of(self, names: Self) -> Self {
        Self { sets: self.sets, subscription_count: self.subscription_count, ..names }
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
        self.subscription_key(topic, subject).is_some_and(|key| self.sets.contains(key, number))
    }

    /// All devices that subscribed to `topic` on any of `subjects`, and all devices of those subjects that are users,
    /// each once, at this moment; only those that `filter` admits, and without those that muted everything or any of
    /// `subjects`.
    pub fn freeze(&self, topic: &TopicName, subjects: &[Subject], filter: &Filter) -> Frozen {
        let users = subjects.iter().filter_map(user_of);
        let subscribed = subjects.iter().filter_map(|subject| self.subscription_key(topic, subject));
        let keys: Vec<SetKey> = subscribed.chain(users.filter_map(|user| self.key(family::USER, user))).collect();
        self.limited(subjects, filter, |shard| self.union(shard, &keys), self.sets.shard_count())
    }

    /// All devices of `user`, in order of their numbers.
    pub fn devices_of_user(&self, user: &UserId) -> Vec<DeviceNumber> {
        self.devices_of_user_from(user, DeviceNumber(0)).collect()
    }

    /// The devices of `user` from `start` on, in order of their numbers. Each shard is read only when the iterator
    /// reaches it.
    pub fn devices_of_user_from(&self, user: &UserId, start: DeviceNumber) -> impl Iterator<Item = DeviceNumber> + '_ {
        let key = self.key(family::USER, user.as_str());
        let shards = shard_index(start)..self.sets.shard_count();
        let sets =
            key.into_iter().flat_map(move |key| shards.clone().filter_map(move |shard| self.union(shard, &[key])));
        sets.flat_map(move |set| set.iter().filter(|number| *number >= start.0).map(DeviceNumber).collect::<Vec<_>>())
    }

    /// All devices of `users`, and `devices` themselves, each once, at this moment; only those that `filter` admits,
    /// and without those that muted everything or any of `subjects`.
    pub fn freeze_named(
        &self,
        users: &[UserId],
        devices: &[DeviceNumber],
        subjects: &[Subject],
        filter: &Filter,
    ) -> Frozen {
        let keys: Vec<SetKey> = users.iter().filter_map(|user| self.key(family::USER, user.as_str())).collect();
        let highest = devices.iter().map(|&number| shard_index(number) + 1).max();
        let named = |shard| {
            let mut union = self.union(shard, &keys);
            for number in devices.iter().filter(|&&number| shard_index(number) == shard) {
                Arc::make_mut(union.get_or_insert_default()).insert(number.0);
            }
            union
        };
        self.limited(subjects, filter, named, self.sets.shard_count().max(highest.unwrap_or(0)))
    }

    /// Of the devices that `told` returns for each shard: those that `filter` admits, without those that muted
    /// everything or any of `subjects`.
    pub(crate) fn limited(
        &self,
        subjects: &[Subject],
        filter: &Filter,
        told: impl Fn(usize) -> Option<Arc<RoaringBitmap>>,
        shard_count: usize,
    ) -> Frozen {
        let lists = self.filter_keys(filter);
        let muted = subjects.iter().filter_map(|subject| self.key(family::MUTED, subject.as_str()));
        let muted: Vec<SetKey> = muted.chain([MUTED_ALL]).collect();
        let mut left_out = RoaringBitmap::new();
        let frozen = Frozen::from_shards((0..shard_count).map(|shard| {
            let mut audience = told(shard)?;
            for list in &lists {
                audience = self.admitted(shard, audience, list);
            }
            for muted in muted.iter().filter_map(|&key| self.sets.bitmap(shard, key)) {
                if !muted.is_disjoint(&audience) {
                    let muted = &*muted & &*audience;
                    *Arc::make_mut(&mut audience) -= &muted;
                    left_out |= muted;
                }
            }
            (!audience.is_empty()).then_some(audience)
        }));
        frozen.without_muted(left_out)
    }

    /// The sets of each list of a filter that is not empty: [`Filter::admits`] in terms of sets.
    fn filter_keys(&self, filter: &Filter) -> Vec<Vec<SetKey>> {
        let Filter { countries, locales, platforms, apps } = filter;
        let mut lists = Vec::new();
        if !platforms.is_empty() {
            lists.push(platforms.iter().map(|&platform| platform_key(platform)).collect());
        }
        let mut named = |family, names: Vec<&str>| {
            if !names.is_empty() {
                lists.push(names.iter().filter_map(|name| self.key(family, name)).collect());
            }
        };
        named(family::APP, apps.iter().map(AppId::as_str).collect());
        named(family::COUNTRY, countries.iter().map(Country::as_str).collect());
        named(family::LOCALE, locales.iter().map(Locale::as_str).collect());
        lists
    }

    /// The members of `audience` that are in any of the sets. The cost depends on the smaller side.
    fn admitted(&self, shard: usize, mut audience: Arc<RoaringBitmap>, keys: &[SetKey]) -> Arc<RoaringBitmap> {
        if keys.len() < 2 || audience.len() > DENSE_DEVICE_COUNT {
            let admitted = self.union(shard, keys).unwrap_or_default();
            match Arc::get_mut(&mut audience) {
                Some(audience) => *audience &= &*admitted,
                None => audience = Arc::new(&*audience & &*admitted),
            }
            return audience;
        }
        let sets = keys.iter().filter_map(|&key| self.sets.bitmap(shard, key));
        Arc::new(sets.fold(RoaringBitmap::new(), |admitted, set| admitted | (&*audience & &*set)))
    }

    /// All members of the sets under `keys` in a shard; a large set alone is shared, not copied.
    pub(crate) fn union(&self, shard: usize, keys: &[SetKey]) -> Option<Arc<RoaringBitmap>> {
        let mut sets = keys.iter().filter_map(|&key| self.sets.bitmap(shard, key));
        let mut union = sets.next()?;
        for set in sets {
            *Arc::make_mut(&mut union) |= &*set;
        }
        Some(union)
    }

    /// The members of one set in a shard; a large set is shared, not copied. `None`: nobody.
    pub(crate) fn bitmap(&self, shard: usize, key: SetKey) -> Option<Arc<RoaringBitmap>> {
        self.sets.bitmap(shard, key)
    }

    /// How many are in one set.
    pub(crate) fn set_len(&self, key: SetKey) -> u64 {
        self.sets.len(key)
    }

    /// Number ranges of [`SHARD_DEVICE_COUNT`](crate::SHARD_DEVICE_COUNT) that somebody may be in.
    pub(crate) fn range_count(&self) -> usize {
        self.sets.shard_count()
    }

    /// Subscriptions in the index.
    pub fn subscription_count(&self) -> u64 {
        self.subscription_count
    }

    /// Subjects that have a subscriber.
    pub fn subject_count(&self) -> usize {
        self.subjects.len()
    }

    /// Users that have a device.
    pub fn user_count(&self) -> usize {
        self.users.len() - usize::from(self.users.find(NO_NAME).is_some())
    }

    /// The set of those who subscribed to `topic` on `subject`.
    pub(crate) fn subscription_key(&self, topic: &TopicName, subject: &Subject) -> Option<SetKey> {
        Some(SetKey { family: self.topics.find(topic.as_str())?, name: self.subjects.find(subject.as_str())? })
    }

    /// The sets of those who subscribed to whatever topic on any of `subjects`.
    pub(crate) fn subject_keys(&self, subjects: &[Subject]) -> Vec<SetKey> {
        let names: Vec<_> = subjects.iter().filter_map(|subject| self.subjects.find(subject.as_str())).collect();
        self.sets.topic_keys(&self.topics, &names)
    }

    /// The set of a family that is no topic. A locale's tag stands for all locales that fall back to it.
    pub(crate) fn key(&self, family: NameNumber, name: &str) -> Option<SetKey> {
        Some(SetKey { family, name: self.names(family).find(name)? })
    }

    pub(crate) fn sets(&self) -> &Sets {
        &self.sets
    }

    pub(crate) fn sets_mut(&mut self) -> &mut Sets {
        &mut self.sets
    }

    pub(crate) fn topics(&self) -> &Names {
        &self.topics
    }

    pub(crate) fn topics_mut(&mut self) -> &mut Names {
        &mut self.topics
    }

    pub(crate) fn subjects(&self) -> &Names {
        &self.subjects
    }

    pub(crate) fn subjects_mut(&mut self) -> &mut Names {
        &mut self.subjects
    }

    /// The names of a family that is no topic.
    pub(crate) fn names(&self, of: NameNumber) -> &Names {
        match of {
            family::USER => &self.users,
            family::APP => &self.apps,
            family::LOCALE => &self.locales,
            family::COUNTRY => &self.countries,
            family::MUTED => &self.muted_subjects,
            _ => unreachable!("the other families have no names"),
        }
    }

    /// The same to change.
    pub(crate) fn names_mut(&mut self, of: NameNumber) -> &mut Names {
        match of {
            family::USER => &mut self.users,
            family::APP => &mut self.apps,
            family::LOCALE => &mut self.locales,
            family::COUNTRY => &mut self.countries,
            family::MUTED => &mut self.muted_subjects,
            _ => unreachable!("the other families have no names"),
        }
    }

    /// Panics when an invariant is broken.
    #[cfg(test)]
    pub(crate) fn check(&self) {
        use std::collections::HashMap;
        self.sets.check();
        let mut uses: HashMap<NameNumber, HashMap<u32, u32>> = HashMap::new();
        let (mut of_topics, mut of_subjects): (HashMap<u32, u32>, HashMap<u32, u32>) = Default::default();
        let mut subscription_count = 0;
        for (key, members) in self.sets.iter_from(0) {
            let is_topic = key.family.0 < family::FIRST.0;
            let names = if is_topic { &mut of_subjects } else { uses.entry(key.family).or_default() };
            *names.entry(key.name.0).or_default() += 1;
            if is_topic {
                *of_topics.entry(key.family.0).or_default() += 1;
                members.for_each(|_| subscription_count += 1);
            }
        }
        assert_eq!(self.subscription_count, subscription_count);
        self.topics.check(&of_topics);
        self.subjects.check(&of_subjects);
        let of = |family| uses.get(&family).cloned().unwrap_or_default();
        for family in [family::USER, family::APP, family::LOCALE, family::COUNTRY, family::MUTED] {
            self.names(family).check(&of(family));
        }
    }

    /// Memory taken: of sets, and of names.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> (usize, usize) {
        let Self { topics, subjects, users, apps, locales, countries, muted_subjects, sets, .. } = self;
        let names = [topics, subjects, users, apps, locales, countries, muted_subjects];
        (sets.bytes(), names.map(Names::bytes).iter().sum())
    }
}

/// Of more devices in a shard each step takes about as long as of all.
const DENSE_DEVICE_COUNT: u64 = 32 * 1024;

/// Who muted everything.
pub(crate) const MUTED_ALL: SetKey = SetKey { family: family::MUTED_ALL, name: NameNumber(0) };

/// Whether the family of a set that is no subscription has names.
fn has_name(key: SetKey) -> bool {
    !matches!(key.family, family::PLATFORM | family::MUTED_ALL)
}

/// The set of a platform.
pub(crate) fn platform_key(platform: Platform) -> SetKey {
    let name = match platform {
        Platform::Ios => 0,
        Platform::Android => 1,
        Platform::Web => 2,
    };
    SetKey { family: family::PLATFORM, name: NameNumber(name) }
}

/// The user that a subject is, when it is one.
pub(crate) fn user_of(subject: &Subject) -> Option<&str> {
    subject.as_str().split_once(':').filter(|(kind, _)| *kind == USER_KIND).map(|(_, user)| user)
}

#[cfg(test)]
pub(crate) mod tests;
