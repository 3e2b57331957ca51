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
mod cors;
mod devices;
mod event_input;
mod event_report;
mod events;
mod exports;
mod format;
mod guard;
mod imports;
mod input;
mod jobs;
mod lines;
mod metrics;
mod mutes;
mod openapi;
mod operation;
mod pages;
mod places;
mod problem;
mod query;
mod rate;
mod rfc3339;
mod routes;
mod selectors;
mod target;
mod users;
mod warnings;

use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tidings_hub::Hub;
use tidings_store::{NewImport, Store};
use tidings_telemetry::Registry;
use tidings_telemetry::panics::{self, Work};
use tidings_types::{DeviceNumber, Event, EventChannels};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

pub use apps::{Apps, SubjectPattern, network};
pub use auth::{ApiKey, ApiKeys, Scope};
pub use event_report::EventState;
pub use jobs::{Estimate, JobEntry, JobPart, JobState, JobView, Jobs, Outcomes, TimeTo};
pub use operation::{
    ProviderStatus, Readiness, ReadyListener, ReadyProvider, health_router, metrics_router, ready_router,
};
pub use rate::Rate;
pub use rfc3339::{Rfc3339, Rfc3339Error};
pub use warnings::Configured;

use apps::Gate;
use auth::Caller;
use centrifugo::{CentrifugoMetrics, Idempotency};
use guard::KeyRate;
use places::Places;
use problem::{Invalid, Kind, Problem};
use routes::{Guards, Routes};
use target::Turns;

/// What bounds the API.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// Bytes of a request's body; over it: 413.
    pub body_bytes_max: usize,
    /// Requests in work at a time; over it: 503.
    pub request_count_max: usize,
    /// Subscriptions of one device, as the store has it: a request with more is refused before anything is changed.
    pub subscription_count_max: usize,
    /// Mutes of one device, as the store has it: how long a line of an import may be depends on it.
    pub mute_count_max: usize,
    /// How fast the holder of one key may ask; `None`: at any rate.
    pub key_rate: Option<Rate>,
    /// Where events are published that name no channel.
    pub event_channels: EventChannels,
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

/// Knows the live connections of devices. Must not wait.
pub trait Connections: Send + Sync {
    /// Takes from all connections of `device` that they are its; with `close` they are closed as well, and may come back.
    fn revoke(&self, device: DeviceNumber, close: bool);
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

/// Reads of the store at a time.
const READ_COUNT_MAX: usize = 32;
/// Pages of answers that are read at a time.
const PAGE_READ_COUNT_MAX: usize = 4;
/// Reads at a time for apps that have proven nothing yet.
const APP_READ_COUNT_MAX: usize = 8;

fn stopping() -> Problem {
    Problem::new(Kind::Unavailable, "the server is stopping")
}

/// How long a request waits for its turn to count an audience: a large one takes a good part of a second.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);

/// What the handlers share.
struct Shared {
    config: ApiConfig,
    hub: Arc<Hub>,
    store: Store,
    check: Arc<dyn EventCheck>,
    configured: Arc<dyn Configured>,
    jobs: Arc<dyn Jobs>,
    connections: Arc<dyn Connections>,
    node: Node,
    started: Instant,
    turns: Turns,
    user_turns: Turns,
    /// `None`: apps do not call for themselves.
    gate: Option<Arc<Gate>>,
    idempotency: Idempotency,
    centrifugo: CentrifugoMetrics,
    /// Places for requests that wait.
    waits: Places,
    /// Places for answers of Centrifugo's API that are large.
    large_answers: Places,
    /// Reads of the store at a time: short ones, and those of many rows.
    reads: Arc<Semaphore>,
    page_reads: Arc<Semaphore>,
    /// Reads for apps that have proven nothing yet, so that whoever calls keeps no backend's read waiting.
    app_reads: Arc<Semaphore>,
    /// One audience is counted at a time.
    previews: Arc<Semaphore>,
}

impl Shared {
    /// A place for a request that may wait for long without work; there are a quarter as many as for all requests.
    fn waiting_place(&self, caller: &Caller) -> Result<OwnedSemaphorePermit, Problem> {
        self.waits.take(caller).ok_or_else(|| {
            let (max, of_key) = (self.waits.count_max(), self.waits.key_count_max());
            let detail = format!(
                "at most {max} requests may wait, a quarter of http.request_count_max, at most {of_key} of one API key"
            );
            Problem::new(Kind::Overloaded, detail).limit(of_key as u64)
        })
    }

    /// Reads the store on a thread that may block. A slow disk must not hold up the runtime's own threads, on which all
    /// connections are served.
    ///
    /// # Cancel safety
    /// What is dropped is read to its end, and nobody is told.
    async fn read<T, E>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> Result<T, E> + Send + 'static,
    ) -> Result<T, Problem>
    where
        T: Send + 'static,
        E: Send + 'static,
        Problem: From<E>,
    {
        Ok(self.blocking(&self.reads, read).await.ok_or_else(stopping)??)
    }

    /// As [`Shared::read`], for a page of an answer, whose many rows take a while. `None`: the server is stopping.
    async fn read_page<T: Send + 'static>(
        self: &Arc<Self>,
        read: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        self.blocking(&self.page_reads, read).await
    }

    async fn blocking<T: Send + 'static>(
        self: &Arc<Self>,
        permits: &Arc<Semaphore>,
        work: impl FnOnce(&Self) -> T + Send + 'static,
    ) -> Option<T> {
        let permit = permits.clone().acquire_owned().await.expect("it is never closed");
        let shared = self.clone();
        let working = blocking(move || {
            let _permit = permit; // Also when the caller hangs up.
            work(&shared)
        });
        working.await.ok()
    }

    /// Waits for the turn to walk over an audience, in one's [`Shared::waiting_place`]; it ends when this is dropped.
    async fn counting_turn(&self) -> Result<OwnedSemaphorePermit, Problem> {
        match timeout(TURN_TIMEOUT, self.previews.clone().acquire_owned()).await {
            Ok(turn) => Ok(turn.expect("it is never closed")),
            Err(_) => {
                let seconds = TURN_TIMEOUT.as_secs();
                let detail =
                    format!("one audience is counted at a time, and its turn did not come within {seconds} seconds");
                Err(Problem::new(Kind::Overloaded, detail).limit(seconds))
            }
        }
    }
}

/// Runs `work` for a request on a thread that may block. A panic there is the request's.
///
/// # Cancel safety
/// Dropped, `work` goes on to its end.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    spawn_blocking(|| panics::part_of(Work::Request, work)).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => resume_unwind(panic),
        Err(_) => stopping(),
    })
}

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
