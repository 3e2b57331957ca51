//! Apps, locales, countries and time zones. Each name is stored once; records contain its number.
//!
//! ```text
//!  new name ──► number ──► in records ──► no record has it: a pass finds out ──► free ──► of another name
//! ```
//!
//! **Free numbers.** A number is free when no record has it. There is no count of devices per name. Instead, after 1024 new names
//! a *pass* reads all records ([`Names::begin_pass`], [`Names::see`]), and the names that it has not seen, and that were not
//! asked for meanwhile, go ([`Names::end_pass`]). A checkpoint has all names in each of its parts, so between its first part
//! and its last one no name may go. New ones may come.
//!
//! Bound: 4096 of each. A device with a further name is kept in memory as a whole until numbers are free.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;

use tidings_types::{AppId, Country, Device, Locale, TimeZone};

use crate::packed::{Unpack, put_bytes, put_varint};

/// The kinds of names, as labels of a metric.
pub(crate) const NAME_KINDS: [&str; 4] = ["app", "locale", "country", "time_zone"];
/// Names of one kind.
const NAME_COUNT_MAX: usize = 4096;
/// The number of no name.
pub(super) const NOTHING: u16 = u16::MAX;
/// New names, and devices without numbers for their names, after which a pass is worth reading all records.
const NEW_COUNT_MAX: usize = if cfg!(test) { 16 } else { 1024 };

/// The numbers of the names of a record: app, locale, country, time zone. [`NOTHING`] for one that the device does not have.
pub(super) type NameNumbers = [u16; 4];

#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) apps: Numbered<AppId>,
    pub(super) locales: Numbered<Locale>,
    pub(super) countries: Numbered<Country>,
    pub(super) time_zones: Numbered<TimeZone>,
    /// Devices that got no numbers since the last pass.
    pub(super) refused_count: usize,
}

impl Names {
    /// The numbers of a device's names; `None` when there are too many of a kind. Then no new name gets one, because no record
    /// would have it.
    pub(super) fn numbers(&mut self, device: &Device) -> Option<NameNumbers> {
        let Device { app, locale, country, time_zone, .. } = device;
        let has_room = self.apps.has_room(app)
            && self.locales.has_room(locale)
            && country.as_ref().is_none_or(|country| self.countries.has_room(country))
            && time_zone.as_ref().is_none_or(|zone| self.time_zones.has_room(zone));
        if !has_room {
            self.refused_count += 1;
            return None;
        }
        let country = country.as_ref().map_or(Some(NOTHING), |country| self.countries.number(country))?;
        let time_zone = time_zone.as_ref().map_or(Some(NOTHING), |zone| self.time_zones.number(zone))?;
        Some([self.apps.number(app)?, self.locales.number(locale)?, country, time_zone])
    }

    /// How many names there are of each kind, in the order of [`NAME_KINDS`].
    pub(super) fn counts(&self) -> [u64; NAME_KINDS.len()] {
        let Self { apps, locales, countries, time_zones, .. } = self;
        [apps.numbers.len(), locales.numbers.len(), countries.numbers.len(), time_zones.numbers.len()]
            .map(|count| count as u64)
    }

    /// Whether so many new names came since the last pass that another one is worth it.
    pub(super) fn is_pass_due(&self) -> bool {
        let Self { apps, locales, countries, time_zones, refused_count } = self;
        let new_counts = [apps.new_count, locales.new_count, countries.new_count, time_zones.new_count, *refused_count];
        new_counts.iter().sum::<usize>() >= NEW_COUNT_MAX
    }

    pub(super) fn begin_pass(&mut self) {
        self.refused_count = 0;
        self.apps.begin_pass();
        self.locales.begin_pass();
        self.countries.begin_pass();
        self.time_zones.begin_pass();
    }

    /// A record has these.
    pub(super) fn see(&mut self, [app, locale, country, time_zone]: NameNumbers) {
        self.apps.see(app);
        self.locales.see(locale);
        self.countries.see(country);
        self.time_zones.see(time_zone);
    }

    /// Forgets the names that were not seen since the pass began. True if there was one.
    pub(super) fn end_pass(&mut self) -> bool {
        self.apps.end_pass() | self.locales.end_pass() | self.countries.end_pass() | self.time_zones.end_pass()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.apps.encode(AppId::as_str, out);
        self.locales.encode(Locale::as_str, out);
        self.countries.encode(Country::as_str, out);
        self.time_zones.encode(TimeZone::as_str, out);
    }

