//! Token buckets: they limit the rate of a caller's requests.
//!
//! A bucket holds up to `burst` tokens and gets `per_second` of them back; each request takes one. It is stored as one
//! number, the moment at which it is full again ("theoretical arrival time" of the generic cell rate algorithm, ITU-T
//! I.371). A request is admitted if after it the bucket is full again within the time of `burst` requests.
//!
//! Bound: a fixed table of [`BUCKET_COUNT`] buckets, 512 KiB. It is never full and no bucket is evicted, so a flood of
//! new names gains nothing. A hash of the caller's name under a random key finds its bucket, so two callers may share
//! one. API keys have one each. A caller that shares a bucket with a too fast one is slowed down with it: n such
//! callers slow n in 65 536 others. A caller never gets more than its rate.
//!
//! Not a crate (governor): its table of callers has no bound, and it has a clock of its own.

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Buckets of one kind of caller.
const BUCKET_COUNT: usize = 1 << 16;
const NANOS: u64 = 1_000_000_000;

/// How fast one caller may send requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Requests a second, in the long run; at least 1.
    pub per_second: u32,
    /// Requests at once after a pause; at least 1.
    pub burst: u32,
}

impl Rate {
    /// Between two requests, in nanoseconds.
    fn interval(self) -> u64 {
        NANOS / u64::from(self.per_second.max(1))
    }

    /// Takes a token from the bucket that is full at `full_at`. Both moments are in nanoseconds of the same clock.
    ///
    /// # Errors
    /// The time until there is a token.
    fn take(self, full_at: u64, now: u64) -> Result<u64, Duration> {
        let interval = self.interval();
        let next = full_at.max(now).saturating_add(interval);
        let latest = now.saturating_add(interval.saturating_mul(u64::from(self.burst.max(1))));
        if next > latest { Err(Duration::from_nanos(next - latest)) } else { Ok(next) }
    }
}

/// The buckets of one kind of caller.
pub(crate) struct Buckets {
    rate: Rate,
    /// The moments at which the buckets are full again, in nanoseconds since `now` was zero.
    full_at: Box<[AtomicU64]>,
    hasher: RandomState,
}

impl fmt::Debug for Buckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buckets").field("rate", &self.rate).finish_non_exhaustive()
    }
}

impl Buckets {
    /// All buckets are full.
    pub(crate) fn new(rate: Rate) -> Self {
        Self::with_count(rate, BUCKET_COUNT)
    }

    /// One bucket for each of `count` callers that are known in advance, for [`Buckets::admit_at`].
    pub(crate) fn with_count(rate: Rate, count: usize) -> Self {
        let full_at = (0..count.max(1)).map(|_| AtomicU64::new(0)).collect();
        Self { rate, full_at, hasher: RandomState::new() }
    }

    /// The rate of each bucket.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Admits one request of `who` at `now`. All calls must count `now` from the same moment.
    ///
    /// # Errors
    /// The time to wait, if no other caller takes from the bucket.
    pub(crate) fn admit(&self, who: &impl Hash, now: Duration) -> Result<(), Duration> {
        self.admit_at(self.hasher.hash_one(who) as usize, now)
    }

    /// Like [`Buckets::admit`], for the caller with this index.
    ///
    /// # Errors
    /// The time to wait.
    pub(crate) fn admit_at(&self, index: usize, now: Duration) -> Result<(), Duration> {
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let bucket = &self.full_at[index % self.full_at.len()];
        let mut refused = Duration::ZERO;
        let taken = bucket.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            self.rate.take(full_at, now).map_err(|wait| refused = wait).ok()
        });
        taken.map(drop).map_err(|_| refused)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rates() -> impl Strategy<Value = Rate> {
        // Divisors of a second, so that the model below is exact.
        let per_second = prop::sample::select(vec![1, 2, 4, 5, 8, 10, 100, 1000]);
        (per_second, 1..70_u32).prop_map(|(per_second, burst)| Rate { per_second, burst })
    }

    proptest! {
        /// Compared with a real bucket: tokens come back, up to `burst`.
        #[test]
        fn a_caller_gets_what_a_bucket_of_tokens_holds(
            rate in rates(),
            pauses in prop::collection::vec(prop_oneof![Just(0), 0..50_000_000_u64, 0..5 * NANOS], 1..300),
        ) {
            let buckets = Buckets::new(rate);
            let interval = NANOS / u64::from(rate.per_second);
            // Tokens, in nanoseconds.
            let (mut held, mut now) = (interval * u64::from(rate.burst), 0);
            for pause in pauses {
                now += pause;
                held = (held + pause).min(interval * u64::from(rate.burst));
                let expected = if held >= interval { Ok(()) } else { Err(Duration::from_nanos(interval - held)) };
                if expected.is_ok() {
                    held -= interval;
                }
                prop_assert_eq!(buckets.admit(&"ada", Duration::from_nanos(now)), expected);
            }
        }
    }

    #[test]
    fn callers_do_not_slow_each_other_down() {
        let buckets = Buckets::new(Rate { per_second: 1, burst: 1 });
        assert!(buckets.admit(&"loud", Duration::ZERO).is_ok() && buckets.admit(&"loud", Duration::ZERO).is_err());
        // Two of these share a bucket once in 10^8 runs.
        let refused = (0..10_u32).filter(|who| buckets.admit(who, Duration::ZERO).is_err()).count();
        assert!(refused <= 1, "{refused}");
    }

    #[test]
    fn each_of_those_that_are_known_has_a_bucket_of_its_own() {
        let buckets = Buckets::with_count(Rate { per_second: 1, burst: 1 }, 300);
        for round in [true, false] {
            assert!((0..300).all(|index| buckets.admit_at(index, Duration::ZERO).is_ok() == round));
        }
    }

    #[test]
    fn what_is_no_rate_is_the_slowest() {
        let nothing = Rate { per_second: 0, burst: 0 };
        assert_eq!(nothing.take(0, 0), Ok(NANOS));
        assert_eq!(nothing.take(NANOS, 0), Err(Duration::from_secs(1)));
        assert!(nothing.take(u64::MAX, u64::MAX).is_ok(), "at the end of time nobody waits");
    }
}
