//! Apps, locales and countries, each kept once and called by a number in records.
//!
//! Bound: 4096 of each. A device with a name beyond that is kept in memory, name and all. Names are not forgotten before
//! the table is made anew: what a number in a record means must never change.

use std::collections::HashMap;
use std::hash::Hash;

use tidings_types::{AppId, Country, Locale};

use crate::packed::{Unpack, put_bytes, put_varint};

const NAME_COUNT_MAX: usize = 4096;
/// The number of no name.
pub(super) const NOTHING: u16 = u16::MAX;

#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) apps: Numbered<AppId>,
    pub(super) locales: Numbered<Locale>,
    pub(super) countries: Numbered<Country>,
}

impl Names {
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.apps.encode(AppId::as_str, out);
        self.locales.encode(Locale::as_str, out);
        self.countries.encode(Country::as_str, out);
    }

    /// Takes in names that [`Names::encode`] wrote at some time of the same life; `None` where they cannot be.
    pub(super) fn decode(&mut self, rest: &mut Unpack<'_>) -> Option<()> {
        self.apps.decode(|text| AppId::new(text).ok(), rest)?;
        self.locales.decode(|text| Locale::new(text).ok(), rest)?;
        self.countries.decode(|text| Country::new(text).ok(), rest)
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
    /// The number of a value, which is new now or known; `None` when there are too many.
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
                return None; // Another part said otherwise, or the same name has two numbers.
            }
        }
        Some(())
    }
}
