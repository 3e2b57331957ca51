//! One change at a time per device or user.

use std::hash::{BuildHasher, Hash, RandomState};

use tokio::sync::{Mutex, MutexGuard};

/// The number of locks; a device always has the same one.
const TURN_COUNT: usize = 1024;

/// One change at a time per device or user: a fixed number of locks, each for a group of devices or users.
#[derive(Debug)]
pub(crate) struct Turns {
    locks: Box<[Mutex<()>]>,
    hasher: RandomState,
}

impl Default for Turns {
    fn default() -> Self {
        Self { locks: (0..TURN_COUNT).map(|_| Mutex::new(())).collect(), hasher: RandomState::new() }
    }
}

impl Turns {
    pub(crate) async fn take(&self, whose: &impl Hash) -> MutexGuard<'_, ()> {
        self.locks[self.hasher.hash_one(whose) as usize % self.locks.len()].lock().await
    }
}
