//! The server: every part, wired together and stopped in order.
//!
//! ```text
//!            start ▼                                                          stop ▲ (each step has its deadline)
//!   store ─► hub (durable channels restored) ─► sender ─► gateways ─► webhooks ─► edge ─► HTTP listeners
//! ```
//!
//! Stopping goes the other way. No more requests are taken, and no more documents of feeds are read. Clients are told to connect elsewhere (3001). The webhooks
//! begin no more requests. The sender hands out no more notifications, waits for the answers of providers and writes
//! its progress. The store is closed. Metrics are sent a last time. Work that a deadline cuts off is in the journal and
//! continues at the next start.

mod auditing;
pub mod cluster;
pub mod command_error;
mod connections;
mod console;
pub mod data_folder;
mod error;
mod feeds;
mod hooks;
mod journal;
mod keys;
mod listener;
mod live_texts;
pub mod log;
mod metrics;
#[cfg(test)]
mod outcomes;
mod outgoing;
pub mod output;
mod providers;
mod report;
pub mod screen;
mod seed;
mod system;
mod text;
mod text_watch;
mod texts;
mod tls;
mod tokens;
mod traces;
mod webhook;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use tidings_api::{Api, ApiConfig, Apps, ClientCounts, Node, Publisher, Rate, Readiness, ReadyListener};
use tidings_audit::Audit;
use tidings_edge::{Edge, EdgeConfig};
use tidings_hub::{Changes, ChangesConfig, Hub, HubConfig};
use tidings_intake::Intake;
use tidings_protocol::token::TokenVerifier;
use tidings_protocol::{PersonalChannels, SessionConfig};

use tidings_sender::{Sender, SenderConfig, Shadow, Tenure, Topics};
use tidings_store::{QueueLimit, Store, StoreConfig};
use tidings_stream::TailBounds;
use tidings_telemetry::trace::Tracer;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{AppId, Locale, TopicName};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{error, info, warn};

use self::hooks::Hooks;
use self::journal::{Devices, Journal, Sink};
use self::listener::Admission;
use self::metrics::influx::Influxing;
use self::providers::{Providers, Section};
use self::report::{Connections, Jobs};
use self::system::Oneself;
use self::text_watch::TextWatch;
use self::texts::{TextDesk, Texts};
use self::tls::Tls;
use self::tokens::Tokens;
use self::traces::Tracing;
use self::webhook::{Presence, Traces, Webhook};
use tidings_config::{Config, Problem, PushSection};

pub use self::error::ServeError;
pub use self::feeds::FeedsError;
pub use self::journal::Led;
pub use self::keys::KeyError;
pub use self::listener::{FILE_RESERVE, listen, raise_file_limit};
pub use self::outgoing::OutgoingError;
pub use self::providers::{CredentialError, ProviderError};
pub use self::seed::SeedError;
pub use self::text::{TextError, topics, topics_and_faults};
pub use self::texts::Loader;
pub use self::tokens::TokensError;

/// Names of a list that are logged at the start.
const NAMED_COUNT_MAX: usize = 20;
/// How long a peer may take for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the sender may wait for answers of providers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if the answers cannot be written any more.
const HURRIED_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long the store may take to write what waits. What it does not write in this time was not acknowledged, or is in
/// its log.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long webhook reports in flight may take. A slow receiver gets the report again later, and delays nobody.
const TELL_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits for Ctrl-C or SIGTERM.
///
/// # Errors
/// If the system refuses to report signals.
pub fn stopped() -> std::io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

/// Logs the configured topics, apps and languages.
fn introduce(config: &Config, topics: &Topics) {
    let names = topics.names().map(TopicName::as_str);
    let languages: BTreeSet<&str> = topics.languages().map(Locale::as_str).collect();
    info!(topics = %named(names), languages = %named(languages), "Texts");
    let mut is_pushing = false;
    for PushSection { provider, name, environment, apps } in config.push_sections() {
        is_pushing = true;
        let (provider, environment) = (provider.as_str(), environment.as_str());
        info!(provider, section = name, environment, apps = %named(apps.iter().map(AppId::as_str)), "Pushing");
    }
    if !is_pushing {
        info!("Pushing nothing: no [apns.NAME], [fcm.NAME] or [web_push.NAME] is configured");
    }
}

