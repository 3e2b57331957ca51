//! Checks before a handler runs: who calls, what the caller may do, how fast, and whether there is room. After the
//! handler, the answer is counted, and an attempt to change something is recorded (`audited`).
//!
//! A panic of a handler is answered with 500 and ends that request only.
//!
//! Keys and tokens are checked before any part of the body is read, so a caller without one costs the parsing of the
//! headers and a hash. If an app shows a credential, the handler checks whether it is the device's (`apps`).
//!
//! Bounds: `request_count_max` requests of API keys in work at a time (above that 503), each with a body of
//! `body_bytes_max` (413) that must arrive within [`BODY_TIMEOUT`] (408), so a slow sender does not hold its place for
//! longer. Half of the places are divided among the keys, so that no key takes the last place of another ([`Places`]).
//! Apps have places of their own, and take them only when their bodies have arrived (`target`). So a request that
//! anybody on the network can begin keeps nobody else out. Bodies of apps have at most [`APP_BODY_BYTES_MAX`] and
//! [`APP_BODY_TIMEOUT`].

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tidings_audit::Audit;
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::{Counter, Registry};
use tidings_types::NameError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout};
use tracing::debug;

use crate::apps::{App, Gate, limited, too_fast};
use crate::audited::{Attempt, Audited};
use crate::auth::{ApiKeys, Caller, Scope};
use crate::format::Format;
use crate::metrics::RouteMetrics;
use crate::places::Places;
use crate::problem::{Invalid, Kind, Problem};
use crate::rate::{Buckets, Rate};
use crate::shared::Shared;

/// How long a body may take to arrive.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an app's body may take to arrive.
pub(crate) const APP_BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// The most bytes of an app's body.
pub(crate) const APP_BODY_BYTES_MAX: usize = 64 << 10;

/// The style of a route's errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Ours: every refusal is a problem.
    Tidings,
    /// Centrifugo's server API: the key may be in the query, and the answer without a key has an empty body.
    Centrifugo,
}

/// How fast the holder of one key may send requests.
pub(crate) struct KeyRate {
    buckets: Buckets,
    started: Instant,
    limited: Counter,
}

impl KeyRate {
    pub(crate) fn new(rate: Rate, keys: &ApiKeys, registry: &Registry) -> Self {
        Self {
            buckets: Buckets::with_count(rate, keys.count()),
            started: Instant::now(),
            limited: limited(registry, "key"),
        }
    }

    fn check(&self, caller: &Caller) -> Result<(), Problem> {
        self.buckets.admit_at(caller.index(), self.started.elapsed()).map_err(|wait| {
            self.limited.inc();
            too_fast(&format!("the key {}", caller.name()), self.buckets.rate(), wait)
        })
    }
}

/// The checks of one route.
#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) keys: ApiKeys,
    /// `None`: at any rate.
    pub(crate) key_rate: Option<Arc<KeyRate>>,
    /// Set if apps may call the route.
    pub(crate) gate: Option<Arc<Gate>>,
    /// `None`: the handler checks the scope.
    pub(crate) scope: Option<Scope>,
    pub(crate) dialect: Dialect,
    /// Places for requests of API keys in work; `None`: the route also works under full load.
    pub(crate) places: Option<Arc<Places>>,
    pub(crate) metrics: Arc<RouteMetrics>,
    /// Where the route's requests are recorded; `None`: nowhere.
    pub(crate) audit: Option<Audit>,
    pub(crate) audited: Audited,
}

/// The caller, which handlers find among a request's extensions.
enum Admitted {
    Server(Caller),
    App(App),
}

/// The middleware of a [`Guard`].
pub(crate) async fn guard(State(guard): State<Guard>, mut request: Request, next: Next) -> Response {
    let started = Instant::now();
    let response = match guard.caller(&request) {
        Ok(Admitted::Server(caller)) => {
            let attempt = match &guard.audit {
                Some(audit) => Attempt::begin(audit, guard.audited, &caller, &mut request).await,
                None => None,
            };
            let response = match guard.admit(&caller) {
                Ok(_place) => {
                    request.extensions_mut().insert(caller);
                    answer(request, next).await
                }
                Err(problem) => problem.into_response(),
            };
            if let Some(attempt) = attempt {
                attempt.end(response.status());
            }
            response
        }
        Ok(Admitted::App(app)) => {
            request.extensions_mut().insert(app);
            answer(request, next).await
        }
        Err(response) => response,
    };
    guard.metrics.record(response.status(), started.elapsed(), response.extensions().get());
    response
}

async fn answer(request: Request, next: Next) -> Response {
    let answered = panics::catch_async(Work::Request, next.run(request)).await;
    answered.unwrap_or_else(|panicked| Problem::from(panicked).into_response())
}

impl Guard {
    /// Whether the holder of the key may call now; with a place for the request, if the route needs one.
    fn admit(&self, caller: &Caller) -> Result<Option<OwnedSemaphorePermit>, Problem> {
        if let Some(scope) = self.scope.filter(|scope| !caller.may(*scope)) {
            debug!(key = caller.name(), scope = scope.name(), "Refused a key without the scope");
            let detail = format!("the key {} lacks the scope {}", caller.name(), scope.name());
            return Err(Problem::new(Kind::Forbidden, detail));
        }
        self.key_rate.as_ref().map_or(Ok(()), |rate| rate.check(caller))?;
        self.places.as_ref().map(|places| place(places, caller)).transpose()
    }

