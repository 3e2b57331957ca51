//! A history that says how many bytes it has, whatever changes it.

use std::ops::Deref;

use tidings_protocol::Publication;
use tidings_stream::History;

use crate::sum::Share;

/// A history whose bytes are counted.
#[derive(Debug)]
pub(super) struct Counted {
    history: History<Publication>,
    /// Only of a memory channel.
    bytes: Option<Share>,
}

impl Counted {
    pub(super) fn new(history: History<Publication>, bytes: Option<Share>) -> Self {
        let mut counted = Self { history, bytes };
        counted.change(|_| ());
        counted
    }

    /// The only way to change it.
    pub(super) fn change<T>(&mut self, change: impl FnOnce(&mut History<Publication>) -> T) -> T {
        let changed = change(&mut self.history);
        if let Some(bytes) = &mut self.bytes {
            bytes.set(self.history.bytes());
        }
        changed
    }
}

impl Deref for Counted {
    type Target = History<Publication>;

    fn deref(&self) -> &Self::Target {
        &self.history
    }
}
