//! The devices of the flood: who they are follows from their number and the seed.
//!
//! Seven in eight are reached by APNs and one by FCM; most are proven. Those behind the audience are bystanders:
//! registered like the others, subscribed to nothing. And the events: who they are for, and what they replace.

use std::path::Path;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceNumber, DeviceToken, Locale, Platform, Subject, TopicName};

use crate::checkpoint::open_store;
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
/// One in so many is reached by FCM, is unproven; for so many there is a bystander.
pub(crate) const FCM_EVERY: u32 = 8;
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

    pub(crate) fn is_fcm(device: u32) -> bool {
        device % FCM_EVERY == FCM_EVERY - 1
    }

    pub(crate) fn locale(device: u32) -> &'static str {
        LOCALES[(device / FCM_EVERY) as usize % LOCALES.len()]
    }

    /// Text that only the provider of the device has to understand.
    pub(crate) fn token(self, device: u32) -> DeviceToken {
        let random: u64 = Xoshiro256PlusPlus::seed_from_u64(self.seed ^ u64::from(device)).random();
        let text = format!("{device:08x}{random:016x}");
        let token = if Self::is_fcm(device) { DeviceToken::fcm(&text) } else { DeviceToken::from_hex(&text) };
        token.expect("both may be hexadecimal digits")
    }

    fn import(self, device: u32, proven: bool) -> NewImport {
        let subscription = |event: u32| {
            let (subject, topic) = (Subject::new(&subject_of(event)), TopicName::new(TOPICS[0]));
            (subject.expect("it is one"), topic.expect("it is one"))
        };
        let owed = [FLOOD, NEWER].into_iter().filter(|event| self.is_owed(*event, device));
        let id = DeviceId::new(&device_id(device)).expect("ours are short");
        let platform = if Self::is_fcm(device) { Platform::Android } else { Platform::Ios };
        let locale = Locale::new(Self::locale(device)).expect("it is one");
        let new = NewDevice::new(id, AppId::new(APP).expect("it is one"), platform, locale);
        let new = NewDevice { token: Some(self.token(device)), ..new };
        NewImport { subscriptions: owed.map(subscription).collect(), proven, ..new.into() }
    }

    /// Writes them into a store that no server has open; their numbers there.
    pub(crate) async fn write(
        self,
        folder: &Path,
        devices: impl Iterator<Item = u32>,
        all_proven: bool,
    ) -> Vec<DeviceNumber> {
        let (store, mut devices, mut numbers) = (open_store(folder), devices.peekable(), Vec::new());
        while devices.peek().is_some() {
            let chunk: Vec<u32> = devices.by_ref().take(IMPORT_COUNT).collect();
            let is_proven = |device: u32| all_proven || !device.is_multiple_of(UNPROVEN_EVERY);
            let imports = chunk.iter().map(|device| self.import(*device, is_proven(*device))).collect();
            store.import_devices(imports, None, unix_now()).await.expect("the store takes them");
            let number = |device: &u32| store.device_number(&DeviceId::new(&device_id(*device)).expect("short"));
            numbers.extend(chunk.iter().map(|device| number(device).unwrap().expect("it was written")));
        }
        store.close().await;
        numbers
    }
}
