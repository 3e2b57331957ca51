//! The simulator of a browser maker's push service (RFC 8030) and of the browsers behind it.
//!
//! | Request | Answer |
//! |---|---|
//! | `POST /push/<subscription>` | 201 with `Location`, or the reason for refusing it |
//! | `POST /simulator/subscriptions`, `{"applicationServerKey": …}` or `{}` | a new [`PushSubscription`] |
//! | `POST /simulator/gone`, `{"endpoint": …}` | ends a subscription: pushes to it are answered 410 |
//!
//! A push is checked in this order: subscription, method, sender, quota, headers, size, decryption with the browser's
//! keys, faults. The ledger records it under the endpoint, with `title` and `tag` if the decrypted content is JSON that
//! has them. A `Topic` replaces pushes that wait for a device. The simulated browsers are always connected, so a `Topic`
//! is checked and has no other effect.

mod browser;
mod reason;
mod vapid;

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

use crate::control;
use crate::ledger::Ledger;
use crate::provider::{AcceptedMessage, Answer, Headers, OnMessage, Provider, RequestContext};
use crate::server::{Server, simulator};
use crate::{MessageEntry, StartError, WebPushConfig};

use browser::{Browsers, Subscription};
use vapid::{SenderMemory, decode_key};

pub use browser::{PushKeys, PushSubscription};
pub use reason::WebPushReason;

/// The size that a service must accept (RFC 8030, 7.2). The simulator accepts no more.
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
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It works inside and outside of an asynchronous
/// runtime. Starting and stopping block for some milliseconds. Subscriptions survive a [`stop`](Self::stop).
pub struct WebPushSimulator {
    server: Server<WebPush>,
}

simulator!(WebPushSimulator, WebPushConfig, WebPushReason, OnMessage);

impl WebPushSimulator {
    fn start_inner(config: WebPushConfig, on_accepted: Option<OnMessage>) -> Result<Self, StartError> {
        let (seed, gone_count_max) = (config.seed, config.device_count_max);
        let server = Server::start(config, (), |addr| WebPush {
            origin: format!("https://localhost:{}", addr.port()),
            browsers: Browsers::new(seed),
            subscription_total: AtomicU64::new(0),
            gone: Mutex::default(),
            gone_count_max,
            on_accepted,
        })?;
        Ok(Self { server })
    }

    /// The beginning of all endpoints, and the audience (`aud`) of senders' tokens.
    pub fn origin(&self) -> &str {
        &self.web_push().origin
    }

    /// Subscribes a browser. Only the key `sender` (`applicationServerKey`, base64url) may push to it; with `None`,
    /// everybody may. Returns `None` when the key is not an uncompressed point of P-256.
    pub fn subscribe(&self, sender: Option<&str>) -> Option<PushSubscription> {
        self.web_push().subscribe(sender)
    }

    /// A private key for a sender that has none of its own: 32 bytes in base64url, made from the seed.
    pub fn vapid_key(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.web_push().browsers.sender().0)
    }

    /// The public key of [`vapid_key`](Self::vapid_key), for [`subscribe`](Self::subscribe).
    pub fn application_server_key(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.web_push().browsers.sender().1)
    }

    /// Ends a subscription: pushes to it are answered 410 from now on. Returns `false` when the endpoint is unknown, or
    /// too many subscriptions have ended.
    pub fn end(&self, endpoint: &str) -> bool {
        self.web_push().end(endpoint)
    }

    fn web_push(&self) -> &WebPush {
        &self.server.shared().provider
    }
}

impl Ledger<WebPushReason> {
    /// The notifications that the browser with this endpoint got, the earliest first.
    pub fn for_endpoint(&self, endpoint: &str) -> Vec<MessageEntry> {
        self.for_address(endpoint.as_bytes())
    }

    /// The notifications that the browser shows: of those with the same tag, only the last one.
    pub fn shown(&self, endpoint: &str) -> Vec<MessageEntry> {
        self.shown_at(endpoint.as_bytes())
    }
}

