//! The simulator of the Apple Push Notification service, and its rules about a request.

use std::sync::Arc;

use http::header::HeaderName;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use rand::RngExt as _;
use rand::rngs::Xoshiro256PlusPlus;
use rustls::pki_types::CertificateDer;
use tidings_types::{DeviceToken, Environment, Timestamp};
use uuid::Uuid;

use crate::authentication::{Authority, TokenMemory};
use crate::certificate::ShownCertificate;
use crate::check::{Notification, Topics, check_head, check_payload};
use crate::identity::make_signing_key;
use crate::ledger::Accepted;
use crate::provider::{Answer, Effect, Headers, Provider, RequestContext};
use crate::server::{Server, simulator};
use crate::{LedgerEntry, Reason, SimulatorConfig, StartError};

const APNS_ID: HeaderName = HeaderName::from_static("apns-id");

/// Called for each accepted notification, on the thread that accepted it. It must not block.
pub type OnAccepted = Arc<dyn Fn(AcceptedNotification<'_>) + Send + Sync>;

/// A notification at the moment of its acceptance, before the answer is sent.
#[derive(Clone, Copy)]
pub struct AcceptedNotification<'a> {
    /// The device.
    pub token: &'a DeviceToken,
    /// Its `apns-id`.
    pub apns_id: Uuid,
    /// Its `apns-collapse-id`.
    pub collapse_id: Option<&'a [u8]>,
    /// Its JSON.
    pub payload: &'a [u8],
    /// When it was accepted.
    pub at: Timestamp,
}

/// A simulated Apple Push Notification service.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It works inside and outside of an asynchronous
/// runtime. Starting and stopping block for some milliseconds.
pub struct ApnsSimulator {
    server: Server<Apns>,
    key_pem: String,
    key_id: String,
    team_id: String,
}

simulator!(ApnsSimulator, SimulatorConfig, Reason, OnAccepted);

impl ApnsSimulator {
    fn start_inner(config: SimulatorConfig, on_accepted: Option<OnAccepted>) -> Result<Self, StartError> {
        let (key_pem, public_key) = make_signing_key()?;
        let (key_id, team_id) = (config.key_id.clone(), config.team_id.clone());
        let authority = Authority { public_key, key_id: key_id.clone(), team_id: team_id.clone() };
        let apns = Apns { topics: config.topics.clone(), environment: config.environment, on_accepted };
        Ok(Self { server: Server::start(config, Arc::from([authority]), |_| apns)?, key_pem, key_id, team_id })
    }

    /// The key that signs provider tokens: the content of a `.p8` file.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Makes another signing key for a team and returns it, PEM. Provider tokens that it signs are accepted from now on.
    /// An older key with this id is replaced: its tokens are refused from now on, on running connections too.
    ///
    /// # Errors
    /// When no key can be made.
    pub fn add_key(&self, key_id: &str, team_id: &str) -> Result<String, StartError> {
        let (key_pem, public_key) = make_signing_key()?;
        let added = Authority { public_key, key_id: key_id.to_owned(), team_id: team_id.to_owned() };
        self.server.shared().set_credentials(|authorities| {
            let others = authorities.iter().filter(|known| known.key_id != key_id);
            *authorities = others.cloned().chain([added]).collect();
        });
        Ok(key_pem)
    }

    /// The `kid` of provider tokens.
    pub fn key_id(&self) -> &str {
        &self.key_id
    }

    /// The `iss` of provider tokens.
    pub fn team_id(&self) -> &str {
        &self.team_id
    }
}

/// APNs' rules.
struct Apns {
    topics: Vec<String>,
    environment: Environment,
    on_accepted: Option<OnAccepted>,
}

/// What a connection remembers of its client.
struct Session {
    authorities: Arc<[Authority]>,
    tokens: TokenMemory,
    /// The client's certificate, or the reason why it is refused. With it, tokens are ignored.
    certificate: Option<Result<ShownCertificate, Reason>>,
}

enum Head {
    Valid(Notification),
    Invalid { reason: Reason, apns_id: Option<HeaderValue> },
}

