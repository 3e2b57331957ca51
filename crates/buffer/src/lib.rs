//! Bounded buffers between tasks.
//!
//! A buffer moves values between tasks and knows nothing about them. Each shape states its bounds, what happens when it
//! is full or closed, and counters that obey a conservation law: what was accepted was delivered, was dropped, or is
//! held. All of these can be read, and the bounds changed, while the buffer is in use. There are three shapes:
//!
//! | Shape | Who | A value goes to | Full |
//! |---|---|---|---|
//! | [`Ring`] | one owner, no lock | whoever pops | evict oldest, drop newest, reject |
//! | [`Lake`] | many producers, many consumers with demand | one consumer | the same, or wait |
//! | [`Log`], [`SharedLog`] | many writers, many readers with positions | every reader | the oldest goes, readers are told |
//!
//! [`FairQueue`] serves groups of those who wait in turn, so that who asks for much does not delay who asks for little.
//! [`Turns`] says which of several buffers is next, where one comes before the other and none may starve.
//!
//! No runtime is needed: a waiting task is woken by its [`std::task::Waker`]. No `unsafe`: the shared shapes are plain
//! structures behind std's lock. The lock is held for some tens of nanoseconds; while it is held, no waker is called
//! and no value dropped.
//!
//! **Checked** by models beside the real thing under random operations (the `tests` of each module), by real threads
//! (`tests/`), and by loom in every interleaving of small cases with at most three preemptions (`src/interleavings.rs`).

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// `Mutex` comes from `crate::sync`, not `std::sync`, so that `interleavings.rs` can put loom's in its place.
mod bounds;
mod fair;
mod lake;
mod log;
mod ring;
mod sync;
mod turns;

pub use bounds::{Bounds, Counters, Full, NoRoom, Rejected};
pub use fair::{FairQueue, Line};
pub use lake::{Closed, Consumer, Lake, PushBatch, PushError, Take, TryPushError};
pub use log::{Lagged, Log, LogCounters, Read, Reader, SharedLog};
pub use ring::Ring;
pub use turns::Turns;
