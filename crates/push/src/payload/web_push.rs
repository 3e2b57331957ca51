//! The text that a browser's service worker gets, before it is encrypted.
//!
//! ```json
//! {"title":"Goal!","body":"1 : 0","tag":"match-7",
//!  "tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"data":{"score":[1,0]}}
//! ```
//!
//! The members up to `tidings` are named as the options of `showNotification` (Notifications API), which shows them. A
//! patch may change everything except `tidings`. A title always stays, because a browser that gets nothing to show may
//! ask the user whether to stop pushes.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use tidings_types::{Interruption, Json, Urgency};

use super::content::{Content, Origin, json, members, patch_members};
use super::error::{PatchError, PayloadError};
use super::merge;
use crate::web_push::encryption::OVERHEAD_BYTES;

/// Bytes of text for a browser: the 4096 that every push service accepts (RFC 8030, 7.2), less the overhead of encryption
/// (RFC 8291, 4). Services that send to phones accept less. Up to 2000 bytes are safe everywhere.
pub const WEB_PUSH_PAYLOAD_BYTES_MAX: usize = 4096 - OVERHEAD_BYTES;

/// A text for a browser's service worker, not yet encrypted.
#[derive(Clone, PartialEq, Eq)]
pub struct WebPushBody {
    /// The text.
    pub bytes: Bytes,
    /// How urgently it is delivered; without one, at once.
    pub urgency: Option<Urgency>,
}

// Payloads never reach a log.
impl fmt::Debug for WebPushBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WebPushBody({} bytes, {:?})", self.bytes.len(), self.urgency)
    }
}

pub(super) fn encode(content: &Content<'_>) -> Result<WebPushBody, PayloadError> {
    let present = content.present;
    let plain = json(&Text {
        title: content.title,
        body: content.body,
        tag: content.collapse_id.as_str(),
        image: present.image.as_deref(),
        silent: content.sound().is_none() || present.interruption == Some(Interruption::Passive),
        app_badge: present.badge,
        tidings: content.origin(),
        data: content.data,
    });
    let plain_bytes = plain.len();
    let bytes = match &content.patches.webpush {
        None => plain,
        Some(patch) => patched(&plain, patch)?,
    };
    let bytes = content.check_size(bytes, plain_bytes, WEB_PUSH_PAYLOAD_BYTES_MAX)?;
    Ok(WebPushBody { bytes, urgency: content.urgency })
}

fn patched(plain: &[u8], patch: &Json) -> Result<Vec<u8>, PatchError> {
    let patch = patch_members(patch)?;
    if patch.contains_key("tidings") {
        return Err(PatchError::Tidings);
    }
    let mut whole = members(plain)?;
    merge::apply(&mut whole, patch)?;
    if !whole.contains_key("title") {
        return Err(PatchError::NoTitle);
    }
    Ok(json(&whole))
}

#[derive(Serialize)]
struct Text<'a> {
    title: &'a str,
    body: &'a str,
    tag: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    silent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    app_badge: Option<u32>,
    tidings: Origin<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'a Json>,
}
