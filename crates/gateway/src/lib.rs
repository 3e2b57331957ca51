//! Connections to push providers.
//!
//! A [`Gateway`] pulls notifications out of its [`Lakes`](tidings_push::Lakes) as its connections have room, sends each
//! over HTTP/2, and tells the [`OutcomeSink`](tidings_push::OutcomeSink) what became of it: exactly once for every
//! notification taken. What a request looks like and what an answer means is a [`Dialect`](tidings_push::Dialect) of
//! `tidings-push`; whom to tell what, the sender's matter.
//!
//! Browsers have push services of their own: a [`WebPushGateway`] sends to them over HTTP/2 or HTTP/1.1, to those of each allowed
//! host and each wildcard apart ([`WebPushService`]).
//!
//! There are two transports, `http2` and `web_push`; guarantees and bounds of each are in the header of its module. The
//! life of a notification is the same in both: `attempt` says why it is over and when it is repeated, `settle` tells
//! its outcome, [`Turns`](tidings_buffer::Turns) which priority is next, `drain` how it all ends.

mod attempt;
mod drain;
mod error;
mod http2;
mod metrics;
mod settle;
mod web_push;

pub use drain::Drained;
pub use error::{AccessError, StartError};
pub use http2::{
    CertificateError, ClientCertificate, Condition, Credential, Gateway, GatewayConfig, Health, HealthWatch, OAuth,
};
pub use web_push::{Network, NetworkFuture, SystemNetwork, WebPushConfig, WebPushGateway, WebPushService};
