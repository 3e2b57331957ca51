//! What clients connect to: listeners, edge, hub, and the store beneath. In a cluster each server has it, also while another
//! one leads; the rest of a [`Server`](crate::Server) is started on it when it leads.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use parking_lot::Mutex;
use tidings_api::ApiKeys;
use tidings_audit::Audit;
use tidings_config::{Config, Problem, PushSection};
use tidings_edge::{Alone, Edge, Others, Ports, Publisher};
use tidings_hub::{Changes, Hub, LOOK_COUNT_MAX};
use tidings_protocol::token::TokenVerifier;
use tidings_sender::Topics;
use tidings_store::Store;
use tidings_telemetry::trace::Tracer;
use tidings_telemetry::{Registry, unix_now};
use tidings_types::{AppId, Locale, TopicName};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{error, info, warn};

use crate::error::ServeError;
use crate::histories::{self, StoredHistories};
use crate::hooks::Hooks;
use crate::journal::{Devices, Journal, Sink};
use crate::link::Link;
use crate::listeners::{Listeners, Routes};
use crate::memory::memory_sum;
use crate::metrics::influx::Influxing;
use crate::settings::{changes_config, edge_config, hub_config, loop_count, session_config};
use crate::text_watch::TextWatch;
use crate::texts::{Loader, Texts};
use crate::tokens::Tokens;
use crate::traces::Tracing;
use crate::webhook::Presence;
use crate::{auditing, connections, data_folder, keys, metrics};

/// Names of a list that are logged at the start.
const NAMED_COUNT_MAX: usize = 20;
/// How long the store may take to write what waits. What it does not write in this time was not acknowledged, or is in
/// its log.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Forgotten receipts are logged at most this often.
const FORGOTTEN_LOG_INTERVAL: Duration = Duration::from_secs(10);
/// How long webhook reports in flight may take. A slow receiver gets the report again later, and delays nobody.
pub(super) const TELL_TIMEOUT: Duration = Duration::from_secs(2);

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

/// What there is before the store.
pub(super) struct Prepared {
    pub(super) config: Config,
    /// What is wrong with the topics that the configuration lacks.
    faults: Vec<Problem>,
    pub(super) load: Loader,
    pub(super) registry: Registry,
    pub(super) keys: ApiKeys,
    api_key: Option<String>,
}

impl Prepared {
    /// Makes the data folder private, and the API key if none is configured.
    pub(super) fn new(config: Config, faults: Vec<Problem>, load: Loader) -> Result<Self, ServeError> {
        let registry = Registry::new();
        tidings_telemetry::process::register(&registry);
        tidings_telemetry::panics::register(&registry);
        crate::log::register(&registry);
        data_folder::secure_and_say(&config.data_dir)?;
        let (keys, api_key) = keys::keys(&config)?;
        Ok(Self { config, faults, load, registry, keys, api_key })
    }
}

/// What is there before the frontend.
pub(super) struct Opened {
    pub(super) store: Store,
    /// What the store tells.
    pub(super) sink: Arc<Sink>,
    /// The listeners, if they are open already.
    pub(super) listeners: Option<Listeners>,
    /// To the other servers; `None`: this one is alone.
    pub(super) link: Option<Arc<dyn Link>>,
}

/// What clients connect to, started.
pub struct Frontend {
    pub(super) config: Config,
    pub(super) load: Loader,
    pub(super) registry: Registry,
    pub(super) keys: ApiKeys,
    api_key: Option<String>,
    /// To the other servers; `None`: this one is alone.
    link: Option<Arc<dyn Link>>,
    /// Unique, new at each start.
    pub(super) uid: String,
    pub(super) audit: Option<Audit>,
    tracing: Option<Tracing>,
    pub(super) texts: Arc<Texts>,
    pub(super) store: Store,
    pub(super) hub: Arc<Hub>,
    tokens: Option<Tokens>,
    hooks: Arc<Hooks>,
    presence: Option<Presence>,
    pub(super) edge: Arc<Edge>,
    listeners: Option<Listeners>,
    /// The configuration that was read last and was right, if it was read again.
    renewed: Mutex<Option<Config>>,
    /// Of a server of a cluster: what it answers with while it leads.
    pub(super) leading: watch::Sender<Option<Routes>>,
    influx: Option<Influxing>,
    /// Tasks that run until they are aborted.
    background: JoinSet<()>,
    /// Those that hear and tell the other servers.
    pub(super) linked: JoinSet<()>,
}

