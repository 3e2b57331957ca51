//! FCM: requests, answers and credentials of its HTTP v1 API (Google, "Send messages using the FCM HTTP v1 API").
//!
//! One notification is one `POST /v1/projects/<id>/messages:send` over HTTP/2. [`Fcm`] builds it, [`classify`] reads
//! the answer, and [`oauth`] keeps the access token.

mod answer;
pub mod oauth;
mod reason;
mod request;

pub use answer::classify;
pub use reason::Reason;
pub use request::{Fcm, ProjectError};
