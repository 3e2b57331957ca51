//! What the measured server needs at its start: devices, catalogues, the simulator's key, a configuration.

use std::fs;
use std::path::{Path, PathBuf};

use tidings_server::command_error::{CommandError, failed_by};
use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceToken, Locale, Platform, Subject, TopicName};

use super::case::Case;
use super::language::LANGUAGES;
use super::simulator::Greeting;
use crate::folder::temporary;
use crate::report::progress;
use crate::store;
use tidings_config::{parse, toml_text};
use tidings_server::Server;

pub(super) const TOPIC: &str = "goal";
pub(super) const APP: &str = "com.example.bench";
const IMPORT_COUNT: u32 = 10_000;

/// The subject that the first `audience` devices are subscribed to.
pub(super) fn subject(audience: u32) -> String {
    format!("first:{audience}")
}

/// A temporary folder, removed when dropped.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn make(parent: Option<&Path>) -> Result<Self, CommandError> {
        let folder = Self(temporary(parent)?);
        for language in &LANGUAGES[1..] {
            let messages = folder.path("locales").join(language.locale.replace('-', "_")).join("LC_MESSAGES");
            fs::create_dir_all(&messages)?;
            fs::write(messages.join("messages.po"), language.catalogue())?;
        }
        Ok(folder)
    }

    /// Writes the provider's certificate and our key, instead of earlier ones.
    pub(super) fn trust(&self, greeting: &Greeting) -> Result<(), CommandError> {
        fs::write(self.path("ca.pem"), &greeting.ca_pem)?;
        Ok(fs::write(self.path("key.p8"), &greeting.key_pem)?)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The server's configuration file: the defaults, with the provider of a case. There is no quarantine, because devices
    /// are imported as proven. The number of connections is fixed to the case's.
    pub(super) fn config_text(&self, greeting: &Greeting, case: Case) -> String {
        let connections = case.connections;
        format!(
            "{}[apns.bench]\nhost = \"127.0.0.1\"\nport = {}\nkey_id = \"{}\"\nteam_id = \"{}\"\nkey_file = {}\n\
             ca_file = {}\napps = [\"{APP}\"]\nconnection_count = {connections}\n\
             connection_count_max = {connections}\nquarantine_connection_count = 0\nlake_capacity = {}\n",
            self.common_text(),
            greeting.port,
            greeting.key_id,
            greeting.team_id,
            self.quoted("key.p8"),
            self.quoted("ca.pem"),
            2 * case.stream_count(),
        )
    }

    /// The configuration without the provider.
    pub(super) fn common_text(&self) -> String {
        let source = &LANGUAGES[0];
        format!(
            "data_dir = {}\n\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [client]\nallow_anonymous = true\nconnection_count_max = 100\n[log]\nfilter = \"warn\"\n\
             [topics.{TOPIC}]\ntitle = \"{}%{{team}}!\"\nbody = \"{}\"\n\
             [translations]\ndir = {}\n",
            self.quoted("data"),
            source.title,
            source.body,
            self.quoted("locales"),
        )
    }

    /// The path of a file in the folder, as TOML spells it.
    pub(super) fn quoted(&self, name: &str) -> String {
        toml_text(self.path(name).display())
    }
}

/// Registers as many devices as the largest audience has. For each audience, its first devices are subscribed to its
/// subject.
pub(super) async fn import(folder: &Folder, audiences: &[u32], platform: Platform) -> Result<(), CommandError> {
    import_as(folder, audiences, |number| device(platform, number)).await
}

/// As [`import`]; `device` makes the device with a number.
pub(super) async fn import_as(
    folder: &Folder,
    audiences: &[u32],
    device: impl Fn(u32) -> NewDevice,
) -> Result<(), CommandError> {
    let store = store::open(&folder.path("data").join("store")).await?;
    let topic = TopicName::new(TOPIC).expect("a legal topic");
    let device_count = audiences.iter().copied().max().unwrap_or(0);
    let named = |&audience: &u32| (Subject::new(&subject(audience)).expect("a legal subject"), audience);
    let subjects: Vec<(Subject, u32)> = audiences.iter().map(named).collect();
    for start in (0..device_count).step_by(IMPORT_COUNT as usize) {
        if start % 200_000 == 0 {
            progress(format!("import: {start} of {device_count} devices"));
        }
        let subscribed = |device| subjects.iter().filter(move |&&(_, count)| device < count);
        let devices = (start..device_count.min(start + IMPORT_COUNT)).map(|number| {
            let subscriptions = subscribed(number).map(|(subject, _)| (subject.clone(), topic.clone()));
            NewImport { subscriptions: subscriptions.collect(), proven: true, ..device(number).into() }
        });
        let imported = store.import_devices(devices.collect(), None, unix_now()).await;
        imported.map_err(|error| failed_by("cannot import", &error))?;
    }
    store.close().await;
    Ok(())
}

