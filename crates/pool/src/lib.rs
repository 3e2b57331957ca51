//! Pooled, pipelined clients of services over sockets: implement a protocol, get the rest.
//!
//! A [`Protocol`] says how to set up a connection, encode a request, decode answers and say goodbye. A [`Pool`] of it
//! keeps connections up, writes many requests behind each other without waiting for answers, and ends every request
//! exactly once: with its answer, or with the reason why there is none ([`CallError`]), at its deadline at the latest.
//!
//! ```text
//! call ─┐ choose        ┌─ lane 0: inbox ─► task: waiting ─► in flight (pipeline) ─► socket ─┐
//! call ─┼─────────────► ├─ lane 1: …                                                         ├─► service
//! cast ─┘ full? Backlog └─ lane n: …        answers, deadlines, reconnects ◄─────────────────┘
//! ```
//!
//! **It does not** queue for later: with no connection up, or all full, requests fail at once. It does not repeat what
//! the service may have acted upon, unless the protocol says that this is harmless. It does not discover services or
//! spread load over several: a pool has one address.
//!
//! **Order.** On one connection requests are written in the order in which they reached it; those that stay for its
//! next connection after it was lost go first. Different connections know nothing of each other.
//!
//! **Bounds.** Per connection `backlog_max` requests, tombstones included, of which `in_flight_max` are written;
//! `output_bytes_max` and one request to be written, `input_bytes_max` and one read not understood yet. What happens
//! at each is in the fields of [`PoolConfig`]; what did happen in [`Counters`].
//!
//! | What happens | What becomes of the requests |
//! |---|---|
//! | all connections full | new ones: [`CallError::Backlog`], at once |
//! | no connection up | new ones: [`CallError::Unavailable`], at once (the first attempt is waited for) |
//! | deadline | [`CallError::Timeout`]; of an ordered protocol the place stays, a *tombstone*, and the late answer is discarded |
//! | connection lost | unwritten ones, and repeatable ones, go to another connection with the rest of their time; others [`CallError::Lost`] |
//! | malformed answer, answer without request | connection closed; all written on it: [`CallError::Violation`]; unwritten ones go to another |
//! | silence, too many tombstones | connection closed, as if lost |
//! | caller gone | withdrawn if unwritten, else its answer is discarded |
//! | drain | all are waited for; at its deadline [`CallError::Closed`] |
//!
//! **Cost.** One task per connection. Callers that run before it cost one wake-up together; it reads once for many
//! answers and writes all requests with one vectored write. Per request: the answer's one-shot channel, nothing else is
//! allocated; two short locks (hand in, take); a timer is set and removed in constant time.
//!
//! # Example
//!
//! A line asks, a line answers:
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

mod backoff;
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
