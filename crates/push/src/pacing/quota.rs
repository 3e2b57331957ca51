//! A provider's quota: a number of notifications per minute.
//!
//! It is a token bucket. The bucket holds the notifications of one second, and is filled evenly at 59/60 of the rate. So in
//! any 60 seconds at most the quota is sent: the content of the bucket, plus 59/60 of the quota that flow in.
//!
//! # The rate
//! - It begins at the full quota, because the operator says that the provider grants it.
//! - If the provider refuses a request because the quota is spent ([`Quota::on_spent`]), everything pauses as long as the
//!   provider asks, and the rate is halved, down to 1/64 of the quota. A burst of refusals halves it once: a request that was
//!   sent before the pause ended, or within a second after the last halving, does not count again.
//! - The notifications of each second raise the rate by 1/60 of the quota. So it takes a minute of sending from almost
//!   nothing to the full quota, which is how fast Google wants a sender to ramp up. The step is additive, not a factor,
//!   because then several senders of one project converge to fair shares.
//! - Quiet time changes nothing: afterwards, sending begins at the last rate.
//! - A restart forgets the rate. The bucket then has one notification, so that a restart does not add the notifications of
//!   another second to those sent before it.
//!
//! With a `ramp`, only a share of the rate is used: a tenth at first, all of it after sending for `ramp`, and less again while
//! nothing is sent. Google recommends this for bulk traffic. It makes the first seconds after quiet time slow.
//!
//! Threads may pass times out of order. A time less than a second in the past changes nothing. An earlier one means that the
//! clock was set back.
//!
//! The quota does not know other processes: if two servers send for one project, each needs a share of the quota.

use std::time::Duration;

use tidings_types::Timestamp;

/// The parts of one notification: the milliseconds of a minute times 60, so that the inflow per millisecond is an integer.
const PARTS: u64 = 60_000 * 60;
/// The parts that flow in per millisecond, for a rate of one notification per minute.
const FLOW: u64 = 59;
/// The bucket holds what the rate allows in this time.
const BURST: Duration = Duration::from_secs(1);
/// A time that is less than this in the past comes from another thread. Otherwise the clock was set back.
const CLOCK_STEP: Duration = Duration::from_secs(1);
/// Requests that were sent this soon after a halving do not halve the rate again.
const HALVING_INTERVAL: Duration = Duration::from_secs(1);
/// The slowest rate is this part of the quota: six halvings.
const RATE_DIVISOR_MAX: u64 = 64;
/// The notifications of one second raise the rate by this part of the quota.
const GROWTH_DIVISOR: u64 = 60;
/// Smallest and full share of the rate, per mille.
const SHARE_MIN: u64 = 100;
const SHARE_FULL: u64 = 1000;
/// Steps in which [`Quota::time_for`] follows a changing rate: enough for 64 seconds of growth and a ramp.
const FORECAST_STEP: Duration = Duration::from_millis(100);
const FORECAST_STEP_COUNT_MAX: u32 = 4000;

/// The state of one quota.
#[derive(Debug, Clone)]
pub struct Quota {
    per_minute: u64,
    /// The used part of the quota: at most `per_minute`, at least 1/64 of it.
    rate: u64,
    /// Notifications since the rate was last changed.
    sent: u64,
    halved_at: Timestamp,
    ramp: Duration,
    /// The share of the rate in per mille, and the fraction of a per mille.
    share: u64,
    share_rest: u64,
    /// The content of the bucket, in parts.
    level: u64,
    filled_at: Timestamp,
    paused_until: Timestamp,
    /// Something was taken since the bucket was last filled.
    in_use: bool,
}

impl Quota {
    /// `per_minute` notifications. With a `ramp` that is not zero, all of them are allowed only after sending for this long.
    ///
    /// # Panics
    /// When `per_minute` is 0.
    pub fn new(per_minute: u32, ramp: Duration, now: Timestamp) -> Self {
        assert!(per_minute > 0, "a quota of nothing never sends");
        Self {
            per_minute: per_minute.into(),
            rate: per_minute.into(),
            sent: 0,
            halved_at: Timestamp::default(),
            ramp,
            share: if ramp.is_zero() { SHARE_FULL } else { SHARE_MIN },
            share_rest: 0,
            level: PARTS,
            filled_at: now,
            paused_until: Timestamp::default(),
            in_use: false,
        }
    }