fn device(platform: Platform, number: u32) -> NewDevice {
    let language = number as usize % LANGUAGES.len();
    let token = match platform {
        Platform::Android => DeviceToken::fcm(&format!("bench-{number}")).expect("a legal token"),
        _ => token(language as u8, number),
    };
    device_with(platform, number, token)
}

/// The device with this number and token.
pub(super) fn device_with(platform: Platform, number: u32, token: DeviceToken) -> NewDevice {
    let language = number as usize % LANGUAGES.len();
    let id = DeviceId::new(&format!("phone-{number}")).expect("a legal id");
    let locale = Locale::new(LANGUAGES[language].locale).expect("a legal locale");
    let new = NewDevice::new(id, AppId::new(APP).expect("a legal app"), platform, locale);
    NewDevice { token: Some(token), ..new }
}

/// A token of APNs' length: the language, the number, and padding.
pub(super) fn token(language: u8, number: u32) -> DeviceToken {
    let mut bytes: [u8; 32] = std::array::from_fn(|place| (number >> (place % 4 * 8)) as u8 ^ (37 * place) as u8);
    bytes[0] = language;
    bytes[1..5].copy_from_slice(&number.to_be_bytes());
    DeviceToken::from(&bytes[..])
}

/// Starts a server for a case, in this process.
pub(super) async fn start_server(folder: &Folder, greeting: &Greeting, case: Case) -> Result<Server, CommandError> {
    folder.trust(greeting)?;
    start_configured(&folder.config_text(greeting, case)).await
}

/// Starts a server with this configuration, in this process.
pub(super) async fn start_configured(text: &str) -> Result<Server, CommandError> {
    let config = parse("bench", text, [])?.config;
    Server::start(config).await.map_err(|error| failed_by("cannot start the server", &error))
}

#[cfg(test)]
mod tests {
    use tidings_simulator::{ApnsSimulator, SimulatorConfig};

    use super::super::case::NEAR;
    use super::super::language::language_of;
    use super::*;

    #[test]
    fn the_payload_of_other_senders_has_the_same_text() {
        let message = LANGUAGES[1].message();
        let payload: serde_json::Value = serde_json::from_str(&message.payload).unwrap();
        assert_eq!(payload["aps"]["alert"]["title"], "Tor für \u{2068}Sverige\u{2069}!");
        assert_eq!(payload["aps"]["alert"]["body"], "\u{2068}Karl\u{2069} trifft in Minute 90.");
    }

    #[test]
    fn the_server_accepts_configuration_and_catalogues() {
        // Every catalogue must translate the source text and keep its placeholders.
        for language in &LANGUAGES[1..] {
            let catalogue = tidings_gettext::Catalogue::parse(language.catalogue().as_bytes());
            assert!(catalogue.is_ok(), "{:?}", catalogue.err());
        }
        let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
        let greeting = Greeting::of(&simulator);
        let folder = Folder::make(None).unwrap();
        folder.trust(&greeting).unwrap();
        let config = parse("bench", &folder.config_text(&greeting, NEAR), []).unwrap().config;
        let apns = &config.apns["bench"];
        assert_eq!((apns.lake_capacity, apns.connection_count, apns.connection_count_max), (4000, 2, 2));
        assert_eq!(config.topics.len(), 1);
    }

    #[test]
    fn a_token_contains_its_language() {
        let title = |token: &DeviceToken| language_of(token).map(|language| language.title);
        assert_eq!(title(&token(1, 500)), Some("Tor für "));
        assert_eq!(title(&token(0xff, 500)), None);
        assert_ne!(token(0, 1), token(0, 2));
    }
}
