//! Why a push service does not take a push. RFC 8030 gives statuses only; the words are between Apple's and Mozilla's.

use crate::Refusal;
use crate::refusal::refusals;

refusals! {
    /// Why a push service does not take a push.
    WebPushReason {
        /// `TTL` is missing or no number (RFC 8030, 5.2).
        BadTtl = 400 "BadTtl",
        /// `Urgency` is none of the four words (RFC 8030, 5.3).
        BadUrgency = 400 "BadUrgency",
        /// `Topic` is not at most 32 characters of base64url (RFC 8030, 5.4).
        BadTopic = 400 "BadTopic",
        /// There is a body that is not `aes128gcm`, or headers of an older draft.
        BadEncoding = 400 "BadEncoding",
        /// The body is not what RFC 8291 says, or the browser's keys do not open it. A real service cannot know.
        Undecryptable = 400 "Undecryptable",
        /// There is no `vapid` authorization, but the subscription is for one sender only (RFC 8292, 4.2).
        MissingAuthorization = 401 "MissingAuthorization",
        /// The token is not signed by its key, is not for us, or expired or too far from it (RFC 8292, 2).
        BadAuthorization = 403 "BadAuthorization",
        /// The key is not that of the subscription (RFC 8292, 4.2).
        KeyMismatch = 403 "KeyMismatch",
        /// There is no such subscription.
        NotFound = 404 "NotFound",
        /// Subscriptions take `POST` only.
        MethodNotAllowed = 405 "MethodNotAllowed",
        /// The subscription is over.
        Gone = 410 "Gone",
        /// More than 4096 bytes.
        PayloadTooLarge = 413 "PayloadTooLarge",
        /// Too many pushes.
        TooManyRequests = 429 "TooManyRequests",
        /// An error of the service's.
        InternalServerError = 500 "InternalServerError",
        /// The service is overloaded.
        ServiceUnavailable = 503 "ServiceUnavailable",
    }
}

impl Refusal for WebPushReason {
    const EVERY: &'static [Self] = Self::ALL;
    const INTERNAL_ERROR: Self = Self::InternalServerError;
    const UNAVAILABLE: Self = Self::ServiceUnavailable;
    const TOO_MANY: Self = Self::TooManyRequests;
    const GONE: Self = Self::Gone;
    const HAS_QUOTA: bool = true;
    const STREAM_LIMIT: u32 = 100;

    fn index(self) -> usize {
        self as usize
    }
}
