//! A provider's quota: so many notifications a minute, not all in its first second.
//!
//! A token bucket that holds a second's worth and is filled evenly, so that in any minute no more than the quota and
//! that second are sent. Google wants traffic to begin slowly: from a tenth of the rate it rises to the whole within
//! `ramp`, and falls again while nothing is sent. When the provider says that the quota is spent ([`Quota::pause`]),
//! nothing is given out until it may be, and then from the slow end.
//!
//! Threads may hand in their moments out of order: one that lies less than a second back changes nothing. One further
//! back is of a clock that was set.
//!
//! Not for several processes: who runs two servers on one project gives each its share.

use std::time::Duration;

use tidings_types::Timestamp;

/// Milliseconds of a minute: one notification is this many parts, so that a millisecond's share of any quota is whole.
const PARTS: u64 = 60_000;
/// A bucket holds what flows in this time.
const BURST: Duration = Duration::from_secs(1);
/// Steps back below this are another thread's moment, not a clock that was set.
const CLOCK_STEP: Duration = Duration::from_secs(1);
/// Slowest and full rate, per mille.
const RATE_MIN: u64 = 100;
const RATE_FULL: u64 = 1000;

/// The books about one quota.
#[derive(Debug, Clone)]
pub struct Quota {
    per_minute: u64,
    ramp: Duration,
    /// In parts.
    level: u64,
    /// Of the full rate, per mille, and its fraction that is not a whole per mille yet.
    rate: u64,
    rate_rest: u64,
    filled_at: Timestamp,
    paused_until: Timestamp,
    /// Something was taken since the bucket was filled last.
    in_use: bool,
}

impl Quota {
    /// `per_minute` notifications, the full rate after `ramp`; without one, at once.
    ///
    /// # Panics
    /// When `per_minute` is 0.
    pub fn new(per_minute: u32, ramp: Duration, now: Timestamp) -> Self {
        assert!(per_minute > 0, "a quota of nothing never sends");
        let rate = if ramp.is_zero() { RATE_FULL } else { RATE_MIN };
        let mut quota = Self {
            per_minute: per_minute.into(),
            ramp,
            level: 0,
            rate,
            rate_rest: 0,
            filled_at: now,
            paused_until: Timestamp::default(),
            in_use: false,
        };
        quota.level = PARTS.max(quota.capacity() * rate / RATE_FULL);
        quota
    }

    /// Takes up to `wanted` out of the bucket; returns how many may be sent now.
    pub fn take(&mut self, wanted: usize, now: Timestamp) -> usize {
        self.fill(now);
        if wanted == 0 || now < self.paused_until {
            return 0;
        }
        self.in_use = true;
        let given = (self.level / PARTS).min(wanted as u64);
        self.level -= given * PARTS;
        given as usize
    }

    /// Puts back what was taken and not sent.
    pub fn give_back(&mut self, count: usize) {
        self.level = self.level.saturating_add(count as u64 * PARTS).min(self.capacity());
    }

    /// The provider wants nothing for so long.
    pub fn pause(&mut self, pause: Duration, now: Timestamp) {
        self.fill(now);
        self.paused_until = self.paused_until.max(now.saturating_add(pause));
        self.level = 0;
        if !self.ramp.is_zero() {
            self.rate = RATE_MIN;
        }
    }

    /// How long until [`Quota::take`] gives at least one; zero when it does now.
    pub fn next(&mut self, now: Timestamp) -> Duration {
        self.fill(now);
        let missing = PARTS.saturating_sub(self.level) * RATE_FULL;
        let filled = Duration::from_millis(missing.div_ceil(self.per_minute * self.rate));
        // Nothing flows before the last filling, of which another thread may have given a later moment than `now`.
        let flows_at = if missing == 0 { self.paused_until } else { self.paused_until.max(self.filled_at) };
        flows_at.saturating_since(now) + filled
    }

    fn capacity(&self) -> u64 {
        (self.per_minute * BURST.as_millis() as u64).max(PARTS)
    }

    fn fill(&mut self, now: Timestamp) {
        let back = self.filled_at.saturating_since(now);
        if !back.is_zero() && back < CLOCK_STEP {
            return;
        }
        // A clock set back: what was said of later moments is no longer true, but the bucket flows on.
        if now < self.filled_at {
            self.paused_until = Timestamp(self.paused_until.0.saturating_sub(self.filled_at.0 - now.0));
            self.filled_at = now;
        }
        let flowing_since = self.filled_at.max(self.paused_until.min(now));
        let flowing = now.saturating_since(flowing_since).as_millis() as u64;
        let flown = flowing.saturating_mul(self.per_minute).saturating_mul(self.rate) / RATE_FULL;
        self.level = self.level.saturating_add(flown).min(self.capacity());
        self.turn(now.saturating_since(self.filled_at).as_millis() as u64);
        self.filled_at = now;
    }

    /// Lets the rate rise while it is used and fall while it is not.
    fn turn(&mut self, millis: u64) {
        let ramp = self.ramp.as_millis() as u64;
        if ramp == 0 || millis == 0 {
            return;
        }
        let steps = millis.saturating_mul(RATE_FULL - RATE_MIN).saturating_add(self.rate_rest);
        let in_use = std::mem::take(&mut self.in_use) && millis <= BURST.as_millis() as u64;
        self.rate = match in_use {
            true => (self.rate + steps / ramp).min(RATE_FULL),
            false => self.rate.saturating_sub(steps / ramp).max(RATE_MIN),
        };
        self.rate_rest = steps % ramp;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn at(millis: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_millis(millis))
    }

