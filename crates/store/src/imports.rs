//! Bulk import of devices, and the progress of long imports.
//!
//! Bounds: 1000 devices in one batch; the progress of 1000 imports is kept.

use serde::{Deserialize, Serialize};
use tidings_types::{Device, ImportName, Mute, Subject, Timestamp, TopicName};

use crate::devices::credential::GivenCredential;
use crate::devices::{Exported, NewDevice};

mod write;

/// A device to be imported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewImport {
    /// The device itself.
    pub device: NewDevice,
    /// New subscriptions, in addition to existing ones.
    pub subscriptions: Vec<(Subject, TopicName)>,
    /// New mutes, in addition to existing ones. A mute replaces an existing one of the same scope.
    pub mutes: Vec<Mute>,
    /// Its new secret. `None` keeps the existing one.
    pub credential: Option<GivenCredential>,
    /// Its provider has already accepted a push to this token. False keeps the known state.
    pub proven: bool,
    /// When it was last seen. An earlier day than the known one changes nothing. `None`: a new device counts as seen now.
    pub seen_at: Option<Timestamp>,
    /// When it registered its token. A provider's report that the token is gone counts only if it is gone since a later
    /// time. An earlier time than the known one of the same token changes nothing. `None`: such a report always counts.
    pub token_at: Option<Timestamp>,
}

impl From<NewDevice> for NewImport {
    /// An import of only the device.
    fn from(device: NewDevice) -> Self {
        let (subscriptions, mutes) = (Vec::new(), Vec::new());
        Self { device, subscriptions, mutes, credential: None, proven: false, seen_at: None, token_at: None }
    }
}

impl From<Exported> for NewImport {
    /// Everything except the two values that belong to one store: the revision, and the position since which the device
    /// gets events.
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

/// A step of a longer import. The caller counts the lines; the count must grow with each step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportStep {
    /// The import's name.
    pub name: ImportName,
    /// Lines done before this step. The step is refused when the store knows another number. 0 begins an import.
    pub lines_before: u64,
    /// Lines done after this step.
    pub lines_after: u64,
}

impl std::ops::AddAssign for Imported {
    fn add_assign(&mut self, other: Self) {
        self.created += other.created;
        self.updated += other.updated;
        self.subscribed += other.subscribed;
    }
}

/// The progress of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ImportProgress {
    /// Lines done after the last step.
    pub lines: u64,
    /// The result of all steps together.
    pub imported: Imported,
    /// When the last step was done.
    pub at: Timestamp,
}

/// The result of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Imported {
    /// New devices.
    pub created: u64,
    /// Devices that were known before.
    pub updated: u64,
    /// New subscriptions.
    pub subscribed: u64,
}
