//! Who visits, what is asked for, and in which form: every page and every action begins with a [`Visit`].
//!
//! A browser shows who it is by the cookie of a session, or a proxy says so in a header. Headers of a proxy are believed
//! only from its address (`console.trusted_proxies`), or from this machine if the listener is on loopback.
//!
//! A form must come from our own page: its `Origin` is that of the address that was called, and it has the token that
//! belongs to the session. The token is an HMAC of the session, so nothing has to be remembered.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::header::{ACCEPT, COOKIE, HOST, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;
use tidings_telemetry::unix_now;
use tokio::time::Instant;

use crate::answers::{self, Wanted};
use crate::config::ConsoleConfig;
use crate::ports::{Answer, Api, Caller, Role};
use crate::samples::Samples;
use crate::sessions::Sessions;

/// The cookie of a session.
pub(crate) const COOKIE_NAME: &str = "tidings_console";
/// The most bytes of a user's name from a proxy.
const USER_BYTES_MAX: usize = 128;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) samples: Samples,
    pub(crate) sessions: Sessions,
    pub(crate) config: ConsoleConfig,
    /// The key of the tokens of forms; new at each start.
    pub(crate) secret: hmac::Key,
}

/// Names and values of a query or a form; of several with one name the first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Words(BTreeMap<String, String>);

impl Words {
    pub(crate) fn read(text: &[u8]) -> Self {
        let mut words = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(text) {
            words.entry(name.into_owned()).or_insert_with(|| value.trim().to_owned());
        }
        Self(words)
    }

    /// Empty if it is not there.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }
}

/// Somebody who was let in, and what is asked for.
pub(crate) struct Visit {
    pub(crate) shared: Arc<Shared>,
    pub(crate) caller: Caller,
    /// The token of forms.
    pub(crate) token: String,
    /// The id of the session; `None`: a proxy says who it is.
    pub(crate) session: Option<String>,
    pub(crate) uri: Uri,
    pub(crate) query: Words,
    pub(crate) wanted: Wanted,
    /// The address of this server, as the browser knows it.
    pub(crate) host: String,
    /// Milliseconds since 1970.
    pub(crate) now: u64,
}

impl Visit {
    /// What the API answers to this caller. A viewer changes nothing, whatever its key allows.
    pub(crate) async fn call(&self, method: Method, path: &str, body: Option<Value>) -> Answer {
        if self.caller.role != Role::Operator && !is_reading(&method, path) {
            return Answer::refused(StatusCode::FORBIDDEN, "forbidden", "a viewer of the console changes nothing");
        }
        self.shared.api.call(&self.caller, method, path, body).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, None).await
    }

    /// A method of Centrifugo's server API that reads: its result, or its error as a problem.
    pub(crate) async fn read(&self, method: &str, body: Value) -> Value {
        let answer = self.call(Method::POST, &format!("/api/{method}"), Some(body)).await;
        match (answer.body.get("result"), answer.body.get("error")) {
            (Some(result), _) => result.clone(),
            (None, Some(error)) => {
                let told = error["message"].as_str().unwrap_or("refused");
                Answer::refused(StatusCode::BAD_REQUEST, "invalid", format_args!("{method}: {told}")).body
            }
            (None, None) => answer.body,
        }
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.caller.role == Role::Operator
    }

    /// The address of this page in another form, or with other words.
    pub(crate) fn with(&self, name: &str, value: &str) -> String {
        let own = self.uri.query().unwrap_or_default();
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (other, value) in
            form_urlencoded::parse(own.as_bytes()).filter(|(other, _)| other != name && other != "said")
        {
            query.append_pair(&other, &value);
        }
        query.append_pair(name, value);
        format!("{}?{}", self.uri.path(), query.finish())
    }

    /// The address of this page.
    pub(crate) fn here(&self) -> String {
        self.uri.path_and_query().map_or_else(|| "/console".to_owned(), ToString::to_string)
    }
}

/// Whether a call only reads.
fn is_reading(method: &Method, path: &str) -> bool {
    const READING: [&str; 7] = [
        "/v1/audience/preview",
        "/v1/audience/explain",
        "/api/channels",
        "/api/history",
        "/api/info",
        "/api/presence",
        "/api/presence_stats",
    ];
    method == Method::GET || (method == Method::POST && READING.contains(&path))
}

