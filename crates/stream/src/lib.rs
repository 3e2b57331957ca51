//! The publications of one channel in memory, without I/O, clock or locks.
//!
//! There are two stores, for two kinds of readers:
//!
//! - [`History`] is for readers that come back: publications by their [`Offset`](tidings_types::Offset), bounded by
//!   count and age. It answers history requests and resumes, and reports a gap if missed publications are gone.
//! - [`Tail`] is for connected readers: encoded frames by a running index, bounded by count and bytes. It is empty as
//!   soon as the slowest reader has everything. A reader that the tail has overtaken is told how many frames it missed.
//!
//! Both are a [`Log`](tidings_buffer::Log). The hub owns and locks them and passes the time.

mod history;
mod tail;

pub use history::{Gap, History, HistoryFilter, Retention};
pub use tail::{Encoded, Frame, FrameKind, Tail, TailBounds, TailUse};
pub use tidings_buffer::{Bounds, Lagged};
