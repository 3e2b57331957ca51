//! Names stored once, each with a small number while it is in use.
//!
//! A name costs its text, 5 bytes rounded up with the text to a multiple of 4, an entry of 12 bytes, and 6 to 12 bytes
//! in a [`Lookup`]. The texts of deleted names take at most about as much memory as those in use.

use std::hash::{BuildHasher, RandomState};

use crate::lookup::{self, Lookup};
use crate::slots::Slots;

/// The longest name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = u8::MAX as usize;

/// The number of a name while it is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct NameNumber(pub(crate) u32);

/// Names in use with their numbers; a number is reused only after its name is no longer in use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    slots: Slots<Name>,
    lookup: Lookup,
    texts: Texts,
    // Names come from outside: nobody may know which of them meet in the table.
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Name {
    text: TextPlace,
    /// How many sets use the name; 0 while the number is free.
    uses: u32,
    /// So that a table that grows need not read the text.
    hash: u32,
}

impl Names {
    pub(crate) fn find(&self, name: &str) -> Option<NameNumber> {
        self.find_hashed(name.as_bytes(), self.hash(name.as_bytes()))
    }

    fn hash(&self, name: &[u8]) -> u32 {
        self.hasher.hash_one(name) as u32
    }

    fn find_hashed(&self, name: &[u8], hash: u32) -> Option<NameNumber> {
        let is_it = |number| {
            let found = &self.slots[number];
            found.hash == hash && self.texts.text(found.text) == name
        };
        self.lookup.find(spread(hash), is_it).map(NameNumber)
    }

    /// The number of `name`, a new one if it is not in use. The caller must call [`Names::retain`] for each set.
    pub(crate) fn number(&mut self, name: &str) -> NameNumber {
        self.number_hashed(name.as_bytes(), self.hash(name.as_bytes()))
    }

    /// The numbers of many names, of each of which some more sets make use. Quicker than one by one.
    pub(crate) fn retain_all(&mut self, names: &[(&[u8], u32)]) -> Vec<NameNumber> {
        let hashes: Vec<u32> = names.iter().map(|(name, _)| self.hash(name)).collect();
        let mut numbers = vec![NameNumber::default(); names.len()];
        for place in lookup::by_part(hashes.iter().map(|&hash| spread(hash))) {
            let (name, uses) = names[place];
            let number = self.number_hashed(name, hashes[place]);
            self.slots[number.0].uses += uses;
            numbers[place] = number;
        }
        numbers
    }

    fn number_hashed(&mut self, name: &[u8], hash: u32) -> NameNumber {
        if let Some(number) = self.find_hashed(name, hash) {
            return number;
        }
        let Self { slots, lookup, texts, .. } = self;
        let number = slots.insert(Name { hash, ..Name::default() });
        slots[number].text = texts.push(number, name);
        lookup.insert(spread(hash), number, |number| spread(slots[number].hash));
        NameNumber(number)
    }

    /// The name with this number, which is in use.
    pub(crate) fn name(&self, number: NameNumber) -> &[u8] {
        self.texts.text(self.slots[number.0].text)
    }

    /// One more set uses the name.
    pub(crate) fn retain(&mut self, number: NameNumber) {
        self.slots[number.0].uses += 1;
    }

    /// One set less uses the name; the last one deletes the name.
    pub(crate) fn release(&mut self, number: NameNumber) {
        let name = &mut self.slots[number.0];
        name.uses -= 1;
        if name.uses > 0 {
            return;
        }
        let Name { text, hash, .. } = self.slots.remove(number.0);
        self.lookup.remove(spread(hash), number.0);
        if let Some(page) = self.texts.remove(text) {
            self.gather(page);
        }
    }

    /// Moves what is still used of a page of texts, so that the page can be used again.
    fn gather(&mut self, page: usize) {
        let TextPage { bytes, .. } = std::mem::take(&mut self.texts.pages[page]);
        for (place, number, text) in records(page, &bytes) {
            let name = &mut self.slots[number];
            if name.uses > 0 && name.text == place {
                name.text = self.texts.push(number, text);
            }
        }
        self.texts.free.push(page);
    }

    pub(crate) fn len(&self) -> usize {
        self.lookup.len()
    }

    /// All numbers in use.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = NameNumber> + '_ {
        self.slots.iter_from(0).filter(|(_, name)| name.uses > 0).map(|(number, _)| NameNumber(number))
    }

    /// Memory taken.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.slots.bytes() + self.lookup.bytes() + self.texts.bytes()
    }

    /// Panics when an invariant is broken; `uses` says how often each number is used.
    #[cfg(test)]
    pub(crate) fn check(&self, uses: &std::collections::HashMap<u32, u32>) {
        for (number, name) in self.slots.iter_from(0) {
            assert_eq!(name.uses, uses.get(&number).copied().unwrap_or(0), "uses of a name");
            if name.uses > 0 {
                let text = std::str::from_utf8(self.name(NameNumber(number))).expect("names are ASCII");
                assert_eq!(self.find(text), Some(NameNumber(number)));
            }
        }
        assert_eq!(self.len(), uses.len(), "a name is kept without sets, or forgotten with them");
        assert!(self.texts.pages.iter().map(|page| page.used).sum::<usize>() == self.texts.used(self));
    }
}

