//! How many bytes a second a connection is written.
//!
//! A bucket that leaks (the generic cell rate algorithm, ITU-T I.371): a write moves the time at which all of it is paid for, by
//! its bytes. Until that time nothing more is published to the connection. An idle connection saves a second's bytes. The
//! channels of a connection take turns, each with an equal share, so that a busy one does not keep the others out.
//!
//! Replies and pings are never held back, and are counted.

use std::time::Duration;

use tokio::time::Instant;

/// What an idle connection saves.
const SAVED: Duration = Duration::from_secs(1);
/// So many rounds of all channels are in a second's bytes.
const ROUNDS_PER_SECOND: u64 = 4;

/// The bytes that a connection may be written.
#[derive(Debug)]
pub(crate) struct Allowance {
    per_second: u64,
    /// When all that was written is paid for.
    paid_at: Instant,
    /// Bytes that were written, when they were last counted.
    counted: u64,
    /// Which of the connection's channels is first.
    first: usize,
}

impl Allowance {
    /// For a connection that was written `counted` bytes; `per_second` is not 0.
    pub(crate) fn new(per_second: u64, counted: u64, now: Instant) -> Self {
        Self { per_second, paid_at: now.checked_sub(SAVED).unwrap_or(now), counted, first: 0 }
    }

    /// Counts what was written, of which `written` bytes are the sum. Returns when something may be published again, if that is
    /// later.
    pub(crate) fn count(&mut self, written: u64, now: Instant) -> Option<Instant> {
        let bytes = written - std::mem::replace(&mut self.counted, written);
        let saved = now.checked_sub(SAVED).unwrap_or(now);
        let time = Duration::from_secs_f64(bytes as f64 / self.per_second as f64);
        self.paid_at = self.paid_at.max(saved) + time;
        Some(self.paid_at).filter(|at| *at > now)
    }

    /// What each of so many channels may be written when it is its turn.
    pub(crate) fn share(&self, channel_count: usize) -> usize {
        usize::try_from(self.per_second / ROUNDS_PER_SECOND / channel_count.max(1) as u64).unwrap_or(usize::MAX).max(1)
    }

    /// Which of so many channels is first in this turn.
    pub(crate) fn first(&self, channel_count: usize) -> usize {
        self.first % channel_count.max(1)
    }

    /// In the next turn the channel after the one at `last` is first.
    pub(crate) fn go_on_after(&mut self, last: usize) {
        self.first = last + 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// A writer that writes whenever it may writes no more than the rate, a second's bytes, and the last write.
        #[test]
        fn the_rate_is_kept(per_second in 1u64..100_000, writes in prop::collection::vec((0u64..200_000, 0u64..3000), 1..50)) {
            let start = Instant::now() + Duration::from_secs(10);
            let mut allowance = Allowance::new(per_second, 0, start);
            let (mut now, mut written, mut last) = (start, 0, 0);
            for (bytes, pause_ms) in writes {
                now += Duration::from_millis(pause_ms);
                let elapsed = now.duration_since(start).as_secs_f64();
                prop_assert!((written - last) as f64 <= per_second as f64 * (elapsed + 1.0) + 1.0);
                (written, last) = (written + bytes, bytes);
                if let Some(at) = allowance.count(written, now) {
                    prop_assert!(at > now);
                    now = at;
                }
            }
        }
    }

    #[test]
    fn who_was_idle_may_be_written_a_second_s_bytes_at_once() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut allowance = Allowance::new(1000, 500, start);
        assert_eq!(allowance.count(1500, start), None);
        assert_eq!(allowance.count(1600, start), Some(start + Duration::from_millis(100)));
        assert_eq!(allowance.count(1600, start + Duration::from_secs(60)), None);
        assert_eq!(allowance.count(2700, start + Duration::from_secs(60)), Some(start + Duration::from_millis(60_100)));
    }
}
