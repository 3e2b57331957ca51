//! What was acknowledged, what the client got, and the verdict.
//!
//! Events are numbered from 0 and posted one after the other, so their publications must come in the order of their
//! numbers, each once, and at the offset that the acknowledgement named. A publication may come before its
//! acknowledgement.

use std::collections::BTreeSet;

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
    /// Offsets of the publications that the client has got, by number; 0 if it has not got the event.
    got: Vec<u64>,
    /// The client has got all events before this one.
    got_through: usize,
    last_offset: u64,
    /// Acknowledged events that the leader does not have.
    missing: BTreeSet<usize>,
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
    /// Acknowledged events that the client has not got.
    pub(super) lost_publications: u64,
    /// Publications that came again.
    pub(super) duplicates: u64,
    /// Publications out of order, not at the offset that was acknowledged, or of no event of the demo.
    pub(super) disordered: u64,
    /// Connections on which the client could not resume where it was.
    pub(super) breaks: u64,
}

impl Ledger {
    /// Notes the acknowledgement of the next event.
    pub(super) fn acknowledge(&mut self, place: Place) {
        self.acknowledged.push(place);
    }

    /// Notes a publication that the client got; `number` is `None` if it is of no event of the demo.
    pub(super) fn get(&mut self, offset: u64, number: Option<usize>) {
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

    /// Notes that the client connected again and could not resume.
    pub(super) fn note_break(&mut self) {
        self.breaks += 1;
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

    /// How many events the client has got.
    pub(super) fn got_count(&self) -> usize {
        self.got.iter().filter(|offset| **offset > 0).count()
    }

    /// Whether the client has got the first `count` events.
    pub(super) fn has_got(&self, count: usize) -> bool {
        self.got_through >= count
    }

    /// Judges the first `count` acknowledged events, and everything that the client got.
    pub(super) fn judge(&self, count: usize) -> Verdict {
        let (mut lost, mut elsewhere) = (0, 0);
        for (number, place) in self.acknowledged.iter().enumerate().take(count) {
            match self.got.get(number) {
                None | Some(0) => lost += 1,
                Some(offset) if *offset != place.offset => elsewhere += 1,
                Some(_) => {}
            }
        }
        Verdict {
            lost_events: self.missing.len() as u64,
            lost_publications: lost,
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

    /// Says in words what was wrong.
    pub(super) fn to_text(self) -> String {
        let parts = [
            (self.lost_events, "acknowledged events are not on the leader"),
            (self.lost_publications, "acknowledged events did not reach the client"),
            (self.duplicates, "publications reached the client twice"),
            (self.disordered, "publications were out of order or in the wrong place"),
            (self.breaks, "times the client could not resume where it was"),
        ];
        let wrong = parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
        wrong.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNT: usize = 5;

    fn place(number: usize) -> Place {
        Place { position: number as u64 + 100, offset: number as u64 + 1 }
    }

    /// Five events were acknowledged and found. The client got these (offset, number).
    fn ledger(got: &[(u64, usize)]) -> Ledger {
        let mut ledger = Ledger::default();
        for number in 0..COUNT {
            ledger.acknowledge(place(number));
            ledger.look_up(number, Some(place(number).position));
        }
        got.iter().for_each(|(offset, number)| ledger.get(*offset, Some(*number)));
        ledger
    }

    fn verdict(got: &[(u64, usize)]) -> Verdict {
        ledger(got).judge(COUNT)
    }

    const RIGHT: [(u64, usize); COUNT] = [(1, 0), (2, 1), (3, 2), (4, 3), (5, 4)];

    #[test]
    fn everything_once_and_in_order_is_right() {
        let ledger = ledger(&RIGHT);
        assert!(ledger.judge(COUNT).is_clean() && ledger.has_got(COUNT) && !ledger.has_got(COUNT + 1));
        assert_eq!((ledger.acknowledged_count(), ledger.got_count()), (COUNT, COUNT));
    }

    #[test]
    fn a_publication_may_come_before_its_acknowledgement() {
        let mut ledger = ledger(&RIGHT);
        ledger.get(6, Some(5));
        assert!(ledger.judge(COUNT).is_clean());
        ledger.acknowledge(place(5));
        assert!(ledger.judge(COUNT + 1).is_clean());
    }

    #[test]
    fn an_event_that_does_not_reach_the_client_is_lost() {
        let last = verdict(&RIGHT[..4]);
        assert_eq!(last, Verdict { lost_publications: 1, ..Verdict::default() });
        let middle = verdict(&[(1, 0), (2, 1), (4, 3), (5, 4)]);
        assert_eq!(middle, Verdict { lost_publications: 1, disordered: 1, ..Verdict::default() });
        assert!(!ledger(&RIGHT[..4]).has_got(COUNT));
        assert_eq!(last.to_text(), "1 acknowledged events did not reach the client");
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
        let again = verdict(&[(1, 0), (2, 1), (2, 1), (3, 2), (4, 3), (5, 4)]);
        assert_eq!(again, Verdict { duplicates: 1, ..Verdict::default() });
        let published_again = verdict(&[(1, 0), (2, 1), (3, 2), (4, 3), (5, 4), (6, 4)]);
        assert_eq!(published_again, Verdict { duplicates: 1, ..Verdict::default() });
    }

    #[test]
    fn a_wrong_order_is_noticed() {
        let swapped = verdict(&[(1, 0), (3, 2), (2, 1), (4, 3), (5, 4)]);
        assert_eq!((swapped.is_clean(), swapped.lost_publications), (false, 0));
        assert!(swapped.disordered >= 2, "{swapped:?}");
        let other_place = verdict(&[(1, 0), (2, 1), (3, 2), (4, 3), (6, 4)]);
        assert!(other_place.disordered > 0, "{other_place:?}");
    }

    #[test]
    fn strangers_and_lost_positions_are_noticed() {
        let mut ledger = ledger(&RIGHT);
        ledger.get(6, None);
        ledger.note_break();
        assert_eq!(ledger.judge(COUNT), Verdict { disordered: 1, breaks: 1, ..Verdict::default() });
    }
}
