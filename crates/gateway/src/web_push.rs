//! Sending to browsers, whose push service each browser has chosen: a [`WebPushGateway`] sends to those that one rule admits.
//!
//! A rule is a host, or a wildcard such as `*.push.apple.com`. The server starts a gateway for each rule, and one for its
//! quarantine, each with lakes of its own. So a push service that takes nothing delays no browser of another rule. What
//! follows is about the services of one rule: one *origin* (scheme, host, port of an endpoint) for a host, any number of them
//! for a wildcard. With each origin it speaks HTTP/2 or HTTP/1.1 (`link`). What a request looks like and what an answer means is
//! decided in `tidings-push`, how HTTP/1.1 is spoken in `tidings-http1`.
//!
//! ```text
//!            ┌ driver ──────────────────────────────┐       ┌ task per attempt ─────────────────────────┐
//!   lakes ──►│ origins: queue, gate, budget,        │ next  │ encrypt ─ send ─ read ─ classify          │
//!            │ places, connections   (`origins`)    │──────►│   │                                       │──► push
//!   sink ◄───│ outcomes: one each       (`settle`)  │◄──────│   └ look up, check, connect, TLS (`network`)│   service
//!            └──────────────────────────────────────┘ ended └───────────────────────────────────────────┘
//! ```
//!
//! Guarantees, and what they rest on:
//! - A slow, dead or full origin costs itself: queue, breaker, pauses, retry budget, connections and attempts under way
//!   are its own. Other origins pass it until it holds all that may be held of a priority. Then the notifications behind it
//!   in that priority's lake wait until it takes some, or until its notifications are over. If other origins answer, they
//!   wait no longer than until it counts as dead: 10 minutes if it asks for pauses, 5 if it is silent or answers nothing but
//!   5xx, about 20 s if it has never answered (`origins`).
//! - What may still be sent is thrown away in one case only: dead origins together hold more than half of a priority. An
//!   origin is not dead because of a failure that may be our own network's: an outage rejects nothing, nor does its end.
//!   What an outage of less than 10 s may cost, `origins` says.
//! - What is expired, cancelled or superseded ends within a second wherever it is held, and in a lake once nothing that
//!   is still to be sent is before it; one of that moves up a second, while there is room (`driver`).
//! - Nothing is connected to but public addresses, whatever a name says and when (`network`); endpoints whose host is
//!   not allowed are not even looked up. Rules that admit private addresses are for development.
//! - A notification is repeated after an answer that allows it, after an attempt that was not sent, and after one
//!   without an answer if its request had a topic; never past its expiry, and asked anew each time whether it is still
//!   wanted.
//! - Everything taken from the lakes is settled once (`settle`), or counted as left behind when the gateway is aborted.
//! - Names and endpoints that somebody has made up keep at most half of what may be held of a priority, and half of the
//!   places (`origins`).
//!
//! An origin's rate is at most `connection_count_max` ÷ round trip, over HTTP/2 times the requests that a connection takes.
//!
//! Bounds: `held_max` notifications in all; at most `origin_count_max` origins with `connection_count_max` connections
//! each; of an answer a head of 16 KiB and a body of 4 KiB. Full: nothing more is taken from the lakes; what dead
//! origins have too much of is rejected. Closed lakes: the rest is sent, then the gateway ends by itself.

mod config;
mod driver;
mod exchange;
mod gate;
mod link;
mod network;
mod origins;
mod service;

pub use config::WebPushConfig;
pub use network::{Network, NetworkFuture, SystemNetwork};
pub use service::WebPushGateway;
