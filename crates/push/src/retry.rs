//! When an attempt is repeated, and how many repeats may be in flight.
//!
//! A repeat waits a random time (full jitter: Brooker, "Exponential Backoff And Jitter") that grows with the number of
//! attempts. It is not made if the notification would have expired by then. There is no fixed number of attempts.
//! Instead, each repeat costs something of a [`RetryBudget`], which accepted notifications fill, so that a failing
//! provider does not get a multiple of the usual load.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use http::header::RETRY_AFTER;
use tidings_types::{Backoff, Timestamp};

/// The waits before repeats.
pub const BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(10));

/// The longest wait that a provider may ask for; longer ones are cut to this.
pub const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// The wait that `Retry-After` asks for, in seconds or until a date (RFC 9110, 10.2.3); `None` without a readable one.
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = match text.parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = httpdate::parse_http_date(text).ok()?.duration_since(UNIX_EPOCH).ok()?;
            at.saturating_sub(Duration::from_millis(now.as_millis()))
        }
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// When to repeat a notification after `attempts` failed attempts; `None` if it will have expired by then.
pub fn repeat_at(
    attempts: u32,
    floor: Duration,
    expires_at: Timestamp,
    random: u64,
    now: Timestamp,
) -> Option<Timestamp> {
    let left = expires_at.saturating_since(now).saturating_sub(floor);
    let wait = BACKOFF.pause_within(left, attempts, random)?;
    Some(now.saturating_add(floor + wait))
}

/// How many repeats may be made. Each costs one, and every notification that is accepted adds a tenth, at whichever attempt. So
/// in the long run repeats are at most a tenth of what is accepted. A small amount is added over time; otherwise a provider that
/// answers only errors would never be tried again.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    tenths: u64,
    /// Up to here the amount for the time was added.
    refilled_at: Timestamp,
}

/// The most that the budget holds, in repeats: about what one lost connection needs.
pub const RETRY_BUDGET_MAX: u64 = 1000;
/// What is added per second, in repeats.
pub const RETRY_FLOOR_PER_SECOND: u64 = 50;

const MILLIS_PER_TENTH: u64 = 100 / RETRY_FLOOR_PER_SECOND;
const _: () = assert!(MILLIS_PER_TENTH * RETRY_FLOOR_PER_SECOND == 100, "whole milliseconds");

impl RetryBudget {
    /// A full budget.
    pub fn new(now: Timestamp) -> Self {
        Self { tenths: RETRY_BUDGET_MAX * 10, refilled_at: now }
    }

    /// A notification was accepted, at the first attempt or later.
    pub fn on_accepted(&mut self) {
        self.add(1);
    }

    /// Pays for one repeat, if there is enough.
    pub fn try_spend(&mut self, now: Timestamp) -> bool {
        self.refilled_at = self.refilled_at.min(now); // A clock set back must not stop the flow until it catches up.
        let tenths = now.as_millis().saturating_sub(self.refilled_at.as_millis()) / MILLIS_PER_TENTH;
        self.refilled_at = Timestamp(self.refilled_at.0 + tenths * MILLIS_PER_TENTH); // The rest counts at the next call.
        self.add(tenths);
        let enough = self.tenths >= 10;
        if enough {
            self.tenths -= 10;
        }
        enough
    }

    fn add(&mut self, tenths: u64) {
        self.tenths = self.tenths.saturating_add(tenths).min(RETRY_BUDGET_MAX * 10);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_wait_lies_within_its_window(attempts in 0u32..100, random: u64) {
            let wait = BACKOFF.pause(attempts, random);
            let window = Duration::from_millis(200 << attempts.saturating_sub(1).min(10)).min(BACKOFF.cap());
            prop_assert!(wait < window);
        }

        #[test]
        fn nothing_is_repeated_at_or_after_its_expiry(
            attempts in 0u32..20, floor in 0u64..5000, life in 0u64..30_000, random: u64
        ) {
            let (now, expires_at) = (Timestamp(1_000_000), Timestamp(1_000_000 + life));
            let at = repeat_at(attempts, Duration::from_millis(floor), expires_at, random, now);
            prop_assert!(at.is_none_or(|at| at >= now && at < expires_at));
        }
    }

    #[test]
    fn a_stated_wait_is_read_in_both_forms_and_bounded() {
        let now = Timestamp(784_111_777_500); // Sun, 06 Nov 1994 08:49:37.5
        let wait = |text: &[u8]| {
            let value = http::HeaderValue::from_bytes(text).unwrap();
            retry_after(&HeaderMap::from_iter([(RETRY_AFTER, value)]), now)
        };
        assert_eq!(retry_after(&HeaderMap::new(), now), None);
        assert_eq!(wait(b"120"), Some(Duration::from_secs(120)));
        assert_eq!(wait(b" 0 "), Some(Duration::ZERO));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:50:37 GMT"), Some(Duration::from_millis(59_500)));
        assert_eq!(wait(b"Sun, 06 Nov 1994 08:49:00 GMT"), Some(Duration::ZERO), "it is over");
        for long in ["3601", "18446744073709551615", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wait(long.as_bytes()), Some(RETRY_AFTER_MAX), "{long}");
        }
        for unreadable in ["", "-1", "1.5", "soon", "18446744073709551616", "Sun, 06 Nov 1969 08:49:37 GMT"] {
            assert_eq!(wait(unreadable.as_bytes()), None, "{unreadable}");
        }
        assert_eq!(wait(b"\xff"), None);
    }

    #[test]
    fn the_whole_window_is_used() {
        assert_eq!(BACKOFF.pause(1, 0), Duration::ZERO);
        assert!(BACKOFF.pause(1, u64::MAX) > Duration::from_millis(199));
        assert!(BACKOFF.pause(30, u64::MAX) > Duration::from_millis(9999));
    }

    #[test]
    fn repeats_are_a_tenth_of_the_traffic_beside_the_floor() {
        let now = Timestamp(0);
        let mut budget = RetryBudget::new(now);
        let spend_all = |budget: &mut RetryBudget, now| (0..).take_while(|_| budget.try_spend(now)).count();
        assert_eq!(spend_all(&mut budget, now), RETRY_BUDGET_MAX as usize);
        (0..500).for_each(|_| budget.on_accepted());
        assert_eq!(spend_all(&mut budget, now), 50);
        assert_eq!(spend_all(&mut budget, Timestamp(2000)), 100, "the floor");
    }

    /// Each first attempt is refused, and each repeat accepted.
    #[test]
    fn a_provider_that_refuses_every_first_attempt_gets_a_tenth_of_its_answers_as_repeats() {
        let mut budget = RetryBudget::new(Timestamp(0));
        let repeats = (0..1_000_000).filter(|_| {
            let is_repeated = budget.try_spend(Timestamp(0));
            (0..u32::from(is_repeated)).for_each(|_| budget.on_accepted());
            is_repeated
        });
        let count = repeats.count() as u64;
        assert!((RETRY_BUDGET_MAX..=RETRY_BUDGET_MAX * 10 / 9).contains(&count), "{count}");
    }

    /// Called so often that no call adds a whole repeat.
    #[test]
    fn the_floor_loses_nothing_to_frequent_calls() {
        let mut budget = RetryBudget::new(Timestamp(0));
        while budget.try_spend(Timestamp(0)) {}
        let repeats = (1..=3333_u64).filter(|call| budget.try_spend(Timestamp(call * 3))).count() as u64;
        assert_eq!(repeats, 10 * RETRY_FLOOR_PER_SECOND - 1);
    }
}
