//! The HTTP API for servers: hand in events and ask what became of them, register devices, publish and read
//! channels.
//!
//! ```text
//! POST   /v1/events                      an event or a list of them → 202 {id, position, channels}      publish
//! GET    /v1/events?state=scheduled      those that are not due yet → {"events": […], "next"}           publish
//! GET    /v1/events/{id}                 → 200 {state, audience, held, outcomes, channels, receipts, …} publish
//! DELETE /v1/events/{id}                 it is sent to nobody any more → 204                            publish
//! GET    /v1/events/{id}/receipts?wait=2s  → 200 {written, received, users, users_complete}             publish
//! GET    /v1/jobs?before=&limit=         newest first → {"jobs": […], "next"}; all of them as lines     publish
//! GET    /v1/jobs/{position}             → 200, also by provider, app and language                      publish
//! POST   /v1/audience/preview            {topic, subjects, to, filter} → {total, by_platform, …}        publish
//! POST   /v1/audience/explain            {selector} → what each part of it means                        publish
//! GET    /v1/brakes                      what is held → {"brakes": [{"scope", "paused_at"}]}            read
//! PUT    /v1/brakes/{scope}              holds pushes → 201, 200 if they were held before               operate
//! DELETE /v1/brakes/{scope}              lets them go on → 204                                          operate
//! GET    /v1/store/backup                all that the store holds, as a stream of bytes                 backup
//! POST   /v1/imports?name=&from=&on_error=  devices, one a line → progress, a line at a time            devices
//! GET    /v1/imports/{name}              how far an import is                                           devices
//! GET    /v1/export                      devices with all that belongs to them, one a line              backup
//! GET    /v1/devices?after=&limit=       in order of ids → {"devices": […], "next"}                     devices
//! PUT    /v1/devices/{id}                {platform, token | web_push, app, …} → 201 with credential, 200  devices *
//! GET    /v1/devices/{id}                → 200                                                          devices *
//! DELETE /v1/devices/{id}                → 204                                                          devices *
//! POST   /v1/devices/{id}/credential     a new one, the old one ends → {"credential"}                   devices *
//! POST   /v1/devices/{id}/logout         no user, no subscriptions, a new credential → {"credential"}   devices *
//! GET    /v1/devices/{id}/subscriptions  → {"subscriptions": [{"subject", "topics"}]}                   devices *
//! PUT    /v1/devices/{id}/subscriptions  the same shape: these and no others → {"added", "removed"}     devices *
//! POST   /v1/devices/{id}/subscriptions  the same shape: these as well → {"added", "removed"}           devices *
//! DELETE /v1/devices/{id}/subscriptions?subject=team:42[&topic=goal] → {"added", "removed"}             devices *
//! GET    /v1/devices/{id}/mutes          → {"mutes": [{"scope", "until"}]}                              devices *
//! PUT    /v1/devices/{id}/mutes/{scope}  of everything or a subject: {until | for} → 201, 200           devices *
//! DELETE /v1/devices/{id}/mutes/{scope}  → 204                                                          devices *
//! POST   /v1/tokens/lookup               {platform, token | web_push} → whose it is                     devices
//! GET    /v1/users/{user}/devices?after=&limit=  → {"devices": […], "next"}                             devices
//! GET    /v1/users/{user}/export         → all that is kept of a user                                   devices
//! DELETE /v1/users/{user}                all of that is forgotten → {"devices"}                         devices
//! POST   /api/{method}, POST /api        Centrifugo's server API                            publish, read
//! GET    /openapi.json                   all of this for programs (`openapi`)                             no key
//! GET    /health                         → 200 {"status":"ok"}: the process works                       no key
//! GET    /ready                          → 200, 503 {"status", "store", "listeners", "providers"}       no key
//! GET    /metrics                        Prometheus text                                                metrics
//! ```
//!
//! Bodies and answers of `/v1` are JSON or MessagePack, as a request's `Content-Type` and `Accept` say (`format`,
//! `docs/messagepack.md`).
//!
//! The last column is the scope that the caller's [`ApiKey`] needs; routes with a star are also for the app on the
//! device itself ([`Apps`]). An id in a path is percent-decoded. A list has 100 entries, or `limit` (1 to 1000), and
//! `next`, to be asked for as `before` or `after`, unless it is the last page. A refusal on `/v1` is a problem (RFC
//! 9457) whose `detail` names the field's path, the rule with its limit, and the value; its `type` is one of those in
//! `docs/problems.md`.
//!
//! What is accepted and probably not meant has `warnings` in its answer; with `?strict=true` it is refused (`warnings`).
//!
//! A list of events is accepted as a whole or not at all. Events go into durable channels only. What was answered with
//! 202 is durable; the same event again has the same answer, with `"repeated": true`.
//!
//! A device is answered with its `ETag`; `If-Match` and `If-None-Match` make reading it, putting it and deleting it
//! conditional (`conditions`).
//!
//! Replacing all subscriptions is done by taking away what is not wanted and then adding what is missing: two writes.
//! If the second fails the answer says so, and the same request again completes it; what the device had and keeps is
//! never gone. Replacements of one device take turns.
//!
//! An event with `at` is kept until then, a minute late at most it is sent at once. Where a key has an `audience_max`,
//! or the event says what audience it expects, its devices are counted before it is accepted, and again when its job
//! begins. An event that is known already is not counted: it has its first answer again.
//!
//! Bounds: requests in work and their bodies (`guard`), events, fields and names (`tidings_types::event_limits`),
//! remembered idempotency keys and commands in one request (`centrifugo`), entries of a page (`query`), audiences that
//! one request has counted, one at a time of all requests (`audience`), how fast keys and apps may ask (`rate`).
//! Requests that wait for receipts or for their turn to count an audience, and those that get all jobs as lines or all
//! of a user, are a quarter of those in work, so that producers are never kept out by them; one more is answered with
//! 503. Requests of apps are a quarter as many again, in places of their own. The parsed form of a body is at most
//! about eight times as large as the body; one of MessagePack is held a second time as JSON while it is read. What
//! waits is bounded by the store; when it is full the answer is 503.
//!
//! Not here: TLS (a proxy's), the listener, deciding what an event's text is ([`EventCheck`] is asked), running jobs
//! ([`Jobs`]) and connections ([`Connections`]).

