//! The content of a notification for any provider, and the parts that the payloads of all providers share.

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_types::{ChannelName, CollapseKey, EventId, Json, Payload, Present, StreamPosition, Urgency};

use super::error::{Part, PatchError, PayloadError};
use super::merge::{self, Node};

/// The sound name for a notification without sound.
const SILENT: &str = "none";

/// The content of a notification for any provider.
#[derive(Clone, Copy)]
pub struct Content<'a> {
    /// First line.
    pub title: &'a str,
    /// Text.
    pub body: &'a str,
    /// How it is shown.
    pub present: &'a Present,
    /// Notifications with the same thread are shown together, unless `present` names another one.
    pub thread: Option<&'a str>,
    /// Its event.
    pub event: &'a EventId,
    /// The position of the event's publication. The app resumes from just before it.
    pub stream: Option<(&'a ChannelName, StreamPosition)>,
    /// The producer's own data.
    pub data: Option<&'a Json>,
    /// The producer's merge patches, by provider.
    pub patches: &'a Payload,
    /// How urgently it is delivered; `None`: at once.
    pub urgency: Option<Urgency>,
    /// A notification replaces one with the same id on the device.
    pub collapse_id: &'a CollapseKey,
}

impl Content<'_> {
    /// An error if the payload is too large. It names the part to make smaller.
    pub(super) fn check_size(&self, bytes: Vec<u8>, plain_bytes: usize, limit: usize) -> Result<Bytes, PayloadError> {
        if bytes.len() <= limit {
            return Ok(bytes.into());
        }
        let part = if plain_bytes <= limit { Part::Patch } else { self.largest_part() };
        Err(PayloadError::TooLarge { bytes: bytes.len(), limit, part })
    }

    fn largest_part(&self) -> Part {
        let Present { link, image, sound, thread, category, android_channel, .. } = self.present;
        let shown =
            [link, image, sound, thread, category, android_channel].into_iter().flatten().map(String::len).sum();
        let data = self.data.map_or(0, |data| data.bytes().len());
        let parts = [(self.title.len() + self.body.len(), Part::Text), (shown, Part::Present), (data, Part::Data)];
        parts.into_iter().max_by_key(|(bytes, _)| *bytes).expect("there are three parts").1
    }

    pub(super) fn origin(&self) -> Origin<'_> {
        Origin {
            event: self.event.as_str(),
            channel: self.stream.map(|(channel, _)| channel.as_str()),
            epoch: self.stream.as_ref().map(|(_, position)| position.epoch.as_str()),
            offset: self.stream.map(|(_, position)| position.offset.0),
            link: self.present.link.as_deref(),
            image: self.present.image.as_deref(),
        }
    }

    /// The sound to play, if any.
    pub(super) fn sound(&self) -> Option<&str> {
        Some(self.present.sound.as_deref().unwrap_or("default")).filter(|name| *name != SILENT)
    }

    /// Whether the provider should wake devices at once.
    pub(super) fn is_urgent(&self) -> bool {
        self.urgency.is_none_or(|urgency| urgency == Urgency::High)
    }
}

/// The fields with which an app resumes and recognises duplicates.
#[derive(Serialize)]
pub(super) struct Origin<'a> {
    pub(super) event: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) channel: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) epoch: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) link: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) image: Option<&'a str>,
}

pub(super) fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and valid JSON always encode")
}

/// The members of a payload that was just encoded, for a patch.
pub(super) fn members(plain: &[u8]) -> Result<merge::Members<'_>, PatchError> {
    let plain: &RawValue = serde_json::from_slice(plain).expect("it was just encoded");
    Ok(Node::Leaf(plain).into_members()?.expect("a payload is an object"))
}

/// The members of a producer's patch.
pub(super) fn patch_members(patch: &Json) -> Result<std::collections::BTreeMap<String, &RawValue>, PatchError> {
    let patch: &RawValue = serde_json::from_slice(patch.bytes()).expect("Json is JSON");
    merge::members(patch)?.ok_or(PatchError::NotAnObject)
}
