//! Told to a receiver over real sockets: one that takes, one that fails, one that is down.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use tidings_config::{WebhookKey, WebhookKeys};
use tidings_hub::ChangesConfig;
use tidings_telemetry::panics::lock;
use tidings_types::ChannelName;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What has come, and with which statuses it is answered before all is taken.
#[derive(Default)]
struct Received {
    requests: Mutex<Vec<(HeaderMap, Bytes)>>,
    statuses: Mutex<VecDeque<u16>>,
}

struct Receiver {
    addr: SocketAddr,
    received: Arc<Received>,
    tasks: JoinSet<()>,
}

impl Receiver {
    async fn start() -> Self {
        let addr = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let mut receiver = Self { addr, received: Arc::default(), tasks: JoinSet::new() };
        receiver.listen().await;
        receiver
    }

    async fn listen(&mut self) {
        let listener = TcpListener::bind(self.addr).await.unwrap();
        let router = Router::new().route("/presence", post(receive)).with_state(self.received.clone());
        self.tasks.spawn(async { axum::serve(listener, router).await.unwrap() });
    }

    fn answer_with(&self, statuses: impl IntoIterator<Item = u16>) {
        lock(&self.received.statuses).extend(statuses);
    }

    /// The records of all requests so far, repeated ones once; all of them signed.
    fn records(&self) -> Vec<Value> {
        let requests = lock(&self.received.requests);
        let (mut seen, mut records) = (Vec::new(), Vec::new());
        for (headers, body) in &*requests {
            let header = |name: &str| headers[name].to_str().unwrap();
            let id = header("webhook-id");
            let keys = WebhookKeys { current: WebhookKey::parse(SECRET).unwrap(), previous: None };
            assert_eq!(header("webhook-signature"), keys.signature(id, header("webhook-timestamp"), body));
            match seen.iter().find(|(known, _)| *known == id) {
                Some((_, known)) => assert_eq!(*known, body, "one id, one content"),
                None => {
                    seen.push((id, body));
                    let message: Value = serde_json::from_slice(body).unwrap();
                    records.extend(message["data"]["records"].as_array().unwrap().iter().cloned());
                }
            }
        }
        records
    }

    /// The types and names of the records, when there are so many.
    async fn has(&self, count: usize) -> Vec<String> {
        until(|| self.records().len() >= count).await;
        let name = |record: &Value| {
            let about = ["user", "channel", "count"].into_iter().map(|key| &record[key]).find(|it| !it.is_null());
            about.map_or(String::new(), |about| format!(" {}", about.as_str().map_or(about.to_string(), str::to_owned)))
        };
        self.records().iter().map(|record| format!("{}{}", record["type"].as_str().unwrap(), name(record))).collect()
    }

    fn attempts(&self) -> usize {
        lock(&self.received.requests).len()
    }
}

async fn receive(State(received): State<Arc<Received>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    lock(&received.requests).push((headers, body));
    let status = lock(&received.statuses).pop_front().unwrap_or(204);
    StatusCode::from_u16(status).unwrap()
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("within the deadline");
}

fn start(addr: SocketAddr, count_max: usize) -> (Presence, Arc<Changes>, Registry) {
    let text = format!(
        "[client]\nconnection_webhook = true\n[webhook]\npresence_url = \"http://{addr}/presence\"\nallow_http = true\n\
         secret = \"{SECRET}\"\nbackoff_min = \"10ms\"\nbackoff_max = \"50ms\""
    );
    let config = tidings_config::parse("t.toml", &text, []).unwrap_or_else(|error| panic!("{error}")).config;
    let changes = Arc::new(Changes::new(&ChangesConfig { users: true, delay: Duration::ZERO, count_max }));
    let registry = Registry::new();
    let presence = Presence::start(&config.webhook, Some(&changes), &registry).unwrap().unwrap();
    (presence, changes, registry)
}

