//! Circuit breakers for the addresses of a host.
//!
//! A host has several addresses, and one of them may be dead while the others work. Each address has a [`Breaker`]:
//!
//! ```text
//!            FAILURES_MAX in a row            the pause is over
//!   closed ────────────────────────► open ──────────────────────► half open
//!     ▲  ▲                             ▲                           │     │
//!     │  └─────────────────────────────┼───── the probe succeeds ──┘     │
//!     └ success                        └────── the probe fails ──────────┘
//! ```
//!
//! A failure is a connection that could not be made or became silent. An answer with an error is not a failure, because the
//! address answers. The pause is between half and all of a time that doubles with each failed probe, from 1 s to 60 s or to
//! the given cap. A probe without a result is given up after `PROBE_TIMEOUT`. When the breakers of all addresses are open,
//! the caller takes the address with the earliest [`Breaker::due_at`].
//!
//! A time that is further in the future than the longest pause means that the clock was set back. It counts as past.

use std::time::Duration;

use tidings_types::{Backoff, Timestamp};

/// Failures in a row that open the breaker.
const FAILURES_MAX: u32 = 3;
/// A probe without a result is given up after this time.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);

const PAUSE_BASE: Duration = Duration::from_secs(1);
const PAUSES: Backoff = Backoff::new(PAUSE_BASE, Duration::from_secs(60));

/// The breaker of one address.
#[derive(Debug, Clone)]
pub struct Breaker {
    state: State,
    pauses: Backoff,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::pausing(PAUSES)
    }
}

#[derive(Debug, Clone)]
enum State {
    /// `failures` came in a row.
    Closed { failures: u32 },
    /// It was opened `opened` times in a row.
    Open { until: Timestamp, opened: u32 },
    /// Awaits the result of a probe.
    HalfOpen { probed_at: Timestamp, opened: u32 },
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

impl Breaker {
    /// A closed breaker.
    pub fn new() -> Self {
        Self::default()
    }

    /// A breaker with pauses of at most `pause_cap`, which is a second at least.
    pub const fn capped(pause_cap: Duration) -> Self {
        Self::pausing(Backoff::new(PAUSE_BASE, pause_cap))
    }

    const fn pausing(pauses: Backoff) -> Self {
        Self { state: State::Closed { failures: 0 }, pauses }
    }

    /// Whether to connect now. When a pause is over, only the first caller may connect: its connection is the probe.
    pub fn admits(&mut self, now: Timestamp) -> bool {
        let (State::Open { opened, .. } | State::HalfOpen { opened, .. }) = self.state else { return true };
        let is_due = self.due_at(now).is_none_or(|at| at <= now);
        if is_due {
            self.state = State::HalfOpen { probed_at: now, opened };
        }
        is_due
    }

    /// A connection was made.
    pub fn on_success(&mut self) {
        self.state = State::default();
    }

    /// A connection could not be made or became silent. `random` is any 64 random bits.
    pub fn on_failure(&mut self, random: u64, now: Timestamp) {
        let opened = match self.state {
            State::Closed { failures } if failures + 1 < FAILURES_MAX => {
                self.state = State::Closed { failures: failures + 1 };
                return;
            }
            State::Open { .. } => return, // The connection was made before the breaker opened. The pause stays.
            State::Closed { .. } => 1,
            State::HalfOpen { opened, .. } => opened.saturating_add(1),
        };
        let pause = self.pauses.long_pause(opened, random);
        self.state = State::Open { until: now.saturating_add(pause), opened };
    }

    /// The earliest time at which it admits a connection, `now` or later; `None` while it is closed.
    pub fn due_at(&self, now: Timestamp) -> Option<Timestamp> {
        let longest = match self.state {
            State::Closed { .. } => return None,
            State::Open { .. } => self.pauses.cap(),
            State::HalfOpen { .. } => PROBE_TIMEOUT,
        };
        self.retry_at().map(|at| if at.saturating_since(now) > longest { now } else { at.max(now) })
    }