    /// Adds names that [`Names::encode`] wrote into a part of the same checkpoint; `None` if they are invalid.
    pub(super) fn decode(&mut self, rest: &mut Unpack<'_>) -> Option<()> {
        self.apps.decode(|text| AppId::new(text).ok(), rest)?;
        self.locales.decode(|text| Locale::new(text).ok(), rest)?;
        self.countries.decode(|text| Country::new(text).ok(), rest)?;
        self.time_zones.decode(|text| TimeZone::new(text).ok(), rest)
    }
}

/// Values by number.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    /// `None`: the number is free.
    values: Vec<Option<T>>,
    numbers: HashMap<T, u16>,
    free: BTreeSet<u16>,
    /// Values that were new since the last pass. At first all are, so that those of a former life that nobody has are found.
    new_count: usize,
    /// By number, whether a pass has seen it. Empty while there is no pass.
    seen: Vec<bool>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        let (values, numbers, free) = (Vec::new(), HashMap::new(), BTreeSet::new());
        Self { values, numbers, free, new_count: 0, seen: Vec::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    fn has_room(&self, value: &T) -> bool {
        self.numbers.contains_key(value) || !self.free.is_empty() || self.values.len() < NAME_COUNT_MAX
    }

    /// The number of a known or new value; `None` when there are too many.
    fn number(&mut self, value: &T) -> Option<u16> {
        if let Some(number) = self.numbers.get(value).copied() {
            self.see(number);
            return Some(number);
        }
        let number = match self.free.pop_first() {
            Some(number) => number,
            None if self.values.len() >= NAME_COUNT_MAX => return None,
            None => {
                self.values.push(None);
                self.values.len() as u16 - 1
            }
        };
        self.new_count += 1;
        self.values[usize::from(number)] = Some(value.clone());
        self.numbers.insert(value.clone(), number);
        self.see(number);
        Some(number)
    }

    pub(super) fn value(&self, number: u16) -> Option<&T> {
        self.values.get(usize::from(number))?.as_ref()
    }

    fn begin_pass(&mut self) {
        self.new_count = 0;
        self.seen = vec![false; NAME_COUNT_MAX];
    }

    fn see(&mut self, number: u16) {
        if let Some(seen) = self.seen.get_mut(usize::from(number)) {
            *seen = true;
        }
    }

    fn end_pass(&mut self) -> bool {
        let mut has_freed = false;
        for (number, (value, seen)) in (0..).zip(self.values.iter_mut().zip(std::mem::take(&mut self.seen))) {
            if let Some(value) = value.take_if(|_| !seen) {
                self.numbers.remove(&value);
                self.free.insert(number);
                has_freed = true;
            }
        }
        has_freed
    }

    /// A free number is an empty text, which no name is.
    fn encode(&self, text: impl Fn(&T) -> &str, out: &mut Vec<u8>) {
        put_varint(out, self.values.len() as u64);
        self.values.iter().for_each(|value| put_bytes(out, value.as_ref().map_or("", &text).as_bytes()));
    }

    /// A number that was free in an earlier part may have a name now. Anything else contradicts that part.
    fn decode(&mut self, value: impl Fn(&str) -> Option<T>, rest: &mut Unpack<'_>) -> Option<()> {
        let count = usize::try_from(rest.varint()?).ok().filter(|count| *count <= NAME_COUNT_MAX)?;
        if count < self.values.len() {
            return None;
        }
        self.values.resize(count, None);
        for number in 0..count as u16 {
            let text = rest.text()?;
            let value = if text.is_empty() { None } else { Some(value(text)?) };
            match (&self.values[usize::from(number)], value) {
                (Some(known), Some(value)) if *known == value => {}
                (None, Some(value)) => {
                    if self.numbers.insert(value.clone(), number).is_some() {
                        return None; // A name has two numbers.
                    }
                    self.free.remove(&number);
                    self.values[usize::from(number)] = Some(value);
                }
                (None, None) => {
                    self.free.insert(number);
                }
                (Some(_), _) => return None,
            }
        }
        self.new_count = self.numbers.len();
        Some(())
    }
}
