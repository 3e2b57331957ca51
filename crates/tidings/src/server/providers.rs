//! The push providers: for each section of `[apns]` a gateway, its credential from the files that the section names, and
//! the same files again when the operator has changed them.
//!
//! A file that is wrong at the start ends the start. Later it costs nothing: the gateway keeps the credential it has,
//! and the log says which file is wrong. Sections with the same signing key share its tokens, for Apple refuses who
//! makes too many.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tidings_buffer::Lake;
use tidings_gateway::{AccessError, CertificateError, ClientCertificate, Credential, Gateway, GatewayConfig};
use tidings_push::apns::{KeyError, ProviderKey, ProviderKeys};
use tidings_push::{Notification, OutcomeSink};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::AppId;
use tokio::time::Instant;
use tracing::{error, info};

use crate::command::output::chain;
use crate::config::{Apns, read_file};

/// A credential cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    /// A file went away since it was checked.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A signing key.
    #[error("{path} cannot be used")]
    Key {
        /// Its file.
        path: String,
        /// Why.
        source: KeyError,
    },
    /// A certificate or its key.
    #[error("{path} cannot be used")]
    Certificate {
        /// The file of the one at fault.
        path: String,
        /// Why.
        source: CertificateError,
    },
    /// A certificate for other apps: the provider would refuse every notification for good.
    #[error("{path} is not for {app}: its topics are {topics}")]
    Topic {
        /// Its file.
        path: String,
        /// The section's app that is not among them.
        app: AppId,
        /// What it is for.
        topics: String,
    },
}

/// A gateway cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// Its credential.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// Its settings.
    #[error(transparent)]
    Gateway(#[from] tidings_gateway::StartError),
}

/// A gateway cannot take what its files have now.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error("cannot connect with {trusted} to trust")]
    Access { trusted: String, source: AccessError },
}

/// All gateways.
#[derive(Default)]
pub(super) struct Providers {
    keys: ProviderKeys,
    all: Vec<Provider>,
}

struct Provider {
    /// The section's.
    name: String,
    gateway: Gateway,
}

impl Providers {
    /// Starts the gateway of a section.
    pub(super) fn add(
        &mut self,
        name: &str,
        apns: &Apns,
        lake: Arc<Lake<Notification>>,
        sink: Arc<dyn OutcomeSink>,
        registry: &Registry,
    ) -> Result<(), ProviderError> {
        let config = gateway_config(apns, &self.keys)?;
        let gateway = Gateway::start(config, lake, sink, registry)?;
        self.all.push(Provider { name: name.to_owned(), gateway });
        Ok(())
    }

    /// Takes the credentials of these sections, and the certificates to trust, as their files are now; says in the log what
    /// came of it. Nothing else of a section is taken, and no section is added or taken away.
    pub(super) fn reload(&self, sections: &BTreeMap<String, Apns>) {
        for Provider { name, gateway } in &self.all {
            let Some(apns) = sections.get(name) else {
                error!(provider = "apns", section = name, "Section is gone, its credential goes on until a restart");
                continue;
            };
            let reload = || -> Result<bool, ReloadError> {
                let (credential, ca_pem) = (credential(apns, &self.keys)?, ca_pem(apns)?);
                gateway.reload(credential, ca_pem.as_deref()).map_err(|source| {
                    let system = || "the system's certificates".to_owned();
                    let trusted = apns.ca_file.as_deref().map_or_else(system, |file| file.display().to_string());
                    ReloadError::Access { trusted, source }
                })
            };
            match reload().map_err(|error| chain(&error)) {
                Ok(true) => info!(provider = "apns", section = name, "Credential replaced"),
                Ok(false) => info!(provider = "apns", section = name, "Credential is the same"),
                Err(error) => {
                    error!(provider = "apns", section = name, error, "Credential not replaced, the old one goes on")
                }
            }
        }
    }

    /// Lets each gateway come to its end.
    pub(super) async fn drain(self, deadline: Instant) {
        for provider in self.all {
            provider.gateway.drain(deadline).await;
        }
    }
}

fn read(path: &Path) -> Result<String, CredentialError> {
    read_file(path).map_err(|source| CredentialError::File { path: path.display().to_string(), source })
}

fn ca_pem(apns: &Apns) -> Result<Option<String>, CredentialError> {
    apns.ca_file.as_deref().map(read).transpose()
}

