//! Decides which process is killed next.
//!
//! In each round a leader, a standby and a NATS server are killed: in this order in the first round, in a random order
//! later. Which standby and which NATS server is random.

use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng, RngExt as _};
use serde::Serialize;

use super::stage::NODE_COUNT;

/// What the killed process was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Leader,
    Standby,
    Nats,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Leader, Self::Standby, Self::Nats];
}

/// One of the six processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Member {
    Server(usize),
    Nats(usize),
}

/// The kills that are to come.
pub(super) struct Plan<R> {
    rng: R,
    /// The rest of this round; the last one is next.
    round: Vec<Kind>,
}

impl<R: Rng> Plan<R> {
    pub(super) fn new(rng: R) -> Self {
        Self { rng, round: Kind::ALL.into_iter().rev().collect() }
    }

    /// Chooses the next process, if the server with the index `leader` leads.
    pub(super) fn next(&mut self, leader: usize) -> (Kind, Member) {
        if self.round.is_empty() {
            self.round.extend(Kind::ALL);
            self.round.shuffle(&mut self.rng);
        }
        let kind = self.round.pop().unwrap_or(Kind::Leader);
        (kind, self.choose(kind, leader))
    }

    fn choose(&mut self, kind: Kind, leader: usize) -> Member {
        let standbys: Vec<usize> = (0..NODE_COUNT).filter(|index| *index != leader).collect();
        match kind {
            Kind::Leader => Member::Server(leader),
            Kind::Standby => Member::Server(standbys.choose(&mut self.rng).copied().unwrap_or_default()),
            Kind::Nats => Member::Nats(self.rng.random_range(0..NODE_COUNT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand::SeedableRng as _;
    use rand::rngs::Xoshiro256PlusPlus;

    use super::*;

    fn plan() -> Plan<Xoshiro256PlusPlus> {
        Plan::new(Xoshiro256PlusPlus::seed_from_u64(7))
    }

    #[test]
    fn each_round_has_every_kind_once_and_the_first_one_begins_with_the_leader() {
        let mut plan = plan();
        let mut orders = HashSet::new();
        for round in 0..50 {
            let kinds: Vec<Kind> = (0..Kind::ALL.len()).map(|_| plan.next(1).0).collect();
            assert!(Kind::ALL.iter().all(|kind| kinds.contains(kind)), "{kinds:?}");
            assert!(round > 0 || kinds == Kind::ALL, "{kinds:?}");
            orders.insert(format!("{kinds:?}"));
        }
        assert_eq!(orders.len(), 6, "{orders:?}");
    }

    #[test]
    fn the_victim_is_of_its_kind_and_every_process_is_killed_at_some_time() {
        let mut plan = plan();
        let (mut servers, mut brokers) = (HashSet::new(), HashSet::new());
        for turn in 0..300 {
            let leader = turn % NODE_COUNT;
            match plan.next(leader) {
                (Kind::Leader, Member::Server(index)) => assert_eq!(index, leader),
                (Kind::Standby, Member::Server(index)) => assert!(index != leader && servers.insert(index) | true),
                (Kind::Nats, Member::Nats(index)) => _ = brokers.insert(index),
                wrong => panic!("{wrong:?}"),
            }
        }
        assert_eq!((servers.len(), brokers.len()), (NODE_COUNT, NODE_COUNT));
    }
}
