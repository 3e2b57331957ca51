//! Devices as callers hand them in, get them back and send to them.
//!
//! Durable forms are elsewhere (`rows`); these are what goes over the counter. [`Recipient`] borrows from the device
//! table: it lives for one call of [`Store::with_recipients`](crate::Store::with_recipients).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, ImportName, JournalPosition, Locale,
    Mute, NameError, Platform, PushPermission, Subject, TimeZone, Timestamp, TokenRef, TopicName, UserId,
};

use crate::hash::{Hash32, hash32, random};

mod expire;
mod numbers;
mod proven;
pub(crate) mod rows;
mod tend;
pub(crate) mod write;

/// Devices of one user: an audience is made of them, a list of them and their export look at all, and he is erased with
/// them. Whoever has more is no person, and is better a subject that they subscribe to. Those that a store had before it
/// knew this limit stay.
pub const USER_DEVICE_COUNT_MAX: u32 = 1000;

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
    /// Where its user's clock is.
    pub time_zone: Option<TimeZone>,
    /// Whether it shows what is pushed to it.
    pub push_permission: PushPermission,
}

impl NewDevice {
    /// One of which nothing else is said: nobody's, without an address, of the providers' production world.
    pub fn new(id: DeviceId, app: AppId, platform: Platform, locale: Locale) -> Self {
        Self {
            id,
            user: None,
            app,
            platform,
            environment: Environment::default(),
            token: None,
            locale,
            country: None,
            time_zone: None,
            push_permission: PushPermission::default(),
        }
    }
}

/// On which terms a device is put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutTerms {
    /// Who may be trusted says whether the device's provider has accepted pushes to its token before. `None` leaves what
    /// is known of the same address, and takes a new one for unproven.
    pub proven: Option<bool>,
    /// What must be so before.
    pub precondition: Precondition,
}

/// What must be so before a device is changed (RFC 9110, 13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precondition {
    /// Nothing.
    #[default]
    None,
    /// There is no such device (`If-None-Match: *`).
    Absent,
    /// There is one (`If-Match: *`).
    Present,
    /// There is one of this revision.
    Revision(u64),
}

impl Precondition {
    /// Whether a device of this revision may be changed; `None`: there is none.
    pub(crate) fn holds(self, revision: Option<u64>) -> bool {
        match self {
            Self::None => true,
            Self::Absent => revision.is_none(),
            Self::Present => revision.is_some(),
            Self::Revision(wanted) => revision == Some(wanted),
        }
    }
}

/// A device to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImport {
    /// What is said about it.
    pub device: NewDevice,
    /// What it subscribes to, beside what it subscribed to before.
    pub subscriptions: Vec<(Subject, TopicName)>,
    /// What it does not want to be told, beside what it muted before; one of a known scope takes the known one's place.
    pub mutes: Vec<Mute>,
    /// Its secret from now on, where the device brings one along; `None` leaves what it has.
    pub credential: Option<GivenCredential>,
    /// Its provider has accepted pushes to this very token already; false leaves what is known.
    pub proven: bool,
    /// When it was last seen, where somebody knows; an earlier day than the known one changes nothing. `None`: a new one
    /// counts as seen now.
    pub seen_at: Option<Timestamp>,
    /// When it registered its token, where somebody knows: a provider's word that the token has been gone since before
    /// then does not count. An earlier time than the known one of the same token changes nothing. `None`: it counts always.
    pub token_at: Option<Timestamp>,
}

impl From<NewDevice> for NewImport {
    /// One that brings nothing along.
    fn from(device: NewDevice) -> Self {
        let (subscriptions, mutes) = (Vec::new(), Vec::new());
        Self { device, subscriptions, mutes, credential: None, proven: false, seen_at: None, token_at: None }
    }
}

/// A secret that a device brings along; only its hash is stored.
#[derive(Clone, PartialEq, Eq)]
pub enum GivenCredential {
    /// The text itself.
    Secret(String),
    /// Its hash: nobody but the device has the text.
    Hash(CredentialHash),
}

impl GivenCredential {
    pub(crate) fn hash(&self) -> Hash32 {
        match self {
            Self::Secret(text) => hash32(text.as_bytes()),
            Self::Hash(hash) => hash.0,
        }
    }
}

impl From<String> for GivenCredential {
    fn from(text: String) -> Self {
        Self::Secret(text)
    }
}

// Secrets never reach a log, nor what a weak one can be guessed from.
impl fmt::Debug for GivenCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenCredential")
    }
}

/// The SHA-256 hash of a device's secret; as text, base64url without padding.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CredentialHash(pub(crate) Hash32);

