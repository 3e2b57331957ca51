//! What the demo runs on: a temporary folder, simulated providers, and the real server with its own configuration.
//!
//! Topics and catalogues are in the binary, so the demo runs from any folder. The configuration is text and is read as any
//! other. Environment variables do not change it.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use tidings_config::{Config, toml_text};
use tidings_server::command_error::CommandError;
use tidings_server::raise_file_limit;
use tidings_simulator::{
    AcceptedMessage, AcceptedNotification, ApnsSimulator, FcmConfig, FcmSimulator, Ledger, MessageEntry, Refusal,
    SimulatorConfig, StartError, WebPushConfig, WebPushSimulator,
};
use tidings_telemetry::chain;
use tidings_types::{DeviceToken, Platform};

use super::cores::core_count;
use super::population::{APP, Population, platform_of};
use super::pushes::{Ledgers, Pushes};

/// The topics, as configuration.
pub(super) const TOPICS: &str = include_str!("../topics.toml");

/// Catalogues by name of their folder. English is the source language.
const CATALOGUES: [(&str, &str); 7] = [
    ("ar", include_str!("../locales/ar/LC_MESSAGES/match.po")),
    ("de", include_str!("../locales/de/LC_MESSAGES/match.po")),
    ("es", include_str!("../locales/es/LC_MESSAGES/match.po")),
    ("fr", include_str!("../locales/fr/LC_MESSAGES/match.po")),
    ("ja", include_str!("../locales/ja/LC_MESSAGES/match.po")),
    ("pl", include_str!("../locales/pl/LC_MESSAGES/match.po")),
    ("pt_BR", include_str!("../locales/pt_BR/LC_MESSAGES/match.po")),
];

/// The port if it is free: the one where the commands expect a server.
const USUAL_PORT: u16 = 8000;

/// FCM's quota per minute: twenty times Google's default, so that the demo measures the server. The report says so.
pub(super) const FCM_QUOTA: u64 = 12_000_000;

/// Open files besides two per client: server, store, connections to the simulators.
const OTHER_FILE_COUNT: u64 = 512;

/// A temporary folder with everything that the server reads. It is removed when dropped.
pub(super) struct Folder(TempDir);

impl Folder {
    /// Makes the folder and writes the catalogues.
    pub(super) fn unpack() -> Result<Self, CommandError> {
        let made = tempfile::Builder::new().prefix("tidings-demo-").tempdir();
        let failed = |source| CommandError::File { action: "write", path: std::env::temp_dir(), source };
        let folder = Self(made.map_err(failed)?);
        for (locale, catalogue) in CATALOGUES {
            let dir = folder.locales().join(locale).join("LC_MESSAGES");
            let made = DirBuilder::new().recursive(true).create(&dir);
            made.map_err(|source| CommandError::File { action: "write", path: dir.clone(), source })?;
            write(dir.join("match.po"), catalogue)?;
        }
        Ok(folder)
    }

    fn locales(&self) -> PathBuf {
        self.0.path().join("locales")
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The certificate of the simulated FCM.
    pub(super) fn fcm_ca(&self) -> PathBuf {
        self.file("fcm-ca.pem")
    }

    /// The file with the server's API key.
    pub(super) fn api_key(&self) -> PathBuf {
        self.data().join("api-key")
    }
}

fn write(path: PathBuf, text: &str) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| CommandError::File { action: "write", path, source })
}

/// The simulated providers.
pub(super) struct Providers {
    apns: ApnsSimulator,
    pub(super) fcm: FcmSimulator,
    web_push: WebPushSimulator,
    population: Arc<Population>,
}

