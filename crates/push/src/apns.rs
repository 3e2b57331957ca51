//! APNs: requests, answers and credentials (Apple, "Sending notification requests to APNs").
//!
//! One notification is one `POST /3/device/<token>` over HTTP/2. [`Apns`] builds it, [`classify`] reads the answer, and
//! [`ProviderTokens`] keeps the credential. The other kind of credential, a certificate, belongs to the connection, and
//! its requests have no credential. The app's topic decides the kind of push: [`check_app`]. The gateway owns the
//! connections.

mod answer;
mod headers;
mod reason;
mod request;
mod token;
mod topic;

pub use answer::classify;
pub(crate) use headers::shared_headers;
pub use reason::Reason;
pub use request::Apns;
pub use token::{KeyError, ProviderKey, ProviderKeys, ProviderTokens, TOKEN_AGE_MIN, TOKEN_REFRESH_AGE};
pub(crate) use topic::addressed;
pub use topic::{UnsupportedApp, check_app};