/// The first names of a list, and how many more there are.
fn named<'n>(names: impl IntoIterator<Item = &'n str>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<&str> = names.by_ref().take(NAMED_COUNT_MAX).collect();
    match (shown.is_empty(), names.count()) {
        (true, _) => "none".to_owned(),
        (false, 0) => shown.join(", "),
        (false, more) => format!("{} and {more} more", shown.join(", ")),
    }
}

/// What `/ready` calls the listeners.
fn listeners(
    public: SocketAddr,
    secure: Option<SocketAddr>,
    internal: Option<SocketAddr>,
) -> impl Fn() -> Vec<ReadyListener> + Clone {
    move || {
        let all = [("public", Some(public)), ("tls", secure), ("internal", internal)];
        all.into_iter().filter_map(|(name, address)| Some(ReadyListener { name, address: address? })).collect()
    }
}

/// A running server.
pub struct Server {
    addr: SocketAddr,
    tls_addr: Option<SocketAddr>,
    internal_addr: Option<SocketAddr>,
    tls: Option<Arc<Tls>>,
    tokens: Option<Tokens>,
    api_key: Option<String>,
    shutdown_timeout: Duration,
    drain_timeout: Duration,
    store: Store,
    sender: Arc<Sender>,
    texts: Arc<Texts>,
    load: Loader,
    providers: Providers,
    webhook: Option<Webhook>,
    hooks: Arc<Hooks>,
    presence: Option<Presence>,
    intake: Arc<Intake>,
    edge: Arc<Edge>,
    influx: Option<Influxing>,
    audit: Option<Audit>,
    tracing: Option<Tracing>,
    stop_http: watch::Sender<bool>,
    /// The listeners; they end when they are told to.
    listening: JoinSet<()>,
    /// Tasks that run until they are aborted.
    background: JoinSet<()>,
}

impl Server {
    /// Starts everything. When it returns, the listeners are open.
    ///
    /// # Errors
    /// If a part cannot start. The parts that had started are dropped.
    pub async fn start(config: Config) -> Result<Self, ServeError> {
        let again = config.clone();
        Self::start_with(config, &[], Arc::new(move || Ok((again.clone(), Vec::new()))), None, None).await
    }

