//! A backend of an app: it tells the server of events, registers phones, asks what became of it all, and signs the
//! tokens that its users connect with.

use std::net::SocketAddr;
use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::header::HOST;
use hyper::header::HeaderName;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidings_types::Timestamp;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::phone::{Phone, Subscription};

/// A request without an answer for this long is a failure; none here waits as long.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// What one object a line is called.
const LINES: &str = "application/x-ndjson";
/// How long the backend waits for receipts at most.
const RECEIPTS_WAIT: &str = "10s";

/// What happened, as the backend tells it.
#[derive(Debug, Clone)]
pub(crate) struct Event(Value);

impl Event {
    /// An event of this topic about this subject; Sweden has one goal in it.
    pub(crate) fn new(id: &str, topic: &str, subject: &str) -> Self {
        let params = json!({ "team": "Sweden", "goals": 1 });
        Self(json!({ "id": id, "topic": topic, "subjects": [subject], "params": params }))
    }

    pub(crate) fn id(&self) -> String {
        self.0["id"].as_str().expect("it has one").to_owned()
    }

    /// How long the server waits for receipts before it pushes.
    pub(crate) fn receipt_wait(&self) -> Duration {
        Duration::from_secs(self.0["receipt_wait"].as_u64().unwrap_or(2))
    }

    /// How long it is of use.
    pub(crate) fn life(&self) -> Duration {
        Duration::from_secs(self.0["ttl"].as_u64().unwrap_or(4 * 3600))
    }

    /// It is about these subjects.
    pub(crate) fn about(self, subjects: &[String]) -> Self {
        self.with("subjects", json!(subjects))
    }

    /// It is for this user, and nobody else.
    pub(crate) fn for_user(self, user: &str) -> Self {
        self.with("to", json!({ "users": [user] }))
    }

    /// It is for this phone, and no other.
    pub(crate) fn for_phone(self, phone: &Phone) -> Self {
        self.with("to", json!({ "devices": [phone.id] }))
    }

    /// It is for whom this selector means.
    pub(crate) fn for_selected(self, selector: &str) -> Self {
        self.with("to", json!({ "selector": selector }))
    }

    /// It is for those in this country only.
    pub(crate) fn only_in(self, country: &str) -> Self {
        self.with("filter", json!({ "countries": [country] }))
    }

    /// Who is pushed.
    pub(crate) fn push(self, policy: &str) -> Self {
        self.with("push", json!(policy))
    }

    /// Whose receipt counts.
    pub(crate) fn receipt_policy(self, policy: &str) -> Self {
        self.with("receipt_policy", json!(policy))
    }

    /// Connected phones have so long to answer.
    pub(crate) fn wait_for_receipts(self, seconds: u64) -> Self {
        self.with("receipt_wait", json!(seconds))
    }

    /// Everybody who is connected is asked whether they got it.
    pub(crate) fn ask_everybody(self) -> Self {
        self.with("receipt", json!(true))
    }

    /// It is of use for so long.
    pub(crate) fn ttl(self, seconds: u64) -> Self {
        self.with("ttl", json!(seconds))
    }

    /// What it takes the place of on a phone.
    pub(crate) fn collapse_key(self, key: &str) -> Self {
        self.with("collapse_key", json!(key))
    }

    /// Before which others it goes.
    pub(crate) fn priority(self, priority: &str) -> Self {
        self.with("priority", json!(priority))
    }

    /// It is shown to nobody.
    pub(crate) fn dry_run(self) -> Self {
        self.with("dry_run", json!(true))
    }

    /// It wakes the app and shows nothing.
    pub(crate) fn silent(self) -> Self {
        self.with("payload", json!({ "apns": { "aps": { "alert": null, "sound": null, "content-available": 1 } } }))
    }

    /// It is due then.
    pub(crate) fn at(self, at: Timestamp) -> Self {
        self.with("at", json!(tidings_api::Rfc3339(at)))
    }

    /// Its audience must not be larger.
    pub(crate) fn expect_at_most(self, count: u64) -> Self {
        self.with("expect_audience", json!({ "max": count }))
    }

    /// Who scored.
    pub(crate) fn by(self, team: &str) -> Self {
        self.with("params", json!({ "team": team }))
    }

    /// This team plays at this moment.
    pub(crate) fn kick_off(self, team: &str, at: &str, zone: &str) -> Self {
        let team = json!({ "name": team, "context": "team" });
        let at = json!({ "datetime": at, "style": "time_short", "zone": zone });
        self.with("params", json!({ "team": team, "at": at }))
    }

    /// How many goals there were.
    pub(crate) fn goals(self, count: u64) -> Self {
        self.with("params", json!({ "goals": count }))
    }

    /// Nothing is said for the text.
    pub(crate) fn without_params(self) -> Self {
        self.with("params", json!({}))
    }

    /// Its own words in one language, and in all others.
    pub(crate) fn text(self, text: &str, locale: &str, others: &str) -> Self {
        let words = |title: &str| json!({ "title": title, "body": "." });
        self.with("text", json!({ locale: words(text), "und": words(others) }))
    }

    /// It carries so many bytes for the app.
    pub(crate) fn data_bytes(self, count: usize) -> Self {
        let frame = json!("").to_string().len();
        self.with("data", json!("x".repeat(count - frame)))
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.0[field] = value;
        self
    }
}

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

