//! What a notification says, as JSON, in each provider's form; for people who write apps described in
//! `docs/payload.md`.
//!
//! Encoded once per job, app and text, never per device. [`Content`] is the same for all providers, [`Encoded`] what
//! one of them is given. Beside what the provider shows stand `tidings`, which tells the app what it got and from
//! where in which channel to resume, and `data`, the producer's own value. For APNs:
//!
//! ```json
//! {"aps":{"alert":{"title":"Goal!","body":"1 : 0"},"sound":"default","thread-id":"match:7"},
//!  "tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"data":{"score":[1,0]}}
//! ```
//!
//! A producer's merge patch for the provider (RFC 7396) goes over the whole, `tidings` excepted; what it leaves decides
//! how the provider must be asked. Each provider's rules are in its module below.
//!
//! Limits: [`APNS_PAYLOAD_BYTES_MAX`], [`FCM_PAYLOAD_BYTES_MAX`], [`WEB_PUSH_PAYLOAD_BYTES_MAX`]; nothing is cut,
//! half a sentence is worse than an error. A patch nests at most 64 objects.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use tidings_types::{ChannelName, CollapseKey, EventId, Json, Payload, Present, Provider, StreamPosition, Urgency};

use crate::{Priority, PushType};

mod apns;
mod fcm;
mod merge;
#[cfg(test)]
mod tests;
mod web_push;

pub use fcm::FcmBody;
use merge::{MergeError, Node};

/// The most bytes APNs takes; for a call it would take 5120, but what is encoded here is for any app.
pub const APNS_PAYLOAD_BYTES_MAX: usize = 4096;
/// The most bytes of a message we give to FCM, its recipient and time to live apart. FCM allows 4096 for what the app
/// is given; counting the rest of the message too, nothing we accept is refused there.
pub const FCM_PAYLOAD_BYTES_MAX: usize = 4096;
/// The most bytes of text for a browser: what is left of the 4096 that every push service takes (RFC 8030, 7.2) when it
/// is encrypted (RFC 8291, 4). Services that pass it on to phones take less, so up to 2000 are safe everywhere.
pub const WEB_PUSH_PAYLOAD_BYTES_MAX: usize = 4096 - crate::web_push::encryption::OVERHEAD_BYTES;

/// The producer's word for a notification without sound.
const SILENT: &str = "none";

/// What a notification says, whatever the provider.
#[derive(Clone, Copy)]
pub struct Content<'a> {
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
    /// What the producer puts over all this, by provider: merge patches.
    pub patches: &'a Payload,
    /// How urgently it is delivered; without one, at once.
    pub urgency: Option<Urgency>,
    /// What it replaces on the device.
    pub collapse_id: &'a CollapseKey,
}

/// What one provider is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Encoded {
    /// Apple.
    Apns(ApnsBody),
    /// Firebase.
    Fcm(FcmBody),
    /// Browsers.
    WebPush(WebPushBody),
}

impl Encoded {
    /// The JSON: the body for APNs, the message without its recipient for FCM, the text before it is encrypted for
    /// browsers.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Apns(body) => &body.bytes,
            Self::Fcm(body) => body.bytes(),
            Self::WebPush(body) => &body.bytes,
        }
    }

    /// The same for a dry run: the provider validates it and delivers it to nobody. `None` where it offers no such
    /// thing; then it must not be sent.
    pub fn into_dry_run(self) -> Option<Self> {
        match self {
            Self::Fcm(body) => Some(Self::Fcm(body.into_dry_run())),
            Self::Apns(_) | Self::WebPush(_) => None,
        }
    }
}

/// A body for APNs, and how it must be asked to deliver it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApnsBody {
    /// The body.
    pub bytes: Bytes,
    /// What kind of push its payload makes it, [`PushType::Alert`] or [`PushType::Background`]. An app that only another
    /// kind goes to makes it one of those: [`crate::Rendering`].
    pub push_type: PushType,
    /// How urgently it is delivered, as far as its kind leaves the choice.
    pub priority: Priority,
}

/// A text for a browser's service worker, not yet encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct WebPushBody {
    /// The text.
    pub bytes: Bytes,
    /// How urgently it is delivered; without one, at once.
    pub urgency: Option<Urgency>,
}

// Payloads never reach a log.
impl fmt::Debug for ApnsBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApnsBody({} bytes, {:?}, {:?})", self.bytes.len(), self.push_type, self.priority)
    }
}

impl fmt::Debug for WebPushBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebPushBody({} bytes, {:?})", self.bytes.len(), self.urgency)
    }
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
    #[error("changes what is ours: by tidings the app resumes and recognises duplicates")]
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
    /// FCM's own block for the platform is no object.
    #[error("must leave android an object")]
    NoAndroid,
    /// It says whom an FCM message is for.
    #[error("names a recipient (token, fid, topic or condition), which is ours to choose")]
    Recipient,
    /// FCM takes a flat object of texts only.
    #[error("must leave data an object whose values are all texts")]
    DataForm,
    /// A name that FCM keeps for itself.
    #[error("puts a reserved name into data: from, message_type, or one that begins with gcm or google")]
    DataName,
    /// A browser that is told nothing to show takes the permission away.
    #[error("leaves no title, and a browser must show something")]
    NoTitle,
}

impl From<MergeError> for PatchError {
    fn from(error: MergeError) -> Self {
        match error {
            MergeError::TooDeep => Self::TooDeep,
            MergeError::Unreadable => Self::Unreadable,
        }
    }
}

impl Content<'_> {
    /// Encodes it for a provider.
    ///
    /// # Errors
    /// When the patch is wrong, or it has more bytes than the provider takes.
    pub fn encode(&self, provider: Provider) -> Result<Encoded, PayloadError> {
        match provider {
            Provider::Apns => apns::encode(self).map(Encoded::Apns),
            Provider::Fcm => fcm::encode(self).map(Encoded::Fcm),
            Provider::WebPush => web_push::encode(self).map(Encoded::WebPush),
        }
    }

    /// Takes what fits; of what does not, says what to make smaller.
    fn check_size(&self, bytes: Vec<u8>, plain_bytes: usize, limit: usize) -> Result<Bytes, PayloadError> {
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
        parts.into_iter().max_by_key(|(bytes, _)| *bytes).expect("there are three").1
    }

    fn origin(&self) -> Origin<'_> {
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
    fn sound(&self) -> Option<&str> {
        Some(self.present.sound.as_deref().unwrap_or("default")).filter(|name| *name != SILENT)
    }

    /// Whether devices are woken for it at once.
    fn is_urgent(&self) -> bool {
        self.urgency.is_none_or(|urgency| urgency == Urgency::High)
    }
}

/// What an app needs to resume and to recognise duplicates.
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

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("strings, numbers and valid JSON always encode")
}

/// What we have just written, as something a patch can be put over.
fn members(plain: &[u8]) -> Result<merge::Members<'_>, PatchError> {
    let plain: &RawValue = serde_json::from_slice(plain).expect("we have just written it");
    Ok(Node::Leaf(plain).into_members()?.expect("a payload is an object"))
}

/// The members of a producer's patch.
fn patch_members(patch: &Json) -> Result<std::collections::BTreeMap<String, &RawValue>, PatchError> {
    let patch: &RawValue = serde_json::from_slice(patch.bytes()).expect("Json is JSON");
    merge::members(patch)?.ok_or(PatchError::NotAnObject)
}
