//! Every route of the HTTP API, as `/openapi.json` lists them, on the real router with a real store.
//!
//! An input is: two bytes that choose the route (see [`Route::number`]), a byte of flags, a line with the parameters of path and query (split at
//! tabs, in the order in which the document lists them; missing ones are left out, and one of the path is `x`), then the
//! body. With the flag [`SHAPED`] the body's bytes are choices instead: of what the route's schema allows, and now and then of
//! something else. So a small change of an input is a small change of a request.
//!
//! A status of 500 or more is a finding (a panic of a handler is answered with one), but for 503: a queue is full, or the
//! journal is. So is a body that breaks off, or that is not of the format it says.
//!
//! The server is made anew after [`REQUESTS_PER_SERVER`] requests, before its bounds are reached. An input may find something
//! that it does not find alone; most such findings repeat with the corpus before them.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tidings_api::{
    Api, ApiConfig, ApiKey, ApiKeys, Apps, CheckError, ClientCounts, Configured, Connections, DeviceEvents,
    DeviceTrail, Estimate, EventCheck, JobView, Jobs, ListFuture, MemoryTerm, Node, OrderFuture, Readiness, Rfc3339,
    Scope, System, Texts, TextsView,
};
use tidings_hub::{Hub, HubConfig};
use tidings_protocol::{NamespaceOptions, Namespaces, Order, Target};
use tidings_store::{CommitSink, DurableChannel, QueueLimit, Store, StoreConfig, StoredPublication};
use tidings_stream::TailBounds;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, ChannelName, DeviceNumber, Environment, Event, EventChannels, JournalPosition, Locale, Provider,
    StreamPosition, TopicName,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;
use tower::ServiceExt as _;

/// The body is MessagePack.
const PACKED: u8 = 1;
/// The answer is to be MessagePack.
const PACKED_ANSWER: u8 = 2;
/// The body is made from the schema.
const SHAPED: u8 = 4;
/// An app calls, not a server.
const APP: u8 = 8;
/// The answer is to be lines, where the route has them.
const LINES: u8 = 16;

const MESSAGEPACK: &str = "application/msgpack";
const NDJSON: &str = "application/x-ndjson";

const REQUESTS_PER_SERVER: usize = 4000;
/// What waits longer than this waits on purpose (receipts): its request is given up.
const PATIENCE: Duration = Duration::from_millis(200);
/// Levels of a shaped body, and entries of its lists.
const SHAPE_DEPTH_MAX: usize = 12;

/// SHA-256 of `root`.
const ROOT: [u8; 32] = [
    0x48, 0x13, 0x49, 0x4d, 0x13, 0x7e, 0x16, 0x31, 0xbb, 0xa3, 0x01, 0xd5, 0xac, 0xab, 0x6e, 0x7b, 0xb7, 0xaa, 0x74,
    0xce, 0x11, 0x85, 0xd4, 0x56, 0x56, 0x5e, 0xf5, 0x1d, 0x73, 0x76, 0x77, 0xb2,
];

/// Values that pass the rules of names, or just do not.
const WORDS: [&str; 24] = [
    "a",
    "goal",
    "team:42",
    "match:1",
    "chat:1",
    "phone-1",
    "everything",
    "global",
    "ios",
    "sv",
    "SE",
    "all",
    "en-US",
    "0f8e",
    "2s",
    "1",
    "2030-01-01T00:00:00Z",
    "Europe/Stockholm",
    "goal on team:42",
    "not (all and country = SE)",
    "https://fcm.googleapis.com/fcm/send/a",
    "\u{e5}\u{1f3c6}",
    "",
    "%2F",
];

struct Server {
    router: Router,
    store: Store,
    request_count: usize,
    document: Value,
    routes: Vec<Route>,
    _folder: TempDir,
}

struct Route {
    /// Of its name; an input means the route with the next number. So an input keeps its route when others come and go.
    number: u16,
    method: String,
    path: String,
    /// Those of the path, and of the query.
    parameters: (Vec<String>, Vec<String>),
    body: Value,
}

