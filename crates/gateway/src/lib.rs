//! Connections to push providers.
//!
//! A [`Gateway`] takes notifications out of its [`Lakes`](tidings_push::Lakes) as its connections have room, and sends
//! each over HTTP/2. It reports exactly one outcome for every notification taken to the
//! [`OutcomeSink`](tidings_push::OutcomeSink). A [`Dialect`](tidings_push::Dialect) of `tidings-push` decides what a
//! request looks like and what an answer means. The sender decides which devices get which notification.
//!
//! Browsers have their own push services. A [`WebPushGateway`] sends to them over HTTP/2 or HTTP/1.1, separately for
//! each allowed host and each wildcard ([`WebPushService`]).
//!
//! There are two transports, `http2` and `web_push`; the header of each has its guarantees and bounds. Both share the
//! life of a notification: `attempt` decides why it is over and when it is repeated, `settle` reports its outcome,
//! [`Turns`](tidings_buffer::Turns) chooses the next priority, and `drain` ends the threads.

mod attempt;
mod drain;
mod error;
mod http2;
mod memory;
mod metrics;
mod settle;
mod web_push;

pub use drain::Drained;
pub use error::{AccessError, StartError};
pub use http2::{
    Certificate, CertificateError, ClientCertificate, Condition, Credential, Gateway, GatewayConfig, Health,
    HealthWatch, OAuth,
};
pub use memory::Room;
pub use web_push::{Network, NetworkFuture, SystemNetwork, WebPushConfig, WebPushGateway, WebPushService};
