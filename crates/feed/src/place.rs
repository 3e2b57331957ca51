//! The places of a document that a mapping reads, as one tree.
//!
//! Every path of a mapping is added to the tree ([`Places::add`]) before a document is read. A reader then follows the
//! document in the tree. An element that is not in the tree is skipped, with everything in it, unless a text around
//! it is wanted. What is read is found again by its *leaf*: a number for each attribute and text that a path ends in.

use std::collections::BTreeMap;

use crate::path::{How, Path};

pub(crate) type PlaceId = u32;
pub(crate) type Leaf = u32;
/// No place, no leaf, no element.
pub(crate) const NONE: u32 = u32::MAX;
/// The namespace of names that no path of the mapping has.
pub(crate) const FOREIGN: u16 = u16::MAX;

/// Places of a mapping: each is an element that a path goes through.
const PLACE_COUNT_MAX: usize = 4096;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    /// 0: none; else a number of [`Places::namespaces`], counted from 1.
    pub(crate) namespace: u16,
    pub(crate) local: Box<str>,
}

#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) children: Vec<(Name, PlaceId)>,
    pub(crate) attributes: Vec<(Name, Leaf)>,
    /// The leaf of its text, or `NONE`.
    pub(crate) text: Option<Leaf>,
    /// An entry begins here; its paths begin at that place.
    pub(crate) entry: Option<PlaceId>,
    /// An entry is in it.
    pub(crate) is_around_entries: bool,
}

/// How a value is found in a tree.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) leaf: Leaf,
    pub(crate) tests: Vec<Check>,
    /// The number among the paths that begin at the document.
    pub(crate) absolute: Option<usize>,
    /// The innermost element on the path that is around entries.
    pub(crate) group: PlaceId,
}

/// A test of an element that a path goes through.
#[derive(Debug, Clone)]
pub(crate) struct Check {
    /// The element.
    pub(crate) place: PlaceId,
    pub(crate) leaf: Leaf,
    pub(crate) how: How,
    pub(crate) text: String,
}

#[derive(Debug)]
pub(crate) struct Places {
    places: Vec<Place>,
    leaf_count: u32,
    /// The paths that begin at the document.
    pub(crate) absolutes: Vec<Access>,
    /// The addresses of namespaces; without a table of namespaces only local names count.
    pub(crate) namespaces: Option<Vec<String>>,
    prefixes: BTreeMap<String, u16>,
    is_xml: bool,
}

pub(crate) const DOCUMENT: PlaceId = 0;

impl Places {
    pub(crate) fn new(is_xml: bool, namespaces: Option<&BTreeMap<String, String>>) -> Self {
        let mut addresses = Vec::new();
        let mut prefixes = BTreeMap::new();
        for (prefix, address) in namespaces.into_iter().flatten() {
            let known = addresses.iter().position(|known| known == address);
            let number = known.unwrap_or_else(|| {
                addresses.push(address.clone());
                addresses.len() - 1
            });
            prefixes.insert(prefix.clone(), number as u16 + 1);
        }
        let namespaces = namespaces.map(|_| addresses);
        Self { places: vec![Place::default()], leaf_count: 0, absolutes: Vec::new(), namespaces, prefixes, is_xml }
    }

    #[inline]
    pub(crate) fn place(&self, id: PlaceId) -> &Place {
        &self.places[id as usize]
    }

    /// A place where paths of their own begin.
    pub(crate) fn root(&mut self) -> PlaceId {
        self.places.push(Place::default());
        self.places.len() as u32 - 1
    }

    /// Says that entries are at a path of the document.
    pub(crate) fn begin_entries(&mut self, path: &Path, root: PlaceId) -> Result<(), String> {
        let mut place = DOCUMENT;
        for step in &path.steps {
            self.places[place as usize].is_around_entries = true;
            place = self.child(place, &step.name)?;
        }
        self.places[place as usize].entry = Some(root);
        Ok(())
    }

