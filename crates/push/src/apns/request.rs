//! A notification as an HTTP/2 request.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::uri::{Authority, InvalidUri, PathAndQuery, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use tidings_types::{DeviceToken, Provider, Timestamp};

use super::headers::{APNS_ID, sensitive, visible};
use super::{Reason, classify};
use crate::notification::Form;
use crate::payload::APNS_PAYLOAD_BYTES_MAX;
use crate::{Dialect, Notification, Verdict};

/// `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
const UUID_TEXT_BYTES: usize = 36;

/// The dialect of one APNs host.
#[derive(Debug, Clone)]
pub struct Apns {
    authority: Authority,
}

impl Apns {
    /// Requests to `authority`: `host` or `host:port`.
    ///
    /// # Errors
    /// When it is not an authority.
    pub fn new(authority: &str) -> Result<Self, InvalidUri> {
        Ok(Self { authority: authority.parse()? })
    }

    fn head(&self, id: &str, shared: &HeaderMap, token: &[u8], authorization: Option<&HeaderValue>) -> Request<()> {
        let mut headers = shared.clone();
        headers.insert(APNS_ID, sensitive(visible(id)));
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut uri = http::uri::Parts::default();
        uri.scheme = Some(Scheme::HTTPS);
        uri.authority = Some(self.authority.clone());
        uri.path_and_query = Some(path(token));
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_parts(uri).expect("scheme, authority and path make a URI");
        *request.headers_mut() = headers;
        request
    }
}

impl Dialect for Apns {
    fn provider(&self) -> Provider {
        Provider::Apns
    }

    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        _random: &mut dyn FnMut(&mut [u8]),
        _now: Timestamp,
    ) -> Result<(Request<()>, Bytes), crate::Reason> {
        let (Form::Apns { headers, body }, DeviceToken::Apns(token)) =
            (notification.rendering.form(), &notification.token)
        else {
            return Err(Reason::Other.into()); // It belongs to another provider: the sender chose a wrong pool.
        };
        let mut id = [0; UUID_TEXT_BYTES];
        let id = notification.id.0.hyphenated().encode_lower(&mut id);
        Ok((self.head(id, headers, token, authorization), body.bytes.clone()))
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
        classify(status, headers, body, now)
    }

    fn proves_first(&self) -> bool {
        true
    }

    fn payload_bytes_max(&self) -> usize {
        APNS_PAYLOAD_BYTES_MAX
    }
}

fn path(token: &[u8]) -> PathAndQuery {
    const PREFIX: &[u8] = b"/3/device/";
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut path = Vec::with_capacity(PREFIX.len() + 2 * token.len());
    path.extend_from_slice(PREFIX);
    for byte in token {
        path.push(DIGITS[usize::from(byte >> 4)]);
        path.push(DIGITS[usize::from(byte & 15)]);
    }
    PathAndQuery::from_maybe_shared(Bytes::from(path)).expect("hexadecimal digits make a path")
}

#[cfg(test)]
mod tests {
    use super::super::headers::HEADER_COUNT;
    use super::*;
    use crate::notification::tests::{notification, notification_of};
    use crate::payload::{Encoded, WebPushBody};

    fn build(notification: &Notification, authorization: Option<&HeaderValue>) -> Request<()> {
        let apns = Apns::new("push.example:8443").unwrap();
        let mut no_random = |_: &mut [u8]| panic!("APNs needs none");
        let (request, body) = apns.request(notification, authorization, &mut no_random, Timestamp(0)).unwrap();
        assert_eq!(body, notification.rendering.payload());
        request
    }

    #[test]
    fn a_request_has_all_headers_of_apns() {
        let notification = notification(2);
        let request = build(&notification, Some(&HeaderValue::from_static("bearer x")));
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
            assert!(request.headers()[name].is_sensitive(), "{name} must not fill the header table");
        }
        for name in ["apns-topic", "apns-push-type", "apns-priority"] {
            assert!(!request.headers()[name].is_sensitive(), "{name} must be indexed");
        }
        let with_certificate = build(&notification, None);
        assert!(!with_certificate.headers().contains_key("authorization"));
        assert_eq!(with_certificate.headers()["apns-topic"], "org.example.scores");
    }

    #[test]
    fn a_notification_for_another_provider_is_not_sent() {
        let fcm_token = DeviceToken::fcm("abc").unwrap();
        let another_token = Notification { token: fcm_token, ..notification(1) };
        let body = WebPushBody { bytes: Bytes::from_static(b"{}"), urgency: None };
        let another_text = notification_of(Encoded::WebPush(body), another_token.token.clone(), 1);
        for notification in [another_token, another_text] {
            let apns = Apns::new("push.example").unwrap();
            let asked = apns.request(&notification, None, &mut |_| {}, Timestamp(0));
            assert_eq!(asked.unwrap_err(), crate::Reason::Apns(Reason::Other));
        }
    }
}
