//! How fast a pool sends: streams per connection, number of connections, the provider's quota, and failing addresses.
//!
//! There are four small, independent cores. Before a gateway opens streams, it asks them in this order:
//!
//! ```text
//!  Breaker (per address) ─► a connection ─► Permits (streams, window) ─► Quota (per project) ─► take from the lake
//!                                ▲
//!                  ConnectionCount (how many there are)
//! ```
//!
//! None of them waits or has a timer; `simulation` runs all of them together in virtual time.

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
