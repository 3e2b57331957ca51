//! Devices as callers register, read and send to them.
//!
//! The rows are in `rows`. [`Recipient`] borrows from the device table: it lives for one call of
//! [`Store::with_recipients`](crate::Store::with_recipients).

use crate::devices::credential::{Credential, CredentialHash};
use tidings_types::{
    AppId, Country, Device, DeviceId, DeviceNumber, DeviceToken, Environment, JournalPosition, Locale, Mute, Platform,
    PushPermission, Subject, TimeZone, Timestamp, TokenRef, TopicName, UserId,
};

mod audience;
pub(crate) mod credential;
pub(crate) mod expire;
pub(crate) mod export;
mod find;
mod numbers;
mod proven;
mod read;
pub(crate) mod rows;
mod tend;
mod tokens;
pub(crate) mod write;

/// Devices that one user may have. Audiences, lists, exports and erasures read all devices of a user. A user with more
/// devices is not a person; such devices should subscribe to a subject instead. Devices beyond this limit that a store had
/// before it knew the limit stay.
pub const USER_DEVICE_COUNT_MAX: u32 = 1000;

/// The registration of a device. A later one replaces an earlier one completely.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDevice {
    /// The application's name for the device.
    pub id: DeviceId,
    /// Its user.
    pub user: Option<UserId>,
    /// The application.
    pub app: AppId,
    /// The platform.
    pub platform: Platform,
    /// The provider's environment to which the token belongs.
    pub environment: Environment,
    /// Its push token; `None` removes a known one. A token belongs to one device: if another device has it, it loses it.
    pub token: Option<DeviceToken>,
    /// The language of its user.
    pub locale: Locale,
    /// Its country.
    pub country: Option<Country>,
    /// The time zone of its user.
    pub time_zone: Option<TimeZone>,
    /// Whether it shows notifications.
    pub push_permission: PushPermission,
}

impl NewDevice {
    /// A device without a user, a token and a country, in the production environment.
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

/// The terms of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PutTerms {
    /// Whether the provider has accepted a push to the token before, as a trusted caller says. `None`: the state of an
    /// unchanged token stays, and a new token is unproven.
    pub proven: Option<bool>,
    /// The precondition.
    pub precondition: Precondition,
}

/// A precondition for changing a device (RFC 9110, 13.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precondition {
    /// None.
    #[default]
    None,
    /// The device does not exist (`If-None-Match: *`).
    Absent,
    /// The device exists (`If-Match: *`).
    Present,
    /// The device has this revision.
    Revision(u64),
}

impl Precondition {
    /// Whether it holds for a device with this revision; `None`: the device does not exist.
    pub(crate) fn holds(self, revision: Option<u64>) -> bool {
        match self {
            Self::None => true,
            Self::Absent => revision.is_none(),
            Self::Present => revision.is_some(),
            Self::Revision(wanted) => revision == Some(wanted),
        }
    }
}

/// A page of devices, in order of their ids. It may have fewer than were asked for: with the device whose subscriptions and mutes
/// reach 4 MiB it ends.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportPage {
    /// The readable devices.
    pub devices: Vec<Exported>,
    /// The ids of unreadable devices; `None` if the id is unknown too. If there is one, the export is not complete.
    pub damaged: Vec<Option<DeviceId>>,
    /// The last device of this page, if there may be more behind it.
    pub last: Option<DeviceId>,
}

/// A device with all its data, for an import elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The device.
    pub device: Device,
    /// The hash of its secret. Imported devices may have none.
    pub credential: Option<CredentialHash>,
    /// Its subscriptions, in order.
    pub subscriptions: Vec<(Subject, TopicName)>,
    /// Its mutes, in order.
    pub mutes: Vec<Mute>,
    /// Its provider has accepted a push to its token.
    pub proven: bool,
}

/// A registered device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// The device.
    pub device: Device,
    /// It is new.
    pub created: bool,
    /// The secret of a new device. It is issued only once.
    pub credential: Option<Credential>,
}

/// The data of a device that sending needs, borrowed without a copy.
#[derive(Debug, Clone, Copy)]
pub struct Recipient<'a> {
    /// The device's number.
    pub number: DeviceNumber,
    /// The text of its [`DeviceId`].
    pub id: &'a str,
    /// Its push token; `None` when it never had one or the provider reported it as gone.
    pub token: Option<TokenRef<'a>>,
    /// Its provider has accepted a push to this token.
    pub proven: bool,
    /// The application.
    pub app: &'a AppId,
    /// The platform.
    pub platform: Platform,
    /// The provider's environment to which the token belongs.
    pub environment: Environment,
    /// The language of its user.
    pub locale: &'a Locale,
    /// Its country.
    pub country: Option<&'a Country>,
    /// The time zone of its user.
    pub time_zone: Option<&'a TimeZone>,
    /// Whether it shows notifications.
    pub push_permission: PushPermission,
    /// The device gets no event before this position.
    pub since: JournalPosition,
}

impl<'a> Recipient<'a> {
    pub(crate) fn of(number: DeviceNumber, device: &'a Device, proven: bool) -> Self {
        let Device {
            id, app, platform, environment, token, locale, country, time_zone, push_permission, since, ..
        } = device;
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
            time_zone: time_zone.as_ref(),
            push_permission: *push_permission,
            since: *since,
        }
    }
}

/// A provider's report that a token is no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GoneToken {
    /// The device of the push.
    pub number: DeviceNumber,
    /// The token of the push. If the device has another one by now, it keeps that.
    pub token: DeviceToken,
    /// Since when the token is invalid, if the provider says so. If the device registered it again later, it keeps it.
    pub gone_at: Option<Timestamp>,
}
