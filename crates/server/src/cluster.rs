//! This server in a cluster: it follows the leader as a standby, with nothing running but its store, until it leads. Then
//! the whole server is started on that store.
//!
//! ```text
//!  connect ──► stand by (/health, /ready 503) ──► lead: Server ──► stop, give the lease back ──┐
//!                 ▲                                                                            │
//!                 └──────── another node leads, or an operator wants that ─────────────────────┘
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use rustls::ClientConfig;
use tidings_api::{Leader, Standby, StandbyStatus};
pub use tidings_cluster::Resignation;
use tidings_cluster::lease::Holder;
use tidings_cluster::{Cluster, ClusterConfig, Standing, boot_time};
use tidings_config::{Cluster as Section, Config, Problem, read_file};
use tidings_sender::Tenure;
use tidings_store::{Role, Store};
use tokio::sync::watch;
use tracing::{error, info};

use crate::copying::CopyState;
use crate::error::ServeError;
use crate::front::{Front, Ground, Opened};
use crate::journal::Sink;
use crate::listeners::{Listeners, Routes};
use crate::metrics;
use crate::outgoing::{OutgoingError, roots};
use crate::pass::{Pass, Side};
use crate::peers::Line;
use crate::settings::{node_name, store_config};
use crate::texts::Loader;

/// What clients are told by a server that cannot serve them now.
const APART: &str = "this server of the cluster does not reach the one that leads: connect to another one, or later";

/// This server as a node of its cluster.
pub struct Node {
    cluster: Cluster,
    tenure: watch::Receiver<Duration>,
}

impl Node {
    /// Connects to NATS; `None`: the configuration names no cluster.
    ///
    /// # Errors
    /// When a file cannot be read, or NATS refuses this server.
    ///
    /// # Cancel safety
    /// Dropped: nothing has happened, except that streams may be made.
    pub async fn connect(config: &Config) -> Result<Option<Self>, ServeError> {
        if config.cluster.servers.is_empty() {
            return Ok(None);
        }
        let cluster = Cluster::connect(cluster_config(&config.cluster)?).await?;
        let tenure = cluster.tenure();
        Ok(Some(Self { cluster, tenure }))
    }

    /// Joins the cluster, and serves clients. What only the leader does is passed on to it.
    ///
    /// # Errors
    /// When a listener or the store cannot be opened, or the log's stream has other settings.
    ///
    /// # Cancel safety
    /// Dropped: the store closes in the background.
    pub async fn join(&mut self, config: Config, faults: Vec<Problem>, load: Loader) -> Result<Front, ServeError> {
        let ground = Ground::lay(config, faults, load)?;
        let (opened, told) = watch::channel(None);
        metrics::register_cluster(&ground.registry, &self.cluster.standing(), &told);
        let listeners = Listeners::open(&ground.config, &ground.registry)?;
        listeners.answer_with(joining(&ground, self.cluster.standing()));
        let sink = Arc::new(Sink::default());
        let store = self.cluster.join(store_config(&ground.config), sink.clone()).await?;
        opened.send_replace(Some(store.clone()));
        let (peers, others) = (self.cluster.peers(), self.cluster.others());
        let peers = Some(Line::new(peers, others, self.cluster.standing(), self.cluster.secret()));
        let mut front = Front::start(ground, Opened { store, sink, listeners: Some(listeners), peers }).await?;
        let tls = client_tls(&front.config.cluster)?;
        let routes = following(&front, self.cluster.standing(), tls);
        front.listen()?.answer_with(routes);
        info!("This server follows the log of its cluster, and serves clients");
        Ok(front)
    }

    /// Waits until this node leads.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leads(&self, front: &Front) -> Tenure {
        self.cluster.leads(&front.store).await;
        Tenure { until: self.tenure.clone(), clock: boot_time }
    }

    /// Waits until this node should not lead any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn resigns(&mut self, store: &Store) -> Resignation {
        let resignation = self.cluster.lead(store).await;
        match &resignation {
            Resignation::Demoted | Resignation::Deposed => {
                self.cluster.give_up(); // What waits for the log would wait for ever.
                error!("This server does not lead its cluster any more");
            }
            Resignation::Asked(to) => info!(to, "This server gives the lead away, as it is told to"),
        }
        resignation
    }

    /// Gives the lease back: to the node of this name, or to whoever comes first. The server must be stopped.
    pub async fn leave(&mut self, to: Option<String>) {
        self.cluster.leave(to).await;
    }
}

