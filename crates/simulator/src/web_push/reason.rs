//! A push service's reasons for not accepting a push. RFC 8030 names statuses only; these names are a mix of Apple's and
//! Mozilla's.

use crate::refusal::refusals;

refusals! {
    /// A push service's reasons for not accepting a push.
    WebPushReason {
        /// `TTL` is missing or not a number (RFC 8030, 5.2).
        BadTtl = 400 "BadTtl",
        /// `Urgency` is not one of the four words (RFC 8030, 5.3).
        BadUrgency = 400 "BadUrgency",
        /// `Topic` has more than 32 characters, or characters outside base64url (RFC 8030, 5.4).
        BadTopic = 400 "BadTopic",
        /// The body's encoding is not `aes128gcm`, or there are headers of an older draft.
        BadEncoding = 400 "BadEncoding",
        /// The body does not follow RFC 8291, or the browser's keys do not decrypt it. A real service cannot know.
        Undecryptable = 400 "Undecryptable",
        /// There is no `vapid` authorization, but the subscription accepts only one sender (RFC 8292, 4.2).
        MissingAuthorization = 401 "MissingAuthorization",
        /// The token has a wrong signature or audience, has expired, or expires too late (RFC 8292, 2).
        BadAuthorization = 403 "BadAuthorization",
        /// The subscription is for another sender's key (RFC 8292, 4.2).
        KeyMismatch = 403 "KeyMismatch",
        /// There is no such subscription.
        NotFound = 404 "NotFound",
        /// Only `POST` is allowed.
        MethodNotAllowed = 405 "MethodNotAllowed",
        /// The subscription has ended.
        Gone = 410 "Gone",
        /// More than 4096 bytes.
        PayloadTooLarge = 413 "PayloadTooLarge",
        /// Too many pushes.
        TooManyRequests = 429 "TooManyRequests",
        /// The service failed.
        InternalServerError = 500 "InternalServerError",
        /// The service is overloaded.
        ServiceUnavailable = 503 "ServiceUnavailable",
    }
    const INTERNAL_ERROR: Self = Self::InternalServerError;
    const UNAVAILABLE: Self = Self::ServiceUnavailable;
    const TOO_MANY: Self = Self::TooManyRequests;
    const GONE: Self = Self::Gone;
    const HAS_QUOTA: bool = true;
    const STREAM_LIMIT: u32 = 100;
    const NOTIFICATION_COUNT_MAX: usize = 8_000_000;
}
