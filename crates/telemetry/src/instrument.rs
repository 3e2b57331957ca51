//! Counters and gauges: one number each, shared by its holders and the scrape.
//!
//! All operations are relaxed atomics. A scrape reads the numbers one after another, not all at one moment. Each number
//! has its own pair of cache lines, so two cores that count different things do not slow each other down.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

/// Computes a value for each scrape; called while no lock of this crate is held.
pub type ValueFn = Arc<dyn Fn() -> f64 + Send + Sync>;

/// 128 bytes: x86-64 fetches cache lines in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// A number that only grows; wraps after 2^64.
#[derive(Debug, Clone, Default)]
pub struct Counter(Arc<Padded<AtomicU64>>);

impl Counter {
    /// Adds one.
    pub fn inc(&self) {
        self.add(1);
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.0.fetch_add(count, Relaxed);
    }

    /// The sum so far.
    #[must_use]
    pub fn value(&self) -> u64 {
        self.0.0.load(Relaxed)
    }
}

/// A number that goes up and down. For a level that changes fast use two counters, in and out: their rates say more.
#[derive(Debug, Clone, Default)]
pub struct Gauge(Arc<Padded<AtomicI64>>);

impl Gauge {
    /// Replaces the value.
    pub fn set(&self, value: i64) {
        self.0.0.store(value, Relaxed);
    }

    /// Raises the value by `amount`.
    pub fn add(&self, amount: i64) {
        self.0.0.fetch_add(amount, Relaxed);
    }

    /// Lowers the value by `amount`.
    pub fn sub(&self, amount: i64) {
        self.0.0.fetch_sub(amount, Relaxed);
    }

    /// The value now.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.0.0.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Gauge};

    #[test]
    fn counts_from_many_threads_add_up() {
        let (counter, gauge) = (Counter::default(), Gauge::default());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for round in 0..10_000 {
                        counter.inc();
                        counter.add(2);
                        gauge.add(round);
                        gauge.sub(round + 1);
                    }
                });
            }
        });
        assert_eq!(counter.value(), 4 * 10_000 * 3);
        assert_eq!(gauge.value(), -40_000);
        gauge.set(7);
        assert_eq!(gauge.value(), 7);
    }

    #[test]
    fn two_numbers_never_share_a_cache_line() {
        let (one, other) = (Counter::default(), Counter::default());
        let apart = (&raw const one.0.0).addr().abs_diff((&raw const other.0.0).addr());
        assert!(apart >= 128, "{apart} bytes apart");
    }
}
