//! This server in a cluster. It follows the leader and serves clients, until it leads. Then the rest of the server is started.
//!
//! ```text
//!  connect ──► join (503) ──► Frontend: clients; the rest is passed on ──► lead: Server ──┐
//!                 ▲                                 ▲                                       │
//!                 │                                 └── hand over: an operator wants that ──┤
//!                 └── stop, give the lease back: the log or the lease is another node's ────┘
//! ```

mod answers;
mod copying;
mod leading;
mod link;
pub(crate) mod memory;
mod metrics;
mod pass;
mod peers;
mod publisher;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use parking_lot::Mutex;
use tidings_api::{Leader, Standby, StandbyStatus};
pub use tidings_cluster::Resignation;
use tidings_cluster::{Cluster, ClusterConfig, Standing, boot_time};
use tidings_config::{Cluster as Section, Config, Problem, read_file};
use tidings_sender::Tenure;
use tidings_store::{Role, Store};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info};

use crate::Server;
use crate::error::ServeError;
use crate::frontend::{Frontend, Opened, Prepared};
use crate::journal::Sink;
use crate::listeners::{Listeners, Routes};
use crate::outgoing::{OutgoingError, roots};
use crate::settings::{node_name, store_config};
use crate::texts::Loader;

use self::copying::CopyState;
use self::leading::Peers;
use self::pass::{HAND_OVER_MAX, Leading, Pass, Side};
use self::peers::PeerLink;

/// What clients are told by a server that cannot serve them now.
const APART: &str = "this server of the cluster does not reach the one that leads: connect to another one, or later";

/// This server as a node of its cluster.
pub struct Node {
    cluster: Cluster,
    tenure: watch::Receiver<Duration>,
    /// To the other servers, from the first [`Node::join`] on.
    link: Option<PeerLink>,
    /// How the copy of the leader's channels in memory is.
    copied: watch::Receiver<CopyState>,
}

impl Node {
    /// Connects to NATS. The configuration must name a cluster.
    ///
    /// # Errors
    /// When a file cannot be read, or NATS refuses this server.
    ///
    /// # Cancel safety
    /// Dropped: nothing has happened, except that streams may be made.
    pub async fn connect(config: &Config) -> Result<Self, ServeError> {
        let cluster = Cluster::connect(cluster_config(&config.cluster)?).await?;
        let tenure = cluster.tenure();
        Ok(Self { cluster, tenure, link: None, copied: watch::channel(CopyState::Apart).1 })
    }

    /// Joins the cluster, and serves clients. What only the leader does is passed on to it.
    ///
    /// # Errors
    /// When a listener or the store cannot be opened, or the log's stream has other settings.
    ///
    /// # Cancel safety
    /// Dropped: the store closes in the background.
    pub async fn join(&mut self, config: Config, faults: Vec<Problem>, load: Loader) -> Result<Frontend, ServeError> {
        let prepared = Prepared::new(config, faults, load)?;
        let (opened, told) = watch::channel(None);
        metrics::register(&prepared.registry, &self.cluster.standing(), &told);
        let mut listeners = Listeners::open(&prepared.config, &prepared.registry)?;
        listeners.answer_with(joining(&prepared, self.cluster.standing()));
        let sink = Arc::new(Sink::default());
        sink.await_hub(); // Before the store says where channels begin.
        let store = self.cluster.join(store_config(&prepared.config), sink.clone()).await?;
        opened.send_replace(Some(store.clone()));
        let (peers, others) = (self.cluster.peers(), self.cluster.others());
        let (link, waiting) = PeerLink::new(peers, others, self.cluster.standing(), self.cluster.secret());
        let (port, listeners) = (Arc::new(link.clone()), Some(listeners));
        let mut frontend = Frontend::start(prepared, Opened { store, sink, listeners, link: Some(port) }).await?;
        self.link = Some(link.clone());
        self.copied = frontend.hear(Peers { link, waiting, is_whole: self.cluster.is_whole() }).await?;
        let routes = self.following(&frontend);
        frontend.answer_following(routes)?;
        frontend.say_started();
        info!("This server follows the log of its cluster, and serves clients");
        Ok(frontend)
    }

    /// Waits until this node leads. `None`: another one has begun the cluster, and this one has to [join](Self::join) anew.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leads(&self, frontend: &Frontend) -> Option<Tenure> {
        let leads = self.cluster.leads(&frontend.store).await;
        leads.then(|| Tenure { until: self.tenure.clone(), clock: boot_time })
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

