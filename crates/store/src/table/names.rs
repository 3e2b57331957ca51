//! Apps, locales, countries and time zones. Each name is stored once; records contain its number.
//!
//! Bound: 4096 of each. A device with a further name is kept in memory as a whole. A name stays until the table is made
//! anew, because the meaning of a number in a record must never change.

use std::collections::HashMap;
use std::hash::Hash;

use tidings_types::{AppId, Country, Locale, TimeZone};

use crate::packed::{Unpack, put_bytes, put_varint};

const NAME_COUNT_MAX: usize = 4096;
/// The number of no name.
pub(super) const NOTHING: u16 = u16::MAX;

#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) apps: Numbered<AppId>,
    pub(super) locales: Numbered<Locale>,
    pub(super) countries: Numbered<Country>,
    pub(super) time_zones: Numbered<TimeZone>,
}

impl Names {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.apps.encode(AppId::as_str, out);
        self.locales.encode(Locale::as_str, out);
        self.countries.encode(Country::as_str, out);
        self.time_zones.encode(TimeZone::as_str, out);
    }

    /// Adds names that [`Names::encode`] wrote during the life of the same heap; `None` if they are invalid.
    pub(super) fn decode(&mut self, rest: &mut Unpack<'_>) -> Option<()> {
        self.apps.decode(|text| AppId::new(text).ok(), rest)?;
        self.locales.decode(|text| Locale::new(text).ok(), rest)?;
        self.countries.decode(|text| Country::new(text).ok(), rest)?;
        self.time_zones.decode(|text| TimeZone::new(text).ok(), rest)
    }
}

/// Values by number, in the order in which they were first met.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    values: Vec<T>,
    numbers: HashMap<T, u16>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { values: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + Hash> Numbered<T> {
    /// The number of a known or new value; `None` when there are too many.
    pub(super) fn number(&mut self, value: &T) -> Option<u16> {
        if let Some(number) = self.numbers.get(value) {
            return Some(*number);
        }
        if self.values.len() >= NAME_COUNT_MAX {
            return None;
        }
        let number = self.values.len() as u16;
        self.values.push(value.clone());
        self.numbers.insert(value.clone(), number);
        Some(number)
    }

    pub(super) fn value(&self, number: u16) -> Option<&T> {
        self.values.get(usize::from(number))
    }

    fn encode(&self, text: impl Fn(&T) -> &str, out: &mut Vec<u8>) {
        put_varint(out, self.values.len() as u64);
        self.values.iter().for_each(|value| put_bytes(out, text(value).as_bytes()));
    }

    fn decode(&mut self, value: impl Fn(&str) -> Option<T>, rest: &mut Unpack<'_>) -> Option<()> {
        for place in 0..rest.varint()? {
            let value = value(rest.text()?)?;
            let number = self.number(&value)?;
            if u64::from(number) != place {
                return None; // It contradicts another part, or a name has two numbers.
            }
        }
        Some(())
    }
}
