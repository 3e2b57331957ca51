//! One exchange with a push service, for one attempt: sign, encrypt, send, read the answer.
//!
//! It is a separate task, so that a slow service delays no other, and encryption (an ECDH on P-256 and a key pair,
//! about 0.1 ms) spreads over the runtime's threads. A repeat is encrypted anew, with a new key pair and salt: the
//! ciphertexts of two attempts share only their length.
//!
//! A request that the service may have seen is never sent again here; the driver, which knows the answer's meaning,
//! decides that. A request that was not written (over HTTP/1.1: the connection broke the protocol after its last answer, and may
//! be made again only after a pause), or that an ending HTTP/2 connection did not process, goes out once more, on another
//! connection.
//! The answer is bounded (`link`) and has `answer_timeout`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::HeaderName;
use rand::Rng as _;
use rustls::ClientConfig as TlsConfig;
use tidings_push::web_push::vapid::VapidTokens;
use tidings_push::web_push::{Reason, WebPush};
use tidings_push::{Dialect as _, Notification, Reason as AnyReason, Verdict};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::unix_now;
use tidings_types::Provider;
use tokio::time::Instant;

use super::link::{Answer, Failure, Link, Path, Terms};

const TOPIC: HeaderName = HeaderName::from_static("topic");

/// What requests and connections are made with.
pub(super) struct Access {
    pub(super) vapid: Arc<VapidTokens>,
    pub(super) ca_pem: Option<String>,
    /// Another one only with other certificates to trust.
    pub(super) tls: Arc<TlsConfig>,
}

/// The result of an attempt.
pub(super) enum Report {
    /// The service answered to this signature, `round_trip` after the request was handed over.
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
    pub(super) terms: Terms,
    pub(super) path: Path,
    /// An open connection, if there is one.
    pub(super) link: Option<Link>,
}

impl Plan {
    /// Makes the attempt. The link comes back if it can be used again.
    ///
    /// # Cancel safety
    /// Dropping the future gives up the request; whether it was sent is then unknown.
    pub(super) async fn make(self, notification: &Notification) -> (Report, Option<Link>) {
        let now = unix_now();
        let authorization = self.access.vapid.authorization(&self.path.route().origin().to_string(), now);
        let mut random = |bytes: &mut [u8]| rand::rng().fill_bytes(bytes);
        let make = || WebPush.request(notification, Some(&authorization), &mut random, now);
        let made = panics::catch(Work::Notification, make);
        let (head, body) = match made.unwrap_or(Err(AnyReason::Panicked(Provider::WebPush))) {
            Ok(request) => request,
            Err(reason) => return (Report::Unsendable(reason), self.link),
        };
        let has_topic = head.headers().contains_key(TOPIC);
        // An answer after the expiry is of no use.
        let expires_at = Instant::now() + notification.rendering.expires_at().saturating_since(now);
        match self.exchange(&head, body, expires_at).await {
            Ok((answer, round_trip, link)) => {
                let verdict = panics::catch(Work::Notification, || classify(&answer));
                let answered = |verdict| Report::Answered { verdict, round_trip, authorization };
                (verdict.map_or(Report::Unreadable, answered), Some(link))
            }
            Err((failure, deadline)) => {
                let is_cut_short = |timed_out: bool| timed_out && deadline == expires_at;
                let report = match failure {
                    Failure::Unsendable => Report::Unsendable(Reason::BadRequest.into()),
                    Failure::Forbidden => Report::Forbidden,
                    Failure::NotConnected { timed_out } | Failure::NotSent { timed_out } => {
                        Report::NotSent { cut_short: is_cut_short(timed_out) }
                    }
                    Failure::NotProcessed => Report::NotSent { cut_short: false },
                    Failure::Lost { timed_out } => Report::Lost { has_topic, cut_short: is_cut_short(timed_out) },
                };
                (report, None)
            }
        }
    }

    /// Sends the request; once more on another connection, if it was not written or the service did nothing with it. A
    /// failure comes with the deadline that it had.
    async fn exchange(
        self,
        head: &http::Request<()>,
        body: Bytes,
        expires_at: Instant,
    ) -> Result<(Answer, Duration, Link), (Failure, Instant)> {
        let Terms { connect_timeout, answer_timeout, metrics, .. } = &self.terms;
        let (mut link, mut is_repeat) = (self.link.filter(Link::is_ready), false);
        loop {
            let link = match link.take() {
                Some(link) => link,
                None => {
                    let deadline = expires_at.min(Instant::now() + *connect_timeout);
                    self.path.link(&self.terms, deadline).await.map_err(|failure| (failure, deadline))?
                }
            };
            let sent_at = Instant::now();
            let deadline = expires_at.min(sent_at + *answer_timeout);
            metrics.streams_opened.inc();
            let answer = link.send(head, body.clone(), deadline).await;
            metrics.streams_ended.inc();
            match answer {
                Ok(answer) => return Ok((answer, sent_at.elapsed(), link)),
                // The service did nothing with it, or it was not written.
                Err(Failure::NotProcessed | Failure::NotSent { timed_out: false }) if !is_repeat => is_repeat = true,
                Err(failure) => return Err((failure, deadline)),
            }
        }
    }
}

fn classify(Answer(status, headers, body): &Answer) -> Verdict {
    WebPush.classify(*status, headers, body, unix_now())
}
