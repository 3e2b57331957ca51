//! What the measured server finds when it starts: devices, catalogues, the simulator's key, a configuration.

use std::fs;
use std::path::{Path, PathBuf};

use tidings_store::{NewDevice, NewImport};
use tidings_telemetry::unix_now;
use tidings_types::{AppId, DeviceId, DeviceToken, Environment, Locale, Platform, Subject, TopicName};

use super::simulator::Greeting;
use crate::command::CommandError;
use crate::command::bench::{failed_by, progress, store};
use crate::config::{Config, parse};

pub(super) const TOPIC: &str = "goal";
const APP: &str = "com.example.bench";
const IMPORT_COUNT: u32 = 10_000;

/// A language, and how a title in it begins: what the simulator looks for.
pub(super) struct Language {
    locale: &'static str,
    pub(super) title: &'static str,
    body: &'static str,
}

/// The first is the source language.
pub(super) const LANGUAGES: [Language; 4] = [
    Language { locale: "en", title: "Goal for ", body: "%{scorer} scores in minute %{minute}." },
    Language { locale: "de", title: "Tor für ", body: "%{scorer} trifft in Minute %{minute}." },
    Language { locale: "fr", title: "But pour ", body: "%{scorer} marque à la %{minute}e minute." },
    Language { locale: "pt-BR", title: "Gol para ", body: "%{scorer} marca aos %{minute} minutos." },
];

impl Language {
    /// The catalogue of a language, as `msgfmt` would take it.
    fn catalogue(&self) -> String {
        let source = &LANGUAGES[0];
        format!(
            "msgid \"\"\nmsgstr \"\"\n\"Language: {}\\n\"\n\"Content-Type: text/plain; charset=UTF-8\\n\"\n\
             \"Content-Transfer-Encoding: 8bit\\n\"\n\n\
             msgid \"{}%{{team}}!\"\nmsgstr \"{}%{{team}}!\"\n\nmsgid \"{}\"\nmsgstr \"{}\"\n",
            self.locale, source.title, self.title, source.body, self.body
        )
    }
}

/// The language of a device of ours, from its token; `None` for the tokens h2load uses.
pub(super) fn language_of(token: &DeviceToken) -> Option<&'static Language> {
    LANGUAGES.get(usize::from(*token.as_bytes().first()?))
}

/// The subject that the devices of one case are subscribed to.
pub(super) fn subject(case: usize) -> String {
    format!("case:{case}")
}

/// A temporary folder, removed when dropped.
pub(super) struct Folder(tempfile::TempDir);

