//! The simulator of Firebase Cloud Messaging (HTTP v1), and its rules about a request.
//!
//! | Request | Answer |
//! |---|---|
//! | `POST /token` | an access token for a service account's assertion |
//! | `POST /v1/projects/<project>/messages:send` | the `name` of the message, or the reason for refusing it |
//!
//! A request is checked in this order: access token, project, quota, body, device, faults.

mod message;
mod oauth;
mod reason;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use rustls::pki_types::CertificateDer;
use serde_json::json;
use tidings_types::{DeviceToken, Timestamp};

use crate::identity::make_rsa_key;
use crate::ledger::Ledger;
use crate::provider::{AcceptedMessage, Answer, OnMessage, Provider, RequestContext};
use crate::server::{Server, simulator};
use crate::{FcmConfig, MessageEntry, StartError};

use message::{Request, Target, Violation};
use oauth::{AccessTokens, ServiceAccount};

pub use reason::FcmReason;

const KEY_ID: &str = "simulatedkey0000000000000000000000000001";
/// The message id in the answer to `validate_only`.
const FAKE_MESSAGE: &str = "fake_message_id";

/// A simulated Firebase Cloud Messaging, with its token endpoint on the same port, over HTTP/2 and HTTP/1.1.
///
/// It runs on threads of its own until [`stop`](Self::stop) or drop. It works inside and outside of an asynchronous
/// runtime. Starting takes some hundred milliseconds, because it makes an RSA key. Access tokens survive a
/// [`stop`](Self::stop).
pub struct FcmSimulator {
    server: Server<Fcm>,
    key_pem: String,
}

simulator!(FcmSimulator, FcmConfig, FcmReason, OnMessage);

