//! One server for a test.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Poll;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tempfile::TempDir;
use tidings_api::{
    Api, ApiConfig, ApiKey, ApiKeys, Apps, CheckError, ClientCounts, Configured, Connections, Coverage, DeviceEvents,
    Estimate, EventCheck, FeedBody, FeedCounts, FeedError, FeedFuture, FeedReason, FeedRefusal, FeedReport, FeedState,
    FeedView, Feeds, JobView, Jobs, ListFuture, MemoryTerm, Node, OrderFuture, ProviderStatus, Readiness,
    ReadyListener, ReadyProvider, Rfc3339, Routers, Scope, System, Texts, TextsView,
};
use tidings_audit::{Audit, AuditConfig};
use tidings_hub::{Hub, HubConfig};
use tidings_jobs::DeviceTrail;
use tidings_protocol::{
    DataFormat, LiveConnection, NamespaceOptions, Namespaces, Order, OrderError, Publication, Tags, Target,
};
use tidings_store::{CommitSink, DurableChannel, QueueLimit, Store, StoreConfig, StoredPublication};
use tidings_stream::TailBounds;
use tidings_telemetry::metrics::{gateway, server};
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{
    AppId, ChannelName, DeviceNumber, Environment, Event, EventChannels, FeedName, JournalPosition, Locale, Offset,
    Provider, PushPolicy, StreamPosition, Timestamp, TopicName,
};
use tokio::sync::{MutexGuard, Notify};
use tower::ServiceExt;

/// SHA-256 of "root", "publish", "read", "devices", "metrics", "operate" and "capped".
const KEYS: [(&str, &str, &[Scope]); 7] = [
    (
        "root",
        "4813494d137e1631bba301d5acab6e7bb7aa74ce1185d456565ef51d737677b2",
        &[Scope::Publish, Scope::Read, Scope::Devices, Scope::Metrics, Scope::Operate, Scope::Backup, Scope::Audit],
    ),
    ("publish", "a5d47a4311d759db69e576d9eedd6a02fcfd9cd214129fa8492ee1e9c7343def", &[Scope::Publish]),
    ("read", "3316348dbadfb7b11c7c2ea235949419e23f9fa898ad2c198f999617912a9925", &[Scope::Read]),
    ("devices", "ade15a1287dabe92c77ad32bbfada2ba4f6593433011b090530bd2fa0d86d8a0", &[Scope::Devices]),
    ("metrics", "177a7ea3611fe6b138557deaf44941614b66c0ece1766308044c8b65c8ba2123", &[Scope::Metrics]),
    ("operate", "2c29d39181de8f853de5e48ba983a5c88612b9dbaa5ab32c7748800a0840aeb8", &[Scope::Operate]),
    ("capped", "5a194219907fbbede83523b4776c99480377fbf87850563dbd611781ee69faaa", &[Scope::Publish]),
];
/// Devices that an event of the holder of `capped` may reach.
pub(crate) const AUDIENCE_MAX: u64 = 2;

pub(crate) const BODY_BYTES_MAX: usize = 128 << 10;
pub(crate) const SUBSCRIPTION_COUNT_MAX: usize = 6;
pub(crate) const MUTE_COUNT_MAX: u32 = 8;

/// A server and what it stands on.
pub(crate) struct Server {
    pub(crate) router: Router,
    /// What alone is served where the rest is not.
    pub(crate) apps: Option<Router>,
    pub(crate) store: Store,
    pub(crate) hub: Arc<Hub>,
    pub(crate) jobs: Arc<JobList>,
    pub(crate) revoked: Arc<Revoked>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) audit: Audit,
    first: JournalPosition,
    folder: TempDir,
}

/// An answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Bytes,
    /// The same where it is text.
    pub(crate) body: String,
}