impl FromRequestParts<Arc<Shared>> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Response> {
        let query = Words::read(parts.uri.query().unwrap_or_default().as_bytes());
        let wanted = wanted(&parts.headers, &query);
        let peer = parts.extensions.get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(peer)| peer.ip());
        let Some((caller, session)) = shared.known(&parts.headers, peer) else {
            return Err(answers::log_in(wanted, &parts.uri));
        };
        Ok(Self {
            token: shared.token(session.as_deref(), &caller),
            shared: shared.clone(),
            caller,
            session,
            query,
            wanted,
            host: text(&parts.headers, &HOST).unwrap_or("127.0.0.1:8000").to_owned(),
            now: unix_now().0,
            uri: parts.uri.clone(),
        })
    }
}

impl Shared {
    /// Who it is, and the id of the session.
    fn known(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> Option<(Caller, Option<String>)> {
        let proxied = self.config.user_header.as_ref().filter(|_| self.believes(peer));
        if let Some(user) = proxied.and_then(|header| text(headers, header)).filter(|user| is_user(user)) {
            let named = self.config.role_header.as_ref().and_then(|header| text(headers, header));
            // A role that does not exist is none: it must not give more than the least.
            let role = named.map_or(self.config.role_default, |name| Role::of(name).unwrap_or_default());
            return Some((self.api.proxied(user, role)?, None));
        }
        let id = cookie(headers)?;
        let caller = self.sessions.caller(id, Instant::now())?;
        Some((caller, Some(id.to_owned())))
    }

    fn believes(&self, peer: Option<IpAddr>) -> bool {
        let Some(peer) = peer.map(|peer| peer.to_canonical()) else { return false };
        self.config.trusted_proxies.contains(&peer) || (self.config.trusts_loopback && peer.is_loopback())
    }

    fn token(&self, session: Option<&str>, caller: &Caller) -> String {
        let whose = session.map_or_else(|| format!("user {}", caller.user), |id| format!("session {id}"));
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.secret, whose.as_bytes()))
    }
}

/// Whether the form was sent by a page of our own address, and not by another site.
///
/// # Errors
/// Why nothing is done.
pub(crate) fn check_origin(headers: &HeaderMap) -> Result<(), &'static str> {
    let (host, origin) = (text(headers, &HOST), text(headers, &ORIGIN));
    let authority = origin.and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    let is_own = host.is_some() && authority == host;
    if is_own { Ok(()) } else { Err("This form came from another site, so nothing was done.") }
}

/// Whether the browser speaks to us over https, perhaps through a proxy.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    text(headers, &ORIGIN).is_some_and(|origin| origin.starts_with("https://"))
}

/// Whether the form belongs to this login.
///
/// # Errors
/// Why nothing is done.
pub(crate) fn check_token(visit: &Visit, form: &Words) -> Result<(), &'static str> {
    let is_own = verify_slices_are_equal(form.get("token").as_bytes(), visit.token.as_bytes()).is_ok();
    let told = "This form is older than your login, so nothing was done. Go back, load the page again and repeat it.";
    if is_own { Ok(()) } else { Err(told) }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn is_user(user: &str) -> bool {
    !user.is_empty() && user.len() <= USER_BYTES_MAX && !user.chars().any(char::is_control)
}

/// The id of the session in the cookie.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|cookies| cookies.to_str().ok());
    let mut pairs = all.flat_map(|cookies| cookies.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(name, value)| (name == COOKIE_NAME).then_some(value))
}

/// The form that is asked for: `?format=json`, or what `Accept` says.
fn wanted(headers: &HeaderMap, query: &Words) -> Wanted {
    let accept = text(headers, &ACCEPT).unwrap_or_default();
    let is_json =
        query.get("format") == "json" || (accept.contains("application/json") && !accept.contains("text/html"));
    match () {
        () if is_json => Wanted::Json,
        () if headers.contains_key("hx-request") => Wanted::Part,
        () => Wanted::Page,
    }
}
