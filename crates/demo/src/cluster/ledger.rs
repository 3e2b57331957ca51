//! What was acknowledged, what each client got, and the verdict.
//!
//! Events are numbered from 0 and posted one after the other, so their publications must come in the order of their
//! numbers, each once, and at the offset that the acknowledgement named. A publication may come before its
//! acknowledgement. Each client is judged by itself.

use std::collections::BTreeSet;

use super::stage::NODE_COUNT;

/// Where an event is, as its acknowledgement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// In the server's journal.
    pub(super) position: u64,
    /// In the channel; 1 is the first.
    pub(super) offset: u64,
}

/// Everything that was acknowledged and got.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By number.
    acknowledged: Vec<Place>,
    /// How many of them each server has answered.
    taken: [usize; NODE_COUNT],
    /// Acknowledged events that the leader does not have.
    missing: BTreeSet<usize>,
    clients: [Received; NODE_COUNT],
}

/// What one client got.
#[derive(Debug, Default)]
struct Received {
    /// Offsets of the publications, by number; 0 if the client has not got the event.
    got: Vec<u64>,
    /// The client has got all events before this one.
    got_through: usize,
    last_offset: u64,
    duplicates: u64,
    disordered: u64,
    strangers: u64,
    breaks: u64,
}

/// What was wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Verdict {
    /// Acknowledged events that the leader does not have.
    pub(super) lost_events: u64,
    /// By client.
    pub(super) clients: [Faults; NODE_COUNT],
}

/// What was wrong with what one client got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Faults {
    /// Acknowledged events that the client has not got.
    pub(super) lost: u64,
    /// Publications that came again.
    pub(super) duplicates: u64,
    /// Publications out of order, not at the offset that was acknowledged, or of no event of the demo.
    pub(super) disordered: u64,
    /// Connections on which the client could not resume where it was.
    pub(super) breaks: u64,
}

impl Ledger {
    /// Notes the acknowledgement of the next event, and the server that answered.
    pub(super) fn acknowledge(&mut self, server: usize, place: Place) {
        self.taken[server] += 1;
        self.acknowledged.push(place);
    }

    /// Notes a publication that a client got; `number` is `None` if it is of no event of the demo.
    pub(super) fn get(&mut self, client: usize, offset: u64, number: Option<usize>) {
        self.clients[client].get(offset, number);
    }

    /// Notes that a client connected again and could not resume.
    pub(super) fn note_break(&mut self, client: usize) {
        self.clients[client].breaks += 1;
    }

    /// Compares an acknowledged event with the position that the leader says, which is `None` if it has no such event.
    pub(super) fn look_up(&mut self, number: usize, found: Option<u64>) {
        if self.acknowledged.get(number).map(|place| place.position) != found {
            self.missing.insert(number);
        }
    }

    pub(super) fn acknowledged_count(&self) -> usize {
        self.acknowledged.len()
    }

    /// How many events each server has answered.
    pub(super) fn taken(&self) -> [usize; NODE_COUNT] {
        self.taken
    }

    /// How many events each client has got.
    pub(super) fn got_counts(&self) -> [usize; NODE_COUNT] {
        self.clients.each_ref().map(|client| client.got.iter().filter(|offset| **offset > 0).count())
    }

    /// Whether each client has got the first `count` events.
    pub(super) fn have_got(&self, count: usize) -> bool {
        self.clients.iter().all(|client| client.got_through >= count)
    }

    /// Judges the first `count` acknowledged events, and everything that the clients got.
    pub(super) fn judge(&self, count: usize) -> Verdict {
        let acknowledged = &self.acknowledged[..count.min(self.acknowledged.len())];
        Verdict {
            lost_events: self.missing.len() as u64,
            clients: self.clients.each_ref().map(|client| client.judge(acknowledged)),
        }
    }
}

impl Received {
    fn get(&mut self, offset: u64, number: Option<usize>) {
        let Some(number) = number else {
            self.strangers += 1;
            return;
        };
        if self.got.get(number).is_some_and(|known| *known > 0) {
            self.duplicates += 1;
            return;
        }
        if number != self.got.len() || offset != self.last_offset + 1 {
            self.disordered += 1;
        }
        self.last_offset = offset;
        if number >= self.got.len() {
            self.got.resize(number + 1, 0);
        }
        self.got[number] = offset;
        while self.got.get(self.got_through).is_some_and(|offset| *offset > 0) {
            self.got_through += 1;
        }
    }

    fn judge(&self, acknowledged: &[Place]) -> Faults {
        let (mut lost, mut elsewhere) = (0, 0);
        for (number, place) in acknowledged.iter().enumerate() {
            match self.got.get(number) {
                None | Some(0) => lost += 1,
                Some(offset) if *offset != place.offset => elsewhere += 1,
                Some(_) => {}
            }
        }
        Faults {
            lost,
            duplicates: self.duplicates,
            disordered: self.disordered + self.strangers + elsewhere,
            breaks: self.breaks,
        }
    }
}

impl Verdict {
    pub(super) fn is_clean(self) -> bool {
        self == Self::default()
    }

    /// How often something was wrong, of all clients.
    pub(super) fn sum(self, what: impl Fn(&Faults) -> u64) -> u64 {
        self.clients.iter().map(what).sum()
    }

    /// Says in words what was wrong.
    pub(super) fn to_text(self) -> String {
        let lost = self.lost_events;
        let on_leader = (lost > 0).then(|| format!("{lost} acknowledged events are not on the leader"));
        let at_clients = self.clients.iter().enumerate().flat_map(|(client, faults)| faults.to_texts(client + 1));
        on_leader.into_iter().chain(at_clients).collect::<Vec<_>>().join(", ")
    }
}

