//! Devices: what they are called, how they are reached, what is kept of them.
//!
//! A device is one installation of an app, named by the application ([`DeviceId`]); inside it has a dense
//! [`DeviceNumber`], which is what audience sets hold. [`Device`] is also the durable form of the store's device rows,
//! so a change of its serde form is a change of the store's format. Tokens are secrets: `Debug` shows their length
//! only.
//!
//! Not here: subscriptions and the hash of a device's credential (the store), which pool reaches it (the sender).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{AppId, Country, DeviceId, JournalPosition, Locale, NameError, Timestamp, UserId};

/// Our dense number for a device, the unit of audience sets. Never reused while a set or a job may hold it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceNumber(pub u32);

/// Which kind of device, and with it which push provider reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// iPhone, iPad, Mac and Apple Watch, reached by APNs.
    Ios,
}

/// Which of a provider's two worlds a token belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Environment {
    /// Apps from the store.
    #[default]
    Production,
    /// Apps from the developer's machine.
    Sandbox,
}

/// The address of a device at its provider, as opaque bytes: for APNs the bytes that the hexadecimal token spells.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DeviceToken(Box<[u8]>);

impl DeviceToken {
    /// Reads the hexadecimal form: 2 to 400 digits, an even number.
    ///
    /// # Errors
    /// When it is not hexadecimal or of another length; the value is not repeated, a token is a secret.
    pub fn from_hex(text: &str) -> Result<Self, NameError> {
        let error = || NameError {
            what: "token",
            rule: "must be 2 to 400 hexadecimal digits, an even number",
            value: format!("{} characters", text.chars().count()),
        };
        let digits = text.as_bytes();
        if digits.is_empty() || digits.len() > 400 || !digits.len().is_multiple_of(2) {
            return Err(error());
        }
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        digits
            .chunks_exact(2)
            .map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
            .collect::<Option<Box<[u8]>>>()
            .map(Self)
            .ok_or_else(error)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The hexadecimal form, lower case.
    pub fn to_hex(&self) -> String {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        self.0.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(|digit| DIGITS[digit as usize] as char).collect()
    }
}

impl From<&[u8]> for DeviceToken {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl TryFrom<String> for DeviceToken {
    type Error = NameError;

    fn try_from(text: String) -> Result<Self, NameError> {
        Self::from_hex(&text)
    }
}

impl From<DeviceToken> for String {
    fn from(token: DeviceToken) -> Self {
        token.to_hex()
    }
}

// Tokens never reach a log (invariant 9).
impl fmt::Debug for DeviceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceToken({} bytes)", self.0.len())
    }
}

/// What is kept of a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The application's name for it.
    pub id: DeviceId,
    /// Who uses it, when the application says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<UserId>,
    /// The application it runs.
    pub app: AppId,
    /// Its kind.
    pub platform: Platform,
    /// The provider's world its token belongs to.
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
    /// When the token was last registered: a provider's "gone" of an earlier moment is about an older registration.
    pub token_at: Timestamp,
    /// The journal's end when the device was first registered or last logged out: it is owed no earlier event.
    pub since: JournalPosition,
}
