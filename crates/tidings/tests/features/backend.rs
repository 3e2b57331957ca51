//! A backend of an app: it tells the server of events, registers phones, asks what became of it all, and signs the
//! tokens that its users connect with. What it does with channels, devices and feeds is in files of their own.

#[path = "backend/channels.rs"]
mod channels;
#[path = "backend/devices.rs"]
mod devices;
#[path = "backend/feeds.rs"]
mod feeds;
#[path = "backend/imports.rs"]
mod imports;

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::{HOST, HeaderName, RETRY_AFTER};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidings_trial::token;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::event::Event;
use crate::phone::Phone;

/// A request without an answer for this long is a failure; none here waits as long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the backend waits for receipts at most.
const RECEIPTS_WAIT: &str = "10s";

/// Why the server says no.
#[derive(Debug, Clone)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Which problem it is.
    pub(crate) kind: String,
    /// The field to blame, the limit and the value, where there are such.
    pub(crate) field: Option<String>,
    pub(crate) limit: Option<u64>,
    pub(crate) value: Option<u64>,
    /// In how many seconds it is worth asking again.
    pub(crate) retry_after: Option<u32>,
    /// For people.
    pub(crate) detail: String,
}

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is not known, or forgotten.
    Unknown,
    /// There is still somebody to be told.
    Running {
        /// Phones that are given time to answer.
        held: u64,
    },
    /// Everybody has been told, or not for a reason.
    Finished {
        /// Phones that proved to have it.
        received: u64,
        /// Phones that it came too late for.
        expired: u64,
    },
}

/// How many devices an event would be for.
#[derive(Debug, Clone)]
pub(crate) struct Count {
    pub(crate) total: u64,
    by_country: Value,
    estimate: Value,
}

impl Count {
    /// Those in this country.
    pub(crate) fn in_country(&self, country: &str) -> u64 {
        self.by_country[country].as_u64().unwrap_or_default()
    }

    /// How many minutes telling those of this provider would take; `None` while nobody knows.
    pub(crate) fn minutes(&self, provider: &str) -> Option<f64> {
        let mut pools = self.estimate.as_array().expect("a list of pools").iter();
        pools.find(|pool| pool["provider"] == provider).expect("one for its devices")["minutes"].as_f64()
    }
}

/// What a selector means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Meaning {
    /// So many devices, of so many.
    pub(crate) count: u64,
    pub(crate) of: u64,
    pub(crate) parts: Vec<(String, u64)>,
}

/// Who got an event over a live connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipts {
    pub(crate) written: u64,
    pub(crate) received: u64,
    pub(crate) users: Vec<String>,
}

/// Why a device got an event, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) verdict: String,
    pub(crate) steps: Vec<String>,
    pub(crate) because: Vec<String>,
}

/// A caller of the server with a key, or without one.
#[derive(Debug, Clone)]
pub(crate) struct Backend {
    addr: SocketAddr,
    key: Option<&'static str>,
}

impl Backend {
    pub(crate) fn new(addr: SocketAddr, key: Option<&'static str>) -> Self {
        Self { addr, key }
    }

    /// Tells of an event.
    pub(crate) async fn tell(&self, event: &Event) -> Result<(), Refusal> {
        self.call(Method::POST, "/v1/events", Some(&event.0)).await.map(drop)
    }

    /// Tells of several events in one request.
    pub(crate) async fn tell_all(&self, events: &[Event]) -> Result<(), Refusal> {
        let events = events.iter().map(|event| event.0.clone()).collect();
        self.call(Method::POST, "/v1/events", Some(&events)).await.map(drop)
    }

    pub(crate) async fn why(&self, event: &str, phone: &Phone) -> Why {
        let why = self.must(Method::GET, &format!("/v1/events/{event}/devices/{}", phone.id), None).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let all =
            |list: &Value, of: &dyn Fn(&Value) -> String| list.as_array().expect("a list").iter().map(of).collect();
        Why {
            verdict: text(&why["verdict"]),
            steps: all(&why["steps"], &|step| text(&step["step"])),
            because: all(&why["because"], &text),
        }
    }

