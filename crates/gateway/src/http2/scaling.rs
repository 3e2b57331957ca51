//! How many connections a thread has: more while the open ones have no room for what waits, fewer after minutes with
//! room.
//!
//! [`ConnectionCount`] has the rule for growing and shrinking; this module feeds it. A provider lowers its limits in
//! answer to bad tokens, and more connections would evade that. So lowered limits are no reason to grow, unless the
//! rate is below the configured floor: then as many connections are opened as the floor needs, up to the maximum.

use std::time::Duration;

use tidings_push::pacing::ConnectionCount;
use tidings_types::Timestamp;

use super::scheduler::Occupation;

/// How often it is looked at.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// A limit of at most this many streams per connection counts as lowered. A connection that has not proven its token
/// also has a limit of one.
const LOWERED_LIMIT: u64 = 2;
/// One tick replaces one part in this many of the rate, so the rate is that of about the last second.
const SMOOTHING: f64 = 8.0;

/// The number of one thread's connections.
pub(crate) struct Scaling {
    count: ConnectionCount,
    target: usize,
    /// Notifications per second that are to go out in any case.
    floor: Option<f64>,
    /// Notifications per second that do.
    rate: f64,
    seen: Option<(u64, Timestamp)>,
}

impl Scaling {
    /// Between `min` and `max` connections.
    pub(crate) fn new(min: usize, max: usize, floor: Option<f64>) -> Self {
        let [least, most] = [min, max].map(|count| u32::try_from(count).unwrap_or(u32::MAX));
        Self { count: ConnectionCount::new(least, most), target: min, floor, rate: 0.0, seen: None }
    }

    /// The target number of connections. `waiting`: the lakes are not empty.
    pub(crate) fn on_tick(&mut self, occupation: &Occupation, waiting: bool, now: Timestamp) -> usize {
        self.measure(occupation.settled, now);
        let Occupation { connections, hungry, limit, in_flight, .. } = *occupation;
        // While a connection is still being made, it is unknown whether it will be enough.
        let exhausted = waiting && hungry == 0 && connections >= self.target;
        let lowered = limit <= LOWERED_LIMIT * connections as u64;
        let wanted = exhausted && (!lowered || self.floor.is_some_and(|floor| self.rate < floor));
        self.target = self.count.on_tick(wanted, in_flight, limit, now) as usize;
        self.target
    }

    fn measure(&mut self, settled: u64, now: Timestamp) {
        if let Some((before, at)) = self.seen.replace((settled, now)) {
            let seconds = now.saturating_since(at).max(Duration::from_millis(1)).as_secs_f64();
            self.rate += (settled.saturating_sub(before) as f64 / seconds - self.rate) / SMOOTHING;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp(1_800_000_000_000);

    /// A provider that allows each connection `limit` streams and answers after 100 ms; more waits than can be sent.
    fn grow(floor: Option<f64>, limit: u64, ticks: u64) -> usize {
        let (mut scaling, mut connections, mut settled) = (Scaling::new(2, 20, floor), 2, 0);
        for tick in 1..=ticks {
            let now = START.saturating_add(TICK * tick as u32);
            let open = limit * connections as u64;
            settled += open;
            let occupation = Occupation { connections, hungry: 0, limit: open, in_flight: open, settled };
            connections = scaling.on_tick(&occupation, true, now);
        }
        connections
    }

    #[test]
    fn a_pool_whose_streams_are_all_taken_grows_to_its_maximum() {
        assert_eq!(grow(None, 100, 600), 20);
    }

    #[test]
    fn lowered_limits_are_no_reason_to_grow_but_for_the_floor() {
        assert_eq!(grow(None, 1, 600), 2);
        let count = grow(Some(100.0), 1, 600);
        assert!((10..=16).contains(&count), "100 a second at 10 per connection: {count}");
        assert_eq!(grow(Some(10_000.0), 1, 600), 20);
    }

    #[test]
    fn room_or_a_connection_that_is_not_up_yet_is_no_reason_either() {
        let quiet = |connections, hungry, waiting| {
            let mut scaling = Scaling::new(2, 20, None);
            let occupation = Occupation { connections, hungry, limit: 200, in_flight: 200, settled: 0 };
            let at = |tick: u32| START.saturating_add(TICK * tick);
            (1..100).map(|tick| scaling.on_tick(&occupation, waiting, at(tick))).max()
        };
        assert_eq!([quiet(2, 1, true), quiet(1, 0, true), quiet(2, 0, false)], [Some(2); 3]);
    }
}
