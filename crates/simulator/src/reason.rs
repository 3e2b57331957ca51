//! APNs' reasons for not accepting a notification, with their status codes.
//!
//! `tidings-push` has a list of its own for the sender. The lists are separate on purpose: a mistake in one is then
//! found by the other. Source: Apple, "Handling notification responses from APNs".

use http::StatusCode;

use crate::refusal::refusals;

refusals! {
    /// APNs' reasons for not accepting a notification, as APNs spells them.
    Reason {
        BadCollapseId = 400 "BadCollapseId",
        BadDeviceToken = 400 "BadDeviceToken",
        BadExpirationDate = 400 "BadExpirationDate",
        BadMessageId = 400 "BadMessageId",
        BadPriority = 400 "BadPriority",
        BadTopic = 400 "BadTopic",
        DeviceTokenNotForTopic = 400 "DeviceTokenNotForTopic",
        DuplicateHeaders = 400 "DuplicateHeaders",
        IdleTimeout = 400 "IdleTimeout",
        InvalidPushType = 400 "InvalidPushType",
        MissingDeviceToken = 400 "MissingDeviceToken",
        MissingTopic = 400 "MissingTopic",
        PayloadEmpty = 400 "PayloadEmpty",
        TopicDisallowed = 400 "TopicDisallowed",
        BadCertificate = 403 "BadCertificate",
        BadCertificateEnvironment = 403 "BadCertificateEnvironment",
        BadEnvironmentKeyIdInToken = 403 "BadEnvironmentKeyIdInToken",
        ExpiredProviderToken = 403 "ExpiredProviderToken",
        Forbidden = 403 "Forbidden",
        InvalidProviderToken = 403 "InvalidProviderToken",
        MissingProviderToken = 403 "MissingProviderToken",
        UnrelatedKeyIdInToken = 403 "UnrelatedKeyIdInToken",
        BadPath = 404 "BadPath",
        MethodNotAllowed = 405 "MethodNotAllowed",
        ExpiredToken = 410 "ExpiredToken",
        Unregistered = 410 "Unregistered",
        PayloadTooLarge = 413 "PayloadTooLarge",
        TooManyProviderTokenUpdates = 429 "TooManyProviderTokenUpdates",
        TooManyRequests = 429 "TooManyRequests",
        InternalServerError = 500 "InternalServerError",
        ServiceUnavailable = 503 "ServiceUnavailable",
        Shutdown = 503 "Shutdown",
    }
    const INTERNAL_ERROR: Self = Self::InternalServerError;
    const UNAVAILABLE: Self = Self::ServiceUnavailable;
    const TOO_MANY: Self = Self::TooManyRequests;
    const GONE: Self = Self::Unregistered;
    const HAS_QUOTA: bool = false;
    const STREAM_LIMIT: u32 = 1000;
    const NOTIFICATION_COUNT_MAX: usize = 32_000_000;
}

impl Reason {
    /// Whether APNs lowers the stream limit with this answer: an error of the client, except that the device is gone.
    pub(crate) fn is_client_error(self) -> bool {
        self.status().is_client_error() && self.status() != StatusCode::GONE
    }
}