    /// As [`Server::start`], and registers the devices of a file before the listeners open. `faults`: what is wrong with the
    /// topics that [`tidings_config::load_to_serve`] has left out.
    /// `load`: reads the configuration again, when the API asks for a reload of the texts. `led`: the store of a node of a
    /// cluster; `None`: the server is alone and opens its own.
    ///
    /// # Errors
    /// As [`Server::start`], and if the file is wrong or the store refuses its devices.
    pub async fn start_with(
        config: Config,
        faults: &[Problem],
        load: Loader,
        seed: Option<&Path>,
        led: Option<Led>,
    ) -> Result<Self, ServeError> {
        let registry = Registry::new();
        tidings_telemetry::process::register(&registry);
        tidings_telemetry::panics::register(&registry);
        crate::log::register(&registry);
        data_folder::secure_and_say(&config.data_dir)?;
        let audit = auditing::start(&config, &registry).map_err(ServeError::Thread)?;
        let node_uid = uuid::Uuid::new_v4().to_string();
        let tracing = Tracing::start(&config, &node_uid, &registry)?;
        let tracer = tracing.as_ref().map(Tracing::tracer);
        let text_watch = TextWatch::new(&config);
        let (texts, right) = Texts::start(&config, faults, &registry);
        let texts = Arc::new(texts);
        introduce(&config, &texts.current().get());
        let (keys, api_key) = keys::keys(&config)?;

        let namespaces = Arc::new(config.namespaces());
        let (store, sink, tenure) = match led {
            Some(Led { store, sink, tenure, standing }) => {
                let (_, opened) = watch::channel(Some(store.clone()));
                metrics::register_cluster(&registry, &standing, &opened);
                (store, sink, Some(tenure))
            }
            None => {
                let (store, sink) = open_alone(&config).await?;
                (store, sink, None)
            }
        };
        sink.await_hub();
        if let Some(right) = right {
            texts.keep(&right); // Only now is the data folder ours.
        }
        let hub = Hub::new(hub_config(&config, namespaces.clone(), &store), loop_count(&config));
        let hub = hub.with_localizer(texts.live());
        let hub = Arc::new(hub.with_changes(changes_config(&config).map(|config| Arc::new(Changes::new(&config)))));
        journal::restore(&store, &hub, &namespaces)?;
        say_what_is_paused(&store);
        sink.follow(hub.clone());
        tracer.iter().for_each(|tracer| sink.trace_with(tracer.clone()));
        if let Some(path) = seed {
            let devices = seed::plant(path, &store).await?;
            info!(devices, "Registered the devices of the seed");
        }

        let sections = providers::sections(&config);
        let pools = sections.iter().flat_map(|section: &Section| section.pools.clone()).collect();
        let memory = tidings_config::memory_sum(&config, loop_count(&config));
        let (data_dir, memory) = (config.data_dir.as_path(), &memory);
        let sources = metrics::Sources { data_dir, memory, store: &store, hub: &hub, sections: &sections };
        metrics::register(&registry, &sources);
        let (jobs, receipts) = (sender_config(&config, tracer.clone(), tenure), hub.receipts().clone());
        let sender = Arc::new(Sender::start(jobs, store.clone(), texts.current(), pools, receipts, &registry)?);
        let backlog = sender.backlog();
        auditing::restored(audit.as_ref(), backlog.events_waiting + backlog.jobs_running);
        let mut providers = Providers::default();
        for section in sections {
            let (provider, name) = (section.provider, section.name.clone());
            let started = providers.add(&config, section, sender.sink(), &registry);
            started.map_err(|source| ServeError::Provider { provider, name, source: Box::new(source) })?;
        }
        let (reports, traces) =
            (config.sender.report_count_max, Traces { store: store.clone(), tracer: tracer.clone() });
        let webhook =
            Webhook::start(&config.webhook, reports, sender.clone(), traces, &registry).map_err(ServeError::Webhook)?;
        let presence = Presence::start(&config.webhook, hub.changes(), &registry).map_err(ServeError::Webhook)?;

        let publisher = Arc::new(Journal::new(store.clone(), namespaces.clone()));
        let tokens = Tokens::start(&config.client, &registry).await?;
        let verifier = tokens.as_ref().map(Tokens::verifier);
        let session = Arc::new(session_config(&config, verifier.clone()));
        let devices = Arc::new(Devices::new(store.clone()));
        let hooks = Arc::new(Hooks::start(&config, tracer.as_ref(), &registry)?);
        let edge_config = edge_config(&config, &node_uid);
        let edge = Edge::start(edge_config, session, hub.clone(), publisher, devices, hooks.clone(), &registry);
        let edge = Arc::new(edge.map_err(ServeError::Thread)?);
        sink.revoke_at(&edge);

        let door = Arc::new(text::Door::new(texts.current(), &config));
        let publisher = Publisher::new(hub.clone(), store.clone(), door.clone(), config.events.channels);
        let intake = feeds::start(&config, &store, publisher, &registry)?;
        let (stop_http, stopped) = watch::channel(false);
        let (listener, addr) = bind(config.http.listen)?;
        let tls = Tls::start(&config.http.tls)?;
        tls.iter().for_each(|tls| tls.register(&registry));
        let secure = config.http.tls.listen.map(bind).transpose()?;
        let own_addr = secure.as_ref().map(|(_, addr)| *addr);
        let inside = config.http.internal_listen.map(bind).transpose()?;
        let internal_addr = inside.as_ref().map(|(_, addr)| *addr);
        let listeners = listeners(addr, own_addr, internal_addr);
        let (pushes, ends) = (providers.watch(), stopped.clone());
        let readiness = move || Readiness { is_stopping: *ends.borrow(), listeners: listeners(), providers: pushes() };
        let api = Api {
            config: api_config(&config),
            hub: hub.clone(),
            store: store.clone(),
            keys: keys.clone(),
            apps: apps(&config, verifier),
            check: door.clone(),
            configured: door,
            jobs: Arc::new(Jobs(Arc::downgrade(&sender))),
            connections: Arc::new(Connections(Arc::downgrade(&edge))),
            feeds: Some(Arc::new(feeds::Feeds(intake.clone()))),
            texts: Arc::new(TextDesk { texts: texts.clone(), load: load.clone() }),
            system: Arc::new(Oneself::new(memory, readiness.clone())),
            registry: registry.clone(),
            audit: audit.clone(),
            tracer,
            node: node(node_uid, &edge),
        };
        let mut background = JoinSet::new();
        background.spawn(sweep(hub));
        background.spawn(journal::release_later(store.clone()));
        if let Some(watch) = text_watch {
            background.spawn(watch.run(texts.clone(), load.clone(), audit.clone()));
        }
        if let Some(audit) = audit.clone() {
            background.spawn(auditing::sum_up(audit));
        }
        let influx = Influxing::start(&config.influx, &registry);

        let health_of = texts.clone();
        let health = move || if health_of.is_faulty() { vec!["texts"] } else { Vec::new() };
        let public =
            connections::router(edge.clone(), &config.client).merge(tidings_api::health_router(health.clone()));
        let routers = tidings_api::routers(api);
        let console = console::start(&config, &keys, routers.servers.clone(), &registry);
        let internal = tidings_api::metrics_router(registry.clone(), keys.clone()).merge(routers.servers);
        let internal = match &console {
            Some(console) => {
                background.spawn(console.sampling());
                internal.merge(console.router())
            }
            None => internal,
        };
        let (told, status) = (readiness.clone(), tidings_api::ready_router(store.clone(), false, readiness));
        let internal = internal.merge(tidings_api::ready_router(store.clone(), true, told));
        let mut listening = JoinSet::new();
        let limits = listener_limits(&config);
        let mut serve = |listener, router, admission, tls| {
            listening.spawn(listener::serve(listener, router, admission, tls, stopped.clone()));
        };
        let public = match inside {
            None => public.merge(internal),
            Some((inside, _)) => {
                let internal = internal.merge(tidings_api::health_router(health));
                serve(inside, internal, Admission::internal(limits, &registry), None);
                public.merge(status).merge(routers.apps.unwrap_or_default())
            }
        };
        let open = Admission::public(limits, &registry);
        match secure {
            None => serve(listener, public, open, tls.clone()),
            Some((secure, _)) => {
                serve(listener, public.clone(), open.clone(), None);
                serve(secure, public, open, tls.clone());
            }
        }
        let tls_addr = own_addr.or(tls.as_ref().map(|_| addr));
        let [tls_shown, internal_shown] = [tls_addr, internal_addr].map(|addr| addr.map(tracing::field::display));
        info!(%addr, tls_addr = tls_shown, internal_addr = internal_shown, "Listening");
        auditing::of_system(audit.as_ref(), "server.start", true);
        let shutdown_timeout = config.client.shutdown_timeout;
        Ok(Self {
            addr,
            tls_addr,
            internal_addr,
            tls,
            tokens,
            api_key,
            shutdown_timeout,
            drain_timeout: DRAIN_TIMEOUT,
            store,
            sender,
            texts,
            load,
            providers,
            webhook,
            hooks,
            presence,
            intake,
            edge,
            influx,
            audit,
            tracing,
            stop_http,
            listening,
            background,
        })
    }

