//! A node of a cluster: its connection to NATS, its lease, its store on the log, and the copy for new nodes.
//!
//! ```text
//!  NATS, by the cluster's NAME:
//!    NAME         stream   the log                   NAME.node.<node>   each second: how a node is
//!    NAME_lease   stream   who should lead           NAME.nudge         the lease was given back: look at once
//!    NAME_copy    objects  the store, for new nodes  NAME.move          asks the leader to give the lease back
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, ConnectErrorKind, ConnectOptions, ServerAddr};
use futures_util::StreamExt as _;
use futures_util::stream::SelectAll;
use serde::{Deserialize, Serialize};
use tidings_store::backup::restore_copy;
use tidings_store::{CommitSink, LogError, OpenError, Role, Store, StoreConfig};
use tidings_telemetry::chain;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep, timeout};
use tracing::{info, warn};

use crate::copies::{Copies, CopyError};
use crate::jetstream::{JetStream, StreamConfig, StreamError, Trimmer};
use crate::lease::{Holder, Readiness};
use crate::log::Log;
use crate::register::{Order, Register, Standing, Told, keep};

/// The pause before something is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How often a node says how it is.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a leader looks whether the log should be trimmed.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);
/// What a node has not read is kept for this long after its last report.
const ABSENCE_MAX: Duration = Duration::from_mins(10);
/// How long closing the store may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long giving the lease back may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The cluster, and this node in it.
#[derive(Debug, Clone)]
pub struct ClusterConfig {
    /// The cluster's name: that of its streams, and the first part of its subjects.
    pub name: String,
    /// The node's name, which no other node has.
    pub node: String,
    /// Where the node can be reached, for people and programs that ask who leads.
    pub address: Option<String>,
    /// The version of the program.
    pub version: String,
    /// The servers of NATS.
    pub servers: Vec<ServerAddr>,
    /// The authorities that may have signed the servers' certificates.
    pub tls: Arc<rustls::ClientConfig>,
    /// The content of a credentials file (`.creds`).
    pub credentials: Option<String>,
    /// On how many NATS servers everything is.
    pub replica_count: usize,
    /// Bytes of the log. At half of it, it is trimmed.
    pub log_bytes_max: i64,
}

