//! Who the gateway is to the provider: certificates, several teams, and changing either at work.
//!
//! Against the simulator, which refuses as APNs does: a connection belongs to the key of its first token, a replaced
//! key's tokens are refused at once. Its ledger is the judge of "each once".

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tidings_gateway::{AccessError, ClientCertificate, Condition, Credential, Gateway, GatewayConfig};
use tidings_push::{Lakes, Outcome};
use tidings_simulator::{ApnsSimulator, Faults, PushAuthority, Reason, SimulatorConfig};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{DeviceToken, Environment, EventPriority, JournalPosition, Timestamp};
use tokio::time::{Instant, timeout};

use crate::{PATIENCE, Sink, config, notification, sized, token};

/// The app of [`notification`].
const APP: &str = "org.example.scores";
/// The year 2100.
const FAR: Timestamp = Timestamp(4_102_444_800_000);

/// Some answers are under way at any moment.
fn slow() -> Faults {
    Faults { delay_ms: 20, jitter_ms: 20, ..Faults::default() }
}

fn simulator(config: SimulatorConfig) -> ApnsSimulator {
    ApnsSimulator::start(config).unwrap()
}

fn certificate(authority: &PushAuthority, topics: &[&str], environment: Option<Environment>) -> Credential {
    let issued = authority.issue(topics, environment, FAR).unwrap();
    let certificate = ClientCertificate::new(&issued.certificate_pem, &issued.key_pem, unix_now()).unwrap();
    Credential::Certificate(Arc::new(certificate))
}

/// A gateway of its own for one provider.
struct Pool {
    sink: Arc<Sink>,
    lakes: Lakes,
    gateway: Gateway,
    registry: Registry,
}

