//! Writers with sinks, from outside.

mod chaos;
mod common;
mod concurrency;
mod handover;
mod sinks;
mod timing;
mod tracing_lines;