/// The node cannot be part of the cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The credentials cannot be read.
    #[error("the credentials of NATS cannot be read")]
    Credentials(#[source] std::io::Error),
    /// NATS refuses this node.
    #[error("NATS refuses the connection")]
    Connect(#[from] async_nats::ConnectError),
    /// A stream cannot be used.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The store cannot be opened.
    #[error("cannot open the store")]
    Store(#[from] OpenError),
    /// The copy of the store cannot be used.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// How a node is, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Where it can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// What it does.
    pub role: NodeRole,
    /// How far in the log it is.
    pub sequence: u64,
}

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRole {
    /// It has no store yet, or opens it.
    Joining,
    /// It follows the log, ready to lead.
    Standby,
    /// It leads: it does all the work.
    Leading,
    /// It cannot follow the log, and has to begin anew from a copy.
    Lost,
}

/// A node of a cluster. Dropping it ends all that it does; [`Cluster::leave`] also gives the lease back.
pub struct Cluster {
    config: ClusterConfig,
    context: Context,
    copies: Copies,
    orders: watch::Sender<Order>,
    standing: watch::Receiver<Standing>,
    tenure: watch::Receiver<Duration>,
    /// The store while there is one.
    store: Arc<Mutex<Option<Store>>>,
    /// Ends the attempts of the store's log to reach the broker.
    stopped: Arc<AtomicBool>,
    moves: mpsc::Receiver<Option<String>>,
    reports: Arc<Mutex<Vec<(NodeReport, Instant)>>>,
    #[expect(dead_code, reason = "ends with the node")]
    tasks: JoinSet<()>,
}

impl Cluster {
    /// Connects to NATS, and waits for it. Makes the streams that are not there.
    ///
    /// # Errors
    /// When NATS refuses this node, and when a stream has other settings.
    ///
    /// # Cancel safety
    /// Dropped: streams are made or not.
    pub async fn connect(config: ClusterConfig) -> Result<Self, ClusterError> {
        let client = connect(&config).await?;
        let context = jetstream::new(client.clone());
        let (register, copies) = open(&context, &config).await?;
        let store = Arc::<Mutex<Option<Store>>>::default();
        let (orders, ordered) = watch::channel(Order { readiness: Arc::new(|| Readiness::No), giving_back: None });
        let (standing_tx, standing) = watch::channel(Standing::default());
        let (tenure_tx, tenure) = watch::channel(Duration::ZERO);
        let told = Told { standing: standing_tx, tenure: tenure_tx };
        let this = Holder {
            node: config.node.clone(),
            process: rand::random(),
            address: config.address.clone(),
            sequence: 0,
            released: false,
            to: None,
        };
        let (nudged, (moved, moves)) = (Arc::<Notify>::default(), mpsc::channel(1));
        let (name, reports) = (config.name.clone(), Arc::<Mutex<Vec<_>>>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(client.clone(), config.clone(), nudged.clone(), moved, standing.clone(), reports.clone()));
        tasks.spawn(report(client.clone(), config.clone(), store.clone()));
        tasks.spawn(keep(register, this, ordered, told, nudged, async move || {
            let _ = client.publish(format!("{name}.nudge"), "".into()).await; // Without it, others look a moment later.
        }));
        let stopped = Arc::default();
        Ok(Self { config, context, copies, orders, standing, tenure, store, stopped, moves, reports, tasks })
    }

    /// What is known of the lease.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.clone()
    }

    /// Until when, by [`boot_time`](crate::boot_time), this process may do what cannot be undone, such as push. Receivers are
    /// told only when that had passed and is later now.
    pub fn tenure(&self) -> watch::Receiver<Duration> {
        self.tenure.clone()
    }

    /// Opens the store on the log. A new node waits until there is something to begin with: the log of other nodes, a copy
    /// of their store, or the lease of a cluster that has nothing yet. The store leads when this node gets the lease.
    ///
    /// # Errors
    /// When the store or a stream cannot be used.
    ///
    /// # Cancel safety
    /// Dropped: the folder has the whole store or none.
    pub async fn join(&mut self, config: StoreConfig, sink: Arc<dyn CommitSink>) -> Result<Store, ClusterError> {
        self.stopped = Arc::default();
        self.orders.send_modify(|order| order.giving_back = None);
        let store = loop {
            if let Some(store) = self.try_join(&config, &sink).await? {
                break store;
            }
            sleep(PAUSE).await;
        };
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store.clone());
        let of = store.clone();
        self.may_lead(Arc::new(move || match *of.role().borrow() {
            Role::Leading | Role::Following => Readiness::Read(of.log_position().sequence),
            Role::Alone | Role::Lost => Readiness::No,
        }));
        Ok(store)
    }

    fn may_lead(&self, readiness: Arc<dyn Fn() -> Readiness + Send + Sync>) {
        self.orders.send_modify(|order| order.readiness = readiness);
    }

    /// `None`: there is nothing to begin with yet.
    async fn try_join(
        &mut self,
        config: &StoreConfig,
        sink: &Arc<dyn CommitSink>,
    ) -> Result<Option<Store>, ClusterError> {
        let log = self.log().await?;
        if Store::is_in(&config.path)? {
            return open_store(config, log, sink).await.map(Some);
        }
        let range = self.log_range().await;
        match range {
            None => return Ok(None), // NATS does not answer.
            Some((_, 0)) => {
                // The first node makes the cluster's first store.
                self.may_lead(Arc::new(|| Readiness::Read(0)));
                if self.standing.borrow().is_held {
                    return open_store(config, log, sink).await.map(Some);
                }
                return Ok(None);
            }
            Some(_) => self.may_lead(Arc::new(|| Readiness::No)),
        }
        if let Some(copy) = self.copies.get().await? {
            info!("Copying the store of the cluster");
            let folder = config.path.clone();
            let copied = tokio::task::spawn_blocking(move || restore_copy(copy, &folder, |_| ())).await;
            copied.expect("copying does not panic").map_err(CopyError::from)?;
            return open_store(config, log, sink).await.map(Some);
        }
        // Without a copy, the log may still have all from the beginning on.
        match open_store(config, log, sink).await {
            Ok(store) => Ok(Some(store)),
            Err(ClusterError::Store(OpenError::Log(LogError::Lost(why)))) => {
                info!(why, "Waiting for the leader's copy of its store");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    async fn log(&self) -> Result<Log<JetStream>, ClusterError> {
        let ClusterConfig { name, replica_count, log_bytes_max, .. } = &self.config;
        let stream = StreamConfig { name: name.clone(), replica_count: *replica_count, bytes_max: *log_bytes_max };
        Ok(Log::new(JetStream::open(self.context.clone(), &stream, self.stopped.clone()).await?))
    }

    /// The numbers of the first and the last entry; `None`: NATS does not answer.
    async fn log_range(&self) -> Option<(u64, u64)> {
        let trimmer = Trimmer::open(&self.context, &self.config.name).await?;
        trimmer.state().await.map(|state| (state.first, state.last))
    }

    /// Tells the store to lead while this node has the lease. Returns when the store leads.
    ///
    /// # Errors
    /// [`Lost`] when it cannot.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn leads(&self, store: &Store) -> Result<(), Lost> {
        let (mut standing, mut role) = (self.standing.clone(), store.role());
        loop {
            let is_held = standing.borrow_and_update().is_held;
            match *role.borrow_and_update() {
                Role::Leading => return Ok(()),
                Role::Lost => return Err(Lost),
                Role::Alone | Role::Following => store.lead(is_held),
            }
            tokio::select! {
                changed = standing.changed() => changed.map_err(|_| Lost)?,
                changed = role.changed() => changed.map_err(|_| Lost)?,
            }
        }
    }

    /// Runs while the store leads: makes a copy and trims the log when that is due. Returns why the node should not go on:
    /// its store does not lead any more, or the lease is gone, or an operator wants another node to lead.
    ///
    /// # Cancel safety
    /// Cancel safe. A copy that is being made is thrown away.
    pub async fn lead(&mut self, store: &Store) -> Resignation {
        let (mut standing, mut role) = (self.standing.clone(), store.role());
        let (copies, context, config) = (&self.copies, &self.context, &self.config);
        tokio::select! {
            _ = role.wait_for(|role| *role != Role::Leading) => Resignation::Demoted,
            _ = standing.wait_for(|standing| !standing.is_held) => Resignation::Deposed,
            Some(to) = self.moves.recv() => Resignation::Asked(to),
            never = tend(copies, context, config, store, &self.reports) => match never {},
        }
    }

    /// Closes the store if it is open, and gives the lease back: to this node, or to whoever comes first. Waits until it is
    /// given back, but not for long.
    pub async fn leave(&mut self, to: Option<String>) {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !self.standing.borrow().is_heard {
            self.give_up();
        }
        if let Some(store) = store {
            let _ = timeout(CLOSE_TIMEOUT, store.close()).await; // It goes on closing by itself.
        }
        self.orders.send_modify(|order| {
            order.readiness = Arc::new(|| Readiness::No);
            order.giving_back = Some(to);
        });
        let mut standing = self.standing.clone();
        let _ = timeout(RELEASE_TIMEOUT, standing.wait_for(|standing| !standing.is_held)).await; // Others wait for its end.
    }

    /// The store's log tries nothing more, so that the store can be closed while NATS does not answer. What was not
    /// acknowledged is refused.
    pub fn give_up(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("node", &self.config.node).finish_non_exhaustive()
    }
}

/// The store cannot follow the log.
#[derive(Debug, thiserror::Error)]
#[error("the store cannot follow the log any more")]
pub struct Lost;

/// Why a node does not lead any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resignation {
    /// The log did not take a batch: another node writes.
    Demoted,
    /// Another node has the lease, or it could not be renewed for long.
    Deposed,
    /// An operator wants this node, or any other one, to lead.
    Asked(Option<String>),
}

impl Resignation {
    /// The node that should lead next; `None`: any.
    pub fn to(self) -> Option<String> {
        if let Self::Asked(to) = self { to } else { None }
    }
}

async fn open_store(
    config: &StoreConfig,
    log: Log<JetStream>,
    sink: &Arc<dyn CommitSink>,
) -> Result<Store, ClusterError> {
    let (config, sink) = (config.clone(), sink.clone());
    let opened = tokio::task::spawn_blocking(move || Store::join(config, Box::new(log), sink)).await;
    Ok(opened.expect("opening does not panic")?)
}

/// Waits for NATS. Says once that it waits.
async fn connect(config: &ClusterConfig) -> Result<Client, ClusterError> {
    let mut is_said = false;
    loop {
        match connect_once(config).await {
            Ok(client) => return Ok(client),
            Err(ClusterError::Connect(error)) if error.kind() != ConnectErrorKind::Authentication => {
                if !std::mem::replace(&mut is_said, true) {
                    warn!(error = chain(&error), "NATS does not answer; it is tried again");
                }
            }
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    }
}

pub(crate) async fn connect_once(config: &ClusterConfig) -> Result<Client, ClusterError> {
    let options = match &config.credentials {
        Some(text) => ConnectOptions::with_credentials(text).map_err(ClusterError::Credentials)?,
        None => ConnectOptions::new(),
    };
    let options = options.name(format!("tidings {}", config.node));
    let options = options.tls_client_config(rustls::ClientConfig::clone(&config.tls));
    Ok(options.connect(&config.servers).await?)
}

/// Opens the streams beside the log. NATS may still be choosing a leader, so a failure is tried again.
async fn open(context: &Context, config: &ClusterConfig) -> Result<(Register, Copies), ClusterError> {
    let mut is_said = false;
    loop {
        let opened = async {
            let register = Register::open(context.clone(), &config.name, config.replica_count).await;
            let copies = Copies::open(context, &config.name, config.replica_count).await?;
            Ok((register.map_err(CopyError::Broker)?, copies))
        };
        match opened.await {
            Ok(opened) => return Ok(opened),
            Err(error) if !std::mem::replace(&mut is_said, true) => {
                let error: CopyError = error;
                warn!(error = chain(&error), "The streams of the cluster cannot be used yet; they are tried again");
            }
            Err(_) => {}
        }
        sleep(PAUSE).await;
    }
}

/// Hears what other nodes and operators say.
async fn listen(
    client: Client,
    ClusterConfig { name, node, .. }: ClusterConfig,
    nudged: Arc<Notify>,
    moved: mpsc::Sender<Option<String>>,
    standing: watch::Receiver<Standing>,
    reports: Arc<Mutex<Vec<(NodeReport, Instant)>>>,
) {
    // Not to everything of this name: nobody may subscribe to the log and the lease themselves.
    let mut heard = SelectAll::new();
    for what in ["nudge", "move", "node.*"] {
        match client.subscribe(format!("{name}.{what}")).await {
            Ok(subscriber) => heard.push(subscriber),
            Err(error) => warn!(error = chain(&error), what, "Cannot listen to other nodes"),
        }
    }
    while let Some(message) = heard.next().await {
        match message.subject.as_str().strip_prefix(&name).unwrap_or_default() {
            ".nudge" => nudged.notify_one(),
            ".move" if standing.borrow().is_held => {
                let to = serde_json::from_slice::<Option<String>>(&message.payload).unwrap_or_default();
                let _ = moved.try_send(to); // Full: it gives the lead away already.
                if let Some(reply) = message.reply {
                    let _ = client.publish(reply, node.clone().into()).await; // The operator looks at what happens.
                }
            }
            subject if subject.starts_with(".node.") => {
                if let Ok(report) = serde_json::from_slice::<NodeReport>(&message.payload) {
                    note(&reports, report);
                }
            }
            _ => {}
        }
    }
}

fn note(reports: &Mutex<Vec<(NodeReport, Instant)>>, report: NodeReport) {
    let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    reports.retain(|(known, at)| known.node != report.node && at.elapsed() < ABSENCE_MAX);
    reports.push((report, Instant::now()));
}

/// Says each second how this node is.
async fn report(client: Client, config: ClusterConfig, store: Arc<Mutex<Option<Store>>>) {
    let subject = format!("{}.node.{}", config.name, config.node);
    let mut pulse = interval(REPORT_INTERVAL);
    loop {
        pulse.tick().await;
        let store = store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (role, sequence) = match &store {
            None => (NodeRole::Joining, 0),
            Some(store) => {
                let role = match *store.role().borrow() {
                    Role::Leading | Role::Alone => NodeRole::Leading,
                    Role::Following => NodeRole::Standby,
                    Role::Lost => NodeRole::Lost,
                };
                (role, store.log_position().sequence)
            }
        };
        let ClusterConfig { node, address, version, .. } = config.clone();
        let report = NodeReport { node, address, version, role, sequence };
        let payload = serde_json::to_vec(&report).unwrap_or_default();
        if client.connection_state() == async_nats::connection::State::Connected {
            let _ = client.publish(subject.clone(), payload.into()).await; // The next one follows soon.
        }
    }
}

/// Makes a copy and trims the log, when that is due.
async fn tend(
    copies: &Copies,
    context: &Context,
    config: &ClusterConfig,
    store: &Store,
    reports: &Mutex<Vec<(NodeReport, Instant)>>,
) -> std::convert::Infallible {
    let mut pulse = interval(TRIM_INTERVAL);
    loop {
        pulse.tick().await;
        let tended = async {
            let Some(trimmer) = Trimmer::open(context, &config.name).await else { return Ok(()) };
            let (copied, Some(state)) = (copies.sequence().await?, trimmer.state().await) else { return Ok(()) };
            let is_full = state.bytes > u64::try_from(config.log_bytes_max).unwrap_or(u64::MAX) / 2;
            if copied.is_some() && !is_full {
                return Ok(());
            }
            let sequence = copies.put(store.clone()).await?;
            info!(sequence, "The copy for new nodes is made");
            if is_full {
                let first = slowest(reports, sequence);
                trimmer.trim(first).await;
                info!(first, "The log is trimmed");
            }
            Ok::<_, CopyError>(())
        };
        if let Err(error) = tended.await {
            warn!(error = chain(&error), "The copy for new nodes cannot be made; it is tried again");
        }
    }
}

/// The first entry that a node may still need: the copy's, or that of a node which has read less.
fn slowest(reports: &Mutex<Vec<(NodeReport, Instant)>>, sequence: u64) -> u64 {
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    let present = reports.iter().filter(|(report, at)| at.elapsed() < ABSENCE_MAX && report.role == NodeRole::Standby);
    present.map(|(report, _)| report.sequence).fold(sequence, u64::min)
}
