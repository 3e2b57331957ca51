//! The HTTP API for servers (R7): hand in events, register devices, publish and read channels.
//!
//! ```text
//! POST   /v1/events                      an event or a list of them → 202 {id, position, channels}      publish
//! PUT    /v1/devices/{id}                {platform, token, app, locale, …} → 201 with credential, 200   devices
//! GET    /v1/devices/{id}                → 200                                                          devices
//! DELETE /v1/devices/{id}                → 204                                                          devices
//! GET    /v1/devices/{id}/subscriptions  → {"subscriptions": [{"subject", "topics"}]}                   devices
//! PUT    /v1/devices/{id}/subscriptions  the same shape: these and no others → {"added", "removed"}     devices
//! POST   /v1/devices/{id}/subscriptions  the same shape: these as well → {"added", "removed"}           devices
//! DELETE /v1/devices/{id}/subscriptions?subject=team:42[&topic=goal] → {"added", "removed"}             devices
//! POST   /api/{method}, POST /api        Centrifugo's server API                            publish, read
//! GET    /health                         → 200 {"status":"ok"}, 503                                     no key
//! GET    /metrics                        Prometheus text                                                metrics
//! ```
//!
//! The last column is the scope that the caller's [`ApiKey`] needs. A refusal on `/v1` is a problem (RFC 9457) whose
//! `detail` names the field's path, the rule with its limit, and the value; its `type` is `urn:tidings:problem:` and
//! one of `malformed-json`, `invalid` (400), `unauthorized`, `forbidden`, `not-found`, `method-not-allowed`, `timeout`, `conflict`,
//! `too-large`, `unsupported-media-type`, `overloaded`, `unavailable` (503, with Retry-After).
//!
//! A list of events is accepted as a whole or not at all. Events go into durable channels only. What was answered with
//! 202 is durable; the same event again has the same answer, with `"repeated": true`.
//!
//! Replacing all subscriptions is done by taking away what is not wanted and then adding what is missing: two writes. If
//! the second fails the answer says so, and the same request again completes it; what the device had and keeps is
//! never gone. Replacements of one device take turns.
//!
//! Bounds: requests in work and their bodies (`guard`), events, fields and names (`tidings_types::event_limits`),
//! remembered idempotency keys and commands in one request (`centrifugo`). The parsed form of a body is at most about
//! eight times as large as the body. What waits is bounded by the store; when it is full the answer is 503.
//!
//! Not here: TLS (a proxy's), the listener, deciding what an event's text is ([`EventCheck`] is asked), other formats than
//! JSON, the OpenAPI description, mutes, bulk import.

mod auth;
mod centrifugo;
mod devices;
mod event_input;
mod events;
mod guard;
mod input;
mod metrics;
mod operation;
mod problem;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use axum::http::Uri;
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, any, delete, get, post, put};
use tidings_hub::Hub;
use tidings_store::Store;
use tidings_telemetry::Registry;
use tidings_types::Event;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use auth::{ApiKey, ApiKeys, Scope};
pub use operation::{health_router, metrics_router};

use centrifugo::{CentrifugoMetrics, Idempotency, Method};
use devices::Turns;
use guard::{Dialect, Guard, guard};
use metrics::RouteMetrics;
use problem::{Invalid, Kind, Problem};

/// What bounds the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Bytes of a request's body; over it: 413.
    pub body_bytes_max: usize,
    /// Requests in work at a time; over it: 503.
    pub request_count_max: usize,
    /// Subscriptions of one device, as the store has it: a request with more is refused before anything is changed.
    pub subscription_count_max: usize,
}

/// Everything the API stands on.
pub struct Api {
    /// Its bounds.
    pub config: ApiConfig,
    /// Owner of all channels.
    pub hub: Arc<Hub>,
    /// Owner of durable data.
    pub store: Store,
    /// Who may call.
    pub keys: ApiKeys,
    /// Whether an event can be told.
    pub check: Arc<dyn EventCheck>,
    /// Where requests are counted.
    pub registry: Registry,
    /// What `/api/info` says.
    pub node: Node,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("config", &self.config).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// This server among others.
#[derive(Clone)]
pub struct Node {
    /// Unique, new at each start.
    pub uid: String,
    /// The operator's name for it.
    pub name: String,
    /// The version that runs.
    pub version: String,
    /// Counts the live connections.
    pub clients: Arc<dyn Fn() -> ClientCounts + Send + Sync>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("uid", &self.uid).field("name", &self.name).finish_non_exhaustive()
    }
}

/// Live connections, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ClientCounts {
    /// Connections.
    pub connections: usize,
    /// Different users among them.
    pub users: usize,
}

/// Whether the devices that an event is for can be told: it has a text, and its parameters and size fit.
pub trait EventCheck: Send + Sync {
    /// Called for each event of a request before any is accepted; must not wait.
    ///
    /// # Errors
    /// What is wrong, for the producer to read.
    fn check(&self, event: &Event) -> Result<(), CheckError>;
}

