//! Checks a request as APNs does, in this order: method, path, repeated headers, `apns-id`, topic, push type, priority,
//! collapse id, expiration; then the credential; then the payload.
//!
//! The answer names the first mistake. APNs documents the reasons but not the order.

use http::request::Parts;
use http::{HeaderValue, Method};
use serde::de::IgnoredAny;
use tidings_types::DeviceToken;
use uuid::Uuid;

use crate::Reason;
use crate::Reason::{
    BadCollapseId, BadDeviceToken, BadExpirationDate, BadMessageId, BadPath, BadPriority, BadTopic, DuplicateHeaders,
    InvalidPushType, MethodNotAllowed, MissingDeviceToken, MissingTopic, PayloadEmpty, PayloadTooLarge,
    TopicDisallowed,
};

const PAYLOAD_BYTES_MAX: usize = 4096;
const VOIP_PAYLOAD_BYTES_MAX: usize = 5120;
const COLLAPSE_ID_BYTES_MAX: usize = 64;

/// Push types, and what their topics append to the bundle identifier. `mdm` has topics of another kind.
const PUSH_TYPES: [(&str, &str); 11] = [
    ("alert", ""),
    ("background", ""),
    ("liveactivity", ".push-type.liveactivity"),
    ("widgets", ".push-type.widgets"),
    ("controls", ".push-type.controls"),
    ("location", ".location-query"),
    ("voip", ".voip"),
    ("complication", ".complication"),
    ("fileprovider", ".pushkit.fileprovider"),
    ("pushtotalk", ".voip-ptt"),
    ("mdm", ""),
];

/// A request with a valid path and valid headers.
pub(crate) struct Notification {
    pub(crate) token: DeviceToken,
    /// The sender's id, and as it was spelt. Without it, APNs makes one.
    pub(crate) apns_id: Option<(Uuid, HeaderValue)>,
    pub(crate) collapse_id: Option<HeaderValue>,
    pub(crate) authorization: Option<HeaderValue>,
    pub(crate) payload_bytes_max: usize,
}

#[derive(Default)]
struct Headers<'a> {
    apns_id: Option<&'a HeaderValue>,
    topic: Option<&'a HeaderValue>,
    push_type: Option<&'a HeaderValue>,
    priority: Option<&'a HeaderValue>,
    collapse_id: Option<&'a HeaderValue>,
    expiration: Option<&'a HeaderValue>,
    authorization: Option<&'a HeaderValue>,
    repeated: bool,
}

impl<'a> Headers<'a> {
    /// Reads all headers in one pass, which costs as much as a single look-up in a map of this size.
    fn read(parts: &'a Parts) -> Self {
        let mut headers = Self::default();
        for (name, value) in &parts.headers {
            let place = match name.as_str() {
                "apns-id" => &mut headers.apns_id,
                "apns-topic" => &mut headers.topic,
                "apns-push-type" => &mut headers.push_type,
                "apns-priority" => &mut headers.priority,
                "apns-collapse-id" => &mut headers.collapse_id,
                "apns-expiration" => &mut headers.expiration,
                "authorization" => &mut headers.authorization,
                _ => continue,
            };
            headers.repeated |= place.replace(value).is_some();
        }
        headers
    }
}

/// The topics that a request may have.
#[derive(Clone, Copy)]
pub(crate) struct Topics<'a> {
    /// Bundle identifiers; empty allows all.
    pub(crate) bundles: &'a [String],
    /// The topics of the client's certificate. If there is only one, a request need not name it.
    pub(crate) certified: Option<&'a [String]>,
}

/// Checks method, path and headers.
pub(crate) fn check_head(parts: &Parts, topics: Topics<'_>) -> Result<Notification, Reason> {
    if parts.method != Method::POST {
        return Err(MethodNotAllowed);
    }
    let token = parts.uri.path().strip_prefix("/3/device/").ok_or(BadPath)?;
    if token.is_empty() {
        return Err(MissingDeviceToken);
    }
    let token = DeviceToken::from_hex(token).map_err(|_| BadDeviceToken)?;
    let headers = Headers::read(parts);
    if headers.repeated {
        return Err(DuplicateHeaders);
    }
    let apns_id = headers.apns_id.map(check_id).transpose()?;
    let topic = match (headers.topic, topics.certified) {
        (Some(topic), _) => topic.to_str().map_err(|_| BadTopic)?,
        (None, Some([topic])) => topic,
        (None, _) => return Err(MissingTopic),
    };
    let push_type = headers.push_type.ok_or(InvalidPushType)?.to_str().map_err(|_| InvalidPushType)?;
    check_topic(topic, push_type, topics)?;
    let priority = headers.priority.map_or("10", |value| value.to_str().unwrap_or_default());
    if !matches!(priority, "1" | "5" | "10") || (push_type == "background" && priority == "10") {
        return Err(BadPriority);
    }
    if headers.collapse_id.is_some_and(|id| id.is_empty() || id.len() > COLLAPSE_ID_BYTES_MAX) {
        return Err(BadCollapseId);
    }
    if headers.expiration.is_some_and(|value| !is_number(value)) {
        return Err(BadExpirationDate);
    }
    Ok(Notification {
        token,
        apns_id,
        collapse_id: headers.collapse_id.cloned(),
        authorization: headers.authorization.cloned(),
        payload_bytes_max: if push_type == "voip" { VOIP_PAYLOAD_BYTES_MAX } else { PAYLOAD_BYTES_MAX },
    })
}

/// Checks the payload. APNs has no reason for a body that is not a JSON object, so it is `PayloadEmpty` here.
pub(crate) fn check_payload(payload: &[u8], bytes_max: usize) -> Result<(), Reason> {
    if payload.is_empty() {
        return Err(PayloadEmpty);
    }
    if payload.len() > bytes_max {
        return Err(PayloadTooLarge);
    }
    let text = std::str::from_utf8(payload).map_err(|_| PayloadEmpty)?;
    if !text.trim_ascii_start().starts_with('{') {
        return Err(PayloadEmpty);
    }
    serde_json::from_str::<IgnoredAny>(text).map(drop).map_err(|_| PayloadEmpty)
}

fn check_id(value: &HeaderValue) -> Result<(Uuid, HeaderValue), Reason> {
    // `Uuid` also reads the forms without hyphens or in braces.
    if value.len() != 36 {
        return Err(BadMessageId);
    }
    let id = Uuid::try_parse_ascii(value.as_bytes()).map_err(|_| BadMessageId)?;
    Ok((id, value.clone()))
}

fn check_topic(topic: &str, push_type: &str, topics: Topics<'_>) -> Result<(), Reason> {
    let (_, suffix) = PUSH_TYPES.iter().find(|(name, _)| *name == push_type).ok_or(InvalidPushType)?;
    let allowed_bytes = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
    if topic.is_empty() || !topic.bytes().all(allowed_bytes) {
        return Err(BadTopic);
    }
    let bundle = topic.strip_suffix(suffix).ok_or(BadTopic)?;
    let known = topics.bundles.is_empty() || push_type == "mdm" || topics.bundles.iter().any(|known| known == bundle);
    let certified = topics.certified.is_none_or(|certified| certified.iter().any(|known| known == topic));
    if known && certified { Ok(()) } else { Err(TopicDisallowed) }
}

fn is_number(value: &HeaderValue) -> bool {
    value.to_str().is_ok_and(|text| text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u64>().is_ok())
}
