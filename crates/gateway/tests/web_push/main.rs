//! The gateway to browsers against push services that misbehave, names that lie and addresses that must not be reached.

mod browser;
mod http2;
mod net;
mod service;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use browser::{Browser, verify};
use bytes::Bytes;
use net::{HOLE, LOCAL, NOBODY, Net, PUBLIC};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};
use service::{DOMAIN, PushService, Reply, Request, Script};
use tidings_gateway::{AccessError, StartError, WebPushConfig, WebPushGateway, WebPushService};
use tidings_push::payload::{Encoded, WebPushBody};
use tidings_push::web_push::Reason;
use tidings_push::web_push::guard::EndpointRules;
use tidings_push::web_push::vapid::{VapidKey, VapidTokens};
use tidings_push::{
    JobStanding, Lakes, Notification, Outcome, OutcomeSink, PoolGauge, Rendering, RenderingParts, Settled, Standing,
    Ticket,
};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, EventId, EventPriority, JournalPosition, NotificationId,
    Timestamp, Urgency,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, timeout};

/// What must have happened by then; far more than any test needs.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Every job but these goes on.
const CANCELLED_JOB: JournalPosition = JournalPosition(13);
/// Of this one devices with even numbers have got something newer.
const OUTDATED_JOB: JournalPosition = JournalPosition(14);
/// This one is cancelled when the test says so.
const STOPPED_JOB: JournalPosition = JournalPosition(15);
const JOB: JournalPosition = JournalPosition(1);
/// RFC 8291's sender.
const KEY: &str = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw";
const PUBLIC_KEY: &str = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8";
/// Another one.
const OTHER_KEY: &str = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
const CONTACT: &str = "mailto:push@example.org";

#[derive(Default)]
struct Sink {
    settled: Mutex<Vec<Settled>>,
    changed: Notify,
    is_stopped: AtomicBool,
}

impl OutcomeSink for Sink {
    fn settle(&self, settled: &mut Vec<Settled>) {
        self.settled.lock().unwrap().append(settled);
        self.changed.notify_waiters();
    }

    fn job_standing(&self, job: JournalPosition) -> JobStanding {
        match job {
            CANCELLED_JOB => JobStanding::Cancelled,
            STOPPED_JOB if self.is_stopped.load(Ordering::Relaxed) => JobStanding::Cancelled,
            OUTDATED_JOB => JobStanding::AskEach,
            _ => JobStanding::Go,
        }
    }

    fn standing(&self, ticket: Ticket) -> Standing {
        assert_eq!(ticket.job, OUTDATED_JOB, "others are not asked about");
        if ticket.device.0.is_multiple_of(2) { Standing::Superseded } else { Standing::Go }
    }
}

impl Sink {
    fn count(&self) -> usize {
        self.settled.lock().unwrap().len()
    }

    /// Waits for so many outcomes and returns them by device; two for one device are a failure.
    async fn outcomes(&self, count: usize) -> HashMap<u32, Settled> {
        let all_there = async {
            loop {
                let changed = self.changed.notified();
                if self.count() >= count {
                    return;
                }
                changed.await;
            }
        };
        if timeout(PATIENCE, all_there).await.is_err() {
            panic!("{} of {count} outcomes came", self.count());
        }
        let settled = self.settled.lock().unwrap();
        let by_device: HashMap<_, _> = settled.iter().map(|it| (it.ticket.device.0, it.clone())).collect();
        assert_eq!((by_device.len(), settled.len()), (count, count), "one outcome for each");
        by_device
    }
}

struct Setup {
    service: PushService,
    net: Arc<Net>,
    sink: Arc<Sink>,
    lakes: Lakes,
    browser: Browser,
    gateway: WebPushGateway,
    registry: Registry,
}

fn vapid(key: &str) -> Arc<VapidTokens> {
    Arc::new(VapidTokens::new(VapidKey::new(key, CONTACT).unwrap()))
}

fn rules(ports: &[u16]) -> EndpointRules {
    EndpointRules::new([DOMAIN, "*.push.example"], ports.iter().copied()).unwrap()
}

fn config(ca_pem: String, net: Arc<Net>) -> WebPushConfig {
    WebPushConfig {
        name: "browsers".to_owned(),
        vapid: vapid(KEY),
        ca_pem: Some(ca_pem),
        connection_count_max: 4,
        held_max: 3000,
        thread_count: 2,
        connect_timeout: Duration::from_secs(2),
        answer_timeout: Duration::from_secs(5),
        idle_timeout: Duration::from_secs(30),
        network: net,
    }
}

fn browsers(lakes: Lakes) -> WebPushService {
    let (name, gauge) = ("browsers".to_owned(), Arc::default());
    WebPushService { name, rules: rules(&[]), origin_count_max: 100, lakes, gauge }
}

async fn setup(script: Script, adapt: impl FnOnce(&mut WebPushConfig, &Net)) -> Setup {
    setup_for(script, |config, _, net| adapt(config, net)).await
}

async fn setup_for(script: Script, adapt: impl FnOnce(&mut WebPushConfig, &mut WebPushService, &Net)) -> Setup {
    let service = PushService::start(script).await;
    let net = Arc::new(Net::new(service.address));
    let (sink, lakes, registry) = (Arc::<Sink>::default(), Lakes::new(8192), Registry::new());
    let (mut config, mut services) = (config(service.ca_pem.clone(), Arc::clone(&net)), browsers(lakes.clone()));
    adapt(&mut config, &mut services, &net);
    let gateway = WebPushGateway::start(config, vec![services], Arc::clone(&sink) as _, &registry).unwrap();
    Setup { service, net, sink, lakes, browser: Browser::new(), gateway, registry }
}

fn always(status: u16) -> Script {
    Arc::new(move |_| Reply::status(status))
}

/// By the last part of the target, the device's number.
fn by_device(reply: impl Fn(u32, &Request) -> Reply + Send + Sync + 'static) -> Script {
    Arc::new(move |request| reply(device_of(request), request))
}

fn device_of(request: &Request) -> u32 {
    request.target.rsplit('/').next().unwrap().parse().unwrap()
}

fn in_a_while() -> Timestamp {
    unix_now().saturating_add(Duration::from_secs(600))
}

