//! The body of a notification through APNs (Apple, "Generating a remote notification").
//!
//! If a patch removes alert, sound and badge, the result is a background push. A patch is refused if nothing shows a
//! notification or wakes the app any more (an empty alert shows nothing). Nothing else in `aps` is checked. The app is not
//! known here: for calls, widgets and the like, [`crate::Rendering`] changes the kind and the priority.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use tidings_types::{Interruption, Json, Urgency};

use super::content::{Content, Origin, json, members, patch_members};
use super::error::{PatchError, PayloadError};
use super::merge::{self, Members, Node};
use crate::kind::{Priority, PushType};

/// Bytes that APNs accepts. For a call it would accept 5120, but the app is not known here.
pub const APNS_PAYLOAD_BYTES_MAX: usize = 4096;

/// A body for APNs, with the kind of push and the priority.
#[derive(Clone, PartialEq, Eq)]
pub struct ApnsBody {
    /// The body.
    pub bytes: Bytes,
    /// [`PushType::Alert`] or [`PushType::Background`], as its payload requires. [`crate::Rendering`] changes it for an app
    /// that takes only another kind.
    pub push_type: PushType,
    /// The priority. Some kinds allow only one.
    pub priority: Priority,
}

// Payloads never reach a log.
impl fmt::Debug for ApnsBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApnsBody({} bytes, {:?}, {:?})", self.bytes.len(), self.push_type, self.priority)
    }
}

pub(super) fn encode(content: &Content<'_>) -> Result<ApnsBody, PayloadError> {
    let plain = json(&body(content));
    let plain_bytes = plain.len();
    let (bytes, push_type) = match &content.patches.apns {
        None => (plain, PushType::Alert),
        Some(patch) => patched(&plain, patch)?,
    };
    let bytes = content.check_size(bytes, plain_bytes, APNS_PAYLOAD_BYTES_MAX)?;
    Ok(ApnsBody { bytes, push_type, priority: priority(content.urgency) })
}

fn priority(urgency: Option<Urgency>) -> Priority {
    match urgency {
        None | Some(Urgency::High) => Priority::Immediate,
        Some(Urgency::Normal | Urgency::Low) => Priority::Considerate,
        Some(Urgency::VeryLow) => Priority::PowerFirst,
    }
}

fn body<'a>(content: &'a Content<'_>) -> Body<'a> {
    let present = content.present;
    Body {
        aps: Aps {
            alert: Alert { title: content.title, body: content.body },
            sound: sound(content),
            badge: present.badge,
            thread: present.thread.as_deref().or(content.thread),
            category: present.category.as_deref(),
            interruption: present.interruption.map(interruption_level),
            mutable: present.image.is_some().then_some(1),
        },
        tidings: content.origin(),
        data: content.data,
    }
}

/// The sound to play. A critical alert must also be marked here, or a muted device stays silent.
fn sound<'a>(content: &'a Content<'_>) -> Option<Sound<'a>> {
    let name = content.sound()?;
    Some(match content.present.interruption {
        Some(Interruption::Critical) => Sound::Critical { critical: 1, name, volume: 1 },
        _ => Sound::Plain(name),
    })
}

fn interruption_level(interruption: Interruption) -> &'static str {
    match interruption {
        Interruption::Passive => "passive",
        Interruption::Active => "active",
        Interruption::TimeSensitive => "time-sensitive",
        Interruption::Critical => "critical",
    }
}

/// The patched payload, and its kind of push.
fn patched(plain: &[u8], patch: &Json) -> Result<(Vec<u8>, PushType), PatchError> {
    let patch = patch_members(patch)?;
    if patch.contains_key("tidings") {
        return Err(PatchError::Tidings);
    }
    let mut whole = members(plain)?;
    merge::apply(&mut whole, patch)?;
    let aps = whole.remove("aps").ok_or(PatchError::NoAps)?.into_members()?.ok_or(PatchError::NoAps)?;
    let push_type = push_type(&aps)?;
    whole.insert("aps".to_owned(), Node::Object(aps));
    Ok((json(&whole), push_type))
}

/// The kind of push of a payload. APNs penalises an alert that shows nothing, and a background push that shows something.
fn push_type(aps: &Members<'_>) -> Result<PushType, PatchError> {
    let says_something = |alert: &Node<'_>| match alert {
        Node::Object(members) => !members.is_empty(),
        Node::Leaf(value) => value.get() != r#""""#,
    };
    let alert = aps.get("alert");
    if alert.is_some_and(says_something) || aps.contains_key("sound") || aps.contains_key("badge") {
        return Ok(PushType::Alert);
    }
    match aps.get("content-available") {
        Some(Node::Leaf(value)) if value.get() == "1" && alert.is_none() => Ok(PushType::Background),
        _ => Err(PatchError::Nothing),
    }
}

#[derive(Serialize)]
struct Body<'a> {
    aps: Aps<'a>,
    tidings: Origin<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
}

#[derive(Serialize)]
struct Aps<'a> {
    alert: Alert<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sound: Option<Sound<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    badge: Option<u32>,
    #[serde(rename = "thread-id", skip_serializing_if = "Option::is_none")]
    thread: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'a str>,
    #[serde(rename = "interruption-level", skip_serializing_if = "Option::is_none")]
    interruption: Option<&'static str>,
    #[serde(rename = "mutable-content", skip_serializing_if = "Option::is_none")]
    mutable: Option<u8>,
}

#[derive(Serialize)]
struct Alert<'a> {
    title: &'a str,
    body: &'a str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Sound<'a> {
    Plain(&'a str),
    Critical { critical: u8, name: &'a str, volume: u8 },
}
