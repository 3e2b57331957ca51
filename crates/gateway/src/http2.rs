//! Sending to one provider over HTTP/2: a [`Gateway`] has a few connections with thousands of streams each.
//!
//! ```text
//!            ┌ thread: current-thread runtime ─────────────────────────────────────┐
//!            │ scheduler: repeats that wait, budget, outcomes (one per thread)     │
//!  lakes ──► │   slot ─ connection ─ h2 ─ cork ─ TLS ─ TCP ─► provider             │ ──► outcome sink
//!            │   slot ─ connection ─ …             (one task per connection)       │
//!            └─────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Guarantees, and what they rest on:
//! - Never more streams open than the last acknowledged SETTINGS allow: `h2` counts, `cork` keeps the order of frames.
//!   Nor more than the peer's flow window takes (`frames`), or the provider's quota (`throttle`).
//! - The urgent first, and nobody starves (`Turns`).
//! - A notification is repeated after an answer that allows it, after GOAWAY or REFUSED_STREAM (not processed), or
//!   after an unknown outcome, always with the same id and collapse id; never past its expiry, and never before its
//!   Retry-After. Before each attempt the sink is asked whether it is still to be made.
//! - Requests handed over together leave in one write (`cork`).
//! - A connection has one credential for life, be it a key, a certificate or an account whose tokens are fetched
//!   (`oauth`). [`Gateway::reload`] replaces it for the connections to come; those there are open nothing more and end
//!   when what they have open is answered, beside their successors (`slot`).
//! - One dead address of a provider costs no connection (`addresses`). There are as many connections as are needed
//!   (`scaling`).
//!
//! Bounds, per thread: nothing is taken from the lakes, which makes the sender wait, while `connections × streams_max`
//! notifications are in flight or ready to be, or 16 times as many are held with those that wait for a repeat. Only to
//! find what is over while nothing is sent are up to another `connections × streams_max` held. A connection has at
//! most 1 MiB (`cork::CORK_BYTES_MAX`) not yet written, and a slot has at most two that leave beside the one that
//! works.
//! Closed lakes: the rest is sent, then the gateway ends by itself.
//!
//! To read it, begin with `service`, then `slot`, `connection` (one connection at work), `answers` (its open
//! streams) and `scheduler` (what the connections of a thread share). No file uses one that uses it.

mod addresses;
mod answers;
mod authorization;
mod config;
mod connect;
mod connection;
mod cork;
mod credential;
mod frames;
mod health;
mod intake;
mod oauth;
#[cfg(test)]
mod progress;
mod scaling;
mod scheduler;
mod service;
mod slot;
mod throttle;
mod token_thread;

pub use config::GatewayConfig;
pub(crate) use connection::is_not_processed;
pub use credential::{CertificateError, ClientCertificate, Credential};
pub use health::{Condition, Health, HealthWatch};
pub use oauth::OAuth;
pub use service::Gateway;