fn text_for(device: u32) -> Bytes {
    Bytes::from(format!(r#"{{"title":"Goal for {device}"}}"#))
}

fn to(token: DeviceToken, device: u32, job: JournalPosition, expires_at: Timestamp) -> Notification {
    let parts = RenderingParts {
        app: AppId::new("org.example.scores").unwrap(),
        expires_at,
        collapse_id: CollapseKey::new("match-7").unwrap(),
    };
    let body = WebPushBody { bytes: text_for(device), urgency: Some(Urgency::Normal) };
    Notification {
        id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new(&format!("device-{device}")).unwrap()),
        token,
        rendering: Arc::new(Rendering::new(parts, Encoded::WebPush(body))),
        ticket: Ticket { job, device: DeviceNumber(device), cell: 0 },
        queued_at: unix_now(),
    }
}

impl Setup {
    fn notification(&self, host: &str, device: u32) -> Notification {
        self.with(host, device, JOB, in_a_while())
    }

    fn with(&self, host: &str, device: u32, job: JournalPosition, expires_at: Timestamp) -> Notification {
        to(self.browser.subscription(&format!("https://{host}/push/{device}")), device, job, expires_at)
    }

    async fn push(&self, notifications: impl IntoIterator<Item = Notification>) {
        let lake = self.lakes.of(EventPriority::Normal);
        lake.push_batch(&mut notifications.into_iter().collect()).await.unwrap();
    }

    /// Ends the gateway; everything must be settled.
    async fn drain(self) -> PushService {
        let drained = self.gateway.drain(Instant::now() + PATIENCE).await;
        assert_eq!(drained.unsettled, 0);
        self.service
    }
}

fn outcomes_of(settled: &HashMap<u32, Settled>) -> HashMap<u32, Outcome> {
    settled.iter().map(|(device, it)| (*device, it.outcome)).collect()
}

fn rejected(reason: Reason) -> Outcome {
    Outcome::Rejected(reason.into())
}

#[tokio::test]
async fn a_browser_can_read_it_and_the_service_knows_who_sends() {
    let setup = setup(always(201), |_, _| {}).await;
    let hosts = ["push.example", "eu.push.example"];
    let from = unix_now();
    setup.push((0..100).map(|device| setup.notification(hosts[device as usize % 2], device))).await;
    let outcomes = setup.sink.outcomes(100).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted && it.repeats == 0));
    let mut bodies = HashSet::new();
    let requests = setup.service.log(|log| log.requests.clone());
    assert_eq!(requests.len(), 100);
    for request in &requests {
        let device = device_of(request);
        assert_eq!(request.host, hosts[device as usize % 2]);
        assert_eq!(setup.browser.decrypt(&request.body), text_for(device));
        assert!(bodies.insert(request.body[..86].to_vec()), "a salt and a key of its own");
        let header = |name: &str| request.headers[name].as_str();
        assert_eq!((header("content-encoding"), header("urgency")), ("aes128gcm", "normal"));
        assert_eq!(header("topic").len(), 32);
        assert!((590..=600).contains(&header("ttl").parse().unwrap()), "{}", header("ttl"));
        let signed = verify(header("authorization"), from.as_secs() as i64);
        assert_eq!(signed.audience, format!("https://{}", request.host));
        assert_eq!((&*signed.contact, &*signed.key), (CONTACT, PUBLIC_KEY));
        assert!((0..=24 * 3600).contains(&signed.expires_in), "{signed:?}");
    }
    setup.service.log(|log| {
        assert!(log.connections <= 8 && log.per_host_max <= 4, "{} connections", log.connections);
        assert_eq!(log.pipelined, 0);
    });
    let page = setup.registry.prometheus();
    let line = r#"tidings_gateway_settled_total{outcome="accepted",pool="browsers",provider="web_push"} 100"#;
    assert!(page.contains(line), "{page}");
    setup.drain().await;
}

