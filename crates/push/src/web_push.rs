//! Web Push: encryption, credentials, requests, answers, and where a request may go at all.
//!
//! One notification is one `POST` to the endpoint that the browser got from its push service (RFC 8030). Its text is
//! encrypted for this browser alone ([`encryption`], RFC 8291) and signed by the application server ([`vapid`], RFC
//! 8292). The endpoint is a URL that a client has chosen: [`guard`] decides which endpoints are called.

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
