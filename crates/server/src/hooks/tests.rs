//! Hooks against back ends over real sockets: good, slow, down, and broken.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tidings_protocol::{ClientId, HookId, Question};
use tidings_types::{Format, Json, Variant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone)]
enum Behaviour {
    /// These bytes.
    Answer(String),
    /// Nothing, and the connection stays.
    Silence,
    /// The end of the connection.
    HangUp,
}

fn answer(status: u16, body: &str) -> Behaviour {
    Behaviour::Answer(format!("HTTP/1.1 {status} Whatever\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
}

/// A back end that does with each request what its script says, and then `otherwise`.
struct Backend {
    addr: SocketAddr,
    state: Arc<Mutex<State>>,
    _tasks: JoinSet<()>,
}

struct State {
    script: VecDeque<Behaviour>,
    otherwise: Behaviour,
    requests: Vec<String>,
}

impl Backend {
    async fn start(otherwise: Behaviour) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { script: VecDeque::new(), otherwise, requests: Vec::new() }));
        let (mut tasks, shared) = (JoinSet::new(), state.clone());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, shared.clone()));
            }
        });
        Self { addr, state, _tasks: tasks }
    }

    fn script(&self, behaviours: impl IntoIterator<Item = Behaviour>) {
        lock(&self.state).script.extend(behaviours);
    }

    fn behave(&self, otherwise: Behaviour) {
        lock(&self.state).otherwise = otherwise;
    }

    /// Heads and bodies of all requests.
    fn requests(&self) -> Vec<String> {
        lock(&self.state).requests.clone()
    }

    async fn has(&self, count: usize) -> Vec<String> {
        until(|| self.requests().len() >= count).await;
        self.requests()
    }

    /// A hook to it, with more settings.
    fn hook(&self, more: &str) -> (Arc<Hook>, Registry) {
        hook(&format!("url = \"http://{}/asked?key=hidden\"\nallow_http = true\n{more}", self.addr))
    }
}