#[tokio::test]
async fn an_answer_decides_what_becomes_of_it() {
    let replies = |device, request: &Request| match device {
        0 => Reply::status(200),
        1 => Reply::status(404),
        2 => Reply::status(410),
        3 => Reply::status(413),
        4 => Reply::status(400),
        5 => Reply::status(403),
        6 if request.before < 2 => Reply::status(503),
        7 if request.before == 0 => Reply::Cut,
        8 if request.before == 0 => Reply::CutInAnswer,
        9 => Reply::Flood(410),
        10 => Reply::with(307, "Location: https://push.example/push/77"),
        11 => Reply::Answer(400, String::new(), r#"{"reason":"VapidPkHashMismatch"}"#.to_owned()),
        12 => Reply::Answer(410, String::new(), "x".repeat(10_000)),
        _ => Reply::status(201),
    };
    let setup = setup(by_device(replies), |_, _| {}).await;
    let since = unix_now();
    setup.push((0..14).map(|device| setup.notification(DOMAIN, device))).await;
    let outcomes = setup.sink.outcomes(14).await;
    let expected = [
        Outcome::Accepted,
        rejected(Reason::SubscriptionGone),
        rejected(Reason::SubscriptionGone),
        rejected(Reason::PayloadTooLarge),
        rejected(Reason::BadRequest),
        rejected(Reason::VapidRefused),
        Outcome::Accepted,
        Outcome::Accepted,
        Outcome::Accepted,
        rejected(Reason::SubscriptionGone),
        rejected(Reason::Other),
        rejected(Reason::VapidKeyMismatch),
        rejected(Reason::SubscriptionGone),
        Outcome::Accepted,
    ];
    for (device, expected) in (0..).zip(expected) {
        let Settled { outcome, token_gone, repeats, .. } = &outcomes[&device];
        assert_eq!(*outcome, expected, "{device}");
        let is_gone = expected == rejected(Reason::SubscriptionGone);
        let token = setup.browser.subscription(&format!("https://{DOMAIN}/push/{device}"));
        assert_eq!(token_gone.as_ref().map(|it| (&it.token, it.at >= since)), is_gone.then_some((&token, true)));
        let sent = setup.service.log(|log| log.requests.iter().filter(|it| device_of(it) == device).count());
        let repeated = match device {
            6 => 2,
            7 | 8 => 1,
            _ => 0,
        };
        assert_eq!((*repeats, sent), (repeated, repeated as usize + 1), "{device}");
    }
    let requests = setup.service.log(|log| log.requests.clone());
    assert!(requests.iter().all(|it| device_of(it) != 77), "no redirect is followed");
    let page = setup.registry.prometheus();
    let refused = r#"tidings_gateway_vapid_refused_total{pool="browsers",provider="web_push"} 1"#;
    assert!(page.contains(refused), "{page}");
    assert!(!page.contains("tidings_gateway_credential_refused_total"), "that one counts connections");
    let salts: HashSet<_> = requests.iter().map(|it| it.body[..86].to_vec()).collect();
    assert_eq!(salts.len(), requests.len(), "a repeat has a salt and a key of its own");
    assert!(requests.iter().all(|it| setup.browser.decrypt(&it.body) == text_for(device_of(it))));
    setup.drain().await;
}

/// A listener on this machine that nobody must come to.
async fn private() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn nobody_came(listener: &TcpListener) -> bool {
    timeout(Duration::from_millis(50), listener.accept()).await.is_err()
}

#[tokio::test]
async fn a_name_that_answers_otherwise_the_next_time_gains_nothing() {
    let (listener, port) = private().await;
    let cuts = Arc::new(|_: &Request| Reply::Cut);
    let host = |name: &str| format!("{name}.push.example:{port}");
    let setup = setup_for(cuts, |config, service, net| {
        service.rules = rules(&[port]);
        config.idle_timeout = Duration::from_millis(1);
        // Each connection makes a look-up of its own.
        net.answer("rebinds.push.example", &[&[PUBLIC], &[LOCAL]]);
        net.answer("mixes.push.example", &[&[LOCAL, PUBLIC, "169.254.169.254".parse().unwrap()]]);
        net.answer("maps.push.example", &[&["::ffff:127.0.0.1".parse().unwrap(), "::1".parse().unwrap()]]);
    })
    .await;
    let soon = unix_now().saturating_add(Duration::from_secs(3));
    setup.push([setup.notification(&host("rebinds"), 0), setup.notification(&host("maps"), 1)]).await;
    setup.push([setup.with(&host("mixes"), 2, JOB, soon)]).await;
    let outcomes = setup.sink.outcomes(3).await;
    assert_eq!(outcomes[&0].outcome, rejected(Reason::AddressNotPublic));
    assert!(outcomes[&0].repeats > 0 && setup.net.look_ups("rebinds.push.example") > 1, "{:?}", outcomes[&0]);
    assert_eq!(outcomes[&1].outcome, rejected(Reason::AddressNotPublic));
    assert_eq!(outcomes[&2].outcome, Outcome::Unknown);
    assert!(setup.service.log(|log| log.requests.iter().filter(|it| device_of(it) == 2).count()) > 1);
    assert_eq!(setup.net.dialled(), HashSet::from([PUBLIC]));
    assert!(nobody_came(&listener).await);
    setup.drain().await;
}

#[tokio::test]
async fn only_allowed_hosts_are_looked_up() {
    let (listener, port) = private().await;
    let setup = setup_for(always(201), |_, service, _| service.rules = rules(&[port])).await;
    let endpoints = [
        format!("https://127.0.0.1:{port}/push"),
        format!("https://127.1:{port}/push"),
        format!("https://2130706433:{port}/push"),
        format!("https://0177.0.0.1:{port}/push"),
        format!("https://0x7f000001:{port}/push"),
        format!("https://0x7f.1:{port}/push"),
        format!("https://[::1]:{port}/push"),
        format!("https://[::ffff:127.0.0.1]:{port}/push"),
        "https://[::ffff:10.0.0.1]/push".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        format!("https://localhost:{port}/push"),
        format!("https://push.example@127.0.0.1:{port}/push"),
        format!("https://push.example:x@localhost:{port}/push"),
        format!("https://push.example.evil.tld:{port}/push"),
        format!("https://evilpush.example:{port}/push"),
        format!("https://evil.tld:{port}/https://push.example/push"),
        format!("https://evil.tld:{port}/.push.example"),
        format!("https://evil.tld:{port}?.push.example"),
        format!("https://evil.tld:{port}#.push.example"),
        format!(r"https://127.0.0.1:{port}\.push.example/push"),
        format!("https://127.0.0.1:{port}%2f.push.example/push"),
        "https://push.example:22/push".to_owned(),
        "https://fcm.googleapis.com/fcm/send/7".to_owned(),
    ];
    // Others cannot even be said.
    for endpoint in ["http://push.example/push", "ftp://push.example/", "//push.example/", "https:///push"] {
        let keys = [&[4; 65][..], &[1; 16]].map(|key| BASE64URL.encode(key));
        assert!(DeviceToken::web_push(endpoint, &keys[0], &keys[1]).is_err(), "{endpoint}");
    }
    for (device, endpoint) in (0..).zip(&endpoints) {
        setup.push([to(setup.browser.subscription(endpoint), device, JOB, in_a_while())]).await;
    }
    let no_point =
        DeviceToken::web_push("https://push.example/push/9", &BASE64URL.encode([4; 65]), &BASE64URL.encode([1; 16]))
            .unwrap();
    setup.push([setup.notification(DOMAIN, 98), to(no_point, 99, JOB, in_a_while())]).await;
    let outcomes = setup.sink.outcomes(endpoints.len() + 2).await;
    for (device, endpoint) in (0..).zip(&endpoints) {
        assert_eq!(outcomes[&device].outcome, rejected(Reason::ForbiddenEndpoint), "{endpoint}");
    }
    assert!(outcomes.values().all(|it| it.token_gone.is_none()));
    assert_eq!(outcomes[&98].outcome, Outcome::Accepted);
    assert_eq!(outcomes[&99].outcome, rejected(Reason::BadSubscriptionKey));
    assert_eq!(setup.service.log(|log| log.requests.len()), 1);
    assert_eq!((setup.net.dialled(), setup.net.look_ups(DOMAIN)), (HashSet::from([PUBLIC]), 1));
    assert!(nobody_came(&listener).await);
    setup.drain().await;
}

#[tokio::test]
async fn a_name_of_an_address_inside_is_not_connected_to_whatever_its_form() {
    let addresses = [
        "127.0.0.1",
        "10.0.0.1",
        "172.16.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "::ffff:10.0.0.1",
        "::10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::1",
        "2001:0:a00:1::1",
        "fd00::1",
        "fe80::1",
        "ff02::1",
    ];
    let setup = setup(always(201), |_, net| {
        for (number, address) in addresses.iter().enumerate() {
            net.answer(&format!("inside-{number}.push.example"), &[&[address.parse().unwrap()]]);
        }
    })
    .await;
    let notification = |number: usize| setup.notification(&format!("inside-{number}.push.example"), number as u32);
    setup.push((0..addresses.len()).map(notification)).await;
    let outcomes = setup.sink.outcomes(addresses.len()).await;
    for (device, address) in (0..).zip(addresses) {
        assert_eq!(outcomes[&device].outcome, rejected(Reason::AddressNotPublic), "{address}");
        assert!(outcomes[&device].token_gone.is_none(), "{address}");
    }
    assert_eq!(setup.net.dialled(), HashSet::new());
    setup.drain().await;
}

#[tokio::test]
async fn a_redirect_leads_nowhere() {
    let (listener, port) = private().await;
    let inside = format!("Location: https://127.0.0.1:{port}/push/77");
    let replies = move |device, _: &Request| match device {
        0..5 => Reply::with([301, 302, 303, 307, 308][device as usize], &inside),
        5 => Reply::with(307, "Location: https://other.push.example/push/77"),
        _ => Reply::with(201, &inside), // The message's own address, which nobody asks for.
    };
    let setup = setup(by_device(replies), |_, _| {}).await;
    setup.push((0..7).map(|device| setup.notification(DOMAIN, device))).await;
    let outcomes = setup.sink.outcomes(7).await;
    assert!((0..6).all(|device| outcomes[&device].outcome == rejected(Reason::Other)), "{outcomes:?}");
    assert_eq!(outcomes[&6].outcome, Outcome::Accepted);
    assert_eq!((setup.net.dialled(), setup.net.look_ups("other.push.example")), (HashSet::from([PUBLIC]), 0));
    assert_eq!(setup.service.log(|log| log.requests.len()), 7);
    assert!(nobody_came(&listener).await);
    setup.drain().await;
}

#[tokio::test]
async fn a_service_must_prove_to_be_the_host() {
    let setup = setup(always(201), |_, _| {}).await;
    let soon = unix_now().saturating_add(Duration::from_secs(2));
    // The certificate is for one label below the domain.
    setup.push([setup.with("two.labels.push.example", 0, JOB, soon)]).await;
    assert_eq!(setup.sink.outcomes(1).await[&0].outcome, Outcome::Expired);
    assert!(setup.net.dialled().contains(&PUBLIC));
    assert_eq!(setup.service.log(|log| log.requests.len()), 0);
    setup.drain().await;
}

#[tokio::test]
async fn connections_are_kept_for_a_while_and_not_for_ever() {
    let setup = setup(always(201), |config, _| config.idle_timeout = Duration::from_millis(1500)).await;
    for device in 0..20 {
        setup.push([setup.notification(DOMAIN, device)]).await;
        setup.sink.outcomes(device as usize + 1).await;
    }
    assert_eq!(setup.service.log(|log| log.connections), 1, "one after the other needs one");
    setup.service.until(|log| log.open.is_empty()).await;
    setup.push([setup.notification(DOMAIN, 20)]).await;
    setup.sink.outcomes(21).await;
    assert_eq!(setup.service.log(|log| log.connections), 2);
    setup.drain().await;
}

#[tokio::test]
async fn a_connection_that_broke_off_while_it_was_idle_costs_the_next_request_nothing() {
    let too_long = Reply::Drip("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{} and more".to_owned());
    let script = by_device(move |device, _| if device % 2 == 0 { too_long.clone() } else { Reply::status(201) });
    let setup = setup(script, |_, _| ()).await;
    for device in 0..6 {
        setup.push([setup.notification(DOMAIN, device)]).await;
        setup.sink.outcomes(device as usize + 1).await;
        if device % 2 == 0 {
            setup.service.until(|log| log.open.is_empty()).await;
        }
    }
    let page = setup.registry.prometheus();
    let mut repeats = page.lines().filter(|line| line.starts_with("tidings_gateway_repeats_total")).peekable();
    assert!(repeats.peek().is_some() && repeats.all(|line| line.ends_with(" 0")), "{page}");
    setup.drain().await;
}

#[tokio::test]
async fn for_development_private_addresses_can_be_admitted() {
    let (listener, port) = private().await;
    let setup = setup_for(always(201), |_, service, net| {
        service.rules = rules(&[port]).admitting_private();
        net.answer("dev.push.example", &[&[LOCAL]]);
    })
    .await;
    setup.push([setup.notification(&format!("dev.push.example:{port}"), 0)]).await;
    timeout(PATIENCE, listener.accept()).await.expect("it is connected to").unwrap();
    assert_eq!(setup.net.dialled(), HashSet::from([LOCAL]));
    drop(setup);
}

#[tokio::test]
async fn a_dead_origin_delays_no_other() {
    let setup =
        setup(by_device(|device, _| if device < 200 { Reply::Stall } else { Reply::status(201) }), |config, net| {
            config.answer_timeout = Duration::from_secs(60);
            config.connect_timeout = Duration::from_secs(60);
            net.answer("hole.push.example", &[&[HOLE]]);
            net.answer("nobody.push.example", &[&[NOBODY]]);
        })
        .await;
    setup.push((0..100).map(|device| setup.notification("stalls.push.example", device))).await;
    setup.push((100..200).map(|device| setup.notification("hole.push.example", device))).await;
    setup.push((300..400).map(|device| setup.notification("nobody.push.example", device))).await;
    setup.service.until(|log| log.open.get("stalls.push.example") == Some(&4)).await;
    setup.push((400..600).map(|device| setup.notification("well.push.example", device))).await;
    let outcomes = setup.sink.outcomes(200).await;
    assert!(outcomes.iter().all(|(device, it)| *device >= 400 && it.outcome == Outcome::Accepted));
    setup.service.log(|log| {
        let stalled = log.requests.iter().filter(|it| device_of(it) < 200).count();
        assert_eq!((stalled, log.open["stalls.push.example"]), (4, 4), "it has no more than its own connections");
    });
    let drained = setup.gateway.drain(Instant::now()).await;
    assert_eq!(drained.unsettled, 300, "counted as left behind");
}

/// All services of a gateway share its threads and nothing else.
#[tokio::test]
async fn a_service_that_takes_nothing_delays_no_other_service() {
    let replies = |device, _: &Request| if device < 200 { Reply::Stall } else { Reply::status(201) };
    let service = PushService::start(by_device(replies)).await;
    let (sink, dead, well) = (Arc::<Sink>::default(), Lakes::new(8192), Lakes::new(8192));
    let mut config = config(service.ca_pem.clone(), Arc::new(Net::new(service.address)));
    (config.thread_count, config.held_max, config.answer_timeout) = (1, 3 * 40, Duration::from_secs(60));
    let named = |name: &str, lakes: &Lakes| WebPushService { name: name.to_owned(), ..browsers(lakes.clone()) };
    let services = vec![named("dead", &dead), named("well", &well)];
    let gateway = WebPushGateway::start(config, services, Arc::clone(&sink) as _, &Registry::new()).unwrap();
    let browser = Browser::new();
    let push = async |lakes: &Lakes, host: &str, devices: std::ops::Range<u32>| {
        let token = |device| browser.subscription(&format!("https://{host}/push/{device}"));
        let mut batch = devices.map(|device| to(token(device), device, JOB, in_a_while())).collect();
        lakes.of(EventPriority::Normal).push_batch(&mut batch).await.unwrap();
    };
    push(&dead, "stalls.push.example", 0..200).await;
    service.until(|log| log.open.get("stalls.push.example") == Some(&4)).await;
    push(&well, DOMAIN, 200..500).await;
    let outcomes = sink.outcomes(300).await;
    assert!(outcomes.iter().all(|(device, it)| *device >= 200 && it.outcome == Outcome::Accepted));
    assert!(dead.held() > 100, "it holds all that it may, and the rest waits in its lake");
    assert_eq!(gateway.drain(Instant::now()).await.unsettled, 200, "of both, held and in the lakes");
}

#[tokio::test]
async fn a_thousand_origins_share_a_hundred_places() {
    let setup = setup(always(201), |config, _| config.held_max = 6000).await;
    let host = |device: u32| format!("o{}.push.example", device % 1000);
    setup.push((0..2000).map(|device| setup.notification(&host(device), device))).await;
    let outcomes = setup.sink.outcomes(2000).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted));
    let hosts_max = setup.service.log(|log| log.hosts_max);
    // The service hears of a connection's end a little later than its successor's beginning.
    assert!(hosts_max <= 200, "{hosts_max} origins had connections at a time");
    setup.drain().await;
}