impl Providers {
    /// Starts the simulators and gives the browsers their addresses. The ledgers hold twice the expected notifications.
    pub(super) fn start(population: &Arc<Population>, pushes: &Arc<Pushes>) -> Result<Self, CommandError> {
        let failed = |error: StartError| CommandError::Failed(chain(&error));
        let device_count_max = 2 * population.count() as usize + 1024;
        let notification_count_max = 2 * usize::try_from(pushes.owed_total()).unwrap_or(usize::MAX / 4) + 65_536;
        let thread_count = (core_count() / 2).clamp(2, 4); // Each. The first thread does most of the work.
        let config = SimulatorConfig {
            topics: vec![APP.to_owned()],
            thread_count,
            device_count_max,
            notification_count_max,
            ..SimulatorConfig::default()
        };
        let (seen, phones) = (pushes.clone(), population.clone());
        let on_accepted = move |accepted: AcceptedNotification<'_>| {
            seen.on_accepted(phones.iphone(accepted.token.as_bytes()), accepted.payload);
        };
        let apns = ApnsSimulator::start_observed(config, Arc::new(on_accepted)).map_err(failed)?;
        let observe = |phone: fn(&Population, &str) -> Option<u32>| {
            let (seen, phones) = (pushes.clone(), population.clone());
            Arc::new(move |accepted: AcceptedMessage<'_>| {
                seen.on_accepted(phone(&phones, accepted.address), accepted.content);
            })
        };
        let config = FcmConfig { thread_count, device_count_max, notification_count_max, ..FcmConfig::default() };
        let fcm = FcmSimulator::start_observed(config, observe(Population::android)).map_err(failed)?;
        let config =
            WebPushConfig { thread_count, device_count_max, notification_count_max, ..WebPushConfig::default() };
        let web_push = WebPushSimulator::start_observed(config, observe(Population::browser)).map_err(failed)?;
        population.subscribe(|| subscribe(&web_push));
        Ok(Self { apns, fcm, web_push, population: population.clone() })
    }

    pub(super) fn stop(&self) {
        self.apns.stop();
        self.fcm.stop();
        self.web_push.stop();
    }
}

fn subscribe(web_push: &WebPushSimulator) -> DeviceToken {
    let subscription = web_push.subscribe(Some(&web_push.application_server_key()));
    let subscription = subscription.expect("the simulator's own key is valid");
    let keys = &subscription.keys;
    DeviceToken::web_push(&subscription.endpoint, &keys.p256dh, &keys.auth)
        .expect("the simulator's subscriptions are valid")
}

impl Ledgers for Providers {
    fn entries(&self, number: u32) -> Vec<MessageEntry> {
        let Some(token) = self.population.token(number) else { return Vec::new() };
        match platform_of(number) {
            Platform::Ios => self.apns.ledger().for_address(token.as_bytes()),
            Platform::Android => self.fcm.ledger().for_address(token.as_bytes()),
            Platform::Web => self.web_push.ledger().for_address(token.as_bytes()),
        }
    }

    fn count(&self) -> u64 {
        fn of<R: Refusal>(ledger: &Ledger<R>) -> u64 {
            let summary = ledger.summary();
            summary.notifications + summary.unrecorded
        }
        of(self.apns.ledger()) + of(self.fcm.ledger()) + of(self.web_push.ledger())
    }
}

/// The configuration of the server: its defaults, the match, and the simulators instead of the providers.
pub(super) fn config(
    folder: &Folder,
    providers: &Providers,
    listen: SocketAddr,
    client_count: u32,
) -> Result<Config, CommandError> {
    let text = config_text(folder, listen, client_count) + &providers_text(folder, providers)?;
    Ok(tidings_config::parse("the demo's configuration", &text, [])?.config)
}

fn config_text(folder: &Folder, listen: SocketAddr, client_count: u32) -> String {
    let namespace = "durable = true\n\
                     history_size = 100\n\
                     history_ttl = \"24h\"\n\
                     force_recovery = true\n\
                     allow_subscribe_for_client = true\n\
                     allow_subscribe_for_anonymous = true\n\
                     allow_history_for_subscriber = true\n";
    format!(
        "data_dir = {data}\n\
         [http]\nlisten = \"{listen}\"\n\
         [console]\nenabled = true\n\
         [client]\nallow_anonymous = true\nconnection_count_max = {connections}\nshutdown_timeout = \"2s\"\n\
         [channel.namespaces.match]\n{namespace}\
         [channel.namespaces.team]\n{namespace}\
         [translations]\ndir = {locales}\n\
         [log]\nfilter = \"warn\"\n\
         {TOPICS}",
        data = toml_text(folder.data().display()),
        connections = client_count + 100, // Room for `tidings subscribe`.
        locales = toml_text(folder.locales().display()),
    )
}