impl fmt::Display for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl FromStr for CredentialHash {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let hash = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| bytes.try_into().ok());
        hash.map(Self).ok_or_else(|| NameError {
            what: "credential hash",
            rule: "must be a SHA-256 hash in base64url without padding, 43 characters",
            value: "a secret's".to_owned(),
        })
    }
}

impl fmt::Debug for CredentialHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialHash")
    }
}

/// Devices in order, as [`Store::export`](crate::Store::export) finds them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportPage {
    /// Those that could be read.
    pub devices: Vec<Exported>,
    /// The ids of those that are there and cannot be read; `None` where nobody knows the id either. With one of them the
    /// export is not whole.
    pub damaged: Vec<Option<DeviceId>>,
    /// The device behind which there may be more.
    pub last: Option<DeviceId>,
}

/// A device with all that belongs to it, as it can be imported elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// What is kept of it.
    pub device: Device,
    /// The hash of its secret; none was issued to imported devices.
    pub credential: Option<CredentialHash>,
    /// What it is subscribed to, in order.
    pub subscriptions: Vec<(Subject, TopicName)>,
    /// What it does not want to be told, in order.
    pub mutes: Vec<Mute>,
    /// Its provider has accepted a push to its token.
    pub proven: bool,
}

impl From<Exported> for NewImport {
    /// All of it but what is of one store only: the revision, and since when the device is owed events.
    fn from(exported: Exported) -> Self {
        let Exported { device, credential, subscriptions, mutes, proven } = exported;
        let Device {
            id,
            user,
            app,
            platform,
            environment,
            token,
            locale,
            country,
            time_zone,
            push_permission,
            token_at,
            since: _,
            revision: _,
            seen_at,
        } = device;
        let device =
            NewDevice { id, user, app, platform, environment, token, locale, country, time_zone, push_permission };
        let (seen_at, token_at) = (Some(seen_at), Some(token_at));
        let credential = credential.map(GivenCredential::Hash);
        Self { device, subscriptions, mutes, credential, proven, seen_at, token_at }
    }
}

/// Which part of a longer import this is. Line counts are the caller's: whatever he counts, they only grow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportStep {
    /// The import's name.
    pub name: ImportName,
    /// Lines that were done before this step; refused when the store knows another number. 0 begins.
    pub lines_before: u64,
    /// Lines that are done with it.
    pub lines_after: u64,
}

impl std::ops::AddAssign for Imported {
    fn add_assign(&mut self, other: Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.subscribed += other.subscribed;
    }
}

/// How far an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportProgress {
    /// Lines done, as the last step said.
    pub lines: u64,
    /// What they did, all steps together.
    pub imported: Imported,
    /// When the last step was done.
    pub at: Timestamp,
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
    /// A new one, and the hash that is stored of it.
    pub(crate) fn generate() -> (Self, Hash32) {
        let credential = Self(URL_SAFE_NO_PAD.encode(random::<32>()));
        let hash = hash32(credential.as_str().as_bytes());
        (credential, hash)
    }

    /// Whether `text` is the credential with this hash; takes the same time for every wrong one.
    pub(crate) fn matches(text: &str, hash: &Hash32) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&hash32(text.as_bytes()), hash).is_ok()
    }

    /// The text to hand to the device.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

// Secrets never reach a log.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credential")
    }
}

/// What sending needs of a device, where it is: nothing is copied.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// Its number.
    pub number: DeviceNumber,
    /// The application's name for it: the text of a [`DeviceId`].
    pub id: &'a str,
    /// Its address; `None` when the provider said that it is gone, or it never had one.
    pub token: Option<TokenRef<'a>>,
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
    /// Whether it shows what is pushed to it.
    pub push_permission: PushPermission,
    /// It is owed no event before this position.
    pub since: JournalPosition,
}

impl<'a> Recipient<'a> {
    pub(crate) fn of(number: DeviceNumber, device: &'a Device, proven: bool) -> Self {
        let Device { id, app, platform, environment, token, locale, country, push_permission, since, .. } = device;
        Self {
            number,
            id: id.as_str(),
            token: token.as_ref().map(TokenRef::from),
            proven,
            app,
            platform: *platform,
            environment: *environment,
            locale,
            country: country.as_ref(),
            push_permission: *push_permission,
            since: *since,
        }
    }
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Imported {
    /// Devices that were not known before.
    pub created: u64,
    /// Devices that were.
    pub updated: u64,
    /// Subscriptions that were not there before.
    pub subscribed: u64,
}
