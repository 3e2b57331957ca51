//! Hooks for tests: they make a commit fail, and see how batches were written.

use std::sync::Mutex;

use super::batch::Durability;

#[derive(Default)]
pub(crate) struct Hooks {
    /// The fault of the next commit.
    pub(crate) fault: Mutex<Option<Fault>>,
    /// How each batch was written.
    pub(crate) commits: Mutex<Vec<Durability>>,
}

/// A failure of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing of the batch is written.
    BeforeCommit,
    /// The batch is durable, but the commit fails, as if only the sync had failed.
    AfterCommit,
}
