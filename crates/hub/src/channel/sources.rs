//! The publications of the frames in a channel's tail, for readers that get less than everything.
//!
//! Memory: at most one publication for each frame of the tail, which in a channel with history shares its data with the history,
//! and a key of at most [`KEY_BYTES_MAX`] bytes.

use std::collections::{HashSet, VecDeque};

use tidings_protocol::{ClientId, Publication, PublicationKey};
use tidings_stream::Frame;

/// A publication whose key is longer is not left out for another.
const KEY_BYTES_MAX: usize = 256;

/// The publications of the frames in the tail.
///
/// Invariant: in the order of their indices. Empty while no reader gets less than everything.
#[derive(Debug, Default)]
pub(super) struct Sources {
    readers: HashSet<ClientId>,
    kept: VecDeque<Source>,
    /// The index after the last restart frame.
    pub(super) restart_end: u64,
}

#[derive(Debug)]
pub(super) struct Source {
    index: u64,
    pub(super) publication: Publication,
    /// What it is about; `None`: it is not left out for another.
    pub(super) key: Option<Box<str>>,
}

impl Sources {
    pub(super) fn enter(&mut self, client: ClientId) {
        self.readers.insert(client);
    }

    pub(super) fn leave(&mut self, client: ClientId) {
        if self.readers.remove(&client) && self.readers.is_empty() {
            self.kept = VecDeque::new();
        }
    }

    /// The frame at `index` is about to be added, with this publication.
    pub(super) fn add(&mut self, index: u64, publication: &Publication, key: Option<&PublicationKey>) {
        if !self.readers.is_empty() {
            let key = key.map_or_else(|| Some(Box::default()), |key| key.of(publication));
            let key = key.filter(|key| key.len() <= KEY_BYTES_MAX);
            self.kept.push_back(Source { index, publication: publication.clone(), key });
        }
    }

    /// The frame at `index` is about to be added.
    pub(super) fn on_frame(&mut self, index: u64, frame: &Frame) {
        if frame.is_restart() {
            self.restart_end = index + 1;
        }
    }

    /// The tail begins at `base`.
    pub(super) fn trim(&mut self, base: u64) {
        while self.kept.front().is_some_and(|source| source.index < base) {
            self.kept.pop_front();
        }
    }

    pub(super) fn at(&self, index: u64) -> Option<&Source> {
        let place = self.kept.binary_search_by_key(&index, |source| source.index).ok()?;
        Some(&self.kept[place])
    }
}
