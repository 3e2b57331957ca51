//! Devices as callers hand them in, get them back and send to them.
//!
//! Durable forms are elsewhere (`rows`); these are what goes over the counter. [`Recipient`] borrows from the table in
//! memory: it lives for one call of [`Store::with_recipients`](crate::Store::with_recipients).

use std::fmt;

use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, JournalPosition, Locale, Platform,
    Subject, Timestamp, TopicName, UserId,
};

/// What a client says about a device; a later one replaces an earlier one as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDevice {
    /// The application's name for it.
    pub id: DeviceId,
    /// Who uses it.
    pub user: Option<UserId>,
    /// The application it runs.
    pub app: AppId,
    /// Its kind.
    pub platform: Platform,
    /// The provider's world its token belongs to.
    pub environment: Environment,
    /// Its address; `None` takes a known one away. A token of another device moves here: an address has one device.
    pub token: Option<DeviceToken>,
    /// The language of its user.
    pub locale: Locale,
    /// Its country.
    pub country: Option<Country>,
}

/// A device to be imported.
#[derive(Clone, PartialEq, Eq)]
pub struct NewImport {
    /// What is said about it.
    pub device: NewDevice,
    /// What it subscribes to, beside what it subscribed to before.
    pub subscriptions: Vec<(Subject, TopicName)>,
    /// Its secret from now on, where the device brings one along; `None` leaves what it has. Only its hash is stored.
    pub credential: Option<String>,
    /// Its provider has accepted pushes to this very token already; false leaves what is known.
    pub proven: bool,
}

// Secrets never reach a log (invariant 9).
impl fmt::Debug for NewImport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, subscriptions, credential: _, proven } = self;
        f.debug_struct("NewImport")
            .field("device", device)
            .field("subscriptions", subscriptions)
            .field("proven", proven)
            .finish_non_exhaustive()
    }
}

/// Topics on subjects: what a device is subscribed to, or to which.
pub type Selection = Vec<(Subject, Vec<TopicName>)>;

/// A device as registered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// What is kept of it.
    pub device: Device,
    /// It was not known before.
    pub created: bool,
    /// Its secret, given once: when it is created.
    pub credential: Option<Credential>,
}

/// A secret that proves a device: 32 random bytes in base64url. Only its hash is stored.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(pub(crate) String);

impl Credential {
    /// The text to hand to the device.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Secrets never reach a log (invariant 9).
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// What sending needs of a device, read from memory.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// Its number.
    pub number: DeviceNumber,
    /// The application's name for it.
    pub id: &'a DeviceId,
    /// Its address; `None` when the provider said that it is gone, or it never had one.
    pub token: Option<&'a DeviceToken>,
    /// Its provider has accepted a push to this very token.
    pub proven: bool,
    /// The application it runs.
    pub app: &'a AppId,
    /// Its kind.
    pub platform: Platform,
    /// The provider's world its token belongs to.
    pub environment: Environment,
    /// The language of its user.
    pub locale: &'a Locale,
    /// Its country.
    pub country: Option<&'a Country>,
    /// It is owed no event before this position.
    pub since: JournalPosition,
}

/// A provider's word that a token is no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneToken {
    /// The device it was sent to.
    pub number: DeviceNumber,
    /// The token it was sent to; a device that has another one by now keeps that.
    pub token: DeviceToken,
    /// Since when, where the provider says so; a later registration of the same token is newer and stays.
    pub gone_at: Option<Timestamp>,
}

/// What an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    /// Devices that were not known before.
    pub created: u64,
    /// Devices that were.
    pub updated: u64,
    /// Subscriptions that were not there before.
    pub subscribed: u64,
}