mod apps;
mod audience;
mod auth;
mod backup;
mod brakes;
mod centrifugo;
mod conditions;
mod config;
mod cors;
mod devices;
mod event_input;
mod event_report;
mod event_view;
mod events;
mod exports;
mod format;
mod guard;
mod imports;
mod input;
mod job;
mod jobs;
mod lines;
mod metrics;
mod mutes;
mod openapi;
mod operation;
mod pages;
mod places;
mod ports;
mod problem;
mod query;
mod rate;
mod rfc3339;
mod routes;
mod selectors;
mod shared;
mod target;
mod turns;
mod users;
mod warnings;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use tidings_hub::Hub;
use tidings_store::{NewImport, Store};
use tidings_telemetry::Registry;
use tidings_types::Event;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use apps::{Apps, SubjectPattern, network};
pub use auth::{ApiKey, ApiKeys, Scope};
pub use config::ApiConfig;
pub use event_view::EventState;
pub use job::{Estimate, JobEntry, JobPart, JobState, JobView, Jobs, Outcomes, TimeTo};
pub use operation::{
    ProviderStatus, Readiness, ReadyListener, ReadyProvider, health_router, metrics_router, ready_router,
};
pub use ports::{CheckError, ClientCounts, Connections, EventCheck, Node};
pub use rate::Rate;
pub use rfc3339::{Rfc3339, Rfc3339Error};
pub use warnings::Configured;

