//! A notification as a request to a push service (RFC 8030, 5).
//!
//! The text and most headers come from the rendering. Key pair, salt and ciphertext are new for each device and each attempt.

use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderName};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use tidings_types::{DeviceToken, Provider, Timestamp};

use super::encryption::{OVERHEAD_BYTES, SALT_BYTES, SenderKey, encrypt};
use super::guard::Endpoint;
use super::{Reason, classify};
use crate::notification::Form;
use crate::payload::WEB_PUSH_PAYLOAD_BYTES_MAX;
use crate::{Dialect, Notification, Verdict};

const TTL: HeaderName = HeaderName::from_static("ttl");

/// The dialect of all push services. They differ only by their endpoints.
#[derive(Debug, Clone, Copy, Default)]
pub struct WebPush;

impl Dialect for WebPush {
    fn provider(&self) -> Provider {
        Provider::WebPush
    }

    fn request(
        &self,
        notification: &Notification,
        authorization: Option<&HeaderValue>,
        random: &mut dyn FnMut(&mut [u8]),
        now: Timestamp,
    ) -> Result<(Request<()>, Bytes), crate::Reason> {
        let (Form::WebPush { headers, body }, DeviceToken::WebPush(token)) =
            (notification.rendering.form(), &notification.token)
        else {
            return Err(Reason::Other.into()); // It belongs to another provider: the sender chose a wrong pool.
        };
        let endpoint = Endpoint::parse(token.endpoint()).map_err(|_| Reason::ForbiddenEndpoint)?;
        let mut salt = [0; SALT_BYTES];
        random(&mut salt);
        let sender = SenderKey::from_random(random);
        let body = encrypt(&body.bytes, token.p256dh(), token.auth(), &sender, &salt)
            .map_err(|_| Reason::BadSubscriptionKey)?;
        let mut headers = headers.clone();
        headers.insert(TTL, notification.rendering.expires_at().saturating_since(now).as_secs().into());
        if let Some(authorization) = authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = endpoint.uri().clone();
        *request.headers_mut() = headers;
        Ok((request, body.into()))
    }

    fn classify(&self, status: StatusCode, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Verdict {
        classify(status, headers, body, now)
    }

    fn proves_first(&self) -> bool {
        false
    }

    fn payload_bytes_max(&self) -> usize {
        WEB_PUSH_PAYLOAD_BYTES_MAX + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use tidings_types::Urgency;

    use super::super::headers::HEADER_COUNT;
    use super::*;
    use crate::notification::tests::notification_of;
    use crate::payload::{Encoded, WebPushBody};

    const P256DH: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    const AUTH: &str = "BTBZMqHH6r4Tts7J_aSIgg";
    const NOW: Timestamp = Timestamp(1_799_999_940_000);

    fn notification(endpoint: &str, p256dh: &str, urgency: Option<Urgency>) -> Notification {
        let body = WebPushBody { bytes: Bytes::from_static(b"{\"title\":\"Goal\"}"), urgency };
        notification_of(Encoded::WebPush(body), DeviceToken::web_push(endpoint, p256dh, AUTH).unwrap(), 1)
    }

    fn ask(notification: &Notification, now: Timestamp) -> Result<(Request<()>, Bytes), crate::Reason> {
        let mut next = 0;
        let mut random = |bytes: &mut [u8]| {
            next += 1;
            bytes.fill(next);
        };
        WebPush.request(notification, Some(&HeaderValue::from_static("vapid t=x, k=y")), &mut random, now)
    }

    #[test]
    fn a_request_has_all_headers_of_rfc_8030() {
        let notification = notification("https://Push.Example:443/abc?d=e", P256DH, Some(Urgency::VeryLow));
        let (request, body) = ask(&notification, NOW).unwrap();
        assert_eq!(
            (request.method(), request.uri().to_string()),
            (&Method::POST, "https://push.example/abc?d=e".into())
        );
        let header = |name: &str| request.headers()[name].to_str().unwrap();
        assert_eq!((header("ttl"), header("urgency")), ("60", "very-low"));
        assert_eq!(header("content-encoding"), "aes128gcm");
        assert_eq!(header("content-type"), "application/octet-stream");
        assert_eq!(header("authorization"), "vapid t=x, k=y");
        assert_eq!(header("topic").len(), 32);
        assert_eq!(request.headers().len(), HEADER_COUNT);
        assert_eq!(body.len(), notification.rendering.payload_bytes());
        assert_eq!(&body[..SALT_BYTES], [1; SALT_BYTES], "the salt is drawn first");
        assert_ne!(body.windows(4).position(|window| window == b"Goal"), Some(0));
    }

    #[test]
    fn an_expired_notification_has_a_ttl_of_zero() {
        let (request, _) = ask(&notification("https://push.example/", P256DH, None), Timestamp(u64::MAX)).unwrap();
        assert_eq!(
            (&request.headers()["ttl"], &request.headers()["urgency"]),
            (&"0".parse().unwrap(), &"high".parse().unwrap())
        );
    }

    #[test]
    fn what_can_never_be_sent_is_refused() {
        let off_the_curve = format!("{}8", &P256DH[..P256DH.len() - 1]);
        let refused = |endpoint, p256dh| ask(&notification(endpoint, p256dh, None), NOW).unwrap_err();
        assert_eq!(refused("https://push.example/", &off_the_curve), Reason::BadSubscriptionKey.into());
        assert_eq!(refused("https://127.0.0.1/", P256DH), Reason::ForbiddenEndpoint.into());
        assert_eq!(ask(&crate::notification::tests::notification(1), NOW).unwrap_err(), Reason::Other.into());
    }
}