impl Pool {
    fn start(simulator: &ApnsSimulator, credential: Credential, adapt: impl FnOnce(&mut GatewayConfig)) -> Self {
        let mut config = config(simulator.addr().port(), simulator.ca_pem().to_owned());
        config.credential = credential;
        adapt(&mut config);
        let (sink, lakes, registry) = (Arc::<Sink>::default(), Lakes::new(512), Registry::new());
        let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &registry).unwrap();
        Self { sink, lakes, gateway, registry }
    }

    async fn push(&self, devices: impl IntoIterator<Item = u32>) {
        self.push_text(devices, "Goal").await;
    }

    async fn push_text(&self, devices: impl IntoIterator<Item = u32>, text: &str) {
        let expires_at = unix_now().saturating_add(Duration::from_secs(600));
        let json = Bytes::from(format!(r#"{{"aps":{{"alert":"{text}"}}}}"#));
        let push = |device| sized(notification(device, JournalPosition(1), expires_at), json.clone());
        let mut batch = devices.into_iter().map(push).collect();
        self.lakes.of(EventPriority::Normal).push_batch(&mut batch).await.unwrap();
    }

    /// Waits until so many are settled, all of them accepted.
    async fn accepted(&self, count: usize) {
        let outcomes = self.sink.outcomes(count).await;
        let other = outcomes.values().find(|it| it.outcome != Outcome::Accepted);
        assert!(other.is_none(), "{other:?}");
    }

    fn repeats(&self, cause: &str) -> u64 {
        self.count(&format!("tidings_gateway_repeats_total{{cause=\"{cause}\",pool=\"main\",provider=\"apns\"}}"))
    }

    /// Waits until it stands so with the provider.
    async fn until(&self, condition: Condition) {
        let watch = self.gateway.health();
        let reached = async {
            while watch.health().condition != condition {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{:?} and not {condition:?}", watch.health()));
    }

    /// Waits until the operator has been told.
    async fn until_told(&self) {
        let told = async {
            while self.count("tidings_gateway_credential_refused_total{pool=\"main\",provider=\"apns\"}") == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, told).await.unwrap();
    }

    fn count(&self, series: &str) -> u64 {
        let name = format!("{series} ");
        let text = self.registry.prometheus();
        text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
    }

    async fn drain(self) {
        assert_eq!(self.gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
    }
}

/// Which devices the simulator has accepted how often.
fn ledger(simulator: &ApnsSimulator) -> HashMap<u32, u32> {
    let device = |token: &DeviceToken| u32::from_be_bytes(token.as_bytes().try_into().unwrap());
    simulator.ledger().entries().map(|(token, entry)| (device(&token), entry.count)).collect()
}

fn each_once(devices: std::ops::Range<u32>) -> HashMap<u32, u32> {
    devices.map(|device| (device, 1)).collect()
}

/// Waits until the simulator has refused something for this reason.
async fn until_refused(simulator: &ApnsSimulator, reason: Reason) {
    let refused = async {
        while simulator.ledger().rejected_total(reason) == 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.unwrap();
}

#[tokio::test]
async fn a_certificate_opens_all_streams_at_once_and_sends_no_token() {
    let authority = PushAuthority::new().unwrap();
    // No answer comes that could prove a token.
    let faults =
        Faults { delay_ms: 3_600_000, stream_limit: 200, stream_limit_before_token: Some(1), ..Faults::default() };
    let client_ca_pem = Some(authority.ca_pem().to_owned());
    let simulator = simulator(SimulatorConfig { client_ca_pem, faults, ..SimulatorConfig::default() });
    let pool = Pool::start(&simulator, certificate(&authority, &[APP, "org.example.other"], None), |_| {});
    pool.push(0..400).await;
    let all_open = async {
        while simulator.ledger().accepted_total() < 200 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_open).await.unwrap();
    let summary = simulator.ledger().summary();
    assert!(summary.rejected.is_empty() && summary.stream_limit_violations == 0, "{summary:?}");
    assert_eq!(ledger(&simulator).len(), 200);
}

#[tokio::test]
async fn a_certificate_that_is_refused_blames_no_device_and_can_be_replaced() {
    let authority = PushAuthority::new().unwrap();
    let config =
        || SimulatorConfig { client_ca_pem: Some(authority.ca_pem().to_owned()), ..SimulatorConfig::default() };
    let right = || certificate(&authority, &[APP], Some(Environment::Production));
    // Refused by an answer.
    let production = simulator(config());
    let pool = Pool::start(&production, certificate(&authority, &[APP], Some(Environment::Sandbox)), |_| {});
    pool.push(0..50).await;
    until_refused(&production, Reason::BadCertificateEnvironment).await;
    pool.until_told().await;
    pool.until(Condition::CredentialRefused).await;
    assert!(pool.gateway.reload(right(), Some(production.ca_pem())).unwrap());
    pool.accepted(50).await;
    pool.until(Condition::Connected).await;
    assert_eq!(ledger(&production), each_once(0..50));
    pool.drain().await;
    // Refused by an alert of TLS.
    let production = simulator(config());
    let stranger = PushAuthority::new().unwrap();
    let pool = Pool::start(&production, certificate(&stranger, &[APP], None), |_| {});
    pool.push(0..50).await;
    pool.until_told().await;
    pool.until(Condition::CredentialRefused).await;
    assert!(pool.gateway.reload(right(), Some(production.ca_pem())).unwrap());
    pool.accepted(50).await;
    pool.until(Condition::Connected).await;
    assert_eq!(ledger(&production), each_once(0..50));
    pool.drain().await;
}

#[tokio::test]
async fn sandbox_and_production_and_two_teams_work_side_by_side() {
    let authority = PushAuthority::new().unwrap();
    let with = |environment| SimulatorConfig {
        client_ca_pem: Some(authority.ca_pem().to_owned()),
        environment,
        faults: slow(),
        ..SimulatorConfig::default()
    };
    let [sandbox, production] = [Environment::Sandbox, Environment::Production].map(|it| simulator(with(it)));
    let second_key = production.add_key("SECONDKEY1", "SECONDTEAM").unwrap();
    let own = |it: &ApnsSimulator| token(it.key_id(), it.team_id(), it.key_pem());
    let pools = [
        (&sandbox, Pool::start(&sandbox, own(&sandbox), |_| {})),
        (&sandbox, Pool::start(&sandbox, certificate(&authority, &[APP], Some(Environment::Sandbox)), |_| {})),
        (&production, Pool::start(&production, own(&production), |_| {})),
        (&production, Pool::start(&production, token("SECONDKEY1", "SECONDTEAM", &second_key), |_| {})),
    ];
    for ((_, pool), start) in pools.iter().zip((0..).step_by(300)) {
        pool.push(start..start + 300).await;
    }
    for (_, pool) in &pools {
        pool.accepted(300).await;
    }
    assert_eq!(ledger(&sandbox), each_once(0..600));
    assert_eq!(ledger(&production), each_once(600..1200));
    for (simulator, pool) in pools {
        assert!(simulator.ledger().summary().rejected.is_empty());
        pool.drain().await;
    }
}

/// Pushes devices in small batches and changes the credential after each, then checks that each got its one.
async fn change_under_load(simulator: &ApnsSimulator, credentials: [Credential; 2], connections: usize) {
    let pool = Pool::start(simulator, credentials[0].clone(), |config| {
        (config.connection_count_min, config.connection_count_max) = (connections, connections);
        config.thread_count = connections.min(2);
        config.streams_max = 50;
    });
    const BATCH: u32 = 200;
    const CHANGES: u32 = 8;
    for change in 0..CHANGES {
        pool.push(change * BATCH..(change + 1) * BATCH).await;
        // Only when some of it is under way.
        let sent = async {
            while simulator.ledger().accepted_total() < u64::from(change * BATCH + BATCH / 4) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, sent).await.unwrap();
        let next = credentials[(change as usize + 1) % 2].clone();
        assert!(pool.gateway.reload(next, Some(simulator.ca_pem())).unwrap());
    }
    pool.accepted((BATCH * CHANGES) as usize).await;
    assert_eq!(ledger(simulator), each_once(0..BATCH * CHANGES));
    let summary = simulator.ledger().summary();
    assert!(summary.rejected.is_empty(), "a token on a connection of another key: {summary:?}");
    assert!(summary.connections > u64::from(CHANGES), "{summary:?}");
    for cause in ["answer", "not_processed", "unknown"] {
        assert_eq!(pool.repeats(cause), 0, "an old connection was cut off: {cause}");
    }
    pool.drain().await;
}

#[tokio::test]
async fn another_key_under_load_costs_and_doubles_nothing() {
    let simulator = simulator(SimulatorConfig { faults: slow(), ..SimulatorConfig::default() });
    let second = simulator.add_key("SECONDKEY1", simulator.team_id()).unwrap();
    let credentials = [
        token(simulator.key_id(), simulator.team_id(), simulator.key_pem()),
        token("SECONDKEY1", simulator.team_id(), &second),
    ];
    change_under_load(&simulator, credentials, 3).await;
}

#[tokio::test]
async fn another_certificate_under_load_costs_and_doubles_nothing() {
    let authority = PushAuthority::new().unwrap();
    let client_ca_pem = Some(authority.ca_pem().to_owned());
    let simulator = simulator(SimulatorConfig { client_ca_pem, faults: slow(), ..SimulatorConfig::default() });
    let credentials = [(); 2].map(|()| certificate(&authority, &[APP], None));
    change_under_load(&simulator, credentials, 2).await;
}

#[tokio::test]
async fn a_key_replaced_under_its_name_takes_over() {
    let simulator = simulator(SimulatorConfig { faults: slow(), ..SimulatorConfig::default() });
    let (key_id, team_id) = (simulator.key_id(), simulator.team_id());
    let pool = Pool::start(&simulator, token(key_id, team_id, simulator.key_pem()), |_| {});
    pool.push(0..300).await;
    pool.accepted(300).await;
    let replaced = simulator.add_key(key_id, team_id).unwrap();
    pool.push(300..600).await;
    until_refused(&simulator, Reason::InvalidProviderToken).await;
    assert!(pool.gateway.reload(token(key_id, team_id, &replaced), Some(simulator.ca_pem())).unwrap());
    pool.accepted(600).await;
    assert_eq!(ledger(&simulator), each_once(0..600));
    pool.drain().await;
}

#[tokio::test]
async fn successors_do_not_wait_for_those_that_leave() {
    // The first connection is answered late; had the new one to wait for it, so would everything else.
    let simulator = simulator(SimulatorConfig::default());
    let second = simulator.add_key("SECONDKEY1", simulator.team_id()).unwrap();
    let pool = Pool::start(&simulator, token(simulator.key_id(), simulator.team_id(), simulator.key_pem()), |_| {});
    pool.push(0..1).await;
    pool.accepted(1).await;
    simulator.set_faults(Faults { delay_ms: 60_000, ..Faults::default() }).unwrap();
    pool.push(1..10).await;
    let under_way = async {
        while simulator.ledger().accepted_total() < 10 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, under_way).await.unwrap();
    simulator.set_faults(Faults::default()).unwrap();
    pool.gateway.reload(token("SECONDKEY1", simulator.team_id(), &second), Some(simulator.ca_pem())).unwrap();
    pool.push(10..200).await;
    pool.accepted(191).await;
    let settled: HashSet<u32> = pool.sink.outcomes(191).await.into_keys().collect();
    assert_eq!(settled, (0..1).chain(10..200).collect());
}

#[tokio::test]
async fn what_is_the_same_or_cannot_work_changes_nothing() {
    let simulator = simulator(SimulatorConfig::default());
    let credential = || token(simulator.key_id(), simulator.team_id(), simulator.key_pem());
    let pool = Pool::start(&simulator, credential(), |_| {});
    pool.push(0..10).await;
    pool.accepted(10).await;
    assert!(!pool.gateway.reload(credential(), Some(simulator.ca_pem())).unwrap());
    let broken = pool.gateway.reload(credential(), Some("no certificate"));
    assert!(matches!(broken, Err(AccessError::Certificates)));
    pool.push(10..20).await;
    pool.accepted(20).await;
    assert_eq!(simulator.ledger().summary().connections, 1);
    // Other certificates to trust are a difference, too.
    let both = format!("{}{}", simulator.ca_pem(), PushAuthority::new().unwrap().ca_pem());
    assert!(pool.gateway.reload(credential(), Some(&both)).unwrap());
    pool.push(20..30).await;
    pool.accepted(30).await;
    assert_eq!(ledger(&simulator), each_once(0..30));
    pool.drain().await;
}

/// Waits until the simulator has recorded so many.
async fn until_recorded(simulator: &ApnsSimulator, count: u64) {
    let recorded = async {
        while simulator.ledger().accepted_total() < count {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, recorded).await.unwrap();
}

#[tokio::test]
async fn at_most_two_leave_beside_the_one_that_works() {
    let simulator = simulator(SimulatorConfig {
        faults: Faults { delay_ms: 60_000, ..Faults::default() },
        ..SimulatorConfig::default()
    });
    let mut keys = vec![token(simulator.key_id(), simulator.team_id(), simulator.key_pem())];
    for name in ["SECONDKEY1", "THIRDKEY01", "FOURTHKEY1", "FIFTHKEY01", "SIXTHKEY01"] {
        keys.push(token(name, simulator.team_id(), &simulator.add_key(name, simulator.team_id()).unwrap()));
    }
    let pool = Pool::start(&simulator, keys[0].clone(), |config| {
        config.answer_timeout = Duration::from_secs(1);
        config.stall_timeout = Duration::from_secs(2); // Requests are given up at its quarters.
    });
    let reload = |number: usize| pool.gateway.reload(keys[number].clone(), Some(simulator.ca_pem())).unwrap();
    // Three connections, each with a request that is not answered: two leave, one works.
    for number in 0..3 {
        pool.push([number]).await;
        until_recorded(&simulator, u64::from(number) + 1).await;
        assert!(reload(number as usize + 1));
    }
    // The fourth is made only when one of them has given up its request.
    pool.push([3]).await;
    let fourth = async {
        while !ledger(&simulator).contains_key(&3) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, fourth).await.unwrap();
    assert!(pool.repeats("unknown") > 0, "three leave at a time");
    simulator.set_faults(Faults::default()).unwrap();
    assert!(reload(4) && reload(5));
    pool.push(4..50).await;
    pool.accepted(50).await;
    assert!(simulator.ledger().summary().rejected.is_empty());
    let got = ledger(&simulator);
    assert!((0..4).all(|device| got[&device] >= 2) && (4..50).all(|device| got[&device] == 1), "{got:?}");
    pool.drain().await;
}

#[tokio::test]
async fn a_credential_that_never_works_costs_nothing_when_the_old_one_returns() {
    let simulator = simulator(SimulatorConfig { faults: slow(), ..SimulatorConfig::default() });
    let old = || token(simulator.key_id(), simulator.team_id(), simulator.key_pem());
    let pool = Pool::start(&simulator, old(), |config| {
        (config.connection_count_min, config.connection_count_max) = (2, 2);
    });
    pool.push(0..200).await;
    let stranger = token("STRANGEKEY", simulator.team_id(), &crate::key_pem());
    assert!(pool.gateway.reload(stranger, Some(simulator.ca_pem())).unwrap());
    pool.push(200..400).await;
    until_refused(&simulator, Reason::InvalidProviderToken).await;
    pool.until_told().await;
    assert!(pool.gateway.reload(old(), Some(simulator.ca_pem())).unwrap());
    pool.accepted(400).await;
    assert_eq!(ledger(&simulator), each_once(0..400));
    pool.drain().await;
}

#[tokio::test]
async fn a_drain_right_after_a_change_sends_all() {
    let simulator = simulator(SimulatorConfig { faults: slow(), ..SimulatorConfig::default() });
    let second = simulator.add_key("SECONDKEY1", simulator.team_id()).unwrap();
    let pool = Pool::start(&simulator, token(simulator.key_id(), simulator.team_id(), simulator.key_pem()), |_| {});
    pool.push(0..400).await;
    until_recorded(&simulator, 50).await;
    pool.gateway.reload(token("SECONDKEY1", simulator.team_id(), &second), Some(simulator.ca_pem())).unwrap();
    pool.drain().await;
    assert_eq!(ledger(&simulator), each_once(0..400));
}

#[tokio::test]
async fn connections_that_are_told_to_go_before_they_were_answered_are_replaced_at_once() {
    let faults = Faults { delay_ms: 30, goaway_every: 1, ..Faults::default() };
    let simulator = simulator(SimulatorConfig { faults, ..SimulatorConfig::default() });
    let pool = Pool::start(&simulator, token(simulator.key_id(), simulator.team_id(), simulator.key_pem()), |_| {});
    pool.push(0..15).await;
    pool.accepted(15).await;
    assert_eq!(ledger(&simulator), each_once(0..15));
    pool.drain().await;
}

#[tokio::test]
async fn a_small_window_is_used_again_and_again_and_the_books_about_it_stay_right() {
    let faults = Faults { connection_window_bytes: 65_535, stream_window_bytes: 65_535, ..slow() };
    let simulator = simulator(SimulatorConfig { faults, ..SimulatorConfig::default() });
    let (key_id, team_id) = (simulator.key_id().to_owned(), simulator.team_id().to_owned());
    let pool = Pool::start(&simulator, token(&key_id, &team_id, simulator.key_pem()), |_| {});
    // Some twenty to a window, fifty windows.
    pool.push_text(0..500, &"x".repeat(3000)).await;
    pool.push(500..1000).await;
    pool.push_text(1000..1500, &"x".repeat(3000)).await;
    pool.accepted(1500).await;
    assert_eq!(ledger(&simulator), each_once(0..1500));
    assert_eq!([pool.repeats("unknown"), pool.repeats("not_processed")], [0, 0]);
    let summary = simulator.ledger().summary();
    assert_eq!((summary.stream_limit_violations, summary.connections), (0, 1));
    pool.drain().await;
}

#[tokio::test]
async fn a_provider_that_goes_away_is_told() {
    let provider = simulator(SimulatorConfig::default());
    let credential = token(provider.key_id(), provider.team_id(), provider.key_pem());
    let pool = Pool::start(&provider, credential, |_| {});
    pool.until(Condition::Connected).await;
    drop(provider);
    pool.until(Condition::BreakerOpen).await;
}
