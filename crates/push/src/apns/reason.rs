//! Why APNs refuses a request (Apple, "Handling notification responses from APNs").

macro_rules! reasons {
    ($($(#[doc = $doc:literal])+ $name:ident $(| $other:literal)?,)+) => {
        /// Why APNs refused a request, in Apple's words.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[doc = $doc])+ $name,)+
            /// A reason that is not in Apple's documentation, or no reason was given.
            Other,
        }

        impl Reason {
            /// All reasons, for registering metrics.
            pub const ALL: &[Self] = &[$(Self::$name,)+ Self::Other];

            /// Apple's spelling; a bounded set, fit for metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                    Self::Other => "Other",
                }
            }

            /// What it means, in a sentence or two.
            pub fn about(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                    Self::Other => "A reason that is not in Apple's documentation, or no reason was given.",
                }
            }

            pub(super) fn from_text(text: &str) -> Self {
                match text {
                    $(stringify!($name) $(| $other)? => Self::$name,)+
                    _ => Self::Other,
                }
            }
        }
    };
}

reasons! {
    /// The collapse id has more than 64 bytes.
    BadCollapseId,
    /// The token is malformed, or belongs to the other environment.
    BadDeviceToken,
    /// The expiration is not a number.
    BadExpirationDate,
    /// The notification id is not a UUID.
    BadMessageId,
    /// The push type does not allow this priority.
    BadPriority,
    /// The topic is malformed.
    BadTopic,
    /// The token belongs to another app.
    DeviceTokenNotForTopic,
    /// A header is repeated.
    DuplicateHeaders,
    /// The connection was idle for too long.
    IdleTimeout,
    /// The push type is not known.
    InvalidPushType,
    /// The path has no token.
    MissingDeviceToken,
    /// There is no topic.
    MissingTopic,
    /// There is no body.
    PayloadEmpty,
    /// The credential may not use this topic.
    TopicDisallowed,
    /// The certificate is invalid.
    BadCertificate,
    /// The certificate belongs to the other environment.
    BadCertificateEnvironment,
    /// The signing key belongs to the other environment.
    BadEnvironmentKeyIdInToken | "BadEnvironmentKeyInToken",
    /// The credential is too old.
    ExpiredProviderToken,
    /// The action is not allowed.
    Forbidden,
    /// The credential is malformed or its signature wrong.
    InvalidProviderToken,
    /// There is no credential.
    MissingProviderToken,
    /// The signing key is not the one that this connection began with.
    UnrelatedKeyIdInToken,
    /// The path is wrong.
    BadPath,
    /// The method is not POST.
    MethodNotAllowed,
    /// The token has expired. It is removed.
    ExpiredToken,
    /// The app was removed from the device. The token is removed.
    Unregistered,
    /// The notification is too large.
    PayloadTooLarge,
    /// The credential was renewed too often.
    TooManyProviderTokenUpdates,
    /// Too many requests to this one device.
    TooManyRequests,
    /// An error inside APNs.
    InternalServerError,
    /// APNs is not available.
    ServiceUnavailable,
    /// APNs is shutting this server down.
    Shutdown,
}

impl Reason {
    /// Whether the credential is to blame: an operator must act, and no device may suffer for it.
    pub(super) fn is_about_credential(self) -> bool {
        matches!(
            self,
            Self::BadCertificate
                | Self::BadCertificateEnvironment
                | Self::BadEnvironmentKeyIdInToken
                | Self::ExpiredProviderToken
                | Self::Forbidden
                | Self::InvalidProviderToken
                | Self::MissingProviderToken
                | Self::TooManyProviderTokenUpdates
                | Self::UnrelatedKeyIdInToken
        )
    }
}