    /// Where clients connect.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Where clients connect with TLS; may be [`Server::addr`].
    pub fn tls_addr(&self) -> Option<SocketAddr> {
        self.tls_addr
    }

    /// Where the API is.
    pub fn api_addr(&self) -> SocketAddr {
        self.internal_addr.unwrap_or(self.addr)
    }

    /// The API key that was made because none is configured.
    pub fn api_key(&self) -> Option<&str> {
        self.api_key.as_deref()
    }

    /// Devices, subscriptions, events.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Jobs.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Reads the configuration again, and takes over its texts, the listener's certificate, the keys of tokens, the push
    /// credentials, and the secrets of the webhook and of hooks. The log has the result.
    pub fn reload(&self) {
        let config = self.texts.reload(&self.load);
        auditing::of_system(self.audit.as_ref(), "config.reload", config.is_some());
        let Some(config) = &config else { return };
        if let Some(tls) = &self.tls {
            tls.reload(&config.http.tls);
        }
        match &self.tokens {
            Some(tokens) => tokens.reload(&config.client),
            None if config.client.token.has_keys() => error!("`client.token` has keys now, they hold after a restart"),
            None => {}
        }
        self.providers.reload(config);
        if let Some(webhook) = &self.webhook {
            webhook.reload(&config.webhook);
        }
        self.hooks.reload(config);
        if let Some(presence) = &self.presence {
            presence.reload(&config.webhook);
        }
    }

