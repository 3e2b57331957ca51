//! The JSON body of a notification; for people who write apps it is described in `docs/payload.md`.
//!
//! Encoded once per job, app and text, never per device. Beside the provider's own `aps` object stands `tidings`,
//! which tells the app what it got and from where in which channel to resume, and `data`, the producer's own value:
//!
//! ```json
//! {"aps":{"alert":{"title":"Goal!","body":"1 : 0"},"sound":"default","thread-id":"match:7"},
//!  "tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"data":{"score":[1,0]}}
//! ```
//!
//! A producer's merge patch (RFC 7396) goes over the whole, `tidings` excepted. What it leaves decides how the provider
//! must be asked: with neither alert, sound nor badge it is a background push, which APNs takes at low priority only;
//! with nothing that shows or wakes anything (an empty alert shows nothing) it is refused. Members of `aps` are not
//! checked beyond that.
//!
//! Limits: [`APNS_PAYLOAD_BYTES_MAX`] bytes, nothing is cut; a patch nests at most 64 objects.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_types::{ChannelName, EventId, Interruption, Json, Present, StreamPosition};

use crate::{Priority, PushType};

mod merge;
#[cfg(test)]
mod tests;

use merge::{Members, MergeError, Node};

/// The most bytes APNs takes for an alert or background push.
pub const APNS_PAYLOAD_BYTES_MAX: usize = 4096;

/// The producer's word for a notification without sound.
const SILENT: &str = "none";

/// What an APNs notification says.
#[derive(Clone, Copy)]
pub struct ApnsPayload<'a> {
    /// First line.
    pub title: &'a str,
    /// Text.
    pub body: &'a str,
    /// How it is shown.
    pub present: &'a Present,
    /// Notifications with the same one are shown together, unless `present` names another.
    pub thread: Option<&'a str>,
    /// The event it tells of.
    pub event: &'a EventId,
    /// Where its publication stands: the app resumes from just before it.
    pub stream: Option<(&'a ChannelName, StreamPosition)>,
    /// The producer's own value.
    pub data: Option<&'a Json>,
    /// What the producer puts over all this: a merge patch.
    pub patch: Option<&'a Json>,
}

/// A body, and how the provider must be asked to deliver it.
#[derive(Clone, PartialEq, Eq)]
pub struct EncodedPayload {
    /// The body.
    pub bytes: Bytes,
    /// What kind of push it is.
    pub push_type: PushType,
    /// How urgently it is delivered.
    pub priority: Priority,
}

/// What of a payload there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Title and body.
    Text,
    /// How it is shown.
    Present,
    /// The producer's own value.
    Data,
    /// The patch: without it the payload would fit.
    Patch,
}

/// Why there is no payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// It is over the provider's limit.
    #[error("the payload has {bytes} bytes, limit {limit}")]
    TooLarge {
        /// Bytes it would have.
        bytes: usize,
        /// Bytes allowed.
        limit: usize,
        /// What to make smaller: the patch, else the largest part.
        part: Part,
    },
    /// The patch cannot be applied, or what it leaves cannot be sent.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// What is wrong with a producer's patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It would replace the payload by something that is no payload.
    #[error("must be an object")]
    NotAnObject,
    /// It names `tidings`, by which apps resume and recognise duplicates.
    #[error("is ours, by it the app resumes and recognises duplicates")]
    Tidings,
    /// Too many objects in each other.
    #[error("nests deeper than {} objects", merge::DEPTH_MAX)]
    TooDeep,
    /// A name in it, or in the `data` it changes, is no Unicode text.
    #[error("changes an object of which a name is no Unicode text")]
    Unreadable,
    /// APNs takes no payload without it.
    #[error("must leave aps an object")]
    NoAps,
    /// Nobody would notice the notification.
    #[error("leaves nothing to show, play or wake: neither alert, sound nor badge in aps, nor content-available 1")]
    Nothing,
}

impl From<MergeError> for PatchError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::TooDeep => Self::TooDeep,
            MergeError::Unreadable => Self::Unreadable,
        }
    }
}