/// Writes the providers' credentials, and returns their sections of the configuration.
fn providers_text(folder: &Folder, providers: &Providers) -> Result<String, CommandError> {
    let Providers { apns, fcm, web_push, .. } = providers;
    let written = |name: &str, text: &str| {
        write(folder.file(name), text)?;
        Ok::<_, CommandError>(toml_text(folder.file(name).display()))
    };
    write(folder.fcm_ca(), fcm.ca_pem())?;
    Ok(format!(
        "\n[apns.demo]\nhost = \"localhost\"\nport = {apns_port}\nkey_id = {key_id}\nteam_id = {team_id}\n\
         key_file = {key}\nca_file = {apns_ca}\napps = [{app}]\n\
         [fcm.demo]\nhost = \"localhost\"\nport = {fcm_port}\nquota_per_minute = {FCM_QUOTA}\n\
         service_account_file = {account}\nca_file = {fcm_ca}\napps = [{app}]\n\
         [web_push.demo]\nvapid_key_file = {vapid_key}\ncontact = \"mailto:nobody@localhost\"\n\
         allowed_hosts = [\"localhost\"]\nallowed_ports = [{web_push_port}]\nallow_private = true\n\
         ca_file = {web_push_ca}\napps = [{app}]\n",
        app = toml_text(APP),
        apns_port = apns.addr().port(),
        key_id = toml_text(apns.key_id()),
        team_id = toml_text(apns.team_id()),
        key = written("key.p8", apns.key_pem())?,
        apns_ca = written("apns-ca.pem", apns.ca_pem())?,
        fcm_port = fcm.addr().port(),
        account = written("service-account.json", &fcm.service_account_json())?,
        fcm_ca = toml_text(folder.fcm_ca().display()),
        web_push_port = web_push.addr().port(),
        vapid_key = written("vapid.key", &web_push.vapid_key())?,
        web_push_ca = written("web-push-ca.pem", web_push.ca_pem())?,
    ))
}

/// The address to listen at: any port with `--once`; else the usual port if it is free.
pub(super) fn listen_address(once: bool) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, USUAL_PORT));
    let is_free = !once && TcpListener::bind(usual).is_ok();
    if is_free { usual } else { (Ipv4Addr::LOCALHOST, 0).into() }
}

/// Raises the limit of open files. A client needs two, because server and clients are one process.
pub(super) fn allow_files(client_count: u32) -> Result<(), CommandError> {
    let needed = 2 * u64::from(client_count) + OTHER_FILE_COUNT;
    let allowed = raise_file_limit(needed);
    if allowed >= needed {
        return Ok(());
    }
    Err(CommandError::Usage(format!(
        "{client_count} clients need {needed} open files, the limit is {allowed}: take fewer --clients or raise it (ulimit \
         -n)"
    )))
}

/// The path of this program, for suggested commands.
pub(super) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_else(|| "tidings".into());
    Path::new(&path).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::clock::Clock;
    use super::super::timeline::moments;
    use super::*;

    #[test]
    fn the_configuration_is_valid() {
        let folder = Folder::unpack().unwrap();
        let moments: Arc<[_]> = moments().into();
        let population = Arc::new(Population::draw(100, &moments));
        let pushes = Arc::new(Pushes::new(Clock::start(), moments, population.clone(), 10));
        let providers = Providers::start(&population, &pushes).unwrap();
        let config = config(&folder, &providers, (Ipv4Addr::LOCALHOST, 0).into(), 1000).unwrap();
        assert_eq!(config.client.connection_count_max, 1100);
        assert_eq!(config.topics.len(), 11);
        assert_eq!(config.apns["demo"].port, providers.apns.addr().port());
        assert_eq!(config.fcm["demo"].port, providers.fcm.addr().port());
        assert_eq!(config.web_push["demo"].allowed_ports, [providers.web_push.addr().port()]);
        assert!((0..100).all(|number| population.token(number).is_some()), "every phone has an address");
        assert!(config.channel.namespaces["match"].durable);
        assert!(config.translations.dir.unwrap().join("pt_BR/LC_MESSAGES/match.po").is_file());
    }

    #[test]
    fn too_many_clients_for_the_system_is_wrong_usage() {
        let error = allow_files(u32::MAX / 4);
        // A system without limit allows them.
        assert!(error.is_ok() || matches!(error, Err(CommandError::Usage(_))));
    }
}
