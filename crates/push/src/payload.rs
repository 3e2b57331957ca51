//! The content of a notification as JSON, in each provider's form; `docs/payload.md` describes it for app engineers.
//!
//! Encoded once per job, app and text, never per device. [`Content`] is the same for all providers; [`Encoded`] is the
//! form for one of them. Besides what the provider shows, it has `tidings`, which tells the app which event this is and
//! from where in which channel to resume, and `data`, the producer's own value. For APNs:
//!
//! ```json
//! {"aps":{"alert":{"title":"Goal!","body":"1 : 0"},"sound":"default","thread-id":"match:7"},
//!  "tidings":{"event":"goal-1","channel":"match:7","epoch":"AbCdEfGh","offset":12},"data":{"score":[1,0]}}
//! ```
//!
//! A producer's merge patch for the provider (RFC 7396) is applied to the whole, except `tidings`. The result decides
//! how the provider must be called. The rules of each provider are in its module below.
//!
//! Limits: [`APNS_PAYLOAD_BYTES_MAX`], [`FCM_PAYLOAD_BYTES_MAX`], [`WEB_PUSH_PAYLOAD_BYTES_MAX`]. Nothing is cut: an
//! error is better than half a sentence. A patch nests at most 64 objects.

use bytes::Bytes;
use tidings_types::Provider;

mod apns;
mod content;
mod error;
mod fcm;
mod merge;
#[cfg(test)]
mod tests;
mod web_push;

pub use apns::{APNS_PAYLOAD_BYTES_MAX, ApnsBody};
pub use content::Content;
pub use error::{Part, PatchError, PayloadError};
pub(crate) use fcm::FCM_ENVELOPE_BYTES_MAX;
pub use fcm::{FCM_PAYLOAD_BYTES_MAX, FcmBody};
pub use web_push::{WEB_PUSH_PAYLOAD_BYTES_MAX, WebPushBody};

/// The content in the form of one provider.
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
    /// The JSON: the body for APNs, the message without its recipient for FCM, the text before encryption for browsers.
    pub fn bytes(&self) -> &Bytes {
        match self {
            Self::Apns(body) => &body.bytes,
            Self::Fcm(body) => body.bytes(),
            Self::WebPush(body) => &body.bytes,
        }
    }

    /// The form for a dry run: the provider validates it and delivers it to nobody. `None` if the provider has no dry
    /// run; then it must not be sent.
    pub fn into_dry_run(self) -> Option<Self> {
        match self {
            Self::Fcm(body) => Some(Self::Fcm(body.into_dry_run())),
            Self::Apns(_) | Self::WebPush(_) => None,
        }
    }
}

impl Content<'_> {
    /// Encodes it for a provider.
    ///
    /// # Errors
    /// If the patch is wrong, or the result has more bytes than the provider accepts.
    pub fn encode(&self, provider: Provider) -> Result<Encoded, PayloadError> {
        match provider {
            Provider::Apns => apns::encode(self).map(Encoded::Apns),
            Provider::Fcm => fcm::encode(self).map(Encoded::Fcm),
            Provider::WebPush => web_push::encode(self).map(Encoded::WebPush),
        }
    }
}
