//! The gateway against providers that misbehave in every way the protocol allows.

mod credentials;
mod fcm;
mod idle;
mod nasty;
mod panics;
mod peer;
mod push_types;
mod unproven;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use peer::{Behaviour, Peer, Reply, Script, acceptor};
use proptest::prelude::*;
use tidings_buffer::Lake;
use tidings_gateway::{AccessError, Credential, Gateway, GatewayConfig};
use tidings_push::apns::{Apns, ProviderKey, ProviderTokens, Reason};
use tidings_push::payload::{ApnsBody, Encoded};
use tidings_push::{
    JobStanding, Lakes, Notification, Outcome, OutcomeSink, Priority, PushType, Rendering, RenderingParts, Settled,
    Standing, Ticket,
};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, EventId, EventPriority, JournalPosition, NotificationId,
    Timestamp,
};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

/// What must have happened by then; far more than any test needs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Every job but these goes on.
const CANCELLED_JOB: JournalPosition = JournalPosition(13);
/// Of this one devices with even numbers have got something newer.
const OUTDATED_JOB: JournalPosition = JournalPosition(14);

#[derive(Default)]
struct Sink {
    settled: Mutex<Vec<Settled>>,
    changed: Notify,
    /// Nothing is cancelled or outdated yet.
    all_go: AtomicBool,
}

impl OutcomeSink for Sink {
    fn settle(&self, settled: &mut Vec<Settled>) {
        self.settled.lock().unwrap().append(settled);
        self.changed.notify_one();
    }

