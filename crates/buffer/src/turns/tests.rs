//! The bound is tried for all sets of levels that wait, at all turns. A batch is compared with single turns.

use proptest::prelude::*;

use super::*;

/// How often in a row something can happen, if at each turn it depends on nothing but which turn of the period it is.
fn longest_run(can_happen: impl Fn(usize) -> bool) -> usize {
    let turns = (0..2 * PERIOD).map(|turn| can_happen(turn % PERIOD));
    turns.scan(0, |run, happens| Some(std::mem::replace(run, if happens { *run + 1 } else { 0 }))).max().unwrap()
}

/// Which level gets a turn depends on nothing but the turn and the levels that wait at that moment. So the worst case of many
/// turns is made of the worst cases of the single turns.
fn the_bound_holds<const LEVELS: usize>() {
    let chosen = |turn, waiting: usize| Turns::<LEVELS> { turn }.next(|level| waiting & 1 << level != 0);
    let sets = || 1..1_usize << LEVELS;
    assert_eq!(chosen(0, 0), None);
    for level in 1..LEVELS {
        let can_be_passed_over =
            |turn| sets().any(|waiting| waiting & 1 << level != 0 && chosen(turn, waiting) != Some(level));
        assert_eq!(longest_run(can_be_passed_over), PERIOD - 1, "level {level} of {LEVELS}");
    }
    let highest_can_be = |turn| sets().any(|waiting| chosen(turn, waiting) != Some(waiting.trailing_zeros() as usize));
    assert_eq!(longest_run(highest_can_be), usize::from(LEVELS > 1));
    let lower_turns = (0..PERIOD).filter(|&turn| highest_can_be(turn)).count();
    assert_eq!(lower_turns, LEVELS - 1, "all others are the highest one's");
}

#[test]
fn a_level_that_waits_is_passed_over_15_times_in_a_row_at_most_and_the_highest_once() {
    the_bound_holds::<1>();
    the_bound_holds::<2>();
    the_bound_holds::<3>();
    the_bound_holds::<4>();
    the_bound_holds::<5>();
    the_bound_holds::<6>();
    the_bound_holds::<7>();
    the_bound_holds::<8>();
}

/// Takes `demand` out of `held` in one batch; returns how many of each level.
fn batch<const LEVELS: usize>(turns: &mut Turns<LEVELS>, held: &mut [usize; LEVELS], demand: usize) -> [usize; LEVELS] {
    let mut taken = [0; LEVELS];
    let count = turns.take(demand, &mut |level, wanted| {
        let got = wanted.min(held[level]);
        held[level] -= got;
        taken[level] += got;
        got
    });
    assert_eq!(count, taken.iter().sum::<usize>());
    taken
}

/// The same, one by one.
fn singly<const LEVELS: usize>(
    turns: &mut Turns<LEVELS>,
    held: &mut [usize; LEVELS],
    demand: usize,
) -> [usize; LEVELS] {
    let before = *held;
    for _ in 0..demand {
        let Some(level) = turns.next(|level| held[level] > 0) else { break };
        held[level] -= 1;
    }
    std::array::from_fn(|level| before[level] - held[level])
}

#[test]
fn each_lower_level_that_waits_gets_one_of_16_turns() {
    let mut turns = Turns::new();
    assert_eq!(batch(&mut turns, &mut [1000; 3], 16), [14, 1, 1]);
    assert_eq!(batch(&mut turns, &mut [1000; 3], 160), [140, 10, 10]);
    assert_eq!(batch(&mut turns, &mut [1000, 0, 1000], 32), [30, 0, 2], "a level that has nothing has no turn");
    assert_eq!(batch(&mut turns, &mut [0, 1000, 1000], 32), [0, 30, 2]);
    assert_eq!(batch(&mut turns, &mut [3, 2, 1], 32), [3, 2, 1]);
    assert_eq!(batch(&mut turns, &mut [1000; 3], 0), [0; 3]);
    assert_eq!(batch(&mut Turns::new(), &mut [1000; 5], 16), [12, 1, 1, 1, 1]);
}

#[test]
fn a_small_batch_is_as_many_single_turns() {
    let cases = (0..PERIOD).flat_map(|turn| (0..=PERIOD).map(move |demand| (turn, demand)));
    for (turn, demand) in cases {
        for held in (0..4_usize.pow(3)).map(|it| [it % 4, it / 4 % 4, it / 16]) {
            let (mut one, mut other) = (Turns::<3> { turn }, Turns::<3> { turn });
            let taken = batch(&mut one, &mut held.clone(), demand);
            assert_eq!(taken, singly(&mut other, &mut held.clone(), demand), "{held:?}, {demand} from turn {turn}");
            assert_eq!(one.turn, other.turn);
        }
    }
}

proptest! {
    /// Also while more comes between the batches.
    #[test]
    fn a_batch_is_as_many_single_turns(
        steps in prop::collection::vec((0..60_usize, prop::array::uniform5(0..30_usize)), 1..100),
    ) {
        let (mut one, mut other) = (Turns::<5>::new(), Turns::<5>::new());
        let (mut held, mut left) = ([0; 5], [0; 5]);
        for (demand, more) in steps {
            for level in 0..5 {
                held[level] += more[level];
                left[level] += more[level];
            }
            prop_assert_eq!(batch(&mut one, &mut held, demand), singly(&mut other, &mut left, demand));
        }
    }

    /// The bounds once more, over random histories.
    #[test]
    fn none_that_waits_is_passed_over_more_often(waiting in prop::collection::vec(0..32_u32, 1..500)) {
        let (mut turns, mut passed_over) = (Turns::<5>::new(), [0; 5]);
        for waiting in waiting {
            let waits = |level: usize| waiting & 1 << level != 0;
            let chosen = turns.next(waits);
            prop_assert_eq!(chosen.is_some(), waiting > 0);
            for (level, passed_over) in passed_over.iter_mut().enumerate() {
                *passed_over = if waits(level) && chosen != Some(level) { *passed_over + 1 } else { 0 };
                prop_assert!(*passed_over < PERIOD, "level {}", level);
            }
        }
    }
}
