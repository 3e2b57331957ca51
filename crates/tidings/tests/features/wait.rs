//! Waiting for a condition, with a deadline.

use std::time::Duration;

pub(crate) use tidings_trial::wait::try_until;
use tidings_trial::wait::until_within;

/// For anything that should be there at once or within the server's usual times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);

/// Looks until there is something to see.
pub(crate) async fn until<T>(what: &str, patience: Duration, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(what, patience, look).await
}
