//! A notification as an HTTP/2 request.
//!
//! Headers that no two requests share (`apns-id`) or that change from job to job (`apns-collapse-id`,
//! `apns-expiration`) are marked sensitive: HPACK then sends them as never-indexed literals, and the provider's small
//! header table keeps what repeats (`apns-topic`, `apns-push-type`, `apns-priority`). `:path` and `authorization` are
//! never indexed by `h2` anyway.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use tidings_types::DeviceToken;

use crate::{Notification, RenderingParts};

const APNS_ID: HeaderName = HeaderName::from_static("apns-id");
const APNS_TOPIC: HeaderName = HeaderName::from_static("apns-topic");
const APNS_PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const APNS_PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const APNS_EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const APNS_COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");

/// Headers per request, for sizing the map once.
const HEADER_COUNT: usize = 7;

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
const UUID_TEXT_BYTES: usize = 36;

/// The headers that all notifications of one rendering share.
pub(crate) fn shared_headers(parts: &RenderingParts) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(HEADER_COUNT);
    headers.insert(APNS_TOPIC, visible(parts.app.as_str()));
    headers.insert(APNS_PUSH_TYPE, HeaderValue::from_static(parts.push_type.as_str()));
    headers.insert(APNS_PRIORITY, HeaderValue::from_static(parts.priority.as_str()));
    headers.insert(APNS_EXPIRATION, sensitive(HeaderValue::from(parts.expires_at.as_secs())));
    headers.insert(APNS_COLLAPSE_ID, sensitive(visible(parts.collapse_id.as_str())));
    headers
}

fn visible(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("our names are visible ASCII")
}

fn sensitive(mut value: HeaderValue) -> HeaderValue {
    value.set_sensitive(true);
    value
}

/// Builds the requests to one provider host.
#[derive(Debug, Clone)]
pub struct Requests {
    authority: Authority,
}

impl Requests {
    /// Requests to `authority`: `host` or `host:port`.
    ///
    /// # Errors
    /// When it is not an authority.
    pub fn new(authority: &str) -> Result<Self, InvalidUri> {
        Ok(Self { authority: authority.parse()? })
    }

    /// The head of the request that carries `notification`; its body is the rendering's payload.
    ///
    /// `authorization` is what [`super::ProviderTokens::authorization`] gave; none on a connection with a certificate.
    pub fn head(&self, notification: &Notification, authorization: Option<HeaderValue>) -> Request<()> {
        let mut headers = notification.rendering.headers().clone();
        let mut id = [0; UUID_TEXT_BYTES];
        headers.insert(APNS_ID, sensitive(visible(notification.id.0.hyphenated().encode_lower(&mut id))));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization);
        }
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(path(&notification.token));
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
        *request.headers_mut() = headers;
        request
    }
}

fn path(token: &DeviceToken) -> PathAndQuery {
    const PREFIX: &[u8] = b"/3/device/";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut path = Vec::with_capacity(PREFIX.len() + 2 * token.as_bytes().len());
    path.extend_from_slice(PREFIX);
    for byte in token.as_bytes() {
        path.push(DIGITS[usize::from(byte >> 4)]);
        path.push(DIGITS[usize::from(byte & 15)]);
    }
    PathAndQuery::from_maybe_shared(Bytes::from(path)).expect("hexadecimal digits make a path")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tidings_types::{
        AppId, CollapseKey, DeviceId, DeviceNumber, EventId, JournalPosition, NotificationId, Timestamp,
    };

    use super::*;
    use crate::{Priority, PushType, Rendering, Ticket};

    #[test]
    fn a_request_has_all_that_apns_asks_for() {
        let parts = RenderingParts {
            app: AppId::new("org.example.scores").unwrap(),
            push_type: PushType::Alert,
            priority: Priority::Immediate,
            expires_at: Timestamp(1_800_000_000_999),
            collapse_id: CollapseKey::new("match-7").unwrap(),
            payload: Bytes::from_static(b"{}"),
        };
        let notification = Notification {
            id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new("phone").unwrap()),
            token: DeviceToken::from_hex("00Ff12").unwrap(),
            rendering: Arc::new(Rendering::new(parts)),
            ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(2) },
        };
        let requests = Requests::new("push.example:8443").unwrap();
        let request = requests.head(&notification, Some(HeaderValue::from_static("bearer x")));
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri(), "https://push.example:8443/3/device/00ff12");
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!(header("authorization"), "bearer x");
        assert_eq!(header("apns-id"), notification.id.to_string());
        assert_eq!(header("apns-topic"), "org.example.scores");
        assert_eq!(header("apns-push-type"), "alert");
        assert_eq!(header("apns-priority"), "10");
        assert_eq!(header("apns-expiration"), "1800000000");
        assert_eq!(header("apns-collapse-id"), "match-7");
        assert_eq!(request.headers().len(), HEADER_COUNT);
        for name in ["apns-id", "apns-collapse-id", "apns-expiration"] {
            assert!(request.headers()[name].is_sensitive(), "{name} must not churn the header table");
        }
        for name in ["apns-topic", "apns-push-type", "apns-priority"] {
            assert!(!request.headers()[name].is_sensitive(), "{name} must be indexed");
        }
        let with_certificate = requests.head(&notification, None);
        assert!(!with_certificate.headers().contains_key("authorization"));
        assert_eq!(with_certificate.headers()["apns-topic"], "org.example.scores");
    }
}
