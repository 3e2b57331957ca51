//! A batching writer: it collects the small writes of many producers in pages, and gives the pages to a sink.
//!
//! Writing 25 bytes at a time costs a system call each time, and producers wait for one lock. Here a producer copies
//! its message into the last page, under a lock that is held for some nanoseconds. A driver gives the sink one page after
//! another:
//!
//! - While the sink is idle, a message is written at once, as a page of its own.
//! - While the sink is busy, messages gather. They are written next, one page at a time.
//! - A message larger than a page is written alone, after the messages before it.
//!
//! So batching adds no delay, and batches grow with the load. A linger time can be set.
//!
//! The writer does not split, join, frame, read or reorder messages. Messages do not survive a restart. A page is given to
//! the sink only once: delivery is at most once. For values instead of bytes, or for several consumers, use
//! `tidings-buffer`. To write a stream from a single task, use `tokio::io::BufWriter`.
//!
//! # Bounds
//! At most `count_max` messages and `bytes_max` bytes wait. Above that, [`Full`] says which message is dropped or refused.
//! The sink has one more page. [`BatchConfig::memory_bytes_max`] says what this takes together. Pages are reused.
//!
//! # Losses
//! Every message is sent, dropped, refused, or held: see [`Counters`]. The stream itself reports dropped messages
//! ([`Announce`]), exact to the page: before the messages that followed them.
//!
//! # Sinks
//! [`StreamSink`] (any `AsyncWrite`), [`DatagramSink`] (one packet per page), [`IoSink`] (any blocking writer, on a
//! thread of its own), or your own [`Sink`]. A sink that fails, hangs or panics harms no producer: see [`Sink`].
//!
//! The state is in `core`, without lock, clock and I/O; `shared` puts a lock around it; `driver` does the work.

mod config;
mod core;
mod driver;
mod error;
#[cfg(feature = "tracing")]
mod make_writer;
mod shared;
mod sink;
mod writer;

pub use config::{Announce, BYTES_MAX, BatchConfig, Counters, Full, Loss, PAGE_BYTES_MAX};
pub use driver::Driver;
pub use error::{FlushError, WriteError};
#[cfg(feature = "tracing")]
pub use make_writer::{LineWriter, MakeBatchWriter};
pub use sink::{Datagram, DatagramSink, IoSink, Sink, StreamSink};
pub use writer::BatchWriter;
