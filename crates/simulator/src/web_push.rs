//! A browser maker's push service (RFC 8030) with the browsers behind it, and the simulator of both.
//!
//! | Request | Answer |
//! |---|---|
//! | `POST /push/<subscription>` | 201 with `Location`, or why not |
//! | `POST /simulator/subscriptions`, `{"applicationServerKey": …}` or `{}` | a new [`PushSubscription`] |
//! | `POST /simulator/gone`, `{"endpoint": …}` | ends a subscription: 410 from now on |
//!
//! A push is checked in this order: subscription, method, sender, quota, headers, size, whether the browser's keys open
//! it, faults. What was opened is in the ledger under the endpoint: `title` and `tag` of its JSON, if it is such. A
//! `Topic` replaces what waits for a device; ours are always connected, so it is checked and has no other effect.

mod browser;
mod reason;
mod vapid;

use std::collections::HashSet;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_ENCODING, HeaderName, LOCATION};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rand::RngExt as _;
use rustls::pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::{Value, json};
use tidings_types::Timestamp;
use uuid::Uuid;

use crate::control;
use crate::identity::Identity;
use crate::ledger::{Accepted, Ledger};
use crate::provider::{AcceptedMessage, Answer, Headers, OnMessage, Provider, Scene};
use crate::server::{Server, Setup};
use crate::{Faults, FaultsError, MessageEntry, StartError, WebPushConfig};

use browser::{Browsers, Subscription};
use vapid::{SenderMemory, decode_key};

pub use browser::{PushKeys, PushSubscription};
pub use reason::WebPushReason;

/// What a service must take (RFC 8030, 7.2), and ours takes no more.
const BODY_BYTES_MAX: usize = 4096;
/// RFC 8030, 5.4.
const TOPIC_CHARACTERS_MAX: usize = 32;
const PUSH_PATH: &str = "/push/";

const TTL: HeaderName = HeaderName::from_static("ttl");
const URGENCY: HeaderName = HeaderName::from_static("urgency");
const TOPIC: HeaderName = HeaderName::from_static("topic");
/// Headers of the draft before RFC 8188.
const OLD_HEADERS: [&str; 2] = ["encryption", "crypto-key"];

/// A simulated push service and its browsers, over HTTP/1.1 and HTTP/2.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It can be made and used inside and outside of
/// an asynchronous runtime; starting and stopping block for some milliseconds.
pub struct WebPushSimulator {
    server: Server<WebPush>,
    ca_pem: String,
}

impl WebPushSimulator {
    /// Starts one: makes certificates, and listens.
    ///
    /// # Errors
    /// When the faults break a rule, the address cannot be listened on, or a thread cannot be started.
    pub fn start(config: WebPushConfig) -> Result<Self, StartError> {
        Self::start_inner(config, None)
    }

