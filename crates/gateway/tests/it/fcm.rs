//! FCM and its token endpoint: what they may do, and what must come of it.
//!
//! The peer is `h2`'s own server, which decodes headers, so that it can judge each request by the token it carries. The
//! endpoint is a few lines of HTTP/1.1 that do as they are told. What goes wrong below HTTP is in `nasty`.

mod nasty;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use http::{Request, Response, StatusCode};
use tidings_gateway::{Credential, Gateway, GatewayConfig, OAuth};
use tidings_push::fcm::oauth::ServiceAccount;
use tidings_push::fcm::{Fcm, Reason};
use tidings_push::payload::Content;
use tidings_push::{
    JobStanding, Lakes, Notification, Outcome, OutcomeSink, PoolGauge, RateLimit, Rendering, RenderingParts, Settled,
    Ticket,
};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, CollapseKey, DeviceId, DeviceNumber, DeviceToken, EventId, EventPriority, JournalPosition, NotificationId,
    Payload, Present, Provider, Timestamp,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::peer::acceptor;
use crate::{PATIENCE, Sink, config};

/// What FCM does about one request.
#[derive(Debug, Clone)]
struct Reply {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: String,
    /// The body comes in pieces, with a moment between two.
    slow: bool,
    /// It comes when there have been so many requests.
    awaits: usize,
}

impl Reply {
    fn accept() -> Self {
        let body = r#"{"name":"projects/p/messages/1"}"#.to_owned();
        Self { status: 200, headers: Vec::new(), body, slow: false, awaits: 0 }
    }