#[tokio::test]
async fn a_pause_holds_for_one_origin() {
    let replies = |device, request: &Request| match device {
        0..100 => Reply::with(429, "Retry-After: 3600"),
        110..120 => Reply::with(429, "Retry-After: 300"),
        100..103 if request.before == 0 => Reply::with(503, "Retry-After: 1"),
        _ => Reply::status(201),
    };
    let setup = setup(by_device(replies), |_, _| {}).await;
    let soon = unix_now().saturating_add(Duration::from_secs(4));
    setup.push((0..50).map(|device| setup.notification("full.push.example", device))).await;
    setup.push((50..75).map(|device| setup.with("full.push.example", device, JOB, soon))).await;
    setup.push((75..100).map(|device| setup.with("full.push.example", device, STOPPED_JOB, in_a_while()))).await;
    setup.push((100..103).map(|device| setup.notification("busy.push.example", device))).await;
    setup.push((110..120).map(|device| setup.with("long.push.example", device, STOPPED_JOB, in_a_while()))).await;
    setup.push((200..400).map(|device| setup.notification("well.push.example", device))).await;
    setup.service.until(|log| log.requests.len() >= 208).await;
    setup.sink.is_stopped.store(true, Ordering::Relaxed);
    let mut all = setup.sink.outcomes(267).await;
    // Four of them were asked for and would still be in time.
    assert!((110..120).all(|device| all.remove(&device).unwrap().outcome == Outcome::Cancelled));
    assert!(all.iter().all(|(device, it)| *device < 100 || it.outcome == Outcome::Accepted));
    assert!((100..103).any(|device| all[&device].repeats == 1), "the one that was refused");
    let full = |range: std::ops::Range<u32>, outcome| range.filter(|it| all[it].outcome == outcome).count();
    // What would have to wait for longer than it lives is over at once; while nothing is sent, queues are looked
    // through.
    assert_eq!(all.keys().filter(|device| **device < 50).count(), 4, "those that were under way");
    assert!(all.iter().all(|(device, it)| *device >= 50 || it.outcome == Outcome::Expired));
    assert_eq!((full(50..75, Outcome::Expired), full(75..100, Outcome::Cancelled)), (25, 25));
    let asked = setup.service.log(|log| log.requests.iter().filter(|it| it.host == "full.push.example").count());
    assert_eq!(asked, 4);
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 46);
}