    /// Takes up to `wanted` notifications out of the bucket. Returns how many may be sent now.
    pub fn take(&mut self, wanted: usize, now: Timestamp) -> usize {
        self.fill(now);
        if wanted == 0 || now < self.paused_until {
            return 0;
        }
        self.in_use = true;
        let given = (self.level / PARTS).min(wanted as u64);
        self.level -= given * PARTS;
        self.sent += given;
        given as usize
    }

    /// Puts back notifications that were taken but not sent.
    pub fn give_back(&mut self, count: usize) {
        self.level = self.level.saturating_add(count as u64 * PARTS).min(self.capacity());
        self.sent = self.sent.saturating_sub(count as u64);
    }

    /// The provider refused a request that was sent at `sent_at` because the quota is spent, and asks for a `pause`.
    pub fn on_spent(&mut self, pause: Duration, sent_at: Timestamp, now: Timestamp) {
        self.fill(now);
        if sent_at >= self.paused_until.max(self.halved_at.saturating_add(HALVING_INTERVAL)) {
            self.rate = (self.rate / 2).max(self.per_minute / RATE_DIVISOR_MAX).max(1);
            self.halved_at = now;
        }
        self.sent = 0;
        self.paused_until = self.paused_until.max(now.saturating_add(pause));
        self.level = 0;
        if !self.ramp.is_zero() {
            self.share = SHARE_MIN;
        }
    }

    /// The current limit of notifications per minute; with a ramp, the limit at its end.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// How long until [`Quota::take`] returns at least one; zero if it does so now.
    pub fn next(&mut self, now: Timestamp) -> Duration {
        self.fill(now);
        let missing = PARTS.saturating_sub(self.level);
        let filled = Duration::from_millis(missing.div_ceil(self.speed() * FLOW));
        // The last filling may be later than `now`, with the time of another thread. Nothing flows in before it.
        let flows_at = if missing == 0 { self.paused_until } else { self.paused_until.max(self.filled_at) };
        flows_at.saturating_since(now) + filled
    }

    /// How long it takes to send `count` notifications, if nothing else is sent and nothing is refused.
    pub fn time_for(&self, count: u64, now: Timestamp) -> Duration {
        let (mut quota, mut left, mut at) = (self.clone(), count, now);
        for _ in 0..FORECAST_STEP_COUNT_MAX {
            left -= quota.take(usize::try_from(left).unwrap_or(usize::MAX), at) as u64;
            if left == 0 || (quota.speed() == quota.per_minute && at >= quota.paused_until) {
                break;
            }
            quota.grow(); // Like the next filling, so that the wait is computed with the raised rate.
            at = at.saturating_add(quota.next(at).max(FORECAST_STEP));
        }
        let flow = u128::from(quota.speed() * FLOW);
        let missing = (u128::from(left) * u128::from(PARTS)).saturating_sub(quota.level.into());
        let rest = if left == 0 { 0 } else { missing.div_ceil(flow) };
        at.saturating_since(now) + Duration::from_millis(u64::try_from(rest).unwrap_or(u64::MAX))
    }

    /// The notifications per minute that are allowed now: the rate, or the ramp's share of it.
    fn speed(&self) -> u64 {
        (self.rate * self.share / SHARE_FULL).max(1)
    }

    fn capacity(&self) -> u64 {
        (self.speed() * BURST.as_millis() as u64 * (FLOW + 1)).max(PARTS)
    }

    fn fill(&mut self, now: Timestamp) {
        let back = self.filled_at.saturating_since(now);
        if !back.is_zero() && back < CLOCK_STEP {
            return;
        }
        // The clock was set back. Stored times are moved with it, so that the bucket continues to fill.
        if !back.is_zero() {
            let step = self.filled_at.0 - now.0;
            self.paused_until = Timestamp(self.paused_until.0.saturating_sub(step));
            self.halved_at = Timestamp(self.halved_at.0.saturating_sub(step));
            self.filled_at = now;
        }
        let millis = now.saturating_since(self.filled_at).as_millis() as u64;
        if millis > 0 {
            self.grow();
        }
        let flowing_since = self.filled_at.max(self.paused_until.min(now));
        let flowing = now.saturating_since(flowing_since).as_millis() as u64;
        let flown = flowing.saturating_mul(self.speed() * FLOW);
        self.update_share(millis);
        self.level = self.level.saturating_add(flown).min(self.capacity());
        self.filled_at = now;
    }