    /// A request with a credential is an app's, even if it has a key; a token is an app's only if it is no key.
    #[expect(clippy::result_large_err, reason = "the error is the answer, made once and passed on")]
    fn caller(&self, request: &Request) -> Result<Admitted, Response> {
        let uri = (self.dialect == Dialect::Centrifugo).then(|| request.uri());
        let is_app = self.gate.is_some() && Gate::shows_credential(request.headers());
        let inside = || request.extensions().get::<Caller>().cloned(); // Of this process: the network has no extensions.
        let caller = if is_app { None } else { inside().or_else(|| self.keys.caller(request.headers(), uri)) };
        match (caller, &self.gate, self.dialect) {
            (Some(caller), ..) => Ok(Admitted::Server(caller)),
            (None, Some(gate), _) => match gate.app(request) {
                Ok(Some(app)) => Ok(Admitted::App(app)),
                Ok(None) => Err(self.nobody().into_response()),
                Err(problem) => Err(problem.into_response()),
            },
            (None, None, Dialect::Tidings) => Err(self.nobody().into_response()),
            (None, None, Dialect::Centrifugo) => Err(StatusCode::UNAUTHORIZED.into_response()),
        }
    }

    fn nobody(&self) -> Problem {
        let key = "send a valid key in X-API-Key or in Authorization: apikey KEY";
        let app = "; an app sends its device's credential in X-Device-Credential or its user token in \
                   Authorization: Bearer";
        Problem::new(Kind::Unauthorized, format!("{key}{}", if self.gate.is_some() { app } else { "" }))
    }
}

fn place(places: &Places, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
    places.take(caller).ok_or_else(|| {
        let (max, of_key) = (places.count_max(), places.key_count_max());
        let detail =
            format!("at most {max} requests may be in work (http.request_count_max), at most {of_key} of one API key");
        Problem::new(Kind::Overloaded, detail).limit(of_key as u64)
    })
}

/// A body as JSON, converted from either format.
pub(crate) struct JsonBody(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let (format, limits) = (Format::of_body(&parts.headers)?, BodyLimits::of(&parts, shared));
        let body = read(&parts.headers, body, limits).await?;
        format.json(body, limits.bytes_max).map(Self)
    }
}

/// Like [`JsonBody`]; a missing body means an object without fields.
pub(crate) struct OptionalJsonBody(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for OptionalJsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let limits = BodyLimits::of(&parts, shared);
        let body = read(&parts.headers, body, limits).await?;
        if body.is_empty() {
            return Ok(Self(Bytes::from_static(b"{}")));
        }
        Format::of_body(&parts.headers)?.json(body, limits.bytes_max).map(Self)
    }
}

/// A body of any media type, as Centrifugo accepts it.
pub(crate) struct AnyBody(pub(crate) Bytes);

impl FromRequest<Arc<Shared>> for AnyBody {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        read(&parts.headers, body, BodyLimits::of(&parts, shared)).await.map(Self)
    }
}

/// The limits of a body, which depend on the caller.
#[derive(Debug, Clone, Copy)]
struct BodyLimits {
    bytes_max: usize,
    timeout: Duration,
}

impl BodyLimits {
    fn of(parts: &Parts, shared: &Shared) -> Self {
        let bytes_max = shared.config.body_bytes_max;
        match parts.extensions.get::<App>() {
            Some(_) => Self { bytes_max: bytes_max.min(APP_BODY_BYTES_MAX), timeout: APP_BODY_TIMEOUT },
            None => Self { bytes_max, timeout: BODY_TIMEOUT },
        }
    }
}

async fn read(headers: &HeaderMap, body: Body, limits: BodyLimits) -> Result<Bytes, Problem> {
    let limit = limits.bytes_max;
    let too_large = |detail: String| Problem::new(Kind::TooLarge, detail).limit(limit as u64);
    let stated = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if let Some(length) = stated.filter(|length| *length > limit as u64) {
        let detail = format!("the body must have at most {limit} bytes, got {length}");
        return Err(too_large(detail).value(length));
    }
    match timeout(limits.timeout, Limited::new(body, limit).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(too_large(format!("the body must have at most {limit} bytes")))
        }
        // The caller has disconnected, so nobody reads this.
        Ok(Err(_)) => Err(Problem::new(Kind::Timeout, "the body broke off")),
        Err(_) => {
            let seconds = limits.timeout.as_secs();
            Err(Problem::new(Kind::Timeout, format!("the body must arrive within {seconds} seconds")))
        }
    }
}

/// The first variable part of the path, percent-decoded, so an id may contain a `/` (written `%2F`).
pub(crate) struct IdPath<T>(pub(crate) T);

/// The second variable part of the path.
pub(crate) struct SecondPath<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr<Err = NameError>> FromRequestParts<S> for IdPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        named(parts, state, 0).await.map(Self)
    }
}

impl<S: Send + Sync, T: FromStr<Err = NameError>> FromRequestParts<S> for SecondPath<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        named(parts, state, 1).await.map(Self)
    }
}

async fn named<S: Send + Sync, T: FromStr<Err = NameError>>(
    parts: &mut Parts,
    state: &S,
    index: usize,
) -> Result<T, Problem> {
    let not_text = |_| Problem::from(Invalid::new("id", "the path must be UTF-8 text"));
    let params = RawPathParams::from_request_parts(parts, state).await.map_err(not_text)?;
    let (name, text) = params.iter().nth(index).expect("a route that asks for it has a variable part");
    Ok(text.parse().map_err(|error| Invalid::name(name, error))?)
}
