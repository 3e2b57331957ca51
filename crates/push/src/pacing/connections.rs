//! How many connections a pool has.
//!
//! The rate is connections × streams ÷ round trip, and we can only choose the number of connections. [`ConnectionCount`] is
//! updated at every tick, about ten times a second. While there is work for which no connection has a permit, it grows by a
//! quarter after each [`GROW_AFTER`], because a new connection needs a moment before it can send. If less than half of the
//! streams were needed for [`SHRINK_AFTER`], it shrinks by one. It shrinks slowly, because providers take short-lived
//! connections for an attack (Apple: keep them for hours).

use std::time::Duration;

use tidings_types::Timestamp;

/// The number grows after there was more work than permits for this long, and again after each further such time.
pub const GROW_AFTER: Duration = Duration::from_millis(500);
/// The number shrinks by one after less than half of the streams were needed for this long.
pub const SHRINK_AFTER: Duration = Duration::from_secs(600);

/// It grows by this part.
const GROWTH_DIVISOR: u32 = 4;

/// The number of connections of one pool.
#[derive(Debug, Clone)]
pub struct ConnectionCount {
    min: u32,
    max: u32,
    count: u32,
    exhausted_since: Option<Timestamp>,
    idle_since: Option<Timestamp>,
}

impl ConnectionCount {
    /// At least `min` and at most `max` connections. It begins with `min`.
    ///
    /// # Panics
    /// When `min` is 0 or over `max`.
    pub fn new(min: u32, max: u32) -> Self {
        assert!((1..=max).contains(&min), "a pool has 1 to {max} connections, not {min}");
        Self { min, max, count: min, exhausted_since: None, idle_since: None }
    }

    /// How many connections there should be.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// A tick. `exhausted`: since the last tick, work waited for which no connection had a permit. `in_flight` of `limit`
    /// streams are open. Returns how many connections there should be now.
    pub fn on_tick(&mut self, exhausted: bool, in_flight: u64, limit: u64, now: Timestamp) -> u32 {
        let is_idle = !exhausted && in_flight.saturating_mul(2) < limit.max(1);
        if has_lasted(&mut self.exhausted_since, exhausted, GROW_AFTER, now) {
            self.count = (self.count + (self.count / GROWTH_DIVISOR).max(1)).min(self.max);
        }
        if has_lasted(&mut self.idle_since, is_idle, SHRINK_AFTER, now) {
            self.count = (self.count - 1).max(self.min);
        }
        self.count
    }
}

/// Whether something was true for this long. If so, the time starts again.
fn has_lasted(since: &mut Option<Timestamp>, is_so: bool, long: Duration, now: Timestamp) -> bool {
    if !is_so {
        *since = None;
        return false;
    }
    // `min`, because the clock may have been set back.
    let start = since.unwrap_or(now).min(now);
    let has_lasted = now.saturating_since(start) >= long;
    *since = Some(if has_lasted { now } else { start });
    has_lasted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ticks ten times a second for `seconds`. Returns the count at the end.
    fn run(count: &mut ConnectionCount, now: &mut Timestamp, seconds: u64, exhausted: bool, in_flight: u64) -> u32 {
        for _ in 0..seconds * 10 {
            *now = now.saturating_add(Duration::from_millis(100));
            count.on_tick(exhausted, in_flight, 1000, *now);
        }
        count.count()
    }

    #[test]
    fn it_grows_while_permits_are_exhausted_and_shrinks_slowly_when_idle() {
        let (mut count, mut now) = (ConnectionCount::new(2, 10), Timestamp(1_800_000_000_000));
        assert_eq!(run(&mut count, &mut now, 60, false, 900), 2);
        assert_eq!(run(&mut count, &mut now, 1, true, 1000), 3);
        assert_eq!(run(&mut count, &mut now, 10, true, 1000), 10);
        assert_eq!(run(&mut count, &mut now, 3600, false, 500), 10, "half of it is needed");
        assert_eq!(run(&mut count, &mut now, 599, false, 10), 10);
        assert_eq!(run(&mut count, &mut now, 2, false, 10), 9);
        assert_eq!(run(&mut count, &mut now, 3600 * 5, false, 0), 2);
    }

    #[test]
    fn a_moment_of_exhaustion_is_none() {
        let mut count = ConnectionCount::new(1, 10);
        for tick in 0..1000 {
            assert_eq!(count.on_tick(tick % 3 != 0, 100, 100, Timestamp(tick * 100)), 1);
        }
    }

    #[test]
    fn a_clock_set_back_stops_nothing() {
        let mut count = ConnectionCount::new(1, 10);
        count.on_tick(true, 1, 1, Timestamp(1_000_000));
        count.on_tick(true, 1, 1, Timestamp(0));
        assert_eq!(count.on_tick(true, 1, 1, Timestamp(500)), 2);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_and_moves_in_steps(
            min in 1u32..5, more in 0u32..20,
            ticks in prop::collection::vec((any::<bool>(), 0u64..100, 0u64..100, 0u64..700_000), 0..200),
        ) {
            let (max, mut now) = (min + more, Timestamp(0));
            let mut count = ConnectionCount::new(min, max);
            for (exhausted, in_flight, limit, pause) in ticks {
                let before = count.count();
                now = now.saturating_add(Duration::from_millis(pause));
                let after = count.on_tick(exhausted, in_flight, limit, now);
                prop_assert!((min..=max).contains(&after));
                prop_assert!(after + 1 >= before && after <= before + (before / 4).max(1));
                prop_assert!(after <= before || exhausted);
            }
        }
    }
}
