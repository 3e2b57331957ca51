//! FCM's reasons for not accepting a message, and the body of the answer (google.rpc.Status with details).

use serde_json::{Value, json};

use crate::refusal::refusals;

use super::message::Violation;

refusals! {
    /// FCM's reasons for not accepting a message.
    FcmReason {
        /// The token is not a registration token.
        InvalidArgument = 400 "INVALID_ARGUMENT",
        /// The body breaks a rule; FCM says `INVALID_ARGUMENT` with `fieldViolations`.
        InvalidBody = 400 "INVALID_BODY",
        /// The assertion for an access token is refused: OAuth's `invalid_grant` and similar errors.
        InvalidGrant = 400 "INVALID_GRANT",
        /// The access token is missing, unknown or expired.
        Unauthenticated = 401 "UNAUTHENTICATED",
        /// The APNs credential that is stored at Firebase is wrong.
        ThirdPartyAuthError = 401 "THIRD_PARTY_AUTH_ERROR",
        /// The request names another project.
        PermissionDenied = 403 "PERMISSION_DENIED",
        /// The device belongs to another project.
        SenderIdMismatch = 403 "SENDER_ID_MISMATCH",
        /// There is no such path.
        NotFound = 404 "NOT_FOUND",
        /// The device is no longer there.
        Unregistered = 404 "UNREGISTERED",
        /// Too many messages.
        QuotaExceeded = 429 "QUOTA_EXCEEDED",
        /// FCM failed.
        Internal = 500 "INTERNAL",
        /// FCM is overloaded.
        Unavailable = 503 "UNAVAILABLE",
    }
    const INTERNAL_ERROR: Self = Self::Internal;
    const UNAVAILABLE: Self = Self::Unavailable;
    const TOO_MANY: Self = Self::QuotaExceeded;
    const GONE: Self = Self::Unregistered;
    const HAS_QUOTA: bool = true;
    const STREAM_LIMIT: u32 = 100;
    const NOTIFICATION_COUNT_MAX: usize = 8_000_000;
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

    /// The `errorCode` of the detail that FCM adds. Answers of the front end before FCM have none.
    fn error_code(self) -> Option<&'static str> {
        match self {
            Self::InvalidBody => Some("INVALID_ARGUMENT"),
            Self::InvalidGrant | Self::Unauthenticated | Self::PermissionDenied | Self::NotFound => None,
            _ => Some(self.as_str()),
        }
    }

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