    /// The store takes nothing any more, because another server leads. So stopping does not wait until it has all.
    pub fn hurry(&mut self) {
        self.drain_timeout = HURRIED_DRAIN_TIMEOUT;
    }

    /// Stops in the order of the module's header.
    ///
    /// # Cancel safety
    /// Not cancel safe: the parts that still run are cut off, as by a crash.
    pub async fn stop(mut self) {
        self.stop_http.send_replace(true);
        let deadline = Instant::now() + self.shutdown_timeout;
        // Clients are told at once, even while requests are in work.
        let edge = self.edge.clone();
        let ended = async { while self.listening.join_next().await.is_some() {} };
        let ((), ended) = tokio::join!(edge.shutdown(), timeout_at(deadline, ended));
        if ended.is_err() {
            info!("Requests did not end in time");
        }
        self.listening.shutdown().await;
        self.intake.stop().await;
        self.background.shutdown().await;
        if let Some(presence) = self.presence {
            presence.stop(Instant::now() + TELL_TIMEOUT).await;
        }
        if let Some(webhook) = self.webhook {
            // Before the sender's last checkpoint, so that the checkpoint has all reports that were delivered.
            webhook.stop(Instant::now() + TELL_TIMEOUT).await;
        }
        let deadline = Instant::now() + self.drain_timeout;
        self.sender.drain(deadline).await;
        self.providers.drain(deadline).await;
        drop(self.sender); // Its thread uses the store to its end.
        if timeout(CLOSE_TIMEOUT, self.store.close()).await.is_err() {
            let patience = CLOSE_TIMEOUT.as_secs();
            warn!(patience, "Store is not closed in time because the disk is slow, the next start takes longer");
        }
        if let Some(tracing) = self.tracing {
            tracing.stop(Instant::now() + TELL_TIMEOUT).await;
        }
        if let Some(influx) = self.influx {
            influx.stop().await; // Last, so that it sends the final values of all parts.
        }
        auditing::of_system(self.audit.as_ref(), "server.stop", true);
        if let Some(audit) = self.audit {
            audit.close(CLOSE_TIMEOUT).await;
        }
        info!("Stopped");
    }
}

/// The store of a server that is alone, and its sink.
async fn open_alone(config: &Config) -> Result<(Store, Arc<Sink>), ServeError> {
    let (config, sink) = (store_config(config), Arc::new(Sink::default()));
    sink.await_hub();
    let opened = sink.clone();
    let store = tokio::task::spawn_blocking(move || Store::open(config, opened)).await;
    Ok((store.expect("opening does not panic")?, sink))
}

