//! What the simulators have in common about refusing: a list of reasons per provider, with the few that faults name.

use std::fmt;
use std::hash::Hash;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Why a provider does not accept a notification, in its own words.
///
/// Each provider has its own list: [`Reason`](crate::Reason) (APNs), [`FcmReason`](crate::FcmReason),
/// [`WebPushReason`](crate::WebPushReason).
pub trait Refusal: Copy + Ord + Hash + fmt::Debug + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// All of them; [`index`](Self::index) is the place in it.
    const EVERY: &'static [Self];
    /// A fault of the provider's, status 500.
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

    /// Its place in [`EVERY`](Self::EVERY).
    fn index(self) -> usize;
}

/// A list of reasons: name, status, and the provider's spelling.
macro_rules! refusals {
    ($(#[$meta:meta])* $Enum:ident { $($(#[$variant_meta:meta])* $name:ident = $status:literal $text:literal,)* }) => {
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
            /// All of them, in the order of their declaration.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status it is answered with.
            pub fn status(self) -> http::StatusCode {
                let code: u16 = match self {
                    $(Self::$name => $status,)*
                };
                http::StatusCode::from_u16(code).expect("every status above lies in 100..1000")
            }

            /// How it is spelt in faults and ledgers.
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
    };
}

pub(crate) use refusals;
