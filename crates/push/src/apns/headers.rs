//! The headers of a request to APNs.
//!
//! Headers that no two requests share (`apns-id`) or that change with each job (`apns-collapse-id`, `apns-expiration`)
//! are marked sensitive. HPACK then sends them as never-indexed literals, and the provider's small header table keeps
//! those that repeat (`apns-topic`, `apns-push-type`, `apns-priority`). `h2` never indexes `:path` and `authorization`.

use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};

use crate::parts::RenderingParts;
use crate::payload::ApnsBody;

pub(super) const APNS_ID: HeaderName = HeaderName::from_static("apns-id");
const APNS_TOPIC: HeaderName = HeaderName::from_static("apns-topic");
const APNS_PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const APNS_PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const APNS_EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const APNS_COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");

/// Headers per request, for sizing the map once.
pub(super) const HEADER_COUNT: usize = 7;

/// The headers that all notifications of one rendering share.
pub(crate) fn shared_headers(parts: &RenderingParts, body: &ApnsBody) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(HEADER_COUNT);
    headers.insert(APNS_TOPIC, visible(parts.app.as_str()));
    headers.insert(APNS_PUSH_TYPE, HeaderValue::from_static(body.push_type.as_str()));
    headers.insert(APNS_PRIORITY, HeaderValue::from_static(body.priority.as_str()));
    headers.insert(APNS_EXPIRATION, sensitive(HeaderValue::from(parts.expires_at.as_secs())));
    headers.insert(APNS_COLLAPSE_ID, sensitive(visible(parts.collapse_id.as_str())));
    headers
}

pub(super) fn visible(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("our names are visible ASCII")
}

pub(super) fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}
