//! APNs: requests, answers and credentials (Apple, "Sending notification requests to APNs").
//!
//! One notification is one `POST /3/device/<token>` over HTTP/2. [`Apns`] builds it, [`classify`] reads the answer,
//! [`ProviderTokens`] keeps the credential that goes with it; a certificate, the other kind of credential, is the
//! connection's matter, and requests on it go without. Of which kind a push is, the app's topic says: [`check_app`].
//! Connections are the gateway's.

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
