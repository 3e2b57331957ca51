//! The demo's clock. Events carry its time, and latencies are differences of its times.

use std::time::Duration;

use tokio::time::Instant;

/// Counts microseconds since the demo began. A copy is the same clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn micros(self) -> u64 {
        u64::try_from(self.0.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// After everything has arrived: how long to wait for deliveries that should not come.
pub(super) const LATECOMER_TIME: Duration = Duration::from_millis(300);

/// How often waiting code checks its condition.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
