//! Limits what all threads of a gateway send together: the provider's quota, and its pauses.
//!
//! It is asked before notifications are taken, so that they wait for a quota in the lakes, where urgent ones go first.
//! Without a quota and a pause it costs one atomic read per batch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_push::pacing::Quota;
use tidings_types::Timestamp;
use tokio::time::Instant;

/// The longest pause that is obeyed: a mistake of the provider must not stop everything for a week.
const PAUSE_MAX: Duration = Duration::from_secs(3600);
/// How soon to ask again at the earliest, so that a quota is spent in batches.
const AGAIN_MIN: Duration = Duration::from_millis(10);

pub(crate) struct Throttle {
    /// There is no quota, and no pause.
    is_open: AtomicBool,
    quota: Option<Arc<Mutex<Quota>>>,
    /// The pause that the provider asked for. A quota obeys it by itself.
    paused_until: Mutex<Timestamp>,
}

impl Throttle {
    /// Obeys this quota, and pauses.
    pub(crate) fn new(quota: Option<Arc<Mutex<Quota>>>) -> Self {
        Self { is_open: AtomicBool::new(quota.is_none()), quota, paused_until: Mutex::new(Timestamp(0)) }
    }

    /// How many of `wanted` requests may be made now. What is not made is to be given back.
    pub(crate) fn grant(&self, wanted: usize, now: Timestamp) -> usize {
        if wanted == 0 || self.is_open.load(Ordering::Acquire) {
            return wanted;
        }
        if let Some(quota) = &self.quota {
            return lock(quota).take(wanted, now);
        }
        let paused_until = lock(&self.paused_until);
        if is_paused(*paused_until, now) {
            return 0;
        }
        self.is_open.store(true, Ordering::Release);
        wanted
    }

    /// So many that were granted are not made.
    pub(crate) fn give_back(&self, count: usize) {
        if count > 0
            && let Some(quota) = &self.quota
        {
            lock(quota).give_back(count);
        }
    }

    /// How long until more than now may be granted.
    pub(crate) fn again_in(&self, now: Timestamp) -> Duration {
        let next = match &self.quota {
            Some(quota) => lock(quota).next(now),
            None => lock(&self.paused_until).saturating_since(now),
        };
        next.max(AGAIN_MIN)
    }

    /// Grants nothing for this time, because a request that was made at `sent_at` was refused. Returns whether this
    /// pause is new.
    pub(crate) fn pause(&self, pause: Duration, sent_at: Timestamp, now: Timestamp) -> bool {
        let pause = pause.min(PAUSE_MAX);
        if let Some(quota) = &self.quota {
            lock(quota).on_spent(pause, sent_at, now);
        }
        let mut paused_until = lock(&self.paused_until);
        let was_paused = is_paused(*paused_until, now);
        *paused_until = now.saturating_add(pause).max(*paused_until);
        self.is_open.store(false, Ordering::Release);
        !was_paused
    }

    /// Requests a minute that the quota allows now, if there is one.
    pub(crate) fn rate(&self) -> Option<u64> {
        self.quota.as_ref().map(|quota| lock(quota).rate())
    }
}

/// One thread's side of the throttle: asks, and remembers when to ask again.
pub(crate) struct Grants {
    throttle: Arc<Throttle>,
    /// If less was granted than was wanted.
    again_at: Option<Instant>,
}

impl Grants {
    pub(crate) fn new(throttle: Arc<Throttle>) -> Self {
        Self { throttle, again_at: None }
    }

    /// [`Throttle::grant`].
    pub(crate) fn grant(&self, wanted: usize, unix: Timestamp) -> usize {
        self.throttle.grant(wanted, unix)
    }

    /// [`Throttle::give_back`].
    pub(crate) fn give_back(&self, count: usize) {
        self.throttle.give_back(count);
    }

    /// [`Throttle::pause`]. Returns as well at how many requests a minute it goes on, if there is a quota.
    pub(crate) fn pause(&self, pause: Duration, sent_at: Timestamp, unix: Timestamp) -> (bool, Option<u64>) {
        (self.throttle.pause(pause, sent_at, unix), self.throttle.rate())
    }