#[tokio::test]
async fn a_subscription_that_gets_too_much_waits_and_its_origin_does_not() {
    let replies = |device, request: &Request| match device {
        0 => Reply::status(429),
        1 if request.before < 4 => Reply::status(503),
        _ => Reply::status(201),
    };
    let setup = setup(by_device(replies), |_, _| {}).await;
    setup.push([setup.notification("full.push.example", 0)]).await;
    setup.service.until(|log| log.requests.len() == 1).await;
    setup.push((2..50).map(|device| setup.notification("full.push.example", device))).await;
    setup.push([setup.notification("sick.push.example", 1)]).await;
    let outcomes = setup.sink.outcomes(49).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted));
    assert_eq!(setup.service.log(|log| log.requests.iter().filter(|it| device_of(it) == 0).count()), 1);
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 1);
}

#[tokio::test]
async fn a_look_up_that_fails_says_nothing_of_addresses() {
    let setup =
        setup(by_device(|device, _| if device == 0 { Reply::Stall } else { Reply::status(201) }), |config, net| {
            config.answer_timeout = Duration::from_secs(60);
            net.answer("turns.push.example", &[&[PUBLIC], &[LOCAL], &[], &[PUBLIC]]);
        })
        .await;
    // As long as it has a connection, what was found out of its name is shared.
    setup.push([setup.notification("turns.push.example", 0)]).await;
    setup.service.until(|log| log.requests.len() == 1).await;
    setup.push([setup.notification("turns.push.example", 1)]).await;
    assert_eq!(setup.sink.outcomes(1).await[&1].outcome, rejected(Reason::AddressNotPublic));
    setup.push([setup.notification("turns.push.example", 2)]).await;
    let outcome = &setup.sink.outcomes(2).await[&2];
    assert_eq!((outcome.outcome, outcome.repeats), (Outcome::Accepted, 1));
    assert_eq!(setup.net.look_ups("turns.push.example"), 4);
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 1);
}

#[tokio::test]
async fn each_attempt_is_told_of_its_own_look_up() {
    let setup = setup(always(201), |_, net| {
        net.answer("inside.push.example", &[&[LOCAL]]);
        net.delay_look_ups(Duration::from_millis(5)); // The next one is under way when an attempt ends.
    })
    .await;
    setup.push((0..40).map(|device| setup.notification("inside.push.example", device))).await;
    let outcomes = setup.sink.outcomes(40).await;
    let is_told_at_once = |it: &Settled| (it.outcome, it.repeats) == (rejected(Reason::AddressNotPublic), 0);
    assert!(outcomes.values().all(is_told_at_once), "{outcomes:?}");
    setup.drain().await;
}

#[tokio::test]
async fn what_is_not_wanted_any_more_is_not_sent() {
    let setup =
        setup(by_device(|_, request| Reply::status(if request.before == 0 { 503 } else { 201 })), |config, net| {
            config.connection_count_max = 1;
            net.answer("nobody.push.example", &[&[NOBODY]]);
        })
        .await;
    let soon = unix_now().saturating_add(Duration::from_millis(1500));
    setup.push([setup.with(DOMAIN, 1, JOB, Timestamp(1)), setup.with(DOMAIN, 2, CANCELLED_JOB, in_a_while())]).await;
    setup.push([3, 4].map(|device| setup.with(DOMAIN, device, OUTDATED_JOB, in_a_while()))).await;
    // Where nothing is sent at all, queues are looked through.
    setup.push((10..20).map(|device| setup.with("nobody.push.example", device, JOB, soon))).await;
    setup.push((20..30).map(|device| setup.with("nobody.push.example", device, STOPPED_JOB, in_a_while()))).await;
    let outcomes = outcomes_of(&setup.sink.outcomes(14).await);
    assert_eq!(
        [1, 2, 3, 4].map(|device| outcomes[&device]),
        [Outcome::Expired, Outcome::Cancelled, Outcome::Accepted, Outcome::Superseded]
    );
    assert!((10..20).all(|device| outcomes[&device] == Outcome::Expired));
    setup.sink.is_stopped.store(true, Ordering::Relaxed);
    let outcomes = outcomes_of(&setup.sink.outcomes(24).await);
    assert!((20..30).all(|device| outcomes[&device] == Outcome::Cancelled));
    let sent: HashSet<u32> = setup.service.log(|log| log.requests.iter().map(device_of).collect());
    assert_eq!(sent, HashSet::from([3]));
    setup.drain().await;
}