impl Frontend {
    /// Starts it on an open store.
    ///
    /// # Cancel safety
    /// Dropped: the parts that had started are dropped.
    pub(super) async fn start(prepared: Prepared, opened: Opened) -> Result<Self, ServeError> {
        let Opened { store, sink, listeners, link } = opened;
        let Prepared { config, faults, load, registry, keys, api_key } = prepared;
        let audit = auditing::start(&config, &registry).map_err(ServeError::Thread)?;
        let uid = link.as_ref().map_or_else(|| uuid::Uuid::new_v4().to_string(), |link| link.name());
        let tracing = Tracing::start(&config, &uid, &registry)?;
        let tracer = tracing.as_ref().map(Tracing::tracer);
        let text_watch = TextWatch::new(&config);
        let (texts, right) = Texts::start(&config, &faults, &registry);
        let texts = Arc::new(texts);
        introduce(&config, &texts.current().get());
        if let Some(right) = right {
            texts.keep(&right);
        }

        let namespaces = Arc::new(config.namespaces());
        let hub = Hub::new(hub_config(&config, namespaces.clone(), store.channel_start()), loop_count(&config));
        let histories = Arc::new(StoredHistories::new(store.clone()));
        let hub = hub.with_localizer(texts.live());
        let hub = hub.with_histories(histories, config.store.history_cache_bytes.as_usize());
        let hub = hub.with_changes(changes_config(&config).map(|config| Arc::new(Changes::new(&config))));
        let hub = Arc::new(match &link {
            Some(link) => hub.with_relay(link.relay()),
            None => hub,
        });
        hub.set_home(link.is_none());
        histories::restore(&store, &hub, &namespaces)?;
        sink.follow(hub.clone());
        tracer.iter().for_each(|tracer| sink.trace_with(tracer.clone()));

        let memory = memory_sum(&config);
        let sources = metrics::Sources { data_dir: &config.data_dir, memory: &memory, store: &store, hub: &hub };
        metrics::register(&registry, &sources);
        let presence = Presence::start(&config.webhook, hub.changes(), &registry).map_err(ServeError::Webhook)?;
        let tokens = Tokens::start(&config.client, &registry).await?;
        let hooks = Arc::new(Hooks::start(&config, tracer.as_ref(), &registry)?);
        let session = Arc::new(session_config(&config, tokens.as_ref().map(Tokens::verifier)));
        let leading = watch::channel(None).0;
        let journal = Journal::new(store.clone(), namespaces);
        let devices = Arc::new(Devices::new(store.clone(), link.clone()));
        let (publisher, others): (Arc<dyn Publisher>, Arc<dyn Others>) = match link.clone() {
            Some(link) => (link.publisher(Arc::new(journal), hub.clone(), leading.subscribe()), link),
            None => (Arc::new(journal), Arc::new(Alone)),
        };
        let ports = Ports { publisher, devices, hooks: hooks.clone(), others };
        let edge_config = edge_config(&config, &uid);
        let edge = Edge::start(edge_config, session, hub.clone(), ports, &registry);
        let edge = Arc::new(edge.map_err(ServeError::Thread)?);
        sink.revoke_at(&edge);

        let mut background = JoinSet::new();
        background.spawn(sweep(hub.clone()));
        if let Some(watch) = text_watch {
            background.spawn(watch.run(texts.clone(), load.clone(), audit.clone()));
        }
        if let Some(audit) = audit.clone() {
            background.spawn(auditing::sum_up(audit));
        }
        let influx = Influxing::start(&config.influx, &registry);
        Ok(Self {
            link,
            config,
            load,
            registry,
            keys,
            api_key,
            uid,
            audit,
            tracing,
            texts,
            store,
            hub,
            tokens,
            hooks,
            presence,
            edge,
            listeners,
            renewed: Mutex::default(),
            leading,
            influx,
            background,
            linked: JoinSet::new(),
        })
    }

    /// Listens from now on, if nothing listens yet.
    pub(super) fn listen(&mut self) -> Result<&mut Listeners, ServeError> {
        match &mut self.listeners {
            Some(listeners) => Ok(listeners),
            none => Ok(none.insert(Listeners::open(&self.config, &self.registry)?)),
        }
    }

    /// The listeners answer with these routes, and requests that wait for a leader, too: this server leads.
    pub(super) fn answer_leading(&mut self, routes: Routes) -> Result<(), ServeError> {
        if self.link.is_some() {
            self.leading.send_replace(Some(routes.clone()));
        }
        self.listen()?.answer_with(routes);
        Ok(())
    }

    /// Where clients connect.
    pub(super) fn connections(&self) -> Router {
        connections::router(self.edge.clone(), &self.config, &self.registry)
    }