/// Why an event cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct CheckError {
    /// The event's field that is to blame.
    field: String,
    /// What is wrong with it, without the field's name.
    message: String,
}

impl CheckError {
    /// The field to blame and what is wrong with it. The answer names the field, so a `field: ` that the message
    /// already begins with is taken off.
    pub fn new(field: &str, message: &str) -> Self {
        let rest = message.strip_prefix(field).and_then(|rest| rest.strip_prefix(": "));
        Self { field: field.to_owned(), message: rest.unwrap_or(message).to_owned() }
    }

    /// As an error of the event whose fields' paths begin with `prefix`.
    fn at(self, prefix: &str) -> Invalid {
        Invalid::new(&format!("{prefix}{}", self.field), self.message)
    }
}

/// What the handlers share.
struct Shared {
    config: ApiConfig,
    hub: Arc<Hub>,
    store: Store,
    check: Arc<dyn EventCheck>,
    node: Node,
    started: Instant,
    turns: Turns,
    idempotency: Idempotency,
    centrifugo: CentrifugoMetrics,
}

/// `/v1` and `/api`. Unknown paths below them are answered here as well; the rest is the caller's.
pub fn router(api: Api) -> Router {
    let Api { config, hub, store, keys, check, registry, node } = api;
    let guards = Guards { permits: Arc::new(Semaphore::new(config.request_count_max)), keys, registry };
    let centrifugo = CentrifugoMetrics::new(&guards.registry);
    let (started, turns, idempotency) = (Instant::now(), Turns::default(), Idempotency::default());
    let shared = Shared { config, hub, store, check, node, started, turns, idempotency, centrifugo };
    Router::new()
        .merge(own_routes(&guards))
        .merge(centrifugo_routes(&guards))
        .method_not_allowed_fallback(async || Problem::new(Kind::MethodNotAllowed, "see the Allow header"))
        .route("/v1/{*rest}", any(not_found))
        .route("/api/{*rest}", any(not_found))
        .with_state(Arc::new(shared))
}

type Routes = Router<Arc<Shared>>;
type Handlers = MethodRouter<Arc<Shared>>;

fn own_routes(guards: &Guards) -> Routes {
    let devices = |route, handlers| guards.own(route, Scope::Devices, handlers);
    Router::new()
        .route("/v1/events", guards.events("POST /v1/events", post(events::post_events)))
        .route(
            "/v1/devices/{id}",
            devices("GET /v1/devices/{id}", get(devices::device))
                .merge(devices("PUT /v1/devices/{id}", put(devices::put_device)))
                .merge(devices("DELETE /v1/devices/{id}", delete(devices::delete_device))),
        )
        .route(
            "/v1/devices/{id}/subscriptions",
            devices("GET /v1/devices/{id}/subscriptions", get(devices::subscriptions))
                .merge(devices("PUT /v1/devices/{id}/subscriptions", put(devices::put_subscriptions)))
                .merge(devices("POST /v1/devices/{id}/subscriptions", post(devices::post_subscriptions)))
                .merge(devices("DELETE /v1/devices/{id}/subscriptions", delete(devices::delete_subscriptions))),
        )
}

fn centrifugo_routes(guards: &Guards) -> Routes {
    let routes = Router::new().route("/api", guards.centrifugo("POST /api", None, post(centrifugo::legacy)));
    Method::ALL.into_iter().fold(routes, |routes, method| {
        let call =
            async move |shared, caller, headers, body| centrifugo::call(method, shared, caller, headers, body).await;
        let route = method.route();
        let path = route.trim_start_matches("POST ");
        routes.route(path, guards.centrifugo(route, method.scope(), post(call)))
    })
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(Kind::NotFound, format!("there is nothing at {}", input::shown(uri.path())))
}

/// Makes the guards of all routes.
struct Guards {
    keys: ApiKeys,
    permits: Arc<Semaphore>,
    registry: Registry,
}

impl Guards {
    fn events(&self, route: &'static str, handlers: Handlers) -> Handlers {
        let metrics = RouteMetrics::of_events(&self.registry, route);
        self.before(handlers, metrics, Dialect::Tidings, Some(Scope::Publish))
    }

    fn own(&self, route: &'static str, scope: Scope, handlers: Handlers) -> Handlers {
        self.before(handlers, RouteMetrics::new(&self.registry, route), Dialect::Tidings, Some(scope))
    }

    fn centrifugo(&self, route: &'static str, scope: Option<Scope>, handlers: Handlers) -> Handlers {
        self.before(handlers, RouteMetrics::new(&self.registry, route), Dialect::Centrifugo, scope)
    }

    fn before(&self, handlers: Handlers, metrics: RouteMetrics, dialect: Dialect, scope: Option<Scope>) -> Handlers {
        let (keys, permits, metrics) = (self.keys.clone(), Some(self.permits.clone()), Arc::new(metrics));
        handlers.route_layer(from_fn_with_state(Guard { keys, scope, dialect, permits, metrics }, guard))
    }
}
