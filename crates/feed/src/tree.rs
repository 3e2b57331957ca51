//! What is kept of an entry, or of the document around the entries: the elements and values that a mapping reads.
//!
//! Elements and values lie in the order of the document, in vectors that are used again for the next entry. Texts lie in
//! one buffer: the text of an element includes the texts of the elements within it, as in XPath.

use std::cell::Cell;

use crate::path::How;
use crate::place::{Access, Check, Leaf, NONE, PlaceId};

#[derive(Debug, Clone, Default)]
pub(crate) struct Tree {
    elements: Vec<Element>,
    values: Vec<Value>,
    texts: String,
    attributes: String,
    /// Open elements whose text is wanted.
    collecting: u32,
    /// The last element at each place around the entries.
    around: Vec<(PlaceId, u32)>,
    /// How many elements began at each place around the entries.
    openings: Vec<(PlaceId, u32)>,
    /// How many values were looked at in search of texts.
    looks: Cell<u64>,
}

#[derive(Debug, Clone)]
struct Element {
    place: PlaceId,
    parent: u32,
    /// The element after its last descendant; `NONE` while it is open.
    end: u32,
    texts_from: u32,
    attributes_from: u32,
}

#[derive(Debug, Clone)]
struct Value {
    leaf: Leaf,
    element: u32,
    is_attribute: bool,
    from: u32,
    to: u32,
}

impl Tree {
    pub(crate) fn clear(&mut self) {
        self.elements.clear();
        self.values.clear();
        self.texts.clear();
        self.attributes.clear();
        self.collecting = 0;
        self.around.clear();
    }

