//! Why FCM refuses a request (Google, "FCM error codes").

use tidings_types::words;

words! {
    /// Why FCM refused a request, in Google's words where it has any.
    pub enum Reason {
        /// The app was removed from the device, or the token is too old. The token is removed.
        Unregistered = "UNREGISTERED",
        /// FCM calls the message invalid.
        InvalidArgument = "INVALID_ARGUMENT",
        /// The token is not an FCM token.
        InvalidToken = "INVALID_ARGUMENT_TOKEN",
        /// The token belongs to another Firebase project.
        SenderIdMismatch = "SENDER_ID_MISMATCH",
        /// Too many messages: of the project, or to this device.
        QuotaExceeded = "QUOTA_EXCEEDED",
        /// FCM is overloaded.
        Unavailable = "UNAVAILABLE",
        /// An error inside FCM.
        Internal = "INTERNAL",
        /// The certificate or key for Apple or browsers that is stored at Firebase is wrong or missing.
        ThirdPartyAuthError = "THIRD_PARTY_AUTH_ERROR",
        /// The access token is missing or too old.
        Unauthenticated = "UNAUTHENTICATED",
        /// The service account may not send for this project, or the FCM API is switched off in it.
        PermissionDenied = "PERMISSION_DENIED",
        /// There is no such project.
        NotFound = "NOT_FOUND",
        /// An error for which Google gives no name.
        Unspecified = "UNSPECIFIED_ERROR",
        /// A reason that is not in Google's documentation, or no reason was given.
        Other = "FCM_OTHER",
    }
}

impl Reason {
    pub(super) fn from_text(text: &str) -> Self {
        if text == "RESOURCE_EXHAUSTED" {
            return Self::QuotaExceeded; // Its name outside of FCM's own details.
        }
        let is_named = |reason: &Self| reason.as_str() == text && *reason != Self::InvalidToken; // Not a name of Google's.
        Self::ALL.iter().copied().find(is_named).unwrap_or(Self::Other)
    }
}
