//! The pause before the next attempt: exponential, with full jitter.
//!
//! When a service comes back, its clients must not all come at once. So the pause is random over the whole window, not around its
//! end (Brooker, "Exponential Backoff And Jitter", 2015).

use std::time::Duration;

/// The pauses between attempts that fail: after the n-th failure in a row a random time up to `base` × 2ⁿ⁻¹, at most `cap`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    least: Duration,
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// Pauses of up to `base` after the first failure, and of at most `cap`.
    ///
    /// # Panics
    /// If `base` is zero, or longer than `cap`: then attempts would follow one another without a pause. In a constant the compiler
    /// refuses that.
    pub const fn new(base: Duration, cap: Duration) -> Self {
        assert!(!base.is_zero(), "a pause that is always zero is none");
        assert!(base.as_nanos() <= cap.as_nanos(), "the first pause is not longer than the longest");
        Self { least: Duration::ZERO, base, cap }
    }

    /// The same, but no pause is shorter than `least`; the longest stays.
    ///
    /// # Panics
    /// If `least` is longer than the longest pause.
    #[must_use]
    pub const fn at_least(self, least: Duration) -> Self {
        assert!(least.as_nanos() <= self.cap.as_nanos(), "the shortest pause is not longer than the longest");
        Self { least, ..self }
    }

    /// The longest of all pauses.
    pub const fn cap(&self) -> Duration {
        self.cap
    }

    /// The pause after `failures` in a row, of which the first is 1. `random` is any 64 random bits.
    pub fn pause(&self, failures: u32, random: u64) -> Duration {
        let window = self.window(failures).saturating_sub(self.least).as_nanos();
        // The high half of the product maps 64 random bits evenly onto the window.
        let nanos = (u128::from(random) * window) >> 64;
        self.least + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The same, but at least half of what it could be: for one who asks alone, and should not ask again at once.
    pub fn long_pause(&self, failures: u32, random: u64) -> Duration {
        self.window(failures) / 2 + self.pause(failures, random) / 2
    }

    /// The pause, if something is left of the time after it.
    pub fn pause_within(&self, left: Duration, failures: u32, random: u64) -> Option<Duration> {
        Some(self.pause(failures, random)).filter(|pause| *pause < left)
    }

    /// The longest pause after so many failures.
    fn window(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
        (self.least + self.base.saturating_mul(factor)).min(self.cap)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_window_doubles_up_to_the_longest_pause() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(1));
        let ends =
            [1, 2, 3, 4, 5, 40, u32::MAX].map(|failures| backoff.pause(failures, u64::MAX).as_micros().div_ceil(1000));
        assert_eq!(ends, [100, 200, 400, 800, 1000, 1000, 1000]);
        let later = backoff.at_least(Duration::from_millis(300));
        assert_eq!([0, u64::MAX].map(|random| later.pause(1, random).as_micros().div_ceil(1000)), [300, 400]);
        assert_eq!(later.pause(40, u64::MAX).as_micros().div_ceil(1000), 1000);
        assert_eq!([0, u64::MAX].map(|random| backoff.long_pause(2, random).as_micros().div_ceil(1000)), [100, 200]);
    }

    #[test]
    fn nonsense_is_refused() {
        let second = Duration::from_secs(1);
        assert!(std::panic::catch_unwind(|| Backoff::new(Duration::ZERO, second)).is_err());
        assert!(std::panic::catch_unwind(|| Backoff::new(second * 2, second)).is_err());
        assert!(std::panic::catch_unwind(|| Backoff::new(second, second).at_least(second * 2)).is_err());
    }

    proptest! {
        #[test]
        fn a_pause_is_within_its_window_and_its_time(
            (base, more, least) in (1u64..1_000_000, 0u64..1_000_000, 0u64..1_000_000),
            (failures, random, left) in (0u32..100, any::<u64>(), 0u64..2_000_000),
        ) {
            let [base, cap] = [base, base + more].map(Duration::from_micros);
            let least = Duration::from_micros(least).min(cap);
            let backoff = Backoff::new(base, cap).at_least(least);
            let pause = backoff.pause(failures, random);
            prop_assert!(pause >= least && pause <= cap);
            prop_assert!(pause <= backoff.pause(failures + 1, random), "more failures, longer pauses");
            let left = Duration::from_micros(left);
            prop_assert_eq!(backoff.pause_within(left, failures, random), (pause < left).then_some(pause));
        }

        #[test]
        fn pauses_fill_their_window(base in 1000u64..1_000_000) {
            let base = Duration::from_micros(base);
            let backoff = Backoff::new(base, base);
            let step = u64::MAX / 64;
            let quarters: std::collections::BTreeSet<u128> =
                (0..64).map(|n| backoff.pause(1, n * step).as_nanos() * 4 / base.as_nanos()).collect();
            prop_assert_eq!(quarters.into_iter().collect::<Vec<_>>(), vec![0, 1, 2, 3]);
        }
    }
}