    /// Starts one that tells of each accepted message.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_observed(config: WebPushConfig, on_accepted: OnMessage) -> Result<Self, StartError> {
        Self::start_inner(config, Some(on_accepted))
    }

    fn start_inner(config: WebPushConfig, on_accepted: Option<OnMessage>) -> Result<Self, StartError> {
        config.faults.check()?;
        let Identity { ca_pem, tls } = Identity::make(None, &["h2", "http/1.1"], &config.more_addresses)?;
        let setup = Setup {
            listen: config.listen,
            more_addresses: config.more_addresses,
            thread_count: config.thread_count,
            connection_count_max: config.connection_count_max,
            seed: config.seed,
            ledger: Ledger::new(config.device_count_max, config.notification_count_max),
            tls,
            faults: config.faults,
            credentials: (),
        };
        let (seed, gone_count_max) = (config.seed, config.device_count_max);
        let server = Server::start(setup, |addr| WebPush {
            origin: format!("https://localhost:{}", addr.port()),
            browsers: Browsers::new(seed),
            subscription_total: AtomicU64::new(0),
            gone: Mutex::default(),
            gone_count_max,
            on_accepted,
        })?;
        Ok(Self { server, ca_pem })
    }

    /// Listens again after a [`stop`](Self::stop), on the same port and with the same subscriptions, ledger and faults;
    /// does nothing if it runs.
    ///
    /// # Errors
    /// When the port was taken meanwhile, or a thread cannot be started.
    pub fn listen(&self) -> Result<(), StartError> {
        self.server.listen()
    }

    /// Stops listening and drops all connections, answers still owed included; returns when the threads have ended.
    pub fn stop(&self) {
        self.server.stop();
    }

    /// Where it listens, also while stopped.
    pub fn addr(&self) -> SocketAddr {
        self.server.addr()
    }

    /// What the endpoints begin with, and what tokens of senders must be for.
    pub fn origin(&self) -> &str {
        &self.web_push().origin
    }

    /// A browser subscribes; `sender` is the only key that may push to it (`applicationServerKey`, base64url), without
    /// one anybody may. `None` when the key is no uncompressed point of P-256.
    pub fn subscribe(&self, sender: Option<&str>) -> Option<PushSubscription> {
        self.web_push().subscribe(sender)
    }

    /// A sender's private key for the use of whoever has none, 32 bytes in base64url; it comes from the seed.
    pub fn vapid_key(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.web_push().browsers.sender().0)
    }

    /// The public key of [`vapid_key`](Self::vapid_key), for [`subscribe`](Self::subscribe).
    pub fn application_server_key(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.web_push().browsers.sender().1)
    }

    /// Ends a subscription: it is answered 410 from now on. Whether it was one of ours, and there was room to remember
    /// it.
    pub fn end(&self, endpoint: &str) -> bool {
        self.web_push().end(endpoint)
    }

    /// What each browser got; lives on after the simulator.
    pub fn ledger(&self) -> &Arc<Ledger<WebPushReason>> {
        &self.server.shared().ledger
    }

    /// The certificate authority to trust, PEM. The server's names are `localhost`, `127.0.0.1`, `::1` and the further
    /// addresses.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The faults in force.
    pub fn faults(&self) -> Arc<Faults<WebPushReason>> {
        self.server.shared().faults()
    }

    /// Changes the faults, for running connections too.
    ///
    /// # Errors
    /// When one is outside its range; the old ones stay in force.
    pub fn set_faults(&self, faults: Faults<WebPushReason>) -> Result<(), FaultsError> {
        self.server.shared().set_faults(faults)
    }

    fn web_push(&self) -> &WebPush {
        &self.server.shared().provider
    }
}

impl fmt::Debug for WebPushSimulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebPushSimulator").field("addr", &self.addr()).finish_non_exhaustive()
    }
}

impl Ledger<WebPushReason> {
    /// What the browser with this endpoint got, the earliest first.
    pub fn for_endpoint(&self, endpoint: &str) -> Vec<MessageEntry> {
        self.for_address(endpoint.as_bytes())
    }

    /// What of it the browser shows: of notifications with the same tag the one accepted last.
    pub fn shown(&self, endpoint: &str) -> Vec<MessageEntry> {
        self.shown_at(endpoint.as_bytes())
    }
}

/// The push service's rules, and its browsers.
struct WebPush {
    origin: String,
    browsers: Browsers,
    subscription_total: AtomicU64,
    /// Subscriptions that are over, at most `gone_count_max`.
    gone: Mutex<HashSet<u64>>,
    gone_count_max: usize,
    on_accepted: Option<OnMessage>,
}

struct Head {
    /// The subscription with its endpoint.
    subscription: Option<(Subscription, String)>,
    is_post: bool,
    headers: HeaderMap,
}

/// What a push says to the browser.
#[derive(Deserialize, Default)]
struct Shown {
    #[serde(default)]
    title: String,
    #[serde(default)]
    tag: Option<String>,
}

