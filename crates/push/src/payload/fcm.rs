//! A message through FCM (Google, "REST Resource: projects.messages"), without its recipient.
//!
//! ```json
//! {"android":{"priority":"HIGH","notification":{"tag":"match-7","sound":"default"}},
//!  "data":{"tidings.event":"goal-1","tidings.channel":"match:7","tidings.epoch":"AbCdEfGh","tidings.offset":"12",
//!          "data":"{\"score\":[1,0]}"},
//!  "notification":{"title":"Goal!","body":"1 : 0"}}
//! ```
//!
//! FCM's `data` is flat and has only texts. So the fields of `tidings` have names with a dot, and the producer's own data is
//! one text. The `tag` makes a repeat harmless: a notification replaces one with the same tag.
//!
//! A patch that removes `notification` makes a *data message*. The system does not show it; it wakes the app, and the app
//! decides what to show. Then `android.notification` is removed too, unless the patch names it, and the text is in `data` as
//! `tidings.title` and `tidings.body`. A data message has no tag; the app recognises a repeat by `tidings.event`.
//!
//! A patch may change anything except the recipient and the fields of Tidings in `data`. What FCM would refuse for
//! every device is refused here: values of `data` that are not texts, names that Google reserves, an `android` that is
//! not an object.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use tidings_types::{Interruption, Json};

use super::content::{Content, json, members, patch_members};
use super::error::{PatchError, PayloadError};
use super::merge::{self, Members, Node};

/// Bytes of a message, without recipient and time to live. FCM allows 4096 for the part that the app gets. Because the whole
/// message counts here, FCM refuses no message for its size.
pub const FCM_PAYLOAD_BYTES_MAX: usize = 4096;
/// Bytes of a request beside message and token: `{"message":`, time to live, `"token"`, `validate_only`.
pub(crate) const FCM_ENVELOPE_BYTES_MAX: usize = 80;

/// The beginning of each message. The time to live is inserted behind it for each device.
const BEGINNING: &str = r#"{"android":{"#;

/// The beginning of our names in `data`.
const OURS: &str = "tidings.";

/// A message for FCM without its recipient.
#[derive(Clone, PartialEq, Eq)]
pub struct FcmBody {
    /// Begins with [`BEGINNING`] and ends with `}`.
    bytes: Bytes,
    /// The producer has set a time to live, so ours is not inserted.
    has_ttl: bool,
    validate_only: bool,
}

impl FcmBody {
    /// The message as JSON.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The same message, which FCM only validates.
    pub(super) fn into_dry_run(self) -> Self {
        Self { validate_only: true, ..self }
    }

