//! The one place that reads the wall clock.
//!
//! Cores get a [`Timestamp`] as an argument; drivers get theirs here. To measure a duration use `tokio::time::Instant`:
//! the wall clock jumps.

use std::time::{SystemTime, UNIX_EPOCH};

use tidings_types::Timestamp;

/// The wall clock now, in milliseconds since the Unix epoch; a clock set before 1970 reads as the epoch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn unix_now() -> Timestamp {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX))
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