impl FcmSimulator {
    fn start_inner(config: FcmConfig, on_accepted: Option<OnMessage>) -> Result<Self, StartError> {
        let (key_pem, public_key) = make_rsa_key()?;
        let (project_id, access_token_seconds) = (config.project_id.clone(), config.access_token_seconds);
        let server = Server::start(config, 0, |addr| Fcm {
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
        Ok(Self { server, key_pem })
    }

    /// The project that may be sent to.
    pub fn project_id(&self) -> &str {
        &self.fcm().project_id
    }

    /// The address of the token endpoint, with the name `localhost`.
    pub fn token_uri(&self) -> &str {
        &self.fcm().account.token_uri
    }

    /// The service account's file as Firebase's console gives it out, with the simulator's token endpoint.
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

    /// Revokes all access tokens, on running connections too.
    pub fn revoke_access_tokens(&self) {
        self.fcm().access_tokens.revoke_all();
        self.server.shared().set_credentials(|revocations| *revocations += 1);
    }

    fn fcm(&self) -> &Fcm {
        &self.server.shared().provider
    }
}

impl Ledger<FcmReason> {
    /// The messages that the device with this token got, the earliest first.
    pub fn for_token(&self, token: &str) -> Vec<MessageEntry> {
        self.for_address(token.as_bytes())
    }

    /// The messages that the device shows: of those with the same tag, only the last one.
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

/// The last valid access token of a connection, as its `authorization`, and when the token expires.
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

/// Why a request is refused.
enum Refused {
    For(FcmReason),
    Body(Violation),
    /// The quota is spent; the seconds until it is renewed.
    Quota(u64),
}

impl From<FcmReason> for Refused {
    fn from(reason: FcmReason) -> Self {
        Self::For(reason)
    }
}

impl Provider for Fcm {
    const PROTOCOLS: &'static [&'static str] = &["h2", "http/1.1"];

    type Refusal = FcmReason;
    /// How often all access tokens were revoked.
    type Credentials = u64;
    type Session = Session;
    type Head = Head;
    type Entry = MessageEntry;

    fn open(&self, _certificate: Option<&CertificateDer<'_>>, _revocations: u64) -> Session {
        Session::default()
    }

    fn set_credentials(&self, session: &mut Session, _revocations: u64) {
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

    fn judge(&self, session: &mut Session, head: Head, body: &[u8], context: &mut RequestContext<'_, Self>) -> Answer {
        if head.route == Route::Token {
            return self.exchange_assertion(&head, body, context);
        }
        match self.send(session, &head, body, context) {
            Ok(name) => Answer::json(StatusCode::OK, json!({"name": name}).to_string()),
            Err(refused) => refuse(refused, context),
        }
    }

    fn read_address(&self, text: &str) -> Result<Box<[u8]>, String> {
        DeviceToken::fcm(text).map(|token| token.as_bytes().into()).map_err(|error| error.to_string())
    }
}

impl Fcm {
    fn exchange_assertion(&self, head: &Head, form: &[u8], context: &mut RequestContext<'_, Self>) -> Answer {
        if context.faults.token_endpoint_down {
            return refuse(FcmReason::Unavailable.into(), context);
        }
        let is_form = is_type(head.content_type.as_ref(), "application/x-www-form-urlencoded");
        let checked = if is_form { self.account.check(form, context.now) } else { Err(oauth::NO_FORM) };
        if let Err(refused) = checked {
            context.ledger.record_rejected(FcmReason::InvalidGrant);
            return Answer::json(StatusCode::BAD_REQUEST, refused.body().to_string());
        }
        let seconds = self.account.access_token_seconds;
        let expires_at = Timestamp(context.now.as_millis() + seconds * 1000);
        let token = self.access_tokens.issue(expires_at, context.rng);
        let body = json!({"access_token": token, "expires_in": seconds, "token_type": "Bearer"});
        Answer::json(StatusCode::OK, body.to_string())
    }

    /// Checks and records a message, and returns its name.
    fn send(
        &self,
        session: &mut Session,
        head: &Head,
        body: &[u8],
        context: &mut RequestContext<'_, Self>,
    ) -> Result<String, Refused> {
        if head.route == Route::Unknown {
            return Err(FcmReason::NotFound.into());
        }
        self.check_access(session, head.authorization.as_ref(), context.now)?;
        if head.route == Route::OtherProject {
            return Err(FcmReason::PermissionDenied.into());
        }
        context.quota.take(context.faults, context.now).map_err(Refused::Quota)?;
        if !is_type(head.content_type.as_ref(), "application/json") {
            let description = "The content type must be application/json.".to_owned();
            return Err(Refused::Body(Violation { field: String::new(), description }));
        }
        let request = message::read(body).map_err(Refused::Body)?;
        let address = match &request.target {
            Target::Token(token) if !message::is_token(token) => return Err(FcmReason::InvalidArgument.into()),
            Target::Token(text) | Target::Other(text) => text,
        };
        context.check_fate(address.as_bytes())?;
        let message =
            if request.validate_only { FAKE_MESSAGE.to_owned() } else { self.accept(address, &request, context) };
        Ok(format!("projects/{}/messages/{message}", self.project_id))
    }

    /// Records the message, and returns its id.
    fn accept(&self, address: &str, request: &Request, context: &mut RequestContext<'_, Self>) -> String {
        let message = AcceptedMessage { address, content: &request.content };
        context.accept(message, request.tag.as_deref(), &request.title, self.on_accepted.as_ref());
        format!("0:{}%{:016x}", context.now.as_millis(), rand::RngExt::random::<u64>(context.rng))
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

fn refuse(refused: Refused, context: &RequestContext<'_, Fcm>) -> Answer {
    let (reason, violation, wait) = match &refused {
        Refused::For(reason) => (*reason, None, None),
        Refused::Body(violation) => (FcmReason::InvalidBody, Some(violation), None),
        Refused::Quota(seconds) => (FcmReason::QuotaExceeded, None, Some(*seconds)),
    };
    let answer = context.refuse(reason, reason.status(), reason.body(violation).to_string(), wait);
    match reason {
        FcmReason::Unauthenticated => {
            answer.with(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"https://accounts.google.com/\""))
        }
        _ => answer,
    }
}

/// Whether a `Content-Type` is `expected`, with any parameters.
fn is_type(value: Option<&HeaderValue>, expected: &str) -> bool {
    let text = value.and_then(|value| value.to_str().ok()).unwrap_or_default();
    text.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case(expected)
}
