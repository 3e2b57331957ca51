//! The errors of encoding a payload.

use super::merge::{self, MergeError};

/// The part of a payload to make smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Title and body.
    Text,
    /// How it is shown.
    Present,
    /// The producer's own data.
    Data,
    /// The patch: without it the payload would fit.
    Patch,
}

/// Why there is no payload.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// It exceeds the provider's limit.
    #[error("the payload has {bytes} bytes, limit {limit}")]
    TooLarge {
        /// Bytes of the payload.
        bytes: usize,
        /// Bytes that are allowed.
        limit: usize,
        /// The part to make smaller: the patch if the payload fits without it, else the largest part.
        part: Part,
    },
    /// The patch cannot be applied, or its result cannot be sent.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// The error of a producer's patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// It is not an object.
    #[error("must be an object")]
    NotAnObject,
    /// It changes `tidings`.
    #[error("must not change tidings, by which the app resumes and recognises duplicates")]
    Tidings,
    /// It has too many nested objects.
    #[error("nests deeper than {} objects", merge::DEPTH_MAX)]
    TooDeep,
    /// A name in it, or in the `data` that it changes, is not Unicode text.
    #[error("changes an object that has a name that is not Unicode text")]
    Unreadable,
    /// It removes `aps`, which APNs requires.
    #[error("must leave aps an object")]
    NoAps,
    /// The notification would have no effect.
    #[error("leaves nothing to show, play or wake: neither alert, sound nor badge in aps, nor content-available 1")]
    Nothing,
    /// FCM's `android` is not an object any more.
    #[error("must leave android an object")]
    NoAndroid,
    /// It names the recipient of an FCM message.
    #[error("names a recipient (token, fid, topic or condition), which only the server may do")]
    Recipient,
    /// FCM accepts only a flat object of texts.
    #[error("must leave data an object whose values are all texts")]
    DataForm,
    /// It uses a name that FCM reserves.
    #[error("puts a reserved name into data: from, message_type, or one that begins with gcm or google")]
    DataName,
    /// It removes the title. A browser that shows nothing may withdraw the permission to push.
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
