//! The publications of the frames in a channel's tail, for readers that get less than everything.
//!
//! Each publication knows the next one that is about the same thing. So whether a publication is the newest is one comparison,
//! however much stands in the tail.
//!
//! Memory: at most one publication for each frame of the tail, which in a channel with history shares its data with the history,
//! and a key of at most [`KEY_BYTES_MAX`] bytes.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use tidings_protocol::{ClientId, Publication, PublicationKey};
use tidings_stream::Frame;

/// A publication whose key is longer is not left out for another.
const KEY_BYTES_MAX: usize = 256;
/// No later publication is about the same thing.
const NEVER: u64 = u64::MAX;
/// A table of keys that is empty keeps room for so many.
const IDLE_KEY_COUNT_MAX: usize = 64;

/// The publications of the frames in the tail.
///
/// Invariant: in the order of their indices. Empty while no reader gets less than everything. `newest` has the keys of those that
/// are kept, each with the last of them.
#[derive(Debug, Default)]
pub(super) struct Sources {
    readers: HashSet<ClientId>,
    kept: VecDeque<Source>,
    newest: HashMap<Arc<str>, u64>,
    /// The restart frames of the tail.
    restarts: VecDeque<u64>,
    /// The index after the last restart frame.
    pub(super) restart_end: u64,
}

#[derive(Debug)]
pub(super) struct Source {
    pub(super) index: u64,
    pub(super) publication: Publication,
    /// What it is about; `None`: it is not left out for another.
    key: Option<Arc<str>>,
    /// The next publication that is about the same thing, or [`NEVER`].
    pub(super) replaced_at: u64,
}

impl Sources {
    pub(super) fn enter(&mut self, client: ClientId) {
        self.readers.insert(client);
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        if self.readers.remove(&client) && self.readers.is_empty() {
            (self.kept, self.newest) = (VecDeque::new(), HashMap::new());
        }
    }

    /// The frame at `index` is about to be added, with this publication.
    pub(super) fn add(&mut self, index: u64, publication: &Publication, key: Option<&PublicationKey>) {
        if self.readers.is_empty() {
            return;
        }
        let key = key.map_or_else(|| Some(Box::default()), |key| key.of(publication));
        let key: Option<Arc<str>> = key.filter(|key| key.len() <= KEY_BYTES_MAX).map(Arc::from);
        if let Some(replaced) = key.as_ref().and_then(|key| self.newest.insert(key.clone(), index))
            && let Some(place) = self.place(replaced)
        {
            self.kept[place].replaced_at = index;
        }
        self.kept.push_back(Source { index, publication: publication.clone(), key, replaced_at: NEVER });
    }

    /// The frame at `index` is about to be added.
    pub(super) fn on_frame(&mut self, index: u64, frame: &Frame) {
        if frame.is_restart() {
            self.restarts.push_back(index);
            self.restart_end = index + 1;
        }
    }

    /// The tail begins at `base`.
    pub(super) fn trim(&mut self, base: u64) {
        while let Some(source) = self.kept.pop_front_if(|source| source.index < base) {
            if let Some(key) = source.key
                && self.newest.get(&key) == Some(&source.index)
            {
                self.newest.remove(&key);
            }
        }
        while self.restarts.pop_front_if(|at| *at < base).is_some() {}
        if self.kept.is_empty() && self.newest.capacity() > IDLE_KEY_COUNT_MAX {
            (self.kept, self.newest) = (VecDeque::new(), HashMap::new());
        }
    }

    pub(super) fn at(&self, index: u64) -> Option<&Source> {
        self.place(index).map(|place| &self.kept[place])
    }

    fn place(&self, index: u64) -> Option<usize> {
        self.kept.binary_search_by_key(&index, |source| source.index).ok()
    }

    /// The publications of the frames from `index` on.
    pub(super) fn from(&self, index: u64) -> impl Iterator<Item = &Source> {
        self.kept.range(self.kept.partition_point(|source| source.index < index)..)
    }

    /// The publications of the frames before `index`, the last one first.
    pub(super) fn before(&self, index: u64) -> impl Iterator<Item = &Source> {
        self.kept.range(..self.kept.partition_point(|source| source.index < index)).rev()
    }

    /// The first restart frame from `index` on.
    pub(super) fn restart_from(&self, index: u64) -> Option<u64> {
        self.restarts.iter().copied().find(|at| *at >= index)
    }
}