    fn job_standing(&self, job: JournalPosition) -> JobStanding {
        match job {
            _ if self.all_go.load(Ordering::SeqCst) => JobStanding::Go,
            CANCELLED_JOB => JobStanding::Cancelled,
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
    /// Waits for so many outcomes and returns them by device; two for one device are a failure.
    async fn outcomes(&self, count: usize) -> HashMap<u32, Settled> {
        let all_there = async {
            while self.settled.lock().unwrap().len() < count {
                self.changed.notified().await;
            }
        };
        if timeout(PATIENCE, all_there).await.is_err() {
            panic!("{} of {count} outcomes came", self.settled.lock().unwrap().len());
        }
        let settled = self.settled.lock().unwrap();
        let by_device: HashMap<_, _> = settled.iter().map(|it| (it.ticket.device.0, it.clone())).collect();
        assert_eq!(by_device.len(), settled.len(), "a notification was settled twice");
        by_device
    }
}

struct Setup {
    peer: Peer,
    sink: Arc<Sink>,
    lakes: Lakes,
    /// That of events with no priority of their own.
    lake: Arc<Lake<Notification>>,
    gateway: Gateway,
    registry: Registry,
}

/// A fresh signing key in Apple's form, so that none lies in the repository.
fn key_pem() -> String {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem()
}

fn token(key_id: &str, team_id: &str, key_pem: &str) -> Credential {
    Credential::Token(Arc::new(ProviderTokens::new(ProviderKey::new(key_id, team_id, key_pem).unwrap())))
}

fn config(port: u16, ca_pem: String) -> GatewayConfig {
    GatewayConfig {
        name: "main".to_owned(),
        dialect: Arc::new(Apns::new(&format!("localhost:{port}")).unwrap()),
        host: "127.0.0.1".to_owned(),
        port,
        addresses: Vec::new(),
        server_name: "localhost".to_owned(),
        ca_pem: Some(ca_pem),
        credential: token("ABC123DEFG", "DEF123GHIJ", &key_pem()),
        connection_count_min: 1,
        connection_count_max: 1,
        thread_count: 1,
        streams_max: 1000,
        quota_per_minute: None,
        quota_ramp: Duration::ZERO,
        rate_floor: None,
        connect_timeout: Duration::from_secs(5),
        stall_timeout: Duration::from_secs(10),
        answer_timeout: Duration::from_secs(30),
        ping_idle: Some(Duration::from_secs(600)),
        ping_interval_min: Duration::ZERO,
        gauge: Arc::default(),
    }
}

fn always(reply: Reply) -> Script {
    Arc::new(move |_, _| reply.clone())
}

/// This reply for each device's first request, then 200.
fn first(reply: Reply) -> Script {
    Arc::new(move |_, before| if before == 0 { reply.clone() } else { Reply::Accept })
}

/// This reply to the first request for device 3, 200 for all others.
fn third(reply: Reply) -> Script {
    Arc::new(move |device, before| if (device, before) == (3, 0) { reply.clone() } else { Reply::Accept })
}

fn behaviour(script: Script) -> Behaviour {
    Behaviour {
        script,
        limits: vec![1000],
        limit_every: usize::MAX,
        latency: Duration::from_millis(1),
        stingy: false,
        goodbye: "",
    }
}

async fn setup(behaviour: Behaviour, adapt: impl FnOnce(&mut GatewayConfig)) -> Setup {
    let peer = Peer::start(behaviour).await;
    let mut config = config(peer.address.port(), peer.ca_pem.clone());
    adapt(&mut config);
    let (sink, lakes, registry) = (Arc::<Sink>::default(), Lakes::new(4096), Registry::new());
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &registry).unwrap();
    let lake = Arc::clone(lakes.of(EventPriority::Normal));
    Setup { peer, sink, lakes, lake, gateway, registry }
}

/// A notification whose body is the device's number.
fn notification(device: u32, job: JournalPosition, expires_at: Timestamp) -> Notification {
    let parts = RenderingParts {
        app: AppId::new("org.example.scores").unwrap(),
        expires_at,
        collapse_id: CollapseKey::new("match-7").unwrap(),
    };
    Notification {
        id: NotificationId::new(&EventId::new("goal-1").unwrap(), &DeviceId::new(&format!("device-{device}")).unwrap()),
        token: DeviceToken::Apns(device.to_be_bytes().into()),
        rendering: rendering(parts, Bytes::from(format!("{device:>200}"))),
        ticket: Ticket { job, device: DeviceNumber(device), cell: 0 },
        queued_at: unix_now(),
    }
}

fn rendering(parts: RenderingParts, bytes: Bytes) -> Arc<Rendering> {
    let body = ApnsBody { bytes, push_type: PushType::Alert, priority: Priority::Immediate };
    Arc::new(Rendering::new(parts, Encoded::Apns(body)))
}

/// The same with another body.
fn sized(notification: Notification, payload: Bytes) -> Notification {
    let rendering = rendering(notification.rendering.parts().clone(), payload);
    Notification { rendering, ..notification }
}

impl Setup {
    async fn push(&self, devices: impl IntoIterator<Item = u32>) {
        self.push_for(Duration::from_secs(600), JournalPosition(1), devices).await;
    }

    async fn push_for(&self, life: Duration, job: JournalPosition, devices: impl IntoIterator<Item = u32>) {
        let expires_at = unix_now().saturating_add(life);
        let mut batch = devices.into_iter().map(|it| notification(it, job, expires_at)).collect();
        self.lake.push_batch(&mut batch).await.unwrap();
    }

    async fn drain(self) -> usize {
        self.gateway.drain(Instant::now() + PATIENCE).await.unsettled
    }
}

/// Pushes devices 0 to 9, all of which must be accepted in the end; returns how many requests the peer saw for each.
async fn all_accepted(script: Script, adapt: impl FnOnce(&mut GatewayConfig)) -> (HashMap<u32, usize>, Setup) {
    let setup = setup(behaviour(script), adapt).await;
    setup.push(0..10).await;
    let outcomes = setup.sink.outcomes(10).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted), "{outcomes:?}");
    (setup.peer.log(|log| log.requests.clone()), setup)
}

