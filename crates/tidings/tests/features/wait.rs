//! Waiting for a condition, with a deadline.

use std::time::Duration;

use tokio::time::{Instant, interval};

/// For anything that should be there at once or within the server's usual times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks.
const PULSE: Duration = Duration::from_millis(5);

/// Looks until there is something to see.
pub(crate) async fn until<T>(what: &str, patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    let mut pulse = interval(PULSE);
    loop {
        pulse.tick().await;
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(Instant::now() < deadline, "within {} s it does not come to this: {what}", patience.as_secs());
    }
}
