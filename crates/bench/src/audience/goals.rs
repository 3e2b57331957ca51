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

    #[test]
    fn the_larger_data_set_has_its_own_goals() {
        let (main, large) = (Goals::of(STATED_COUNT), Goals::of(127_000_000));
        assert_eq!(main.of_size(1_300_000), Some(Goal::AtMost(75.0)));
        assert_eq!(large.of_size(1_300_000), Some(Goal::AtMost(200.0)));
        assert_eq!((large.of_size(10_000), large.of_size(4_000_000)), (None, None));
        assert_eq!((main.first, large.first), (Goal::AtMost(1.0), Goal::AtMost(5.0)));
        assert!(main.main(main.first).is_some() && large.main(large.first).is_none());
    }
}
