//! The server: every part, wired together and stopped in order.
//!
//! ```text
//!            start ▼                                                                         stop ▲ (each step has its deadline)
//!   Frontend: store ─► hub (durable channels restored) ─► edge ─► Server: sender ─► gateways ─► webhooks ─► HTTP listeners
//! ```
//!
//! In a cluster each server has the frontend and its listeners all the time. The rest is started when it leads (`cluster`, with the
//! feature of that name).
//!
//! When another server is to lead, the rest is stopped, and the frontend goes on.
//!
//! A server that stops goes the way of the picture back. No more requests are taken, and no more documents of feeds are read. Clients are told to connect
//! elsewhere (3001). The webhooks begin no more requests. The sender hands out no more notifications, waits for the answers of
//! providers and writes its progress. Other servers are heard until then. The store is closed. Metrics are sent a last time. Work
//! that a deadline cuts off is in the journal and continues at the next start.

mod auditing;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod command_error;
mod connections;
mod console;
pub mod data_folder;
mod error;
mod feeds;
mod frontend;
mod histories;
mod hooks;
mod journal;
mod keys;
mod link;
mod listener;
mod listeners;
mod live_texts;
pub mod log;
mod memory;
mod metrics;
#[cfg(test)]
mod outcomes;
mod outgoing;
pub mod output;
mod providers;
mod report;
pub mod screen;
mod seed;
mod settings;
mod system;
mod text;
mod text_watch;
mod texts;
mod tls;
mod tokens;
mod traces;
mod webhook;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use tidings_api::{Api, Others, Publisher, Readiness};
use tidings_config::{Config, Problem};
use tidings_intake::Intake;
use tidings_sender::{Sender, Tenure};
use tidings_store::Store;
use tidings_telemetry::Registry;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::{info, warn};

use self::frontend::{Opened, Prepared, TELL_TIMEOUT};
use self::journal::Sink;
use self::listeners::Routes;
use self::providers::{Providers, Section};
use self::report::{Connections, Jobs};
use self::settings::{api_config, apps, node, sender_config, store_config};
use self::system::Oneself;
use self::texts::TextDesk;
use self::webhook::{Traces, Webhook};

pub use self::error::ServeError;
pub use self::feeds::FeedsError;
pub use self::frontend::Frontend;
pub use self::keys::KeyError;
pub use self::listener::{FILE_RESERVE, listen, raise_file_limit};
pub use self::memory::memory_sum;
pub use self::outgoing::OutgoingError;
pub use self::providers::{CredentialError, ProviderError};
pub use self::seed::SeedError;
pub use self::text::{TextError, topics, topics_and_faults};
pub use self::texts::Loader;
pub use self::tokens::TokensError;

/// How long the sender may wait for answers of providers.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The same if the answers cannot be written any more.
const HURRIED_DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Requests in work that are counted.
const REQUEST_COUNT_MAX: u32 = 1 << 20;

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

/// A running server.
pub struct Server {
    frontend: Frontend,
    sender: Arc<Sender>,
    providers: Providers,
    webhook: Option<Webhook>,
    intake: Arc<Intake>,
    addr: SocketAddr,
    tls_addr: Option<SocketAddr>,
    api_addr: SocketAddr,
    drain_timeout: Duration,
    /// Tasks that run until they are aborted.
    background: JoinSet<()>,
    /// Requests in work have a permit.
    #[cfg_attr(not(feature = "cluster"), expect(dead_code, reason = "only a server of a cluster waits for them"))]
    requests: Arc<Semaphore>,
    /// The metrics of what only one server does.
    #[expect(dead_code, reason = "the metrics end with the server")]
    registry: Registry,
}

impl Server {
    /// Starts everything. When it returns, the listeners are open.
    ///
    /// # Errors
    /// If a part cannot start. The parts that had started are dropped.
    pub async fn start(config: Config) -> Result<Self, ServeError> {
        let again = config.clone();
        Self::start_with(config, Vec::new(), Arc::new(move || Ok((again.clone(), Vec::new()))), None).await
    }

    /// As [`Server::start`], and registers the devices of a file before the listeners open. `faults`: what is wrong with the
    /// topics that [`tidings_config::load_to_serve`] has left out.
    /// `load`: reads the configuration again, when the API asks for a reload of the texts.
    ///
    /// # Errors
    /// As [`Server::start`], and if the file is wrong or the store refuses its devices.
    pub async fn start_with(
        config: Config,
        faults: Vec<Problem>,
        load: Loader,
        seed: Option<&Path>,
    ) -> Result<Self, ServeError> {
        let prepared = Prepared::new(config, faults, load)?;
        let (store, sink) = open_alone(&prepared.config).await?;
        let frontend = Frontend::start(prepared, Opened { store, sink, listeners: None, link: None }).await?;
        Self::lead(frontend, seed, None).await
    }

