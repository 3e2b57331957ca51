//! Waiting for a condition, with a deadline. Nothing in a campaign waits for a time.

use std::time::Duration;

use tokio::time::{Instant, interval};

/// Nothing that is waited for takes longer, however slow the machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
pub const PULSE: Duration = Duration::from_millis(10);

/// Looks until there is something to see.
///
/// # Panics
/// If there is nothing within [`PATIENCE`].
pub async fn until<T>(what: &str, look: impl AsyncFnMut() -> Option<T>) -> T {
    until_within(what, PATIENCE, look).await
}

/// The same within another time.
///
/// # Panics
/// If there is nothing within that time.
pub async fn until_within<T>(what: &str, patience: Duration, look: impl AsyncFnMut() -> Option<T>) -> T {
    let seen = try_until(patience, look).await;
    seen.unwrap_or_else(|| panic!("within {patience:?} it does not come to this: {what}"))
}

/// The same for a caller that says itself what is wrong when there is nothing to see.
pub async fn try_until<T>(patience: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> Option<T> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_looks_until_there_is_something_or_the_time_is_over() {
        let mut count = 0;
        let seen = until("the third look", async || {
            count += 1;
            (count == 3).then_some(count)
        });
        assert_eq!(seen.await, 3);
        assert_eq!(try_until(2 * PULSE, async || None::<()>).await, None);
    }
}
