//! The quota of a provider: how many requests it accepts in an interval, over all connections.

use std::sync::{Mutex, PoisonError};

use tidings_types::Timestamp;

use crate::{Faults, Refusal};

/// What is used of the quota that the faults set.
#[derive(Default)]
pub(crate) struct Quota(Mutex<Interval>);

#[derive(Default)]
struct Interval {
    ends_at: Timestamp,
    taken: u64,
}

impl Quota {
    /// Counts a request against the quota.
    ///
    /// # Errors
    /// When the quota is spent: the seconds until it is renewed, rounded up.
    pub(crate) fn take<R: Refusal>(&self, faults: &Faults<R>, now: Timestamp) -> Result<(), u64> {
        if faults.quota_count == 0 {
            return Ok(());
        }
        let mut quota = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if now >= quota.ends_at {
            let ends_at = Timestamp(now.as_millis() + faults.quota_interval_ms);
            *quota = Interval { ends_at, taken: 0 };
        }
        if quota.taken >= faults.quota_count {
            return Err((quota.ends_at.as_millis() - now.as_millis()).div_ceil(1000));
        }
        quota.taken += 1;
        Ok(())
    }
}
