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

use tidings_api::{Leader, Standby, StandbyStatus};
pub use tidings_cluster::Resignation;
use tidings_cluster::{Cluster, ClusterConfig, Standing, boot_time};
use tidings_config::{Cluster as Section, Config, read_file};
use tidings_sender::Tenure;
use tidings_store::{Role, Store};
use tidings_telemetry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{error, info};

use crate::data_folder;
use crate::error::ServeError;
use crate::journal::{Led, Sink};
use crate::keys;
use crate::listener::{self, Admission};
use crate::metrics;
use crate::outgoing::{OutgoingError, roots};
use crate::tls::Tls;
use crate::{bind, listener_limits, store_config};

/// How long the requests of a standby may take when it leads.
const LISTENERS_TIMEOUT: Duration = Duration::from_millis(200);

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

    /// Follows the leader, until this node leads. Meanwhile its listeners answer that it does not.
    ///
    /// # Errors
    /// When a listener or the store cannot be opened, or the log's stream has other settings.
    ///
    /// # Cancel safety
    /// Dropped: the store closes in the background.
    pub async fn stand_by(&mut self, config: &Config) -> Result<Led, ServeError> {
        data_folder::secure_and_say(&config.data_dir)?;
        let (opened, told) = watch::channel(None);
        let listening = Listening::start(config, self.cluster.standing(), told)?;
        let sink = Arc::new(Sink::default());
        let store = self.cluster.join(store_config(config), sink.clone()).await?;
        opened.send_replace(Some(store.clone()));
        info!("This server follows the log of its cluster");
        self.cluster.leads(&store).await;
        listening.stop().await;
        let tenure = Tenure { until: self.tenure.clone(), clock: boot_time };
        Ok(Led { store, sink, tenure, standing: self.cluster.standing() })
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
    let roots = roots(section.ca_file.as_deref()).map_err(failed)?;
    let tls = roots.client_config().map_err(|error| failed(OutgoingError::Client(error.into())))?;
    Ok(ClusterConfig {
        name: section.name.clone(),
        node: section.node.clone().unwrap_or_else(machine_name),
        address: section.address.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        servers: section.servers.iter().map(server).collect(),
        tls,
        credentials: section.credentials_file.as_ref().map(read).transpose()?,
        replica_count: section.replicas as usize,
        log_bytes_max: i64::try_from(section.log_bytes_max.0).unwrap_or(i64::MAX),
    })
}

/// The machine's name up to its first dot, with `-` for what a node's name may not have.
fn machine_name() -> String {
    let system = rustix::system::uname();
    let name = system.nodename().to_string_lossy();
    let valid = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    name.split('.').next().unwrap_or_default().chars().map(valid).collect()
}

/// What a standby is, and who leads.
fn standby(standing: &Standing, role: Option<Role>) -> Standby {
    let status = match role {
        None => StandbyStatus::Joining,
        Some(Role::Lost) => StandbyStatus::Lost,
        Some(Role::Alone | Role::Leading | Role::Following) => StandbyStatus::Standby,
    };
    let leader = standing.holder.as_ref();
    let leader = leader.map(|holder| Leader { node: holder.node.clone(), address: holder.address.clone() });
    Standby { status, leader }
}

/// The listeners of a standby.
struct Listening {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Listening {
    fn start(
        config: &Config,
        standing: watch::Receiver<Standing>,
        opened: watch::Receiver<Option<Store>>,
    ) -> Result<Self, ServeError> {
        let registry = Registry::new();
        tidings_telemetry::process::register(&registry);
        crate::log::register(&registry);
        metrics::register_cluster(&registry, &standing, &opened);
        let (keys, _) = keys::keys(config)?;
        let now = move || {
            let role = opened.borrow().as_ref().map(|store| *store.role().borrow());
            standby(&standing.borrow(), role)
        };
        let router = tidings_api::standby_router(now).merge(tidings_api::health_router(Vec::new));
        let inside = router.clone().merge(tidings_api::metrics_router(registry.clone(), keys));
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let limits = listener_limits(config);
        let tls = Tls::start(&config.http.tls)?;
        let open = Admission::public(limits, &registry);
        let mut serve = |address, router: &axum::Router, admission: &Arc<Admission>, tls: Option<Arc<Tls>>| {
            let (listener, address) = bind(address)?;
            info!(%address, "A standby listens");
            tasks.spawn(listener::serve(listener, router.clone(), admission.clone(), tls, stopped.clone()));
            Ok::<_, ServeError>(())
        };
        let public = if config.http.internal_listen.is_some() { &router } else { &inside };
        match config.http.tls.listen {
            None => serve(config.http.listen, public, &open, tls)?,
            Some(secure) => {
                serve(config.http.listen, public, &open, None)?;
                serve(secure, public, &open, tls)?;
            }
        }
        if let Some(address) = config.http.internal_listen {
            serve(address, &inside, &Admission::internal(limits, &registry), None)?;
        }
        Ok(Self { stop, tasks })
    }

    async fn stop(mut self) {
        self.stop.send_replace(true);
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(LISTENERS_TIMEOUT, ended).await; // A slow peer is cut off: it gets nothing from a standby.
    }
}
