//! CORS: which web pages' apps may call the API (Fetch standard of the WHATWG).
//!
//! A browser asks before each kind of request of its page (`OPTIONS`, the preflight). It shows the answer to the page
//! only if the page's origin is admitted. Apps prove themselves by headers, never by cookies, so no answer allows
//! credentials in the sense of the standard.

use std::time::Duration;

use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, ETAG, HeaderName, IF_MATCH, IF_NONE_MATCH, RETRY_AFTER};
use axum::http::{HeaderValue, Method};
use tidings_types::OriginPattern;
use tower_http::cors::{AllowOrigin, CorsLayer};

use crate::apps::CREDENTIAL_HEADER;

/// How long a browser may remember a preflight's answer. Browsers have limits of their own: two hours in Chrome, a day
/// in Firefox.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// Answers pages of these origins.
pub(crate) fn layer(origins: Vec<OriginPattern>) -> CorsLayer {
    let admits = move |origin: &HeaderValue, _: &_| {
        let origin = String::from_utf8_lossy(origin.as_bytes());
        origins.iter().any(|pattern| pattern.admits(&origin))
    };
    CorsLayer::new()
        .allow_origin(AllowOrigin::predicate(admits))
        .allow_methods([Method::GET, Method::PUT, Method::POST, Method::DELETE])
        .allow_headers([
            AUTHORIZATION,
            CONTENT_TYPE,
            IF_MATCH,
            IF_NONE_MATCH,
            HeaderName::from_static(CREDENTIAL_HEADER),
        ])
        .expose_headers([ETAG, RETRY_AFTER])
        .max_age(MAX_AGE)
}
