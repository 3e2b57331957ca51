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
//! - A notification that may still be sent is dropped in one case only: dead origins together hold more than half of a
//!   priority. Neither an outage of our own network nor its end makes an origin dead.
//! - A held notification that is over (expired, cancelled or superseded) ends within a second. In a lake it ends once
//!   no notification that is still to be sent is before it; one such notification per second moves up, while there is
//!   room (`driver`).
//! - Only public addresses are connected to, whatever a name resolves to (`network`). Endpoints whose host is not
//!   allowed are not looked up. Rules that admit private addresses are for development.
//! - A notification is repeated after an answer that allows it, after an attempt that was not sent, and after an
//!   attempt without an answer if its request had a topic. It is never repeated past its expiry. Before each attempt
//!   the sink is asked whether the notification is still to be sent.
//! - Everything taken from the lakes is settled once (`settle`), or counted as left behind when the gateway is aborted.
//! - Invented host names hold at most half of a priority once their probes have failed, and always have at most half of
//!   the places (`origins`).
//!
//! An origin's rate is at most `connection_count_max` ÷ round trip, over HTTP/2 times the requests that a connection takes.
//!
//! Bounds, for each service: `held_max` notifications; at most `origin_count_max` origins with `connection_count_max`
//! connections each; of an answer, a head of 16 KiB and a body of 4 KiB. Full: nothing more is taken from the lakes,
//! and the excess of dead origins is rejected. Closed lakes: the rest is sent, then the gateway ends by itself.

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
