//! The Apple Push Notification service: its rules about a request, and the simulator that keeps them.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
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
use crate::identity::{Identity, make_signing_key};
use crate::ledger::{Accepted, Ledger};
use crate::provider::{Answer, Effect, Headers, Provider, Scene};
use crate::server::{Server, Setup};
use crate::{Faults, FaultsError, LedgerEntry, Reason, SimulatorConfig, StartError};

const APNS_ID: HeaderName = HeaderName::from_static("apns-id");

/// Told of each accepted notification, on the thread that accepted it: it must be quick and must not block.
pub type OnAccepted = Arc<dyn Fn(AcceptedNotification<'_>) + Send + Sync>;

/// A notification at the moment of its acceptance; the answer is still to be sent.
#[derive(Clone, Copy)]
pub struct AcceptedNotification<'a> {
    /// Whose it is.
    pub token: &'a DeviceToken,
    /// Its id.
    pub apns_id: Uuid,
    /// What it replaces.
    pub collapse_id: Option<&'a [u8]>,
    /// Its JSON.
    pub payload: &'a [u8],
    /// When it was accepted.
    pub at: Timestamp,
}

/// A simulated Apple Push Notification service.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It can be made and used inside and outside of
/// an asynchronous runtime; starting and stopping block for some milliseconds.
pub struct ApnsSimulator {
    server: Server<Apns>,
    ca_pem: String,
    key_pem: String,
    key_id: String,
    team_id: String,
}

impl ApnsSimulator {
    /// Starts one: makes certificates and key, and listens.
    ///
    /// # Errors
    /// When the faults break a rule, the address cannot be listened on, or a thread cannot be started.
    pub fn start(config: SimulatorConfig) -> Result<Self, StartError> {
        Self::start_inner(config, None)
    }

    /// Starts one that tells of each accepted notification.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_observed(config: SimulatorConfig, on_accepted: OnAccepted) -> Result<Self, StartError> {
        Self::start_inner(config, Some(on_accepted))
    }

    fn start_inner(config: SimulatorConfig, on_accepted: Option<OnAccepted>) -> Result<Self, StartError> {
        config.faults.check()?;
        let Identity { ca_pem, tls } =
            Identity::make(config.client_ca_pem.as_deref(), &["h2"], &config.more_addresses)?;
        let (key_pem, public_key) = make_signing_key()?;
        let (key_id, team_id) = (config.key_id.clone(), config.team_id.clone());
        let authority = Authority { public_key, key_id: key_id.clone(), team_id: team_id.clone() };
        let setup = Setup {
            listen: config.listen,
            more_addresses: config.more_addresses,
            thread_count: config.thread_count,
            connection_count_max: config.connection_count_max,
            seed: config.seed,
            ledger: Ledger::new(config.device_count_max, config.notification_count_max),
            tls,
            faults: config.faults,
            credentials: Arc::from([authority]),
        };
        let apns = Apns { topics: config.topics, environment: config.environment, on_accepted };
        Ok(Self { server: Server::start(setup, |_| apns)?, ca_pem, key_pem, key_id, team_id })
    }

    /// Listens again after a [`stop`](Self::stop), on the same port and with the same keys, ledger and faults; does
    /// nothing if it runs.
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

    /// What each device got; lives on after the simulator.
    pub fn ledger(&self) -> &Arc<Ledger> {
        &self.server.shared().ledger
    }

    /// The certificate authority to trust, PEM. The server's names are `localhost`, `127.0.0.1`, `::1` and the further
    /// addresses.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The key to sign provider tokens with: the content of a `.p8` file.
    pub fn key_pem(&self) -> &str {
        &self.key_pem
    }

    /// Makes another signing key for a team and takes its tokens as well; returns the key, PEM. A key that has this id
    /// is replaced: its tokens are refused from now on, on running connections too.
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

    /// The faults in force.
    pub fn faults(&self) -> Arc<Faults> {
        self.server.shared().faults()
    }

    /// Changes the faults, for running connections too.
    ///
    /// # Errors
    /// When one is outside its range; the old ones stay in force.
    pub fn set_faults(&self, faults: Faults) -> Result<(), FaultsError> {
        self.server.shared().set_faults(faults)
    }
}

impl fmt::Debug for ApnsSimulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApnsSimulator").field("addr", &self.addr()).finish_non_exhaustive()
    }
}

/// APNs' rules.
struct Apns {
    /// Bundle identifiers that may be pushed to; without any, all.
    topics: Vec<String>,
    environment: Environment,
    on_accepted: Option<OnAccepted>,
}

