//! One exchange with a push service, for one attempt: sign, encrypt, send, and what came of it.
//!
//! A task of its own, so that a slow service keeps nobody waiting and encryption (an ECDH on P-256 and a key pair,
//! about 0.1 ms) spreads over the runtime's threads. A repeat is encrypted anew, with a new key pair and salt: the
//! texts of two attempts have nothing in common but their length.
//!
//! A request is alone on its connection and is never sent again below this module: whether it may be is decided by who
//! knows the answer's meaning. What comes back of a service is bounded: [`HEAD_BYTES_MAX`] of a head, and of a body
//! [`ANSWER_BYTES_MAX`], or none of it if it is larger; and it has `answer_timeout` for it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::HeaderName;
use rand::Rng as _;
use rustls::ClientConfig as TlsConfig;
use tidings_http1::pool::CallError;
use tidings_http1::{Client, ClientConfig, Limits, Request, RequestError, Response};
use tidings_push::web_push::vapid::VapidTokens;
use tidings_push::web_push::{Reason, WebPush};
use tidings_push::{ANSWER_BYTES_MAX, Dialect as _, Notification, Reason as AnyReason, Verdict};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{Counter, unix_now};
use tidings_types::Provider;
use tokio::time::Instant;

use super::network::Route;
use crate::metrics::Metrics;

/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const TOPIC: HeaderName = HeaderName::from_static("topic");

/// What requests and connections are made with.
pub(super) struct Access {
    pub(super) vapid: Arc<VapidTokens>,
    pub(super) ca_pem: Option<String>,
    /// Another one only with other certificates to trust.
    pub(super) tls: Arc<TlsConfig>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) answer: Duration,
}

/// A connection to an origin; one request at a time.
pub(super) struct Link {
    client: Client,
    route: Route,
    closed: Counter,
}

impl Link {
    /// Whether it was made with these certificates to trust.
    pub(super) fn is_with(&self, tls: &Arc<TlsConfig>) -> bool {
        self.route.is_with(tls)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.closed.inc();
    }
}

/// What came of an attempt.
pub(super) enum Report {
    /// The service answered, so long after the request was handed over, to this signature.
    Answered { verdict: Verdict, round_trip: Duration, authorization: HeaderValue },
    /// Nothing was sent; `cut_short` if that is because it expired meanwhile.
    NotSent { cut_short: bool },
    /// Nothing was sent, and nothing will be: its addresses are not public.
    Forbidden,
    /// It was sent, at least in part, and no answer came, or none before it expired. With a topic the service shows
    /// only one of two.
    Lost { has_topic: bool, cut_short: bool },
    /// It was sent, and reading the answer panicked.
    Unreadable,
    /// It cannot be put into a request.
    Unsendable(AnyReason),
}

/// What an attempt needs; everything may change threads.
pub(super) struct Plan {
    pub(super) access: Arc<Access>,
    pub(super) timeouts: Timeouts,
    pub(super) metrics: Metrics,
    pub(super) route: Route,
    /// An open connection, if there is one.
    pub(super) link: Option<Link>,
}

impl Plan {
    /// Makes the attempt. The connection comes back if it can be used again.
    ///
    /// # Cancel safety
    /// Dropping the future cuts the connection; whether the request was sent is then unknown.
    pub(super) async fn make(self, notification: &Notification) -> (Report, Option<Link>) {
        let now = unix_now();
        let authorization = self.access.vapid.authorization(&self.route.origin().to_string(), now);
        let mut random = |bytes: &mut [u8]| rand::rng().fill_bytes(bytes);
        let make = || WebPush.request(notification, Some(&authorization), &mut random, now);
        let made = panics::catch(Work::Notification, make);
        let (request, has_topic) = match made.unwrap_or(Err(AnyReason::Panicked(Provider::WebPush))) {
            Ok((head, body)) => match put(&head, body) {
                Ok(request) => (request, head.headers().contains_key(TOPIC)),
                Err(_) => return (Report::Unsendable(Reason::BadRequest.into()), self.link),
            },
            Err(reason) => return (Report::Unsendable(reason), self.link),
        };
        let patience = match self.link {
            Some(_) => self.timeouts.answer,
            None => self.timeouts.connect + self.timeouts.answer,
        };
        // Nobody wants an answer that comes when it is over.
        let timeout = patience.min(notification.rendering.expires_at().saturating_since(now));
        let Some(link) = self.link.or_else(|| open(self.route, self.timeouts, &self.metrics)) else {
            return (Report::NotSent { cut_short: false }, None);
        };
        self.metrics.streams_opened.inc();
        let sent_at = Instant::now();
        let answer = link.client.send(request, timeout).await;
        self.metrics.streams_ended.inc();
        match answer {
            Ok(answer) => {
                let round_trip = sent_at.elapsed();
                match panics::catch(Work::Notification, || classify(&answer)) {
                    Ok(verdict) => (Report::Answered { verdict, round_trip, authorization }, Some(link)),
                    Err(_panicked) => (Report::Unreadable, Some(link)),
                }
            }
            Err(CallError::Refused(_)) => (Report::Unsendable(Reason::BadRequest.into()), None),
            Err(error) => {
                let cut_short = matches!(error, CallError::Timeout { .. }) && timeout < patience;
                if error.may_have_been_sent() {
                    return (Report::Lost { has_topic, cut_short }, None);
                }
                self.metrics.connect_failures.inc();
                (if link.route.is_forbidden() { Report::Forbidden } else { Report::NotSent { cut_short } }, None)
            }
        }
    }
}

fn classify(answer: &Response) -> Verdict {
    WebPush.classify(answer.status(), answer.headers(), answer.body(), unix_now())
}

/// The same request in HTTP/1.1.
fn put(head: &http::Request<()>, body: Bytes) -> Result<Request, RequestError> {
    let target = head.uri().path_and_query().map_or("/", |target| target.as_str());
    let mut request = Request::new(head.method().clone(), target)?;
    for (name, value) in head.headers() {
        request = request.header(name.as_str(), value.as_bytes())?;
    }
    Ok(request.body(body).pipeline(false).repeat(false))
}

/// A connection that begins to be made; none only if its settings are wrong, which are ours.
fn open(route: Route, timeouts: Timeouts, metrics: &Metrics) -> Option<Link> {
    let mut config = ClientConfig::new(route.origin().to_string(), 1);
    config.limits = Limits { head_bytes_max: HEAD_BYTES_MAX, body_bytes_max: ANSWER_BYTES_MAX };
    config.skip_large_bodies = true;
    (config.pool.backlog_max, config.pool.in_flight_max, config.pool.tombstone_max) = (1, 1, 1);
    config.pool.connect_timeout = timeouts.connect;
    config.pool.silence_max = timeouts.connect + timeouts.answer;
    let client = Client::start_over(route.origin(), config, route.clone()).ok()?;
    metrics.connections_opened.inc();
    Some(Link { client, route, closed: metrics.connections_closed.clone() })
}