/// Why a push is not taken, and the wait in seconds, if the quota is spent.
struct Refused(WebPushReason, Option<u64>);

impl From<WebPushReason> for Refused {
    fn from(reason: WebPushReason) -> Self {
        Self(reason, None)
    }
}

impl Provider for WebPush {
    type Refusal = WebPushReason;
    type Credentials = ();
    type Session = SenderMemory;
    type Head = Head;
    type Entry = MessageEntry;

    fn open(&self, _certificate: Option<&CertificateDer<'_>>, (): ()) -> SenderMemory {
        SenderMemory::default()
    }

    fn exchange(&self, _session: &mut SenderMemory, (): ()) {}

    fn read_head(&self, _session: &SenderMemory, parts: &Parts) -> Head {
        let path = parts.uri.path();
        let found = path.strip_prefix(PUSH_PATH).and_then(|name| self.browsers.find(name));
        Head {
            subscription: found.map(|subscription| (subscription, format!("{}{path}", self.origin))),
            is_post: parts.method == Method::POST,
            headers: parts.headers.clone(),
        }
    }

    fn judge(&self, session: &mut SenderMemory, head: Head, body: &[u8], scene: &mut Scene<'_, Self>) -> Answer {
        match self.take(session, &head, body, scene) {
            Ok(ttl) => {
                let message = format!("{}/message/{:032x}", self.origin, scene.rng.random::<u128>());
                let location = HeaderValue::from_str(&message).expect("an origin and digits are visible ASCII");
                Answer::new(StatusCode::CREATED, Headers::One(LOCATION, location), "").with(TTL, ttl.into())
            }
            Err(Refused(reason, wait)) => {
                scene.ledger.record_rejected(reason);
                let is_passing = matches!(reason, WebPushReason::TooManyRequests | WebPushReason::ServiceUnavailable);
                let wait = wait.or(scene.faults.retry_after_secs.filter(|_| is_passing));
                let body = json!({"code": reason.status().as_u16(), "reason": reason}).to_string();
                Answer::json(reason.status(), body).with_retry_after(wait)
            }
        }
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        // The endpoint itself, or its last piece, which needs no escapes in a path.
        let name = text.strip_prefix(&self.origin).and_then(|path| path.strip_prefix(PUSH_PATH)).unwrap_or(text);
        self.browsers.find(name).ok_or("no subscription of ours")?;
        Ok(format!("{}{PUSH_PATH}{name}", self.origin).into_bytes().into())
    }

    fn control(&self, method: &Method, path: &str, body: &[u8]) -> Option<(StatusCode, Bytes)> {
        let text = |name: &str| {
            let fields: Value = serde_json::from_slice(body).unwrap_or_default();
            fields.get(name).and_then(Value::as_str).map(ToOwned::to_owned)
        };
        match (method.as_str(), path) {
            ("POST", "subscriptions") => Some(match self.subscribe(text("applicationServerKey").as_deref()) {
                Some(subscription) => control::json(&subscription),
                None => control::refusal(StatusCode::BAD_REQUEST, "applicationServerKey is no point of P-256"),
            }),
            ("POST", "gone") => Some(match text("endpoint") {
                Some(endpoint) if self.end(&endpoint) => control::json(&json!({})),
                _ => control::refusal(StatusCode::NOT_FOUND, "no subscription of ours, or too many have ended"),
            }),
            _ => None,
        }
    }
}

impl WebPush {
    fn subscribe(&self, sender: Option<&str>) -> Option<PushSubscription> {
        let sender = match sender {
            Some(text) => Some(decode_key(text)?),
            None => None,
        };
        let number = self.subscription_total.fetch_add(1, Relaxed);
        Some(self.browsers.subscribe(&self.origin, number, sender.as_deref()))
    }

    fn end(&self, endpoint: &str) -> bool {
        let name = endpoint.rsplit('/').next().unwrap_or_default();
        let mut gone = self.gone();
        let found = self.browsers.find(name).filter(|_| gone.len() < self.gone_count_max);
        found.map(|subscription| gone.insert(subscription.number)).is_some()
    }

