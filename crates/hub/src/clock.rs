//! The process's own clock.

use std::sync::LazyLock;

use tokio::time::Instant;

/// Microseconds of the process's own clock.
pub fn process_micros() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_micros() as u64
}