    /// Lets another node lead: the one of this name, or whoever comes first. While it `goes_on`, this server serves clients all the
    /// time; else it is about to stop. Requests to the API wait for the next leader. Returns when another node leads, or does not within a
    /// few seconds.
    ///
    /// `None`: the server is stopped and has left the cluster. Nobody else can lead, or the lease is lost already, or NATS does not answer.
    ///
    /// # Errors
    /// When the listeners cannot be opened; they are open already.
    ///
    /// # Cancel safety
    /// Not cancel safe: what still runs is cut off, as by a crash.
    pub async fn hand_over(
        &mut self,
        mut server: Server,
        to: Option<String>,
        goes_on: bool,
    ) -> Result<Option<Frontend>, ServeError> {
        let (is_heard, lost) = (self.cluster.standing().borrow().is_heard, self.cluster.lost(server.store()));
        if !is_heard || !self.cluster.others().can_lead() {
            server.stop().await;
            self.leave(to).await;
            return Ok(None);
        }
        let is_lost = tokio::select! {
            () = server.end_work() => false,
            () = lost => true,
        };
        if is_lost {
            self.cluster.give_up();
            server.hurry();
            server.stop().await;
            self.leave(to).await;
            return Ok(None);
        }
        let routes = self.following(&server.frontend);
        let frontend = server.step_down(routes, self.link.clone()).await?;
        if !self.cluster.hand_over(&frontend.store, to.clone(), goes_on).await {
            self.cluster.give_up();
            frontend.stop().await;
            self.leave(to).await;
            return Ok(None);
        }
        Ok(Some(frontend))
    }

    /// What the listeners answer with while another server leads.
    fn following(&self, frontend: &Frontend) -> Routes {
        following(frontend, &self.cluster, self.copied.clone())
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
    let read = |file: &std::path::PathBuf| {
        read_file(file).map_err(|source| failed(OutgoingError::File { path: file.display().to_string(), source }))
    };
    let roots = roots(section.ca_file.as_deref()).map_err(failed)?;
    let tls = roots.client_config().map_err(|error| failed(OutgoingError::Client(error.into())))?;
    Ok(ClusterConfig {
        name: section.name.clone(),
        node: node_name(section),
        address: section.address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        may_lead: section.may_lead,
        servers: section.servers.clone(),
        tls,
        credentials: section.credentials_file.as_ref().map(read).transpose()?,
        replica_count: section.replicas as usize,
        log_bytes_max: i64::try_from(section.log_bytes_max.0).unwrap_or(i64::MAX),
    })
}

/// Who leads.
fn leader(standing: &Standing) -> Option<Leader> {
    let holder = standing.holder.as_ref();
    holder.map(|holder| Leader { node: holder.node.clone(), address: holder.address.clone() })
}

/// What the listeners answer with while there is no store yet.
fn joining(prepared: &Prepared, standing: watch::Receiver<Standing>) -> Routes {
    let now = move || Standby { status: StandbyStatus::Joining, leader: leader(&standing.borrow()) };
    let metrics = tidings_api::metrics_router(prepared.registry.clone(), prepared.keys.clone());
    let router = tidings_api::standby_router(now).merge(tidings_api::health_router(Vec::new));
    let internal = router.clone().merge(metrics);
    let is_apart = prepared.config.http.internal_listen.is_some();
    Routes { public: if is_apart { router } else { internal.clone() }, internal }
}

/// What they answer with while another server leads: clients are served, and everything else is passed on.
fn following(frontend: &Frontend, cluster: &Cluster, copied: watch::Receiver<CopyState>) -> Routes {
    let (standing, tls) = (cluster.standing(), cluster.tls());
    let role = frontend.store.role();
    let told = standing.clone();
    let now = move || {
        let status = match *role.borrow() {
            Role::Lost => StandbyStatus::Lost,
            Role::Alone | Role::Leading | Role::Following => StandbyStatus::Standby,
        };
        Standby { status, leader: leader(&told.borrow()) }
    };
    let (whole, led) = (copied.clone(), Mutex::new(Instant::now()));
    let ready = move || {
        let (standby, mut led) = (now(), led.lock());
        if standby.leader.is_some() {
            *led = Instant::now();
        }
        // When the lead is moved, nobody leads for a moment, and clients stay.
        let is_ready = led.elapsed() < HAND_OVER_MAX && *whole.borrow() == CopyState::Whole;
        (standby, is_ready)
    };
    let clients = frontend.connections().layer(from_fn(move |request: Request, next: Next| {
        let is_open = *copied.borrow() == CopyState::Whole;
        async move { if is_open { next.run(request).await } else { tidings_api::standby_refusal(APART) } }
    }));
    let both = tidings_api::standby_ready_router(ready).merge(frontend.health());
    let (leading, is_apart) = (frontend.leading.subscribe(), frontend.config.http.internal_listen.is_some());
    let pass = |side| {
        let is_internal = is_apart && side == Side::Internal;
        let own = Leading { routes: leading.clone(), is_internal, secret: cluster.secret() };
        let node = node_name(&frontend.config.cluster);
        Arc::new(Pass::new(standing.clone(), own, side, node, tls.clone())).router()
    };
    let metrics = tidings_api::metrics_router(frontend.registry.clone(), frontend.keys.clone());
    let public = clients.merge(both.clone());
    match frontend.config.http.internal_listen {
        None => Routes { public: public.merge(metrics).merge(pass(Side::Internal)), internal: Router::new() },
        Some(_) => {
            let apps = if frontend.config.apps.enabled { pass(Side::Public) } else { Router::new() };
            Routes { public: public.merge(apps), internal: both.merge(metrics).merge(pass(Side::Internal)) }
        }
    }
}
