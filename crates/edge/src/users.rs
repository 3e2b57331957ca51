//! How many different users are connected, over all loops.
//!
//! Bound: one entry per connected user, so at most the connections. The lock is held for one map operation.

use std::collections::HashMap;
use std::sync::Mutex;

use tidings_telemetry::panics::lock;

/// Connections by user; all anonymous users count as one.
#[derive(Debug, Default)]
pub(crate) struct Users(Mutex<HashMap<Box<str>, usize>>);

impl Users {
    pub(crate) fn enter(&self, user: &str) {
        let mut users = lock(&self.0);
        match users.get_mut(user) {
            Some(connections) => *connections += 1,
            None => drop(users.insert(user.into(), 1)),
        }
    }

    pub(crate) fn leave(&self, user: &str) {
        let mut users = lock(&self.0);
        if let Some(connections) = users.get_mut(user) {
            *connections -= 1;
            if *connections == 0 {
                users.remove(user);
            }
        }
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.0).len()
    }
}
