//! The HTTP API for servers: publish events and read their reports, register devices, publish and read channels.
//!
//! ```text
//! POST   /v1/events                      an event or a list of them → 202 {id, position, channels}      publish
//! GET    /v1/events?state=scheduled      scheduled events → {"events": […], "next"}                     publish
//! GET    /v1/events/{id}                 → 200 {state, audience, held, outcomes, channels, receipts, …} publish
//! DELETE /v1/events/{id}                 cancels it → 204                                               publish
//! GET    /v1/events/{id}/receipts?wait=2s  → 200 {written, received, users, users_complete}             publish
//! GET    /v1/jobs?before=&limit=         newest first → {"jobs": […], "next"}; all of them as lines     publish
//! GET    /v1/jobs/{position}             → 200, also by provider, app and language                      publish
//! POST   /v1/audience/preview            {topic, subjects, to, filter} → {total, by_platform, …}        publish
//! POST   /v1/audience/explain            {selector} → what each part of it means                        publish
//! GET    /v1/feeds                       the state of feeds → {"feeds": […]}                            read
//! POST   /v1/feeds/{name}                a document of a feed → {entries, sent, repeated, …}            publish
//! POST   /v1/feeds/{name}/poll           reads a feed now → its state                                   operate
//! GET    /v1/texts                       the texts in force → {topics, languages, faults, …}            read
//! POST   /v1/texts/reload                reads the texts again → as above                               operate
//! POST   /v1/texts/rollback              puts those before in force → as above                          operate
//! GET    /v1/system                      the server: clients, store, memory, disk → {version, store, …}   read
//! GET    /v1/providers                   the push providers with their connections → {"providers": […]} read
//! GET    /v1/brakes                      the pauses → {"brakes": [{"scope", "paused_at"}]}              read
//! PUT    /v1/brakes/{scope}              pauses pushes → 201, 200 if they were paused already           operate
//! DELETE /v1/brakes/{scope}              resumes them → 204                                             operate
//! GET    /v1/store/backup                all that the store holds, as a stream of bytes                 backup
//! POST   /v1/imports?name=&from=&on_error=  devices, one a line → progress, a line at a time            devices
//! GET    /v1/imports/{name}              how far an import is                                           devices
//! GET    /v1/export                      devices with all that belongs to them, one a line              backup
//! GET    /v1/audit?before=&limit=        who changed what → {"entries": […], "next", "damaged"}        audit
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
//! POST   /v1/tokens/lookup               {platform, token | web_push} → the device that has it          devices
//! GET    /v1/users/{user}/devices?after=&limit=  → {"devices": […], "next"}                             devices
//! GET    /v1/users/{user}/export         → all that is kept of a user                                   devices
//! DELETE /v1/users/{user}                deletes all of that → {"devices"}                              devices
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
//! The last column is the scope that the caller's [`ApiKey`] needs. Routes with a star are also for the app on the
//! device itself ([`Apps`]). An id in a path is percent-decoded. A list has 100 entries, or `limit` (1 to 1000). Unless
//! it is the last page, it has `next`, the value of `before` or `after` for the next page. A refusal on `/v1` is a
//! problem (RFC 9457). Its `detail` names the field's path, the rule with its limit, and the value. Its `type` is one
//! of those in `docs/problems.md`.
//!
//! A request that is accepted but probably wrong has `warnings` in its answer; with `?strict=true` it is refused
//! (`warnings`).
//!
//! A list of events is accepted as a whole or not at all. Events go into durable channels only. An event that was
//! answered with 202 is durable. The same event again gets the same answer, with `"repeated": true`.
//!
//! A device is answered with its `ETag`; `If-Match` and `If-None-Match` make reading it, putting it and deleting it
//! conditional (`conditions`).
//!
//! Replacing all subscriptions takes two writes: it removes the unwanted ones, then adds the missing ones. If the
//! second write fails, the answer says so, and the same request again completes the replacement. Subscriptions that the
//! device had and keeps are never removed. Replacements of one device take turns.
//!
//! An event with `at` is kept until then; at most a minute after its `at` it is still accepted, and sent at once. If a
//! key has an `audience_max`, or the event has `expect_audience`, the event's devices are counted before it is
//! accepted, and again when its job begins. An event that is already known is not counted: it gets its first answer
//! again.
//!
//! Bounds: requests in work and their bodies (`guard`); events, fields and names (`tidings_types::event_limits`);
//! remembered idempotency keys and commands in one request (`centrifugo`); entries of a page (`query`); audiences that
//! one request has counted, one at a time over all requests (`audience`); the rate of keys and apps (`rate`). At most a
//! quarter of the requests in work may be of these kinds: requests that wait for receipts or for their turn to count an
//! audience, and those that get all jobs as lines or everything of a user. So they never keep producers out; a further
//! one is answered with 503. Apps have places of their own, another quarter of this number. The parsed form of a body
//! is at most about eight times as large as the body. A MessagePack body is also held as JSON while it is read. The
//! store bounds the requests that wait for it; when it is full, the answer is 503.
//!
//! Not here: TLS (the task of a proxy), the listener, the text of an event ([`EventCheck`]), running jobs ([`Jobs`])
//! and connections ([`Connections`]).

