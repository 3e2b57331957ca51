//! Why APNs does not accept a notification: its words and their status codes, in one table.
//!
//! The sender has a list of its own in `tidings-push`. The two are kept apart on purpose, so that a mistake in one is
//! not repeated by its judge. Source: Apple, "Handling notification responses from APNs".

use std::fmt;

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use crate::Refusal;

macro_rules! reasons {
    ($($name:ident = $status:literal,)*) => {
        /// Why a notification was not accepted, in APNs' words; serialized as APNs spells it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Reason {
            $(
                #[doc = concat!("Answered with status ", stringify!($status), ".")]
                $name,
            )*
        }

        impl Reason {
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status it is answered with.
            pub fn status(self) -> StatusCode {
                let code: u16 = match self {
                    $(Self::$name => $status,)*
                };
                StatusCode::from_u16(code).expect("every status above lies in 100..1000")
            }

            /// APNs' spelling.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// The body of the answer, without the timestamp that 410 carries.
            pub(crate) fn body(self) -> Bytes {
                Bytes::from_static(match self {
                    $(Self::$name => concat!("{\"reason\":\"", stringify!($name), "\"}").as_bytes(),)*
                })
            }
        }
    };
}

reasons! {
    BadCollapseId = 400,
    BadDeviceToken = 400,
    BadExpirationDate = 400,
    BadMessageId = 400,
    BadPriority = 400,
    BadTopic = 400,
    DeviceTokenNotForTopic = 400,
    DuplicateHeaders = 400,
    IdleTimeout = 400,
    InvalidPushType = 400,
    MissingDeviceToken = 400,
    MissingTopic = 400,
    PayloadEmpty = 400,
    TopicDisallowed = 400,
    BadCertificate = 403,
    BadCertificateEnvironment = 403,
    BadEnvironmentKeyIdInToken = 403,
    ExpiredProviderToken = 403,
    Forbidden = 403,
    InvalidProviderToken = 403,
    MissingProviderToken = 403,
    UnrelatedKeyIdInToken = 403,
    BadPath = 404,
    MethodNotAllowed = 405,
    ExpiredToken = 410,
    Unregistered = 410,
    PayloadTooLarge = 413,
    TooManyProviderTokenUpdates = 429,
    TooManyRequests = 429,
    InternalServerError = 500,
    ServiceUnavailable = 503,
    Shutdown = 503,
}

impl Reason {
    /// Whether APNs answers it by lowering the stream limit: an error of the client, but not a device that is gone.
    pub(crate) fn is_client_error(self) -> bool {
        self.status().is_client_error() && self.status() != StatusCode::GONE
    }
}

impl Refusal for Reason {
    const EVERY: &'static [Self] = Self::ALL;
    const INTERNAL_ERROR: Self = Self::InternalServerError;
    const UNAVAILABLE: Self = Self::ServiceUnavailable;
    const TOO_MANY: Self = Self::TooManyRequests;
    const GONE: Self = Self::Unregistered;
    const HAS_QUOTA: bool = false;
    const STREAM_LIMIT: u32 = 1000;

    fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