#[tokio::test]
async fn a_batch_is_accepted_and_leaves_in_few_writes() {
    let setup = setup(behaviour(always(Reply::Accept)), |_| {}).await;
    setup.push(0..1000).await;
    let outcomes = setup.sink.outcomes(1000).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted && it.token_gone.is_none()));
    let (reads, violations, open_max) = setup.peer.log(|log| (log.reads, log.violations, log.open_max));
    assert_eq!(violations, 0);
    assert!(open_max > 100, "at most {open_max} streams were open at once");
    assert!(reads < 60, "1000 requests came in {reads} reads");
    let text = setup.registry.prometheus();
    assert!(
        text.contains(r#"tidings_gateway_settled_total{outcome="accepted",pool="main",provider="apns"} 1000"#),
        "{text}"
    );
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn another_http2_implementations_server_understands_the_request() {
    let (acceptor, ca_pem) = acceptor();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config(listener.local_addr().unwrap().port(), ca_pem);
    let authority = format!("localhost:{}", config.port);
    let (sink, lakes) = (Arc::<Sink>::default(), Lakes::new(16));
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &Registry::new()).unwrap();
    let expected = notification(7, JournalPosition(1), unix_now().saturating_add(Duration::from_secs(60)));
    lakes.of(EventPriority::Low).try_push_batch(&mut vec![expected.clone()]).unwrap();
    let (tcp, _) = listener.accept().await.unwrap();
    let mut server = h2::server::handshake(acceptor.accept(tcp).await.unwrap()).await.unwrap();
    let (request, mut respond) = server.accept().await.unwrap().unwrap();
    let drive = async { while server.accept().await.is_some() {} };
    let serve = async {
        let (head, mut body) = request.into_parts();
        assert_eq!(head.uri, *format!("https://{authority}/3/device/00000007"));
        assert_eq!(head.headers["apns-id"], *expected.id.to_string());
        assert!(head.headers["authorization"].to_str().unwrap().starts_with("bearer ey"));
        assert_eq!(body.data().await.unwrap().unwrap(), expected.rendering.payload());
        assert!(body.is_end_stream());
        respond.send_response(http::Response::new(()), true).unwrap();
        sink.outcomes(1).await
    };
    let outcomes = tokio::select! { () = drive => panic!("the gateway hung up"), outcomes = serve => outcomes };
    assert_eq!(outcomes[&7].outcome, Outcome::Accepted);
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
}