/// Accepts every event, knows no jobs, has no connections, and hands nothing on.
struct Nothing;

impl Configured for Nothing {
    fn unknown_value(&self, _: &Event) -> Option<(String, Vec<String>)> {
        None
    }

    fn plain_moments(&self, _: &Event) -> Vec<String> {
        Vec::new()
    }

    fn untranslated(&self, _: &Event) -> Vec<Locale> {
        vec![Locale::new("sv").expect("a locale")]
    }

    fn knows_topic(&self, topic: &TopicName) -> bool {
        topic.as_str() == "goal"
    }

    fn knows_language(&self, _: &Locale) -> bool {
        false
    }

    fn serves(&self, _: &AppId, _: Provider, _: Environment) -> bool {
        false
    }
}

impl EventCheck for Nothing {
    fn check(&self, _: &Event) -> Result<(), CheckError> {
        Ok(())
    }
}

impl Jobs for Nothing {
    fn job(&self, _: JournalPosition) -> Option<JobView> {
        None
    }

    fn jobs(&self, _: Option<JournalPosition>, _: usize) -> Vec<JobView> {
        Vec::new()
    }

    fn estimate(&self, _: &Event) -> Vec<Estimate> {
        Vec::new()
    }

    fn trail(&self, _: JournalPosition, _: DeviceNumber) -> Option<DeviceTrail> {
        None
    }

    fn events_of(&self, _: DeviceNumber, _: Option<JournalPosition>, _: usize) -> DeviceEvents {
        DeviceEvents::default()
    }
}

impl Connections for Nothing {
    fn revoke(&self, _: DeviceNumber, _: bool) {}

    fn order(&self, _: Target, _: Order) -> OrderFuture {
        Box::pin(async { Ok(()) })
    }

    fn list(&self, _: Target) -> ListFuture {
        Box::pin(async { Ok(Vec::new()) })
    }
}

impl Texts for Nothing {
    fn view(&self) -> TextsView {
        let since = Rfc3339(unix_now());
        TextsView {
            topics: 0,
            languages: Vec::new(),
            coverage: Vec::new(),
            since,
            can_roll_back: false,
            faults: Vec::new(),
        }
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = TextsView> + Send>> {
        let view = self.view();
        Box::pin(async { view })
    }

    fn roll_back(&self) -> Pin<Box<dyn Future<Output = Option<TextsView>> + Send>> {
        Box::pin(async { None })
    }
}

impl System for Nothing {
    fn readiness(&self) -> Readiness {
        Readiness { is_stopping: false, listeners: Vec::new(), providers: Vec::new() }
    }

    fn memory(&self) -> Vec<MemoryTerm> {
        Vec::new()
    }
}

impl CommitSink for Nothing {
    fn on_publication(&self, _: &ChannelName, _: StreamPosition, _: &StoredPublication, _: &DurableChannel) {}