/// Who got an event over a live connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Receipts {
    pub(crate) written: u64,
    pub(crate) received: u64,
    pub(crate) users: Vec<String>,
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

    /// Puts a brake on.
    pub(crate) async fn pause(&self, scope: &str) {
        self.must(Method::PUT, &format!("/v1/brakes/{scope}"), None).await;
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

    /// Registers a phone, or changes what is known of it; a new one gets its credential.
    pub(crate) async fn register(&self, phone: &Phone) -> Option<String> {
        let path = format!("/v1/devices/{}", phone.id);
        let answer = self.must(Method::PUT, &path, Some(&phone.registration())).await;
        answer["credential"].as_str().map(str::to_owned)
    }

    pub(crate) async fn subscribe(&self, phone: &Phone, Subscription { subject, topic }: &Subscription) {
        let body = json!({ "subscriptions": [{ "subject": subject, "topics": [topic] }] });
        self.must(Method::POST, &format!("/v1/devices/{}/subscriptions", phone.id), Some(&body)).await;
    }

    /// Whether the server still knows where to reach the phone.
    pub(crate) async fn can_reach(&self, phone: &Phone) -> bool {
        let device = self.must(Method::GET, &format!("/v1/devices/{}", phone.id), None).await;
        device.get("token").is_some()
    }

    /// Commands the server as Centrifugo's API does.
    pub(crate) async fn command(&self, method: &str, params: &Value) {
        let answer = self.must(Method::POST, &format!("/api/{method}"), Some(params)).await;
        assert!(answer.get("error").is_none(), "{method} is refused: {answer}");
    }

    /// Anything else.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        self.call(method, path, body).await
    }

    /// Whatever caller shows this header, and no key unless it is one.
    pub(crate) async fn ask_with(
        &self,
        method: Method,
        path: &str,
        (name, value): (&'static str, &str),
        body: Option<&Value>,
    ) -> Result<Value, Refusal> {
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let (status, body) = self.answer(method, path, Some((name, value)), body).await;
        read(status, &body)
    }

    /// What is measured.
    pub(crate) async fn metrics(&self) -> String {
        let (status, answer) = self.answer(Method::GET, "/metrics", None, Bytes::new()).await;
        assert_eq!(status, 200, "metrics: {answer:?}");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Lines in and lines out.
    pub(crate) async fn lines(&self, method: Method, path: &str, lines: String) -> Vec<Value> {
        let (status, answer) = self.answer(method, path, Some(("content-type", LINES)), lines.into()).await;
        assert_eq!(status, 200, "{path}: {answer:?}");
        let lines = std::str::from_utf8(&answer).expect("text").lines();
        lines.map(|line| serde_json::from_str(line).expect("an object a line")).collect()
    }

    /// Gives the phone another credential.
    pub(crate) async fn renew_credential(&self, phone: &Phone) -> String {
        let answer = self.must(Method::POST, &format!("/v1/devices/{}/credential", phone.id), None).await;
        answer["credential"].as_str().expect("a credential").to_owned()
    }

    /// The phone is nobody's from now on.
    pub(crate) async fn log_out(&self, phone: &Phone) {
        self.must(Method::POST, &format!("/v1/devices/{}/logout", phone.id), None).await;
    }

    async fn must(&self, method: Method, path: &str, body: Option<&Value>) -> Value {
        let shown = format!("{method} {path}");
        self.call(method, path, body).await.unwrap_or_else(|refusal| panic!("{shown} is refused: {refusal:?}"))
    }

    /// Posts a text as it is.
    pub(crate) async fn post(&self, path: &str, body: String) -> Result<Value, Refusal> {
        let (status, body) = self.answer(Method::POST, path, None, Bytes::from(body)).await;
        read(status, &body)
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, Refusal> {
        let header = body.is_some().then_some(("content-type", "application/json"));
        let body = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let (status, body) = self.answer(method, path, header, body).await;
        read(status, &body)
    }

    async fn answer(
        &self,
        method: Method,
        path: &str,
        header: Option<(&'static str, &str)>,
        body: Bytes,
    ) -> (u16, Bytes) {
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
    ) -> Result<(u16, Bytes), Box<dyn std::error::Error + Send + Sync>> {
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
            Ok((status, response.into_body().collect().await?.to_bytes()))
        };
        // The answer fails with the reason when the connection does.
        let (answer, _) = tokio::join!(answer, connection);
        answer
    }
}

/// What the server says, or why it does not.
fn read(status: u16, body: &Bytes) -> Result<Value, Refusal> {
    let json = if body.is_empty() { Ok(Value::Null) } else { serde_json::from_slice(body) };
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
        detail: json["detail"].as_str().unwrap_or_default().to_owned(),
    })
}

/// A token that lets a user in, signed with `secret` (JSON Web Token, RFC 7519, by HS256). With `device` it also proves
/// which phone the app runs on, and it brings the app into `channels`. Not the server's code, so that a mistake in one is
/// not repeated by the other.
pub(crate) fn connection_token(secret: &str, user: &str, device: Option<&str>, channels: &[String]) -> String {
    let part = |value: Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let mut claims = json!({ "sub": user, "channels": channels });
    if let Some(device) = device {
        claims["device"] = json!(device);
    }
    let signed = format!("{}.{}", part(json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let signature = BASE64_URL_SAFE_NO_PAD.encode(hmac::sign(&key, signed.as_bytes()));
    format!("{signed}.{signature}")
}
