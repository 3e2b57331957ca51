//! Firebase Cloud Messaging, HTTP v1: its rules about a request, and the simulator that keeps them.
//!
//! | Request | Answer |
//! |---|---|
//! | `POST /token` | an access token for a service account's assertion |
//! | `POST /v1/projects/<project>/messages:send` | `name` of the message, or why not |
//!
//! In this order: access token, project, quota, body, device, faults.

mod message;
mod oauth;
mod reason;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tidings_types::{DeviceToken, Timestamp};
use uuid::Uuid;

use crate::identity::{Identity, make_rsa_key};
use crate::ledger::{Accepted, Ledger};
use crate::provider::{AcceptedMessage, Answer, OnMessage, Provider, Scene};
use crate::server::{Server, Setup};
use crate::{Faults, FaultsError, FcmConfig, MessageEntry, StartError};

use message::{Request, Target, Violation};
use oauth::{AccessTokens, ServiceAccount};

pub use reason::FcmReason;

const KEY_ID: &str = "simulatedkey0000000000000000000000000001";
/// What `validate_only` is answered with.
const FAKE_MESSAGE: &str = "fake_message_id";

/// A simulated Firebase Cloud Messaging, with its token endpoint on the same port, over HTTP/2 and HTTP/1.1.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It can be made and used inside and outside of
/// an asynchronous runtime; starting takes some hundred milliseconds, for a key is made.
pub struct FcmSimulator {
    server: Server<Fcm>,
    ca_pem: String,
    key_pem: String,
}

impl FcmSimulator {
    /// Starts one: makes certificates and a service account, and listens.
    ///
    /// # Errors
    /// When a setting breaks a rule, the address cannot be listened on, or a thread cannot be started.
    pub fn start(config: FcmConfig) -> Result<Self, StartError> {
        Self::start_inner(config, None)
    }

    /// Starts one that tells of each accepted message.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_observed(config: FcmConfig, on_accepted: OnMessage) -> Result<Self, StartError> {
        Self::start_inner(config, Some(on_accepted))
    }

    fn start_inner(config: FcmConfig, on_accepted: Option<OnMessage>) -> Result<Self, StartError> {
        config.check()?;
        config.faults.check()?;
        let Identity { ca_pem, tls } = Identity::make(None, &["h2", "http/1.1"], &config.more_addresses)?;
        let (key_pem, public_key) = make_rsa_key()?;
        let setup = Setup {
            listen: config.listen,
            more_addresses: config.more_addresses,
            thread_count: config.thread_count,
            connection_count_max: config.connection_count_max,
            seed: config.seed,
            ledger: Ledger::new(config.device_count_max, config.notification_count_max),
            tls,
            faults: config.faults,
            credentials: 0,
        };
        let (project_id, access_token_seconds) = (config.project_id, config.access_token_seconds);
        let server = Server::start(setup, |addr| Fcm {
            account: ServiceAccount {
                public_key,
                key_id: KEY_ID.to_owned(),
                email: format!("simulator@{project_id}.iam.gserviceaccount.com"),
                token_uri: format!("https://localhost:{}/token", addr.port()),
                access_token_seconds,
            },
            send_path: format!("/v1/projects/{project_id}/messages:send"),
            project_id,
            access_tokens: AccessTokens::default(),
            on_accepted,
        })?;
        Ok(Self { server, ca_pem, key_pem })
    }

    /// Listens again after a [`stop`](Self::stop), on the same port, with the same keys, ledger, faults and access
    /// tokens; does nothing if it runs.
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
    pub fn ledger(&self) -> &Arc<Ledger<FcmReason>> {
        &self.server.shared().ledger
    }

    /// The certificate authority to trust, PEM. The server's names are `localhost`, `127.0.0.1`, `::1` and the further
    /// addresses.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The project that may be sent to.
    pub fn project_id(&self) -> &str {
        &self.fcm().project_id
    }

    /// Where access tokens are to be had, by the name `localhost`.
    pub fn token_uri(&self) -> &str {
        &self.fcm().account.token_uri
    }

    /// The service account's file as Firebase's console gives it out, with our token endpoint.
    pub fn service_account_json(&self) -> String {
        let account = &self.fcm().account;
        let file = json!({
            "type": "service_account",
            "project_id": self.fcm().project_id,
            "private_key_id": account.key_id,
            "private_key": self.key_pem,
            "client_email": account.email,
            "client_id": "100000000000000000001",
            "token_uri": account.token_uri,
            "universe_domain": "googleapis.com",
        });
        format!("{file:#}\n")
    }

    /// Takes back all access tokens given out, on running connections too.
    pub fn revoke_access_tokens(&self) {
        self.fcm().access_tokens.revoke_all();
        self.server.shared().set_credentials(|revocations| *revocations += 1);
    }

    /// The faults in force.
    pub fn faults(&self) -> Arc<Faults<FcmReason>> {
        self.server.shared().faults()
    }

    /// Changes the faults, for running connections too.
    ///
    /// # Errors
    /// When one is outside its range; the old ones stay in force.
    pub fn set_faults(&self, faults: Faults<FcmReason>) -> Result<(), FaultsError> {
        self.server.shared().set_faults(faults)
    }

    fn fcm(&self) -> &Fcm {
        &self.server.shared().provider
    }
}