/// The push service's rules, and its browsers.
struct WebPush {
    origin: String,
    browsers: Browsers,
    subscription_total: AtomicU64,
    /// The numbers of subscriptions that have ended, at most `gone_count_max`.
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

/// The decrypted content of a push, as far as the ledger records it.
#[derive(Deserialize, Default)]
struct Shown {
    #[serde(default)]
    title: String,
    #[serde(default)]
    tag: Option<String>,
}

/// Why a push is refused, and, if the quota is spent, the seconds until it is renewed.
struct Refused(WebPushReason, Option<u64>);

impl From<WebPushReason> for Refused {
    fn from(reason: WebPushReason) -> Self {
        Self(reason, None)
    }
}

impl Provider for WebPush {
    const PROTOCOLS: &'static [&'static str] = &["h2", "http/1.1"];

    type Refusal = WebPushReason;
    type Credentials = ();
    type Session = SenderMemory;
    type Head = Head;
    type Entry = MessageEntry;

    fn open(&self, _certificate: Option<&CertificateDer<'_>>, (): ()) -> SenderMemory {
        SenderMemory::default()
    }

    fn set_credentials(&self, _session: &mut SenderMemory, (): ()) {}

    fn read_head(&self, _session: &SenderMemory, parts: &Parts) -> Head {
        let path = parts.uri.path();
        let found = path.strip_prefix(PUSH_PATH).and_then(|name| self.browsers.find(name));
        Head {
            subscription: found.map(|subscription| (subscription, format!("{}{path}", self.origin))),
            is_post: parts.method == Method::POST,
            headers: parts.headers.clone(),
        }
    }

    fn judge(
        &self,
        session: &mut SenderMemory,
        head: Head,
        body: &[u8],
        context: &mut RequestContext<'_, Self>,
    ) -> Answer {
        match self.take(session, &head, body, context) {
            Ok(ttl) => {
                let message = format!("{}/message/{:032x}", self.origin, context.rng.random::<u128>());
                let location = HeaderValue::from_str(&message).expect("an origin and digits are visible ASCII");
                Answer::new(StatusCode::CREATED, Headers::One(LOCATION, location), "").with(TTL, ttl.into())
            }
            Err(Refused(reason, wait)) => {
                let body = json!({"code": reason.status().as_u16(), "reason": reason}).to_string();
                context.refuse(reason, reason.status(), body, wait)
            }
        }
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        // Either the endpoint, or only its last part, which needs no escaping in a path.
        let name = text.strip_prefix(&self.origin).and_then(|path| path.strip_prefix(PUSH_PATH)).unwrap_or(text);
        self.browsers.find(name).ok_or("not a subscription of this simulator")?;
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
                None => control::refusal(StatusCode::BAD_REQUEST, "applicationServerKey is not a point of P-256"),
            }),
            ("POST", "gone") => Some(match text("endpoint") {
                Some(endpoint) if self.end(&endpoint) => control::json(&json!({})),
                _ => control::refusal(
                    StatusCode::NOT_FOUND,
                    "not a subscription of this simulator, or too many have ended",
                ),
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

    /// Checks and records a push, and returns its time to live.
    fn take(
        &self,
        session: &mut SenderMemory,
        head: &Head,
        body: &[u8],
        context: &mut RequestContext<'_, Self>,
    ) -> Result<u64, Refused> {
        let (subscription, endpoint) = head.subscription.as_ref().ok_or(WebPushReason::NotFound)?;
        if !head.is_post {
            return Err(WebPushReason::MethodNotAllowed.into());
        }
        session.check(*subscription, head.headers.get(AUTHORIZATION), &self.origin, context.now)?;
        let quota = context.quota.take(context.faults, context.now);
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
        context.check_fate(endpoint.as_bytes())?;
        let Shown { title, tag } = serde_json::from_slice(&content).unwrap_or_default();
        let message = AcceptedMessage { address: endpoint, content: &content };
        context.accept(message, tag.as_deref(), &title, self.on_accepted.as_ref());
        Ok(ttl)
    }
}

/// Checks the headers of a push, and returns its time to live.
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
