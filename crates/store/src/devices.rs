//! Devices as callers hand them in, get them back and send to them.
//!
//! Durable forms are elsewhere (`rows`); these are what goes over the counter. [`Recipient`] borrows from the device
//! table: it lives for one call of [`Store::with_recipients`](crate::Store::with_recipients).

use crate::devices::credential::{Credential, CredentialHash};
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, JournalPosition, Locale, Mute, Platform,
    PushPermission, Subject, TimeZone, Timestamp, TokenRef, TopicName, UserId,
};

mod audience;
pub(crate) mod credential;
mod expire;
mod export;
mod find;
mod numbers;
mod proven;
mod read;
pub(crate) mod rows;
mod tend;
mod tokens;
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