    /// Starts what only one server does: the API, the sender, the gateways, the feeds and the webhook. The store must take
    /// writes. `tenure`: until when a server of a cluster may push.
    ///
    /// # Errors
    /// As [`Server::start_with`].
    pub async fn lead(mut frontend: Frontend, seed: Option<&Path>, tenure: Option<Tenure>) -> Result<Self, ServeError> {
        say_what_is_paused(&frontend.store);
        frontend.take_over();
        frontend.renew();
        if let Some(path) = seed {
            let devices = seed::plant(path, &frontend.store).await?;
            info!(devices, "Registered the devices of the seed");
        }
        let registry = &frontend.registry.child();
        let Frontend { config, store, hub, texts, audit, .. } = &frontend;
        let (memory, sections) = (memory::memory_sum(config), providers::sections(config));
        metrics::register_sections(registry, &memory, &sections);
        let tracer = frontend.tracer();
        let pools = sections.iter().flat_map(|section: &Section| section.pools.clone()).collect();
        let (jobs, live) =
            (sender_config(config, tracer.clone(), tenure), (hub.receipts().clone(), hub.fan_out().clone()));
        let sender = Arc::new(Sender::start(jobs, store.clone(), texts.current(), pools, live, registry)?);
        let backlog = sender.backlog();
        auditing::restored(audit.as_ref(), backlog.events_waiting + backlog.jobs_running);
        let mut providers = Providers::default();
        for section in sections {
            let (provider, name) = (section.provider, section.name.clone());
            let started = providers.add(config, section, sender.sink(), registry);
            started.map_err(|source| ServeError::Provider { provider, name, source: Box::new(source) })?;
        }
        let (reports, traces) =
            (config.sender.report_count_max, Traces { store: store.clone(), tracer: tracer.clone() });
        let webhook =
            Webhook::start(&config.webhook, reports, sender.clone(), traces, registry).map_err(ServeError::Webhook)?;
        let door = Arc::new(text::Door::new(texts.current(), config));
        let publisher = Publisher::new(hub.clone(), store.clone(), door.clone(), config.events.channels);
        let (intake, registry) = (feeds::start(config, store, publisher, registry)?, registry.clone());

        let listeners = frontend.listen()?;
        let (addr, tls_addr, api_addr) = (listeners.addr(), listeners.tls_addr(), listeners.api_addr());
        let (pushes, stopping, named) = (providers.watch(), listeners.stopping(), listeners.named());
        let readiness = move || Readiness {
            is_stopping: stopping.borrow().is_some(),
            listeners: named.clone(),
            providers: pushes(),
        };
        let Frontend { config, store, hub, texts, edge, audit, load, keys, .. } = &frontend;
        let api = Api {
            config: api_config(config),
            hub: hub.clone(),
            store: store.clone(),
            keys: keys.clone(),
            apps: apps(config, frontend.verifier()),
            check: door.clone(),
            configured: door,
            jobs: Arc::new(Jobs(Arc::downgrade(&sender))),
            connections: Arc::new(Connections {
                edge: Arc::downgrade(edge),
                store: store.clone(),
                link: frontend.link().cloned(),
            }),
            feeds: Some(Arc::new(feeds::Feeds(intake.clone()))),
            texts: Arc::new(TextDesk { texts: texts.clone(), load: load.clone() }),
            system: Arc::new(Oneself::new(&memory, readiness.clone())),
            registry: frontend.registry.clone(),
            audit: audit.clone(),
            tracer,
            node: node(
                frontend.uid.clone(),
                config,
                edge,
                frontend.link().cloned().map(|link| link as Arc<dyn Others>),
            ),
        };
        let mut background = JoinSet::new();
        background.spawn(journal::release_later(store.clone()));
        let requests = Arc::new(Semaphore::new(REQUEST_COUNT_MAX as usize));
        let routes = counted(routes(&frontend, api, readiness, &mut background), &requests);
        frontend.answer_leading(routes)?;
        if frontend.link().is_none() {
            frontend.say_started(); // In a cluster it has started before.
        }
        Ok(Self {
            frontend,
            sender,
            providers,
            webhook,
            intake,
            addr,
            tls_addr,
            api_addr,
            drain_timeout: DRAIN_TIMEOUT,
            background,
            requests,
            registry,
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
        self.api_addr
    }

    /// The API key that was made because none is configured.
    pub fn api_key(&self) -> Option<&str> {
        self.frontend.api_key()
    }

    /// Devices, subscriptions, events.
    pub fn store(&self) -> &Store {
        &self.frontend.store
    }

    /// Jobs.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Reads the configuration again, and takes over its texts, the listener's certificate, the keys of tokens, the push
    /// credentials, and the secrets of the webhook and of hooks. The log has the result.
    pub fn reload(&self) {
        let Some(config) = &self.frontend.reload() else { return };
        self.providers.reload(config);
        if let Some(webhook) = &self.webhook {
            webhook.reload(&config.webhook);
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
        self.frontend.close_doors().await;
        self.intake.stop().await;
        self.background.shutdown().await;
        self.frontend.end_tasks().await;
        self.end_sending().await;
        drop(self.sender); // Its thread uses the store to its end.
        self.frontend.end().await;
    }

    /// Hands out no more notifications, waits for the answers of providers, and writes the progress.
    async fn end_sending(&mut self) {
        if let Some(webhook) = self.webhook.take() {
            // Before the sender's last checkpoint, so that the checkpoint has all reports that were delivered.
            webhook.stop(Instant::now() + TELL_TIMEOUT).await;
        }
        let deadline = Instant::now() + self.drain_timeout;
        self.sender.drain(deadline).await;
        std::mem::take(&mut self.providers).drain(deadline).await;
    }
}

/// The same routes. A request that has no answer yet has a permit.
fn counted(Routes { public, internal }: Routes, requests: &Arc<Semaphore>) -> Routes {
    let counted = |router: Router| {
        let requests = requests.clone();
        router.layer(from_fn(move |request: Request, next: Next| {
            let permit = requests.clone().try_acquire_owned(); // With more than can be counted, nobody waits for the others.
            async move {
                let answer = next.run(request).await;
                drop(permit);
                answer
            }
        }))
    };
    Routes { public: counted(public), internal: counted(internal) }
}

/// What the listeners of a server answer with that leads, or is alone.
fn routes(
    frontend: &Frontend,
    api: Api,
    readiness: impl Fn() -> Readiness + Clone + Send + Sync + 'static,
    background: &mut JoinSet<()>,
) -> Routes {
    let Frontend { config, registry, keys, store, .. } = frontend;
    let routers = tidings_api::routers(api);
    let console = console::start(config, keys, routers.servers.clone(), registry);
    let internal = tidings_api::metrics_router(registry.clone(), keys.clone()).merge(routers.servers);
    let internal = match &console {
        Some(console) => {
            background.spawn(console.sampling());
            internal.merge(console.router())
        }
        None => internal,
    };
    let status = tidings_api::ready_router(store.clone(), false, readiness.clone());
    let internal = internal.merge(tidings_api::ready_router(store.clone(), true, readiness));
    let public = frontend.connections().merge(frontend.health());
    match (config.http.internal_listen, frontend.link()) {
        (None, None) => Routes { public: public.merge(internal), internal: Router::new() },
        (None, Some(link)) => {
            let all = public.merge(internal);
            Routes { public: link.by_caller(all.clone(), all), internal: Router::new() }
        }
        (Some(_), link) => {
            let public = public.merge(status).merge(routers.apps.unwrap_or_default());
            let internal = internal.merge(frontend.health());
            let internal = match link {
                Some(link) => link.by_caller(public.clone(), internal),
                None => internal,
            };
            Routes { public, internal }
        }
    }
}

/// The store of a server that is alone, and its sink.
async fn open_alone(config: &Config) -> Result<(Store, Arc<Sink>), ServeError> {
    let (config, sink) = (store_config(config), Arc::new(Sink::default()));
    sink.await_hub(); // Before the store says where channels begin.
    let opened = sink.clone();
    let store = tokio::task::spawn_blocking(move || Store::open(config, opened)).await;
    Ok((store.expect("opening does not panic")?, sink))
}

/// Logs which pushes are paused. Pauses survive a restart, and a restore makes one.
fn say_what_is_paused(store: &Store) {
    let paused = store.brakes().borrow().paused.clone();
    if let Some((first, since)) = paused.first_key_value() {
        let since = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(since.0));
        warn!(count = paused.len(), first = %first, since, "Pushes are paused; `tidings jobs resume SCOPE` releases them");
    }
}
