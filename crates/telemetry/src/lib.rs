//! Measuring and reporting: the table of all metrics, instruments, the registry of them, Prometheus text, InfluxDB
//! lines, the set-up of logs, the wall clock and how a moment is written, what a panic
//! ends, spans of traces, and how much memory bounds allow.
//!
//! A component asks the [`Registry`] for its instruments once, when it is built, and holds them. Then counting costs
//! one relaxed atomic addition, and timing costs one short lock. The route `/metrics` calls [`Registry::exposed`].
//! An [`influx::Exporter`] writes what is new for an agent. Every metric is declared in [`metrics`]. The rest of this
//! crate does not know what a number means: it has no topics, channels or providers.
//!
//! Memory: a counter or gauge takes 256 bytes, a histogram at most 230 KiB (less while it has only small values). The
//! number of series is bounded, see [`Registry`]. An exporter keeps a copy of every histogram.

mod clock;
mod histogram;
pub mod influx;
mod instrument;
pub mod log;
pub mod memory;
mod metric;
pub mod metrics;
pub mod panics;
pub mod process;
mod prometheus;
mod read;
mod registry;
pub mod rfc3339;
pub mod trace;

pub use clock::{unix_nanos, unix_now};
pub use histogram::{HISTOGRAM_MAX, Histogram, HistogramSnapshot, LocalHistogram};
pub use instrument::{Counter, Gauge, ValueFn};
pub use metric::{Bounds, Group, Kind, Metric, Panel};
pub use prometheus::Exposition;
pub use registry::{LABEL_VALUE_BYTES_MAX, Registry, SERIES_COUNT_MAX};
pub use tidings_types::chain;
