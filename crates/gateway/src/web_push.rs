//! Sending to browsers, whose push service each browser has chosen: a [`WebPushGateway`] sends with one key to the services of a
//! list of rules.
//!
//! A rule is a host, or a wildcard such as `*.push.apple.com`. For each rule, and for the quarantine of each rule, there is a
//! [`WebPushService`]: lakes, a driver (a task), connections, breakers. So a push service that takes nothing delays no browser of
//! another rule. All of them share the gateway's threads: encrypting takes about 0.1 ms, and everything that waits is asynchronous.
//!
//! What follows is about one rule: it has one *origin* (scheme, host, port of an endpoint) for each allowed port of a host, any number
//! of origins for a wildcard. With each origin the gateway speaks HTTP/2 or HTTP/1.1 (`link`). What a request looks like and what an
//! answer means is decided in `tidings-push`, how HTTP/1.1 is spoken in `tidings-http1`.
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
//!   in that priority's lake wait until it takes some, until its notifications are over, or until it is dead. If other origins
//!   take something meanwhile, an origin is dead after 5 minutes in which it took nothing; one that has never answered, after
//!   three failed probes (`origins`).
//! - What may still be sent is thrown away in one case only: dead origins together hold more than half of a priority. An
//!   outage of our own network makes no origin dead, nor does its end.
//! - What is expired, cancelled or superseded ends within a second wherever it is held, and in a lake once nothing that
//!   is still to be sent is before it; one of that moves up a second, while there is room (`driver`).
//! - Nothing is connected to but public addresses, whatever a name says and when (`network`); endpoints whose host is
//!   not allowed are not even looked up. Rules that admit private addresses are for development.
//! - A notification is repeated after an answer that allows it, after an attempt that was not sent, and after one
//!   without an answer if its request had a topic; never past its expiry, and asked anew each time whether it is still
//!   wanted.
//! - Everything taken from the lakes is settled once (`settle`), or counted as left behind when the gateway is aborted.
//! - Names that somebody has made up, once their probes have failed, keep at most half of what may be held of a priority; they
//!   always have at most half of the places (`origins`).
//!
//! An origin's rate is at most `connection_count_max` ÷ round trip, over HTTP/2 times the requests that a connection takes.
//!
//! Bounds, for each service: `held_max` notifications; at most `origin_count_max` origins with `connection_count_max` connections
//! each. Of an answer a head of 16 KiB and a body of 4 KiB. Full: nothing more is taken from the lakes; what dead
//! origins have too much of is rejected. Closed lakes: the rest is sent, then the gateway ends by itself.

mod config;
mod driver;
mod exchange;
mod gate;
mod link;
mod network;
mod origins;
mod service;

pub use config::{WebPushConfig, WebPushService};
pub use network::{Network, NetworkFuture, SystemNetwork};
pub use service::WebPushGateway;
