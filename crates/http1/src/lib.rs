//! An HTTP/1.1 client for calls between servers: connections that are kept, requests pipelined on them.
//!
//! A [`Client`] talks to one [`Origin`] over a pool of connections. A [`Request`] that may be repeated without harm is
//! sent behind others that wait for their answers (RFC 9112, 9.3.2). Any other request has a connection for itself,
//! unless the caller says otherwise. [`tidings_pool`] keeps the connections up, bounds waiting requests, and handles
//! deadlines and draining. This crate is the protocol: it writes requests and reads answers.
//!
//! An answer is read as a whole, and strictly. A server is not trusted. If two readers could find different answers in
//! the same bytes, that is a [`Violation`]; nothing is guessed. Everything that could be endless has a limit
//! ([`Limits`], and the constants beside it). The reader, [`Parser`], does no I/O and can be used alone.
//!
//! It is not a browser's client: no redirects, cookies, proxies, caches, compression, `Expect`, upgrades or tunnels.
//! Answers are not streamed, and one client has one origin.
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
