//! How a connection takes from the lakes of its pool, and waits in their lines.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidings_buffer::{Consumer, Turns};
use tidings_push::{Lakes, Notification};
use tidings_types::EventPriority;

/// Lakes of a pool, one per priority.
pub(crate) const LAKE_COUNT: usize = EventPriority::ALL.len();

/// Takes from all lakes of a pool by [`Turns`], and waits in the lines of empty lakes.
pub(crate) struct Intake {
    lines: [Line; LAKE_COUNT],
}

struct Line {
    consumer: Consumer<Notification>,
    /// It waits in a line. If not, leaving needs no lock.
    waits: bool,
}

impl Intake {
    /// A taker that does not wait for anything yet.
    pub(crate) fn new(lakes: &Lakes) -> Self {
        let lines = lakes.all().each_ref().map(|lake| Line { consumer: Consumer::new(Arc::clone(lake)), waits: false });
        Self { lines }
    }

    /// Takes up to `demand` notifications, for each priority first from `at_hand`, then from its lake. `at_hand` is
    /// told how many are wanted and returns how many it had. At most `room` come out of the lakes; they are appended to
    /// `out` by priority. Returns whether all lakes are closed and empty. If some are missing, the task is woken when
    /// they come. Without demand or room it leaves all lines.
    pub(crate) fn poll_take(
        &mut self,
        cx: &mut Context<'_>,
        (demand, mut room): (usize, usize),
        turns: &mut Turns<LAKE_COUNT>,
        at_hand: &mut impl FnMut(usize, usize) -> usize,
        out: &mut [Vec<Notification>; LAKE_COUNT],
    ) -> bool {
        let taken = turns.take(demand, &mut |level, wanted| {
            let had = at_hand(level, wanted);
            let drawn = self.lines[level].take(cx, (wanted - had).min(room), &mut out[level]);
            room -= drawn;
            had + drawn
        });
        let mut missing = (demand - taken).min(room);
        let mut finished = 0;
        for (line, out) in self.lines.iter_mut().zip(out.iter_mut()) {
            match line.wait(cx, missing, out) {
                Poll::Ready(0) => finished += 1,
                Poll::Ready(count) => missing -= count, // It came meanwhile.
                Poll::Pending => {}
            }
        }
        if missing == 0 {
            self.lines.iter_mut().zip(out).for_each(|(line, out)| _ = line.wait(cx, 0, out));
        }
        finished == LAKE_COUNT
    }
}

impl Line {
    /// Takes up to `wanted` without waiting anew.
    fn take(&mut self, cx: &mut Context<'_>, wanted: usize, out: &mut Vec<Notification>) -> usize {
        if wanted == 0 {
            return 0;
        }
        if !self.waits {
            return self.consumer.lake().try_take(wanted, out);
        }
        match self.consumer.poll_take(cx, wanted, out) {
            Poll::Ready(count) => {
                self.waits = false;
                count
            }
            Poll::Pending => 0,
        }
    }

    /// Waits for `missing`, or leaves the line if that is 0. `Ready(0)` if nothing will ever come.
    fn wait(&mut self, cx: &mut Context<'_>, missing: usize, out: &mut Vec<Notification>) -> Poll<usize> {
        if missing == 0 && !self.waits {
            return Poll::Pending;
        }
        let taken = self.consumer.poll_take(cx, missing, out);
        self.waits = taken.is_pending() && missing > 0;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;
    use crate::attempt::tests::notification;

    #[derive(Default)]
    struct Rings(AtomicUsize);

    impl Wake for Rings {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Taker {
        intake: Intake,
        turns: Turns<LAKE_COUNT>,
        rings: Arc<Rings>,
        finished: bool,
    }

    impl Taker {
        fn new(lakes: &Lakes) -> Self {
            Self { intake: Intake::new(lakes), turns: Turns::new(), rings: Arc::default(), finished: false }
        }

        fn take(&mut self, demand: usize) -> Vec<u32> {
            self.take_beside(demand, usize::MAX, &mut |_, _| 0)
        }

        fn take_beside(
            &mut self,
            demand: usize,
            room: usize,
            at_hand: &mut impl FnMut(usize, usize) -> usize,
        ) -> Vec<u32> {
            let (waker, mut out) = (Waker::from(Arc::clone(&self.rings)), <[Vec<_>; LAKE_COUNT]>::default());
            let cx = &mut Context::from_waker(&waker);
            self.finished = self.intake.poll_take(cx, (demand, room), &mut self.turns, at_hand, &mut out);
            out.iter().flatten().map(|it| it.ticket.device.0).collect()
        }

        fn rings(&self) -> usize {
            self.rings.0.load(Ordering::Relaxed)
        }
    }

    fn push(lakes: &Lakes, priority: EventPriority, devices: std::ops::Range<u32>) {
        lakes.of(priority).try_push_batch(&mut devices.map(notification).collect()).unwrap();
    }

    #[test]
    fn the_urgent_come_first_and_any_lake_wakes_who_waits() {
        let lakes = Lakes::new(100);
        let (mut one, mut other) = (Taker::new(&lakes), Taker::new(&lakes));
        push(&lakes, EventPriority::Low, 20..23);
        push(&lakes, EventPriority::Normal, 10..12);
        push(&lakes, EventPriority::High, 0..2);
        assert_eq!(one.take(5), [0, 1, 10, 11, 20]);
        assert_eq!(one.take(5), [21, 22]);
        assert_eq!(other.take(5), [0; 0]);
        for (rings, priority) in (1..).zip(EventPriority::ALL) {
            push(&lakes, priority, 30..31);
            assert_eq!((one.rings(), other.rings()), (rings, 0), "the first in line, and only it");
            assert_eq!(one.take(1), [30]);
            assert_eq!(other.take(1), [0; 0]);
            assert_eq!(one.take(0), [0; 0]);
            _ = other.take(0); // One comes before it again.
            assert_eq!(one.take(1), [0; 0]);
            assert_eq!(other.take(1), [0; 0]);
        }
        assert_eq!(one.take(0), [0; 0]);
        push(&lakes, EventPriority::Low, 40..41);
        assert_eq!((one.rings(), other.rings()), (3, 1), "who has left the lines is not woken in vain");
    }

    #[test]
    fn the_end_is_known_when_all_are_closed_and_empty() {
        let lakes = Lakes::new(100);
        let mut taker = Taker::new(&lakes);
        push(&lakes, EventPriority::Normal, 0..3);
        _ = taker.take(1);
        assert!(!taker.finished);
        lakes.close();
        _ = taker.take(2);
        assert_eq!((taker.take(1), taker.finished), (Vec::new(), true));
    }

    #[test]
    fn what_is_at_hand_comes_before_its_own_lake_and_needs_no_room() {
        let lakes = Lakes::new(100);
        let mut taker = Taker::new(&lakes);
        push(&lakes, EventPriority::High, 0..2);
        push(&lakes, EventPriority::Normal, 10..20);
        let mut held = [1, 3, 0];
        let mut at_hand = |level: usize, wanted: usize| {
            let count = wanted.min(held[level]);
            held[level] -= count;
            count
        };
        assert_eq!(taker.take_beside(4, usize::MAX, &mut at_hand), [0, 1], "one at hand before, one after them");
        assert_eq!(taker.take_beside(5, 2, &mut at_hand), [10, 11], "two at hand");
        assert_eq!(taker.take_beside(5, 0, &mut at_hand), [0; 0]);
        push(&lakes, EventPriority::High, 3..4);
        assert_eq!(taker.rings(), 0, "without room it stands in no line");
        assert_eq!(taker.take(1), [3]);
    }
}
