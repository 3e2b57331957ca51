//! The devices of the flood: who they are follows from their number and the seed.
//!
//! Seven in eight are reached by APNs and one by FCM; most are proven. Those behind the audience are bystanders:
//! registered like the others, subscribed to nothing.

use std::path::Path;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt as _, SeedableRng as _};
use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceNumber, DeviceToken, Environment, Locale, Platform, Subject, TopicName};

use crate::checkpoint::open_store;
use crate::{APP, LEAGUE, TOPICS, device_id, subject};

const LOCALES: [&str; 4] = ["en", "de", "pl", "sv-SE"];
/// Each has a text of its own in the event; the others get the one for all others.
pub(crate) const TRANSLATED: [&str; 2] = ["de", "pl"];
/// One in so many is reached by FCM, is unproven; for so many there is a bystander.
const FCM_EVERY: u32 = 8;
const UNPROVEN_EVERY: u32 = 20;
const BYSTANDER_EVERY: u32 = 50;
/// Devices written at once.
const IMPORT_COUNT: usize = 10_000;

/// Whom the event is for, and who else is there.
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
        let (subject, topic) = (Subject::new(&subject(LEAGUE)), TopicName::new(TOPICS[0]));
        let subscription = (subject.expect("it is one"), topic.expect("it is one"));
        let is_owed = device < self.audience;
        NewImport {
            device: NewDevice {
                id: DeviceId::new(&device_id(device)).expect("ours are short"),
                user: None,
                app: AppId::new(APP).expect("it is one"),
                platform: if Self::is_fcm(device) { Platform::Android } else { Platform::Ios },
                environment: Environment::Production,
                token: Some(self.token(device)),
                locale: Locale::new(Self::locale(device)).expect("it is one"),
                country: None,
            },
            subscriptions: is_owed.then_some(subscription).into_iter().collect(),
            credential: None,
            proven,
        }
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
            store.import_devices(imports, unix_now()).await.expect("the store takes them");
            let number = |device: &u32| store.device_number(&DeviceId::new(&device_id(*device)).expect("short"));
            numbers.extend(chunk.iter().map(|device| number(device).unwrap().expect("it was written")));
        }
        store.close().await;
        numbers
    }
}
