//! A batching writer: collects small writes of many producers and hands the sink pages of them.
//!
//! Writing 25 bytes at a time costs a system call each time and makes producers queue up for one lock behind it. Here a
//! producer copies its message into the last page, under a lock that is held for some nanoseconds, and a driver gives the
//! sink page after page:
//!
//! - *idle*, a message goes out at once, as a page of its own;
//! - *busy*, whatever gathered while the sink was writing goes out next, a page at a time;
//! - a message larger than a page goes alone, after what was before it.
//!
//! So batching costs no time, and batches grow with the load. There may be a linger in addition.
//!
//! It does not split, join, frame or look into messages, reorder them, keep them across a restart, or hand a page to the
//! sink a second time: delivery is at most once. For values rather than bytes, or for several consumers, use the buffers
//! of `tidings-buffer`; to write a stream from one task alone, `tokio::io::BufWriter`.
//!
//! # Bounds
//! `count_max` messages and `bytes_max` bytes wait; then [`Full`] says who goes. One page more is with the sink. In memory
//! that is at most about three times `bytes_max`, 8 bytes a message, and three pages; pages once used are kept.
//!
//! # Losses
//! Every message handed in is sent, dropped, refused, or held: see [`Counters`]. Of what is dropped the stream itself tells
//! ([`Announce`]), in its place to the page: before what followed the messages lost.
//!
//! # Sinks
//! [`StreamSink`] (any `AsyncWrite`), [`DatagramSink`] (one packet a page), [`IoSink`] (anything that blocks, on a thread of
//! its own), or your own [`Sink`]. One that fails, hangs or panics harms no producer: see there.
//!
//! The books are in `core`, without lock, clock and I/O; `shared` puts a lock around them; `driver` does the work.

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
