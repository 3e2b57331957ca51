//! What the demo runs on: a temporary folder, the provider simulator, and the real server on a configuration of its own.
//!
//! Topics and catalogues are in the binary, so the demo runs from anywhere. The configuration is text, read as any
//! other; variables of the environment do not count.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tempfile::TempDir;
use tidings_simulator::{ApnsSimulator, OnAccepted, SimulatorConfig};

use super::population::APP;
use crate::command::CommandError;
use crate::config::Config;
use tidings_telemetry::chain;

/// The topics, in the form of the configuration.
pub(super) const TOPICS: &str = include_str!("../../../demo/topics.toml");

/// Catalogues by the name of their folder. English is the source language.
const CATALOGUES: [(&str, &str); 7] = [
    ("ar", include_str!("../../../demo/locales/ar/LC_MESSAGES/match.po")),
    ("de", include_str!("../../../demo/locales/de/LC_MESSAGES/match.po")),
    ("es", include_str!("../../../demo/locales/es/LC_MESSAGES/match.po")),
    ("fr", include_str!("../../../demo/locales/fr/LC_MESSAGES/match.po")),
    ("ja", include_str!("../../../demo/locales/ja/LC_MESSAGES/match.po")),
    ("pl", include_str!("../../../demo/locales/pl/LC_MESSAGES/match.po")),
    ("pt_BR", include_str!("../../../demo/locales/pt_BR/LC_MESSAGES/match.po")),
];

/// Where the demo listens if that is free: where the commands look for a server.
const USUAL_PORT: u16 = 8000;

/// Files the process needs besides two per client: server, store, connections to the simulator.
const OTHER_FILE_COUNT: u64 = 512;

/// A temporary folder with everything the server reads; gone when dropped.
pub(super) struct Folder(TempDir);

impl Folder {
    /// Unpacks the catalogues.
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

    /// The certificate of the simulator.
    pub(super) fn ca(&self) -> PathBuf {
        self.0.path().join("ca.pem")
    }

    fn key(&self) -> PathBuf {
        self.0.path().join("key.p8")
    }

    /// The file with the API key that the server makes.
    pub(super) fn api_key(&self) -> PathBuf {
        self.data().join("api-key")
    }
}

fn write(path: PathBuf, text: &str) -> Result<(), CommandError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|source| CommandError::File { action: "write", path, source })
}

/// Starts the provider, with a ledger that holds all that is owed and as much again.
pub(super) fn start_simulator(
    device_count: u32,
    owed_total: u64,
    on_accepted: OnAccepted,
) -> Result<ApnsSimulator, CommandError> {
    let config = SimulatorConfig {
        topics: vec![APP.to_owned()],
        device_count_max: 2 * device_count as usize + 1024,
        notification_count_max: 2 * usize::try_from(owed_total).unwrap_or(usize::MAX / 2) + 65_536,
        ..SimulatorConfig::default()
    };
    ApnsSimulator::start_observed(config, on_accepted).map_err(|error| CommandError::Failed(chain(&error)))
}

/// The configuration of the server: its defaults, the match, and the simulator in the place of Apple's service.
pub(super) fn config(
    folder: &Folder,
    simulator: &ApnsSimulator,
    listen: SocketAddr,
    client_count: u32,
) -> Result<Config, CommandError> {
    write(folder.ca(), simulator.ca_pem())?;
    write(folder.key(), simulator.key_pem())?;
    let text = config_text(folder, simulator, listen, client_count);
    Ok(crate::config::parse("the demo's configuration", &text, [])?.config)
}

fn config_text(folder: &Folder, simulator: &ApnsSimulator, listen: SocketAddr, client_count: u32) -> String {
    let quoted = |text: &str| toml::Value::String(text.to_owned()).to_string();
    let path = |path: PathBuf| quoted(&path.display().to_string());
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
         [client]\nallow_anonymous = true\nconnection_count_max = {connections}\nshutdown_timeout = \"2s\"\n\
         [channel.namespaces.match]\n{namespace}\
         [channel.namespaces.team]\n{namespace}\
         [translations]\ndir = {locales}\n\
         [apns.demo]\nhost = \"localhost\"\nport = {port}\nkey_id = {key_id}\nteam_id = {team_id}\n\
         key_file = {key}\nca_file = {ca}\napps = [{app}]\n\
         [log]\nfilter = \"warn\"\n\
         {TOPICS}",
        data = path(folder.data()),
        connections = client_count + 100, // Room for whoever tries `tidings subscribe`.
        locales = path(folder.locales()),
        port = simulator.addr().port(),
        key_id = quoted(simulator.key_id()),
        team_id = quoted(simulator.team_id()),
        key = path(folder.key()),
        ca = path(folder.ca()),
        app = quoted(APP),
    )
}

/// Where to listen: any port when nobody is to find it, else the usual one if it is free.
pub(super) fn listen_address(once: bool) -> SocketAddr {
    let usual = SocketAddr::from((Ipv4Addr::LOCALHOST, USUAL_PORT));
    let is_free = !once && TcpListener::bind(usual).is_ok();
    if is_free { usual } else { (Ipv4Addr::LOCALHOST, 0).into() }
}

/// Lets the process open two sockets per client: server and clients live in the same one.
pub(super) fn allow_files(client_count: u32) -> Result<(), CommandError> {
    let needed = 2 * u64::from(client_count) + OTHER_FILE_COUNT;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if maximum.is_some_and(|maximum| maximum < needed) {
        let limit = maximum.unwrap_or_default();
        return Err(CommandError::Usage(format!(
            "{client_count} clients need {needed} open files, the limit is {limit}: take fewer --clients or raise it \
             (ulimit -n)"
        )));
    }
    let raised = setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum });
    raised.map_err(|error| CommandError::Failed(format!("cannot raise the limit of open files to {needed}: {error}")))
}

/// How to call this program again.
pub(super) fn program() -> String {
    let path = std::env::args_os().next().unwrap_or_else(|| "tidings".into());
    Path::new(&path).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn the_configuration_is_one_the_server_takes() {
        let folder = Folder::unpack().unwrap();
        let simulator = start_simulator(10, 100, Arc::new(|_| {})).unwrap();
        let config = config(&folder, &simulator, (Ipv4Addr::LOCALHOST, 0).into(), 1000).unwrap();
        assert_eq!(config.client.connection_count_max, 1100);
        assert_eq!(config.topics.len(), 11);
        assert_eq!(config.apns["demo"].port, simulator.addr().port());
        assert!(config.channel.namespaces["match"].durable);
        assert!(config.translations.dir.unwrap().join("pt_BR/LC_MESSAGES/match.po").is_file());
    }

    #[test]
    fn more_clients_than_the_system_allows_is_wrong_usage() {
        let error = allow_files(u32::MAX / 4);
        // A system without limit allows them.
        assert!(error.is_ok() || matches!(error, Err(CommandError::Usage(_))));
    }
}