#[tokio::test]
async fn what_is_over_behind_a_paused_origin_ends_in_the_lake_and_others_pass() {
    let replies = |device, _: &Request| match device {
        0..32 => Reply::with(429, "Retry-After: 300"),
        _ => Reply::status(201),
    };
    // 40 of a priority, 10 of which are kept for what moves up.
    let setup = setup(by_device(replies), |config, _| config.held_max = 3 * 40).await;
    setup.push([setup.notification("full.push.example", 0)]).await;
    setup.service.until(|log| log.requests.len() == 1).await;
    // 29 and the first one are held, and two wait in the lake before all others.
    setup.push((1..32).map(|device| setup.notification("full.push.example", device))).await;
    let soon = unix_now().saturating_add(Duration::from_secs(2));
    setup.push((100..400).map(|device| setup.with("full.push.example", device, JOB, soon))).await;
    setup.push((400..700).map(|device| setup.with("well.push.example", device, STOPPED_JOB, in_a_while()))).await;
    setup.push((700..702).map(|device| setup.notification("well.push.example", device))).await;
    setup.sink.is_stopped.store(true, Ordering::Relaxed);
    let outcomes = outcomes_of(&setup.sink.outcomes(602).await);
    for (devices, outcome) in
        [(100..400, Outcome::Expired), (400..700, Outcome::Cancelled), (700..702, Outcome::Accepted)]
    {
        assert!(devices.clone().all(|device| outcomes[&device] == outcome), "{devices:?}");
    }
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 32, "none that may still be sent is gone");
}

#[tokio::test]
async fn a_goal_is_not_behind_a_newsletter() {
    let setup =
        setup(by_device(|device, _| if device == 0 { Reply::Stall } else { Reply::status(201) }), |config, _| {
            config.connection_count_max = 2;
        })
        .await;
    // One connection is kept busy; all order is the other's.
    setup.push([setup.notification(DOMAIN, 0)]).await;
    setup.service.until(|log| log.requests.len() == 1).await;
    let newsletter = (1..3000).map(|device| setup.notification(DOMAIN, device)).collect::<Vec<_>>();
    let lake = Arc::clone(setup.lakes.of(EventPriority::Low));
    lake.push_batch(&mut { newsletter }).await.unwrap();
    setup.service.until(|log| log.requests.len() > 50).await;
    let goal = setup.notification(DOMAIN, 5000);
    setup.lakes.of(EventPriority::High).push_batch(&mut vec![goal]).await.unwrap();
    setup.service.until(|log| log.requests.iter().any(|it| device_of(it) == 5000)).await;
    assert!(setup.sink.count() < 2999, "the newsletter was not done before");
}

#[tokio::test]
async fn another_key_is_taken_for_what_comes_then() {
    let setup = setup(always(201), |_, _| {}).await;
    setup.push([setup.notification(DOMAIN, 0)]).await;
    setup.sink.outcomes(1).await;
    let same = setup.gateway.reload(vapid(KEY), Some(&setup.service.ca_pem)).unwrap();
    assert!(!same, "other tokens, but of the same key");
    let more = format!("{}\n", setup.service.ca_pem);
    assert!(setup.gateway.reload(vapid(KEY), Some(&more)).unwrap());
    setup.push([setup.notification(DOMAIN, 1)]).await;
    setup.sink.outcomes(2).await;
    let tokens: Vec<_> =
        setup.service.log(|log| log.requests.iter().map(|it| it.headers["authorization"].clone()).collect());
    assert_eq!(tokens[0], tokens[1], "the key is the same, and so is its token");
    let other = vapid(OTHER_KEY);
    let public = other.key().public_key();
    assert!(setup.gateway.reload(Arc::clone(&other), Some(&setup.service.ca_pem)).unwrap());
    assert!(!setup.gateway.reload(Arc::clone(&other), Some(&setup.service.ca_pem)).unwrap());
    let broken = setup.gateway.reload(vapid(KEY), Some("no certificate"));
    assert!(matches!(broken, Err(AccessError::Certificates)));
    setup.push([setup.notification(DOMAIN, 2)]).await;
    setup.sink.outcomes(3).await;
    let keys = setup.service.log(|log| {
        let key = |it: &Request| verify(&it.headers["authorization"], unix_now().as_secs() as i64).key;
        log.requests.iter().map(key).collect::<Vec<_>>()
    });
    assert_eq!(keys, [PUBLIC_KEY, PUBLIC_KEY, &public]);
    setup.drain().await;
}

#[tokio::test]
async fn with_other_certificates_to_trust_connections_are_replaced_in_order() {
    let gate = Arc::new(Semaphore::new(0));
    let held = Reply::Held(Arc::clone(&gate), 201);
    let script = by_device(move |device, _| if device == 1 { held.clone() } else { Reply::status(201) });
    let setup = setup(script, |_, _| {}).await;
    let others = PushService::start(always(201)).await.ca_pem.clone();
    // One connection with a request under way, one without.
    setup.push([setup.notification(DOMAIN, 0), setup.notification(DOMAIN, 1)]).await;
    setup.sink.outcomes(1).await;
    setup.service.until(|log| log.requests.len() == 2 && log.open.get(DOMAIN) == Some(&2)).await;
    // Another key is no reason to part from anybody.
    assert!(setup.gateway.reload(vapid(OTHER_KEY), Some(&setup.service.ca_pem)).unwrap());
    setup.push([setup.notification(DOMAIN, 2)]).await;
    setup.sink.outcomes(2).await;
    assert_eq!(setup.service.log(|log| (log.connections, log.open[DOMAIN])), (2, 2));

    assert!(setup.gateway.reload(vapid(OTHER_KEY), Some(&others)).unwrap());
    setup.service.until(|log| log.open.get(DOMAIN) == Some(&1)).await;
    // Who is not trusted any more gets nothing, over an old connection neither.
    setup.push([setup.with(DOMAIN, 3, JOB, unix_now().saturating_add(Duration::from_millis(500)))]).await;
    assert_eq!(setup.sink.outcomes(3).await[&3].outcome, Outcome::Expired);
    gate.add_permits(1);
    assert_eq!(setup.sink.outcomes(4).await[&1].outcome, Outcome::Accepted, "it was under way");
    setup.service.until(|log| log.open.is_empty()).await;
    assert_eq!(setup.service.log(|log| log.requests.len()), 3);

    assert!(setup.gateway.reload(vapid(OTHER_KEY), Some(&setup.service.ca_pem)).unwrap());
    setup.push([setup.notification(DOMAIN, 4)]).await;
    assert_eq!(setup.sink.outcomes(5).await[&4].outcome, Outcome::Accepted);
    setup.drain().await;
}