    /// Like [`Self::due_at`], but not corrected after the clock was set back. Do not wait for this time.
    pub fn retry_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Closed { .. } => None,
            State::Open { until, .. } => Some(until),
            State::HalfOpen { probed_at, .. } => Some(probed_at.saturating_add(PROBE_TIMEOUT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn opened() -> Breaker {
        let mut breaker = Breaker::new();
        (0..FAILURES_MAX).for_each(|_| breaker.on_failure(u64::MAX, NOW));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let mut breaker = Breaker::new();
        for _ in 0..10 {
            (1..FAILURES_MAX).for_each(|_| breaker.on_failure(0, NOW));
            assert!(breaker.admits(NOW) && breaker.retry_at().is_none());
            breaker.on_success();
        }
        assert!(!opened().admits(NOW));
    }

    #[test]
    fn there_is_one_probe_at_a_time_and_its_result_decides() {
        let mut breaker = opened();
        let at = breaker.retry_at().unwrap();
        assert!(at > NOW && at <= NOW.saturating_add(Duration::from_secs(1)));
        assert!(!breaker.admits(Timestamp(at.0 - 1)) && breaker.admits(at) && !breaker.admits(at));
        breaker.on_failure(u64::MAX, at);
        let second = breaker.retry_at().unwrap().saturating_since(at);
        assert!(second > Duration::from_secs(1) && second <= Duration::from_secs(2), "{second:?}");
        assert!(breaker.admits(at.saturating_add(second)));
        breaker.on_success();
        assert!(breaker.admits(at) && breaker.admits(at));
    }

    #[test]
    fn a_probe_without_a_result_is_followed_by_another() {
        let mut breaker = opened();
        let at = breaker.retry_at().unwrap();
        assert!(breaker.admits(at));
        let later = at.saturating_add(PROBE_TIMEOUT);
        assert!(!breaker.admits(Timestamp(later.0 - 1)) && breaker.admits(later));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_it_open() {
        let past = Timestamp(NOW.0 - 3_600_000);
        for probed in [false, true] {
            let mut breaker = opened();
            if probed {
                assert!(breaker.admits(breaker.due_at(NOW).unwrap()));
            }
            assert_eq!(breaker.due_at(past), Some(past), "probed: {probed}");
            assert!(breaker.admits(past) && !breaker.admits(past));
            assert_eq!(breaker.due_at(past), Some(past.saturating_add(PROBE_TIMEOUT)));
        }
    }

    proptest! {
        /// For any clock, the next attempt is near and is then admitted.
        #[test]
        fn the_next_attempt_is_near_and_admitted(
            steps in prop::collection::vec((0u64..10_000_000, 0u8..3, any::<u64>()), 1..100)
        ) {
            let mut breaker = Breaker::new();
            for (time, step, random) in steps {
                let now = NOW.saturating_add(Duration::from_millis(time));
                match step {
                    0 => breaker.on_success(),
                    1 => breaker.on_failure(random, now),
                    _ => _ = breaker.admits(now),
                }
                let due = breaker.due_at(now);
                prop_assert_eq!(breaker.clone().admits(now), due.is_none_or(|at| at == now));
                if let Some(at) = due {
                    prop_assert!(at >= now && at.saturating_since(now) <= PAUSES.cap().max(PROBE_TIMEOUT));
                    prop_assert!(breaker.clone().admits(at));
                }
            }
        }

        /// It admits again within a minute of the last failure.
        #[test]
        fn it_never_stays_open(
            steps in prop::collection::vec((0u64..100_000, 0u8..3, any::<u64>()), 1..100)
        ) {
            let (mut breaker, mut now) = (Breaker::new(), NOW);
            for (pause, step, random) in steps {
                now = now.saturating_add(Duration::from_millis(pause));
                let before = breaker.retry_at();
                match step {
                    0 => breaker.on_success(),
                    1 => breaker.on_failure(random, now),
                    _ => {
                        let admitted = breaker.admits(now);
                        prop_assert_eq!(admitted, before.is_none_or(|at| at <= now));
                    }
                }
                if let Some(at) = breaker.retry_at() {
                    prop_assert!(at.saturating_since(now) <= PROBE_TIMEOUT);
                    prop_assert!(breaker.clone().admits(at));
                }
            }
        }
    }
}
