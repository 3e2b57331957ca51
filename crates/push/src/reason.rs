//! Why a provider refused a notification: one bounded set over all providers.

use tidings_types::Provider;

use crate::{apns, fcm, web_push};

/// Why a provider refused a request, or why it could not be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A reason of Apple.
    Apns(apns::Reason),
    /// A reason of Google.
    Fcm(fcm::Reason),
    /// A reason of our own: push services share status codes, but no reasons.
    WebPush(web_push::Reason),
    /// A bug in Tidings while the request was made; the log says what and where.
    Panicked(Provider),
}

const FCM_FROM: usize = apns::Reason::ALL.len();
const WEB_PUSH_FROM: usize = FCM_FROM + fcm::Reason::ALL.len();
const PANICKED_FROM: usize = WEB_PUSH_FROM + web_push::Reason::ALL.len();
const COUNT: usize = PANICKED_FROM + Provider::ALL.len();

const fn all() -> [Reason; COUNT] {
    let mut all = [Reason::Apns(apns::Reason::Other); COUNT];
    let mut index = 0;
    while index < COUNT {
        all[index] = if index < FCM_FROM {
            Reason::Apns(apns::Reason::ALL[index])
        } else if index < WEB_PUSH_FROM {
            Reason::Fcm(fcm::Reason::ALL[index - FCM_FROM])
        } else if index < PANICKED_FROM {
            Reason::WebPush(web_push::Reason::ALL[index - WEB_PUSH_FROM])
        } else {
            Reason::Panicked(Provider::ALL[index - PANICKED_FROM])
        };
        index += 1;
    }
    all
}

impl Reason {
    /// All reasons of all providers.
    pub const ALL: &[Self] = &all();

    /// Its index in [`Reason::ALL`].
    pub fn index(self) -> usize {
        match self {
            Self::Apns(reason) => reason as usize,
            Self::Fcm(reason) => FCM_FROM + reason as usize,
            Self::WebPush(reason) => WEB_PUSH_FROM + reason as usize,
            Self::Panicked(provider) => PANICKED_FROM + provider as usize,
        }
    }

    /// Its name, which is unique; a bounded set, fit for metrics and rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apns(reason) => reason.as_str(),
            Self::Fcm(reason) => reason.as_str(),
            Self::WebPush(reason) => reason.as_str(),
            Self::Panicked(Provider::Apns) => "apns_panicked",
            Self::Panicked(Provider::Fcm) => "fcm_panicked",
            Self::Panicked(Provider::WebPush) => "web_push_panicked",
        }
    }

    /// Its meaning, in a sentence or two.
    pub fn about(self) -> &'static str {
        match self {
            Self::Apns(reason) => reason.about(),
            Self::Fcm(reason) => reason.about(),
            Self::WebPush(reason) => reason.about(),
            Self::Panicked(_) => "A bug of Tidings, when the request was made. The log says where.",
        }
    }

    /// The provider that it belongs to.
    pub fn provider(self) -> Provider {
        match self {
            Self::Apns(_) => Provider::Apns,
            Self::Fcm(_) => Provider::Fcm,
            Self::WebPush(_) => Provider::WebPush,
            Self::Panicked(provider) => provider,
        }
    }
}

impl From<apns::Reason> for Reason {
    fn from(reason: apns::Reason) -> Self {
        Self::Apns(reason)
    }
}

impl From<fcm::Reason> for Reason {
    fn from(reason: fcm::Reason) -> Self {
        Self::Fcm(reason)
    }
}

impl From<web_push::Reason> for Reason {
    fn from(reason: web_push::Reason) -> Self {
        Self::WebPush(reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_place_and_name() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
            let first = Reason::ALL.iter().find(|other| other.as_str() == reason.as_str());
            assert_eq!(first, Some(reason), "two reasons have one name");
        }
    }
}
