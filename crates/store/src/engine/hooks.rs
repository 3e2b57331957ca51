//! What tests see of the disk, and do to it.

use std::sync::Mutex;

use super::batch::Durability;

/// What tests see of the disk, and do to it.
#[derive(Default)]
pub(crate) struct Hooks {
    /// What the next commit is to do wrong.
    pub(crate) fault: Mutex<Option<Fault>>,
    /// How each batch was written.
    pub(crate) commits: Mutex<Vec<Durability>>,
}

/// A disk that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing of the batch is written.
    BeforeCommit,
    /// The batch is durable, but the caller is told otherwise, as when only the sync fails.
    AfterCommit,
}
