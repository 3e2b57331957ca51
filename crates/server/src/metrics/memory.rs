//! Memory that is bounded: for each part of the memory sum its bound, and what of it is used now, if that is known.
//!
//! A part is measured as the sum counts it: a number of things times the bytes that one of them is said to take
//! (`tidings config check` prints both). So the values say how near a bound is, not what the allocator gave out.

use std::sync::Arc;

use tidings_telemetry::memory::{MemorySum, Term};
use tidings_telemetry::{Registry, ValueFn, metrics};

/// How much of a part is used now.
pub(super) enum Live {
    /// So many of its things.
    Count(ValueFn),
    /// So many bytes.
    Bytes(ValueFn),
}

/// Makes the bound of each part of `sum` part of the metrics.
pub(super) fn register_bounds(registry: &Registry, sum: &MemorySum) {
    for &Term { name, count, bytes_each, .. } in &sum.terms {
        let bound = count.saturating_mul(bytes_each) as f64;
        registry.computed(&metrics::server::MEMORY_BOUND_BYTES, &[name], Arc::new(move || bound));
    }
}

/// The same of the use of those parts that `live` names.
pub(super) fn register_use<const N: usize>(registry: &Registry, sum: &MemorySum, live: [(&'static str, Live); N]) {
    for (name, live) in live {
        let term = sum.terms.iter().find(|term| term.name == name).expect("the sum has these parts with any settings");
        let (value, bytes_each) = match live {
            Live::Count(value) => (value, term.bytes_each as f64),
            Live::Bytes(value) => (value, 1.0),
        };
        registry.computed(&metrics::server::MEMORY_USED_BYTES, &[name], Arc::new(move || value() * bytes_each));
    }
}
