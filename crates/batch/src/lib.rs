//! A batching writer: collects small writes of many producers and hands the sink pages of them.
//!
//! Writing 25 bytes at a time costs a system call each time, and producers wait for one lock. Here a producer copies
//! its message into the last page, under a lock that is held for some nanoseconds, and a driver gives the sink one page
//! after another:
//!
//! - *idle*, a message goes out at once, as a page of its own;
//! - *busy*, the messages that arrived while the sink was writing go out next, one page at a time;
//! - a message larger than a page goes out alone, after the messages before it.
//!
//! So batching adds no delay, and batches grow with the load. A linger can be added.
//!
//! It does not split, join, frame or read messages, reorder them, keep them over a restart, or give a page to the sink
//! twice: delivery is at most once. For values instead of bytes, or for several consumers, use the buffers of
//! `tidings-buffer`. To write a stream from a single task, use `tokio::io::BufWriter`.
//!
//! # Bounds
//! `count_max` messages and `bytes_max` bytes wait; above that [`Full`] says which message is dropped or refused. One
//! more page is with the sink. In memory this is at most about three times `bytes_max`, 8 bytes per message, and three
//! pages. Used pages are kept.
//!
//! # Losses
//! Every message handed in is sent, dropped, refused, or held: see [`Counters`]. The stream itself reports dropped
//! messages ([`Announce`]) at their place, exact to the page: before the messages that followed them.
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