    /// The request's body for one recipient. `token` is inserted unchanged, so it must not need escaping in JSON.
    pub(crate) fn request_body(&self, token: &str, ttl_secs: u64) -> Vec<u8> {
        let rest = &self.bytes[BEGINNING.len()..self.bytes.len() - 1];
        let mut body = Vec::with_capacity(self.bytes.len() + token.len() + FCM_ENVELOPE_BYTES_MAX);
        body.extend_from_slice(br#"{"message":"#);
        body.extend_from_slice(BEGINNING.as_bytes());
        if !self.has_ttl {
            body.extend_from_slice(br#""ttl":""#);
            body.extend_from_slice(itoa::Buffer::new().format(ttl_secs).as_bytes());
            body.extend_from_slice(if rest.starts_with(b"}") { br#"s""#.as_slice() } else { br#"s","# });
        }
        body.extend_from_slice(rest);
        body.extend_from_slice(br#","token":""#);
        body.extend_from_slice(token.as_bytes());
        body.extend_from_slice(if self.validate_only { br#""},"validate_only":true}"#.as_slice() } else { br#""}}"# });
        body
    }
}

// Payloads never reach a log.
impl std::fmt::Debug for FcmBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FcmBody({} bytes)", self.bytes.len())
    }
}

pub(super) fn encode(content: &Content<'_>) -> Result<FcmBody, PayloadError> {
    let plain = json(&message(content));
    let plain_bytes = plain.len();
    let (bytes, has_ttl) = match &content.patches.fcm {
        None => (plain, false),
        Some(patch) => patched(content, &plain, patch)?,
    };
    let bytes = content.check_size(bytes, plain_bytes, FCM_PAYLOAD_BYTES_MAX)?;
    Ok(FcmBody { bytes, has_ttl, validate_only: false })
}

fn message<'a>(content: &'a Content<'_>) -> Message<'a> {
    let (present, origin) = (content.present, content.origin());
    Message {
        android: Android {
            priority: if content.is_urgent() { "HIGH" } else { "NORMAL" },
            notification: AndroidNotification {
                tag: content.collapse_id.as_str(),
                sound: content.sound(),
                channel_id: present.android_channel.as_deref(),
                image: present.image.as_deref(),
                notification_count: present.badge.map(|badge| badge.min(i32::MAX.unsigned_abs())), // An int32 there.
                notification_priority: present.interruption.and_then(notification_priority),
            },
        },
        data: Data {
            event: origin.event,
            channel: origin.channel,
            epoch: origin.epoch,
            offset: origin.offset.map(|offset| offset.to_string()),
            link: origin.link,
            image: origin.image,
            data: content.data.map(Json::as_str),
        },
        notification: Notification { title: content.title, body: content.body },
    }
}

/// Only Android versions before 8 use this. Later ones use the notification channel.
fn notification_priority(interruption: Interruption) -> Option<&'static str> {
    match interruption {
        Interruption::Passive => Some("PRIORITY_LOW"),
        Interruption::Active => None,
        Interruption::TimeSensitive => Some("PRIORITY_HIGH"),
        Interruption::Critical => Some("PRIORITY_MAX"),
    }
}

/// The patched message, and whether it has a time to live.
fn patched(content: &Content<'_>, plain: &[u8], patch: &Json) -> Result<(Vec<u8>, bool), PatchError> {
    let [title, body] = [content.title, content.body].map(|text| to_raw_value(text).expect("a text encodes"));
    let patch = patch_members(patch)?;
    if ["token", "fid", "topic", "condition"].iter().any(|name| patch.contains_key(*name)) {
        return Err(PatchError::Recipient);
    }
    if let Some(data) = patch.get("data") {
        let data = merge::members(data)?.ok_or(PatchError::DataForm)?;
        if data.keys().any(|name| name.starts_with(OURS)) {
            return Err(PatchError::Tidings);
        }
    }
    let android_patch = patch.get("android").map(|it| merge::members(it)).transpose()?.flatten();
    let shows_on_android = android_patch.is_some_and(|android| android.contains_key("notification"));
    let mut whole = members(plain)?;
    merge::apply(&mut whole, patch)?;
    let mut android = object(&mut whole, "android", PatchError::NoAndroid)?;
    let mut data = object(&mut whole, "data", PatchError::DataForm)?;
    if !whole.contains_key("notification") && !shows_on_android {
        android.remove("notification");
        data.insert(format!("{OURS}title"), Node::Leaf(&title));
        data.insert(format!("{OURS}body"), Node::Leaf(&body));
    }
    check_data(&data)?;
    let has_ttl = android.contains_key("ttl");
    whole.insert("data".to_owned(), Node::Object(data));
    Ok((android_first(&android, &whole), has_ttl))
}

fn object<'a>(whole: &mut Members<'a>, name: &str, otherwise: PatchError) -> Result<Members<'a>, PatchError> {
    whole.remove(name).ok_or(otherwise)?.into_members()?.ok_or(otherwise)
}

fn check_data(data: &Members<'_>) -> Result<(), PatchError> {
    let is_text = |value: &Node<'_>| matches!(value, Node::Leaf(value) if is_string(value));
    if !data.values().all(is_text) {
        return Err(PatchError::DataForm);
    }
    let is_reserved = |name: &String| {
        name == "from" || name == "message_type" || name.starts_with("gcm") || name.starts_with("google")
    };
    if data.keys().any(is_reserved) { Err(PatchError::DataName) } else { Ok(()) }
}

fn is_string(value: &RawValue) -> bool {
    value.get().starts_with('"')
}

fn android_first(android: &Members<'_>, others: &Members<'_>) -> Vec<u8> {
    let mut bytes = br#"{"android":"#.to_vec();
    bytes.extend(json(android));
    let others = json(others); // It has at least `data`.
    bytes.push(b',');
    bytes.extend_from_slice(&others[1..]);
    bytes
}

#[derive(Serialize)]
struct Message<'a> {
    android: Android<'a>,
    data: Data<'a>,
    notification: Notification<'a>,
}

#[derive(Serialize)]
struct Android<'a> {
    priority: &'static str,
    notification: AndroidNotification<'a>,
}

#[derive(Serialize)]
struct AndroidNotification<'a> {
    tag: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sound: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_count: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    notification_priority: Option<&'static str>,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(rename = "tidings.event")]
    event: &'a str,
    #[serde(rename = "tidings.channel", skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(rename = "tidings.epoch", skip_serializing_if = "Option::is_none")]
    epoch: Option<&'a str>,
    #[serde(rename = "tidings.offset", skip_serializing_if = "Option::is_none")]
    offset: Option<String>,
    #[serde(rename = "tidings.link", skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    #[serde(rename = "tidings.image", skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a str>,
}

#[derive(Serialize)]
struct Notification<'a> {
    title: &'a str,
    body: &'a str,
}
