//! The reasons with which a provider refuses a notification: one list per provider, and what all lists have in common.

use std::fmt;
use std::hash::Hash;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A provider's reasons for not accepting a notification: [`Reason`](crate::Reason) (APNs),
/// [`FcmReason`](crate::FcmReason), [`WebPushReason`](crate::WebPushReason).
pub trait Refusal: Copy + Ord + Hash + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// All reasons, in the order of [`index`](Self::index).
    const EVERY: &'static [Self];
    /// The provider failed, status 500.
    const INTERNAL_ERROR: Self;
    /// The provider is overloaded, status 503.
    const UNAVAILABLE: Self;
    /// The sender is too fast, status 429.
    const TOO_MANY: Self;
    /// The device is no longer there.
    const GONE: Self;
    /// Whether the provider has a quota ([`Faults::quota_count`](crate::Faults::quota_count)).
    const HAS_QUOTA: bool;
    /// The number of concurrent streams that the provider usually announces.
    const STREAM_LIMIT: u32;
    /// How many notifications the ledger keeps by default.
    const NOTIFICATION_COUNT_MAX: usize;

    /// The position in [`EVERY`](Self::EVERY).
    fn index(self) -> usize;
}

/// Makes an enum of reasons. Each line has a name, a status, and the spelling in faults and ledgers. The constants of
/// [`Refusal`] follow.
macro_rules! refusals {
    (
        $(#[$meta:meta])*
        $Enum:ident { $($(#[$variant_meta:meta])* $name:ident = $status:literal $text:literal,)* }
        $(const $constant:ident: $type:ty = $value:expr;)*
    ) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize
        )]
        pub enum $Enum {
            $(
                $(#[$variant_meta])*
                #[doc = concat!("Status ", stringify!($status), ".")]
                #[serde(rename = $text)]
                $name,
            )*
        }

        impl $Enum {
            /// The HTTP status of the answer.
            pub fn status(self) -> http::StatusCode {
                let code: u16 = match self {
                    $(Self::$name => $status,)*
                };
                http::StatusCode::from_u16(code).expect("every status above is in 100..1000")
            }

            /// The spelling in faults and ledgers.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        impl std::fmt::Display for $Enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl crate::Refusal for $Enum {
            const EVERY: &'static [Self] = &[$(Self::$name,)*];
            $(const $constant: $type = $value;)*

            fn index(self) -> usize {
                self as usize
            }
        }
    };
}

pub(crate) use refusals;