    /// Asks for all there is every `step` milliseconds for so long; returns how many were given.
    fn drain(quota: &mut Quota, from: u64, to: u64, step: usize) -> usize {
        (from..to).step_by(step).map(|millis| quota.take(usize::MAX, at(millis))).sum()
    }

    #[test]
    fn a_minute_gives_the_quota_evenly() {
        let mut quota = Quota::new(600_000, Duration::ZERO, NOW);
        assert_eq!(quota.take(usize::MAX, NOW), 10_000, "a second's worth");
        assert_eq!(quota.take(1, NOW), 0);
        assert_eq!(quota.next(NOW), Duration::from_millis(1));
        assert_eq!(quota.take(usize::MAX, at(1)), 10);
        assert_eq!(drain(&mut quota, 2, 60_001, 7), 599_980);
        quota.give_back(3);
        assert_eq!(quota.take(usize::MAX, at(60_000)), 3 + 10);
    }

    #[test]
    fn it_begins_slowly_and_again_after_a_pause_or_a_rest() {
        let mut quota = Quota::new(600_000, Duration::from_secs(60), NOW);
        let first = drain(&mut quota, 0, 1000, 10);
        assert!((1900..=2200).contains(&first), "a tenth, and a tenth of a second's worth: {first}");
        drain(&mut quota, 1000, 60_000, 10);
        let full = drain(&mut quota, 60_000, 61_000, 10);
        assert!((9900..=10_000).contains(&full), "{full}");
        quota.pause(Duration::from_secs(30), at(61_000));
        assert_eq!(quota.next(at(61_000)), Duration::from_millis(30_001));
        assert_eq!(drain(&mut quota, 61_000, 91_000, 10), 0);
        let again = drain(&mut quota, 91_000, 92_000, 10);
        assert!((900..=1100).contains(&again), "{again}");
        drain(&mut quota, 92_000, 152_000, 10);
        assert_eq!(quota.take(usize::MAX, at(252_000)), 10_000, "the bucket is full after a rest");
        let rested = drain(&mut quota, 252_010, 253_010, 10);
        assert!((900..=1200).contains(&rested), "{rested}");
    }

    #[test]
    fn the_smallest_quota_gives_one_a_minute() {
        let mut quota = Quota::new(1, Duration::ZERO, NOW);
        assert_eq!((quota.take(9, NOW), quota.take(9, at(59_999)), quota.take(9, at(60_000))), (1, 0, 1));
        assert_eq!(quota.next(at(60_000)), Duration::from_secs(60));
    }

    #[test]
    fn a_clock_set_back_stops_nothing() {
        let mut quota = Quota::new(60_000, Duration::ZERO, NOW);
        quota.pause(Duration::from_secs(10), NOW);
        assert_eq!(quota.next(Timestamp(5)), Duration::from_millis(10_001));
        assert_eq!(quota.take(5, Timestamp(10_006)), 1);
    }

    proptest! {
        /// The same where threads hand in moments up to a second old: a window ends at the latest of them.
        #[test]
        fn moments_out_of_order_give_no_more_and_promises_hold(
            per_minute in 1u32..2_000_000, ramp in 0u64..5000,
            steps in prop::collection::vec((0u64..500, 0u64..1000, 0usize..50_000, any::<bool>()), 1..80),
        ) {
            let mut quota = Quota::new(per_minute, Duration::from_millis(ramp), NOW);
            let (mut clock, mut latest, mut given) = (1000, 0, Vec::new());
            for (pause, late, wanted, stops) in steps {
                clock += pause;
                let now = clock - late;
                latest = now.max(latest);
                if stops && wanted % 8 == 0 {
                    quota.pause(Duration::from_millis(late), at(now));
                }
                given.push((latest, quota.take(wanted, at(now)) as u64));
                let next = quota.next(at(now)).as_millis() as u64;
                prop_assert_eq!(quota.clone().take(1, at(now + next)), 1, "promised in {} ms", next);
            }
            let rate = u64::from(per_minute);
            for (place, (from, _)) in given.iter().enumerate() {
                let mut sum = 0;
                for (to, count) in &given[place..] {
                    sum += count;
                    prop_assert!(sum * PARTS <= (to - from) * rate + (rate * 1000).max(PARTS));
                }
            }
        }

        /// In no window of time more than its share and one burst; and what `next` promises comes true.
        #[test]
        fn never_more_than_the_quota_and_always_what_is_promised(
            per_minute in 1u32..2_000_000, ramp in 0u64..5000,
            steps in prop::collection::vec(
                (0u64..3000, 0usize..50_000, prop::option::weighted(0.1, 0u64..5000)), 1..80
            ),
        ) {
            let mut quota = Quota::new(per_minute, Duration::from_millis(ramp), NOW);
            let (mut now, mut given) = (0, Vec::new());
            for (pause, wanted, stop) in steps {
                now += pause;
                if let Some(millis) = stop {
                    quota.pause(Duration::from_millis(millis), at(now));
                    prop_assert_eq!(quota.take(1, at(now + millis.saturating_sub(1))), 0);
                    now += millis.saturating_sub(1);
                }
                given.push((now, quota.take(wanted, at(now)) as u64));
                let next = quota.next(at(now)).as_millis() as u64;
                let mut later = quota.clone();
                prop_assert_eq!(later.take(1, at(now + next)), 1, "promised in {} ms", next);
            }
            let rate = u64::from(per_minute);
            for (place, (from, _)) in given.iter().enumerate() {
                let mut sum = 0;
                for (to, count) in &given[place..] {
                    sum += count;
                    prop_assert!(sum * PARTS <= (to - from) * rate + (rate * 1000).max(PARTS));
                }
            }
        }
    }
}