mod apps;
mod audience;
mod audit;
mod audited;
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
mod feed;
mod feeds;
mod format;
mod guard;
mod imports;
mod input;
mod job;
mod jobs;
mod lines;
mod memory;
mod metrics;
mod mutes;
mod openapi;
mod operation;
mod pages;
mod places;
mod ports;
mod problem;
mod publisher;
mod query;
mod rate;
mod readiness;
mod routes;
mod selectors;
mod shared;
mod standby;
mod system;
mod target;
mod texts;
mod traces;
mod turns;
mod users;
mod warnings;
mod why;

use std::fmt;
use std::sync::Arc;

use axum::Router;
use tidings_audit::Audit;
use tidings_hub::Hub;
use tidings_store::{NewImport, Store};
use tidings_telemetry::trace::Tracer;
use tidings_telemetry::{Registry, rfc3339};
use tidings_types::Event;
use tokio::sync::Semaphore;
use tokio::time::Instant;

pub use apps::{Apps, SubjectPattern, network, network_of};
pub use audited::OnBehalf;
pub use auth::{ApiKey, ApiKeys, Caller, Scope};
pub use config::ApiConfig;
pub use event_view::EventState;
pub use feed::{
    FeedBody, FeedCounts, FeedError, FeedFuture, FeedReason, FeedRefusal, FeedReport, FeedState, FeedView, Feeds,
};
pub use format::messagepack;
pub use job::{DeviceEvents, Estimate, JobEntry, JobPart, JobView, Jobs, Outcomes};
pub use operation::{health_router, metrics_router, ready_router};
pub use ports::{
    CheckError, ClientCounts, Connections, Coverage, EventCheck, ListFuture, MemoryTerm, Node, NodeView, OrderFuture,
    Others, OthersFuture, System, Texts, TextsView,
};
pub use publisher::{Publisher, Unpublished};
pub use rate::Rate;
pub use readiness::{ProviderStatus, Readiness, ReadyListener, ReadyProvider};
pub use standby::{Leader, Standby, StandbyStatus, standby_ready_router, standby_refusal, standby_router};
pub use tidings_jobs::DeviceTrail;
pub use tidings_telemetry::rfc3339::{Rfc3339, Rfc3339Error};
pub use warnings::Configured;

use apps::Gate;
use centrifugo::{CentrifugoMetrics, Idempotency};
use guard::KeyRate;
use places::Places;
use problem::Problem;
use routes::{Guards, Routes};
use shared::Shared;
use turns::Turns;