    pub(crate) async fn progress(&self, id: &str) -> Progress {
        match self.call(Method::GET, &format!("/v1/events/{id}"), None).await {
            Ok(report) if report["state"] == "finished" || report["done_at"].is_string() => {
                let count = |name: &str| report["outcomes"][name].as_u64().expect("a finished event has counted all");
                Progress::Finished { received: count("received"), expired: count("expired") }
            }
            Ok(report) if report["state"] == "forgotten" => Progress::Unknown,
            Ok(report) => Progress::Running { held: report["held"].as_u64().unwrap_or_default() },
            Err(Refusal { status: 404, .. }) => Progress::Unknown,
            Err(refusal) => panic!("asking for event {id} is refused: {refusal:?}"),
        }
    }

    /// What the server says of an event; `None` when it does not know it.
    pub(crate) async fn report(&self, id: &str) -> Option<Value> {
        match self.call(Method::GET, &format!("/v1/events/{id}"), None).await {
            Ok(report) => Some(report),
            Err(Refusal { status: 404, .. }) => None,
            Err(refusal) => panic!("asking for event {id} is refused: {refusal:?}"),
        }
    }

    /// Takes an event back.
    pub(crate) async fn cancel(&self, id: &str) {
        self.must(Method::DELETE, &format!("/v1/events/{id}"), None).await;
    }

    /// What the audit log says of one action, the newest first.
    pub(crate) async fn audited(&self, action: &str) -> Vec<Value> {
        let mut log = self.must(Method::GET, &format!("/v1/audit?action={action}"), None).await;
        serde_json::from_value(log["entries"].take()).expect("a list")
    }

    /// Puts a brake on.
    pub(crate) async fn pause(&self, scope: &str) {
        self.must(Method::PUT, &format!("/v1/brakes/{scope}"), None).await;
    }

    /// What is paused.
    pub(crate) async fn pauses(&self) -> Vec<String> {
        let answer = self.must(Method::GET, "/v1/brakes", None).await;
        let scopes = answer["brakes"].as_array().expect("a list").iter();
        scopes.map(|brake| brake["scope"].as_str().expect("a text").to_owned()).collect()
    }

    /// Takes it off.
    pub(crate) async fn resume(&self, scope: &str) {
        self.must(Method::DELETE, &format!("/v1/brakes/{scope}"), None).await;
    }

    /// Whether an event was ever accepted.
    pub(crate) async fn knows(&self, id: &str) -> bool {
        match self.call(Method::GET, &format!("/v1/events/{id}"), None).await {
            Ok(_) => true,
            Err(Refusal { status: 404, .. }) => false,
            Err(refusal) => panic!("asking for event {id} is refused: {refusal:?}"),
        }
    }

    /// Who got the event; waits until everybody asked has answered, within limits.
    pub(crate) async fn receipts(&self, id: &str) -> Receipts {
        let answer = self.must(Method::GET, &format!("/v1/events/{id}/receipts?wait={RECEIPTS_WAIT}"), None).await;
        let number = |name: &str| answer[name].as_u64().unwrap_or_else(|| panic!("no {name} in {answer}"));
        let users = answer["users"].as_array().into_iter().flatten();
        let users = users.map(|user| user.as_str().unwrap_or_default().to_owned()).collect();
        Receipts { written: number("written"), received: number("received"), users }
    }

    /// Whom an event would be for.
    pub(crate) async fn count(&self, topic: &str, subject: &str) -> Count {
        let body = json!({ "topic": topic, "subjects": [subject] });
        let mut answer = self.must(Method::POST, "/v1/audience/preview", Some(&body)).await;
        let total = answer["total"].as_u64().expect("a total");
        Count { total, by_country: answer["by_country"].take(), estimate: answer["estimate"].take() }
    }