    fn gone(&self) -> MutexGuard<'_, HashSet<u64>> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a push; its time to live.
    fn take(
        &self,
        session: &mut SenderMemory,
        head: &Head,
        body: &[u8],
        scene: &mut Scene<'_, Self>,
    ) -> Result<u64, Refused> {
        let (subscription, endpoint) = head.subscription.as_ref().ok_or(WebPushReason::NotFound)?;
        if !head.is_post {
            return Err(WebPushReason::MethodNotAllowed.into());
        }
        session.check(*subscription, head.headers.get(AUTHORIZATION), &self.origin, scene.now)?;
        let quota = scene.quota.take(scene.faults, scene.now);
        quota.map_err(|seconds| Refused(WebPushReason::TooManyRequests, Some(seconds)))?;
        if self.gone().contains(&subscription.number) {
            return Err(WebPushReason::Gone.into());
        }
        let ttl = check_headers(&head.headers, !body.is_empty())?;
        if body.len() > BODY_BYTES_MAX {
            return Err(WebPushReason::PayloadTooLarge.into());
        }
        let content = match body {
            [] => Vec::new(),
            body => self.browsers.open(*subscription, body).ok_or(WebPushReason::Undecryptable)?,
        };
        scene.check_fate(endpoint.as_bytes())?;
        write_down(endpoint, &content, scene);
        if let Some(on_accepted) = &self.on_accepted {
            on_accepted(AcceptedMessage { address: endpoint, content: &content });
        }
        Ok(ttl)
    }
}

fn write_down(endpoint: &str, content: &[u8], scene: &Scene<'_, WebPush>) {
    let digest = digest(&SHA256, content);
    let id = digest.as_ref().first_chunk().map_or(Uuid::nil(), |bytes| Uuid::from_bytes(*bytes));
    let Shown { title, tag } = serde_json::from_slice(content).unwrap_or_default();
    let tag = tag.as_deref().map(str::as_bytes);
    let accepted = Accepted { address: endpoint.as_bytes(), id, tag, title: Some(&title) };
    let now: Timestamp = scene.now;
    scene.ledger.record_accepted(&accepted, now);
}

/// Checks what a push says about itself; its time to live.
fn check_headers(headers: &HeaderMap, has_body: bool) -> Result<u64, WebPushReason> {
    let once = |name: &HeaderName, wrong: WebPushReason| {
        let mut values = headers.get_all(name).iter();
        match (values.next(), values.next()) {
            (None, _) => Ok(None),
            (Some(value), None) => value.to_str().map(Some).map_err(|_| wrong),
            (Some(_), Some(_)) => Err(wrong),
        }
    };
    let ttl = once(&TTL, WebPushReason::BadTtl)?.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let ttl = ttl.and_then(|text| text.parse::<u64>().ok()).ok_or(WebPushReason::BadTtl)?;
    let urgency = once(&URGENCY, WebPushReason::BadUrgency)?;
    if urgency.is_some_and(|word| !["very-low", "low", "normal", "high"].contains(&word)) {
        return Err(WebPushReason::BadUrgency);
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_topic = |text: &str| (1..=TOPIC_CHARACTERS_MAX).contains(&text.len()) && text.bytes().all(is_allowed);
    if once(&TOPIC, WebPushReason::BadTopic)?.is_some_and(|text| !is_topic(text)) {
        return Err(WebPushReason::BadTopic);
    }
    let encoding = once(&CONTENT_ENCODING, WebPushReason::BadEncoding)?;
    let is_old = OLD_HEADERS.iter().any(|name| headers.contains_key(*name));
    if has_body && (encoding != Some("aes128gcm") || is_old) {
        return Err(WebPushReason::BadEncoding);
    }
    Ok(ttl)
}
