//! The members of one channel, kept so that counting them and knowing their size in an answer costs nothing per member.
//!
//! Bound: one entry per subscribed connection, and one per user of these.

use std::collections::HashMap;

use tidings_protocol::{ClientId, ClientInfo};

/// The clients of one channel.
///
/// Invariant: `connections_by_user` counts the clients of each user; `bytes` is the size of all clients in an answer.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    clients: HashMap<ClientId, ClientInfo>,
    connections_by_user: HashMap<Box<str>, usize>,
    bytes: usize,
}

impl Presence {
    pub(crate) fn enter(&mut self, info: ClientInfo) {
        self.leave(info.client);
        match self.connections_by_user.get_mut(&*info.user) {
            Some(count) => *count += 1,
            None => drop(self.connections_by_user.insert(info.user.as_str().into(), 1)),
        }
        self.bytes += info.weight();
        self.clients.insert(info.client, info);
    }

    pub(crate) fn leave(&mut self, client: ClientId) {
        let Some(info) = self.clients.remove(&client) else { return };
        self.bytes -= info.weight();
        if let Some(count) = self.connections_by_user.get_mut(&*info.user) {
            *count -= 1;
            if *count == 0 {
                self.connections_by_user.remove(&*info.user);
            }
        }
        if self.clients.is_empty() {
            *self = Self::default(); // Frees the memory of a large crowd.
        }
    }

    /// All clients; `None` if they take more than `bytes_max` in an answer.
    pub(crate) fn within(&self, bytes_max: usize) -> Option<Vec<ClientInfo>> {
        (self.bytes <= bytes_max).then(|| self.clients.values().cloned().collect())
    }

    /// The number of connections and of different users.
    pub(crate) fn stats(&self) -> (u64, u64) {
        (self.clients.len() as u64, self.connections_by_user.len() as u64)
    }
}