    /// Raises the rate after the notifications of each second.
    fn grow(&mut self) {
        let second = self.rate.div_ceil(60);
        if self.rate == self.per_minute {
            self.sent = 0;
        } else if self.sent >= second {
            self.rate = (self.rate + (self.per_minute / GROWTH_DIVISOR).max(1)).min(self.per_minute);
            self.sent -= second;
        }
    }

    /// With a ramp: raises the share while the quota is in use, and lowers it while it is not.
    fn update_share(&mut self, millis: u64) {
        let ramp = self.ramp.as_millis() as u64;
        if ramp == 0 || millis == 0 {
            return;
        }
        let steps = millis.saturating_mul(SHARE_FULL - SHARE_MIN).saturating_add(self.share_rest);
        // A small quota is used once per notification, less often than every second.
        let pause = (2 * 60_000 / self.speed()).max(BURST.as_millis() as u64);
        let in_use = std::mem::take(&mut self.in_use) && millis <= pause;
        self.share = match in_use {
            true => (self.share + steps / ramp).min(SHARE_FULL),
            false => self.share.saturating_sub(steps / ramp).max(SHARE_MIN),
        };
        self.share_rest = steps % ramp;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);
    const MINUTE: u64 = 60_000;
    const TEN_MINUTES: u64 = 10 * MINUTE;

    fn at(millis: u64) -> Timestamp {
        NOW.saturating_add(Duration::from_millis(millis))
    }

    /// Takes everything every `step` milliseconds. Returns how many notifications it got.
    fn drain(quota: &mut Quota, from: u64, to: u64, step: usize) -> usize {
        (from..to).step_by(step).map(|millis| quota.take(usize::MAX, at(millis))).sum()
    }

    /// Takes every 10 ms until it has `count` notifications. Returns how long that took.
    fn send(quota: &mut Quota, mut count: usize, from: u64) -> u64 {
        let mut now = from;
        loop {
            count -= quota.take(count, at(now));
            if count == 0 {
                return now - from;
            }
            now += 10;
        }
    }

    #[test]
    fn a_minute_gives_the_quota_evenly() {
        let mut quota = Quota::new(600_000, Duration::ZERO, NOW);
        assert_eq!(quota.take(usize::MAX, NOW), 1, "a restart adds nothing to what was sent before it");
        assert_eq!(quota.take(usize::MAX, at(2000)), 10_000, "a second's worth");
        assert_eq!(quota.take(1, at(2000)), 0);
        assert_eq!(quota.next(at(2000)), Duration::from_millis(1));
        assert_eq!(quota.take(usize::MAX, at(2060)), 590);
        assert_eq!(drain(&mut quota, 2061, 62_001, 1), 589_410, "with the bucket, the quota in one minute");
        quota.give_back(3);
        assert_eq!(quota.take(usize::MAX, at(62_000)), 3);
    }

    #[test]
    fn after_quiet_time_it_begins_at_the_last_rate() {
        let mut quota = Quota::new(600_000, Duration::ZERO, NOW);
        let first = send(&mut quota, 60_000, TEN_MINUTES);
        assert!(first <= 5100, "60 000 after ten quiet minutes take {first} ms");
        // After a refusal, the bucket holds half as much, and half as much flows in.
        let refused_at = 2 * TEN_MINUTES;
        quota.on_spent(Duration::from_secs(60), at(refused_at), at(refused_at));
        assert_eq!(quota.rate(), 300_000);
        let second = drain(&mut quota, 3 * TEN_MINUTES, 3 * TEN_MINUTES + 1000, 10);
        assert!((9800..=10_200).contains(&second), "{second}");
    }

