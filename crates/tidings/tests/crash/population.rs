//! The devices of the flood: who they are follows from their number and the seed.
//!
//! Each is reached as `simulators.rs` says; most are proven. Those behind the audience are bystanders: registered like
//! the others, subscribed to nothing. And the events: who they are for, and what they replace.

use std::path::Path;

use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceNumber, Locale, Subject, TopicName};

use crate::checkpoint::open_store;
use crate::simulators::{Addresses, SHARE, platform_of};
use crate::{APP, CHANNEL_COUNT, LEAGUE, TOPICS, device_id, event_id, subject};

/// The event for all, by its number.
pub(crate) const FLOOD: u32 = 0;
/// For three in five of them, with the same collapse key, posted while that goes out.
pub(crate) const NEWER: u32 = 1;
/// For all, without a key, and soon cancelled.
pub(crate) const CALLED_OFF: u32 = 2;
pub(crate) const EVENT_COUNT: usize = 3;
pub(crate) const COLLAPSE_KEY: &str = "score";

const LOCALES: [&str; 4] = ["en", "de", "pl", "sv-SE"];
/// Each has a text of its own in the event; the others get the one for all others.
pub(crate) const TRANSLATED: [&str; 2] = ["de", "pl"];
/// One in so many is unproven; for so many there is a bystander.
const UNPROVEN_EVERY: u32 = 20;
const BYSTANDER_EVERY: u32 = 50;
/// Devices written at once.
const IMPORT_COUNT: usize = 10_000;

/// What an event is about; all have the same topic.
pub(crate) fn subject_of(event: u32) -> String {
    subject(if event == NEWER { CHANNEL_COUNT } else { LEAGUE })
}

/// What the provider is told that its notifications replace.
pub(crate) fn collapse_id(event: u32) -> String {
    if [FLOOD, NEWER].contains(&event) { COLLAPSE_KEY.to_owned() } else { event_id(event) }
}

/// Whom the events are for, and who else is there.
#[derive(Clone, Copy)]
pub(crate) struct Population {
    pub(crate) audience: u32,
    pub(crate) seed: u64,
}

impl Population {
    pub(crate) fn bystander_count(self) -> u32 {
        self.audience.div_ceil(BYSTANDER_EVERY)
    }

    pub(crate) fn all(self) -> std::ops::Range<u32> {
        0..self.audience + self.bystander_count()
    }

    /// Whom one of our events is for.
    pub(crate) fn is_owed(self, event: u32, device: u32) -> bool {
        device < self.audience && (event != NEWER || device % 5 < 3)
    }

    /// How many that are.
    pub(crate) fn audience_of(self, event: u32) -> u64 {
        (0..self.audience).filter(|device| self.is_owed(event, *device)).count() as u64
    }

    pub(crate) fn locale(device: u32) -> &'static str {
        LOCALES[(device / SHARE) as usize % LOCALES.len()]
    }

    fn import(self, device: u32, addresses: &Addresses, proven: bool) -> NewImport {
        let subscription = |event: u32| {
            let (subject, topic) = (Subject::new(&subject_of(event)), TopicName::new(TOPICS[0]));
            (subject.expect("it is one"), topic.expect("it is one"))
        };
        let owed = [FLOOD, NEWER].into_iter().filter(|event| self.is_owed(*event, device));
        let id = DeviceId::new(&device_id(device)).expect("ours are short");
        let locale = Locale::new(Self::locale(device)).expect("it is one");
        let new = NewDevice::new(id, AppId::new(APP).expect("it is one"), platform_of(device), locale);
        let new = NewDevice { token: Some(addresses.token(device).clone()), ..new };
        NewImport { subscriptions: owed.map(subscription).collect(), proven, ..new.into() }
    }

    /// Writes them into a store that no server has open; their numbers there.
    pub(crate) async fn write(
        self,
        folder: &Path,
        addresses: &Addresses,
        devices: impl Iterator<Item = u32>,
        all_proven: bool,
    ) -> Vec<DeviceNumber> {
        let (store, mut devices, mut numbers) = (open_store(folder), devices.peekable(), Vec::new());
        while devices.peek().is_some() {
            let chunk: Vec<u32> = devices.by_ref().take(IMPORT_COUNT).collect();
            let is_proven = |device: u32| all_proven || !(device / SHARE).is_multiple_of(UNPROVEN_EVERY);
            let imports = chunk.iter().map(|device| self.import(*device, addresses, is_proven(*device))).collect();
            store.import_devices(imports, None, unix_now()).await.expect("the store takes them");
            let number = |device: &u32| store.device_number(&DeviceId::new(&device_id(*device)).expect("short"));
            numbers.extend(chunk.iter().map(|device| number(device).unwrap().expect("it was written")));
        }
        store.close().await;
        numbers
    }
}