    fn error(status: u16, code: &str) -> Self {
        let kind = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
        let details = format!(r#"[{{"@type":"{kind}","errorCode":"{code}"}}]"#);
        let body = format!(r#"{{"error":{{"code":{status},"message":"m","status":"{code}","details":{details}}}}}"#);
        Self { status, body, ..Self::accept() }
    }

    fn after(self, seconds: u32) -> Self {
        self.until(&seconds.to_string())
    }

    /// `retry-after` as it is.
    fn until(self, text: &str) -> Self {
        Self { headers: vec![("retry-after", text.to_owned())], ..self }
    }
}

/// What FCM's script is told: the device, how many requests for it came before, the token, and over which connection.
type Script = Arc<dyn Fn(u32, usize, &str, usize) -> Reply + Send + Sync>;

#[derive(Default)]
struct Log {
    /// Requests by device, in order: when, with which token, and over which connection.
    requests: HashMap<u32, Vec<(Instant, String, usize)>>,
    connections: usize,
    resets: usize,
}

/// What FCM has seen, and news of it.
#[derive(Default)]
struct Seen {
    log: Mutex<Log>,
    changed: Notify,
}

impl Seen {
    fn note<R>(&self, change: impl FnOnce(&mut Log) -> R) -> R {
        let result = change(&mut self.log.lock().unwrap());
        self.changed.notify_waiters();
        result
    }

    /// Waits until what it has seen is enough.
    async fn until(&self, mut is_enough: impl FnMut(&Log) -> bool) {
        let seen = async {
            loop {
                let changed = self.changed.notified();
                if is_enough(&self.log.lock().unwrap()) {
                    return;
                }
                changed.await;
            }
        };
        timeout(PATIENCE, seen).await.expect("FCM has not seen that yet");
    }
}

/// What the token endpoint does about one request.
#[derive(Debug, Clone)]
enum Grant {
    /// A token for so many seconds.
    Token(u64),
    /// This, as it is.
    Raw(&'static str),
    /// Nothing, and the connection closes.
    Cut,
    /// A token for an hour, when there is a permit for it.
    Held(Arc<Semaphore>),
}

/// FCM and the endpoint, on two ports.
struct Google {
    address: SocketAddr,
    endpoint: SocketAddr,
    ca_pem: String,
    seen: Arc<Seen>,
    /// Requests for tokens so far.
    asked: Arc<AtomicUsize>,
    _tasks: JoinSet<()>,
}

impl Google {
    /// The `grants` are made in turn, the last one for ever.
    async fn start(script: Script, grants: Vec<Grant>) -> Self {
        let (acceptor, ca_pem) = acceptor();
        let [fcm, oauth] =
            [TcpListener::bind("127.0.0.1:0").await.unwrap(), TcpListener::bind("127.0.0.1:0").await.unwrap()];
        let (address, endpoint) = (fcm.local_addr().unwrap(), oauth.local_addr().unwrap());
        let (seen, asked) = (Arc::<Seen>::default(), Arc::<AtomicUsize>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(serve_fcm(fcm, acceptor.clone(), script, Arc::clone(&seen)));
        tasks.spawn(serve_tokens(oauth, acceptor, grants, Arc::clone(&asked)));
        Self { address, endpoint, ca_pem, seen, asked, _tasks: tasks }
    }

    fn log<R>(&self, read: impl FnOnce(&Log) -> R) -> R {
        read(&self.seen.log.lock().unwrap())
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Waits until it was asked for so many tokens.
    async fn until_asked(&self, count: usize) {
        let asked = async {
            while self.asked() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, asked).await.unwrap_or_else(|_| panic!("asked {} times", self.asked()));
    }
}

async fn serve_fcm(listener: TcpListener, acceptor: TlsAcceptor, script: Script, seen: Arc<Seen>) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, script, seen) = (acceptor.clone(), Arc::clone(&script), Arc::clone(&seen));
        connections.spawn(async move {
            let Ok(tls) = acceptor.accept(tcp).await else { return };
            let mut builder = h2::server::Builder::new();
            let Ok(mut h2) = builder.max_concurrent_streams(100).handshake(tls).await else { return };
            let connection = seen.note(|log| {
                log.connections += 1;
                log.connections
            });
            let mut streams = JoinSet::new();
            while let Some(Ok((request, respond))) = h2.accept().await {
                streams.spawn(answer(request, respond, connection, Arc::clone(&script), Arc::clone(&seen)));
            }
        });
    }
}

async fn answer(
    request: Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
    connection: usize,
    script: Script,
    seen: Arc<Seen>,
) {
    let (head, mut body) = request.into_parts();
    assert_eq!(head.uri.path(), "/v1/projects/test-project/messages:send");
    let token = head.headers["authorization"].to_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let mut bytes = Vec::new();
    while let Some(Ok(data)) = body.data().await {
        _ = body.flow_control().release_capacity(data.len());
        bytes.extend_from_slice(&data);
    }
    let json = String::from_utf8(bytes).unwrap();
    let (_, device) = json.split_once("\"token\":\"device-").expect("each message names its device");
    let device: u32 = device.split('"').next().unwrap().parse().unwrap();
    let before = seen.note(|log| {
        let requests = log.requests.entry(device).or_default();
        requests.push((Instant::now(), token.clone(), connection));
        requests.len() - 1
    });
    let Reply { status, headers, body, slow, awaits } = script(device, before, &token, connection);
    seen.until(|log| log.requests.values().map(Vec::len).sum::<usize>() >= awaits).await;
    let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let Ok(mut stream) = respond.send_response(response.body(()).unwrap(), false) else { return };
    if slow {
        for piece in body.as_bytes().chunks(16) {
            sleep(Duration::from_millis(5)).await;
            _ = stream.send_data(bytes::Bytes::copy_from_slice(piece), false);
        }
    }
    let rest = if slow { bytes::Bytes::new() } else { body.into() };
    _ = stream.send_data(rest, true);
    // Whoever takes the answer but not its end resets the stream.
    if timeout(Duration::from_millis(50), std::future::poll_fn(|cx| stream.poll_reset(cx)))
        .await
        .is_ok_and(|it| it.is_ok())
    {
        seen.note(|log| log.resets += 1);
    }
}

async fn serve_tokens(listener: TcpListener, acceptor: TlsAcceptor, grants: Vec<Grant>, asked: Arc<AtomicUsize>) {
    let mut connections = JoinSet::new();
    loop {
        let (tcp, _) = listener.accept().await.unwrap();
        let (acceptor, grants, asked) = (acceptor.clone(), grants.clone(), Arc::clone(&asked));
        connections.spawn(async move {
            let Ok(mut tls) = acceptor.accept(tcp).await else { return };
            let mut request = Vec::new();
            while !request.windows(10).any(|window| window == b"assertion=") {
                if tls.read_buf(&mut request).await.unwrap_or(0) == 0 {
                    return;
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            assert!(request.starts_with("POST /token HTTP/1.1\r\n"), "{request}");
            let number = asked.fetch_add(1, Ordering::SeqCst);
            let token = |seconds| {
                let body =
                    format!(r#"{{"access_token":"token-{number}","expires_in":{seconds},"token_type":"Bearer"}}"#);
                format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
            };
            let response = match grants.get(number).or(grants.last()).unwrap() {
                Grant::Token(seconds) => token(*seconds),
                Grant::Raw(text) => (*text).to_owned(),
                Grant::Cut => return,
                Grant::Held(gate) => {
                    gate.acquire().await.unwrap().forget();
                    token(3600)
                }
            };
            _ = tls.write_all(response.as_bytes()).await;
            _ = tls.shutdown().await;
        });
    }
}

struct Setup {
    google: Google,
    sink: Arc<Sink>,
    lakes: Lakes,
    registry: Registry,
    gateway: Gateway,
}

/// A key that all accounts here have, for making one takes a while.
static KEY: LazyLock<String> = LazyLock::new(|| {
    rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).unwrap().serialize_pem().replace(['\r', '\n'], "\\n")
});

/// A service account as Google gives it out, the number-th of its project.
fn account(endpoint: SocketAddr, number: u32) -> ServiceAccount {
    let key = &*KEY;
    let uri = format!("https://localhost:{}/token", endpoint.port());
    let who = format!(r#""project_id":"test-project","private_key_id":"k1","client_email":"a{number}@b.example""#);
    let json = format!(r#"{{{who},"private_key":"{key}","token_uri":"{uri}"}}"#);
    ServiceAccount::parse(json.as_bytes()).unwrap()
}

fn credential(google: &Google, number: u32) -> Credential {
    Credential::OAuth(Arc::new(OAuth::new(account(google.endpoint, number)).unwrap()))
}

/// A gateway's settings.
fn settings(google: &Google) -> GatewayConfig {
    let mut config = config(google.address.port(), google.ca_pem.clone());
    config.name = "project".to_owned();
    config.dialect = Arc::new(Fcm::new(&format!("localhost:{}", config.port), "test-project").unwrap());
    config.credential = credential(google, 0);
    config
}

fn start(google: Google, adapt: impl FnOnce(&mut GatewayConfig)) -> Setup {
    let mut config = settings(&google);
    adapt(&mut config);
    let (sink, lakes, registry) = (Arc::<Sink>::default(), Lakes::new(10_000), Registry::new());
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &registry).unwrap();
    Setup { google, sink, lakes, registry, gateway }
}

fn notification(device: u32) -> Notification {
    expiring(device, unix_now().saturating_add(Duration::from_secs(600)))
}

fn expiring(device: u32, expires_at: Timestamp) -> Notification {
    let (event, collapse_id) = (EventId::new("goal-1").unwrap(), CollapseKey::new("match-7").unwrap());
    let content = Content {
        title: "Goal",
        body: "1:0",
        present: &Present::default(),
        thread: None,
        event: &event,
        stream: None,
        data: None,
        patches: &Payload::default(),
        urgency: None,
        collapse_id: &collapse_id,
    };
    let encoded = content.encode(Provider::Fcm).unwrap();
    let parts = RenderingParts { app: AppId::new("org.example.scores").unwrap(), expires_at, collapse_id };
    Notification {
        id: NotificationId::new(&event, &DeviceId::new(&format!("device-{device}")).unwrap()),
        token: DeviceToken::fcm(&format!("device-{device}")).unwrap(),
        rendering: Arc::new(Rendering::new(parts, encoded)),
        ticket: Ticket { job: JournalPosition(1), device: DeviceNumber(device), cell: 0 },
        queued_at: unix_now(),
    }
}

impl Setup {
    fn push(&self, devices: std::ops::Range<u32>) {
        let mut batch = devices.map(notification).collect();
        self.lakes.of(EventPriority::Normal).try_push_batch(&mut batch).unwrap();
    }

    /// Waits until so many are settled, all of them accepted; says how long it took.
    #[expect(clippy::print_stdout, reason = "the time to recover is for people to read")]
    async fn accepted(&self, name: &str, count: usize) {
        let started = Instant::now();
        let outcomes = self.sink.outcomes(count).await;
        println!("{name}: {count} accepted after {:?}", started.elapsed());
        let other = outcomes.values().find(|it| it.outcome != Outcome::Accepted);
        assert!(other.is_none(), "{other:?}");
    }

    fn count(&self, name: &str) -> u64 {
        let series = format!("tidings_gateway_{name}{{pool=\"project\",provider=\"fcm\"}} ");
        let text = self.registry.prometheus();
        text.lines().find_map(|line| line.strip_prefix(&series)).expect("it is exported").parse().unwrap()
    }

    /// Waits until a count is at least this.
    async fn until(&self, name: &str, least: u64) {
        let reached = async {
            while self.count(name) < least {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, reached).await.unwrap_or_else(|_| panic!("{name} is {}", self.count(name)));
    }

    async fn drain(self) {
        assert_eq!(self.gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
    }
}

/// What was pushed waits in the lakes, but for a few: each second, a thread's sweep moves one up.
#[track_caller]
fn check_rest(held: usize, pushed: usize) {
    assert!((pushed - 10..=pushed).contains(&held), "{held} of {pushed} are in the lakes");
}

fn accept() -> Script {
    Arc::new(|_, _, _, _| Reply::accept())
}

#[tokio::test]
async fn one_token_is_fetched_for_all_connections_and_threads() {
    let script: Script = Arc::new(|device, _, _, _| Reply { slow: device % 20 == 0, ..Reply::accept() });
    let gate = Arc::new(Semaphore::new(0));
    let setup = start(Google::start(script, vec![Grant::Held(Arc::clone(&gate))]).await, |config| {
        (config.connection_count_min, config.connection_count_max, config.thread_count) = (4, 4, 2);
    });
    setup.push(0..2000);
    setup.google.until_asked(1).await;
    setup.google.seen.until(|log| log.connections == 4).await; // All of them need the token by now.
    gate.add_permits(4); // As many as would ask.
    setup.accepted("a late token", 2000).await;
    assert_eq!(setup.google.asked(), 1);
    assert_eq!((setup.count("access_tokens_total"), setup.count("access_token_failures_total")), (1, 0));
    let (all_once, resets) = setup.google.log(|log| (log.requests.values().all(|it| it.len() == 1), log.resets));
    assert!(all_once);
    assert_eq!(resets, 0, "an answer is read to its end: providers count streams that are reset");
    setup.drain().await;
}

#[tokio::test]
async fn while_there_is_no_token_all_waits_in_the_lakes() {
    let refused = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 25\r\n\r\n{\"error\":\"invalid_grant\"}";
    let unavailable = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    for (name, failure) in [
        ("endpoint down", Grant::Cut),
        ("endpoint talks nonsense", Grant::Raw("what?\r\n\r\n")),
        ("endpoint gives no token", Grant::Raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")),
        ("endpoint refuses", Grant::Raw(refused)),
        ("endpoint is unavailable", Grant::Raw(unavailable)),
    ] {
        let gate = Arc::new(Semaphore::new(0));
        let grants = vec![failure, Grant::Held(Arc::clone(&gate))];
        let setup = start(Google::start(accept(), grants).await, |_| {});
        setup.push(0..100);
        setup.until("access_token_failures_total", 1).await;
        setup.google.until_asked(2).await; // And is not answered yet.
        check_rest(setup.lakes.held(), 100);
        assert!(setup.google.log(|log| log.requests.is_empty()), "{name}: nothing goes out without a token");
        gate.add_permits(1);
        setup.accepted(name, 100).await;
        assert_eq!(setup.count("access_tokens_total"), 1);
        setup.drain().await;
    }
}

#[tokio::test]
async fn what_expires_while_there_is_no_token_is_told() {
    let setup = start(Google::start(accept(), vec![Grant::Cut]).await, |_| {});
    let soon = unix_now().saturating_add(Duration::from_millis(100));
    let mut batch = (0..100).map(|device| expiring(device, soon)).collect();
    setup.lakes.of(EventPriority::Low).try_push_batch(&mut batch).unwrap();
    let outcomes = setup.sink.outcomes(100).await;
    assert!(outcomes.values().all(|it| it.outcome == Outcome::Expired));
    assert!(setup.google.log(|log| log.requests.is_empty()));
    setup.drain().await;
}

#[tokio::test]
async fn a_drain_without_a_token_ends_when_the_last_has_expired() {
    let setup = start(Google::start(accept(), vec![Grant::Cut]).await, |_| {});
    let soon = unix_now().saturating_add(Duration::from_secs(2));
    setup.lakes.of(EventPriority::High).try_push_batch(&mut vec![expiring(1, soon), expiring(2, soon)]).unwrap();
    let taken = async {
        while setup.lakes.held() > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, taken).await.unwrap();
    let sink = Arc::clone(&setup.sink);
    let started = Instant::now();
    setup.drain().await;
    assert!(started.elapsed() < PATIENCE / 2);
    assert_eq!(sink.outcomes(2).await[&1].outcome, Outcome::Expired);
}

#[tokio::test]
async fn a_token_is_replaced_before_its_end_and_never_used_after_it() {
    let latest = Arc::new(Mutex::new(None::<(String, Instant)>));
    let seen = Arc::clone(&latest);
    let script: Script = Arc::new(move |_, _, token, _| {
        let mut seen = seen.lock().unwrap();
        let (name, since) = seen.get_or_insert_with(|| (token.to_owned(), Instant::now()));
        if name != token {
            (*name, *since) = (token.to_owned(), Instant::now());
        }
        assert!(since.elapsed() < Duration::from_secs(3), "a token of two seconds is still used");
        Reply::accept()
    });
    // The third token is not given at once: for a while there is none.
    let grants = vec![Grant::Token(2), Grant::Token(2), Grant::Cut, Grant::Token(3600)];
    let setup = start(Google::start(script, grants).await, |_| {});
    let mut device = 0;
    while setup.count("access_tokens_total") < 3 {
        setup.push(device..device + 1);
        device += 1;
        setup.sink.outcomes(device as usize).await;
    }
    setup.accepted("short tokens", device as usize).await;
    setup.drain().await;
}

#[tokio::test]
async fn a_fresh_token_that_is_refused_stops_the_connection_and_loses_nothing() {
    let unauthenticated = Reply { body: String::new(), ..Reply::error(401, "UNAUTHENTICATED") };
    let script: Script =
        Arc::new(move |_, _, _, connection| if connection <= 2 { unauthenticated.clone() } else { Reply::accept() });
    let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |_| {});
    setup.push(0..20);
    setup.accepted("401 on two connections", 20).await;
    assert!(setup.count("credential_refused_total") >= 2);
    assert_eq!(setup.google.asked(), 1, "another token would be refused as well");
    setup.drain().await;
}

#[tokio::test]
async fn retry_after_is_waited_for_by_the_one_that_was_told() {
    let reply = Reply::error(503, "UNAVAILABLE").after(1);
    let script: Script =
        Arc::new(move |device, before, _, _| if (device, before) == (3, 0) { reply.clone() } else { Reply::accept() });
    let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |_| {});
    setup.push(0..50);
    setup.accepted("503 with Retry-After", 50).await;
    setup.google.log(|log| {
        let times: Vec<_> = log.requests[&3].iter().map(|(at, ..)| *at).collect();
        assert!(times.len() == 2 && times[1] - times[0] >= Duration::from_secs(1), "{times:?}");
        assert!(log.requests.iter().all(|(device, it)| *device == 3 || it.len() == 1));
    });
    setup.drain().await;
}

#[tokio::test]
async fn a_spent_quota_stops_the_whole_project_and_what_waits_stays_in_the_lakes() {
    const PAUSE: Duration = Duration::from_secs(2);
    let reply = Reply::error(429, "RESOURCE_EXHAUSTED").after(PAUSE.as_secs() as u32);
    let script: Script =
        Arc::new(move |device, before, _, _| if (device, before) == (0, 0) { reply.clone() } else { Reply::accept() });
    let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |config| {
        (config.connection_count_min, config.connection_count_max, config.thread_count) = (2, 2, 2);
    });
    setup.push(0..1);
    setup.until("pauses_total", 1).await;
    // The pause began after FCM had the request, so it does not end before this moment.
    let end = setup.google.log(|log| log.requests[&0][0].0) + PAUSE;
    setup.push(1..100);
    let mut looks = 0;
    loop {
        let held = setup.lakes.held();
        if Instant::now() + Duration::from_millis(10) >= end {
            break;
        }
        check_rest(held, 99);
        looks += 1;
        tokio::task::yield_now().await;
    }
    assert!(looks > 0, "the pause was over before anybody looked");
    setup.accepted("429 of the project", 100).await;
    setup.google.log(|log| {
        let earliest = (1..100).map(|device| log.requests[&device][0].0).min().unwrap();
        assert!(earliest >= end, "{:?} too early", end - earliest);
    });
    setup.drain().await;
}

#[tokio::test]
async fn a_burst_of_refusals_halves_the_rate_once_and_the_forecast_knows_it() {
    let reply = Reply::error(429, "RESOURCE_EXHAUSTED").after(1);
    let script: Script =
        Arc::new(move |device, before, _, _| if device < 20 && before == 0 { reply.clone() } else { Reply::accept() });
    let gauge = Arc::<PoolGauge>::default();
    let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |config| {
        (config.connection_count_min, config.connection_count_max, config.thread_count) = (2, 2, 2);
        (config.quota_per_minute, config.gauge) = (Some(600_000), Arc::clone(&gauge));
    });
    let seconds = || {
        let forecast = gauge.forecast(600_000, unix_now()).expect("there is a quota");
        (forecast.limit == RateLimit::Quota).then_some(forecast.duration.as_secs())
    };
    assert!((60..=61).contains(&seconds().unwrap()), "the quota takes a minute: {:?}", seconds());
    setup.push(0..20);
    setup.accepted("429 of the project for each", 20).await;
    // One burst, one pause; on a slow machine some of the 20 come after it, and are refused and halve the rate again.
    let pauses = setup.count("pauses_total");
    assert!((1..20).contains(&pauses), "{pauses}");
    // A sixtieth of 10 000 more with each second; once that is reached, 9833 a second.
    let halved = 10_000.0 / 2_f64.powi(pauses as i32);
    let growing = 60.0 * (1.0 - halved / 10_000.0);
    let expected = growing + (600_000.0 - growing * (halved + 10_000.0) / 2.0) / 9833.0;
    let seconds = seconds().unwrap() as f64;
    assert!(seconds >= 62.0 && seconds <= expected + 3.5, "{seconds} s after {pauses} pauses, expected {expected}");
    setup.drain().await;
}

#[tokio::test]
async fn a_quota_is_kept_and_the_urgent_have_it_first() {
    let setup = start(Google::start(accept(), vec![Grant::Token(3600)]).await, |config| {
        config.quota_per_minute = Some(12_000); // Two hundred a second.
    });
    setup.push(0..400);
    setup.sink.outcomes(1).await;
    setup.lakes.of(EventPriority::High).try_push_batch(&mut (1000..1020).map(notification).collect()).unwrap();
    let started = Instant::now();
    setup.accepted("a quota of two hundred a second", 420).await;
    assert!(started.elapsed() >= Duration::from_millis(500), "{:?}", started.elapsed());
    setup.google.log(|log| {
        let at = |device| log.requests[&device][0].0;
        let (urgent, last) = ((1000..1020).map(at).max().unwrap(), (0..400).map(at).max().unwrap());
        assert!(urgent < last);
    });
    setup.drain().await;
}

#[tokio::test]
async fn dead_tokens_are_told_and_answers_that_come_slowly_count() {
    let script: Script = Arc::new(|device, before, _, _| match device {
        0 => Reply::error(404, "UNREGISTERED"),
        1 => Reply { slow: true, ..Reply::error(404, "UNREGISTERED") },
        2 => Reply { slow: true, ..Reply::accept() },
        3 => Reply::error(400, "INVALID_ARGUMENT"),
        4 => Reply { headers: vec![("content-length", "7".to_owned())], ..Reply::accept() },
        5 if before == 0 => Reply { headers: vec![("x-endless", "x".repeat(40_000))], ..Reply::accept() },
        _ => Reply::accept(),
    });
    let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |_| {});
    setup.push(0..20);
    let outcomes = setup.sink.outcomes(20).await;
    for device in 0..2 {
        assert_eq!(outcomes[&device].outcome, Outcome::Rejected(Reason::Unregistered.into()));
        assert!(outcomes[&device].token_gone.is_some());
    }
    assert_eq!(outcomes[&3].outcome, Outcome::Rejected(Reason::InvalidArgument.into()));
    assert!(outcomes[&3].token_gone.is_none(), "it may be the message that is wrong");
    assert!((0..20).all(|device| matches!(device, 0 | 1 | 3) || outcomes[&device].outcome == Outcome::Accepted));
    assert_eq!(outcomes[&5].repeats, 1, "a head of this size is not read");
    setup.drain().await;
}

#[tokio::test]
async fn another_account_is_taken_up_and_the_same_one_is_no_change() {
    let setup = start(Google::start(accept(), vec![Grant::Token(3600)]).await, |_| {});
    setup.push(0..10);
    setup.accepted("first account", 10).await;
    let replaced = setup.gateway.reload(credential(&setup.google, 1), Some(&setup.google.ca_pem)).unwrap();
    assert!(replaced);
    let replaced = setup.gateway.reload(credential(&setup.google, 1), Some(&setup.google.ca_pem)).unwrap();
    assert!(!replaced);
    // Its token has to be fetched first; until then the one before goes on.
    let second = async {
        for device in 10.. {
            setup.push(device..device + 1);
            setup.accepted("second account", device as usize + 1).await;
            if setup.google.log(|log| log.requests[&device][0].1 == "token-1") {
                break;
            }
        }
    };
    timeout(PATIENCE, second).await.expect("the second account is taken up");
    assert_eq!(setup.google.log(|log| log.requests[&0][0].1.clone()), "token-0");
    setup.drain().await;
}

#[tokio::test]
async fn a_date_in_retry_after_is_waited_for() {
    for status in [503, 429] {
        let until = UNIX_EPOCH + Duration::from_secs(unix_now().as_secs() + 2);
        let code = if status == 503 { "UNAVAILABLE" } else { "QUOTA_EXCEEDED" };
        let reply = Reply::error(status, code).until(&httpdate::fmt_http_date(until));
        let script: Script = Arc::new(
            move |device, before, _, _| if (device, before) == (3, 0) { reply.clone() } else { Reply::accept() },
        );
        let setup = start(Google::start(script, vec![Grant::Token(3600)]).await, |_| {});
        setup.push(3..4);
        setup.accepted(&format!("{status} with a date"), 1).await;
        assert!(unix_now().as_secs() >= until.duration_since(UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(setup.google.log(|log| log.requests[&3].len()), 2);
        setup.drain().await;
    }
}

/// Also notes which thread told it.
#[derive(Default)]
struct ThreadSink {
    sink: Arc<Sink>,
    threads: Mutex<HashMap<u32, String>>,
}

impl OutcomeSink for ThreadSink {
    fn settle(&self, settled: &mut Vec<Settled>) {
        let thread = std::thread::current().name().unwrap_or_default().to_owned();
        self.threads.lock().unwrap().extend(settled.iter().map(|it| (it.ticket.device.0, thread.clone())));
        self.sink.settle(settled);
    }

    fn job_standing(&self, job: JournalPosition) -> JobStanding {
        self.sink.job_standing(job)
    }
}

#[tokio::test]
async fn in_a_drain_there_are_tokens_for_the_last_one_whichever_thread_has_it() {
    // The first two go over a connection each, and tell whose that is. What then comes over that of the second thread
    // is to wait for longer than a token lives.
    let patient = Arc::<AtomicUsize>::default();
    let asks = Arc::clone(&patient);
    let script: Script = Arc::new(move |device, before, _, connection| match device {
        0 | 1 => Reply { awaits: 2, ..Reply::accept() },
        _ if before == 0 && connection == asks.load(Ordering::SeqCst) => {
            Reply { awaits: 4, ..Reply::error(503, "UNAVAILABLE").after(3) }
        }
        _ => Reply { awaits: 4, ..Reply::accept() },
    });
    let google = Google::start(script, vec![Grant::Token(2), Grant::Token(3600)]).await;
    let mut config = settings(&google);
    (config.connection_count_min, config.connection_count_max, config.thread_count) = (2, 2, 2);
    config.streams_max = 1;
    let (sink, lakes) = (Arc::<ThreadSink>::default(), Lakes::new(100));
    let gateway = Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &Registry::new()).unwrap();
    let lake = lakes.of(EventPriority::Normal);
    lake.try_push_batch(&mut (0..2).map(notification).collect()).unwrap();
    sink.sink.outcomes(2).await;
    let second = *sink.threads.lock().unwrap().iter().find(|(_, thread)| *thread == "gateway-1").unwrap().0;
    patient.store(google.log(|log| log.requests[&second][0].2), Ordering::SeqCst);
    lake.try_push_batch(&mut (2..4).map(notification).collect()).unwrap();
    sink.sink.outcomes(3).await;
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0, "the last one found no token");
    assert!(sink.sink.outcomes(4).await.values().all(|it| it.outcome == Outcome::Accepted));
    let tokens = |log: &Log| log.requests.values().map(|it| it.last().unwrap().1.clone()).max();
    assert_eq!(google.log(tokens).as_deref(), Some("token-1"));
}

#[tokio::test]
async fn a_token_that_comes_wakes_who_waits_for_it() {
    // Were it not so, the gateway's sweep would find out within a second; so many times that is more than patience.
    const ROUNDS: u32 = 40;
    let gate = Arc::new(Semaphore::new(0));
    let setup = start(Google::start(accept(), vec![Grant::Held(Arc::clone(&gate))]).await, |_| {});
    let (google, round) = (&setup.google, AtomicUsize::new(0));
    let rounds = async {
        for number in 0..ROUNDS {
            let count = number as usize + 1;
            round.store(count, Ordering::Relaxed);
            google.seen.until(|log| log.connections >= count).await;
            google.until_asked(count).await;
            setup.push(number..number + 1);
            gate.add_permits(1);
            setup.sink.outcomes(count).await;
            assert!(setup.gateway.reload(credential(google, count as u32), Some(&google.ca_pem)).unwrap());
        }
    };
    assert!(timeout(PATIENCE, rounds).await.is_ok(), "only in round {}", round.load(Ordering::Relaxed));
    gate.add_permits(1); // For the last account.
    setup.drain().await;
}

#[tokio::test]
async fn whoever_finds_the_token_expired_one_is_fetched() {
    // Three gateways with one account, and several threads and connections each.
    let gate = Arc::new(Semaphore::new(0));
    let google = Google::start(accept(), vec![Grant::Token(1), Grant::Held(Arc::clone(&gate))]).await;
    let shared = credential(&google, 0);
    let (sink, registry) = (Arc::<Sink>::default(), Registry::new());
    let start = |number: u32| {
        let mut config = settings(&google);
        (config.connection_count_min, config.connection_count_max, config.thread_count) = (4, 4, 2);
        (config.name, config.credential) = (format!("project-{number}"), shared.clone());
        let lakes = Lakes::new(1000);
        (Gateway::start(config, lakes.clone(), Arc::clone(&sink) as _, &registry).unwrap(), lakes)
    };
    let gateways: Vec<_> = (0..3).map(start).collect();
    let push = |round: u32| {
        for ((_, lakes), number) in gateways.iter().zip(0..) {
            let devices = (round * 3 + number) * 100..(round * 3 + number + 1) * 100;
            lakes.of(EventPriority::Normal).try_push_batch(&mut devices.map(notification).collect()).unwrap();
        }
    };
    google.seen.until(|log| log.connections == 12).await;
    google.until_asked(2).await; // The first token has half a second left, and the second does not come.
    let end = unix_now().saturating_add(Duration::from_secs(1));
    while unix_now() < end {
        tokio::task::yield_now().await; // Time has to pass.
    }
    push(0);
    gate.add_permits(100);
    sink.outcomes(300).await;
    push(1);
    assert!(sink.outcomes(600).await.values().all(|it| it.outcome == Outcome::Accepted));
    assert_eq!(google.asked(), 2);
    google.log(|log| assert!(log.requests.values().all(|it| it.len() == 1 && it[0].1 == "token-1")));
    for (gateway, _) in gateways {
        assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);
    }
}

#[tokio::test]
async fn the_gauge_tells_streams_round_trips_and_the_quota() {
    let gauges = [(); 2].map(|()| Arc::<PoolGauge>::default());
    let google = Google::start(accept(), vec![Grant::Token(3600)]).await;
    let (with_quota, gauge) = (Arc::clone(&gauges[0]), Arc::clone(&gauges[1]));
    let mut limited = settings(&google);
    (limited.gauge, limited.quota_per_minute) = (with_quota, Some(60));
    let gateway = Gateway::start(limited, Lakes::new(1), Arc::<Sink>::default() as _, &Registry::new()).unwrap();
    let forecast = gauges[0].forecast(61, unix_now()).expect("before anything was sent");
    assert!(forecast.limit == RateLimit::Quota && (58..=62).contains(&forecast.duration.as_secs()), "{forecast:?}");
    assert_eq!(gateway.drain(Instant::now() + PATIENCE).await.unsettled, 0);

    let setup = start(google, |config| {
        (config.connection_count_min, config.connection_count_max, config.thread_count) = (4, 4, 2);
        config.gauge = Arc::clone(&gauge);
    });
    assert_eq!((gauge.per_second(), gauge.round_trip()), (None, None));
    setup.push(0..500);
    setup.accepted("measured", 500).await;
    assert!(gauge.round_trip().is_some());
    // FCM allows a hundred streams per connection here.
    let streams =
        || gauge.per_second().zip(gauge.round_trip()).map(|(rate, trip)| (rate * trip.as_secs_f64()).round() as u64);
    let tells = async |count: u64| {
        let told = async {
            while streams() != Some(count) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, told).await.unwrap_or_else(|_| panic!("{:?} streams, not {count}", streams()));
    };
    tells(400).await;
    // Those that leave do not count, those that come do.
    assert!(setup.gateway.reload(credential(&setup.google, 1), Some(&setup.google.ca_pem)).unwrap());
    let connections = setup.google.log(|log| log.connections);
    setup.google.seen.until(|log| log.connections >= connections + 4).await;
    tells(400).await;
    setup.drain().await;
}
