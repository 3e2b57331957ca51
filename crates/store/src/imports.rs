//! Devices that come in many at a time, as callers hand them in, and how far a long import is.
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

/// Which part of an import's step a chunk is.
#[derive(Debug, Clone)]
pub(crate) struct StepPart {
    pub(crate) step: ImportStep,
    /// What the earlier chunks of the step did, when this is the last one: with it the step is done.
    pub(crate) done_before: Option<Imported>,
}
