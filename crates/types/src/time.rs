//! A moment of the wall clock, as it is stored and sent.
//!
//! Used for times that are stored or sent: when an event expires, since when a token is gone. The wall clock may jump,
//! so arithmetic saturates. Timeouts within a process use tokio's clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A moment of the wall clock: milliseconds since the Unix epoch.
///
/// Cores get one as an argument; drivers read it with `tidings_telemetry::unix_now`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Milliseconds since the Unix epoch.
    pub fn as_millis(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    pub fn as_secs(self) -> u64 {
        self.0 / 1000
    }

    /// The first moment of its day, in UTC.
    pub fn start_of_day(self) -> Self {
        Self(self.0 - self.0 % (24 * 3600 * 1000))
    }

    /// The moment `duration` later; saturates at the greatest timestamp.
    pub fn saturating_add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The time since `earlier`; zero if it is in the future.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}
