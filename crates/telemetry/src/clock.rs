//! The one place that reads the wall clock.
//!
//! Cores get a [`Timestamp`] as an argument; drivers get theirs here. To measure a duration use `tokio::time::Instant`:
//! the wall clock jumps.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidings_types::Timestamp;

/// The wall clock now, in milliseconds since the Unix epoch; a clock set before 1970 reads as the epoch.
#[must_use]
pub fn unix_now() -> Timestamp {
    Timestamp(u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX))
}

/// The same in nanoseconds, for spans.
#[must_use]
pub fn unix_nanos() -> u64 {
    u64::try_from(since_epoch().as_nanos()).unwrap_or(u64::MAX)
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::unix_now;

    #[test]
    fn is_in_milliseconds_of_this_century() {
        let year_2024 = 1_704_067_200_000;
        let year_2100 = 4_102_444_800_000;
        assert!((year_2024..year_2100).contains(&unix_now().as_millis()));
    }
}