    /// Everything that was granted is used, and more was wanted: sets when to ask again. Returns whether that is sooner
    /// than before.
    pub(crate) fn ask_again(&mut self, now: Instant, unix: Timestamp) -> bool {
        let at = now + self.throttle.again_in(unix);
        let is_sooner = self.again_at.is_none_or(|before| at < before);
        if is_sooner {
            self.again_at = Some(at);
        }
        is_sooner
    }

    /// When it is to be asked again.
    pub(crate) fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// Whether that moment has come, and forgets it.
    pub(crate) fn take_due(&mut self, now: Instant) -> bool {
        self.again_at.take_if(|at| *at <= now).is_some()
    }
}

/// No code under these locks can panic, so a poisoned lock guards consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A clock that was set back ends a pause, because the rest of the pause is no longer known.
fn is_paused(until: Timestamp, now: Timestamp) -> bool {
    now < until && until.saturating_since(now) <= PAUSE_MAX
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
        let throttle = Throttle::new(None);
        assert_eq!(throttle.grant(usize::MAX, NOW), usize::MAX);
        let second = Duration::from_secs(1);
        assert!(throttle.pause(5 * second, NOW, NOW));
        assert!(!throttle.pause(second, NOW, NOW), "within the pause there is");
        assert_eq!((throttle.grant(7, after(4 * second)), throttle.again_in(after(4 * second))), (0, second));
        assert_eq!(throttle.grant(7, after(5 * second)), 7);
        assert!(throttle.is_open.load(Ordering::Acquire));
        assert!(throttle.pause(Duration::MAX, after(6 * second), after(6 * second)));
        assert_eq!(throttle.grant(7, after(PAUSE_MAX)), 0);
        assert_eq!(throttle.grant(7, after(PAUSE_MAX + 6 * second)), 7, "no pause is endless");
        throttle.pause(PAUSE_MAX, after(9 * second), after(9 * second));
        assert_eq!(throttle.grant(7, NOW), 7, "a clock was set back");
    }

    #[test]
    fn a_quota_is_spent_given_back_and_filled_again() {
        let throttle = Throttle::new(Some(Arc::new(Mutex::new(Quota::new(60_000, Duration::ZERO, NOW)))));
        let begun = after(Duration::from_secs(5));
        let mut granted = 0;
        while granted <= 60_000
            && let count @ 1.. = throttle.grant(100, begun)
        {
            granted += count;
        }
        assert_eq!(granted, 1000, "a second's worth");
        throttle.give_back(5);
        assert_eq!((throttle.grant(100, begun), throttle.grant(100, begun)), (5, 0));
        let again = throttle.again_in(begun);
        assert!(again >= AGAIN_MIN && throttle.grant(100, begun.saturating_add(again)) > 0);
        assert!(throttle.pause(Duration::from_secs(90), begun, begun));
        assert_eq!(throttle.grant(100, after(Duration::from_secs(89))), 0);
    }

    #[test]
    fn a_thread_asks_again_at_the_soonest_moment_and_once() {
        let (throttle, now) = (Arc::new(Throttle::new(None)), Instant::now());
        let mut grants = Grants::new(Arc::clone(&throttle));
        assert!(!grants.take_due(now));
        let seconds = Duration::from_secs;
        assert_eq!(grants.pause(seconds(5), NOW, NOW), (true, None));
        assert_eq!(grants.grant(7, NOW), 0);
        assert!(grants.ask_again(now, NOW));
        assert!(!grants.ask_again(now + seconds(1), NOW), "later than the first");
        assert!(grants.ask_again(now, after(seconds(2))), "the clock was set");
        assert_eq!(grants.again_at(), Some(now + seconds(3)));
        assert!(!grants.take_due(now + seconds(2)) && grants.take_due(now + seconds(3)));
        assert!(!grants.take_due(now + seconds(9)));
    }
}
