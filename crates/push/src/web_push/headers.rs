//! The headers that all notifications of one rendering share (RFC 8030, 5).

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue};
use tidings_types::Urgency;

use crate::parts::RenderingParts;
use crate::payload::WebPushBody;

const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");

/// Headers per request, for sizing the map once.
pub(super) const HEADER_COUNT: usize = 6;

/// The bytes of a digest that make 32 characters, the limit of a topic (RFC 8030, 5.4).
const TOPIC_BYTES: usize = 24;

/// The headers that all notifications of one rendering share.
pub(crate) fn shared_headers(parts: &RenderingParts, body: &WebPushBody) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(HEADER_COUNT);
    headers.insert(CONTENT_ENCODING, HeaderValue::from_static("aes128gcm"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(URGENCY, HeaderValue::from_static(urgency(body.urgency)));
    headers.insert(TOPIC, topic(parts.collapse_id.as_str()));
    headers
}

/// RFC 8030, 5.3.
fn urgency(urgency: Option<Urgency>) -> &'static str {
    match urgency {
        Some(Urgency::VeryLow) => "very-low",
        Some(Urgency::Low) => "low",
        Some(Urgency::Normal) => "normal",
        Some(Urgency::High) | None => "high",
    }
}

/// The digest of the collapse id, which may have characters and a length that a topic may not have.
fn topic(collapse_id: &str) -> HeaderValue {
    let digest = digest(&SHA256, collapse_id.as_bytes());
    let text = URL_SAFE_NO_PAD.encode(&digest.as_ref()[..TOPIC_BYTES]);
    HeaderValue::try_from(text).expect("base64url is visible ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_32_characters_of_base64url_and_tells_collapse_ids_apart() {
        let topics = ["match-7", "match-8", "a", &"x".repeat(64), "/+=~ä"].map(topic);
        for (place, topic) in topics.iter().enumerate() {
            assert!(
                topic.len() == 32 && topic.as_bytes().iter().all(|it| it.is_ascii_alphanumeric() || b"-_".contains(it))
            );
            assert!(!topics[..place].contains(topic));
        }
    }
}