impl Folder {
    pub(super) fn make(parent: Option<&Path>, greeting: &Greeting) -> Result<Self, CommandError> {
        let folder = match parent {
            Some(parent) => tempfile::tempdir_in(parent),
            None => tempfile::tempdir(),
        };
        let folder = Self(folder.map_err(|error| failed_by("cannot make a temporary folder", &error))?);
        fs::write(folder.path("ca.pem"), &greeting.ca_pem)?;
        fs::write(folder.path("key.p8"), &greeting.key_pem)?;
        for language in &LANGUAGES[1..] {
            let messages = folder.path("locales").join(language.locale.replace('-', "_")).join("LC_MESSAGES");
            fs::create_dir_all(&messages)?;
            fs::write(messages.join("messages.po"), language.catalogue())?;
        }
        Ok(folder)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The server's configuration: its defaults, with the simulator as the provider.
    pub(super) fn config(&self, greeting: &Greeting, connections: u32, streams: u32) -> Result<Config, CommandError> {
        let quoted = |name: &str| toml::Value::String(self.path(name).display().to_string()).to_string();
        let source = &LANGUAGES[0];
        let text = format!(
            "data_dir = {}\n\
             [http]\nlisten = \"127.0.0.1:0\"\n\
             [topics.{TOPIC}]\ntitle = \"{}%{{team}}!\"\nbody = \"{}\"\n\
             [translations]\ndir = {}\n\
             [apns.bench]\nhost = \"127.0.0.1\"\nport = {}\nkey_id = \"{}\"\nteam_id = \"{}\"\nkey_file = {}\n\
             ca_file = {}\napps = [\"{APP}\"]\nconnection_count = {connections}\nlake_capacity = {}\n",
            quoted("data"),
            source.title,
            source.body,
            quoted("locales"),
            greeting.port,
            greeting.key_id,
            greeting.team_id,
            quoted("key.p8"),
            quoted("ca.pem"),
            2 * connections * streams,
        );
        Ok(parse("bench", &text, [])?.config)
    }
}

/// Registers the devices; the first so many of them are subscribed to each case's subject.
pub(super) async fn import(folder: &Folder, device_count: u32, case_counts: &[u32]) -> Result<(), CommandError> {
    let store = store::open(&folder.path("data").join("store")).await?;
    let topic = TopicName::new(TOPIC).expect("a legal topic");
    let subject = |case| Subject::new(&subject(case)).expect("a legal subject");
    let subjects: Vec<(Subject, u32)> =
        case_counts.iter().enumerate().map(|(case, &count)| (subject(case), count)).collect();
    for start in (0..device_count).step_by(IMPORT_COUNT as usize) {
        if start % 200_000 == 0 {
            progress(format!("import: {start} of {device_count} devices"));
        }
        let subscribed = |device| subjects.iter().filter(move |&&(_, count)| device < count);
        let devices = (start..device_count.min(start + IMPORT_COUNT)).map(|number| {
            let subscriptions = subscribed(number).map(|(subject, _)| (subject.clone(), topic.clone()));
            NewImport { device: device(number), subscriptions: subscriptions.collect(), credential: None }
        });
        let imported = store.import_devices(devices.collect(), unix_now()).await;
        imported.map_err(|error| failed_by("cannot import", &error))?;
    }
    store.close().await;
    Ok(())
}

fn device(number: u32) -> NewDevice {
    let language = number as usize % LANGUAGES.len();
    NewDevice {
        id: DeviceId::new(&format!("phone-{number}")).expect("a legal id"),
        user: None,
        app: AppId::new(APP).expect("a legal app"),
        platform: Platform::Ios,
        environment: Environment::Production,
        token: Some(token(language as u8, number)),
        locale: Locale::new(LANGUAGES[language].locale).expect("a legal locale"),
        country: None,
    }
}

/// As long as APNs has them: the language, the number, and bytes that fill up.
pub(super) fn token(language: u8, number: u32) -> DeviceToken {
    let mut bytes: [u8; 32] = std::array::from_fn(|place| (number >> (place % 4 * 8)) as u8 ^ (37 * place) as u8);
    bytes[0] = language;
    bytes[1..5].copy_from_slice(&number.to_be_bytes());
    DeviceToken::from(&bytes[..])
}

#[cfg(test)]
mod tests {
    use tidings_simulator::{ApnsSimulator, SimulatorConfig};

    use super::*;

    #[test]
    fn the_server_takes_configuration_and_catalogues() {
        // Every catalogue must translate the source text and keep its placeholders.
        for language in &LANGUAGES[1..] {
            let catalogue = tidings_gettext::Catalogue::parse(language.catalogue().as_bytes());
            assert!(catalogue.is_ok(), "{:?}", catalogue.err());
        }
        let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
        let greeting = Greeting::of(&simulator);
        let folder = Folder::make(None, &greeting).unwrap();
        let config = folder.config(&greeting, 10, 100).unwrap();
        let apns = &config.apns["bench"];
        assert_eq!((apns.lake_capacity, apns.connection_count), (2000, 10));
        assert_eq!(config.topics.len(), 1);
    }

    #[test]
    fn a_token_tells_its_language() {
        let title = |token: &DeviceToken| language_of(token).map(|language| language.title);
        assert_eq!(title(&token(1, 500)), Some("Tor für "));
        assert_eq!(title(&token(0xff, 500)), None);
        assert_ne!(token(0, 1), token(0, 2));
    }
}