use apps::Gate;
use centrifugo::{CentrifugoMetrics, Idempotency};
use guard::KeyRate;
use places::Places;
use problem::Problem;
use routes::{Guards, Routes};
use shared::Shared;
use turns::Turns;

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
    /// What apps may do for themselves; `None`: they do not call.
    pub apps: Option<Apps>,
    /// Whether an event can be told.
    pub check: Arc<dyn EventCheck>,
    /// What there are warnings about.
    pub configured: Arc<dyn Configured>,
    /// Who knows what became of events.
    pub jobs: Arc<dyn Jobs>,
    /// Who knows the live connections of devices.
    pub connections: Arc<dyn Connections>,
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

/// Reads of the store at a time.
const READ_COUNT_MAX: usize = 32;
/// Pages of answers that are read at a time.
const PAGE_READ_COUNT_MAX: usize = 4;
/// Reads at a time for apps that have proven nothing yet.
const APP_READ_COUNT_MAX: usize = 8;

/// What is answered, and where it may be served.
#[derive(Debug)]
pub struct Routers {
    /// `/v1`, `/api` and `/openapi.json`. Unknown paths below them are answered here as well; the rest is the caller's.
    pub servers: Router,
    /// What of `/v1` apps call for themselves, without any key, for a listener that all can reach and `servers` is not on.
    /// `None`: they do not call.
    pub apps: Option<Router>,
}

/// All routes in one: [`Routers::servers`].
pub fn router(api: Api) -> Router {
    routers(api).servers
}

/// The routes.
pub fn routers(api: Api) -> Routers {
    let Api { config, hub, store, keys, apps, check, configured, jobs, connections, registry, node } = api;
    let request_count_max = config.request_count_max;
    let key_rate = config.key_rate.map(|rate| Arc::new(KeyRate::new(rate, &keys, &registry)));
    let app_count_max = (request_count_max / 4).max(1);
    let gate = apps.map(|apps| Arc::new(Gate::new(apps, app_count_max, &registry)));
    let places = Arc::new(Places::new(request_count_max, &keys));
    let waits = Places::new((request_count_max / 4).max(1), &keys);
    let large_answers = Places::new(centrifugo::LARGE_ANSWER_COUNT_MAX, &keys);
    let guards = Guards { places, keys, key_rate, gate: gate.clone(), registry };
    let centrifugo = CentrifugoMetrics::new(&guards.registry);
    let (started, turns, idempotency) = (Instant::now(), Turns::default(), Idempotency::default());
    let previews = Arc::new(Semaphore::new(1));
    let shared = Arc::new(Shared {
        config,
        hub,
        store,
        check,
        configured,
        jobs,
        connections,
        node,
        started,
        turns,
        user_turns: Turns::default(),
        gate,
        idempotency,
        centrifugo,
        waits,
        large_answers,
        reads: Arc::new(Semaphore::new(READ_COUNT_MAX)),
        page_reads: Arc::new(Semaphore::new(PAGE_READ_COUNT_MAX)),
        app_reads: Arc::new(Semaphore::new(APP_READ_COUNT_MAX)),
        previews,
    });
    let Routes { router, known } = Routes::new(&guards);
    let document = openapi::document(&known, &shared.config, &shared.node.version);
    let servers = router.with_state(shared.clone()).merge(openapi::router(document));
    let apps = shared.gate.is_some().then(|| {
        let without_keys = Guards { keys: ApiKeys::new(Vec::new()), key_rate: None, ..guards };
        routes::of_apps(&without_keys).with_state(shared)
    });
    Routers { servers, apps }
}

/// Reads a line of an import as `POST /v1/imports` reads one, without a server; `subscription_count_max` is what a device
/// may have.
///
/// # Errors
/// What the answer would say.
pub fn read_device(line: &[u8], subscription_count_max: usize) -> Result<NewImport, String> {
    imports::device_of(line, subscription_count_max).map_err(|invalid| invalid.detail)
}

/// Reads an event as `POST /v1/events` reads one, without a server.
///
/// # Errors
/// What the answer would say.
pub fn read_event(body: &[u8]) -> Result<Event, String> {
    let mut batch = event_input::Batch::read(body).map_err(Problem::into_detail)?;
    match (batch.is_list, batch.events.pop()) {
        (false, Some(event)) => Ok(event),
        _ => Err("must be one event, an object".to_owned()),
    }
}