impl ApnsPayload<'_> {
    /// Encodes it, and tells what kind of push it has become.
    ///
    /// # Errors
    /// When the patch is wrong, or it has more than [`APNS_PAYLOAD_BYTES_MAX`] bytes. Nothing is cut: half a sentence
    /// is worse than an error.
    pub fn encode(&self) -> Result<EncodedPayload, PayloadError> {
        let plain = serde_json::to_vec(&self.body()).expect("strings, numbers and valid JSON always encode");
        let plain_fits = plain.len() <= APNS_PAYLOAD_BYTES_MAX;
        let (bytes, push_type) = match self.patch {
            None => (plain, PushType::Alert),
            Some(patch) => patched(&plain, patch)?,
        };
        if bytes.len() > APNS_PAYLOAD_BYTES_MAX {
            let part = if plain_fits { Part::Patch } else { self.largest_part() };
            return Err(PayloadError::TooLarge { bytes: bytes.len(), limit: APNS_PAYLOAD_BYTES_MAX, part });
        }
        let priority = match push_type {
            PushType::Alert => Priority::Immediate,
            PushType::Background => Priority::Considerate,
        };
        Ok(EncodedPayload { bytes: bytes.into(), push_type, priority })
    }

    fn body(&self) -> Body<'_> {
        let present = self.present;
        Body {
            aps: Aps {
                alert: Alert { title: self.title, body: self.body },
                sound: sound(present),
                badge: present.badge,
                thread: present.thread.as_deref().or(self.thread),
                category: present.category.as_deref(),
                interruption: present.interruption.map(interruption_level),
                mutable: present.image.is_some().then_some(1),
            },
            tidings: Origin {
                event: self.event.as_str(),
                channel: self.stream.map(|(channel, _)| channel.as_str()),
                epoch: self.stream.as_ref().map(|(_, position)| position.epoch.as_str()),
                offset: self.stream.map(|(_, position)| position.offset.0),
                link: present.link.as_deref(),
                image: present.image.as_deref(),
            },
            data: self.data,
        }
    }

    fn largest_part(&self) -> Part {
        let Present { link, image, sound, thread, category, .. } = self.present;
        let shown = [link, image, sound, thread, category].into_iter().flatten().map(String::len).sum();
        let data = self.data.map_or(0, |data| data.bytes().len());
        let parts = [(self.title.len() + self.body.len(), Part::Text), (shown, Part::Present), (data, Part::Data)];
        parts.into_iter().max_by_key(|(bytes, _)| *bytes).expect("there are three").1
    }
}

/// The sound to play. A critical one must say so in this place too, or a muted device stays silent.
fn sound(present: &Present) -> Option<Sound<'_>> {
    let name = present.sound.as_deref().unwrap_or("default");
    match present.interruption {
        _ if name == SILENT => None,
        Some(Interruption::Critical) => Some(Sound::Critical { critical: 1, name, volume: 1 }),
        _ => Some(Sound::Plain(name)),
    }
}

fn interruption_level(interruption: Interruption) -> &'static str {
    match interruption {
        Interruption::Passive => "passive",
        Interruption::Active => "active",
        Interruption::TimeSensitive => "time-sensitive",
        Interruption::Critical => "critical",
    }
}

/// The payload with the patch over it, and what kind of push that is.
fn patched(plain: &[u8], patch: &Json) -> Result<(Vec<u8>, PushType), PatchError> {
    let patch: &RawValue = serde_json::from_slice(patch.bytes()).expect("Json is JSON");
    let patch = merge::members(patch)?.ok_or(PatchError::NotAnObject)?;
    if patch.contains_key("tidings") {
        return Err(PatchError::Tidings);
    }
    let plain: &RawValue = serde_json::from_slice(plain).expect("we have just written it");
    let mut whole = Node::Leaf(plain).into_members()?.expect("a payload is an object");
    merge::apply(&mut whole, patch)?;
    let aps = whole.remove("aps").ok_or(PatchError::NoAps)?.into_members()?.ok_or(PatchError::NoAps)?;
    let push_type = push_type(&aps)?;
    whole.insert("aps".to_owned(), Node::Object(aps));
    Ok((serde_json::to_vec(&whole).expect("names and valid JSON always encode"), push_type))
}

/// APNs must be told, and penalises an alert that shows nothing and a background push that shows something.
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

#[derive(Serialize)]
struct Origin<'a> {
    event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
}