/// All bits of a hash of half the length, which is good enough for some ten million names.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where a text lies, in units of [`UNIT_BYTES`]. 16 GiB of names are more than memory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct TextPlace(u32);

const UNIT_BYTES: usize = 4;
const PAGE_BYTES: usize = 64 * 1024;

/// The texts one after the other, each as number, length and text, in pages. A page of which less than half is used is
/// gathered into others.
#[derive(Debug, Default)]
struct Texts {
    pages: Vec<TextPage>,
    /// Where new texts go, if there is a page.
    current: Option<usize>,
    /// Pages without memory.
    free: Vec<usize>,
}

#[derive(Debug, Default)]
struct TextPage {
    bytes: Vec<u8>,
    /// Bytes of records in use.
    used: usize,
}

impl Texts {
    fn text(&self, TextPlace(place): TextPlace) -> &[u8] {
        let at = place as usize * UNIT_BYTES;
        let record = &self.pages[at / PAGE_BYTES].bytes[at % PAGE_BYTES..];
        &record[5..5 + usize::from(record[4])]
    }

    fn push(&mut self, number: u32, text: &[u8]) -> TextPlace {
        let length = u8::try_from(text.len()).expect("names are at most 255 bytes long");
        let record_bytes = record_bytes(text.len());
        let has_room = |page: &usize| self.pages[*page].bytes.len() + record_bytes <= PAGE_BYTES;
        let page_index = self.current.filter(has_room).unwrap_or_else(|| self.new_page());
        let page = &mut self.pages[page_index];
        let at = page_index * PAGE_BYTES + page.bytes.len();
        let end = page.bytes.len() + record_bytes;
        page.bytes.extend_from_slice(&number.to_le_bytes());
        page.bytes.push(length);
        page.bytes.extend_from_slice(text);
        page.bytes.resize(end, 0);
        page.used += record_bytes;
        TextPlace(u32::try_from(at / UNIT_BYTES).expect("16 GiB of names are more than memory holds"))
    }

    fn new_page(&mut self) -> usize {
        let index = self.free.pop().unwrap_or_else(|| {
            self.pages.push(TextPage::default());
            self.pages.len() - 1
        });
        // A few names need no whole page; what grows doubles, up to one.
        self.current = Some(index);
        index
    }

    /// Forgets a text; the page that is to be gathered, if it is time.
    fn remove(&mut self, place: TextPlace) -> Option<usize> {
        let text_bytes = self.text(place).len();
        let index = place.0 as usize * UNIT_BYTES / PAGE_BYTES;
        let page = &mut self.pages[index];
        page.used -= record_bytes(text_bytes);
        (self.current != Some(index) && page.used < PAGE_BYTES / 2).then_some(index)
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.pages.iter().map(|page| page.bytes.capacity() + size_of::<TextPage>()).sum()
    }

    #[cfg(test)]
    fn used(&self, names: &Names) -> usize {
        names.numbers().map(|number| record_bytes(names.name(number).len())).sum()
    }
}

fn record_bytes(text_bytes: usize) -> usize {
    (size_of::<u32>() + 1 + text_bytes).next_multiple_of(UNIT_BYTES)
}

/// The records of a page: where each is, of which number, and its text.
fn records(page: usize, bytes: &[u8]) -> impl Iterator<Item = (TextPlace, u32, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let (number, rest) = bytes.get(at..)?.split_first_chunk()?;
        let (&length, rest) = rest.split_first()?;
        let place = TextPlace(((page * PAGE_BYTES + at) / UNIT_BYTES) as u32);
        at += record_bytes(usize::from(length));
        Some((place, u32::from_le_bytes(*number), &rest[..usize::from(length)]))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn names_come_and_go_and_their_texts_are_gathered() {
        let mut names = Names::default();
        let mut uses = HashMap::new();
        let name = |index: u32| format!("team:{}", "x".repeat(index as usize % 90) + &index.to_string());
        for index in 0..20_000 {
            let number = names.number(&name(index));
            names.retain(number);
            uses.insert(number.0, 1);
        }
        let full = names.texts.bytes();
        for index in (0..20_000).filter(|index| index % 10 != 0) {
            let number = names.find(&name(index)).expect("it is in use");
            names.release(number);
            uses.remove(&number.0);
        }
        names.check(&uses);
        assert!(names.texts.bytes() < full / 4, "{} of {full} bytes", names.texts.bytes());
        for index in 0..20_000 {
            let found = names.find(&name(index));
            assert_eq!(found.is_some(), index % 10 == 0);
            assert!(found.is_none_or(|number| names.name(number) == name(index).as_bytes()));
        }
    }
}