/// What a topic header must be: `match-7` and the like have a form of ours, since not all keys could be one.
fn topic_of(collapse_id: &str) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, collapse_id.as_bytes());
    BASE64URL.encode(digest)[..32].to_owned()
}

#[tokio::test]
async fn each_request_says_its_own_life_urgency_and_topic() {
    let replies = |_, request: &Request| match request.before {
        0 => Reply::with(503, "Retry-After: 2"),
        _ => Reply::status(201),
    };
    let setup = setup(by_device(replies), |config, _| config.connection_count_max = 1).await;
    let wanted = [
        (Some(Urgency::VeryLow), "very-low", "match-7", 30),
        (Some(Urgency::Low), "low", "match-8", 100_000),
        (Some(Urgency::Normal), "normal", "match-7", 600),
        (Some(Urgency::High), "high", "news/7+8~", 7200),
        (None, "high", "match-7", 40 * 24 * 3600),
    ];
    let from = unix_now();
    for ((urgency, _, collapse_id, life), device) in wanted.into_iter().zip(0..) {
        let expires_at = from.saturating_add(Duration::from_secs(life));
        let notification = setup.with(DOMAIN, device, JOB, expires_at);
        let parts = RenderingParts {
            collapse_id: CollapseKey::new(collapse_id).unwrap(),
            ..notification.rendering.parts().clone()
        };
        let encoded = Encoded::WebPush(WebPushBody { bytes: text_for(device), urgency });
        setup.push([Notification { rendering: Arc::new(Rendering::new(parts, encoded)), ..notification }]).await;
    }
    let outcomes = setup.sink.outcomes(wanted.len()).await;
    let passed = unix_now().saturating_since(from).as_secs() + 1;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted && it.repeats == 1), "{outcomes:?}");
    for ((_, urgency, collapse_id, life), device) in wanted.into_iter().zip(0..) {
        let requests: Vec<_> = setup
            .service
            .log(|log| log.requests.iter().filter(|it| device_of(it) == device).map(|it| it.headers.clone()).collect());
        let lives: Vec<u64> = requests.iter().map(|it| it["ttl"].parse().unwrap()).collect();
        assert!(lives.iter().all(|it| (life - passed..=life).contains(it)), "{lives:?} of {life}");
        assert!(lives[0] >= lives[1] + 2, "a repeat has less time left: {lives:?}");
        assert!(requests.iter().all(|it| (&*it["urgency"], &*it["topic"]) == (urgency, &*topic_of(collapse_id))));
    }
    setup.drain().await;
}

#[tokio::test]
async fn the_gauge_tells_connections_and_round_trips() {
    let gauge = Arc::<PoolGauge>::default();
    let setup = setup_for(always(201), |_, service, _| service.gauge = Arc::clone(&gauge)).await;
    assert_eq!((gauge.per_second(), gauge.round_trip()), (None, None));
    let hosts = ["push.example", "eu.push.example"];
    setup.push((0..20).map(|device| setup.notification(hosts[device as usize % 2], device))).await;
    setup.sink.outcomes(20).await;
    let told = async {
        let connections = || Some((gauge.per_second()? * gauge.round_trip()?.as_secs_f64()).round() as u64);
        while connections() != Some(8) {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, told).await.expect("two origins of four connections each");
    setup.drain().await;
}

#[tokio::test]
async fn the_metric_of_failing_services_counts_those_that_answered_before() {
    let is_ill = Arc::new(AtomicBool::new(false));
    let replies = {
        let is_ill = Arc::clone(&is_ill);
        move |_, _: &Request| Reply::status(if is_ill.load(Ordering::Relaxed) { 500 } else { 201 })
    };
    let setup = setup(by_device(replies), |_, net| net.answer("nobody.push.example", &[&[NOBODY]])).await;
    let failing = async |count: u64| {
        let line = format!("tidings_gateway_failing_services{{pool=\"browsers\",provider=\"web_push\"}} {count}\n");
        let told = async {
            while !setup.registry.prometheus().contains(&line) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("not {count}: {}", setup.registry.prometheus()));
    };
    setup.push([setup.notification(DOMAIN, 0)]).await;
    setup.sink.outcomes(1).await;
    is_ill.store(true, Ordering::Relaxed);
    setup.push((1..10).map(|device| setup.notification(DOMAIN, device))).await;
    setup.push((10..20).map(|device| setup.notification("nobody.push.example", device))).await;
    failing(1).await;
    is_ill.store(false, Ordering::Relaxed);
    setup.sink.outcomes(10).await;
    failing(0).await;
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 10, "those of the service that never answered");
}

/// Pushes to `count` devices of [`DOMAIN`], all to be accepted in the end; returns how often each was sent.
#[expect(clippy::print_stdout, reason = "the time to recover is for people to read")]
async fn recovers(
    name: &str,
    count: u32,
    reply: impl Fn(u32, &Request) -> Reply + Send + Sync + 'static,
) -> Vec<usize> {
    let setup = setup(by_device(reply), |config, _| config.answer_timeout = Duration::from_secs(1)).await;
    let started = Instant::now();
    setup.push((0..count).map(|device| setup.notification(DOMAIN, device))).await;
    let outcomes = setup.sink.outcomes(count as usize).await;
    println!("{name}: {count} accepted after {:?}", started.elapsed());
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{name}: {outcomes:?}");
    let service = setup.drain().await;
    let requests = |device| service.log(|log| log.requests.iter().filter(|it| device_of(it) == device).count());
    (0..count).map(requests).collect()
}

#[tokio::test]
async fn a_stated_wait_is_kept_in_seconds_and_as_a_date() {
    for status in [503, 429] {
        let started = Instant::now();
        let seconds = move |device, request: &Request| match (device, request.before) {
            (3, 0) => Reply::with(status, "Retry-After: 1"),
            _ => Reply::status(201),
        };
        let sent = recovers(&format!("{status} for a second"), 10, seconds).await;
        assert!(started.elapsed() >= Duration::from_secs(1) && sent[3] == 2, "{sent:?}");
        let until = unix_now().as_secs() + 2;
        let date = httpdate::fmt_http_date(std::time::UNIX_EPOCH + Duration::from_secs(until));
        let until_then = move |device, request: &Request| match (device, request.before) {
            (3, 0) => Reply::with(status, &format!("Retry-After: {date}")),
            _ => Reply::status(201),
        };
        let sent = recovers(&format!("{status} until a date"), 10, until_then).await;
        assert!(unix_now().as_secs() >= until && sent[3] == 2, "{sent:?}");
    }
}

