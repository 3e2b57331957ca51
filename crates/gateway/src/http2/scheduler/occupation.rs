//! How busy the connections of a thread are, and which of them wait for something to send.

use std::task::Waker;

/// One connection at work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seat {
    /// Streams that it may have open.
    pub(crate) limit: u32,
    pub(crate) in_flight: u32,
}

/// How busy the connections of a thread are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Occupation {
    pub(crate) connections: usize,
    /// Connections that wait for work: they have room, and nothing came.
    pub(crate) hungry: usize,
    /// Streams that all may have open.
    pub(crate) limit: u64,
    pub(crate) in_flight: u64,
    /// Notifications settled since the start.
    pub(crate) settled: u64,
}

/// The connections of a thread, by slot.
pub(super) struct Seats {
    seats: Vec<Option<Seat>>,
    /// Those that have room: woken when something is ready for them.
    hungry: Vec<Option<Waker>>,
}

impl Seats {
    pub(super) fn new(slot_count: usize) -> Self {
        Self { seats: vec![None; slot_count], hungry: vec![None; slot_count] }
    }

    /// What the connection in `slot` does; `None` when none works there.
    pub(super) fn note(&mut self, slot: usize, seat: Option<Seat>) {
        self.seats[slot] = seat;
    }

    /// The waker for when something is ready for the connection in `slot`; `None` when it has all that it can use.
    pub(super) fn set_hungry(&mut self, slot: usize, waker: Option<Waker>) {
        self.hungry[slot] = waker;
    }

    /// Lets every connection that waits look again.
    pub(super) fn wake_hungry(&mut self) {
        self.hungry.iter_mut().filter_map(Option::take).for_each(Waker::wake);
    }

    /// The sum over all connections.
    pub(super) fn occupation(&self, settled: u64) -> Occupation {
        let sum = |sum: Occupation, seat: &Seat| Occupation {
            connections: sum.connections + 1,
            limit: sum.limit + u64::from(seat.limit),
            in_flight: sum.in_flight + u64::from(seat.in_flight),
            ..sum
        };
        let hungry = self.hungry.iter().flatten().count();
        self.seats.iter().flatten().fold(Occupation { hungry, settled, ..Occupation::default() }, sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sum_of_those_at_work() {
        let mut seats = Seats::new(3);
        seats.note(0, Some(Seat { limit: 10, in_flight: 3 }));
        seats.note(1, Some(Seat { limit: 1, in_flight: 1 }));
        seats.note(2, Some(Seat { limit: 5, in_flight: 5 }));
        seats.note(2, None);
        seats.set_hungry(0, Some(Waker::noop().clone()));
        let expected = Occupation { connections: 2, hungry: 1, limit: 11, in_flight: 4, settled: 7 };
        assert_eq!(seats.occupation(7), expected);
        seats.wake_hungry();
        assert_eq!(seats.occupation(7), Occupation { hungry: 0, ..expected });
    }
}