    /// The place of an element of the document.
    pub(crate) fn element(&mut self, path: &Path) -> Result<PlaceId, String> {
        if path.attribute.is_some() || path.steps.iter().any(|step| !step.tests.is_empty()) {
            return Err("must lead to an element, without tests".to_owned());
        }
        let mut place = DOCUMENT;
        for step in &path.steps {
            place = self.child(place, &step.name)?;
            self.outside(place)?;
        }
        Ok(place)
    }

    fn outside(&self, place: PlaceId) -> Result<(), String> {
        match self.place(place).entry {
            None => Ok(()),
            Some(_) => Err("leads into the entries: such a path must begin there, without `/`".to_owned()),
        }
    }

    /// Adds a path that begins at `root`, or at the document.
    pub(crate) fn add(&mut self, root: PlaceId, path: &Path) -> Result<Access, String> {
        let mut place = if path.is_absolute { DOCUMENT } else { root };
        let (mut tests, mut group) = (Vec::new(), DOCUMENT);
        for step in &path.steps {
            place = self.child(place, &step.name)?;
            self.outside(place)?;
            if self.place(place).is_around_entries {
                group = place;
            }
            for test in &step.tests {
                let leaf = self.add(place, &test.path)?.leaf;
                tests.push(Check { place, leaf, how: test.how, text: test.text.clone() });
            }
        }
        let leaf = match &path.attribute {
            Some(name) => self.attribute(place, name)?,
            None => self.text(place),
        };
        let mut access = Access { leaf, tests, absolute: None, group };
        if path.is_absolute {
            access.absolute = Some(self.absolutes.len());
            self.absolutes.push(access.clone());
        }
        Ok(access)
    }

    fn child(&mut self, parent: PlaceId, name: &str) -> Result<PlaceId, String> {
        let name = self.name(name, true)?;
        let children = &self.place(parent).children;
        if let Some((_, id)) = children.iter().find(|(known, _)| *known == name) {
            return Ok(*id);
        }
        if self.places.len() >= PLACE_COUNT_MAX {
            return Err(format!("is one too many: a mapping reads at most {PLACE_COUNT_MAX} places"));
        }
        let id = self.root();
        self.places[parent as usize].children.push((name, id));
        Ok(id)
    }

    fn attribute(&mut self, place: PlaceId, name: &str) -> Result<Leaf, String> {
        let name = self.name(name, false)?;
        if let Some((_, leaf)) = self.place(place).attributes.iter().find(|(known, _)| *known == name) {
            return Ok(*leaf);
        }
        let leaf = self.leaf();
        self.places[place as usize].attributes.push((name, leaf));
        Ok(leaf)
    }

    fn text(&mut self, place: PlaceId) -> Leaf {
        if let Some(leaf) = self.place(place).text {
            return leaf;
        }
        let leaf = self.leaf();
        self.places[place as usize].text = Some(leaf);
        leaf
    }

    fn leaf(&mut self) -> Leaf {
        self.leaf_count += 1;
        self.leaf_count - 1
    }

    fn name(&self, name: &str, is_element: bool) -> Result<Name, String> {
        if !self.is_xml {
            return Ok(Name { namespace: 0, local: name.into() });
        }
        if self.namespaces.is_none() {
            // `cap:alert` and `alert` are the same then, as they are in the document.
            let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
            return Ok(Name { namespace: 0, local: local.into() });
        }
        let (namespace, local) = match name.split_once(':') {
            Some(("xml", local)) => (FOREIGN - 1, local),
            Some((prefix, local)) => match self.prefixes.get(prefix) {
                Some(number) => (*number, local),
                None => return Err(format!("uses the prefix `{prefix}`, which `namespaces` does not have")),
            },
            None if is_element => (self.prefixes.get("default").copied().unwrap_or(0), name),
            None => (0, name),
        };
        Ok(Name { namespace, local: local.into() })
    }
}