async fn until(mut is_so: impl FnMut() -> bool) {
    let waiting = async {
        while !is_so() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(PATIENCE, waiting).await.expect("within the deadline");
}

async fn serve(mut stream: TcpStream, state: Arc<Mutex<State>>) {
    let mut input = Vec::new();
    while stream.read_buf(&mut input).await.is_ok_and(|count| count > 0) {
        let text = String::from_utf8(input.clone()).unwrap();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        if body.len() < length.parse().unwrap() {
            continue;
        }
        input.clear();
        let behaviour = {
            let state = &mut *lock(&state);
            state.requests.push(text);
            state.script.pop_front().unwrap_or_else(|| state.otherwise.clone())
        };
        match behaviour {
            Behaviour::Answer(bytes) => stream.write_all(bytes.as_bytes()).await.unwrap_or_default(),
            Behaviour::HangUp => return,
            Behaviour::Silence => {}
        }
    }
}

fn hook(settings: &str) -> (Arc<Hook>, Registry) {
    let registry = Registry::new();
    let text = format!("[hooks.main]\n{settings}");
    let config = tidings_config::parse("t.toml", &text, []).unwrap_or_else(|error| panic!("{error}")).config;
    let hooks = Hooks::start(&config, None, &registry).unwrap();
    (hooks.0[0].clone(), registry)
}

fn call() -> HookCall {
    let question = Question::Rpc { method: "greet".to_owned(), data: Some(Json::of(&"hello")) };
    let headers = [("cookie", "c=1"), ("x-odd", "a\u{7f}"), ("x-other", "o")];
    let headers = headers.map(|(name, value)| (name.into(), value.into()));
    HookCall {
        hook: HookId(0),
        client: ClientId::from_random(7),
        variant: Variant::websocket(Format::Json),
        user: "42".into(),
        question,
        meta: Some(Json::of(&"between us")),
        headers: Some(headers.into()),
    }
}

/// Another connection each time.
fn asker() -> Asker {
    Asker { network: Some([10, 0, 0, 1].into()), user: "42".into(), client: ClientId::from_random(rand::random()) }
}

/// What came of a question, in short; waits until there is a connection.
async fn asked(hook: &Hook) -> String {
    match hook.ask(&call(), &asker()).await {
        HookAnswer::Result(_) => "result".to_owned(),
        HookAnswer::Error(error) => format!("error {} {}", error.code, error.message),
        HookAnswer::Disconnect(disconnect) => format!("disconnect {} {}", disconnect.code, disconnect.reason),
        HookAnswer::Failed(code) => format!("failed {}", code.code()),
    }
}

fn metric(registry: &Registry, result: &str) -> u64 {
    let series = format!("tidings_hooks_calls_total{{hook=\"main\",result=\"{result}\"}} ");
    let page = registry.prometheus();
    page.lines().find_map(|line| line.strip_prefix(&series)).map_or(0, |value| value.parse().unwrap())
}

#[tokio::test]
async fn a_back_end_gets_the_question_and_the_headers_it_may_get() {
    let backend = Backend::start(answer(200, r#"{"result":{"data":1}}"#)).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    std::fs::write(&file, "X-More: more\n").unwrap();
    let settings = format!(
        "client_headers = [\"Cookie\", \"X-Odd\"]\nstatic_headers = [\"X-Key: key\"]\nstatic_headers_file = {file:?}\n\
         include_meta = true"
    );
    let (hook, _) = backend.hook(&settings);
    assert_eq!(asked(&hook).await, "result");
    let request = &backend.requests()[0];
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let (line, headers) = head.split_once("\r\n").unwrap();
    assert_eq!(line, "POST /asked?key=hidden HTTP/1.1");
    for header in ["content-type: application/json", "cookie: c=1", "x-key: key", "x-more: more"] {
        assert!(headers.lines().any(|line| line == header), "{header}: {headers}");
    }
    assert!(!headers.contains("x-odd") && !headers.contains("x-other"), "{headers}");
    let body: serde_json::Value = serde_json::from_str(body).unwrap();
    let fields = [&body["user"], &body["method"], &body["data"], &body["transport"], &body["meta"]];
    assert_eq!(fields, ["42", "greet", "hello", "websocket", "between us"]);

    let (hook, _) = backend.hook("");
    assert_eq!(asked(&hook).await, "result");
    assert!(!backend.requests()[1].contains("between us") && !backend.requests()[1].contains("c=1"));
}

const OLD: &str = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFu";
const NEW: &str = "whsec_Y2hhbmdlLW1lLWNoYW5nZS1tZS1jaGFv";

/// Whether the signatures of a request are those of these secrets, in this order.
fn is_signed(request: &str, secrets: &[&str]) -> bool {
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let (Some(id), Some(timestamp)) = (header("webhook-id"), header("webhook-timestamp")) else { return false };
    let key = |secret: &&str| tidings_config::WebhookKey::parse(secret).unwrap();
    let signature = |key| WebhookKeys { current: key, previous: None }.signature(id, timestamp, body.as_bytes());
    let expected: Vec<String> = secrets.iter().map(key).map(signature).collect();
    unix_now().as_secs().abs_diff(timestamp.parse().unwrap()) < 60
        && header("webhook-signature") == Some(&expected.join(" "))
}

#[tokio::test]
async fn questions_are_signed_and_credentials_are_replaced_at_a_reload() {
    let backend = Backend::start(answer(200, "{}")).await;
    let config = |more: &str| {
        let text = format!("[hooks.main]\nurl = \"http://{}/asked\"\nallow_http = true\n{more}", backend.addr);
        tidings_config::parse("t.toml", &text, []).unwrap_or_else(|error| panic!("{error}")).config
    };
    let before =
        format!("signing_secret = \"{OLD}\"\nclient_headers = [\"Cookie\"]\nstatic_headers = [\"X-Key: old\"]");
    let hooks = Hooks::start(&config(&before), None, &Registry::new()).unwrap();
    asked(&hooks.0[0]).await;
    asked(&hooks.0[0]).await;
    let after = format!(
        "signing_secret = \"{NEW}\"\nprevious_signing_secret = \"{OLD}\"\nstatic_headers = [\"X-Key: new\", \"Cookie: ours\"]"
    );
    hooks.reload(&config(&after));
    asked(&hooks.0[0]).await;
    let requests = backend.requests();
    assert!(is_signed(&requests[0], &[OLD]) && is_signed(&requests[2], &[NEW, OLD]), "{requests:?}");
    let id = |request: &str| request.lines().find(|line| line.starts_with("webhook-id: hook_")).map(str::to_owned);
    assert!(id(&requests[0]).is_some() && id(&requests[0]) != id(&requests[1]));
    assert!(requests[0].contains("x-key: old") && requests[0].contains("cookie: c=1"));
    assert!(requests[2].contains("x-key: new") && requests[2].contains("cookie: ours"));
    assert!(!requests[2].contains("cookie: c=1"), "a client never sets a static header");

    hooks.reload(&tidings_config::parse("t.toml", "", []).unwrap().config);
    asked(&hooks.0[0]).await;
    assert!(is_signed(&backend.requests()[3], &[NEW, OLD]), "a hook that is gone is used until a restart");
}

#[tokio::test]
async fn only_status_200_with_an_answer_is_valid() {
    let large = format!(r#"{{"result":{{"data":"{}"}}}}"#, "x".repeat(2000));
    let settings = "timeout = \"2s\"\nanswer_bytes_max = \"1KiB\"\nstatuses = [\
        {status = 404, error = 1404, text = \"gone\"}, {status = 403, disconnect = 4403, text = \"no\"}]";
    for (behaviour, expected, result) in [
        (answer(200, r#"{"result":{}}"#), "result", "result"),
        (answer(200, r#"{"error":{"code":7,"message":"seven"}}"#), "error 7 seven", "error"),
        (answer(200, r#"{"disconnect":{"code":4500}}"#), "disconnect 4500 ", "disconnect"),
        (answer(404, ""), "error 1404 gone", "error"),
        (answer(403, ""), "disconnect 4403 no", "disconnect"),
        (answer(500, r#"{"result":{}}"#), "failed 100", "status"),
        (answer(201, r#"{"result":{}}"#), "failed 100", "status"),
        (answer(503, ""), "failed 100", "down"),
        (answer(200, "<html>"), "failed 100", "invalid"),
        (answer(200, &large), "failed 100", "invalid"),
        (Behaviour::Answer("I speak no HTTP\r\n\r\n".to_owned()), "failed 100", "down"),
        (Behaviour::HangUp, "failed 100", "down"),
    ] {
        let backend = Backend::start(behaviour).await;
        let (hook, registry) = backend.hook(settings);
        assert_eq!((&*asked(&hook).await, metric(&registry, result)), (expected, 1), "{result}");
        assert_eq!(backend.requests().len(), 1, "{result}: an RPC is not repeated");
    }
}

#[tokio::test]
async fn a_question_that_changes_nothing_is_repeated_when_its_connection_breaks() {
    let backend = Backend::start(answer(200, "{}")).await;
    backend.script([Behaviour::HangUp]);
    let (hook, _) = backend.hook("");
    let channel = tidings_types::ChannelName::new("a").unwrap();
    let question = Question::Subscribe { channel, token: Default::default(), data: None };
    let answer = hook.ask(&HookCall { question, ..call() }, &asker()).await;
    assert!(matches!(answer, HookAnswer::Result(None)), "{answer:?}");
    assert_eq!(backend.requests().len(), 2);
}

#[tokio::test]
async fn a_back_end_that_is_silent_or_away_costs_the_timeout_at_most() {
    let backend = Backend::start(Behaviour::Silence).await;
    let (hook, registry) = backend.hook("timeout = \"50ms\"");
    assert_eq!((&*asked(&hook).await, metric(&registry, "timeout")), ("failed 100", 1));

    let (addr, settings) = (backend.addr, "timeout = \"50ms\"\nallow_http = true");
    drop(backend);
    let (hook, registry) = self::hook(&format!("url = \"http://{addr}/\"\n{settings}"));
    assert_eq!(asked(&hook).await, "failed 100");
    assert_eq!(metric(&registry, "timeout") + metric(&registry, "down"), 1);
}

#[tokio::test]
async fn calls_in_flight_and_calls_that_wait_are_bounded() {
    let backend = Backend::start(Behaviour::Silence).await;
    let (hook, registry) = backend.hook("timeout = \"5s\"\nin_flight_max = 2\nwaiting_max = 1");
    let mut calls = JoinSet::new();
    let begin = |calls: &mut JoinSet<String>| {
        let hook = hook.clone();
        calls.spawn(async move { asked(&hook).await })
    };
    let first = begin(&mut calls);
    begin(&mut calls);
    backend.has(2).await;
    begin(&mut calls);
    until(|| hook.gate.waiting_count() == 1).await;
    assert_eq!(asked(&hook).await, "failed 111", "there is no place to wait");
    assert_eq!((metric(&registry, "busy"), backend.requests().len()), (1, 2));

    backend.behave(answer(200, "{}"));
    first.abort(); // Its client has gone: the one that waited takes its permit.
    while let Some(ended) = calls.join_next().await {
        if ended.is_ok_and(|answer| answer == "result") {
            break;
        }
    }
    assert_eq!((metric(&registry, "abandoned"), backend.requests().len()), (1, 3));
}

/// A thousand greedy clients of one network, and a slow back end: another network is served next, and finds a place to wait.
#[tokio::test]
async fn a_client_is_asked_about_before_a_thousand_calls_of_another_network() {
    let backend = Backend::start(Behaviour::Silence).await;
    let (hook, registry) = backend.hook("timeout = \"7s\"\nin_flight_max = 1\nwaiting_max = 1000");
    let mut greedy = JoinSet::new();
    let mut begin = || {
        let hook = hook.clone();
        greedy.spawn(async move { asked(&hook).await })
    };
    let first = begin();
    backend.has(1).await;
    (0..1001).for_each(|_| drop(begin()));
    until(|| metric(&registry, "busy") == 1).await;
    let mut modest = JoinSet::new();
    modest.spawn({
        let hook = hook.clone();
        let asker = Asker { network: Some([10, 0, 0, 2].into()), user: "7".into(), ..asker() };
        async move { hook.ask(&HookCall { user: "7".into(), ..call() }, &asker).await }
    });
    until(|| metric(&registry, "busy") == 2).await; // A greedy one made room.
    backend.behave(answer(200, r#"{"result": {}}"#));
    first.abort();
    assert!(matches!(modest.join_next().await.unwrap().unwrap(), HookAnswer::Result(_)));
    let count = backend.requests().len();
    assert!(count < 10, "{count} were asked before");
}

/// Asks until the breaker opens.
async fn until_left_alone(hook: &Arc<Hook>, registry: &Registry) {
    for _ in 0..100 {
        if metric(registry, "down") >= 3 {
            return;
        }
        assert_eq!(asked(hook).await, "failed 100");
    }
    panic!("{} of 100 calls found that it is down", metric(registry, "down"));
}

#[tokio::test]
async fn a_back_end_that_is_down_is_left_alone_until_it_answers_again() {
    let backend = Backend::start(Behaviour::HangUp).await;
    let (hook, registry) = backend.hook("timeout = \"2s\"");
    until_left_alone(&hook, &registry).await;
    let seen = backend.requests().len();
    assert_eq!((&*asked(&hook).await, metric(&registry, "breaker")), ("failed 100", 1));
    assert_eq!(backend.requests().len(), seen, "it was not asked");

    backend.behave(answer(200, "{}"));
    timeout(PATIENCE, async {
        while asked(&hook).await != "result" {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("a probe finds that it is up again");
    assert_eq!(asked(&hook).await, "result", "the breaker is closed");
}

#[tokio::test]
async fn a_probe_whose_client_leaves_is_followed_by_another() {
    let backend = Backend::start(Behaviour::HangUp).await;
    let (hook, registry) = backend.hook("timeout = \"2s\"");
    until_left_alone(&hook, &registry).await;
    backend.behave(Behaviour::Silence);
    let seen = backend.requests().len();
    timeout(PATIENCE, async {
        while backend.requests().len() == seen {
            let _ = timeout(Duration::from_millis(20), asked(&hook)).await; // The client leaves.
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("there is a probe");
    assert_eq!(metric(&registry, "abandoned"), 1);
    backend.behave(answer(200, "{}"));
    timeout(PATIENCE, async {
        while asked(&hook).await != "result" {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .expect("and another");
}
