//! Measuring inside: instruments, the registry that names them, Prometheus text, InfluxDB lines,
//! log set-up, the wall clock, what a panic costs.
//!
//! A component asks the [`Registry`] for its instruments once, when it is built, and holds them; from then on counting
//! is one relaxed atomic addition and timing one short lock. Whoever serves `/metrics` calls
//! [`Registry::prometheus`]; whoever sends to an agent asks an [`influx::Exporter`] for what is new. What the numbers
//! mean is the component's matter: this crate knows no topic, channel or provider, and never looks into them.
//!
//! Memory: a counter or gauge takes 256 bytes, a histogram at most 190 KiB (less as long as nothing slow was recorded);
//! the number of series is bounded, see [`Registry`]. An exporter keeps a copy of every histogram.

mod chain;
mod clock;
mod histogram;
pub mod influx;
mod instrument;
pub mod log;
pub mod panics;
pub mod process;
mod prometheus;
mod registry;

pub use chain::chain;
pub use clock::unix_now;
pub use histogram::{HISTOGRAM_MAX, Histogram, HistogramSnapshot, LocalHistogram};
pub use instrument::{Counter, Gauge, ValueFn};
pub use registry::{LABEL_VALUE_BYTES_MAX, Registry, SERIES_COUNT_MAX};
