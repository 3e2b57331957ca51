//! The providers of push notifications.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NameError;

/// A provider of push notifications.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// The Apple Push Notification service.
    Apns,
    /// Firebase Cloud Messaging.
    Fcm,
    /// The push services of the browsers (RFC 8030).
    WebPush,
}

impl Provider {
    /// All of them, in the order of their declaration.
    pub const ALL: &[Self] = &[Self::Apns, Self::Fcm, Self::WebPush];

    /// Its name, as in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Apns => "apns",
            Self::Fcm => "fcm",
            Self::WebPush => "web_push",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Provider {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::ALL.iter().copied().find(|provider| provider.as_str() == text).ok_or_else(|| NameError {
            what: "provider",
            rule: "must be apns, fcm or web_push",
            value: text.chars().take(64).collect(),
        })
    }
}