    /// Whether the alarm is raised that the provider calls all tokens those of another world.
    pub(crate) async fn is_alarmed_of_another_world(&self) -> bool {
        let answer = self.answer(Method::GET, "/metrics", None, Bytes::new()).await;
        assert_eq!(answer.status, 200, "metrics: {answer:?}");
        let metrics = String::from_utf8_lossy(&answer.body).into_owned();
        let mut lines = metrics.lines().filter(|line| line.starts_with("tidings_sender_environment_alarm{"));
        lines.any(|line| line.ends_with(" 1"))
    }

    /// What a selector means: how many devices in all, of how many, and the parts of it with theirs.
    pub(crate) async fn explain(&self, selector: &str) -> Meaning {
        let told = self.must(Method::POST, "/v1/audience/explain", Some(&json!({ "selector": selector }))).await;
        let count = |of: &Value| of.as_u64().unwrap_or_else(|| panic!("no count in {told}"));
        let parts = told["tree"]["parts"].as_array().expect("it has parts").iter();
        let parts = parts.map(|part| (part["text"].as_str().expect("its words").to_owned(), count(&part["devices"])));
        Meaning { count: count(&told["devices"]), of: count(&told["of"]), parts: parts.collect() }
    }

    async fn must(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let shown = format!("{method} {path}");
        self.call(method, path, body).await.unwrap_or_else(|refusal| panic!("{shown} is refused: {refusal:?}"))
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        let header = body.is_some().then_some(("content-type", "application/json"));
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        self.answer(method, path, header, body).await.read()
    }

    async fn answer(&self, method: Method, path: &str, header: Option<(&'static str, &str)>, body: Bytes) -> Answer {
        let shown = format!("{method} {path}");
        let answer = timeout(ANSWER_TIMEOUT, self.exchange(method, path, header, body)).await;
        let answer = answer.unwrap_or_else(|_| panic!("{shown}: no answer within {ANSWER_TIMEOUT:?}"));
        answer.unwrap_or_else(|error| panic!("{shown}: {error}"))
    }

    /// One request on a connection of its own.
    async fn exchange(
        &self,
        method: Method,
        path: &str,
        header: Option<(&'static str, &str)>,
        body: Bytes,
    ) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
        let mut request = Request::builder().method(method).uri(path).header(HOST, "127.0.0.1");
        if let Some((name, value)) = header {
            request = request.header(HeaderName::from_static(name), value);
        }
        if let Some(key) = self.key {
            request = request.header("X-API-Key", key);
        }
        let request = request.body(Full::new(body))?;
        let stream = TcpStream::connect(self.addr).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            Ok(Answer { status, retry_after, body: response.into_body().collect().await?.to_bytes() })
        };
        // The answer fails with the reason when the connection does.
        let (answer, _) = tokio::join!(answer, connection);
        answer
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    retry_after: Option<u32>,
    body: Bytes,
}

impl Answer {
    /// What the server says, or why it does not.
    fn read(self) -> Result<Value, Refusal> {
        let Self { status, retry_after, body } = self;
        let json = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(&body) };
        let json: Value = json.unwrap_or_else(|error| panic!("{status}, but no JSON: {error}"));
        if (200..300).contains(&status) {
            return Ok(json);
        }
        Err(Refusal {
            status,
            kind: json["type"].as_str().unwrap_or_default().to_owned(),
            field: json["field"].as_str().map(str::to_owned),
            limit: json["limit"].as_u64(),
            value: json["value"].as_u64(),
            retry_after,
            detail: json["detail"].as_str().unwrap_or_default().to_owned(),
        })
    }
}

/// A token that lets a user in, signed with `secret`. With `device` it also proves
/// which phone the app runs on, and it brings the app into `channels`.
pub(crate) fn connection_token(secret: &str, user: &str, device: Option<&str>, channels: &[String]) -> String {
    let mut claims = json!({ "sub": user, "channels": channels });
    if let Some(device) = device {
        claims["device"] = json!(device);
    }
    token::sign(secret, &claims)
}