#[tokio::test]
async fn a_dead_token_is_reported_with_the_moment_of_its_death() {
    let script: Script = Arc::new(|device, _| match device {
        0 => Reply::Refuse(410, r#"{"reason":"Unregistered","timestamp":1700000000000}"#.to_owned()),
        1 => Reply::refuse(400, "BadDeviceToken"),
        2 => Reply::refuse(413, "PayloadTooLarge"),
        _ => Reply::Accept,
    });
    let setup = setup(behaviour(script), |_| {}).await;
    setup.push(0..4).await;
    let outcomes = setup.sink.outcomes(4).await;
    assert_eq!(outcomes[&0].outcome, Outcome::Rejected(Reason::Unregistered.into()));
    let gone = outcomes[&0].token_gone.clone().unwrap();
    assert_eq!((gone.token.as_bytes(), gone.at), (&[0; 4][..], Timestamp(1_700_000_000_000)));
    assert_eq!(outcomes[&1].outcome, Outcome::Rejected(Reason::BadDeviceToken.into()));
    assert!(outcomes[&1].token_gone.is_some());
    assert_eq!(outcomes[&2].outcome, Outcome::Rejected(Reason::PayloadTooLarge.into()));
    assert!(outcomes[&2].token_gone.is_none());
    assert_eq!(outcomes[&3].outcome, Outcome::Accepted);
    assert!(setup.peer.log(|log| log.requests.values().all(|count| *count == 1)), "a rejection is final");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn only_one_stream_is_open_until_the_first_token_was_accepted() {
    let script: Script =
        Arc::new(|device, _| if device < 20 { Reply::refuse(400, "BadDeviceToken") } else { Reply::Accept });
    let setup = setup(behaviour(script), |_| {}).await;
    setup.push(0..20).await;
    setup.sink.outcomes(20).await;
    assert_eq!(setup.peer.log(|log| log.open_max), 1);
    setup.push(20..200).await;
    setup.sink.outcomes(200).await;
    assert!(setup.peer.log(|log| log.open_max) > 10);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_limit_that_falls_and_rises_is_obeyed() {
    let limits = vec![100, 3, 50, 1, 7];
    let behaviour = Behaviour { limits, limit_every: 40, ..behaviour(always(Reply::Accept)) };
    let setup = setup(behaviour, |_| {}).await;
    setup.push(0..2000).await;
    setup.sink.outcomes(2000).await;
    let (violations, open_max) = setup.peer.log(|log| (log.violations, log.open_max));
    assert_eq!(violations, 0);
    assert!((50..=100).contains(&open_max), "at most {open_max} streams were open at once");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn what_the_peer_has_no_room_for_stays_in_the_lake() {
    let script: Script = Arc::new(|device, _| if device == 0 { Reply::Accept } else { Reply::Ignore });
    let setup = setup(Behaviour { limits: vec![5], ..behaviour(script) }, |_| {}).await;
    setup.push(0..100).await;
    let all_open = async {
        while setup.peer.log(|log| log.requests.len()) < 6 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_open).await.unwrap();
    assert_eq!(setup.lake.counters().delivered, 6, "nothing waits inside a connection, where no other could take it");
}

/// 503, and not to be repeated for an hour.
fn an_hour() -> Reply {
    Reply::RefuseFor(503, r#"{"reason":"ServiceUnavailable"}"#.to_owned(), 3600)
}

#[tokio::test]
async fn what_waits_for_an_hour_holds_up_nobody_else() {
    let script: Script = Arc::new(|device, _| if (1..=20).contains(&device) { an_hour() } else { Reply::Accept });
    let setup = setup(behaviour(script), |config| config.streams_max = 2).await;
    setup.push_for(Duration::from_secs(7200), JournalPosition(1), 0..60).await;
    let outcomes = setup.sink.outcomes(40).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Accepted));
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 20);
}

#[tokio::test]
async fn what_is_over_while_it_waits_for_an_hour_is_settled_soon() {
    let setup = setup(behaviour(always(an_hour())), |_| {}).await;
    setup.sink.all_go.store(true, Ordering::SeqCst);
    setup.push_for(Duration::from_secs(7200), CANCELLED_JOB, 0..4).await;
    setup.push_for(Duration::from_secs(7200), OUTDATED_JOB, 4..8).await;
    let all_asked = async {
        while setup.peer.log(|log| log.requests.len()) < 8 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, all_asked).await.unwrap();
    setup.sink.all_go.store(false, Ordering::SeqCst);
    let outcomes = setup.sink.outcomes(6).await;
    let with = |outcome| outcomes.values().filter(|it| it.outcome == outcome).count();
    assert_eq!((with(Outcome::Cancelled), with(Outcome::Superseded)), (4, 2));
    assert_eq!(setup.gateway.drain(Instant::now()).await.unsettled, 2);
}

#[tokio::test]
async fn our_own_ceiling_holds_where_the_peer_allows_more() {
    let setup = setup(behaviour(always(Reply::Accept)), |config| config.streams_max = 20).await;
    setup.push(0..500).await;
    setup.sink.outcomes(500).await;
    assert_eq!(setup.peer.log(|log| log.open_max), 20);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_refused_stream_is_sent_again() {
    const REFUSED_STREAM: u32 = 7;
    let (requests, setup) = all_accepted(first(Reply::Reset(REFUSED_STREAM)), |_| {}).await;
    assert!(requests.values().all(|count| *count == 2));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_stream_reset_for_another_reason_is_unknown_and_sent_again() {
    const INTERNAL_ERROR: u32 = 2;
    let (requests, setup) = all_accepted(third(Reply::Reset(INTERNAL_ERROR)), |_| {}).await;
    assert_eq!((requests[&3], requests[&2]), (2, 1));
    let text = setup.registry.prometheus();
    assert!(text.contains(r#"tidings_gateway_repeats_total{cause="unknown",pool="main",provider="apns"} 1"#), "{text}");
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn goaway_costs_no_notification_and_doubles_none() {
    let (requests, setup) = all_accepted(third(Reply::GoAway), |_| {}).await;
    let accepted = setup.peer.log(|log| log.accepted.clone());
    assert!(accepted.values().all(|count| *count == 1), "{accepted:?}");
    assert_eq!(requests[&3], 2);
    assert_eq!(setup.peer.log(|log| log.connections), 2);
    let text = setup.registry.prometheus();
    assert!(text.contains(r#"tidings_gateway_repeats_total{cause="unknown",pool="main",provider="apns"} 0"#), "{text}");
    assert!(
        !text.contains(r#"tidings_gateway_repeats_total{cause="not_processed",pool="main",provider="apns"} 0"#),
        "{text}"
    );
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn what_was_open_on_a_lost_connection_is_sent_again() {
    let (requests, setup) = all_accepted(third(Reply::Cut), |_| {}).await;
    assert_eq!(requests[&3], 2);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_peer_in_trouble_is_asked_again() {
    let (requests, setup) = all_accepted(first(Reply::refuse(503, "ServiceUnavailable")), |_| {}).await;
    assert!(requests.values().all(|count| *count == 2));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_refused_credential_costs_no_notification() {
    let (_, setup) = all_accepted(third(Reply::refuse(403, "InvalidProviderToken")), |_| {}).await;
    assert_eq!(setup.peer.log(|log| log.connections), 2);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_silent_connection_is_closed_and_what_it_held_goes_elsewhere() {
    let (_, setup) =
        all_accepted(third(Reply::Stall), |config| config.stall_timeout = Duration::from_millis(400)).await;
    let stalled = r#"tidings_gateway_connections_stalled_total{cause="silence",pool="main",provider="apns"} 1"#;
    assert!(setup.registry.prometheus().contains(stalled));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn a_request_without_an_answer_on_a_live_connection_is_given_up_and_sent_again() {
    let (requests, setup) = all_accepted(third(Reply::Ignore), |config| {
        config.stall_timeout = Duration::from_millis(200);
        config.answer_timeout = Duration::from_millis(300);
    })
    .await;
    assert_eq!((requests[&3], requests[&2]), (2, 1));
    assert_eq!(setup.peer.log(|log| log.connections), 1);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn what_is_expired_cancelled_or_superseded_is_not_sent() {
    let setup = setup(behaviour(always(Reply::Accept)), |_| {}).await;
    let (past, future) = (unix_now(), unix_now().saturating_add(Duration::from_secs(60)));
    let mut batch = vec![
        notification(0, JournalPosition(1), past),
        notification(1, CANCELLED_JOB, future),
        notification(2, JournalPosition(1), future),
        notification(4, OUTDATED_JOB, future),
        notification(5, OUTDATED_JOB, future),
    ];
    setup.lake.push_batch(&mut batch).await.unwrap();
    let outcomes = setup.sink.outcomes(5).await;
    let outcome = |device| outcomes[&device].outcome;
    assert_eq!([outcome(0), outcome(1), outcome(2)], [Outcome::Expired, Outcome::Cancelled, Outcome::Accepted]);
    assert_eq!([outcome(4), outcome(5)], [Outcome::Superseded, Outcome::Accepted]);
    assert_eq!(setup.peer.log(|log| log.requests.len()), 2);
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn repeats_end_with_the_notifications_life() {
    let script: Script =
        Arc::new(|device, _| if device == 0 { Reply::refuse(500, "InternalServerError") } else { Reply::Reset(2) });
    let setup = setup(behaviour(script), |_| {}).await;
    let soon = unix_now().saturating_add(Duration::from_millis(700));
    let mut batch = (0..2).map(|device| notification(device, JournalPosition(1), soon)).collect();
    setup.lake.push_batch(&mut batch).await.unwrap();
    let outcomes = setup.sink.outcomes(2).await;
    assert_eq!(outcomes[&0].outcome, Outcome::Expired, "it was certainly not delivered");
    assert_eq!(outcomes[&1].outcome, Outcome::Unknown, "nobody knows whether it was delivered");
    assert!(outcomes.values().all(|it| it.latency < Duration::from_secs(2)));
    assert_eq!(setup.drain().await, 0);
}

#[tokio::test]
async fn what_cannot_be_sent_by_the_deadline_is_left_unsettled() {
    let setup = setup(behaviour(always(Reply::Ignore)), |_| {}).await;
    setup.push(0..50).await;
    let drained = setup.gateway.drain(Instant::now() + Duration::from_millis(200)).await;
    assert_eq!(drained.unsettled, 50);
    assert!(setup.sink.settled.lock().unwrap().is_empty());
    assert_eq!(setup.lake.counters().accepted, 50);
}

#[tokio::test]
async fn a_drain_ends_at_once_when_nothing_is_left_even_without_a_connection() {
    let unused = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = config(unused.port(), acceptor().1);
    let gateway = Gateway::start(config, Lakes::new(16), Arc::<Sink>::default() as _, &Registry::new()).unwrap();
    let started = Instant::now();
    assert_eq!(gateway.drain(started + PATIENCE).await.unsettled, 0);
    assert!(started.elapsed() < PATIENCE / 2);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_refused() {
    let start = |adapt: fn(&mut GatewayConfig)| {
        let mut config = config(1, acceptor().1);
        adapt(&mut config);
        let sink = Arc::<Sink>::default();
        Gateway::start(config, Lakes::new(1), sink, &Registry::new()).err().unwrap().to_string()
    };
    assert_eq!(start(|config| config.streams_max = 0), "streams_max must be at least 1, got 0");
    let threads = "thread_count must be at most connection_count_min (1), got 2";
    assert_eq!(start(|config| config.thread_count = 2), threads);
    let connections = "connection_count_max must be at least connection_count_min (1), got 0";
    assert_eq!(start(|config| config.connection_count_max = 0), connections);
    assert_eq!(start(|config| config.server_name = "a b".to_owned()), "server_name \"a b\" is not a host name");
    assert_eq!(start(|config| config.ca_pem = Some(String::new())), AccessError::Certificates.to_string());
    let shown = format!("{:?}", config(1, acceptor().1));
    assert!(!shown.contains("BEGIN") && shown.contains("DEF123GHIJ"), "{shown}");
}

#[tokio::test]
async fn a_peer_that_reads_again_is_written_to_again() {
    // More than sockets and cork hold, and no answer that could wake the connection.
    let script: Script = Arc::new(|device, _| match device {
        0 => Reply::Accept,
        1 => Reply::Deaf,
        _ => Reply::Ignore,
    });
    let setup = setup(Behaviour { limits: vec![10_000], ..behaviour(script) }, |config| {
        config.streams_max = 10_000;
        config.stall_timeout = 20 * PATIENCE; // Its ticks would be another way to be woken.
    })
    .await;
    setup.push(0..1).await;
    setup.sink.outcomes(1).await;
    setup.push(1..2).await;
    let (until, lake) = (Instant::now() + PATIENCE, Arc::clone(&setup.lake));
    while !setup.peer.log(|log| log.deaf) {
        assert!(Instant::now() < until);
        tokio::task::yield_now().await;
    }
    let expires_at = unix_now().saturating_add(Duration::from_secs(600));
    let payload = Bytes::from(format!("{:>4000}", 7));
    let fat = |device| sized(notification(device, JournalPosition(1), expires_at), payload.clone());
    for start in (2..6002).step_by(1000) {
        let mut batch = (start..start + 1000).map(fat).collect();
        // What does not fit waits for the peer.
        if timeout(Duration::from_millis(500), lake.push_batch(&mut batch)).await.is_err() {
            break;
        }
    }
    let held = lake.counters().held;
    assert!(held > 0, "everything went into buffers");
    setup.peer.listen_again();
    while lake.counters().held > 0 {
        assert!(Instant::now() < until, "{} of {held} stay behind", lake.counters().held);
        tokio::task::yield_now().await;
    }
}

/// What the peer does to one device, in order; then it accepts.
fn replies() -> impl Strategy<Value = Vec<Reply>> {
    let reply = prop_oneof![
        // Few that end the connection: each of those costs the test a wait of up to 200 ms.
        20 => Just(Reply::Accept),
        4 => Just(Reply::refuse(410, "Unregistered")),
        4 => Just(Reply::refuse(503, "ServiceUnavailable")),
        4 => Just(Reply::Reset(7)),
        2 => Just(Reply::Reset(2)),
        1 => Just(Reply::GoAway),
        1 => Just(Reply::Cut),
        1 => Just(Reply::refuse(503, "Shutdown")),
        2 => Just(Reply::Torn(503, "torn off".to_owned())),
        2 => Just(Reply::Drip(500, "slow".to_owned())),
        1 => Just(Reply::WrongLength),
        1 => Just(Reply::Hasty),
        1 => Just(Reply::HalfClose),
    ];
    proptest::collection::vec(reply, 0..2)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, max_shrink_iters: 30, ..ProptestConfig::default() })]

    /// Whatever the provider does: every notification is settled exactly once, as what the provider did to it, and no
    /// stream is opened beyond the limit.
    #[test]
    fn everything_is_settled_once_and_no_limit_is_broken(
        plan in proptest::collection::vec(replies(), 1..150),
        lowered in proptest::collection::vec(0u32..40, 0..4),
        limit in 1u32..40,
        limit_every in 1usize..50,
        connection_count in 1usize..4,
        thread_count in 1usize..3,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let count = plan.len();
        let limits = [lowered, vec![limit]].concat(); // Never 0 for ever.
        let rejected: HashSet<u32> = (0..count as u32)
            .filter(|device| {
                let replies = &plan[*device as usize];
                replies.first() == Some(&Reply::refuse(410, "Unregistered"))
            })
            .collect();
        let script: Script = Arc::new(move |device, before| {
            plan[device as usize].get(before).cloned().unwrap_or(Reply::Accept)
        });
        let (outcomes, violations, unsettled) = runtime.block_on(async {
            let behaviour = Behaviour { limits, limit_every, ..behaviour(script) };
            let setup = setup(behaviour, |config| {
                config.connection_count_min = connection_count;
                config.connection_count_max = connection_count;
                config.thread_count = thread_count.min(connection_count);
            })
            .await;
            setup.push(0..count as u32).await;
            let outcomes = setup.sink.outcomes(count).await;
            let violations = setup.peer.log(|log| log.violations);
            (outcomes, violations, setup.drain().await)
        });
        prop_assert_eq!(violations, 0);
        prop_assert_eq!(unsettled, 0);
        for (device, settled) in outcomes {
            // A connection that ended took the rejection of others with it; they were asked again and accepted.
            let may_be_rejected = rejected.contains(&device);
            match settled.outcome {
                Outcome::Accepted => {}
                Outcome::Rejected(reason) if reason == Reason::Unregistered.into() => prop_assert!(may_be_rejected),
                other => prop_assert!(false, "device {} ended as {:?}", device, other),
            }
        }
    }
}
