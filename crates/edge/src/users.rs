//! How many different users are connected, over all loops, and who is told when a user's first connection comes and when its
//! last one ends.
//!
//! Bound: one entry per connected user, so at most the connections. The lock is held for one map operation, and for one of
//! the changes that are told.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidings_hub::Changes;
use tidings_telemetry::panics::lock;

/// Connections by user; all anonymous users count as one.
#[derive(Debug, Default)]
pub(crate) struct Users {
    connections: Mutex<HashMap<Box<str>, usize>>,
    changes: Option<Arc<Changes>>,
}

impl Users {
    /// Tells `changes` who comes and goes.
    pub(crate) fn new(changes: Option<Arc<Changes>>) -> Self {
        Self { changes, ..Self::default() }
    }

    /// Counts a connection. `false`: the user has as many as allowed. All anonymous users together may have any number, as has
    /// everybody if `count_max` is 0.
    pub(crate) fn enter(&self, user: &str, count_max: usize) -> bool {
        let mut users = lock(&self.connections);
        match users.get_mut(user) {
            Some(connections) if !user.is_empty() && count_max > 0 && *connections >= count_max => return false,
            Some(connections) => *connections += 1,
            None => {
                users.insert(user.into(), 1);
                self.tell_change(user, true);
            }
        }
        true
    }

    pub(crate) fn leave(&self, user: &str) {
        let mut users = lock(&self.connections);
        if let Some(connections) = users.get_mut(user) {
            *connections -= 1;
            if *connections == 0 {
                users.remove(user);
                self.tell_change(user, false);
            }
        }
    }

    /// Called under the lock, so that changes stay in order.
    fn tell_change(&self, user: &str, is_here: bool) {
        if let Some(changes) = &self.changes {
            changes.user(user, is_here);
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.connections).len()
    }
}
