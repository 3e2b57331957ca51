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
//! - No more streams are open than the last acknowledged SETTINGS allow (`h2` counts, `cork` keeps the order of
//!   frames), than the peer's flow window takes (`frames`), or than the provider's quota allows (`throttle`).
//! - Urgent notifications go first, and no priority starves (`Turns`).
//! - A notification is repeated after an answer that allows it, after GOAWAY or REFUSED_STREAM (not processed), or
//!   after an unknown outcome. A repeat has the same id and collapse id. It is never made past its expiry or before its
//!   Retry-After. Before each attempt the sink is asked whether the notification is still to be sent.
//! - Requests handed over together leave in one write (`cork`).
//! - A connection keeps one credential: a key, a certificate, or an account whose tokens are fetched (`oauth`).
//!   [`Gateway::reload`] replaces the credential for new connections. The old connections open no more streams, and end
//!   when their open streams are answered, beside their successors (`slot`).
//! - A dead address of a provider costs no connection (`addresses`). The number of connections follows the need
//!   (`scaling`).
//!
//! Bounds, per thread: nothing is taken from the lakes while `connections × streams_max` notifications are in flight or
//! ready, or while 16 times as many are held including those that wait for a repeat. The sender waits then. While
//! nothing is sent, up to another `connections × streams_max` are held to find those that are over. A connection has at
//! most 1 MiB (`cork::CORK_BYTES_MAX`) of unwritten bytes. A slot has at most two leaving connections beside the
//! working one. Closed lakes: the rest is sent, then the gateway ends by itself.
//!
//! To read the code, begin with `service`, then `slot`, `connection` (one connection at work), `answers` (its open
//! streams) and `scheduler` (what the connections of a thread share). There are no circles between files.

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
mod trouble;

pub use config::GatewayConfig;
pub(crate) use connection::is_not_processed;
pub use credential::{Certificate, CertificateError, ClientCertificate, Credential};
pub use health::{Condition, Health, HealthWatch};
pub use oauth::OAuth;
pub use service::Gateway;
