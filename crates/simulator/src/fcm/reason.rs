//! Why FCM does not accept a message, and how it says so (google.rpc.Status with details).

use serde_json::{Value, json};

use crate::Refusal;
use crate::refusal::refusals;

use super::message::Violation;

refusals! {
    /// Why FCM does not accept a message, in its words.
    FcmReason {
        /// The token is none.
        InvalidArgument = 400 "INVALID_ARGUMENT",
        /// The body breaks a rule; FCM says `INVALID_ARGUMENT` with `fieldViolations`.
        InvalidBody = 400 "INVALID_BODY",
        /// The assertion for an access token is not taken; OAuth's `invalid_grant` and its like.
        InvalidGrant = 400 "INVALID_GRANT",
        /// There is no access token, or it is not ours, or it has expired.
        Unauthenticated = 401 "UNAUTHENTICATED",
        /// The credential for APNs that was left with Firebase is wrong.
        ThirdPartyAuthError = 401 "THIRD_PARTY_AUTH_ERROR",
        /// The project is another one.
        PermissionDenied = 403 "PERMISSION_DENIED",
        /// The device belongs to another project.
        SenderIdMismatch = 403 "SENDER_ID_MISMATCH",
        /// There is no such path.
        NotFound = 404 "NOT_FOUND",
        /// The device is no longer there.
        Unregistered = 404 "UNREGISTERED",
        /// Too many messages.
        QuotaExceeded = 429 "QUOTA_EXCEEDED",
        /// An error of FCM's.
        Internal = 500 "INTERNAL",
        /// FCM is overloaded.
        Unavailable = 503 "UNAVAILABLE",
    }
}

impl Refusal for FcmReason {
    const EVERY: &'static [Self] = Self::ALL;
    const INTERNAL_ERROR: Self = Self::Internal;
    const UNAVAILABLE: Self = Self::Unavailable;
    const TOO_MANY: Self = Self::QuotaExceeded;
    const GONE: Self = Self::Unregistered;
    const HAS_QUOTA: bool = true;
    const STREAM_LIMIT: u32 = 100;

    fn index(self) -> usize {
        self as usize
    }
}

impl FcmReason {
    /// `error.status` and `error.message`.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::InvalidArgument => {
                ("INVALID_ARGUMENT", "The registration token is not a valid FCM registration token")
            }
            Self::InvalidBody => ("INVALID_ARGUMENT", "Request contains an invalid argument."),
            Self::InvalidGrant => ("INVALID_ARGUMENT", "Bad request."),
            Self::Unauthenticated => ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
            Self::ThirdPartyAuthError => {
                ("UNAUTHENTICATED", "Request is missing required authentication credential for APNs or Web Push.")
            }
            Self::PermissionDenied => ("PERMISSION_DENIED", "Permission denied on this project."),
            Self::SenderIdMismatch => ("PERMISSION_DENIED", "SenderId mismatch"),
            Self::NotFound => ("NOT_FOUND", "The requested URL was not found on this server."),
            Self::Unregistered => ("NOT_FOUND", "Requested entity was not found."),
            Self::QuotaExceeded => ("RESOURCE_EXHAUSTED", "Quota exceeded for messages of this project."),
            Self::Internal => ("INTERNAL", "Internal error encountered."),
            Self::Unavailable => ("UNAVAILABLE", "The service is currently unavailable."),
        }
    }

    /// `errorCode` of the detail of FCM's own, where it is FCM that refuses and not the front before it.
    fn error_code(self) -> Option<&'static str> {
        match self {
            Self::InvalidBody => Some("INVALID_ARGUMENT"),
            Self::InvalidGrant | Self::Unauthenticated | Self::PermissionDenied | Self::NotFound => None,
            _ => Some(self.as_str()),
        }
    }

    /// The body of the answer.
    pub(super) fn body(self, violation: Option<&Violation>) -> Value {
        let (status, message) = self.words();
        let message = violation.map_or(message, |violation| violation.description.as_str());
        let own = self
            .error_code()
            .map(|code| json!({"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code}));
        let field = violation.map(|Violation { field, description }| {
            json!({
                "@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": field, "description": description}],
            })
        });
        let details: Vec<_> = own.into_iter().chain(field).collect();
        json!({"error": {
            "code": self.status().as_u16(), "message": message, "status": status, "details": details,
        }})
    }
}