    #[test]
    fn a_burst_of_refusals_halves_once_and_sending_recovers() {
        let mut quota = Quota::new(600_000, Duration::ZERO, NOW);
        drain(&mut quota, 0, 5000, 10);
        for millis in 0..100 {
            quota.on_spent(Duration::from_secs(2), at(4900 + millis), at(5000 + millis));
        }
        assert_eq!(quota.rate(), 300_000);
        // A request that was sent before the end of the pause and answered after it.
        quota.on_spent(Duration::ZERO, at(4999), at(9000));
        assert_eq!(quota.rate(), 300_000);
        quota.on_spent(Duration::ZERO, at(9100), at(9200));
        assert_eq!(quota.rate(), 150_000);
        quota.on_spent(Duration::ZERO, at(10_100), at(10_150));
        assert_eq!(quota.rate(), 150_000, "sent within a second after the halving");
        (1..20).for_each(|second| quota.on_spent(Duration::ZERO, at(second * 20_000), at(second * 20_000)));
        assert_eq!(quota.rate(), 600_000 / 64);
        // Neither quiet time nor notifications that were given back raise the rate.
        for millis in 0..5000 {
            let given = quota.take(usize::MAX, at(TEN_MINUTES + millis));
            quota.give_back(given);
        }
        assert_eq!(quota.rate(), 600_000 / 64);
        drain(&mut quota, 2 * TEN_MINUTES, 2 * TEN_MINUTES + 30_000, 10);
        assert!((280_000..330_000).contains(&quota.rate()), "{}", quota.rate());
        drain(&mut quota, 2 * TEN_MINUTES + 30_000, 2 * TEN_MINUTES + 62_000, 10);
        assert_eq!(quota.rate(), 600_000);
    }

    #[test]
    fn a_forecast_is_right() {
        let fresh = |ramp| Quota::new(600_000, Duration::from_secs(ramp), NOW);
        let mut halved = fresh(0);
        halved.on_spent(Duration::from_secs(7), NOW, NOW);
        let mut slowest = fresh(0);
        (0..7).for_each(|second| slowest.on_spent(Duration::ZERO, at(2000 * second), at(2000 * second)));
        let mut small = Quota::new(7, Duration::ZERO, NOW);
        small.on_spent(Duration::ZERO, NOW, NOW);
        let cases = [(fresh(0), 60_000), (fresh(60), 60_000), (halved, 200_000), (slowest, 400_000), (small, 9)];
        for (mut quota, count) in cases {
            for from in [14_000, TEN_MINUTES] {
                let told = quota.time_for(count, at(from)).as_millis() as u64;
                let took = send(&mut quota.clone(), count as usize, from);
                assert!(told.abs_diff(took) <= 110 + took / 100, "{count} from {from}: told {told}, took {took}");
            }
            quota.take(usize::MAX, at(TEN_MINUTES));
        }
        assert_eq!(fresh(0).time_for(0, NOW), Duration::ZERO);
        assert!(Quota::new(1, Duration::ZERO, NOW).time_for(u64::MAX, NOW) > Duration::from_secs(1 << 40));
    }

    #[test]
    fn with_a_ramp_it_begins_slowly_and_again_after_a_pause_or_quiet_time() {
        let mut quota = Quota::new(600_000, Duration::from_secs(60), NOW);
        let first = drain(&mut quota, 0, 1000, 10);
        assert!((900..=1200).contains(&first), "a tenth: {first}");
        drain(&mut quota, 1000, 60_000, 10);
        let full = drain(&mut quota, 60_000, 61_000, 10);
        assert!((9700..=10_000).contains(&full), "{full}");
        quota.on_spent(Duration::from_secs(30), at(61_000), at(61_000));
        assert_eq!(drain(&mut quota, 61_000, 91_000, 10), 0);
        let again = drain(&mut quota, 91_000, 92_000, 10);
        assert!((400..=600).contains(&again), "a tenth of half the quota: {again}");
        drain(&mut quota, 92_000, 182_000, 10);
        let after_quiet = drain(&mut quota, 282_000, 283_000, 10);
        assert!((1800..=2200).contains(&after_quiet), "a tenth, and a second's worth of that: {after_quiet}");
    }