    fn on_events(&self, _: JournalPosition) {}
}

/// No route answers with an error of the server's.
pub(crate) fn routes(bytes: &[u8]) {
    static SERVER: Mutex<Option<(Runtime, Server)>> = Mutex::new(None);
    let [high, low, flags, rest @ ..] = bytes else { return };
    let mut kept = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((runtime, server)) = kept.take_if(|(_, server)| server.request_count == REQUESTS_PER_SERVER) {
        runtime.block_on(server.store.close()); // Its folder goes with the server.
    }
    let (runtime, server) = kept.get_or_insert_with(|| {
        let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
        let server = runtime.block_on(Server::start());
        (runtime, server)
    });
    server.request_count += 1;
    let number = u16::from_be_bytes([*high, *low]);
    let route = server.routes.iter().find(|route| route.number >= number).unwrap_or(&server.routes[0]);
    let request = request(route, *flags, rest, &server.document);
    let name = format!("{} {}", request.method(), request.uri());
    runtime.block_on(async {
        let answer = timeout(PATIENCE, async {
            let answer = server.router.clone().oneshot(request).await.expect("a router always answers");
            let (head, body) = answer.into_parts();
            let body = body.collect().await.unwrap_or_else(|error| panic!("{name}: the answer broke off: {error}"));
            (head.status, head.headers, body.to_bytes())
        });
        if let Ok((status, headers, body)) = answer.await {
            judge(&name, status, &headers, &body);
        }
    });
}

fn judge(name: &str, status: StatusCode, headers: &HeaderMap, body: &Bytes) {
    let is_ours = status.as_u16() < 500 || status == StatusCode::SERVICE_UNAVAILABLE;
    assert!(is_ours, "{name}: {status}: {}", body.escape_ascii());
    let kind = headers.get(CONTENT_TYPE).map_or("", |kind| kind.to_str().expect("our own names are text"));
    match kind {
        "application/json" | "application/problem+json" => {
            let read = serde_json::from_slice::<Value>(body);
            assert!(read.is_ok(), "{name}: {read:?}: {}", body.escape_ascii());
        }
        MESSAGEPACK => {
            let read = rmp_serde::from_slice::<Value>(body);
            assert!(read.is_ok() || body.is_empty(), "{name}: {read:?}: {}", body.escape_ascii());
        }
        _ => {}
    }
}

fn request(route: &Route, flags: u8, rest: &[u8], document: &Value) -> Request<Body> {
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    let (line, body) = (&rest[..end], rest.get(end + 1..).unwrap_or_default());
    let mut values = line.split(|byte| *byte == b'\t').map(escaped);
    let (of_path, of_query) = &route.parameters;
    let mut path = route.path.clone();
    for name in of_path {
        let value = values.next().filter(|value| !value.is_empty()).unwrap_or_else(|| "x".to_owned());
        path = path.replace(&format!("{{{name}}}"), &value);
    }
    let query = of_query.iter().zip(values).filter(|(_, value)| !value.is_empty());
    let query: Vec<String> = query.map(|(name, value)| format!("{name}={value}")).collect();
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let is_on = |flag: u8| flags & flag != 0;
    let body = match is_on(SHAPED) {
        true => {
            let shaped = Shape { choices: body.iter(), document }.value(&route.body, 0);
            match is_on(PACKED) {
                true => rmp_serde::to_vec(&shaped).expect("JSON has a MessagePack"),
                false => shaped.to_string().into_bytes(),
            }
        }
        false => body.to_vec(),
    };
    let mut request = Request::builder().method(route.method.as_str()).uri(path);
    request = match is_on(APP) {
        true => request.header(AUTHORIZATION, "Bearer a.b.c").header("x-device-credential", "c"),
        false => request.header("x-api-key", "root"),
    };
    request = request.header(CONTENT_TYPE, if is_on(PACKED) { MESSAGEPACK } else { "application/json" });
    let accept = match (is_on(LINES), is_on(PACKED_ANSWER)) {
        (true, _) => NDJSON,
        (_, true) => MESSAGEPACK,
        _ => "application/json",
    };
    request.header(ACCEPT, accept).body(body.into()).expect("escaped values make a path")
}

/// As a part of a path: what cannot stand there, and some of what can, in percent.
fn escaped(value: &[u8]) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:%".contains(&byte);
    value.iter().map(|&byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

/// Makes a value of a schema, with a byte for each choice; 0 where there are no more.
struct Shape<'a> {
    choices: std::slice::Iter<'a, u8>,
    document: &'a Value,
}

impl Shape<'_> {
    fn choice(&mut self) -> usize {
        self.choices.next().copied().unwrap_or_default().into()
    }

    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if depth == SHAPE_DEPTH_MAX {
            return Value::Null;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let found = self.document.pointer(reference.trim_start_matches('#')).unwrap_or(&Value::Null);
            return self.value(&found.clone(), depth + 1);
        }
        let choice = self.choice();
        if choice >= 250 {
            return self.stray(choice);
        }
        // With `properties` beside it, a choice only says which of them go together.
        let among = ["oneOf", "anyOf", "enum", "examples"].into_iter().find_map(|word| schema[word].as_array());
        match (among, schema.get("const")) {
            (_, Some(only)) => only.clone(),
            (Some(among), _) if schema.get("properties").is_none() && !among.is_empty() => {
                let chosen = &among[choice % among.len()];
                let is_schema = schema.get("enum").is_none() && schema.get("examples").is_none();
                if is_schema { self.value(chosen, depth + 1) } else { chosen.clone() }
            }
            _ => self.typed(schema, choice, depth),
        }
    }

    fn typed(&mut self, schema: &Value, choice: usize, depth: usize) -> Value {
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            only => vec![only.clone()],
        };
        match types[choice % types.len()].as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => (0..choice % 4).map(|_| self.value(&schema["items"], depth + 1)).collect(),
            Some("integer") => json!([0, 1, 2, 60, 1000, -1, i64::MAX][self.choice() % 7]),
            Some("number") => json!([0.0, 0.5, 1.0, -0.0, 1e300][self.choice() % 5]),
            Some("boolean") => json!(self.choice() % 2 == 1),
            Some("string") => self.word(),
            Some("null") => Value::Null,
            _ => self.stray(choice),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let mut object = Map::new();
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            if required.iter().any(|required| required == name) || self.choice() % 4 == 1 {
                object.insert(name.clone(), self.value(property, depth + 1));
            }
        }
        if schema["additionalProperties"].is_object() {
            for _ in 0..self.choice() % 3 {
                let Value::String(name) = self.word() else { continue };
                object.insert(name, self.value(&schema["additionalProperties"], depth + 1));
            }
        }
        object.into()
    }

    /// One of [`WORDS`], or as many bytes of the input as the next one says.
    fn word(&mut self) -> Value {
        match self.choice() {
            choice if choice < 200 => WORDS[choice % WORDS.len()].into(),
            choice => {
                let bytes: Vec<u8> = self.choices.by_ref().take(choice - 199).copied().collect();
                String::from_utf8_lossy(&bytes).into_owned().into()
            }
        }
    }

    /// What no schema asks for.
    fn stray(&mut self, choice: usize) -> Value {
        match choice % 6 {
            0 => Value::Null,
            1 => json!({"a": [[[]]]}),
            2 => json!(u64::MAX),
            3 => json!([1e308, -0.5]),
            4 => (0..90).fold(json!("deep"), |inner, _| json!([inner])),
            _ => "x".repeat(5000).into(),
        }
    }
}