/// A listening socket and its address. For port 0 the system chooses the port.
fn bind(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let bound = listener::listen(addr).and_then(|listener| listener.local_addr().map(|addr| (listener, addr)));
    bound.map_err(|source| ServeError::Listen { addr, source })
}

/// Removes expired state of the hub, once a second.
async fn sweep(hub: Arc<Hub>) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    loop {
        interval.tick().await;
        hub.sweep(unix_now());
    }
}

fn loop_count(config: &Config) -> usize {
    match config.edge.loops {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        count => count,
    }
}

fn listener_limits(config: &Config) -> listener::Limits {
    listener::Limits {
        connection_count_max: config.client.connection_count_max,
        address_count_max: config.http.address_connection_count_max,
        head_timeout: HEAD_TIMEOUT,
        stall_timeout: config.http.stall_timeout,
    }
}

/// Logs which pushes are paused. Pauses survive a restart, and a restore makes one.
fn say_what_is_paused(store: &Store) {
    let paused = store.brakes().borrow().paused.clone();
    if let Some((first, since)) = paused.first_key_value() {
        let since = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(since.0));
        warn!(count = paused.len(), first = %first, since, "Pushes are paused; `tidings jobs resume SCOPE` releases them");
    }
}

fn store_config(config: &Config) -> StoreConfig {
    let store = &config.store;
    let queue = |count, bytes: tidings_config::ByteSize| QueueLimit { count, bytes: bytes.as_usize() };
    StoreConfig {
        path: config.data_dir.join("store"),
        event_queue: queue(store.event_queue_count_max, store.event_queue_bytes_max),
        device_queue: queue(store.device_queue_count_max, store.device_queue_bytes_max),
        import_queue: queue(store.import_queue_count_max, store.import_queue_bytes_max),
        journal_event_count_max: store.journal_event_count_max,
        journal_bytes_max: store.journal_bytes_max.as_usize() as u64,
        id_window: store.id_window,
        id_window_count: store.id_window_count,
        device_count_max: store.device_count_max,
        subscription_count_max: store.subscription_count_max,
        channel_count_max: store.channel_count_max,
        channel_ttl: store.channel_ttl,
        later_count_max: store.later_count_max,
        reopen_backoff_min: store.reopen_backoff_min,
        reopen_backoff_max: store.reopen_backoff_max,
        cache_bytes: store.cache_bytes.as_usize() as u64,
        checkpoint_change_count: store.checkpoint_change_count,
        mute_count_max: store.mute_count_max,
        idle_max: Some(store.device_idle_max).filter(|idle_max| !idle_max.is_zero()),
        clock: unix_now,
    }
}

fn hub_config(config: &Config, namespaces: Arc<tidings_protocol::Namespaces>, store: &Store) -> HubConfig {
    HubConfig {
        namespaces,
        channel_count_max: config.channels.count_max,
        tail: TailBounds {
            frame_count_max: config.edge.log_count_max,
            bytes_max: config.edge.log_bytes_max.as_usize(),
        },
        durable_start: store.channel_start(),
        receipt_event_count_max: config.edge.receipt_event_count_max,
    }
}

/// `None`: nobody is told who comes and goes.
fn changes_config(config: &Config) -> Option<ChangesConfig> {
    let webhook = &config.webhook;
    webhook.presence_url.as_ref().map(|_| ChangesConfig {
        users: config.client.connection_webhook,
        delay: webhook.presence_delay,
        count_max: webhook.presence_count_max,
    })
}

