//! What all threads of a gateway may send together: the provider's quota, and its pauses.
//!
//! Asked before the lakes are, so that what waits for a quota waits there, where the most urgent and freshest goes
//! first. Without a quota and without a pause it costs one atomic read per batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_push::pacing::Quota;
use tidings_types::Timestamp;

/// The longest pause that is obeyed: a provider's slip must not stop everything for a week.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// How long a quota takes from its slowest to its full rate (Google, "Best practices when sending FCM messages at
/// scale").
const RAMP: Duration = Duration::from_secs(60);
/// How soon to ask again at the earliest, so that a quota is spent in batches.
const AGAIN_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Throttle {
    /// There is no quota, and no pause.
    is_open: AtomicBool,
    state: Mutex<State>,
}

struct State {
    quota: Option<Quota>,
    paused_until: Timestamp,
}

impl Throttle {
    /// At most so many requests per minute; `None` without a quota.
    pub(crate) fn new(quota_per_minute: Option<u32>, now: Timestamp) -> Self {
        let quota = quota_per_minute.map(|per_minute| Quota::new(per_minute, RAMP, now));
        let is_open = AtomicBool::new(quota.is_none());
        Self { is_open, state: Mutex::new(State { quota, paused_until: Timestamp(0) }) }
    }

    /// How many of `wanted` requests may be made now. What is not made is to be given back.
    pub(crate) fn grant(&self, wanted: usize, now: Timestamp) -> usize {
        if wanted == 0 || self.is_open.load(Ordering::Acquire) {
            return wanted;
        }
        let mut state = self.state();
        let is_paused = state.is_paused(now);
        match &mut state.quota {
            Some(quota) => quota.take(wanted, now),
            None if is_paused => 0,
            None => {
                self.is_open.store(true, Ordering::Release);
                wanted
            }
        }
    }

    /// So many that were granted are not made.
    pub(crate) fn give_back(&self, count: usize) {
        if count > 0
            && !self.is_open.load(Ordering::Acquire)
            && let Some(quota) = &mut self.state().quota
        {
            quota.give_back(count);
        }
    }

    /// How long until more than now may be granted.
    pub(crate) fn again_in(&self, now: Timestamp) -> Duration {
        let mut state = self.state();
        let pause = state.paused_until.saturating_since(now);
        state.quota.as_mut().map_or(pause, |quota| quota.next(now)).max(AGAIN_MIN)
    }

    /// Grants nothing for so long. Returns whether that is news.
    pub(crate) fn pause(&self, pause: Duration, now: Timestamp) -> bool {
        let mut state = self.state();
        let (was_paused, pause) = (state.is_paused(now), pause.min(PAUSE_MAX));
        state.paused_until = state.paused_until.max(now.saturating_add(pause));
        if let Some(quota) = &mut state.quota {
            quota.pause(pause, now);
        }
        self.is_open.store(false, Ordering::Release);
        !was_paused
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that could panic runs under this lock, so there is nothing a poisoned one could have left half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A clock that was set back ends a pause: it can no longer be told how much of it is left.
    fn is_paused(&self, now: Timestamp) -> bool {
        now < self.paused_until && self.paused_until.saturating_since(now) <= PAUSE_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    fn after(pause: Duration) -> Timestamp {
        NOW.saturating_add(pause)
    }

    #[test]
    fn without_a_quota_only_pauses_hold_it_up() {
        let throttle = Throttle::new(None, NOW);
        assert_eq!(throttle.grant(usize::MAX, NOW), usize::MAX);
        let second = Duration::from_secs(1);
        assert!(throttle.pause(5 * second, NOW));
        assert!(!throttle.pause(second, NOW), "within the pause there is");
        assert_eq!((throttle.grant(7, after(4 * second)), throttle.again_in(after(4 * second))), (0, second));
        assert_eq!(throttle.grant(7, after(5 * second)), 7);
        assert!(throttle.is_open.load(Ordering::Acquire));
        assert!(throttle.pause(Duration::MAX, after(6 * second)));
        assert_eq!(throttle.grant(7, after(PAUSE_MAX)), 0);
        assert_eq!(throttle.grant(7, after(PAUSE_MAX + 6 * second)), 7, "no pause is endless");
        throttle.pause(PAUSE_MAX, after(9 * second));
        assert_eq!(throttle.grant(7, NOW), 7, "a clock was set back");
    }

    #[test]
    fn a_quota_is_spent_given_back_and_filled_again() {
        let throttle = Throttle::new(Some(60_000), NOW);
        let mut granted = 0;
        while granted <= 60_000
            && let count @ 1.. = throttle.grant(100, NOW)
        {
            granted += count;
        }
        assert!((1..=1000).contains(&granted), "{granted}");
        throttle.give_back(5);
        assert_eq!((throttle.grant(100, NOW), throttle.grant(100, NOW)), (5, 0));
        let again = throttle.again_in(NOW);
        assert!(again >= AGAIN_MIN && throttle.grant(100, after(again)) > 0);
        assert!(throttle.pause(Duration::from_secs(90), NOW));
        assert_eq!(throttle.grant(100, after(Duration::from_secs(89))), 0);
    }
}
