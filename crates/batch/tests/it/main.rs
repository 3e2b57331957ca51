//! Writers with sinks, through the public interface.

mod chaos;
mod common;
mod concurrency;
mod handover;
mod sinks;
mod timing;
mod tracing_lines;