/// Polls so many times, each when there is something to poll for, and then drops what is still not ready. Where the threads
/// that it waits for are quick, it may be ready before.
pub(crate) async fn poll_and_drop(times: usize, work: impl Future) {
    let (mut work, mut polls) = (std::pin::pin!(work), 0);
    std::future::poll_fn(|context| {
        polls += 1;
        let is_ready = work.as_mut().poll(context).is_ready();
        if is_ready || polls == times { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(crate) fn detail(&self) -> String {
        self.json()["detail"].as_str().unwrap_or_default().to_owned()
    }
}

/// Hands the journal's publications to the hub, as the binary does.
#[derive(Default)]
struct ToHub {
    hub: OnceLock<Arc<Hub>>,
    gate: Arc<Gate>,
}

/// Holds up whoever has to pass: the store before it tells what was committed, or those who estimate.
type Gate = tokio::sync::Mutex<()>;

impl CommitSink for ToHub {
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        publication: &StoredPublication,
        _: &DurableChannel,
    ) {
        let StoredPublication { data, tags, time, receipt, .. } = publication.clone();
        let publication =
            Publication { offset: position.offset, data, info: None, tags: Tags::from(tags), receipt, texts: None };
        drop(self.gate.blocking_lock());
        let hub = self.hub.get().expect("nothing is published before the hub is there");
        hub.publish_durable(channel, position.offset, publication, time).unwrap();
    }

    fn on_history_removed(&self, channel: &ChannelName, until: Offset) {
        self.hub.get().expect("it is there").remove_history(channel, Some(until));
    }

    fn on_events(&self, _: JournalPosition) {}
}

/// The topic that has a bug: it panics where it is checked and where it is estimated.
pub(crate) const PANIC: &str = "panic";

/// Knows one topic, `goal`, whose text needs the parameter `team`.
struct OneTopic;

pub(crate) fn checks() -> Arc<dyn EventCheck> {
    Arc::new(OneTopic)
}

impl EventCheck for OneTopic {
    fn check(&self, event: &Event) -> Result<(), CheckError> {
        assert_ne!(event.topic.as_str(), PANIC, "as asked");
        if event.push == PushPolicy::Never {
            return Ok(());
        }
        if event.topic.as_str() != "goal" {
            return Err(CheckError::new(
                "topic",
                &format!("topic: {} is not configured, did you mean goal?", event.topic),
            ));
        }
        if !event.params.contains_key("team") {
            return Err(CheckError::new("params", "team is missing"));
        }
        Ok(())
    }
}

/// All is configured but Polish for events with the parameter `untranslated`, a moment if one has that name, topics that begin with `misspelt`, and apps
/// that begin with `other`; of these `other.on-apple` is, in production.
/// The feed `news`; its documents are lines of events, up to the word "broken".
struct OneFeed;

/// The server, with one term of memory.
struct OneServer;

impl System for OneServer {
    fn readiness(&self) -> Readiness {
        readiness()
    }

    fn memory(&self) -> Vec<MemoryTerm> {
        vec![MemoryTerm { name: "jobs", bytes: 1 << 20, is_peak: true, settings: "sender.job_count_max" }]
    }
}

/// Texts in Polish, which can be rolled back once.
#[derive(Default)]
struct OneText(Arc<AtomicBool>);

impl Texts for OneText {
    fn view(&self) -> TextsView {
        TextsView {
            topics: 2,
            languages: vec![Locale::new("pl").unwrap()],
            coverage: vec![Coverage {
                locale: Locale::new("pl").unwrap(),
                translated: 1,
                missing: vec![TopicName::new("goal").unwrap()],
            }],
            since: Rfc3339(Timestamp(1_700_000_000_000)),
            can_roll_back: self.0.load(Ordering::Relaxed),
            faults: vec!["messages.po is not a PO file".to_owned()],
        }
    }

    fn reload(&self) -> Pin<Box<dyn Future<Output = TextsView> + Send>> {
        self.0.store(true, Ordering::Relaxed);
        let view = self.view();
        Box::pin(async move { view })
    }

    fn roll_back(&self) -> Pin<Box<dyn Future<Output = Option<TextsView>> + Send>> {
        let view = self.0.swap(false, Ordering::Relaxed).then(|| self.view());
        Box::pin(async move { view })
    }
}

fn news() -> FeedView {
    let moment = Some(Rfc3339(Timestamp(1_700_000_000_000)));
    FeedView {
        name: "news".to_owned(),
        kind: "rss",
        how: "polled",
        place: Some("https://www.example.com/news.xml".to_owned()),
        state: FeedState::Failing,
        read_at: moment,
        worked_at: moment,
        next_at: moment,
        etag: Some("\"1\"".to_owned()),
        known: 7,
        failures: 1,
        error: Some("www.example.com answered with the status 503".to_owned()),
        last: FeedCounts::default(),
        total: FeedCounts::default(),
        errors: vec![FeedError { place: "line 1".to_owned(), reason: "params.team: is missing".to_owned() }],
    }
}

impl Feeds for OneFeed {
    fn list(&self) -> Vec<FeedView> {
        vec![news()]
    }

    fn receive(&self, name: FeedName, _: HeaderMap, mut body: FeedBody) -> FeedFuture<Result<FeedReport, FeedRefusal>> {
        Box::pin(async move {
            if name.as_str() != "news" {
                return Err(FeedRefusal::Unknown(format!("no feed is called {name}")));
            }
            let mut bytes = Vec::new();
            while let Some(piece) = body.next().await {
                bytes.extend(piece.unwrap());
            }
            let text = String::from_utf8(bytes).unwrap_or_default();
            let counts = FeedCounts { sent: text.lines().count() as u64, ..FeedCounts::default() };
            match text.as_str() {
                "broken" => Err(FeedRefusal::Malformed { detail: "line 1: it is broken".to_owned(), counts }),
                "large" => Err(FeedRefusal::TooLarge(4)),
                "busy" => Err(FeedRefusal::Busy("the journal is full".to_owned())),
                _ => {
                    let reasons = vec![FeedReason { reason: "it is no goal".to_owned(), count: 1 }];
                    Ok(FeedReport { entries: counts.sent, counts, reasons, errors: news().errors })
                }
            }
        })
    }

    fn poll(&self, name: FeedName) -> FeedFuture<Result<FeedView, FeedRefusal>> {
        let is_known = name.as_str() == "news";
        Box::pin(async move { is_known.then(news).ok_or_else(|| FeedRefusal::Unknown("no such feed".to_owned())) })
    }
}

impl Configured for OneTopic {
    fn plain_moments(&self, event: &Event) -> Vec<String> {
        event.params.keys().filter(|name| *name == "plain_moment").cloned().collect()
    }

    fn unknown_value(&self, event: &Event) -> Option<(String, Vec<String>)> {
        let name = "unknown_value";
        event.params.contains_key(name).then(|| (name.to_owned(), vec!["female".to_owned(), "male".to_owned()]))
    }

    fn untranslated(&self, event: &Event) -> Vec<Locale> {
        let polish = Locale::new("pl").unwrap();
        if event.params.contains_key("untranslated") { vec![polish] } else { Vec::new() }
    }

    fn knows_topic(&self, topic: &TopicName) -> bool {
        !topic.as_str().starts_with("misspelt")
    }

    fn knows_language(&self, locale: &Locale) -> bool {
        !locale.as_str().starts_with("xq")
    }

    fn serves(&self, app: &AppId, provider: Provider, environment: Environment) -> bool {
        let is_apple = provider == Provider::Apns && environment == Environment::Production;
        !app.as_str().starts_with("other") || is_apple && app.as_str() == "other.on-apple"
    }
}

/// Jobs as the test says they stand.
#[derive(Default)]
pub(crate) struct JobList {
    jobs: Mutex<BTreeMap<JournalPosition, JobView>>,
    pub(crate) trails: Mutex<BTreeMap<(JournalPosition, DeviceNumber), DeviceTrail>>,
    /// While it is held, nothing is estimated.
    estimates: Gate,
    /// Told when an estimate begins.
    estimating: Notify,
}

impl JobList {
    pub(crate) fn set(&self, job: JobView) {
        self.jobs.lock().unwrap().insert(job.position, job);
    }

    pub(crate) async fn hold_estimates(&self) -> MutexGuard<'_, ()> {
        self.estimates.lock().await
    }

    /// Until an estimate has begun.
    pub(crate) async fn estimating(&self) {
        self.estimating.notified().await;
    }
}

impl Jobs for JobList {
    fn job(&self, position: JournalPosition) -> Option<JobView> {
        self.jobs.lock().unwrap().get(&position).cloned()
    }

    fn jobs(&self, before: Option<JournalPosition>, limit: usize) -> Vec<JobView> {
        let end = before.unwrap_or(JournalPosition(u64::MAX));
        self.jobs.lock().unwrap().range(..end).rev().take(limit).map(|(_, job)| job.clone()).collect()
    }

    /// As many devices as the event has subjects, in a minute and a half; the second pool was never measured.
    fn estimate(&self, event: &Event) -> Vec<Estimate> {
        assert_ne!(event.topic.as_str(), PANIC, "as asked");
        self.estimating.notify_one();
        drop(self.estimates.blocking_lock());
        let devices = event.subjects.len() as u64;
        let estimate = |provider, pool: &str, minutes| Estimate {
            provider,
            pool: pool.to_owned(),
            devices,
            minutes,
            limited_by: minutes.map(|_| "quota"),
        };
        vec![estimate(Provider::Apns, "main", Some(1.5)), estimate(Provider::Fcm, "new", None)]
    }

    fn trail(&self, position: JournalPosition, device: DeviceNumber) -> Option<DeviceTrail> {
        self.trails.lock().unwrap().get(&(position, device)).cloned()
    }

    fn events_of(&self, device: DeviceNumber, before: Option<JournalPosition>, limit: usize) -> DeviceEvents {
        let trails = self.trails.lock().unwrap();
        let of = trails.keys().rev().filter(|(position, of)| *of == device && before.is_none_or(|end| *position < end));
        let positions: Vec<JournalPosition> = of.map(|(position, _)| *position).take(limit).collect();
        DeviceEvents { next: positions.last().copied().filter(|_| positions.len() == limit), positions }
    }
}

/// Whose connections were to lose their proof, and whether they were to be closed; and orders about connections.
#[derive(Default)]
pub(crate) struct Revoked {
    devices: Mutex<Vec<(DeviceNumber, bool)>>,
    orders: Mutex<Vec<(Target, Order)>>,
    /// The connections that there are.
    pub(crate) live: Mutex<Vec<LiveConnection>>,
    failure: Mutex<Option<OrderError>>,
}

impl Revoked {
    pub(crate) fn take(&self) -> Vec<(DeviceNumber, bool)> {
        std::mem::take(&mut self.devices.lock().unwrap())
    }

    pub(crate) fn take_orders(&self) -> Vec<(Target, Order)> {
        std::mem::take(&mut self.orders.lock().unwrap())
    }

    /// The next order fails.
    pub(crate) fn fail(&self, error: OrderError) {
        *self.failure.lock().unwrap() = Some(error);
    }
}

impl Connections for Revoked {
    fn revoke(&self, device: DeviceNumber, close: bool) {
        self.devices.lock().unwrap().push((device, close));
    }

    fn order(&self, target: Target, order: Order) -> OrderFuture {
        self.orders.lock().unwrap().push((target, order));
        let outcome = self.failure.lock().unwrap().take().map_or(Ok(()), Err);
        Box::pin(async move { outcome })
    }

    fn list(&self, target: Target) -> ListFuture {
        let found = self.live.lock().unwrap().iter().filter(|found| found.user == target.user).cloned().collect();
        let outcome = self.failure.lock().unwrap().take().map_or(Ok(found), Err);
        Box::pin(async move { outcome })
    }
}

/// A server with one listener, and one provider out of reach.
fn readiness() -> Readiness {
    let listener = ReadyListener { name: "public", address: ([127, 0, 0, 1], 8000).into() };
    let (status, since) = (ProviderStatus::BreakerOpen, Rfc3339(Timestamp(1_700_000_000_000)));
    let provider = ReadyProvider { provider: Provider::Apns, name: "main".to_owned(), status, since };
    Readiness { is_stopping: false, listeners: vec![listener], providers: vec![provider] }
}

/// What a gateway counts: three notifications taken, one refused, in a round trip of 20 ms; and a disk.
fn pushing(registry: &Registry) {
    for (outcome, count) in [("accepted", 3), ("rejected", 1), ("expired", 0)] {
        registry.counter(&gateway::SETTLED_TOTAL, &["apns", "main", outcome]).add(count);
    }
    registry.counter(&gateway::REJECTED_TOTAL, &["apns", "main", "BadTopic"]).inc();
    registry.counter(&gateway::CONNECTIONS_OPENED_TOTAL, &["apns", "main"]).add(5);
    registry.counter(&gateway::CONNECTIONS_CLOSED_TOTAL, &["apns", "main"]).add(3);
    registry.counter(&gateway::SETTLED_TOTAL, &["apns", "mainland", "accepted"]).inc();
    registry.counter(&gateway::SETTLED_TOTAL, &["apns", "main quarantine", "accepted"]).inc();
    for (line, waiting) in [("main", 7), ("quarantine", 9)] {
        registry.gauge(&gateway::LAKE_NOTIFICATIONS, &["apns", "main", line, "high"]).set(waiting);
    }
    registry.computed(&gateway::CREDENTIAL_EXPIRY_SECONDS, &["apns", "main"], Arc::new(|| 86_400.5));
    registry.histogram(&gateway::ROUND_TRIP_SECONDS, &["apns", "main"]).record(Duration::from_millis(20));
    registry.gauge(&server::DISK_FREE_BYTES, &[]).set(1 << 30);
    registry.gauge(&server::DISK_SIZE_BYTES, &[]).set(1 << 32);
}

fn namespaces() -> Namespaces {
    let hour = Duration::from_secs(3600);
    let kept = |history_size| NamespaceOptions { history_size, history_ttl: hour, ..NamespaceOptions::closed() };
    let named = [
        ("team", NamespaceOptions { durable: true, presence: true, ..kept(10) }),
        ("match", NamespaceOptions { durable: true, ..kept(2) }),
        ("live", NamespaceOptions { presence: true, ..kept(3) }),
        ("chat", NamespaceOptions::closed()),
        ("objects", NamespaceOptions { data_format: DataFormat::JsonObject, ..NamespaceOptions::closed() }),
    ];
    let named: BTreeMap<_, _> = named.into_iter().map(|(name, options)| (name.to_owned(), options)).collect();
    Namespaces::new(NamespaceOptions::closed(), named)
}

pub(crate) fn keys() -> ApiKeys {
    let bytes =
        |hex: &str| std::array::from_fn(|index| u8::from_str_radix(&hex[2 * index..2 * index + 2], 16).unwrap());
    let key = |(name, hex, scopes): &(&str, &str, &[Scope])| ApiKey {
        name: (*name).to_owned(),
        sha256: bytes(hex),
        scopes: scopes.to_vec(),
        audience_max: (*name == "capped").then_some(AUDIENCE_MAX),
    };
    ApiKeys::new(KEYS.iter().map(key).collect())
}

pub(crate) fn store_config(folder: &TempDir) -> StoreConfig {
    let queue = QueueLimit { count: 4096, bytes: 16 << 20 };
    StoreConfig {
        path: folder.path().to_owned(),
        event_queue: queue,
        device_queue: queue,
        import_queue: queue,
        journal_event_count_max: 10_000,
        journal_bytes_max: 64 << 20,
        later_count_max: 100,
        id_window: Duration::from_secs(3600),
        id_window_count: 10_000,
        device_count_max: 1000,
        subscription_count_max: SUBSCRIPTION_COUNT_MAX as u32,
        channel_count_max: 1000,
        channel_ttl: Duration::from_secs(86_400),
        namespace_ttls: BTreeMap::new(),
        reopen_backoff_min: Duration::from_millis(10),
        reopen_backoff_max: Duration::from_millis(100),
        cache_bytes: 1 << 20,
        checkpoint_change_count: 100_000,
        mute_count_max: MUTE_COUNT_MAX,
        idle_max: None,
        clock: tidings_telemetry::unix_now,
    }
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(|_, _| ())
    }

    /// A server with so many devices, of which the disk has changed some.
    pub(crate) async fn damaged(folder: &Path, count: usize) -> Self {
        let open = || Self::with(|store, _| (store.path, store.device_count_max) = (folder.to_owned(), 10_000));
        let server = open();
        // What does not become small, so that much of it lies in a file and little of it in a block.
        let line = |number: usize| {
            let token: String = (0..8).map(|part| format!("{:016x}", hash(&(number, part)))).collect();
            json!({"id": format!("d-{number:05}"), "platform": "ios", "token": token, "app": "a", "locale": "sv"})
        };
        let lines: String = (0..count).map(|number| format!("{}\n", line(number))).collect();
        server.send_with("POST", "/v1/imports", &[("x-api-key", "root")], lines).await;
        server.store.close().await;
        drop(server);
        let size = |path: &PathBuf| fs::metadata(path).unwrap().len();
        let mut tables = files(folder);
        tables.retain(|path| path.parent().is_some_and(|parent| parent.ends_with("tables")));
        let largest = tables.into_iter().max_by_key(size).expect("the log was long enough to be written into files");
        let mut bytes = fs::read(&largest).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::write(&largest, bytes).unwrap();
        open()
    }

    /// A server whose bounds `change` has changed.
    pub(crate) fn with(change: impl FnOnce(&mut StoreConfig, &mut ApiConfig)) -> Self {
        Self::with_apps(None, change)
    }

    /// The same, where apps call for themselves.
    pub(crate) fn with_apps(apps: Option<Apps>, change: impl FnOnce(&mut StoreConfig, &mut ApiConfig)) -> Self {
        let folder = TempDir::new().unwrap();
        let mut store_config = store_config(&folder);
        let mut config = ApiConfig {
            body_bytes_max: BODY_BYTES_MAX,
            request_count_max: 64,
            subscription_count_max: SUBSCRIPTION_COUNT_MAX,
            mute_count_max: MUTE_COUNT_MAX as usize,
            key_rate: None,
            event_channels: EventChannels::FirstSubject,
        };
        change(&mut store_config, &mut config);
        let tail = TailBounds { frame_count_max: 64, bytes_max: 1 << 20 };
        let sink = Arc::new(ToHub::default());
        let store = Store::open(store_config, sink.clone()).unwrap();
        let durable_start = store.channel_start();
        let hub_config = HubConfig {
            namespaces: Arc::new(namespaces()),
            channel_count_max: 1100,
            tail,
            tails_bytes_max: usize::MAX,
            history_bytes_max: usize::MAX,
            durable_start,
            receipt_event_count_max: 100,
            receipt_bytes_max: 256 << 20,
        };
        let hub = Arc::new(Hub::new(hub_config, 1));
        sink.hub.set(hub.clone()).unwrap();
        let registry = Registry::new();
        pushing(&registry);
        let node = Node {
            uid: "u-1".to_owned(),
            name: "node-1".to_owned(),
            version: "1.2.3".to_owned(),
            clients: Arc::new(|| ClientCounts { connections: 5, users: 4 }),
            others: None,
        };
        let (jobs, revoked) = (Arc::new(JobList::default()), Arc::new(Revoked::default()));
        let audit = AuditConfig {
            folder: folder.path().join("audit"),
            file_bytes_max: 1 << 20,
            file_count_max: 2,
            is_logged: false,
        };
        let audit = Audit::start(audit, &registry).unwrap();
        let api = Api {
            config,
            hub: hub.clone(),
            store: store.clone(),
            keys: keys(),
            apps,
            check: Arc::new(OneTopic),
            configured: Arc::new(OneTopic),
            jobs: jobs.clone(),
            connections: revoked.clone(),
            feeds: Some(Arc::new(OneFeed)),
            texts: Arc::new(OneText::default()),
            system: Arc::new(OneServer),
            registry: registry.clone(),
            audit: Some(audit.clone()),
            tracer: None,
            node,
        };
        let Routers { servers, apps } = tidings_api::routers(api);
        let router = servers
            .merge(tidings_api::health_router(|| vec!["texts"]))
            .merge(tidings_api::ready_router(store.clone(), true, readiness))
            .merge(tidings_api::metrics_router(registry, keys()));
        let first = store.journal_end();
        Self { router, apps, store, hub, jobs, revoked, gate: sink.gate.clone(), audit, first, folder }
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sends as the holder of the key `root`.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        self.send_with(method, path, &[("x-api-key", "root"), ("content-type", "application/json")], body).await
    }

    pub(crate) async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.answer(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn answer(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let body = String::from_utf8_lossy(&bytes).into_owned();
        Answer { status: parts.status, headers: parts.headers, bytes, body }
    }

    pub(crate) async fn post(&self, path: &str, body: impl Into<Body>) -> Answer {
        self.send("POST", path, body).await
    }

    /// How many events the journal has taken.
    pub(crate) fn accepted(&self) -> u64 {
        self.store.journal_end().0 - self.first.0
    }

    /// The position of the event that was accepted as number `index`.
    pub(crate) fn position(&self, index: u64) -> u64 {
        self.first.0 + index
    }

    /// The publications of a durable channel, from the store's own rows.
    pub(crate) fn published(&self, channel: &str) -> Vec<String> {
        let kept = self.store.history(&ChannelName::new(channel).unwrap(), unix_now()).unwrap();
        kept.into_iter().map(|(_, it)| it.data.as_str().to_owned()).collect()
    }
}

/// Compares with every difference told at once, each under its case's name. Fails also if there was no case.
#[derive(Default)]
pub(crate) struct Cases {
    count: AtomicUsize,
    wrong: Mutex<Vec<String>>,
}

impl Cases {
    pub(crate) fn check<T: PartialEq + std::fmt::Debug>(&self, name: &str, found: T, expected: T) {
        self.count.fetch_add(1, Ordering::Relaxed);
        if found != expected {
            self.wrong.lock().unwrap().push(format!("{name}:\n  found    {found:?}\n  expected {expected:?}"));
        }
    }
}

impl Drop for Cases {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (count, wrong) = (*self.count.get_mut(), self.wrong.get_mut().unwrap());
        assert!(count > 0, "there was no case");
        assert!(wrong.is_empty(), "{} of {count} cases differ\n{}", wrong.len(), wrong.join("\n"));
    }
}
