//! What the tasks of the traffic share.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::ledger::{Ledger, Place};
use super::stage::{NODE_COUNT, node_name};

/// What the tasks share.
pub(super) struct Shared {
    pub(super) addrs: Vec<SocketAddr>,
    pub(super) key: String,
    ledger: Mutex<Ledger>,
    pace: Mutex<Pace>,
    whereabouts: Mutex<[Whereabouts; NODE_COUNT]>,
    /// Why posting cannot go on.
    pub(super) failure: OnceLock<String>,
}

/// How regularly events are acknowledged.
pub(super) struct Pace {
    pub(super) last: Instant,
    /// The longest time without an acknowledgement since it was last asked for.
    pub(super) longest: Duration,
}

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Whereabouts {
    /// The server that it is connected to, or was last.
    pub(super) server: usize,
    /// Subscriptions that it has made, one on each connection.
    pub(super) connections: u32,
}

/// Says in words which clients had to connect again between two looks.
pub(super) fn describe_moves(before: &[Whereabouts; NODE_COUNT], now: &[Whereabouts; NODE_COUNT]) -> String {
    let mut parts = Vec::new();
    for (client, (before, now)) in before.iter().zip(now).enumerate() {
        let (client, from, to) = (client + 1, node_name(before.server), node_name(now.server));
        if before.server != now.server {
            parts.push(format!("client {client} went from {from} to {to}"));
        } else if before.connections != now.connections {
            parts.push(format!("client {client} had to connect to {to} again"));
        }
    }
    match parts.len() {
        0 => return "all clients stayed connected".to_owned(),
        NODE_COUNT => {}
        _ => parts.push("the others stayed connected".to_owned()),
    }
    parts.join("; ")
}

impl Shared {
    pub(super) fn new(addrs: &[SocketAddr], key: &str) -> Self {
        Self {
            addrs: addrs.to_vec(),
            key: key.to_owned(),
            ledger: Mutex::default(),
            pace: Mutex::new(Pace { last: Instant::now(), longest: Duration::ZERO }),
            whereabouts: Mutex::default(),
            failure: OnceLock::new(),
        }
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn whereabouts(&self) -> MutexGuard<'_, [Whereabouts; NODE_COUNT]> {
        self.whereabouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn acknowledge(&self, server: usize, place: Place) {
        self.ledger().acknowledge(server, place);
        let mut pace = self.pace();
        pace.longest = pace.longest.max(pace.last.elapsed());
        pace.last = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(server: usize, connections: u32) -> Whereabouts {
        Whereabouts { server, connections }
    }

    #[test]
    fn it_is_said_which_clients_had_to_connect_again() {
        let before = [at(0, 1), at(1, 1), at(2, 1)];
        assert_eq!(describe_moves(&before, &before), "all clients stayed connected");
        let one = [at(1, 2), at(1, 1), at(2, 1)];
        assert_eq!(describe_moves(&before, &one), "client 1 went from a to b; the others stayed connected");
        let back = [at(0, 1), at(1, 3), at(2, 1)];
        let told = "client 2 had to connect to b again; the others stayed connected";
        assert_eq!(describe_moves(&before, &back), told);
        let all = [at(1, 2), at(2, 2), at(0, 2)];
        let told = "client 1 went from a to b; client 2 went from b to c; client 3 went from c to a";
        assert_eq!(describe_moves(&before, &all), told);
    }
}