impl Server {
    async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let store = Store::open(store_config(&folder), Arc::new(Nothing)).expect("a new store");
        let config = HubConfig {
            namespaces: Arc::new(namespaces()),
            channel_count_max: 10_000,
            tail: TailBounds { frame_count_max: 64, bytes_max: 1 << 20 },
            tails_bytes_max: usize::MAX,
            history_bytes_max: usize::MAX,
            durable_start: store.channel_start(),
            receipt_event_count_max: 100,
            receipt_bytes_max: 256 << 20,
        };
        let keys = || {
            let scopes = vec![
                Scope::Publish,
                Scope::Read,
                Scope::Devices,
                Scope::Metrics,
                Scope::Operate,
                Scope::Backup,
                Scope::Audit,
            ];
            ApiKeys::new(vec![ApiKey { name: "root".to_owned(), sha256: ROOT, scopes, audience_max: None }])
        };
        let registry = Registry::new();
        let api = Api {
            config: ApiConfig {
                body_bytes_max: 64 << 10,
                request_count_max: 64,
                subscription_count_max: 8,
                mute_count_max: 8,
                key_rate: None,
                event_channels: EventChannels::AllSubjects,
            },
            hub: Arc::new(Hub::new(config, 1)),
            store: store.clone(),
            keys: keys(),
            apps: Some(Apps {
                verifier: None,
                subjects: Vec::new(),
                allowed_origins: Vec::new(),
                user_device_count_max: 4,
                rate: None,
                address_rate: None,
                address_header: None,
            }),
            check: Arc::new(Nothing),
            configured: Arc::new(Nothing),
            jobs: Arc::new(Nothing),
            connections: Arc::new(Nothing),
            feeds: None,
            texts: Arc::new(Nothing),
            system: Arc::new(Nothing),
            registry: registry.clone(),
            audit: None,
            tracer: None,
            node: Node {
                uid: "u".to_owned(),
                name: "fuzz".to_owned(),
                version: "0".to_owned(),
                clients: Arc::new(ClientCounts::default),
                others: None,
            },
        };
        let router = tidings_api::router(api)
            .merge(tidings_api::health_router(Vec::new))
            .merge(tidings_api::ready_router(store.clone(), true, || Readiness {
                is_stopping: false,
                listeners: Vec::new(),
                providers: Vec::new(),
            }))
            .merge(tidings_api::metrics_router(registry, keys()));
        let document = Request::get("/openapi.json").body(Body::empty()).expect("a request");
        let document = router.clone().oneshot(document).await.expect("a router always answers");
        let document = document.into_body().collect().await.expect("it is in memory").to_bytes();
        let document: Value = serde_json::from_slice(&document).expect("it is JSON");
        let routes = routes_of(&document);
        Self { router, store, request_count: 0, document, routes, _folder: folder }
    }
}

