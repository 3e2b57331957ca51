//! How fast a pool can send, as its gateway measures it and the sender's preview tells it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Of the mean, the part that one round trip replaces: one in 16.
const SMOOTHING: u64 = 16;

/// What a gateway last measured, shared with whoever estimates. Zero is "not known".
#[derive(Debug, Default)]
pub struct PoolGauge {
    streams: AtomicU64,
    round_trip_micros: AtomicU64,
    quota_per_minute: AtomicU64,
}

impl PoolGauge {
    /// Streams that its connections may have open together.
    pub fn set_streams(&self, streams: u64) {
        self.streams.store(streams, Relaxed);
    }

    /// How many notifications a minute the provider takes at most; `None` without such a quota.
    pub fn set_quota_per_minute(&self, quota: Option<u64>) {
        self.quota_per_minute.store(quota.unwrap_or(0), Relaxed);
    }

    /// An answer came this long after its request. Threads that measure at once may overwrite each other's, which an
    /// average bears.
    pub fn on_round_trip(&self, round_trip: Duration) {
        let micros = u64::try_from(round_trip.as_micros()).unwrap_or(u64::MAX / SMOOTHING).max(1);
        let mean = self.round_trip_micros.load(Relaxed);
        let mean = if mean == 0 { micros } else { (mean.saturating_mul(SMOOTHING - 1) + micros) / SMOOTHING };
        self.round_trip_micros.store(mean.max(1), Relaxed);
    }

    /// The mean round trip; `None` before the first answer.
    pub fn round_trip(&self) -> Option<Duration> {
        Some(self.round_trip_micros.load(Relaxed)).filter(|micros| *micros > 0).map(Duration::from_micros)
    }

    /// Notifications per second: streams by round trip, and at most the quota. `None` while nothing is known.
    pub fn per_second(&self) -> Option<f64> {
        let streams = Some(self.streams.load(Relaxed)).filter(|streams| *streams > 0);
        let by_streams = streams.zip(self.round_trip()).map(|(streams, trip)| streams as f64 / trip.as_secs_f64());
        let by_quota = Some(self.quota_per_minute.load(Relaxed)).filter(|quota| *quota > 0).map(|it| it as f64 / 60.0);
        match (by_streams, by_quota) {
            (Some(streams), Some(quota)) => Some(streams.min(quota)),
            (streams, quota) => streams.or(quota),
        }
    }

    /// How long so many notifications take; `None` while nothing is known.
    pub fn estimate(&self, notification_count: u64) -> Option<Duration> {
        let seconds = notification_count as f64 / self.per_second()?;
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_streams_by_round_trip_and_quota_counts() {
        let gauge = PoolGauge::default();
        assert_eq!((gauge.per_second(), gauge.estimate(1)), (None, None));
        gauge.set_quota_per_minute(Some(600_000));
        assert_eq!(gauge.estimate(1_300_000), Some(Duration::from_secs(130)));
        gauge.set_streams(500);
        gauge.on_round_trip(Duration::from_millis(100));
        assert_eq!(gauge.estimate(10_000), Some(Duration::from_secs(2)));
        gauge.set_streams(13_000);
        assert_eq!(gauge.estimate(10_000), Some(Duration::from_secs(1)), "the quota again");
        gauge.set_quota_per_minute(None);
        assert_eq!(gauge.per_second(), Some(130_000.0));
    }

    #[test]
    fn the_mean_follows_slowly_and_is_never_nothing() {
        let gauge = PoolGauge::default();
        gauge.on_round_trip(Duration::from_micros(160));
        gauge.on_round_trip(Duration::from_micros(320));
        assert_eq!(gauge.round_trip(), Some(Duration::from_micros(170)));
        (0..200).for_each(|_| gauge.on_round_trip(Duration::ZERO));
        assert!(gauge.round_trip().is_some());
        gauge.on_round_trip(Duration::MAX);
        assert!(gauge.round_trip() > Some(Duration::from_secs(1)));
    }
}