impl Provider for Apns {
    const PROTOCOLS: &'static [&'static str] = &["h2"];

    type Refusal = Reason;
    type Credentials = Arc<[Authority]>;
    type Session = Session;
    type Head = Head;
    type Entry = LedgerEntry;

    fn open(&self, certificate: Option<&CertificateDer<'_>>, authorities: Arc<[Authority]>) -> Session {
        let certificate = certificate.map(|der| ShownCertificate::read(der, self.environment));
        Session { authorities, tokens: TokenMemory::default(), certificate }
    }

    fn set_credentials(&self, session: &mut Session, authorities: Arc<[Authority]>) {
        if !Arc::ptr_eq(&session.authorities, &authorities) {
            session.tokens.forget_verdict();
            session.authorities = authorities;
        }
    }

    fn is_proven(&self, session: &Session) -> bool {
        session.certificate.is_some()
    }

    fn read_head(&self, session: &Session, parts: &Parts) -> Head {
        let certified = session.certificate.as_ref().and_then(|shown| shown.as_ref().ok());
        let certified = certified.map(|certificate| certificate.topics.as_slice());
        match check_head(parts, Topics { bundles: &self.topics, certified }) {
            Ok(notification) => Head::Valid(notification),
            Err(reason) => Head::Invalid { reason, apns_id: parts.headers.get(APNS_ID).cloned() },
        }
    }

    fn judge(
        &self,
        session: &mut Session,
        head: Head,
        payload: &[u8],
        context: &mut RequestContext<'_, Self>,
    ) -> Answer {
        let (verdict, apns_id) = match head {
            Head::Invalid { reason, apns_id } => (Err(reason), apns_id),
            Head::Valid(mut notification) => {
                let (id, spelling) = notification.apns_id.take().unwrap_or_else(|| make_id(context.rng));
                let verdict = session.check_rest(&notification, payload, context);
                if verdict.is_ok() {
                    self.accept(&notification, id, payload, context);
                }
                (verdict, Some(spelling))
            }
        };
        let mut answer = match verdict {
            Ok(()) => Answer::new(StatusCode::OK, Headers::None, ""),
            Err(reason) => refuse(reason, context),
        };
        if let Some(mut apns_id) = apns_id {
            // An id is sent only once, so it must not enter the table of the header compression (RFC 7541, 7.1.3).
            apns_id.set_sensitive(true);
            answer.headers = Headers::One(APNS_ID, apns_id);
        }
        let punishes = match verdict {
            Ok(()) => Some(false),
            Err(reason) => reason.is_client_error().then_some(true),
        };
        answer.effect = Effect { proves: session.tokens.has_accepted(), punishes };
        answer
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        DeviceToken::from_hex(text).map(|token| token.as_bytes().into()).map_err(|error| error.to_string())
    }
}

impl Session {
    /// Checks what comes after the head: credential, payload and, for a valid request, faults.
    fn check_rest(
        &mut self,
        notification: &Notification,
        payload: &[u8],
        context: &RequestContext<'_, Apns>,
    ) -> Result<(), Reason> {
        match &self.certificate {
            Some(shown) => shown.as_ref().map(drop).map_err(|reason| *reason)?,
            None => self.tokens.check(&self.authorities, notification.authorization.as_ref(), context.now)?,
        }
        check_payload(payload, notification.payload_bytes_max)?;
        context.check_fate(notification.token.as_bytes())
    }
}

impl Apns {
    fn accept(&self, notification: &Notification, apns_id: Uuid, payload: &[u8], context: &RequestContext<'_, Self>) {
        let (token, at) = (&notification.token, context.now);
        let collapse_id = notification.collapse_id.as_ref().map(HeaderValue::as_bytes);
        let accepted = Accepted { address: token.as_bytes(), id: apns_id, tag: collapse_id, title: None };
        context.ledger.record_accepted(&accepted, at);
        if let Some(on_accepted) = &self.on_accepted {
            on_accepted(AcceptedNotification { token, apns_id, collapse_id, payload, at });
        }
    }
}

fn refuse(reason: Reason, context: &RequestContext<'_, Apns>) -> Answer {
    context.ledger.record_rejected(reason);
    let body = match reason.status() {
        StatusCode::GONE => {
            let since = context.faults.gone_since.unwrap_or(context.now);
            format!("{{\"reason\":\"{reason}\",\"timestamp\":{}}}", since.as_millis())
        }
        _ => format!("{{\"reason\":\"{reason}\"}}"),
    };
    Answer::new(reason.status(), Headers::None, body)
}

/// Makes an id for a notification that has none.
fn make_id(rng: &mut Xoshiro256PlusPlus) -> (Uuid, HeaderValue) {
    let id = uuid::Builder::from_random_bytes(rng.random()).into_uuid();
    let text = id.hyphenated().to_string();
    (id, HeaderValue::from_str(&text).expect("hexadecimal digits and hyphens are visible ASCII"))
}
