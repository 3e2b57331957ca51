//! The goals. They are stated for 25 M subscriptions, some also for 127 M.

use super::super::report::{Goal, Report};

/// Memory of the index per subscription.
pub(super) const INDEX_BYTES: f64 = 5.0;
pub(super) const DISK_BYTES: f64 = 60.0;
/// Devices handed out per second, in millions.
pub(super) const DEVICES_M: f64 = 18.0;
/// Durable updates per second.
pub(super) const UPDATES: f64 = 40_000.0;
pub(super) const UPDATES_SELECTING: f64 = 30_000.0;
pub(super) const UPDATE_P99_MS: f64 = 20.0;
/// Seconds to open the store with a checkpoint, and without one.
pub(super) const START_S: f64 = 0.5;
pub(super) const REBUILD_S: f64 = 15.0;
/// Milliseconds with files that are not in the kernel's cache: the first device, and an audience of 1.3 M.
pub(super) const COLD_FIRST_MS: f64 = 25.0;
pub(super) const COLD_ALL_MS: f64 = 600.0;

/// The number of subscriptions that the goals are stated for, and the number from which on the other goals hold.
const STATED_COUNT: u32 = 25_000_000;
const LARGE_COUNT: u32 = 100_000_000;

/// The goals for one number of subscriptions.
pub(super) struct Goals {
    /// Sizes of audiences, each with the goal for handing all of it out, in milliseconds.
    pub(super) sizes: [(u64, Option<f64>); 4],
    /// For the first device, in milliseconds.
    pub(super) first: Goal,
    is_large: bool,
}

impl Goals {
    pub(super) fn of(subscriptions: u32) -> Self {
        let is_large = subscriptions >= LARGE_COUNT;
        let (sizes, first) = if is_large {
            ([(10_000, None), (400_000, None), (1_300_000, Some(200.0)), (3_800_000, Some(300.0))], 5.0)
        } else {
            ([(10_000, Some(5.0)), (400_000, Some(45.0)), (1_300_000, Some(75.0)), (4_000_000, Some(120.0))], 1.0)
        };
        Self { sizes, first: Goal::AtMost(first), is_large }
    }

    /// The goal for handing out an audience of this size.
    pub(super) fn of_size(&self, wanted: u64) -> Option<Goal> {
        self.sizes.iter().find(|&&(size, _)| size == wanted).and_then(|&(_, goal)| goal).map(Goal::AtMost)
    }

    /// A goal that is stated only for 25 M subscriptions.
    pub(super) fn main(&self, goal: Goal) -> Option<Goal> {
        (!self.is_large).then_some(goal)
    }
}

/// Adds a note if the goals are stated for more subscriptions.
pub(super) fn note(subscriptions: u32, report: &mut Report) {
    if subscriptions < STATED_COUNT / 10 * 9 {
        report.note("Goals are stated for 25 M subscriptions; with fewer, opening and selecting are easier to reach.");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Digest;

    /// The time for all of it, in milliseconds.
    fn millis(goals: &Goals, size: u64) -> Option<f64> {
        match goals.of_size(size)? {
            Goal::AtMost(millis) => Some(millis),
            Goal::AtLeast(_) => panic!("a time has an upper bound"),
        }
    }

    #[test]
    fn each_data_set_has_goals_for_its_own_audiences() {
        for subscriptions in [0, STATED_COUNT, LARGE_COUNT, u32::MAX] {
            let goals = Goals::of(subscriptions);
            let found: Vec<_> = goals.sizes.iter().map(|(size, _)| millis(&goals, *size)).collect();
            assert_eq!(found, goals.sizes.map(|(_, goal)| goal), "of {subscriptions}");
            let stated: Vec<_> = goals.sizes.iter().filter_map(|(size, goal)| goal.map(|goal| (*size, goal))).collect();
            assert!(stated.len() >= 2, "of {subscriptions}: {stated:?}");
            let is_rising = |pair: &[(u64, f64)]| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1;
            assert!(stated.windows(2).all(is_rising), "a larger audience may take longer: {stated:?}");
            assert_eq!(goals.of_size(stated[0].0 + 1), None, "no other audience has a goal");
        }
    }

    #[test]
    fn the_larger_data_set_may_take_longer_and_has_no_goal_that_is_stated_for_the_smaller() {
        let [main, almost, large] = [STATED_COUNT, LARGE_COUNT - 1, LARGE_COUNT].map(Goals::of);
        let shared: Vec<u64> =
            main.sizes.iter().map(|(size, _)| *size).filter(|size| millis(&large, *size).is_some()).collect();
        assert!(
            !shared.is_empty() && shared.iter().all(|size| millis(&main, *size) < millis(&large, *size)),
            "{shared:?}"
        );
        let (Goal::AtMost(sooner), Goal::AtMost(later)) = (main.first, large.first) else { panic!("times") };
        assert!(sooner < later);
        let goal = Goal::AtLeast(DEVICES_M);
        assert_eq!([main.main(goal), almost.main(goal), large.main(goal)], [Some(goal), Some(goal), None]);
        assert_eq!(almost.sizes, main.sizes);
    }

    /// A rate and a time for the same audience: neither makes the other needless.
    #[test]
    fn the_rate_and_the_time_of_a_large_audience_agree() {
        let seconds = millis(&Goals::of(STATED_COUNT), 1_300_000).unwrap() / 1000.0;
        let rate = 1.3 / seconds;
        assert!((rate / DEVICES_M - 1.0).abs() < 0.1, "{rate} M/s by the time, {DEVICES_M} M/s by the rate");
    }

    #[test]
    fn with_few_subscriptions_the_report_has_a_note() {
        let notes = |subscriptions| {
            let mut report = Report::new("audience");
            note(subscriptions, &mut report);
            report.answered("goals", Digest::of_numbers([7])).unwrap();
            report.finish().unwrap().to_json()["notes"].as_array().unwrap().len()
        };
        let least = STATED_COUNT / 10 * 9;
        assert_eq!([0, least - 1, least, STATED_COUNT, LARGE_COUNT].map(notes), [1, 1, 0, 0, 0]);
    }
}
