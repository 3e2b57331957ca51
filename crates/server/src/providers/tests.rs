//! Real files, a real gateway, the simulator as the provider.

use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use tidings_push::payload::Content;
use tidings_push::{Notification, Outcome, Rendering, RenderingParts, Settled, Ticket};
use tidings_simulator::{ApnsSimulator, FcmConfig, FcmSimulator, PushAuthority, SimulatorConfig};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{
    AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, Environment, EventId, EventPriority, JournalPosition,
    NotificationId, Payload, Present, Timestamp,
};

use super::*;
use tidings_config::parse;

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
    config: Config,
    providers: Providers,
    lakes: Vec<Lakes>,
    sink: Arc<Sink>,
}

impl Setup {
    /// Files by name and text; the configuration's `DIR` is their folder.
    fn start(files: &[(&str, &str)], config: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(dir.path().join(name), text).unwrap();
        }
        let config: Config = parse("t", &config.replace("DIR", &dir.path().display().to_string()), []).unwrap().config;
        let (sink, registry) = (Arc::<Sink>::default(), Registry::new());
        let (mut providers, mut lakes) = (Providers::default(), Vec::new());
        for section in sections(&config) {
            lakes.push(section.pools[0].lakes.clone());
            providers.add(&config, section, Arc::clone(&sink) as _, &registry).unwrap();
        }
        Self { dir, config, providers, lakes, sink }
    }

    fn reload(&self) {
        self.providers.reload(&self.config);
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Pushes to these iPhones through the section with this place in the order of providers and names.
    async fn push(&self, section: usize, devices: std::ops::Range<u32>) {
        self.push_to(Provider::Apns, section, devices).await;
    }

    async fn push_to(&self, provider: Provider, section: usize, devices: std::ops::Range<u32>) {
        let (event, collapse_id) = (EventId::new("goal-1").unwrap(), CollapseKey::new("match-7").unwrap());
        let content = Content {
            title: "Goal",
            body: "",
            present: &Present::default(),
            thread: None,
            event: &event,
            stream: None,
            data: None,
            patches: &Payload::default(),
            urgency: None,
            collapse_id: &collapse_id,
        };
        let parts = RenderingParts {
            app: AppId::new("com.example.app").unwrap(),
            expires_at: unix_now().saturating_add(Duration::from_secs(600)),
            collapse_id: collapse_id.clone(),
        };
        let rendering = Arc::new(Rendering::new(parts, content.encode(provider).unwrap()));
        let notification = |device: u32| Notification {
            id: NotificationId::new(&event, &DeviceId::new(&format!("phone-{device}")).unwrap()),
            token: match provider {
                Provider::Fcm => DeviceToken::fcm(&format!("device-{device}")).unwrap(),
                _ => DeviceToken::from(&device.to_be_bytes()[..]),
            },
            rendering: Arc::clone(&rendering),
            ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device), cell: 0 },
            queued_at: unix_now(),
        };
        self.lakes[section]
            .of(EventPriority::Normal)
            .push_batch(&mut devices.map(notification).collect())
            .await
            .unwrap();
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
         \"{environment}\"\napps = [\"com.example.app\"]\nconnection_count = 1\nconnection_count_max = 1\nquarantine_connection_count = 0\nlake_capacity = 1000\n{credential}\n",
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
    let before = std::mem::take(&mut setup.config.apns);
    setup.reload();
    setup.push(0, 10..20).await;
    setup.accepted(20).await;
    assert_eq!(simulator.ledger().summary().connections, connections, "gone, and as it was");

    setup.config.apns = before;
    fs::write(setup.file("new.p8"), simulator.add_key("NEWKEY0001", simulator.team_id()).unwrap()).unwrap();
    let apns = setup.config.apns.get_mut("main").unwrap();
    apns.key_id = Some(tidings_config::AppleId("NEWKEY0001".to_owned()));
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
    let apns = &setup.config.apns["main"];
    let fault = |name: &str, text: Option<&str>| {
        let (path, kept) = (setup.file(name), fs::read_to_string(setup.file(name)).unwrap());
        match text {
            Some(text) => fs::write(&path, text).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
        setup.reload();
        let error = apns::credential(apns, &setup.providers.keys).err();
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
    let error = apns::credential(&setup.config.apns["main"], &setup.providers.keys).unwrap_err().to_string();
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
    let tokens = |name: &str| match apns::credential(&config.apns[name], &setup.providers.keys).unwrap() {
        Credential::Token(tokens) => tokens,
        _ => panic!("a key was configured"),
    };
    assert!(Arc::ptr_eq(&tokens("one"), &tokens("two")));
}

#[tokio::test]
async fn a_service_account_of_another_project_is_not_taken_up() {
    let config = |project: &str| FcmConfig { project_id: project.to_owned(), ..FcmConfig::default() };
    let (ours, other) =
        (FcmSimulator::start(config("ours-1")).unwrap(), FcmSimulator::start(config("other-2")).unwrap());
    let account = ours.service_account_json();
    let section = format!(
        "[fcm.main]\nhost = \"localhost\"\nport = {}\nca_file = \"DIR/ca.pem\"\n\
         service_account_file = \"DIR/account.json\"\n\
         apps = [\"com.example.app\"]\n",
        ours.addr().port()
    );
    let setup = Setup::start(&[("account.json", &account), ("ca.pem", ours.ca_pem())], &section);
    setup.push_to(Provider::Fcm, 0, 0..10).await;
    setup.accepted(10).await;

    fs::write(setup.file("account.json"), other.service_account_json()).unwrap();
    let refused = setup.providers.reload_one(&setup.config, &setup.providers.all[0]).unwrap();
    let (error, path) = (chain(&refused.unwrap_err()), setup.file("account.json").display().to_string());
    let of = "is of the Firebase project \"other-2\", but this section sends for \"ours-1\" until a restart";
    assert_eq!(error, format!("{path} {of}"));
    setup.push_to(Provider::Fcm, 0, 10..20).await;
    setup.accepted(20).await;

    // Another key of the same project is taken up; here another account of it.
    fs::write(setup.file("account.json"), account.replace("simulator@", "unknown@")).unwrap();
    assert!(setup.providers.reload_one(&setup.config, &setup.providers.all[0]).unwrap().unwrap());
    fs::write(setup.file("account.json"), account).unwrap();
    assert!(setup.providers.reload_one(&setup.config, &setup.providers.all[0]).unwrap().unwrap());
    setup.push_to(Provider::Fcm, 0, 20..30).await;
    setup.accepted(30).await;
    assert_eq!((ours.ledger().accepted_total(), other.ledger().accepted_total()), (30, 0));
    setup.providers.drain(Instant::now() + PATIENCE).await;
}
