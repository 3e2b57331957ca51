//! The seam between what all simulators share (listening, connections, faults, the ledger's counters) and what a
//! provider is: its rules.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use rand::rngs::Xoshiro256PlusPlus;
use rustls::pki_types::CertificateDer;
use serde::Serialize;
use tidings_types::Timestamp;

use crate::config::Fate;
use crate::ledger::{Ledger, MessageEntry};
use crate::quota::Quota;
use crate::{Faults, Refusal};

/// Told of each message that FCM or a push service accepts, on the thread that accepted it: it must be quick and must not
/// block.
pub type OnMessage = Arc<dyn Fn(AcceptedMessage<'_>) + Send + Sync>;

/// A message at the moment of its acceptance; the answer is still to be sent.
#[derive(Clone, Copy)]
pub struct AcceptedMessage<'a> {
    /// FCM's token, or the browser's endpoint.
    pub address: &'a str,
    /// Its JSON: FCM's message without target and time to live; what the browser has decrypted.
    pub content: &'a [u8],
}

/// What distinguishes one simulator from another.
pub(crate) trait Provider: Sized + Send + Sync + 'static {
    type Refusal: Refusal;
    /// Who may send; may change while connections run.
    type Credentials: Clone + Send + Sync + 'static;
    /// What a connection remembers.
    type Session;
    /// What a request's head has told, kept until its body has come.
    type Head;
    /// A line of the ledger.
    type Entry: Serialize + From<MessageEntry>;

    /// A connection begins, of a client that has shown this certificate.
    fn open(&self, certificate: Option<&CertificateDer<'_>>, credentials: Self::Credentials) -> Self::Session;

    /// The credentials may be others from now on.
    fn exchange(&self, session: &mut Self::Session, credentials: Self::Credentials);

    /// Whether a connection has its full stream limit from its beginning.
    fn is_proven(&self, _session: &Self::Session) -> bool {
        true
    }

    fn read_head(&self, session: &Self::Session, parts: &Parts) -> Self::Head;

    /// Accepts or refuses a complete request, and records which.
    fn judge(&self, session: &mut Self::Session, head: Self::Head, body: &[u8], scene: &mut Scene<'_, Self>) -> Answer;

    /// The device that a control request names.
    ///
    /// # Errors
    /// Why it is no address of this provider.
    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String>;

    /// Control requests that only this provider knows.
    fn control(&self, _method: &Method, _path: &str, _body: &[u8]) -> Option<(StatusCode, Bytes)> {
        None
    }
}

/// The circumstances of a request.
pub(crate) struct Scene<'a, P: Provider> {
    pub(crate) ledger: &'a Ledger<P::Refusal>,
    pub(crate) quota: &'a Quota,
    /// What all chances are drawn from.
    pub(crate) seed: u64,
    pub(crate) faults: &'a Faults<P::Refusal>,
    pub(crate) fate: &'a Fate<P::Refusal>,
    pub(crate) rng: &'a mut Xoshiro256PlusPlus,
    pub(crate) now: Timestamp,
}

impl<P: Provider> Scene<'_, P> {
    /// What a request that is right in itself may still be refused for.
    pub(crate) fn check_fate(&self, address: &[u8]) -> Result<(), P::Refusal> {
        if self.faults.is_gone(self.seed, address) {
            return Err(P::Refusal::GONE);
        }
        self.fate.verdict.map_or(Ok(()), Err)
    }
}

/// An answer before it is written.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: Headers,
    /// Empty for none.
    pub(crate) body: Bytes,
    pub(crate) effect: Effect,
}

/// Nearly all answers have one header or none.
pub(crate) enum Headers {
    None,
    One(HeaderName, HeaderValue),
    Many(Box<HeaderMap>),
}

/// What the answer does to the connection's stream limit, at the moment it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Effect {
    /// The client has proven who it is.
    pub(crate) proves: bool,
    /// `true`: the limit falls until it is set to `false` again.
    pub(crate) punishes: Option<bool>,
}

impl Answer {
    pub(crate) fn new(status: StatusCode, headers: Headers, body: impl Into<Bytes>) -> Self {
        Self { status, headers, body: body.into(), effect: Effect::default() }
    }

    pub(crate) fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self::new(status, Headers::One(CONTENT_TYPE, HeaderValue::from_static("application/json")), body)
    }

    /// The same with a header more.
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

    pub(crate) fn with_retry_after(self, seconds: Option<u64>) -> Self {
        match seconds {
            Some(seconds) => self.with(RETRY_AFTER, seconds.into()),
            None => self,
        }
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