/// The credential of a section as its files have it now.
fn credential(apns: &Apns, keys: &ProviderKeys) -> Result<Credential, CredentialError> {
    if let (Some(chain_file), Some(key_file)) = (&apns.certificate_file, &apns.certificate_key_file) {
        let (chain, key) = (read(chain_file)?, read(key_file)?);
        let certificate = ClientCertificate::new(&chain, &key, unix_now()).map_err(|source| {
            let file = if source.is_about_key() { key_file } else { chain_file };
            CredentialError::Certificate { path: file.display().to_string(), source }
        })?;
        if let Some(app) = apns.apps.iter().find(|app| !certificate.covers(app)) {
            let (path, topics) = (chain_file.display().to_string(), certificate.topics().join(", "));
            return Err(CredentialError::Topic { path, app: app.clone(), topics });
        }
        return Ok(Credential::Certificate(Arc::new(certificate)));
    }
    let (Some(file), Some(key_id), Some(team_id)) = (&apns.key_file, &apns.key_id, &apns.team_id) else {
        unreachable!("the check of the configuration lets no section without a credential pass");
    };
    let key = ProviderKey::new(&key_id.0, &team_id.0, &read(file)?)
        .map_err(|source| CredentialError::Key { path: file.display().to_string(), source })?;
    Ok(Credential::Token(keys.tokens(key)))
}

