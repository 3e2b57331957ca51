//! Pooled, pipelined clients of services over sockets: you implement a protocol, and the pool does the rest.
//!
//! A [`Protocol`] sets up a connection, encodes requests and decodes answers. A [`Pool`] keeps connections up, and writes
//! requests without waiting for earlier answers (pipelining). It ends every request exactly once, at its deadline at the
//! latest: with its answer, or with the reason why there is none ([`CallError`]).
//!
//! ```text
//! call ─┐ choose        ┌─ lane 0: inbox ─► task: waiting ─► in flight (pipeline) ─► socket ─┐
//! call ─┼─────────────► ├─ lane 1: …                                                         ├─► service
//! cast ─┘ full? Backlog └─ lane n: …        answers, deadlines, reconnects ◄─────────────────┘
//! ```
//!
//! **It does not** keep requests for later: they fail at once if there is no connection, or if all connections are full.
//! It does not repeat a request that the service may have handled, unless the protocol says that a repeat is harmless. It
//! does not discover services, and does not balance load over several: a pool has one address.
//!
//! **Order.** On one connection, requests are written in the order in which they reached it. If a connection is lost,
//! the requests that wait for its successor go first. There is no order between connections.
//!
//! **Bounds.** Per connection: `backlog_max` requests, including tombstones, of which `in_flight_max` are written;
//! `output_bytes_max` and one request to be written; `input_bytes_max` and one read that is not decoded yet. The fields
//! of [`PoolConfig`] say what happens at each limit; [`Counters`] say what did happen.
//!
//! | What happens | Effect on requests |
//! |---|---|
//! | all connections are full | new requests fail at once with [`CallError::Backlog`] |
//! | no connection is up | new requests fail at once with [`CallError::Unavailable`]; but they wait for the first attempt |
//! | deadline | [`CallError::Timeout`]; with an ordered protocol a *tombstone* remains, and discards the late answer |
//! | connection lost | unwritten and repeatable requests go to another connection, with the rest of their time; others end as [`CallError::Lost`] |
//! | malformed answer, answer without request | the connection is closed; written requests end as [`CallError::Violation`], unwritten ones go to another connection |
//! | silence, too many tombstones | the connection is closed, as if lost |
//! | caller gone | an unwritten request is withdrawn; the answer to a written one is discarded |
//! | drain | all requests are waited for; at the deadline they end as [`CallError::Closed`] |
//!
//! **Cost.** There is one task per connection. Callers that run before the task cost one wake-up together. The task reads
//! many answers at once, and writes all requests with one vectored write. A request allocates only the one-shot channel of
//! its answer. It takes two short locks, and its timer is set and removed in constant time.
//!
//! # Example
//!
//! A request is a line, and so is an answer:
//!
//! ```
//! use std::time::Duration;
//!
//! use bytes::BytesMut;
//! use tidings_pool::{Codec, Decoded, Expect, Outgoing, Pool, PoolConfig, Protocol, RequestId, Tcp};
//!
//! struct Lines;
//! struct LineCodec;
//!
//! impl Protocol for Lines {
//!     type Request = String;
//!     type Response = String;
//!     type Error = std::str::Utf8Error;
//!     type Codec = LineCodec;
//!
//!     fn codec(&self) -> LineCodec {
//!         LineCodec
//!     }
//! }
//!
//! impl Codec<Lines> for LineCodec {
//!     fn encode(
//!         &mut self,
//!         request: &String,
//!         _: RequestId,
//!         out: &mut Outgoing,
//!     ) -> Result<Expect<String>, std::str::Utf8Error> {
//!         out.put_slice(request.as_bytes());
//!         out.put_slice(b"\n");
//!         Ok(Expect::Answer)
//!     }
//!
//!     fn decode(
//!         &mut self,
//!         _: Option<&String>,
//!         input: &mut BytesMut,
//!     ) -> Result<Decoded<String>, std::str::Utf8Error> {
//!         let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
//!             return Ok(Decoded::Incomplete);
//!         };
//!         let line = input.split_to(end + 1);
//!         Ok(Decoded::oldest(std::str::from_utf8(&line[..end])?.to_owned()))
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! # let address = listener.local_addr()?.to_string();
//! # let mut service = tokio::task::JoinSet::new();
//! # service.spawn(async move {
//! #     let (mut stream, _) = listener.accept().await.unwrap();
//! #     let (mut from, mut to) = stream.split();
//! #     tokio::io::copy(&mut from, &mut to).await.unwrap();
//! # });
//! let pool = Pool::start(PoolConfig::new("echo", 1), Lines, Tcp::new(address))?;
//! let timeout = Duration::from_secs(1);
//! let (one, two) = tokio::join!(pool.call("one".into(), timeout), pool.call("two".into(), timeout));
//! assert_eq!((one?.as_str(), two?.as_str()), ("one", "two"));
//! assert!(pool.drain(Duration::from_secs(1)).await);
//! # Ok(())
//! # }
//! ```

mod book;
mod config;
mod connect;
mod core;
mod counters;
mod driver;
mod error;
mod lane;
mod outgoing;
mod pool;
mod protocol;
mod wheel;

pub use config::{ConfigError, PoolConfig, Reconnect, Strategy};
pub use connect::{Connect, Tcp, Tls, Transport, Udp, UdpTransport, Unix};
pub use counters::Counters;
pub use error::{CallError, Violation};
pub use lane::Answer;
pub use outgoing::Outgoing;
pub use pool::Pool;
pub use protocol::{Codec, Decoded, Expect, Matching, Protocol, RequestId, SetUp, To};