    #[test]
    fn a_small_quota_comes_to_the_end_of_its_ramp() {
        let mut quota = Quota::new(60, Duration::from_secs(60), NOW);
        let mut now = 0;
        while now < 5 * MINUTE {
            quota.take(1, at(now));
            now += quota.next(at(now)).as_millis() as u64;
        }
        assert_eq!(quota.share, SHARE_FULL);
    }

    #[test]
    fn the_smallest_quota_gives_one_a_minute() {
        let mut quota = Quota::new(1, Duration::ZERO, NOW);
        assert_eq!((quota.take(9, NOW), quota.take(9, at(61_016)), quota.take(9, at(61_017))), (1, 0, 1));
        assert_eq!(quota.next(at(61_017)), Duration::from_millis(61_017));
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let mut quota = Quota::new(60_000, Duration::ZERO, NOW);
        quota.on_spent(Duration::from_secs(10), NOW, NOW);
        assert_eq!(quota.next(Timestamp(5)), Duration::from_millis(10_003));
        assert_eq!(quota.take(5, Timestamp(10_008)), 1);
        quota.on_spent(Duration::ZERO, Timestamp(10_100), Timestamp(10_100));
        assert_eq!(quota.rate(), 15_000, "refusals count after it, too");
    }

    /// Milliseconds, and the notifications given then.
    type Given = [(u64, u64)];

    /// No window has more than its share and one bucket, and no minute has more than the quota.
    fn check_windows(given: &Given, per_minute: u32) -> Result<(), TestCaseError> {
        let rate = u64::from(per_minute);
        for (place, (from, _)) in given.iter().enumerate() {
            let mut sum = 0;
            for (to, count) in &given[place..] {
                sum += count;
                prop_assert!(sum * PARTS <= (to - from) * rate * FLOW + (rate * MINUTE).max(PARTS));
                prop_assert!(to - from >= MINUTE || sum <= rate, "{} in {} ms", sum, to - from);
            }
        }
        Ok(())
    }

    proptest! {
        /// Threads pass times that are up to a second old. A window ends at the latest time.
        #[test]
        fn times_out_of_order_give_no_more_and_promises_hold(
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
                    quota.on_spent(Duration::from_millis(late), at(now), at(now));
                }
                given.push((latest, quota.take(wanted, at(now)) as u64));
                let next = quota.next(at(now)).as_millis() as u64;
                prop_assert_eq!(quota.clone().take(1, at(now + next)), 1, "promised in {} ms", next);
            }
            check_windows(&given, per_minute)?;
        }

        /// With any refusals, never more than the quota is given, and the promises of `next` hold.
        #[test]
        fn it_gives_at_most_the_quota_and_promises_hold(
            per_minute in prop_oneof![1u32..200, 1u32..2_000_000], ramp in prop_oneof![Just(0), 0u64..5000],
            steps in prop::collection::vec(
                (0u64..9000, 0usize..50_000, prop::option::weighted(0.1, 0u64..5000)), 1..80
            ),
        ) {
            let mut quota = Quota::new(per_minute, Duration::from_millis(ramp), NOW);
            let (mut now, mut given) = (0, Vec::new());
            for (pause, wanted, stop) in steps {
                now += pause;
                if let Some(millis) = stop {
                    let (before, sent_at) = (quota.rate(), now.saturating_sub(millis));
                    quota.on_spent(Duration::from_millis(millis), at(sent_at), at(now));
                    prop_assert!(quota.rate() * 2 + 1 >= before && quota.rate() * 64 + 63 >= u64::from(per_minute));
                    prop_assert_eq!(quota.take(1, at(now + millis.saturating_sub(1))), 0);
                    now += millis.saturating_sub(1);
                }
                given.push((now, quota.take(wanted, at(now)) as u64));
                prop_assert!(quota.rate() <= per_minute.into());
                let next = quota.next(at(now)).as_millis() as u64;
                let mut later = quota.clone();
                prop_assert_eq!(later.take(1, at(now + next)), 1, "promised in {} ms", next);
            }
            check_windows(&given, per_minute)?;
        }
    }
}