/// What a connection remembers of its client.
struct Session {
    authorities: Arc<[Authority]>,
    tokens: TokenMemory,
    /// What the client has shown instead of tokens.
    certificate: Option<Result<ShownCertificate, Reason>>,
}

enum Head {
    Right(Notification),
    Wrong { reason: Reason, apns_id: Option<HeaderValue> },
}

impl Provider for Apns {
    type Refusal = Reason;
    type Credentials = Arc<[Authority]>;
    type Session = Session;
    type Head = Head;
    type Entry = LedgerEntry;

    fn open(&self, certificate: Option<&CertificateDer<'_>>, authorities: Arc<[Authority]>) -> Session {
        let certificate = certificate.map(|der| ShownCertificate::read(der, self.environment));
        Session { authorities, tokens: TokenMemory::default(), certificate }
    }

    fn exchange(&self, session: &mut Session, authorities: Arc<[Authority]>) {
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
            Ok(notification) => Head::Right(notification),
            Err(reason) => Head::Wrong { reason, apns_id: parts.headers.get(APNS_ID).cloned() },
        }
    }

    fn judge(&self, session: &mut Session, head: Head, payload: &[u8], scene: &mut Scene<'_, Self>) -> Answer {
        let (verdict, apns_id) = match head {
            Head::Wrong { reason, apns_id } => (Err(reason), apns_id),
            Head::Right(mut notification) => {
                let (id, spelling) = notification.apns_id.take().unwrap_or_else(|| make_id(scene.rng));
                let verdict = session.check_rest(&notification, payload, scene);
                if verdict.is_ok() {
                    self.accept(&notification, id, payload, scene);
                }
                (verdict, Some(spelling))
            }
        };
        let mut answer = match verdict {
            Ok(()) => Answer::new(StatusCode::OK, Headers::None, ""),
            Err(reason) => refuse(reason, scene),
        };
        if let Some(mut apns_id) = apns_id {
            // Used once: it must not churn the header compression's table (RFC 7541, 7.1.3).
            apns_id.set_sensitive(true);
            answer.headers = Headers::One(APNS_ID, apns_id);
        }
        let punishes = match verdict {
            Ok(()) => Some(false),
            Err(reason) => reason.is_client_error().then_some(true),
        };
        answer.effect = Effect { proves: session.tokens.has_taken_one(), punishes };
        answer
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        DeviceToken::from_hex(text).map(|token| token.as_bytes().into()).map_err(|error| error.to_string())
    }
}

impl Session {
    /// What a request with a right head may still be rejected for; faults come last, they befall right ones only.
    fn check_rest(
        &mut self,
        notification: &Notification,
        payload: &[u8],
        scene: &Scene<'_, Apns>,
    ) -> Result<(), Reason> {
        match &self.certificate {
            Some(shown) => shown.as_ref().map(drop).map_err(|reason| *reason)?,
            None => self.tokens.check(&self.authorities, notification.authorization.as_ref(), scene.now)?,
        }
        check_payload(payload, notification.payload_bytes_max)?;
        scene.check_fate(notification.token.as_bytes())
    }
}

impl Apns {
    fn accept(&self, notification: &Notification, apns_id: Uuid, payload: &[u8], scene: &Scene<'_, Self>) {
        let (token, at) = (&notification.token, scene.now);
        let collapse_id = notification.collapse_id.as_ref().map(HeaderValue::as_bytes);
        let accepted = Accepted { address: token.as_bytes(), id: apns_id, tag: collapse_id, title: None };
        scene.ledger.record_accepted(&accepted, at);
        if let Some(on_accepted) = &self.on_accepted {
            on_accepted(AcceptedNotification { token, apns_id, collapse_id, payload, at });
        }
    }
}

fn refuse(reason: Reason, scene: &Scene<'_, Apns>) -> Answer {
    scene.ledger.record_rejected(reason);
    let body: Bytes = match reason.status() {
        StatusCode::GONE => {
            let since = scene.faults.gone_since.unwrap_or(scene.now);
            format!("{{\"reason\":\"{reason}\",\"timestamp\":{}}}", since.as_millis()).into()
        }
        _ => reason.body(),
    };
    Answer::new(reason.status(), Headers::None, body)
}

/// An id for a notification that came without.
fn make_id(rng: &mut Xoshiro256PlusPlus) -> (Uuid, HeaderValue) {
    let id = uuid::Builder::from_random_bytes(rng.random()).into_uuid();
    let text = id.hyphenated().to_string();
    (id, HeaderValue::from_str(&text).expect("hexadecimal digits and hyphens are visible ASCII"))
}
