//! Waiting for a condition, with a deadline.

use std::time::Duration;

use tokio::time::{Instant, interval};

/// For anything that should be there at once or within the server's usual times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(15);
/// Between two looks.
const PULSE: Duration = Duration::from_millis(5);

/// Looks until there is something to see.
pub(crate) async fn until<T>(what: &str, patience: Duration, look: impl AsyncFnMut() -> Option<T>) -> T {
    let seen = try_until(patience, look).await;
    seen.unwrap_or_else(|| panic!("within {} s it does not come to this: {what}", patience.as_secs()))
}

/// The same for who says what is wrong when there is nothing to see.
pub(crate) async fn try_until<T>(patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + patience;
    let mut pulse = interval(PULSE);
    loop {
        pulse.tick().await;
        let seen = look().await;
        if seen.is_some() || Instant::now() >= deadline {
            return seen;
        }
    }
}