impl fmt::Debug for FcmSimulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FcmSimulator").field("addr", &self.addr()).finish_non_exhaustive()
    }
}

impl Ledger<FcmReason> {
    /// What the device with this token got, the earliest first.
    pub fn for_token(&self, token: &str) -> Vec<MessageEntry> {
        self.for_address(token.as_bytes())
    }

    /// What of it the device shows: of messages with the same tag the one accepted last.
    pub fn shown(&self, token: &str) -> Vec<MessageEntry> {
        self.shown_at(token.as_bytes())
    }
}

/// FCM's rules.
struct Fcm {
    account: ServiceAccount,
    project_id: String,
    send_path: String,
    access_tokens: AccessTokens,
    on_accepted: Option<OnMessage>,
}

/// The access token a connection has last seen, if it was good, and until when it is.
#[derive(Default)]
struct Session(Option<(HeaderValue, Timestamp)>);

struct Head {
    route: Route,
    authorization: Option<HeaderValue>,
    content_type: Option<HeaderValue>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Route {
    Token,
    Send,
    OtherProject,
    Unknown,
}

/// Why a request is not performed.
enum Refused {
    For(FcmReason),
    Body(Violation),
    /// The quota is renewed in so many seconds.
    Quota(u64),
}

impl From<FcmReason> for Refused {
    fn from(reason: FcmReason) -> Self {
        Self::For(reason)
    }
}

impl Provider for Fcm {
    type Refusal = FcmReason;
    /// How often all access tokens were taken back.
    type Credentials = u64;
    type Session = Session;
    type Head = Head;
    type Entry = MessageEntry;

    fn open(&self, _certificate: Option<&CertificateDer<'_>>, _revocations: u64) -> Session {
        Session::default()
    }

    fn exchange(&self, session: &mut Session, _revocations: u64) {
        *session = Session::default();
    }

    fn read_head(&self, _session: &Session, parts: &Parts) -> Head {
        let path = parts.uri.path();
        let is_send = || path.starts_with("/v1/projects/") && path.ends_with("/messages:send");
        let route = match path {
            _ if parts.method != Method::POST => Route::Unknown,
            "/token" => Route::Token,
            path if path == self.send_path => Route::Send,
            _ if is_send() => Route::OtherProject,
            _ => Route::Unknown,
        };
        let header = |name: HeaderName| parts.headers.get(name).cloned();
        Head { route, authorization: header(AUTHORIZATION), content_type: header(CONTENT_TYPE) }
    }

    fn judge(&self, session: &mut Session, head: Head, body: &[u8], scene: &mut Scene<'_, Self>) -> Answer {
        if head.route == Route::Token {
            return self.exchange_assertion(&head, body, scene);
        }
        match self.send(session, &head, body, scene) {
            Ok(name) => Answer::json(StatusCode::OK, json!({"name": name}).to_string()),
            Err(refused) => refuse(refused, scene),
        }
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        DeviceToken::fcm(text).map(|token| token.as_bytes().into()).map_err(|error| error.to_string())
    }
}

impl Fcm {
    fn exchange_assertion(&self, head: &Head, form: &[u8], scene: &mut Scene<'_, Self>) -> Answer {
        if scene.faults.token_endpoint_down {
            return refuse(FcmReason::Unavailable.into(), scene);
        }
        let is_form = is_type(head.content_type.as_ref(), "application/x-www-form-urlencoded");
        let checked = if is_form { self.account.check(form, scene.now) } else { Err(oauth::NO_FORM) };
        if let Err(refused) = checked {
            scene.ledger.record_rejected(FcmReason::InvalidGrant);
            return Answer::json(StatusCode::BAD_REQUEST, refused.body().to_string());
        }
        let seconds = self.account.access_token_seconds;
        let expires_at = Timestamp(scene.now.as_millis() + seconds * 1000);
        let token = self.access_tokens.issue(expires_at, scene.rng);
        let body = json!({"access_token": token, "expires_in": seconds, "token_type": "Bearer"});
        Answer::json(StatusCode::OK, body.to_string())
    }

