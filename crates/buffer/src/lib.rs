//! Bounded buffers: what waits, waits here.
//!
//! A buffer moves values between tasks and knows nothing about them. Each states its capacity, what happens when it is
//! full or closed, and counters that obey a conservation law: what was accepted was delivered, dropped, or is held.

mod lake;

pub use lake::{Closed, Consumer, Counters, Lake, PushBatch, Take, TryPushError};