/// In the order of their numbers.
fn routes_of(document: &Value) -> Vec<Route> {
    let paths = document["paths"].as_object().expect("there are paths");
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().expect("each has methods");
        methods.iter().map(move |(method, operation)| (path, method, operation))
    });
    let route = |(path, method, operation): (&String, &String, &Value)| {
        let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
        let of = |place: &str| {
            let there = parameters.iter().filter(|parameter| parameter["in"] == place);
            there.filter_map(|parameter| Some(parameter["name"].as_str()?.to_owned())).collect()
        };
        let content = operation["requestBody"]["content"].as_object();
        let body = content.and_then(|content| content.values().next()).map_or(Value::Null, |it| it["schema"].clone());
        let method = method.to_uppercase();
        let number = number(&format!("{method} {path}"));
        Route { number, method, path: path.clone(), parameters: (of("path"), of("query")), body }
    };
    let mut routes: Vec<Route> = operations.map(route).collect();
    routes.sort_by_key(|route| route.number);
    routes
}

/// FNV-1a, folded to 16 bits.
fn number(name: &str) -> u16 {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash >> 16) as u16 ^ hash as u16
}

fn namespaces() -> Namespaces {
    let kept = NamespaceOptions {
        history_size: 3,
        history_ttl: Duration::from_secs(3600),
        presence: true,
        ..NamespaceOptions::closed()
    };
    let named = [("team", true), ("match", true), ("chat", false)];
    let named = named.map(|(name, durable)| (name.to_owned(), NamespaceOptions { durable, ..kept }));
    Namespaces::new(NamespaceOptions::closed(), named.into())
}

fn store_config(folder: &TempDir) -> StoreConfig {
    let queue = QueueLimit { count: 1024, bytes: 8 << 20 };
    StoreConfig {
        path: folder.path().to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 10_000,
        journal_bytes_max: 64 << 20,
        later_count_max: 1000,
        id_window: Duration::from_secs(3600),
        id_window_count: 10_000,
        device_count_max: 10_000,
        subscription_count_max: 8,
        channel_count_max: 10_000,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(10),
        reopen_backoff_max: Duration::from_millis(100),
        cache_bytes: 1 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: 8,
        idle_max: None,
        clock: unix_now,
    }
}
