//! How fast a pool can send. The gateway measures it, and the sender's preview shows it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidings_types::Timestamp;

use crate::pacing::Quota;

/// One round trip changes the mean by one part in 16.
const SMOOTHING: u64 = 16;

/// The gateway's last measurements, shared with the preview. Zero means unknown.
#[derive(Debug, Default)]
pub struct PoolGauge {
    streams: AtomicU64,
    round_trip_micros: AtomicU64,
    quota: Mutex<Option<Arc<Mutex<Quota>>>>,
}

/// How long a number of notifications takes, and what limits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forecast {
    /// The time until the last one is answered, if nothing else is sent.
    pub duration: Duration,
    /// What limits the rate.
    pub limit: RateLimit,
}

/// What limits a pool's rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateLimit {
    /// The provider's quota, or a pause that it asked for.
    Quota,
    /// The requests that the open connections may have in flight, and the round trip.
    Connections,
}

impl RateLimit {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quota => "quota",
            Self::Connections => "connections",
        }
    }
}

impl PoolGauge {
    /// Sets the number of streams that its connections may have open together.
    pub fn set_streams(&self, streams: u64) {
        self.streams.store(streams, Relaxed);
    }

    /// Sets the quota that the gateway obeys, which is shared. Without a call the provider has none.
    pub fn set_quota(&self, quota: Arc<Mutex<Quota>>) {
        *lock(&self.quota) = Some(quota);
    }

    /// Records the time between a request and its answer. Two threads may overwrite each other's value, which does not
    /// matter for an average.
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

    /// Notifications per second that streams and round trip allow; `None` while they are unknown.
    pub fn per_second(&self) -> Option<f64> {
        let streams = Some(self.streams.load(Relaxed)).filter(|streams| *streams > 0);
        streams.zip(self.round_trip()).map(|(streams, trip)| streams as f64 / trip.as_secs_f64())
    }

    /// How long this many notifications take from now; `None` while the rate is unknown. For the quota this is the
    /// calculation that the gateway obeys ([`Quota::time_for`]).
    pub fn forecast(&self, notification_count: u64, now: Timestamp) -> Option<Forecast> {
        let quota = lock(&self.quota).clone().map(|quota| lock(&quota).clone());
        let by_quota = quota.map(|quota| quota.time_for(notification_count, now));
        let seconds = self.per_second().map(|rate| notification_count as f64 / rate);
        let by_streams = seconds.map(|seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX));
        match (by_quota, by_streams) {
            (Some(quota), streams) if streams.is_none_or(|streams| quota >= streams) => {
                Some(Forecast { duration: quota, limit: RateLimit::Quota })
            }
            (_, streams) => streams.map(|duration| Forecast { duration, limit: RateLimit::Connections }),
        }
    }
}

/// Nothing that could panic runs under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000);

    #[test]
    fn the_slower_of_streams_by_round_trip_and_quota_decides() {
        let gauge = PoolGauge::default();
        assert_eq!((gauge.per_second(), gauge.forecast(1, NOW)), (None, None));
        let quota = Arc::new(Mutex::new(Quota::new(600_000, Duration::ZERO, NOW)));
        gauge.set_quota(Arc::clone(&quota));
        let later = NOW.saturating_add(Duration::from_secs(600));
        let forecast = |count, now| gauge.forecast(count, now).map(|it| (it.duration.as_millis(), it.limit));
        // A second's worth at once, and 59/60 of 10 000 a second.
        assert_eq!(forecast(600_000, later), Some((60_000, RateLimit::Quota)));
        gauge.set_streams(500);
        gauge.on_round_trip(Duration::from_millis(100));
        assert_eq!(forecast(10_000, later), Some((2000, RateLimit::Connections)));
        assert_eq!(forecast(600_000, later), Some((120_000, RateLimit::Connections)));
        gauge.set_streams(13_000);
        assert_eq!(forecast(600_000, later), Some((60_000, RateLimit::Quota)));
        // What the quota has been through counts: a pause, and half the rate after it.
        quota.lock().unwrap().on_spent(Duration::from_secs(30), later, later);
        let Some((millis, RateLimit::Quota)) = forecast(100_000, later) else { panic!("{:?}", forecast(1, later)) };
        assert!((30_000 + 14_000..30_000 + 20_000).contains(&millis), "{millis} ms");
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
