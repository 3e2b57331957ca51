//! Devices: their names, their addresses, and the data that is kept of them.
//!
//! A device is one installation of an app, named by the application ([`DeviceId`]). Inside the server it has a
//! [`DeviceNumber`], the element of audience sets. [`Device`] is also the durable form of the store's device rows, so a
//! change of its serde form changes the store's format.
//!
//! Not here: subscriptions and the hash of a device's credential (in the store), and the pool that reaches it (in the
//! sender).

use serde::{Deserialize, Serialize};

use crate::{AppId, Country, DeviceId, DeviceToken, JournalPosition, Locale, Provider, TimeZone, Timestamp, UserId};

/// Our dense number for a device, the unit of audience sets. Never reused while a set or a job may hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceNumber(pub u32);

/// The kind of device, which decides its push provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// iPhone, iPad, Mac and Apple Watch, reached by APNs.
    Ios,
    /// Android, reached by FCM.
    Android,
    /// A browser, reached by Web Push.
    Web,
}

impl Platform {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Ios, Self::Android, Self::Web];

    /// The provider that reaches it.
    pub fn provider(self) -> Provider {
        match self {
            Self::Ios => Provider::Apns,
            Self::Android => Provider::Fcm,
            Self::Web => Provider::WebPush,
        }
    }

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ios => "ios",
            Self::Android => "android",
            Self::Web => "web",
        }
    }
}

/// The environment of a provider that a token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Apps from the store.
    #[default]
    Production,
    /// Apps that are installed from a developer's machine.
    Sandbox,
}

impl Environment {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Production => "production",
            Self::Sandbox => "sandbox",
        }
    }
}

/// Whether the device's user allows the app to show notifications, as the device last said. A provider accepts a push
/// even for a device that shows none, so the sender sends none if it is denied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PushPermission {
    /// Notifications are shown.
    Granted,
    /// Notifications are shown silently until the user decides (iOS).
    Provisional,
    /// Notifications are not shown.
    Denied,
    /// The device has not said.
    #[default]
    Unknown,
}

impl PushPermission {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Granted, Self::Provisional, Self::Denied, Self::Unknown];

    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Provisional => "provisional",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
        }
    }

    fn is_unknown(&self) -> bool {
        *self == Self::Unknown
    }
}

/// The data that is kept of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The application's name for it.
    pub id: DeviceId,
    /// The device's user, if the application has set one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The app that it runs.
    pub app: AppId,
    /// The kind of device.
    pub platform: Platform,
    /// The provider's environment of its token.
    #[serde(default)]
    pub environment: Environment,
    /// Its address; `None` after the provider has said that it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<DeviceToken>,
    /// The language of its user.
    pub locale: Locale,
    /// Its country.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<Country>,
    /// The time zone of its user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<TimeZone>,
    /// Whether it shows notifications.
    #[serde(default, skip_serializing_if = "PushPermission::is_unknown")]
    pub push_permission: PushPermission,
    /// When the token was last registered. If a provider says "gone" for an earlier moment, that is about an older
    /// registration.
    pub token_at: Timestamp,
    /// The journal's end when the device was first registered or last logged out: it gets no earlier event.
    pub since: JournalPosition,
    /// Grows with each change of what is kept of the device, except of `seen_at`; no two states of devices of this name
    /// have the same, not even when the device was deleted in between. 0 only where an older version wrote it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub revision: u64,
    /// The day on which it last registered, said something itself or proved itself: the day's first moment in UTC. 0
    /// where nobody knows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub seen_at: Timestamp,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