fn edge_config(config: &Config, node: &str) -> EdgeConfig {
    let client = &config.client;
    EdgeConfig {
        node: node.into(),
        connection_count_max: client.connection_count_max,
        message_bytes_max: client.frame_bytes_max.as_usize(),
        turn_bytes_max: config.edge.turn_bytes_max.as_usize(),
        control_bytes_max: config.edge.control_bytes_max.as_usize(),
        reply_budget_bytes: config.edge.reply_budget_bytes.as_usize(),
        reply_bytes_max: client.reply_bytes_max.as_usize(),
        write_timeout: client.write_timeout,
        recovery_count_max: client.recovery_count_max,
        channel_creations_per_minute: client.channel_creations_per_minute,
        ping_interval: client.ping_interval,
        pong_timeout: client.pong_timeout,
        stale_timeout: client.stale_close_delay,
        close_timeout: client.close_timeout,
        allowed_origins: client.allowed_origins.clone(),
    }
}

fn session_config(config: &Config, token_verifier: Option<TokenVerifier>) -> SessionConfig {
    let client = &config.client;
    SessionConfig {
        namespaces: config.namespaces(),
        token_verifier,
        allow_anonymous: client.allow_anonymous,
        insecure: client.insecure,
        hooks: config.session_hooks(),
        channel_count_max: client.channel_count_max,
        personal_channels: personal_channels(config),
        ping_interval: client.ping_interval,
        version: format!("tidings {}", env!("CARGO_PKG_VERSION")),
    }
}

fn personal_channels(config: &Config) -> Option<PersonalChannels> {
    let personal = &config.client.subscribe_to_user_personal_channel;
    personal.enabled.then(|| PersonalChannels {
        namespace: personal.personal_channel_namespace.clone().unwrap_or_default(),
        single_connection: personal.single_connection,
    })
}

fn apps(config: &Config, verifier: Option<TokenVerifier>) -> Option<Apps> {
    let (apps, limits) = (&config.apps, &config.limits);
    apps.enabled.then(|| Apps {
        verifier,
        subjects: apps.subjects.clone(),
        allowed_origins: apps.allowed_origins.clone(),
        user_device_count_max: apps.user_device_count_max,
        rate: rate(limits.app_per_second, limits.app_burst),
        address_rate: rate(limits.address_per_second, limits.address_burst),
        address_header: apps.address_header.clone(),
    })
}

/// No rate means no limit.
fn rate(per_second: u32, burst: u32) -> Option<Rate> {
    (per_second > 0).then_some(Rate { per_second, burst })
}

fn api_config(config: &Config) -> ApiConfig {
    ApiConfig {
        body_bytes_max: config.http.body_bytes_max.as_usize(),
        request_count_max: config.http.request_count_max,
        subscription_count_max: config.store.subscription_count_max as usize,
        mute_count_max: config.store.mute_count_max as usize,
        key_rate: rate(config.limits.key_per_second, config.limits.key_burst),
        event_channels: config.events.channels,
    }
}

fn node(uid: String, edge: &Arc<Edge>) -> Node {
    let edge = Arc::downgrade(edge); // The router outlives the edge when the server stops.
    let count = |edge: Arc<Edge>| ClientCounts { connections: edge.connection_count(), users: edge.user_count() };
    Node {
        uid,
        name: "tidings".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        clients: Arc::new(move || edge.upgrade().map(count).unwrap_or_default()),
    }
}

fn sender_config(config: &Config, tracer: Option<Tracer>, tenure: Option<Tenure>) -> SenderConfig {
    let sender = &config.sender;
    SenderConfig {
        job_count_max: sender.job_count_max,
        window_device_count: sender.window_device_count,
        window_open_count_max: sender.window_open_count_max,
        checkpoint_interval: sender.checkpoint_interval,
        report_count_max: sender.report_count_max,
        gone_token_count_max: sender.gone_token_count_max,
        doubt_window: sender.doubt_window,
        why_ttl: sender.why_ttl,
        why_bytes_max: usize::try_from(sender.why_bytes_max.0).unwrap_or(usize::MAX),
        tell_finished: config.webhook.url.is_some(),
        tracer,
        tenure,
        shadow: config.shadow.enabled.then(|| Shadow {
            devices: config.shadow.devices.iter().cloned().collect(),
            percent: u8::try_from(config.shadow.percent).unwrap_or(100),
        }),
    }
}
