//! What sending needs of every device, in memory, by device number: derived from the rows, rebuilt at open.
//!
//! Beside it the set of proven tokens, a bit each, in the chunks in which it is stored.
//!
//! Bound: `device_count_max`. A device costs about 100 bytes, its id and its token; app, locale and country are shared.

use std::collections::HashSet;
use std::hash::Hash;

use roaring::RoaringBitmap;
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, JournalPosition, Locale, Platform,
};

use crate::device::Recipient;

#[derive(Debug, Default)]
pub(crate) struct DeviceTable {
    entries: Vec<Option<Entry>>,
    apps: Shared<AppId>,
    locales: Shared<Locale>,
    countries: Shared<Country>,
    count: u64,
    /// By [`proven_place`].
    proven: Vec<RoaringBitmap>,
}

/// In which chunk of the proven set a number is, and where in it.
pub(crate) fn proven_place(number: DeviceNumber) -> (u16, u32) {
    ((number.0 >> 16) as u16, number.0 & 0xffff)
}

#[derive(Debug)]
struct Entry {
    id: DeviceId,
    app: AppId,
    locale: Locale,
    country: Option<Country>,
    token: Option<DeviceToken>,
    since: JournalPosition,
    subscription_count: u32,
    platform: Platform,
    environment: Environment,
}

impl DeviceTable {
    /// Adds or replaces a device; its count of subscriptions stays.
    pub(crate) fn set(&mut self, number: DeviceNumber, device: Device) {
        let index = number.0 as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        let slot = &mut self.entries[index];
        self.count += u64::from(slot.is_none());
        let subscription_count = slot.as_ref().map_or(0, |entry| entry.subscription_count);
        *slot = Some(Entry {
            id: device.id,
            app: self.apps.share(device.app),
            locale: self.locales.share(device.locale),
            country: device.country.map(|country| self.countries.share(country)),
            token: device.token,
            since: device.since,
            subscription_count,
            platform: device.platform,
            environment: device.environment,
        });
    }

    pub(crate) fn remove(&mut self, number: DeviceNumber) {
        let removed = self.entries.get_mut(number.0 as usize).and_then(Option::take);
        self.count -= u64::from(removed.is_some());
    }

    /// Counts a subscription more (1) or less (-1).
    pub(crate) fn count_subscription(&mut self, number: DeviceNumber, by: i32) {
        if let Some(Some(entry)) = self.entries.get_mut(number.0 as usize) {
            entry.subscription_count = entry.subscription_count.saturating_add_signed(by);
        }
    }

    pub(crate) fn subscription_count(&self, number: DeviceNumber) -> u32 {
        self.entry(number).map_or(0, |entry| entry.subscription_count)
    }

    pub(crate) fn recipient(&self, number: DeviceNumber) -> Option<Recipient<'_>> {
        self.entry(number).map(|entry| Recipient {
            number,
            id: &entry.id,
            token: entry.token.as_ref(),
            proven: self.is_proven(number),
            app: &entry.app,
            platform: entry.platform,
            environment: entry.environment,
            locale: &entry.locale,
            country: entry.country.as_ref(),
            since: entry.since,
        })
    }

    fn is_proven(&self, number: DeviceNumber) -> bool {
        let (chunk, place) = proven_place(number);
        self.proven_chunk(chunk).is_some_and(|bits| bits.contains(place))
    }

    pub(crate) fn proven_chunk(&self, chunk: u16) -> Option<&RoaringBitmap> {
        self.proven.get(usize::from(chunk))
    }

    pub(crate) fn set_proven_chunk(&mut self, chunk: u16, bits: RoaringBitmap) {
        let index = usize::from(chunk);
        if self.proven.len() <= index {
            self.proven.resize_with(index + 1, RoaringBitmap::new);
        }
        self.proven[index] = bits;
    }

    pub(crate) fn proven_count(&self) -> u64 {
        self.proven.iter().map(RoaringBitmap::len).sum()
    }

    /// The numbers of the devices that `is_meant`: a look at every device.
    pub(crate) fn find_all(&self, is_meant: impl Fn(&Recipient<'_>) -> bool) -> Vec<DeviceNumber> {
        let numbers = (0..self.entries.len() as u32).map(DeviceNumber);
        numbers.filter(|number| self.recipient(*number).is_some_and(|found| is_meant(&found))).collect()
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    fn entry(&self, number: DeviceNumber) -> Option<&Entry> {
        self.entries.get(number.0 as usize)?.as_ref()
    }
}

/// Different values that are kept once; beyond that, new ones keep their own copy.
const SHARED_VALUE_COUNT_MAX: usize = 4096;

/// Keeps one copy of equal values.
#[derive(Debug)]
struct Shared<T>(HashSet<T>);

impl<T> Default for Shared<T> {
    fn default() -> Self {
        Self(HashSet::new())
    }
}

impl<T: Clone + Eq + Hash> Shared<T> {
    fn share(&mut self, value: T) -> T {
        if let Some(shared) = self.0.get(&value) {
            return shared.clone();
        }
        if self.0.len() < SHARED_VALUE_COUNT_MAX {
            self.0.insert(value.clone());
        }
        value
    }
}
