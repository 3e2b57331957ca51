//! How fast a pool sends: streams per connection, connections, the provider's quota, addresses in trouble.
//!
//! Four small cores that know nothing of each other; a gateway asks them in this order before it opens streams:
//!
//! ```text
//!  Breaker (per address) ─► a connection ─► Permits (streams, window) ─► Quota (per project) ─► take from the lake
//!                                ▲
//!                  ConnectionCount (how many there are)
//! ```
//!
//! None of them waits or owns a timer; `simulation` runs all of them together in virtual time.

mod breaker;
mod connections;
mod permits;
mod quota;
#[cfg(test)]
mod simulation;

pub use breaker::Breaker;
pub use connections::{ConnectionCount, GROW_AFTER, SHRINK_AFTER};
pub use permits::Permits;
pub use quota::Quota;
