//! An API that tells what it was given, and a browser without script.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tidings_console::{Answer, AnswerFuture, Api, Caller, Console, ConsoleConfig, Role};
use tidings_telemetry::Registry;
use tower::ServiceExt as _;

pub(crate) const OPERATOR_KEY: &str = "key-of-an-operator";
pub(crate) const VIEWER_KEY: &str = "key-of-a-viewer";

/// A call: who, method, path, body.
pub(crate) type Call = (String, String, String, Value);

/// Answers by `METHOD /path`, without the query; anything else is not found.
#[derive(Default)]
pub(crate) struct Told {
    pub(crate) answers: Mutex<BTreeMap<String, (u16, Value)>>,
    pub(crate) calls: Mutex<Vec<Call>>,
}

impl Api for Told {
    fn holder(&self, key: &str) -> Option<Caller> {
        let role = match key {
            OPERATOR_KEY => Role::Operator,
            VIEWER_KEY => Role::Viewer,
            _ => return None,
        };
        Some(Caller { key: role.as_str().into(), user: role.as_str().into(), role })
    }

    fn proxied(&self, user: &str, role: Role) -> Option<Caller> {
        Some(Caller { key: role.as_str().into(), user: user.into(), role })
    }

    fn call<'a>(&'a self, caller: &'a Caller, method: Method, path: &'a str, body: Option<Value>) -> AnswerFuture<'a> {
        let called = (caller.user.to_string(), method.to_string(), path.to_owned(), body.unwrap_or_default());
        self.calls.lock().unwrap().push(called);
        let name = format!("{method} {}", path.split('?').next().unwrap());
        let told = self.answers.lock().unwrap().get(&name).cloned();
        Box::pin(async move {
            match told {
                Some((status, body)) => Answer { status: StatusCode::from_u16(status).unwrap(), body },
                None => Answer::refused(StatusCode::NOT_FOUND, "not-found", "there is no such thing"),
            }
        })
    }
}

impl Told {
    pub(crate) fn tell(&self, name: &str, body: Value) {
        self.answers.lock().unwrap().insert(name.to_owned(), (200, body));
    }

    /// What was called to change something.
    pub(crate) fn changes(&self) -> Vec<Call> {
        let is_change = |(_, method, path, _): &&Call| {
            method != "GET" && !path.starts_with("/api/") && !path.starts_with("/v1/audience")
        };
        self.calls.lock().unwrap().iter().filter(is_change).cloned().collect()
    }
}

#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
    pub(crate) text: String,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The token of its forms.
    pub(crate) fn token(&self) -> String {
        let (_, rest) = self.text.split_once("name=\"token\" value=\"").expect("a form with a token");
        rest.split_once('"').unwrap().0.to_owned()
    }
}

pub(crate) fn config() -> ConsoleConfig {
    ConsoleConfig {
        session_count_max: 4,
        session_ttl: Duration::from_secs(3600),
        session_idle: Duration::from_secs(600),
        user_header: None,
        role_header: None,
        role_default: Role::Viewer,
        trusted_proxies: Vec::new(),
        trusts_loopback: false,
    }
}

/// The console, and a browser that keeps its cookie.
pub(crate) struct Browser {
    pub(crate) told: Arc<Told>,
    pub(crate) registry: Registry,
    router: Router,
    cookie: String,
}

impl Browser {
    pub(crate) fn start() -> Self {
        Self::start_with(config())
    }

    pub(crate) fn start_with(config: ConsoleConfig) -> Self {
        let (told, registry) = (Arc::new(Told::default()), Registry::new());
        let router = Console::new(config, told.clone(), registry.clone()).router();
        Self { told, registry, router, cookie: String::new() }
    }

    /// Another browser at the same console.
    pub(crate) fn another(&self) -> Self {
        let Self { told, registry, router, .. } = self;
        Self { told: told.clone(), registry: registry.clone(), router: router.clone(), cookie: String::new() }
    }

    pub(crate) async fn logged_in(key: &str) -> Self {
        let mut browser = Self::start();
        browser.log_in(key).await;
        browser
    }

    pub(crate) async fn log_in(&mut self, key: &str) -> Page {
        let page = self.post("/console/login", &[("key", key), ("next", "/console")]).await;
        let (cookie, _) = page.header("set-cookie").split_once(';').unwrap_or_default();
        self.cookie = cookie.to_owned();
        page
    }

    pub(crate) async fn get(&self, path: &str) -> Page {
        self.get_with(path, &[("accept", "text/html")]).await
    }

    pub(crate) async fn json(&self, path: &str) -> (u16, Value) {
        let page = self.get_with(path, &[("accept", "application/json")]).await;
        (page.status, serde_json::from_slice(&page.bytes).unwrap())
    }

    pub(crate) async fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Page {
        self.send("GET", path, headers, String::new(), [192, 0, 2, 7]).await
    }

    /// As [`Browser::get_with`], from another address.
    pub(crate) async fn get_from(&self, peer: [u8; 4], path: &str, headers: &[(&str, &str)]) -> Page {
        self.send("GET", path, headers, String::new(), peer).await
    }

    pub(crate) async fn post(&self, path: &str, form: &[(&str, &str)]) -> Page {
        self.post_from("http://console.example", path, form).await
    }

    /// As a page of this origin sends the form.
    pub(crate) async fn post_from(&self, origin: &str, path: &str, form: &[(&str, &str)]) -> Page {
        let mut body = form_urlencoded::Serializer::new(String::new());
        for (name, value) in form {
            body.append_pair(name, value);
        }
        let headers = [("origin", origin), ("content-type", "application/x-www-form-urlencoded")];
        self.send("POST", path, &headers, body.finish(), [192, 0, 2, 7]).await
    }

    async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: String, peer: [u8; 4]) -> Page {
        let mut request = Request::builder().method(method).uri(path).header("host", "console.example");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !self.cookie.is_empty() {
            request = request.header("cookie", format!("other=1; {}", self.cookie));
        }
        let peer = SocketAddr::from((peer, 40_000));
        let request = request.extension(ConnectInfo(peer)).body(Body::from(body)).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes().to_vec();
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Page { status: parts.status.as_u16(), headers: parts.headers, bytes, text }
    }
}

/// A job as the API tells it.
pub(crate) fn job(id: &str, state: &str, audience: u64, accepted: u64) -> Value {
    json!({
        "id": id, "position": 7, "topic": "goal", "priority": "high", "accepted_at": "2026-11-27T04:00:00Z", "state": state,
        "audience": audience, "held": 0, "retried": 2,
        "outcomes": {"accepted": accepted, "received": 3, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
            "rejected": {"Unregistered": 2}, "suppressed": {"no_token": 1}},
        "time_to": {"first_ms": 12, "p50_ms": 100, "p90_ms": 180, "p99_ms": 250, "p100_ms": 300},
        "by": [{"provider": "apns", "app": "com.example.app", "locale": "pl",
            "outcomes": {"accepted": accepted, "received": 0, "expired": 0, "unknown": 0, "cancelled": 0, "superseded": 0,
                "rejected": {"Unregistered": 2}, "suppressed": {}}}],
    })
}
