//! When a feed is polled next: a core, without clock and random bits of its own.
//!
//! After a poll that worked, the pause is the feed's interval, up to a tenth shorter or longer, so that feeds with the
//! same interval are not all polled at once. After failures in a row the interval doubles each time, up to
//! `backoff_max`. A server may ask for a longer pause (`Retry-After`), up to [`RETRY_AFTER_MAX`].

use std::time::Duration;

use tidings_push::retry::RETRY_AFTER_MAX;

/// How often a feed is polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// The pause between two polls that work.
    pub interval: Duration,
    /// The longest pause after failures, unless `interval` is longer.
    pub backoff_max: Duration,
}

/// The pauses of one feed.
#[derive(Debug)]
pub(crate) struct Schedule {
    pace: Pace,
    /// Failures in a row.
    failed: u32,
}

impl Schedule {
    pub(crate) fn new(pace: Pace) -> Self {
        Self { pace, failed: 0 }
    }

    /// The pause before the first poll: somewhere in the first tenth of the interval, at most 10 seconds.
    pub(crate) fn first(&self, random: u64) -> Duration {
        scaled(self.pace.interval.min(Duration::from_secs(100)), random, 0.0, 0.1)
    }

    /// The pause after a poll. `asked` is the server's `Retry-After`.
    pub(crate) fn next(&mut self, worked: bool, asked: Option<Duration>, random: u64) -> Duration {
        self.failed = if worked { 0 } else { self.failed.saturating_add(1) };
        let factor = 1_u32.checked_shl(self.failed).unwrap_or(u32::MAX);
        let cap = self.pace.backoff_max.max(self.pace.interval);
        let pause = scaled(self.pace.interval.saturating_mul(factor).min(cap), random, 0.9, 1.1);
        pause.max(asked.unwrap_or_default().min(RETRY_AFTER_MAX))
    }
}

/// A part of `whole` between `low` and `high`; `random` is any 64 random bits.
fn scaled(whole: Duration, random: u64, low: f64, high: f64) -> Duration {
    whole.mul_f64(low + (high - low) * (random as f64 / u64::MAX as f64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIDDLE: u64 = u64::MAX / 2;
    const PACE: Pace = Pace { interval: Duration::from_secs(60), backoff_max: Duration::from_secs(600) };

    fn seconds(pause: Duration) -> u64 {
        pause.as_secs_f64().round() as u64
    }

    #[test]
    fn the_interval_doubles_with_failures_in_a_row() {
        let mut schedule = Schedule::new(PACE);
        let mut next = |worked| seconds(schedule.next(worked, None, MIDDLE));
        let pauses = [true, false, false, false, false, false, true, false].map(&mut next);
        assert_eq!(pauses, [60, 120, 240, 480, 600, 600, 60, 120]);
        assert_eq!((0..100).map(|_| next(false)).last(), Some(600));
    }

    #[test]
    fn feeds_with_the_same_interval_drift_apart() {
        let mut schedule = Schedule::new(PACE);
        assert_eq!([0, u64::MAX].map(|random| seconds(schedule.next(true, None, random))), [54, 66]);
        assert_eq!([0, u64::MAX].map(|random| seconds(schedule.first(random))), [0, 6]);
    }

    #[test]
    fn a_server_may_ask_for_a_longer_pause_but_not_for_a_shorter_or_endless_one() {
        let mut schedule = Schedule::new(PACE);
        let mut next = |asked| seconds(schedule.next(true, Some(Duration::from_secs(asked)), MIDDLE));
        assert_eq!([1, 90, 1_000_000].map(&mut next), [60, 90, RETRY_AFTER_MAX.as_secs()]);
    }

    #[test]
    fn a_long_interval_is_no_shorter_after_a_failure() {
        let pace = Pace { interval: Duration::from_secs(7200), ..PACE };
        assert_eq!(seconds(Schedule::new(pace).next(false, None, MIDDLE)), 7200);
    }
}
