//! Why there is no payload.

use super::merge::{self, MergeError};

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
    #[error("must not change tidings, by which the app resumes and recognises duplicates")]
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