/// Everything that the API needs.
pub struct Api {
    /// The settings.
    pub config: ApiConfig,
    /// Owner of all channels.
    pub hub: Arc<Hub>,
    /// Owner of durable data.
    pub store: Store,
    /// The API keys.
    pub keys: ApiKeys,
    /// What apps may do for themselves; `None`: apps may not call.
    pub apps: Option<Apps>,
    /// Checks whether an event can be rendered for all its devices.
    pub check: Arc<dyn EventCheck>,
    /// The configuration, for warnings.
    pub configured: Arc<dyn Configured>,
    /// Reports on jobs.
    pub jobs: Arc<dyn Jobs>,
    /// The live connections of devices.
    pub connections: Arc<dyn Connections>,
    /// The feeds; `None`: there are none.
    pub feeds: Option<Arc<dyn Feeds>>,
    /// The topics and translations.
    pub texts: Arc<dyn Texts>,
    /// What the server knows of itself.
    pub system: Arc<dyn System>,
    /// The registry of metrics.
    pub registry: Registry,
    /// Where spans of traces go; `None`: nowhere.
    pub tracer: Option<Tracer>,
    /// Where attempts to change something are recorded; `None`: nowhere.
    pub audit: Option<Audit>,
    /// The answer of `/api/info`.
    pub node: Node,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("config", &self.config).field("keys", &self.keys).finish_non_exhaustive()
    }
}

/// Reads of the store at a time.
const READ_COUNT_MAX: usize = 32;
/// Pages of answers that are read at the same time.
const PAGE_READ_COUNT_MAX: usize = 4;
/// Reads at a time for apps that have proven nothing yet.
const APP_READ_COUNT_MAX: usize = 8;

/// The routes, by the listener that may serve them.
#[derive(Debug)]
pub struct Routers {
    /// `/v1`, `/api` and `/openapi.json`. Unknown paths below them are answered here as well; the caller handles all
    /// others.
    pub servers: Router,
    /// The routes of `/v1` for apps, without any API key. They are for a public listener that does not serve `servers`.
    /// `None`: apps may not call.
    pub apps: Option<Router>,
}

/// All routes in one: [`Routers::servers`].
pub fn router(api: Api) -> Router {
    routers(api).servers
}

/// The routes.
pub fn routers(api: Api) -> Routers {
    let Api {
        config,
        hub,
        store,
        keys,
        apps,
        check,
        configured,
        jobs,
        connections,
        feeds,
        texts,
        system,
        registry,
        audit,
        tracer,
        node,
    } = api;
    let request_count_max = config.request_count_max;
    let key_rate = config.key_rate.map(|rate| Arc::new(KeyRate::new(rate, &keys, &registry)));
    let app_count_max = (request_count_max / 4).max(1);
    let gate = apps.map(|apps| Arc::new(Gate::new(apps, app_count_max, &registry)));
    let places = Arc::new(Places::new(request_count_max, &keys));
    let waits = Places::new(config.waiting_count_max(), &keys);
    let large_answers = Places::new(centrifugo::LARGE_ANSWER_COUNT_MAX, &keys);
    let guards = Guards { places, keys, key_rate, gate: gate.clone(), registry, audit: audit.clone() };
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
        feeds,
        texts,
        system,
        registry: guards.registry.clone(),
        audit,
        tracer,
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

/// Reads a line of an import like `POST /v1/imports`, without a server; `subscription_count_max` is the limit of a
/// device.
///
/// # Errors
/// The `detail` of the answer.
pub fn read_device(line: &[u8], subscription_count_max: usize) -> Result<NewImport, String> {
    imports::device_of(line, subscription_count_max).map_err(|invalid| invalid.detail)
}

/// Reads an event like `POST /v1/events`, without a server.
///
/// # Errors
/// The `detail` of the answer.
pub fn read_event(body: &[u8]) -> Result<Event, String> {
    let mut batch = event_input::Batch::read(body).map_err(Problem::into_detail)?;
    match (batch.is_list, batch.events.pop()) {
        (false, Some(event)) => Ok(event),
        _ => Err("must be one event, an object".to_owned()),
    }
}
