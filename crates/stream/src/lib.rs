//! One channel's memory, without I/O, clock or locks.
//!
//! Two things are kept of what was published, for two kinds of reader:
//!
//! - [`History`] is what a reader can come back to: publications under their [`Offset`](tidings_types::Offset), bounded
//!   by count and age. It answers history requests and resumes, or says plainly that what was missed is gone.
//! - [`Tail`] is what connected readers are still to be written: encoded frames under a running index, bounded by count
//!   and bytes, and empty as soon as the slowest reader has everything. A reader that falls off it is told how much
//!   it missed.
//!
//! Both are a [`Log`](tidings_buffer::Log): one in the words of a channel, the other in those of a connection. Who owns
//! them (the hub), locks them and calls them with the time is none of their business.

mod history;
mod tail;

pub use history::{Gap, History, HistoryFilter, Retention};
pub use tail::{Frame, Tail, TailBounds};
pub use tidings_buffer::{Bounds, Lagged};