    /// `/health`.
    pub(super) fn health(&self) -> Router {
        let texts = self.texts.clone();
        tidings_api::health_router(move || if texts.is_faulty() { vec!["texts"] } else { Vec::new() })
    }

    /// To the other servers; `None`: this one is alone.
    pub(super) fn link(&self) -> Option<&Arc<dyn Link>> {
        self.link.as_ref()
    }

    /// Records that the server has started.
    pub(super) fn say_started(&self) {
        auditing::of_system(self.audit.as_ref(), "server.start", true);
    }

    /// The hub of this server is the home of the channels in memory from now on.
    pub(super) fn take_over(&self) {
        if self.link.is_some() {
            self.hub.take_over();
            self.hub.receipts().end_reports();
        }
    }

    pub(super) fn tracer(&self) -> Option<Tracer> {
        self.tracing.as_ref().map(Tracing::tracer)
    }

    /// Checks the tokens of clients and apps.
    pub(super) fn verifier(&self) -> Option<TokenVerifier> {
        self.tokens.as_ref().map(Tokens::verifier)
    }

    /// The API key that was made because none is configured.
    pub(super) fn api_key(&self) -> Option<&str> {
        self.api_key.as_deref()
    }

    /// See [`Server::reload`](crate::Server::reload): what the frontend has of it. Returns the configuration, if it is right.
    pub fn reload(&self) -> Option<Config> {
        let config = self.texts.reload(&self.load);
        auditing::of_system(self.audit.as_ref(), "config.reload", config.is_some());
        let config = config?;
        if let Some(listeners) = &self.listeners {
            listeners.reload(&config.http.tls);
        }
        match &self.tokens {
            Some(tokens) => tokens.reload(&config.client),
            None if config.client.token.has_keys() => error!("`client.token` has keys now, they hold after a restart"),
            None => {}
        }
        self.hooks.reload(&config);
        if let Some(presence) = &self.presence {
            presence.reload(&config.webhook);
        }
        *self.renewed.lock() = Some(config.clone());
        Some(config)
    }

    /// What sends pushes and reports, started from now on, has the configuration that was read last.
    pub(super) fn renew(&mut self) {
        if let Some(Config { apns, fcm, web_push, webhook, .. }) = self.renewed.get_mut().take() {
            let config = &mut self.config;
            (config.apns, config.fcm, config.web_push, config.webhook) = (apns, fcm, web_push, webhook);
        }
    }

    /// Takes nothing more: clients are told to connect elsewhere, at once, even while requests are in work.
    pub(super) async fn close_doors(&mut self) {
        self.leading.send_replace(None); // The routes hold the edge, which holds this.
        let deadline = Instant::now() + self.config.client.shutdown_timeout;
        let listeners = self.listeners.take();
        listeners.iter().for_each(|listeners| listeners.begin_to_stop(deadline));
        let stopped = async {
            if let Some(listeners) = listeners {
                listeners.stopped().await;
            }
        };
        tokio::join!(self.edge.shutdown(), stopped);
    }

    /// Stops a server that does not lead.
    ///
    /// # Cancel safety
    /// As [`Server::stop`](crate::Server::stop).
    pub async fn stop(mut self) {
        self.close_doors().await;
        self.end_tasks().await;
        self.end().await;
    }

    /// Ends the tasks beside, and tells your back end who is left.
    pub(super) async fn end_tasks(&mut self) {
        self.background.shutdown().await;
        if let Some(presence) = self.presence.take() {
            presence.stop(Instant::now() + TELL_TIMEOUT).await;
        }
    }

    /// Closes the store and what tells of the server, last of all.
    pub(super) async fn end(mut self) {
        self.linked.shutdown().await;
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

/// Removes expired state of the hub, once a second.
async fn sweep(hub: Arc<Hub>) {
    let mut interval = tokio::time::interval(Duration::from_secs(1));
    let (mut told, mut told_at) = (0, None);
    loop {
        let now = interval.tick().await;
        while hub.sweep(unix_now()) == LOOK_COUNT_MAX {
            tokio::task::yield_now().await;
        }
        let forgotten = hub.receipts().dropped_count();
        if forgotten > told && told_at.is_none_or(|at| now >= at + FORGOTTEN_LOG_INTERVAL) {
            let count = forgotten - told;
            warn!(
                count,
                "Receipts of events were forgotten for lack of memory, and who waits for them is pushed: raise edge.receipt_bytes_max"
            );
            (told, told_at) = (forgotten, Some(now));
        }
    }
}