#[tokio::test]
async fn answers_that_come_in_odd_ways_lose_nothing() {
    let accepted = "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}";
    for (name, reply, sent_at_most) in [
        ("slow body", Reply::Drip(accepted.to_owned()), 1),
        ("half-closed after the answer", Reply::HalfClose(accepted.to_owned()), 1),
        ("half-closed without an answer", Reply::HalfClose(String::new()), 2),
        ("content-length too large", Reply::HalfClose(accepted.replace(": 2", ": 20")), 2),
        ("content-length too small", Reply::Drip(accepted.replace(": 2", ": 1")), 2),
        ("content-length twice", Reply::Drip(accepted.replace(": 2", ": 2\r\nContent-Length: 3")), 2),
        ("cut", Reply::Cut, 2),
        ("silent", Reply::Stall, 2),
    ] {
        let third = move |device, request: &Request| match (device, request.before) {
            (3, 0) => reply.clone(),
            _ => Reply::status(201),
        };
        let sent = recovers(name, 10, third).await;
        assert!(sent.iter().enumerate().all(|(device, count)| *count == 1 || device == 3), "{name}: {sent:?}");
        assert!(sent[3] <= sent_at_most, "{name}: {sent:?}");
    }
}

#[tokio::test]
async fn a_gateway_that_cannot_work_does_not_start() {
    let net = Arc::new(Net::new("127.0.0.1:1".parse().unwrap()));
    let pem = PushService::start(always(201)).await.ca_pem;
    let start = |adapt: fn(&mut WebPushConfig, &mut WebPushService)| {
        let (mut config, mut services) = (config(pem.clone(), Arc::clone(&net)), browsers(Lakes::new(1)));
        adapt(&mut config, &mut services);
        WebPushGateway::start(config, vec![services], Arc::<Sink>::default(), &Registry::new()).err()
    };
    assert!(matches!(start(|_, it| it.origin_count_max = 0), Some(StartError::Zero { field: "origin_count_max" })));
    assert!(matches!(start(|it, _| it.held_max = 2), Some(StartError::Zero { field: "held_max" })));
    let broken = start(|it, _| it.ca_pem = Some("no certificate".to_owned()));
    assert!(matches!(broken, Some(StartError::Access(AccessError::Certificates))));
    assert!(start(|_, _| {}).is_none());
}

/// Replies by chance, but the same for the same request of the same seed; and what the service did about it.
fn chaotic(seed: u64, request: &Request) -> (Reply, bool) {
    let mut rng = SmallRng::seed_from_u64(seed ^ u64::from(device_of(request)) << 20 ^ request.before as u64);
    let is_sick = request.host.starts_with("sick");
    match rng.random_range(0..if is_sick { 20 } else { 200 }) {
        0 => (Reply::Cut, true),
        1 => (Reply::Cut, false),
        2 => (Reply::CutInAnswer, true),
        3 => (Reply::Stall, rng.random()),
        4 => (Reply::status(500), false),
        5 => (Reply::with(503, "Retry-After: 1"), false),
        6 => (Reply::status(410), false),
        7 => (Reply::Flood(502), false),
        8 => (Reply::Answer(201, "Connection: close\r\n".to_owned(), String::new()), true),
        9 => (Reply::with(302, "Location: https://push.example/"), false),
        10 => (Reply::Answer(400, "Transfer-Encoding: chunked\r\n".to_owned(), String::new()), false), // Malformed.
        _ => (Reply::status(201), true),
    }
}

async fn chaos(seed: u64) {
    let taken = Arc::new(Mutex::new(HashMap::<u32, usize>::new()));
    let (service_taken, mut rng) = (Arc::clone(&taken), SmallRng::seed_from_u64(seed));
    let script = Arc::new(move |request: &Request| {
        let (reply, takes) = chaotic(seed, request);
        *service_taken.lock().unwrap().entry(device_of(request)).or_default() += usize::from(takes);
        reply
    });
    let setup = setup_for(script, |config, service, net| {
        service.origin_count_max = 3;
        config.held_max = 300;
        config.answer_timeout = Duration::from_millis(500);
        config.connect_timeout = Duration::from_millis(500);
        config.idle_timeout = Duration::from_millis(200);
        net.answer("hole.push.example", &[&[HOLE]]);
        net.answer("nobody.push.example", &[&[NOBODY]]);
        net.answer("inside.push.example", &[&[LOCAL]]);
        net.answer("turns.push.example", &[&[NOBODY], &[PUBLIC]]);
    })
    .await;
    let hosts = ["well", "fine", "good", "sick", "sick2", "hole", "nobody", "inside", "turns"];
    let mut notification = |device| {
        let host = format!("{}.push.example", hosts[rng.random_range(0..hosts.len())]);
        let job = [JOB, JOB, JOB, JOB, CANCELLED_JOB, OUTDATED_JOB][rng.random_range(0..6)];
        let expires_at = unix_now().saturating_add(Duration::from_millis(rng.random_range(1..4000)));
        let expires_at = if host.starts_with("well") { in_a_while() } else { expires_at };
        (setup.with(&host, device, job, expires_at), host)
    };
    let (notifications, at): (Vec<_>, Vec<_>) = (0..1500).map(&mut notification).unzip();
    let levels: Vec<_> = notifications.iter().map(|it| EventPriority::ALL[it.ticket.device.0 as usize % 3]).collect();
    for (notification, level) in notifications.into_iter().zip(levels) {
        setup.lakes.of(level).push_batch(&mut vec![notification]).await.unwrap();
    }
    let outcomes = setup.sink.outcomes(1500).await;
    let taken = taken.lock().unwrap().clone();
    for (device, Settled { ticket, outcome, token_gone, .. }) in &outcomes {
        let (taken, host) = (taken.get(device).copied().unwrap_or_default(), &at[*device as usize]);
        let context = format!("seed {seed}, device {device} at {host}: {outcome:?}, taken {taken} times");
        match outcome {
            Outcome::Accepted => assert!(taken > 0, "{context}"),
            Outcome::Expired | Outcome::Cancelled | Outcome::Superseded => assert_eq!(taken, 0, "{context}"),
            Outcome::Rejected(_) | Outcome::Unknown => {}
        }
        assert_eq!(*outcome == rejected(Reason::SubscriptionGone), token_gone.is_some(), "{context}");
        assert!(ticket.job != CANCELLED_JOB || (taken == 0 && *outcome != Outcome::Accepted), "{context}");
        let dead = ["hole", "nobody", "inside"].iter().any(|it| host.starts_with(it));
        assert!(!dead || taken == 0, "{context}");
        if host.starts_with("well") && ticket.job == JOB {
            assert!(!matches!(outcome, Outcome::Expired | Outcome::Unknown), "{context}");
        }
    }
    setup.service.log(|log| {
        assert!(log.requests.iter().all(|it| setup.browser.decrypt(&it.body) == text_for(device_of(it))));
        assert_eq!(log.pipelined, 0);
    });
    assert_eq!(setup.net.dialled(), HashSet::from([PUBLIC, HOLE, NOBODY]));
    setup.drain().await;
}

#[tokio::test]
async fn nothing_is_lost_and_nothing_is_told_twice() {
    tokio::join!(chaos(1), chaos(2), chaos(3));
}