impl Faults {
    /// What was wrong with the client of this number, in words.
    fn to_texts(self, client: usize) -> impl Iterator<Item = String> {
        let parts = [
            (self.lost, "acknowledged events did not reach client"),
            (self.duplicates, "publications came twice to client"),
            (self.disordered, "publications came out of order or in the wrong place to client"),
            (self.breaks, "connections did not resume where it was: client"),
        ];
        parts.into_iter().filter(|(count, _)| *count > 0).map(move |(count, what)| format!("{count} {what} {client}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 5;

    fn place(number: usize) -> Place {
        Place { position: number as u64 + 100, offset: number as u64 + 1 }
    }

    /// Five events were acknowledged and found. The second client got these (offset, number), the others everything.
    fn ledger(got: &[(u64, usize)]) -> Ledger {
        let mut ledger = Ledger::default();
        for number in 0..COUNT {
            ledger.acknowledge(number % NODE_COUNT, place(number));
            ledger.look_up(number, Some(place(number).position));
        }
        for (client, got) in [RIGHT.as_slice(), got, RIGHT.as_slice()].into_iter().enumerate() {
            got.iter().for_each(|(offset, number)| ledger.get(client, *offset, Some(*number)));
        }
        ledger
    }

    /// The faults of the second client.
    fn faults(got: &[(u64, usize)]) -> Faults {
        let verdict = ledger(got).judge(COUNT);
        assert_eq!(verdict, of_second(verdict.clients[1]));
        verdict.clients[1]
    }

    fn of_second(faults: Faults) -> Verdict {
        Verdict { clients: [Faults::default(), faults, Faults::default()], ..Verdict::default() }
    }

    const RIGHT: [(u64, usize); COUNT] = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)];

    #[test]
    fn everything_once_and_in_order_is_right() {
        let ledger = ledger(&RIGHT);
        assert!(ledger.judge(COUNT).is_clean() && ledger.have_got(COUNT) && !ledger.have_got(COUNT + 1));
        assert_eq!((ledger.acknowledged_count(), ledger.got_counts()), (COUNT, [COUNT; NODE_COUNT]));
        assert_eq!(ledger.taken(), [2, 2, 1]);
    }

    #[test]
    fn a_publication_may_come_before_its_acknowledgement() {
        let mut ledger = ledger(&RIGHT);
        ledger.get(1, 6, Some(5));
        assert!(ledger.judge(COUNT).is_clean());
        ledger.acknowledge(0, place(5));
        assert!(ledger.judge(COUNT).is_clean() && !ledger.have_got(COUNT + 1));
        for client in [0, 2] {
            assert_eq!(ledger.judge(COUNT + 1).clients[client].lost, 1, "what another client got does not count");
            ledger.get(client, 6, Some(5));
        }
        assert!(ledger.judge(COUNT + 1).is_clean() && ledger.have_got(COUNT + 1));
    }

    #[test]
    fn an_event_that_does_not_reach_a_client_is_lost() {
        assert_eq!(faults(&RIGHT[..4]), Faults { lost: 1, ..Faults::default() });
        let middle = faults(&[(1, 0), (2, 1), (4, 3), (5, 4)]);
        assert_eq!(middle, Faults { lost: 1, disordered: 1, ..Faults::default() });
        let ledger = ledger(&RIGHT[..4]);
        assert!(!ledger.have_got(COUNT) && ledger.have_got(COUNT - 1));
        assert_eq!(ledger.got_counts(), [COUNT, COUNT - 1, COUNT]);
        assert_eq!(ledger.judge(COUNT).to_text(), "1 acknowledged events did not reach client 2");
    }

    #[test]
    fn an_event_that_the_leader_does_not_have_is_lost() {
        let mut ledger = ledger(&RIGHT);
        ledger.look_up(2, None);
        ledger.look_up(2, None); // It is looked up again at the end.
        ledger.look_up(3, Some(7)); // An event with this id, but another one.
        assert_eq!(ledger.judge(COUNT), Verdict { lost_events: 2, ..Verdict::default() });
    }

    #[test]
    fn an_event_that_comes_twice_is_a_duplicate() {
        let again = faults(&[(1, 0), (2, 1), (2, 1), (3, 2), (4, 3), (5, 4)]);
        assert_eq!(again, Faults { duplicates: 1, ..Faults::default() });
        let published_again = faults(&[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4)]);
        assert_eq!(published_again, Faults { duplicates: 1, ..Faults::default() });
    }

    #[test]
    fn a_wrong_order_is_noticed() {
        let swapped = faults(&[(1, 0), (3, 2), (2, 1), (4, 3), (5, 4)]);
        assert!(swapped.disordered >= 2 && swapped.lost == 0, "{swapped:?}");
        let other_place = faults(&[(1, 0), (2, 1), (3, 2), (4, 3), (6, 4)]);
        assert!(other_place.disordered > 0, "{other_place:?}");
    }

    #[test]
    fn strangers_and_lost_positions_are_noticed() {
        let mut ledger = ledger(&RIGHT);
        ledger.get(1, 6, None);
        ledger.note_break(1);
        assert_eq!(ledger.judge(COUNT), of_second(Faults { disordered: 1, breaks: 1, ..Faults::default() }));
    }

    #[test]
    fn the_faults_of_all_clients_are_summed_and_told_one_by_one() {
        let mut ledger = ledger(&RIGHT[..3]);
        ledger.get(2, 5, Some(4));
        let verdict = ledger.judge(COUNT);
        assert_eq!((verdict.sum(|faults| faults.lost), verdict.sum(|faults| faults.duplicates)), (2, 1));
        let told = "2 acknowledged events did not reach client 2, 1 publications came twice to client 3";
        assert_eq!(verdict.to_text(), told);
    }
}
