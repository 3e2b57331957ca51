//! Whose turn it is among lakes of different priority.
//!
//! The highest priority that has something goes first, but of [`TURNS`] notifications one goes to the next lower that
//! has something: a goal is not behind a newsletter, and a newsletter still ends. The same rule holds between the
//! second and the third.
//!
//! With demand for n this is a walk of n turns. It is made in one go: what the lower ones are owed is taken first, then
//! the own, then whatever is left goes to the lower ones in order.

/// Of so many notifications one is a lower priority's.
pub(crate) const TURNS: usize = 16;

/// The state of one taker: how far it is on its way to the next turn of a lower priority, per priority but the lowest.
#[derive(Debug, Clone)]
pub(crate) struct Turns<const LEVELS: usize> {
    passed: [usize; LEVELS],
}

impl<const LEVELS: usize> Turns<LEVELS> {
    pub(crate) fn new() -> Self {
        Self { passed: [0; LEVELS] }
    }

    /// Takes `demand` from the levels, 0 being the highest, in the order that the rule gives. `take` takes up to so
    /// many of one level and returns how many it got; fewer means that the level has no more.
    pub(crate) fn take(&mut self, demand: usize, take: &mut impl FnMut(usize, usize) -> usize) -> usize {
        self.take_from(0, demand, take)
    }

    fn take_from(&mut self, level: usize, demand: usize, take: &mut impl FnMut(usize, usize) -> usize) -> usize {
        if demand == 0 || level == LEVELS {
            return 0;
        }
        if level + 1 == LEVELS {
            return take(level, demand);
        }
        let reached = self.passed[level] + demand;
        self.passed[level] = reached % TURNS;
        let owed = self.take_from(level + 1, reached / TURNS, take);
        let own = take(level, demand - owed);
        owed + own + self.take_from(level + 1, demand - owed - own, take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Takes `demand` out of `held`; returns how many of each.
    fn take(turns: &mut Turns<3>, held: &mut [usize; 3], demand: usize) -> [usize; 3] {
        let mut taken = [0; 3];
        let count = turns.take(demand, &mut |level, wanted| {
            let got = wanted.min(held[level]);
            held[level] -= got;
            taken[level] += got;
            got
        });
        assert_eq!(count, taken.iter().sum::<usize>());
        taken
    }

    #[test]
    fn one_of_sixteen_is_the_next_lowers() {
        let mut turns = Turns::new();
        assert_eq!(take(&mut turns, &mut [1000; 3], 16), [15, 1, 0]);
        assert_eq!(take(&mut turns, &mut [1000; 3], 256 - 16), [225, 14, 1]);
        assert_eq!(take(&mut turns, &mut [1000, 0, 1000], 32), [30, 0, 2], "who has nothing is passed over");
        assert_eq!(take(&mut turns, &mut [0, 1000, 1000], 32), [0, 30, 2]);
        assert_eq!(take(&mut turns, &mut [3, 2, 1], 32), [3, 2, 1]);
        assert_eq!(take(&mut turns, &mut [1000; 3], 0), [0; 3]);
    }

    proptest! {
        /// In whatever pieces demand comes: nothing is left lying while there is demand, nobody starves, and a lower
        /// priority gets no more than its share as long as a higher one has something.
        #[test]
        fn shares_hold_in_pieces(
            demands in proptest::collection::vec(0usize..60, 1..200),
            held in [0usize..4000, 0..4000, 0..4000],
        ) {
            let (mut turns, mut left, mut taken) = (Turns::<3>::new(), held, [0usize; 3]);
            for demand in demands {
                let before = left;
                let now = take(&mut turns, &mut left, demand);
                prop_assert_eq!(now.iter().sum::<usize>(), demand.min(before.iter().sum()));
                if left[0] == 0 {
                    break;
                }
                (0..3).for_each(|level| taken[level] += now[level]);
                let (all, lower) = (taken.iter().sum::<usize>(), taken[1] + taken[2]);
                prop_assert!(lower <= all / TURNS + 1, "{:?}", taken);
                prop_assert!(left[1] + left[2] == 0 || lower >= all / TURNS, "{:?}", taken);
            }
        }
    }
}