fn gateway_config(apns: &Apns, keys: &ProviderKeys) -> Result<GatewayConfig, CredentialError> {
    Ok(GatewayConfig {
        host: apns.host().to_owned(),
        port: apns.port,
        server_name: apns.host().to_owned(),
        ca_pem: ca_pem(apns)?,
        credential: credential(apns, keys)?,
        connection_count: apns.connection_count,
        thread_count: apns.thread_count,
        streams_max: u32::try_from(apns.stream_count_max).unwrap_or(u32::MAX),
        connect_timeout: apns.connect_timeout,
        stall_timeout: apns.stall_timeout,
        answer_timeout: apns.answer_timeout,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;
    use std::sync::Mutex;
    use std::time::Duration;

    use bytes::Bytes;
    use tidings_push::{Outcome, Priority, PushType, Rendering, RenderingParts, Settled, Ticket};
    use tidings_simulator::{ApnsSimulator, PushAuthority, SimulatorConfig};
    use tidings_types::{
        CollapseKey, DeviceId, DeviceNumber, DeviceToken, Environment, EventId, JournalPosition, NotificationId,
        Timestamp,
    };

    use super::*;
    use crate::config::{Config, parse};

    const PATIENCE: Duration = Duration::from_secs(20);
    /// The year 2100.
    const FAR: Timestamp = Timestamp(4_102_444_800_000);

    #[derive(Default)]
    struct Sink(Mutex<Vec<Settled>>);

    impl OutcomeSink for Sink {
        fn settle(&self, settled: &mut Vec<Settled>) {
            self.0.lock().unwrap().append(settled);
        }
    }

    struct Setup {
        dir: tempfile::TempDir,
        sections: BTreeMap<String, Apns>,
        providers: Providers,
        lakes: Vec<Arc<Lake<Notification>>>,
        sink: Arc<Sink>,
    }

    impl Setup {
        /// Files by name and text; the configuration's `DIR` is their folder.
        fn start(files: &[(&str, &str)], config: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for (name, text) in files {
                fs::write(dir.path().join(name), text).unwrap();
            }
            let config: Config =
                parse("t", &config.replace("DIR", &dir.path().display().to_string()), []).unwrap().config;
            let (sink, registry) = (Arc::<Sink>::default(), Registry::new());
            let (mut providers, mut lakes) = (Providers::default(), Vec::new());
            for (name, apns) in &config.apns {
                let lake = Arc::new(Lake::new(apns.lake_capacity));
                providers.add(name, apns, Arc::clone(&lake), Arc::clone(&sink) as _, &registry).unwrap();
                lakes.push(lake);
            }
            Self { dir, sections: config.apns, providers, lakes, sink }
        }

        fn reload(&self) {
            self.providers.reload(&self.sections);
        }

        fn file(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Pushes to these devices through the section with this place in the order of names.
        async fn push(&self, section: usize, devices: std::ops::Range<u32>) {
            let rendering = Arc::new(Rendering::new(RenderingParts {
                app: AppId::new("com.example.app").unwrap(),
                push_type: PushType::Alert,
                priority: Priority::Immediate,
                expires_at: unix_now().saturating_add(Duration::from_secs(600)),
                collapse_id: CollapseKey::new("match-7").unwrap(),
                payload: Bytes::from_static(br#"{"aps":{"alert":"Goal"}}"#),
            }));
            let notification = |device: u32| Notification {
                id: NotificationId::new(
                    &EventId::new("goal-1").unwrap(),
                    &DeviceId::new(&format!("phone-{device}")).unwrap(),
                ),
                token: DeviceToken::from(&device.to_be_bytes()[..]),
                rendering: Arc::clone(&rendering),
                ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device) },
            };
            self.lakes[section].push_batch(&mut devices.map(notification).collect()).await.unwrap();
        }

        /// Waits until so many are settled, all of them accepted.
        async fn accepted(&self, count: usize) {
            let until = Instant::now() + PATIENCE;
            while self.sink.0.lock().unwrap().len() < count {
                assert!(Instant::now() < until, "{} of {count}", self.sink.0.lock().unwrap().len());
                tokio::task::yield_now().await;
            }
            let settled = self.sink.0.lock().unwrap();
            assert!(settled.len() == count && settled.iter().all(|it| it.outcome == Outcome::Accepted), "{settled:?}");
        }
    }

    /// A section for a simulator, of one connection: the first answer is sure to have come when all are connected.
    fn section(name: &str, simulator: &ApnsSimulator, environment: &str, credential: &str) -> String {
        format!(
            "[apns.{name}]\nhost = \"localhost\"\nport = {}\nca_file = \"DIR/{name}-ca.pem\"\nenvironment = \
             \"{environment}\"\napps = [\"com.example.app\"]\nconnection_count = 1\nlake_capacity = 1000\n{credential}\n",
            simulator.addr().port()
        )
    }

    fn key(simulator: &ApnsSimulator, file: &str) -> String {
        format!("key_id = \"{}\"\nteam_id = \"{}\"\nkey_file = \"DIR/{file}\"", simulator.key_id(), simulator.team_id())
    }

    /// How many devices have got something, and whether each got it once.
    fn devices(simulator: &ApnsSimulator) -> (usize, bool) {
        let entries: Vec<_> = simulator.ledger().entries().collect();
        (entries.len(), entries.iter().all(|(_, entry)| entry.count == 1))
    }

    #[tokio::test]
    async fn sections_side_by_side_and_each_reloads_what_is_its_own() {
        let authority = PushAuthority::new().unwrap();
        let with = |environment| SimulatorConfig {
            client_ca_pem: Some(authority.ca_pem().to_owned()),
            environment,
            ..SimulatorConfig::default()
        };
        let start = |config| ApnsSimulator::start(config).unwrap();
        let [sandbox, production] = [Environment::Sandbox, Environment::Production].map(|it| start(with(it)));
        let issue = || {
            let issued = authority.issue(&["com.example.app"], Some(Environment::Production), FAR).unwrap();
            format!("{}{}", issued.certificate_pem, issued.key_pem)
        };
        let certificate = "certificate_file = \"DIR/c.pem\"\ncertificate_key_file = \"DIR/c.pem\"";
        let config = section("live", &production, "production", certificate)
            + &section("test", &sandbox, "sandbox", &key(&sandbox, "key.p8"));
        let first = issue();
        let files = [
            ("c.pem", first.as_str()),
            ("key.p8", sandbox.key_pem()),
            ("live-ca.pem", production.ca_pem()),
            ("test-ca.pem", sandbox.ca_pem()),
        ];
        let setup = Setup::start(&files, &config);
        setup.push(0, 0..100).await;
        setup.push(1, 100..200).await;
        setup.accepted(200).await;
        assert_eq!((devices(&production), devices(&sandbox)), ((100, true), (100, true)));

        let connections = |simulator: &ApnsSimulator| simulator.ledger().summary().connections;
        let before = [&production, &sandbox].map(connections);
        setup.reload();
        setup.push(0, 200..300).await;
        setup.push(1, 300..400).await;
        setup.accepted(400).await;
        assert_eq!([&production, &sandbox].map(connections), before, "nothing has changed");

        // A new key under the old id, and a new certificate.
        let replaced = sandbox.add_key(sandbox.key_id(), sandbox.team_id()).unwrap();
        fs::write(setup.file("key.p8"), replaced).unwrap();
        fs::write(setup.file("c.pem"), issue()).unwrap();
        setup.reload();
        setup.push(0, 400..500).await;
        setup.push(1, 500..600).await;
        setup.accepted(600).await;
        assert_eq!((devices(&production), devices(&sandbox)), ((300, true), (300, true)));
        assert!([&production, &sandbox].map(connections).iter().zip(before).all(|(after, before)| *after > before));
        setup.providers.drain(Instant::now() + PATIENCE).await;
    }

    #[tokio::test]
    async fn a_key_with_another_id_is_taken_and_a_section_that_is_gone_goes_on() {
        let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
        let files = [("key.p8", simulator.key_pem()), ("main-ca.pem", simulator.ca_pem())];
        let mut setup = Setup::start(&files, &section("main", &simulator, "production", &key(&simulator, "key.p8")));
        setup.push(0, 0..10).await;
        setup.accepted(10).await;
        let connections = simulator.ledger().summary().connections;
        let before = std::mem::take(&mut setup.sections);
        setup.reload();
        setup.push(0, 10..20).await;
        setup.accepted(20).await;
        assert_eq!(simulator.ledger().summary().connections, connections, "gone, and as it was");

        setup.sections = before;
        fs::write(setup.file("new.p8"), simulator.add_key("NEWKEY0001", simulator.team_id()).unwrap()).unwrap();
        let apns = setup.sections.get_mut("main").unwrap();
        apns.key_id = Some(crate::config::value::AppleId("NEWKEY0001".to_owned()));
        apns.key_file = Some(setup.dir.path().join("new.p8"));
        setup.reload();
        setup.push(0, 20..30).await;
        setup.accepted(30).await;
        assert!(simulator.ledger().summary().connections > connections);
        assert_eq!(devices(&simulator), (30, true));
    }

    #[tokio::test]
    async fn a_broken_file_leaves_the_old_credential_in_service() {
        let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
        let files = [("key.p8", simulator.key_pem()), ("main-ca.pem", simulator.ca_pem())];
        let config = section("main", &simulator, "production", &key(&simulator, "key.p8"));
        let setup = Setup::start(&files, &config);
        setup.push(0, 0..10).await;
        setup.accepted(10).await;
        let connections = simulator.ledger().summary().connections;
        let apns = &setup.sections["main"];
        let fault = |name: &str, text: Option<&str>| {
            let (path, kept) = (setup.file(name), fs::read_to_string(setup.file(name)).unwrap());
            match text {
                Some(text) => fs::write(&path, text).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            setup.reload();
            let error = credential(apns, &setup.providers.keys).err();
            fs::write(&path, kept).unwrap();
            error.map(|error| chain(&error)).unwrap_or_default()
        };
        let path = setup.file("key.p8").display().to_string();
        assert!(fault("key.p8", None).starts_with(&format!("cannot read {path}: ")));
        let broken = fault("key.p8", Some("my secret"));
        assert!(broken.starts_with(&format!("{path} cannot be used: ")) && !broken.contains("secret"), "{broken}");
        fault("main-ca.pem", Some("no certificate"));
        fault("main-ca.pem", None);
        setup.push(0, 10..20).await;
        setup.accepted(20).await;
        assert_eq!(simulator.ledger().summary().connections, connections);
        assert_eq!(devices(&simulator), (20, true));
    }

    #[tokio::test]
    async fn a_certificate_for_other_apps_is_not_taken_up() {
        let authority = PushAuthority::new().unwrap();
        let client_ca_pem = Some(authority.ca_pem().to_owned());
        let simulator = ApnsSimulator::start(SimulatorConfig { client_ca_pem, ..SimulatorConfig::default() }).unwrap();
        let issue = |topics: &[&str]| {
            let issued = authority.issue(topics, None, FAR).unwrap();
            format!("{}{}", issued.certificate_pem, issued.key_pem)
        };
        let first = issue(&["com.example.app"]);
        let certificate = "certificate_file = \"DIR/c.pem\"\ncertificate_key_file = \"DIR/c.pem\"";
        let config = section("main", &simulator, "production", certificate);
        let setup = Setup::start(&[("c.pem", &first), ("main-ca.pem", simulator.ca_pem())], &config);
        setup.push(0, 0..10).await;
        setup.accepted(10).await;
        let connections = simulator.ledger().summary().connections;
        fs::write(setup.file("c.pem"), issue(&["com.example.other", "com.example.other.voip"])).unwrap();
        setup.reload();
        setup.push(0, 10..20).await;
        setup.accepted(20).await;
        let summary = simulator.ledger().summary();
        assert!(summary.rejected.is_empty() && summary.connections == connections, "{summary:?}");
        let error = credential(&setup.sections["main"], &setup.providers.keys).unwrap_err().to_string();
        let topics = "is not for com.example.app: its topics are com.example.other, com.example.other.voip";
        assert!(error.ends_with(topics), "{error}");
    }

    #[tokio::test]
    async fn sections_with_one_key_share_its_token() {
        let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
        let files = [("key.p8", simulator.key_pem())];
        let setup = Setup::start(&files, "");
        let text = section("one", &simulator, "production", &key(&simulator, "key.p8"))
            + &section("two", &simulator, "sandbox", &key(&simulator, "key.p8"));
        let text = text.replace("ca_file = \"DIR/one-ca.pem\"", "").replace("ca_file = \"DIR/two-ca.pem\"", "");
        let text = text.replace("DIR", &setup.dir.path().display().to_string());
        let config = parse("t", &text, []).unwrap().config;
        let tokens = |name: &str| match credential(&config.apns[name], &setup.providers.keys).unwrap() {
            Credential::Token(tokens) => tokens,
            Credential::Certificate(_) => panic!("a key was configured"),
        };
        assert!(Arc::ptr_eq(&tokens("one"), &tokens("two")));
    }
}