#[tokio::test]
async fn who_comes_and_goes_is_told_in_order_and_first_that_the_server_has_started() {
    let receiver = Receiver::start().await;
    let (presence, changes, _) = start(receiver.addr, 100);
    assert_eq!(receiver.has(1).await, ["started"]);
    let room = ChannelName::new("room:1").unwrap();
    changes.user("42", true);
    changes.channel(&room, true);
    changes.channel(&room, false);
    changes.user("", true);
    changes.user("42", false);
    let told = receiver.has(5).await;
    assert_eq!(told[1..], ["connected 42", "occupied room:1", "vacated room:1", "gone 42"]);
    presence.stop(Instant::now() + PATIENCE).await;
}

#[tokio::test]
async fn a_batch_is_repeated_until_it_is_taken_and_what_comes_later_waits_for_it() {
    let receiver = Receiver::start().await;
    receiver.answer_with([500, 404, 503]);
    let (_presence, changes, _) = start(receiver.addr, 100);
    changes.user("42", true);
    until(|| receiver.attempts() >= 1).await;
    changes.user("43", true);
    let told = receiver.has(3).await;
    assert_eq!(told, ["started", "connected 42", "connected 43"]);
    until(|| receiver.attempts() >= 5).await;
}

#[tokio::test]
async fn a_receiver_that_is_back_gets_all_that_waited_and_how_much_did_not_fit() {
    let mut receiver = Receiver::start().await;
    let (_presence, changes, registry) = start(receiver.addr, 3);
    assert_eq!(receiver.has(1).await, ["started"]);
    receiver.tasks.shutdown().await;
    changes.user("in flight", true);
    until(|| changes.backlog() == 0).await;
    for user in ["1", "2", "3", "4", "5"] {
        changes.user(user, true);
    }
    receiver.listen().await;
    let told = receiver.has(6).await;
    assert_eq!(told[1..], ["connected in flight", "overflow 2", "connected 3", "connected 4", "connected 5"]);
    until(|| registry.prometheus().contains("tidings_presence_webhook_told_total 4\n")).await;
    assert!(registry.prometheus().contains("tidings_presence_webhook_lost_total 2\n"));
}

#[tokio::test]
async fn a_receiver_that_has_left_is_told_nothing_until_a_reload() {
    let receiver = Receiver::start().await;
    receiver.answer_with([410]);
    let (presence, _, registry) = start(receiver.addr, 3);
    until(|| registry.prometheus().contains("tidings_presence_webhook_closed 1\n")).await;
    let text = format!(
        "[webhook]\npresence_url = \"http://{}/presence\"\nallow_http = true\nsecret = \"{SECRET}\"",
        receiver.addr
    );
    presence.reload(&tidings_config::parse("t.toml", &text, []).unwrap().config.webhook);
    until(|| registry.prometheus().contains("tidings_presence_webhook_closed 0\n")).await;
    assert_eq!((receiver.attempts(), receiver.has(1).await), (2, vec!["started".to_owned()]));
}

/// `docs/hooks.md` shows this very message.
#[test]
fn a_message_has_the_shape_that_is_documented() {
    let now = Instant::now();
    let change = |key, is_here, ago| Change { key, is_here, since: now - Duration::from_millis(ago) };
    let room = || Key::Channel(ChannelName::new("room:1").unwrap());
    let batch = Batch {
        is_first: true,
        lost: 17,
        changes: vec![
            change(Key::User("42".into()), true, 6000),
            change(room(), true, 5900),
            change(room(), false, 5300),
            change(Key::User("42".into()), false, 5100),
        ],
    };
    let sent = Timestamp(1_700_000_004_567);
    let report = message(&batch, Timestamp(1_699_999_990_000), sent, now);
    let found: Value = serde_json::from_slice(&report.body).unwrap();
    let page = include_str!("../../../../../docs/hooks.md");
    let (_, shown) = page.split_once("<!-- presence -->\n```json\n").expect("an example");
    let (shown, _) = shown.split_once("```").expect("its end");
    assert_eq!(found, serde_json::from_str::<Value>(shown).expect("the example is JSON"));
    assert_eq!(found["data"]["records"][1], json!({"type": "overflow", "count": 17}));
}