/// How to connect to the cluster that the configuration names.
///
/// # Errors
/// When a file cannot be read.
pub fn cluster_config(section: &Section) -> Result<ClusterConfig, ServeError> {
    let failed = |error| ServeError::ClusterSettings(error);
    let server = |text: &String| tidings_intake::server(text).expect("the check lets no other text pass");
    let read = |file: &std::path::PathBuf| {
        read_file(file).map_err(|source| failed(OutgoingError::File { path: file.display().to_string(), source }))
    };
    let tls = client_tls(section)?;
    Ok(ClusterConfig {
        name: section.name.clone(),
        node: node_name(section),
        address: section.address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        servers: section.servers.iter().map(server).collect(),
        tls,
        credentials: section.credentials_file.as_ref().map(read).transpose()?,
        replica_count: section.replicas as usize,
        log_bytes_max: i64::try_from(section.log_bytes_max.0).unwrap_or(i64::MAX),
    })
}

/// Whom the cluster trusts: NATS and the other servers.
fn client_tls(section: &Section) -> Result<Arc<ClientConfig>, ServeError> {
    let roots = roots(section.ca_file.as_deref()).map_err(ServeError::ClusterSettings)?;
    roots.client_config().map_err(|error| ServeError::ClusterSettings(OutgoingError::Client(error.into())))
}

/// Who leads.
fn leader(standing: &Standing) -> Option<Leader> {
    let holder = standing.holder.as_ref();
    holder.map(|holder| Leader { node: holder.node.clone(), address: holder.address.clone() })
}

/// What the listeners answer with while there is no store yet.
fn joining(ground: &Ground, standing: watch::Receiver<Standing>) -> Routes {
    let now = move || Standby { status: StandbyStatus::Joining, leader: leader(&standing.borrow()) };
    let metrics = tidings_api::metrics_router(ground.registry.clone(), ground.keys.clone());
    let router = tidings_api::standby_router(now).merge(tidings_api::health_router(Vec::new));
    let internal = router.clone().merge(metrics);
    let is_apart = ground.config.http.internal_listen.is_some();
    Routes { public: if is_apart { router } else { internal.clone() }, internal }
}

/// What they answer with while another server leads: clients are served, and everything else is passed on.
fn following(front: &Front, standing: watch::Receiver<Standing>, tls: Arc<ClientConfig>) -> Routes {
    let (role, copied) = (front.store.role(), front.copied());
    let told = standing.clone();
    let now = move || {
        let status = match *role.borrow() {
            Role::Lost => StandbyStatus::Lost,
            Role::Alone | Role::Leading | Role::Following => StandbyStatus::Standby,
        };
        Standby { status, leader: leader(&told.borrow()) }
    };
    let whole = copied.clone();
    let ready = move || {
        let standby = now();
        let is_ready = standby.leader.is_some() && *whole.borrow() == CopyState::Whole;
        (standby, is_ready)
    };
    let clients = front.connections().layer(from_fn(move |request: Request, next: Next| {
        let is_open = *copied.borrow() == CopyState::Whole;
        async move { if is_open { next.run(request).await } else { tidings_api::standby_refusal(APART) } }
    }));
    let both = tidings_api::standby_ready_router(ready).merge(front.health());
    let holder: Arc<dyn Fn() -> Option<Holder> + Send + Sync> = Arc::new(move || standing.borrow().holder.clone());
    let node = node_name(&front.config.cluster);
    let pass = |side| Arc::new(Pass::new(holder.clone(), side, node.clone(), tls.clone())).router();
    let metrics = tidings_api::metrics_router(front.registry.clone(), front.keys.clone());
    let public = clients.merge(both.clone());
    match front.config.http.internal_listen {
        None => Routes { public: public.merge(metrics).merge(pass(Side::Internal)), internal: Router::new() },
        Some(_) => {
            let apps = if front.config.apps.enabled { pass(Side::Public) } else { Router::new() };
            Routes { public: public.merge(apps), internal: both.merge(metrics).merge(pass(Side::Internal)) }
        }
    }
}