    /// Performs a send; the message's name.
    fn send(
        &self,
        session: &mut Session,
        head: &Head,
        body: &[u8],
        scene: &mut Scene<'_, Self>,
    ) -> Result<String, Refused> {
        if head.route == Route::Unknown {
            return Err(FcmReason::NotFound.into());
        }
        self.check_access(session, head.authorization.as_ref(), scene.now)?;
        if head.route == Route::OtherProject {
            return Err(FcmReason::PermissionDenied.into());
        }
        scene.quota.take(scene.faults, scene.now).map_err(Refused::Quota)?;
        if !is_type(head.content_type.as_ref(), "application/json") {
            let description = "The content type must be application/json.".to_owned();
            return Err(Refused::Body(Violation { field: String::new(), description }));
        }
        let request = message::read(body).map_err(Refused::Body)?;
        let address = match &request.target {
            Target::Token(token) if !message::is_token(token) => return Err(FcmReason::InvalidArgument.into()),
            Target::Token(text) | Target::Other(text) => text,
        };
        scene.check_fate(address.as_bytes())?;
        let message =
            if request.validate_only { FAKE_MESSAGE.to_owned() } else { self.accept(address, &request, scene) };
        Ok(format!("projects/{}/messages/{message}", self.project_id))
    }

    /// Writes the message down; its id.
    fn accept(&self, address: &str, request: &Request, scene: &mut Scene<'_, Self>) -> String {
        let digest = digest(&SHA256, &request.content);
        let id = digest.as_ref().first_chunk().map_or(Uuid::nil(), |bytes| Uuid::from_bytes(*bytes));
        let tag = request.tag.as_deref().map(str::as_bytes);
        let accepted = Accepted { address: address.as_bytes(), id, tag, title: Some(&request.title) };
        scene.ledger.record_accepted(&accepted, scene.now);
        if let Some(on_accepted) = &self.on_accepted {
            on_accepted(AcceptedMessage { address, content: &request.content });
        }
        format!("0:{}%{:016x}", scene.now.as_millis(), rand::RngExt::random::<u64>(scene.rng))
    }

    fn check_access(
        &self,
        session: &mut Session,
        authorization: Option<&HeaderValue>,
        now: Timestamp,
    ) -> Result<(), FcmReason> {
        let authorization = authorization.ok_or(FcmReason::Unauthenticated)?;
        let known = session.0.take().filter(|(known, _)| known == authorization);
        let expires_at = known.map(|(_, at)| at).or_else(|| {
            let token = authorization.to_str().ok()?.strip_prefix("Bearer ")?;
            self.access_tokens.expires_at(token)
        });
        let expires_at = expires_at.filter(|at| now < *at).ok_or(FcmReason::Unauthenticated)?;
        session.0 = Some((authorization.clone(), expires_at));
        Ok(())
    }
}

fn refuse(refused: Refused, scene: &Scene<'_, Fcm>) -> Answer {
    let (reason, violation, wait) = match &refused {
        Refused::For(reason) => (*reason, None, None),
        Refused::Body(violation) => (FcmReason::InvalidBody, Some(violation), None),
        Refused::Quota(seconds) => (FcmReason::QuotaExceeded, None, Some(*seconds)),
    };
    scene.ledger.record_rejected(reason);
    let is_passing = matches!(reason, FcmReason::QuotaExceeded | FcmReason::Unavailable);
    let wait = wait.or(scene.faults.retry_after_secs.filter(|_| is_passing));
    let answer = Answer::json(reason.status(), reason.body(violation).to_string()).with_retry_after(wait);
    match reason {
        FcmReason::Unauthenticated => {
            answer.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"https://accounts.google.com/\""))
        }
        _ => answer,
    }
}

/// Whether a `Content-Type` is this one, whatever its parameters.
fn is_type(value: Option<&HeaderValue>, expected: &str) -> bool {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected)
}
