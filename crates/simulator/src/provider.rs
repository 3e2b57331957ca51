//! What a provider adds to the parts that all simulators share: its rules about a request. The shared parts are
//! listening, connections, faults and the ledger's counters.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rand::rngs::Xoshiro256PlusPlus;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use tidings_types::Timestamp;
use uuid::Uuid;

use crate::config::Fate;
use crate::ledger::{Accepted, Ledger, MessageEntry};
use crate::quota::Quota;
use crate::{Faults, Refusal};

/// Called for each message that FCM or a push service accepts, on the thread that accepted it. It must not block.
pub type OnMessage = Arc<dyn Fn(AcceptedMessage<'_>) + Send + Sync>;

/// A message at the moment of its acceptance, before the answer is sent.
#[derive(Clone, Copy)]
pub struct AcceptedMessage<'a> {
    /// FCM's token, or the browser's endpoint.
    pub address: &'a str,
    /// FCM: the message as JSON, without target and time to live. Web Push: what the browser has decrypted.
    pub content: &'a [u8],
}

/// What distinguishes one simulator from another.
pub(crate) trait Provider: Sized + Send + Sync + 'static {
    /// The versions of HTTP it speaks, as ALPN names.
    const PROTOCOLS: &'static [&'static str];

    type Refusal: Refusal;
    /// Who may send; may change while connections run.
    type Credentials: Clone + Send + Sync + 'static;
    /// What a connection remembers of its client.
    type Session;
    /// What is kept of a request's head until its body is complete.
    type Head;
    /// A line of the ledger, as the control requests show it.
    type Entry: Serialize + From<MessageEntry>;

    /// Begins the session of a client that has shown this certificate.
    fn open(&self, certificate: Option<&CertificateDer<'_>>, credentials: Self::Credentials) -> Self::Session;

    /// Gives a running session the credentials that are valid from now on. They need not be different.
    fn set_credentials(&self, session: &mut Self::Session, credentials: Self::Credentials);

    /// Whether a connection has its full stream limit from its beginning.
    fn is_proven(&self, _session: &Self::Session) -> bool {
        true
    }

    fn read_head(&self, session: &Self::Session, parts: &Parts) -> Self::Head;

    /// Accepts or refuses a complete request, and records which.
    fn judge(
        &self,
        session: &mut Self::Session,
        head: Self::Head,
        body: &[u8],
        context: &mut RequestContext<'_, Self>,
    ) -> Answer;

    /// Reads the device address in the path of a control request.
    ///
    /// # Errors
    /// Why the text is not an address of this provider.
    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String>;

    /// Control requests that only this provider knows.
    fn control(&self, _method: &Method, _path: &str, _body: &[u8]) -> Option<(StatusCode, Bytes)> {
        None
    }
}

/// What a provider needs to judge a request.
pub(crate) struct RequestContext<'a, P: Provider> {
    pub(crate) ledger: &'a Ledger<P::Refusal>,
    pub(crate) quota: &'a Quota,
    pub(crate) seed: u64,
    pub(crate) faults: &'a Faults<P::Refusal>,
    pub(crate) fate: &'a Fate<P::Refusal>,
    pub(crate) rng: &'a mut Xoshiro256PlusPlus,
    pub(crate) now: Timestamp,
}

impl<P: Provider> RequestContext<'_, P> {
    /// Refuses a valid request if the faults say so.
    pub(crate) fn check_fate(&self, address: &[u8]) -> Result<(), P::Refusal> {
        if self.faults.is_gone(self.seed, address) {
            return Err(P::Refusal::GONE);
        }
        self.fate.verdict.map_or(Ok(()), Err)
    }

    /// Records a message of FCM or Web Push, and reports it. These messages have no id, so a hash of the content is
    /// recorded as the id.
    pub(crate) fn accept(
        &self,
        message: AcceptedMessage<'_>,
        tag: Option<&str>,
        title: &str,
        on_accepted: Option<&OnMessage>,
    ) {
        let digest = digest(&SHA256, message.content);
        let id = Uuid::from_bytes(*digest.as_ref().first_chunk().expect("SHA-256 has 32 bytes"));
        let (address, tag) = (message.address.as_bytes(), tag.map(str::as_bytes));
        self.ledger.record_accepted(&Accepted { address, id, tag, title: Some(title) }, self.now);
        if let Some(on_accepted) = on_accepted {
            on_accepted(message);
        }
    }

    /// Records that FCM or a push service has refused a request, and makes the answer. `Retry-After` is `wait_secs`, or
    /// else what the faults say for 429 and 503.
    pub(crate) fn refuse(
        &self,
        reason: P::Refusal,
        status: StatusCode,
        body: String,
        wait_secs: Option<u64>,
    ) -> Answer {
        self.ledger.record_rejected(reason);
        let is_temporary = reason == P::Refusal::TOO_MANY || reason == P::Refusal::UNAVAILABLE;
        let answer = Answer::json(status, body);
        match wait_secs.or(self.faults.retry_after_secs.filter(|_| is_temporary)) {
            Some(seconds) => answer.with(RETRY_AFTER, seconds.into()),
            None => answer,
        }
    }
}

/// An answer before it is written.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Headers,
    pub(crate) body: Bytes,
    pub(crate) effect: Effect,
}

/// Nearly all answers have one header or none.
pub(crate) enum Headers {
    None,
    One(HeaderName, HeaderValue),
    Many(Box<HeaderMap>),
}

/// What the answer changes about the connection's stream limit, at the moment it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effect {
    /// The client has proven its identity.
    pub(crate) proves: bool,
    /// `Some(true)` lowers the limit until a later `Some(false)`.
    pub(crate) punishes: Option<bool>,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, headers: Headers, body: impl Into<Bytes>) -> Self {
        Self { status, headers, body: body.into(), effect: Effect::default() }
    }

    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::new(status, Headers::One(CONTENT_TYPE, HeaderValue::from_static("application/json")), body)
    }

    pub(crate) fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers = match self.headers {
            Headers::None => Headers::One(name, value),
            Headers::One(other_name, other_value) => {
                Headers::Many(Box::new(HeaderMap::from_iter([(other_name, other_value), (name, value)])))
            }
            Headers::Many(mut headers) => {
                headers.insert(name, value);
                Headers::Many(headers)
            }
        };
        self
    }
}

impl Headers {
    pub(crate) fn put_into(self, headers: &mut HeaderMap) {
        match self {
            Self::None => {}
            Self::One(name, value) => drop(headers.insert(name, value)),
            Self::Many(all) => *headers = *all,
        }
    }
}
