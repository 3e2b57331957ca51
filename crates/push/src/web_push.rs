//! Web Push: encryption, credentials, requests, answers, and where a request may go at all.
//!
//! One notification is one `POST` to the endpoint that the browser got from its push service (RFC 8030), its text
//! encrypted for this browser alone ([`encryption`], RFC 8291), signed for by the application server ([`vapid`],
//! RFC 8292). The endpoint is a URL that a client has chosen: [`guard`] says which of them are asked.

mod answer;
pub mod encryption;
pub mod guard;
mod headers;
mod reason;
mod request;
pub mod vapid;

pub use answer::classify;
pub(crate) use headers::shared_headers;
pub use reason::Reason;
pub use request::WebPush;