    /// Bytes of memory, about.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.elements) + size_of_val(&*self.values) + self.texts.len() + self.attributes.len()
    }

    /// Begins an element; answers with its number and that of its text's value.
    pub(crate) fn open(&mut self, place: PlaceId, parent: u32, text: Option<Leaf>) -> (u32, u32) {
        let element = self.elements.len() as u32;
        let (texts_from, attributes_from) = (self.texts.len() as u32, self.attributes.len() as u32);
        self.elements.push(Element { place, parent, end: NONE, texts_from, attributes_from });
        let Some(leaf) = text else { return (element, NONE) };
        self.collecting += 1;
        self.values.push(Value { leaf, element, is_attribute: false, from: texts_from, to: texts_from });
        (element, self.values.len() as u32 - 1)
    }

    pub(crate) fn close(&mut self, element: u32, value: u32) {
        self.elements[element as usize].end = self.elements.len() as u32;
        if value != NONE {
            self.values[value as usize].to = self.texts.len() as u32;
            self.collecting -= 1;
        }
    }

    /// Adds to the text of the open elements, and answers with the bytes of the longest one; 0 if no text is wanted.
    #[inline]
    pub(crate) fn text(&mut self, text: &str, element: u32) -> usize {
        if self.collecting == 0 {
            return 0;
        }
        self.texts.push_str(text);
        self.texts.len() - self.elements[element as usize].texts_from as usize
    }

    #[inline]
    pub(crate) fn is_collecting(&self) -> bool {
        self.collecting > 0
    }

    pub(crate) fn attribute(&mut self, element: u32, leaf: Leaf, text: &str) {
        let from = self.attributes.len() as u32;
        self.attributes.push_str(text);
        self.values.push(Value { leaf, element, is_attribute: true, from, to: self.attributes.len() as u32 });
    }

    /// Forgets the element at a place around the entries, because the next one begins: that will be the next element.
    pub(crate) fn next_around(&mut self, place: PlaceId) {
        match self.openings.iter_mut().find(|(known, _)| *known == place) {
            Some((_, count)) => *count += 1,
            None => self.openings.push((place, 1)),
        }
        let next = self.elements.len() as u32;
        let Some(known) = self.around.iter().position(|(known, _)| *known == place) else {
            self.around.push((place, next));
            return;
        };
        let index = self.around[known].1;
        // An element around it may be forgotten already, and this one with it.
        let is_there = self.elements.get(index as usize).is_some_and(|element| element.place == place);
        self.around[known].1 = next;
        if !is_there {
            return;
        }
        let element = &self.elements[index as usize];
        let (end, texts_from, attributes_from) = (element.end, element.texts_from, element.attributes_from);
        let from = self.values.partition_point(|value| value.element < index);
        if end == next {
            self.around[known].1 = index;
            self.elements.truncate(index as usize);
            self.values.truncate(from);
            self.texts.truncate(texts_from as usize);
            self.attributes.truncate(attributes_from as usize);
        } else {
            // Something behind it stays. What is forgotten here counts until the end of the document.
            self.elements[index as usize].place = NONE;
            let within = self.values[from..].iter_mut().take_while(|value| value.element < end);
            within.for_each(|value| value.leaf = NONE);
        }
    }

    /// How many values were looked at, since the tree was made.
    pub(crate) fn looks(&self) -> u64 {
        self.looks.get()
    }

    /// How many elements have begun at a place around the entries.
    pub(crate) fn openings(&self, place: PlaceId) -> u32 {
        self.openings.iter().find(|(known, _)| *known == place).map_or(0, |(_, count)| *count)
    }

    /// The texts at a path that are not empty, in the order of the document.
    pub(crate) fn texts<'a>(&'a self, access: &'a Access) -> impl Iterator<Item = &'a str> {
        // What the checks said of the last element: neighbours mostly share it, and so each element is looked at once.
        let mut known = vec![(NONE, false); access.tests.len()];
        let found = self.values.iter().filter(move |value| {
            self.looks.update(|looks| looks + 1);
            value.leaf == access.leaf
                && access.tests.iter().zip(&mut known).all(|(check, known)| {
                    let element = self.around(value.element, check.place);
                    if known.0 != element {
                        *known = (element, self.holds(element, check));
                    }
                    known.1
                })
        });
        found.map(|value| self.of(value)).filter(|text| !text.is_empty())
    }

    /// Key and value within an element that is closed.
    pub(crate) fn row(&self, element: u32, key: &[Access], value: &[Access]) -> Option<(&str, &str)> {
        let (from, end) =
            (self.values.partition_point(|value| value.element < element), self.elements[element as usize].end);
        let first = |accesses: &[Access]| {
            let within = || self.values[from..].iter().take_while(|value| value.element < end);
            let mut found = accesses.iter().flat_map(|access| within().filter(|value| value.leaf == access.leaf));
            found.next().map(|value| self.of(value))
        };
        Some((first(key)?, first(value)?))
    }

    fn of(&self, value: &Value) -> &str {
        let buffer = if value.is_attribute { &self.attributes } else { &self.texts };
        buffer[value.from as usize..value.to as usize].trim()
    }

    /// The element at a place, which is `element` or around it.
    fn around(&self, mut element: u32, place: PlaceId) -> u32 {
        while self.elements[element as usize].place != place {
            element = self.elements[element as usize].parent;
        }
        element
    }

    fn holds(&self, element: u32, check: &Check) -> bool {
        let end = self.elements[element as usize].end;
        // Values lie in the order of their elements.
        let from = self.values.partition_point(|value| value.element < element);
        let within = self.values[from..].iter().take_while(|value| value.element < end);
        let within = within.inspect(|_| self.looks.update(|looks| looks + 1));
        let mut found = within.filter(|value| value.leaf == check.leaf);
        let mut any = |test: &dyn Fn(&str) -> bool| found.any(|value| test(self.of(value)));
        match check.how {
            How::Exists => any(&|text| !text.is_empty()),
            How::Absent => !any(&|text| !text.is_empty()),
            How::Equals => any(&|text| text == check.text),
            How::Differs => !any(&|text| text == check.text),
            How::BeginsWith => any(&|text| text.starts_with(&check.text)),
        }
    }
}
