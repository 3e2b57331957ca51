//! An HTTP/1.1 client for calls between servers: connections that are kept, requests pipelined on them.
//!
//! A [`Client`] talks to one [`Origin`] over a pool of connections. A [`Request`] that may be repeated without harm goes
//! out behind others that wait for their answers (RFC 9112, 9.3.2); any other travels alone, unless the caller says
//! otherwise. What the pool does (connections kept up by themselves, a bound on what waits, deadlines, draining) is
//! [`tidings_pool`]'s; here is the protocol: how a request is written and how an answer is read.
//!
//! An answer is read whole, and strictly. A server is not trusted: whatever would let two readers of the same bytes find
//! different answers in them is a [`Violation`], never guessed at, and everything that could be endless has a limit
//! ([`Limits`], and the constants beside it). The reader, [`Parser`], does no I/O and can be used alone.
//!
//! What it is not: a browser's client. No redirects, cookies, proxies, caches, compression, `Expect`, upgrades or tunnels;
//! answers are not streamed; one client knows one origin.
//!
//! ```
//! use std::time::Duration;
//! use tidings_http1::{Client, ClientConfig, Origin, Request, SendError};
//!
//! async fn is_alive(client: &Client) -> Result<bool, SendError> {
//!     let request = Request::get("/health").expect("a plain path");
//!     let response = client.send(request, Duration::from_secs(2)).await?;
//!     Ok(response.status().is_success())
//! }
//! ```
//!
//! Sources: RFC 9112 (HTTP/1.1), RFC 9110 (semantics); sections are cited where they are obeyed.

mod client;
mod origin;
mod parser;
mod protocol;
mod request;
mod response;
mod tls;

pub use client::{Client, ClientConfig, SendError, StartError};
pub use origin::{Origin, OriginError};
pub use parser::{
    Answer, CHUNK_EXTENSION_BYTES_MAX, CHUNK_LINE_BYTES_MAX, HEADER_COUNT_MAX, INTERIM_COUNT_MAX, Limits, Parser,
    Violation,
};
pub use protocol::{Http1, Http1Codec, Http1Error};
pub use request::{Request, RequestError};
pub use response::Response;
/// What keeps the connections: its settings are in [`ClientConfig::pool`].
pub use tidings_pool as pool;
pub use tls::{Roots, TlsClock, TlsError};

/// The example of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
