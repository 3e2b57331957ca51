//! The pause before the next attempt: exponential, with full jitter.
//!
//! When a service comes back, its clients must not all connect at once. So the wait is random over the whole window,
//! not around its end (Brooker, "Exponential Backoff And Jitter", 2015). A core: the caller passes random bits.

use std::time::Duration;

#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    /// Failures in a row.
    failed: u32,
}

impl Backoff {
    pub(crate) fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failed: 0 }
    }

    /// Returns the pause after a failed attempt: after the n-th failure in a row, evenly distributed between `min` and
    /// `min` × 2ⁿ, at most `max`. `random` is any 64 random bits.
    pub(crate) fn on_failed(&mut self, random: u64) -> Duration {
        self.failed = self.failed.saturating_add(1);
        let factor = 1u32.checked_shl(self.failed).unwrap_or(u32::MAX);
        let window = self.min.saturating_mul(factor).min(self.max).saturating_sub(self.min).as_nanos();
        // The high half of the product maps 64 random bits evenly onto the window.
        let nanos = (u128::from(random) * window) >> 64;
        self.min + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    pub(crate) fn on_success(&mut self) {
        self.failed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_window_doubles_up_to_the_maximum() {
        let (min, max) = (Duration::from_millis(100), Duration::from_secs(1));
        let mut longest = Backoff::new(min, max);
        let mut ends: Vec<u128> = Vec::new();
        for _ in 0..40 {
            ends.push(longest.on_failed(u64::MAX).as_micros().div_ceil(1000));
        }
        assert_eq!(ends[..5], [200, 400, 800, 1000, 1000]);
        assert!(ends[5..].iter().all(|end| *end == 1000));
        longest.on_success();
        assert_eq!(longest.on_failed(u64::MAX).as_micros().div_ceil(1000), 200);
    }

    proptest! {
        #[test]
        fn a_wait_is_within_its_window(
            min in 1u64..1_000_000, more in 0u64..1_000_000, randoms in prop::collection::vec(any::<u64>(), 1..80),
        ) {
            let (min, max) = (Duration::from_micros(min), Duration::from_micros(min + more));
            let mut backoff = Backoff::new(min, max);
            let mut window = min;
            for random in randoms {
                window = (window * 2).min(max);
                let wait = backoff.on_failed(random);
                prop_assert!((min..=window).contains(&wait), "{wait:?} is not in {min:?}..={window:?}");
            }
        }

        #[test]
        fn waits_fill_their_window(min in 1000u64..1_000_000) {
            let min = Duration::from_micros(min);
            let mut backoff = Backoff::new(min, min * 2);
            let step = u64::MAX / 64;
            let quarters: std::collections::BTreeSet<u128> = (0..64)
                .map(|n| (backoff.on_failed(n * step) - min).as_nanos() * 4 / min.as_nanos())
                .collect();
            prop_assert_eq!(quarters.into_iter().collect::<Vec<_>>(), vec![0, 1, 2, 3]);
        }
    }
}
