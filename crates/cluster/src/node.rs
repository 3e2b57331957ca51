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
use async_nats::{Client, ConnectErrorKind, ConnectOptions};
use futures_util::StreamExt as _;
use futures_util::stream::SelectAll;
use serde::{Deserialize, Serialize};
use tidings_store::backup::restore_copy;
use tidings_store::{CommitSink, LogError, LogPosition, OpenError, Role, Store, StoreConfig};
use tidings_telemetry::chain;
use tidings_types::Epoch;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};

use crate::copies::{Copies, CopyError};
use crate::entry::{Content, Entry};
use crate::jetstream::{JetStream, LogState, StreamConfig, StreamError, Trimmer};
use crate::lease::{Holder, Readiness, SILENCE, Secret};
use crate::log::Log;
use crate::peers::{Peers, WAITING_COUNT_MAX};
use crate::register::{Order, Register, Standing, Told, keep};

/// The pause before something is tried again.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a request about streams may take. One that NATS gets before it has a leader is never answered.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// How often a node says how it is.
pub(crate) const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// How often a leader looks whether the log should be trimmed.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);
/// What a node has not read is kept for this long after its last report.
const ABSENCE_MAX: Duration = Duration::from_mins(10);
/// Messages that wait for the connection to NATS; with one more, whoever sends waits.
pub(crate) const COMMAND_COUNT_MAX: usize = 256;
/// Nobody trims the log for this long after a node has said that it joins.
const JOIN_MAX: Duration = Duration::from_mins(1);
/// How long a node with the lease may do nothing, and how long it then lets others try.
const STUCK_MAX: Duration = Duration::from_secs(10);
/// A log that has at most so many entries may have none that is a record.
const EMPTY_COUNT_MAX: u64 = 100;
/// How long closing the store may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long giving the lease back may take.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(2);

/// The cluster, and this node in it. It has credentials, so it cannot be printed.
#[derive(Clone)]
pub struct ClusterConfig {
    /// The cluster's name: that of its streams, and the first part of its subjects.
    pub name: String,
    /// The node's name, which no other node has.
    pub node: String,
    /// Where the node can be reached, for people and programs that ask who leads.
    pub address: Option<String>,
    /// The version of the program.
    pub version: String,
    /// Whether the node ever takes the lease.
    pub may_lead: bool,
    /// The servers of NATS: `nats://HOST:PORT` or `tls://HOST:PORT`.
    pub servers: Vec<String>,
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

impl ClusterError {
    /// Whether trying again may help.
    fn may_pass(&self) -> bool {
        match self {
            Self::Stream(StreamError::Unreached { .. } | StreamError::NoRoom { .. }) | Self::Copy(_) => true,
            Self::Store(OpenError::Log(LogError::Unavailable(_)) | OpenError::Locked { .. }) => true,
            Self::Store(_) | Self::Stream(_) | Self::Credentials(_) | Self::Connect(_) => false,
        }
    }
}

/// How a node is, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReport {
    /// The node.
    pub node: String,
    /// Drawn at random by its process.
    pub process: u64,
    /// Where it can be reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The version of its program.
    pub version: String,
    /// What it does.
    pub role: NodeRole,
    /// How far in the log it is.
    pub sequence: u64,
    /// The epoch of its store, if it has one: nodes that follow the same log have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Whether it has all that is not in the log either.
    #[serde(default)]
    pub is_whole: bool,
    /// Whether it may lead.
    #[serde(default = "yes")]
    pub may_lead: bool,
}

/// Nodes of earlier versions, which do not say it, may lead.
const fn yes() -> bool {
    true
}

impl NodeReport {
    /// Whether it can lead at once if the leader gives the lead away.
    pub fn can_lead(&self) -> bool {
        self.may_lead && self.is_whole && self.role == NodeRole::Standby
    }
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
    /// Drawn at random.
    process: u64,
    secret: Secret,
    is_whole: Arc<AtomicBool>,
    context: Context,
    copies: Copies,
    orders: watch::Sender<Order>,
    standing: watch::Receiver<Standing>,
    tenure: watch::Receiver<Duration>,
    /// The store while there is one.
    store: Arc<Mutex<Option<Store>>>,
    /// The store was made for a new cluster, by this process.
    is_first: AtomicBool,
    /// Ends the attempts of the store's log to reach the broker.
    stopped: Arc<AtomicBool>,
    moves: mpsc::Receiver<Option<String>>,
    reports: Arc<Mutex<Vec<(NodeReport, Instant)>>>,
    #[expect(dead_code, reason = "ends with the node")]
    tasks: JoinSet<()>,
}

impl Cluster {
    /// Connects to NATS, and waits for it as long as it takes. Makes the streams that are not there.
    ///
    /// # Errors
    /// When NATS refuses this node.
    ///
    /// # Cancel safety
    /// Dropped: streams are made or not.
    pub async fn connect(config: ClusterConfig) -> Result<Self, ClusterError> {
        let client = connect(&config).await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(REQUEST_TIMEOUT);
        let (register, copies) = open(&context, &config).await?;
        let store = Arc::<Mutex<Option<Store>>>::default();
        let (orders, ordered) = watch::channel(Order { readiness: Arc::new(|| Readiness::No), giving_back: None });
        let (standing_tx, standing) = watch::channel(Standing::default());
        let (tenure_tx, tenure) = watch::channel(Duration::ZERO);
        let told = Told { standing: standing_tx, tenure: tenure_tx };
        let secret = Secret::from_random(rand::random());
        let this = Holder {
            node: config.node.clone(),
            process: rand::random::<u64>() >> 11, // JSON has no larger whole numbers.
            address: config.address.clone(),
            secret: Some(secret.clone()),
            sequence: 0,
            released: false,
            to: None,
        };
        let process = this.process;
        let (nudged, (moved, moves)) = (Arc::<Notify>::default(), mpsc::channel(1));
        let (name, reports) = (config.name.clone(), Arc::<Mutex<Vec<_>>>::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(listen(
            client.clone(),
            config.clone(),
            nudged.clone(),
            moved,
            standing.clone(),
            reports.clone(),
            process,
        ));
        let is_whole = Arc::<AtomicBool>::default();
        tasks.spawn(report(client.clone(), config.clone(), process, store.clone(), is_whole.clone()));
        tasks.spawn(keep(register, this, ordered, told, nudged, async move || {
            let _ = client.publish(format!("{name}.nudge"), "".into()).await; // Without it, others look a moment later.
        }));
        let stopped = Arc::default();
        Ok(Self {
            config,
            process,
            secret,
            is_whole,
            context,
            copies,
            orders,
            standing,
            tenure,
            store,
            is_first: AtomicBool::new(false),
            stopped,
            moves,
            reports,
            tasks,
        })
    }

    /// The way to the other nodes.
    pub fn peers(&self) -> Peers {
        Peers::new(self.context.client(), self.config.name.clone(), self.process)
    }

    /// What other nodes show this one, while it leads, to prove that they are nodes.
    pub fn secret(&self) -> Secret {
        self.secret.clone()
    }

    /// Who else was heard of late.
    pub fn others(&self) -> Others {
        Others { reports: self.reports.clone(), own: self.process }
    }

    /// Whom this node trusts: NATS and the other nodes.
    pub fn tls(&self) -> Arc<rustls::ClientConfig> {
        self.config.tls.clone()
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

    /// Whether this node has all that the leader has beside the log; its caller sets it. A node that has not does not lead while
    /// another one has.
    pub fn is_whole(&self) -> Arc<AtomicBool> {
        self.is_whole.clone()
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
        self.give_up(); // Whatever is left of the store before.
        self.is_whole.store(false, Ordering::Relaxed);
        self.is_first.store(false, Ordering::Relaxed);
        self.stopped = Arc::default();
        while self.moves.try_recv().is_ok() {} // They were about the time before.
        self.orders.send_modify(|order| order.giving_back = None);
        let (mut standing, mut is_said) = (self.standing.clone(), false);
        let store = loop {
            standing.mark_unchanged();
            match self.try_join(&config, &sink).await {
                Ok(Some(store)) => break store,
                Ok(None) => {}
                Err(error) if error.may_pass() => {
                    if !std::mem::replace(&mut is_said, true) {
                        warn!(error = chain(&error), "Cannot join the cluster yet; it is tried again");
                    }
                }
                Err(error) => return Err(error),
            }
            // Perhaps this node has the lease now, which a new cluster needs.
            let _ = timeout(PAUSE, standing.changed()).await; // Or it is time to look again.
        };
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Some(store.clone());
        let (of, reports, is_whole, others) =
            (store.clone(), self.reports.clone(), self.is_whole.clone(), self.others());
        self.lead_when(Arc::new(move || match (*of.role().borrow(), of.log_position().sequence) {
            (Role::Leading, sequence) => Readiness::Read(sequence),
            // Another node has what this one lacks, such as channels in memory.
            (Role::Following, _) if !is_whole.load(Ordering::Relaxed) && others.have_all() => Readiness::No,
            (Role::Following, sequence) if sequence >= furthest(&reports, of.channel_start().epoch) => {
                Readiness::Read(sequence)
            }
            // It has not read all yet. Or NATS has lost entries that another node has: then nobody may go on without it.
            (Role::Following | Role::Alone | Role::Lost, _) => Readiness::No,
        }));
        Ok(store)
    }

    fn lead_when(&self, readiness: Arc<dyn Fn() -> Readiness + Send + Sync>) {
        let readiness = if self.config.may_lead { readiness } else { Arc::new(|| Readiness::No) };
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
            return open_store(config, log, sink).await;
        }
        let Some(has_begun) = self.has_log_begun().await else { return Ok(None) };
        if !has_begun {
            // Whoever gets the lease makes the cluster's first store.
            self.lead_when(Arc::new(|| Readiness::Read(0)));
            if !self.standing.borrow().is_held {
                return Ok(None);
            }
            self.is_first.store(true, Ordering::Relaxed);
            return open_store(config, log, sink).await;
        }
        self.lead_when(Arc::new(|| Readiness::No));
        // Without a copy, or with one that is too old, the leader is about to make one.
        let (Some(copied), Some(state)) = (self.copies.sequence().await?, self.log_state().await) else {
            return Ok(None);
        };
        if !is_of_use(copied, &state) {
            return Ok(None);
        }
        let Some(copy) = self.copies.get().await? else { return Ok(None) };
        info!("Copying the store of the cluster");
        let folder = config.path.clone();
        let copied = tokio::task::spawn_blocking(move || restore_copy(copy, &folder, |_| ())).await;
        copied.expect("copying does not panic").map_err(CopyError::from)?;
        open_store(config, log, sink).await
    }

    /// `None`: NATS does not answer.
    async fn log_state(&self) -> Option<LogState> {
        Trimmer::open(&self.context, &self.config.name).await?.state().await
    }

    /// Whether the log has a record, so that a store has led it. `None`: NATS does not answer.
    async fn has_log_begun(&self) -> Option<bool> {
        let log = Trimmer::open(&self.context, &self.config.name).await?;
        let LogState { first, last, .. } = log.state().await?;
        if first > 1 || last > EMPTY_COUNT_MAX {
            return Some(true);
        }
        for sequence in first.max(1)..=last {
            // A node may have begun a term and ended before its first record.
            let entry = log.entry(sequence).await??;
            if !Entry::decode(&entry).is_some_and(|entry| entry.content == Content::Term) {
                return Some(true);
            }
        }
        Some(false)
    }

    async fn log(&self) -> Result<Log<JetStream>, ClusterError> {
        let ClusterConfig { name, replica_count, log_bytes_max, .. } = &self.config;
        let stream = StreamConfig { name: name.clone(), replica_count: *replica_count, bytes_max: *log_bytes_max };
        Ok(Log::new(JetStream::open(self.context.clone(), &stream, self.stopped.clone()).await?))
    }

    /// Tells the store to lead while this node has the lease. Returns when the store leads. A node that has the lease and
    /// whose store does not lead in spite of that gives it back for a while. A store that is lost may find back, so it is
    /// waited for, too.
    ///
    /// `false`: the store was made for a new cluster, and another node was first. It has nothing: close it and
    /// [join](Cluster::join) again.
    ///
    /// # Cancel safety
    /// Dropped: a lease that was given back is not taken again before the next [`Cluster::join`].
    pub async fn leads(&self, store: &Store) -> bool {
        let (mut standing, mut role) = (self.standing.clone(), store.role());
        let (mut stuck_since, mut reached) = (None, store.log_position());
        loop {
            let is_held = standing.borrow_and_update().is_held;
            match *role.borrow_and_update() {
                Role::Leading => return true,
                Role::Lost if self.has_only_begun(store) => return false,
                Role::Alone | Role::Following | Role::Lost => store.lead(is_held),
            }
            let now = store.log_position();
            if !is_held || now != std::mem::replace(&mut reached, now) {
                stuck_since = None;
            } else if stuck_since.get_or_insert_with(Instant::now).elapsed() >= STUCK_MAX {
                warn!("This node has the lease and does not get to lead; it gives the lease back for a while");
                self.relieve().await;
                self.sit_out().await;
                stuck_since = None;
            }
            tokio::select! {
                _ = standing.changed() => {}
                _ = role.changed() => {}
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Whether the store was made for a new cluster, and has nothing yet.
    fn has_only_begun(&self, store: &Store) -> bool {
        self.is_first.load(Ordering::Relaxed) && store.log_position() == LogPosition::default()
    }

    /// Gives the lease back, and lets others try.
    async fn sit_out(&self) {
        let readiness = self.orders.borrow().readiness.clone();
        self.give_back(None);
        sleep(STUCK_MAX).await;
        self.orders.send_modify(|order| (order.readiness, order.giving_back) = (readiness, None));
    }

    /// Trims a log that is nearly full to what the copy has. A full log takes no term either, so nobody could lead.
    async fn relieve(&self) {
        let Some(log) = Trimmer::open(&self.context, &self.config.name).await else { return };
        let (Ok(Some(copied)), Some(state)) = (self.copies.sequence().await, log.state().await) else { return };
        if state.bytes > state.bytes_max / 8 * 7 && is_of_use(copied, &state) {
            trim(&log, copied).await;
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
            _ = role.wait_for(|role| *role != Role::Leading) => {
                store.lead(false);
                self.give_back(None); // Its server has yet to stop, and nothing of that needs the lease.
                Resignation::Demoted
            }
            _ = standing.wait_for(|standing| !standing.is_held) => {
                self.give_back(None); // It may seem to be this node's again when NATS answers.
                Resignation::Deposed
            }
            Some(to) = self.moves.recv() => Resignation::Asked(to),
            never = tend(copies, context, config, store, &self.reports) => match never {},
        }
    }

    /// Closes the store if it is open, and gives the lease back: to the node of this name, or to whoever comes first. Waits until it is
    /// given back, but not for long.
    pub async fn leave(&mut self, to: Option<String>) {
        let store = self.store.lock().unwrap_or_else(PoisonError::into_inner).take();
        if !self.standing.borrow().is_heard {
            self.give_up();
        }
        if let Some(store) = store
            && timeout(CLOSE_TIMEOUT, store.close()).await.is_err()
        {
            self.give_up();
            let _ = timeout(CLOSE_TIMEOUT, store.close()).await; // It goes on closing by itself.
        }
        self.give_back(to);
        let mut standing = self.standing.clone();
        let _ = timeout(RELEASE_TIMEOUT, standing.wait_for(|standing| !standing.is_held)).await; // Others wait for its end.
    }

    /// Waits until the store does not lead any more, or the lease is gone.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub fn lost(&self, store: &Store) -> impl Future<Output = ()> + use<> {
        let (mut standing, mut role) = (self.standing.clone(), store.role());
        async move {
            tokio::select! {
                _ = role.wait_for(|role| *role != Role::Leading) => {}
                _ = standing.wait_for(|standing| !standing.is_held) => {}
            }
        }
    }

    /// Lets another node lead: the one of this name, or whoever comes first. The store is not closed, it follows. Nothing may be
    /// written to it any more. Returns when another node leads, or does not within five seconds; then this one may lead again,
    /// if it `goes_on`.
    ///
    /// Returns `false` if the store still leads, because NATS does not say what became of its last batch. Then the lease is still
    /// this node's, until [`Cluster::leave`].
    ///
    /// # Cancel safety
    /// Dropped: a lease that was given back is not taken again before the next [`Cluster::join`].
    pub async fn hand_over(&mut self, store: &Store, to: Option<String>, goes_on: bool) -> bool {
        store.lead(false);
        let mut role = store.role();
        if timeout(CLOSE_TIMEOUT, role.wait_for(|role| *role != Role::Leading)).await.is_err() {
            return false;
        }
        let readiness = self.orders.borrow().readiness.clone();
        self.give_back(to);
        let mut standing = self.standing.clone();
        let _ = timeout(RELEASE_TIMEOUT + SILENCE, standing.wait_for(|standing| standing.holder.is_some())).await;
        while self.moves.try_recv().is_ok() {} // They were about the time before.
        if goes_on {
            self.orders.send_modify(|order| (order.readiness, order.giving_back) = (readiness, None));
        }
        true
    }

    fn give_back(&self, to: Option<String>) {
        self.orders.send_modify(|order| {
            order.readiness = Arc::new(|| Readiness::No);
            order.giving_back = Some(to);
        });
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

/// Why a node does not lead any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resignation {
    /// The log did not take a batch: another node writes.
    Demoted,
    /// Another node has the lease, or it could not be renewed for long.
    Deposed,
    /// An operator wants the node of this name, or any other one, to lead.
    Asked(Option<String>),
}

impl Resignation {
    /// The node that should lead next; `None`: any.
    pub fn to(self) -> Option<String> {
        if let Self::Asked(to) = self { to } else { None }
    }
}

/// `None`: the store was made for a new cluster, and another node was first. A copy takes its place.
async fn open_store(
    config: &StoreConfig,
    log: Log<JetStream>,
    sink: &Arc<dyn CommitSink>,
) -> Result<Option<Store>, ClusterError> {
    let (config, sink, folder) = (config.clone(), sink.clone(), config.path.clone());
    let opened = tokio::task::spawn_blocking(move || Store::join(config, Box::new(log), sink)).await;
    match opened.expect("opening does not panic") {
        Ok(store) => Ok(Some(store)),
        Err(OpenError::Log(LogError::Lost(_))) if Store::remove_unused(&folder)? => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Waits for NATS. Says once that it waits.
async fn connect(config: &ClusterConfig) -> Result<Client, ClusterError> {
    let mut is_said = false;
    loop {
        match connect_once(config).await {
            Ok(client) => return Ok(client),
            Err(ClusterError::Connect(error)) if !is_refusal(error.kind()) => {
                if !std::mem::replace(&mut is_said, true) {
                    warn!(error = chain(&error), "NATS does not answer; it is tried again");
                }
            }
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    }
}

fn is_refusal(kind: ConnectErrorKind) -> bool {
    matches!(kind, ConnectErrorKind::Authentication | ConnectErrorKind::AuthorizationViolation)
}

pub(crate) async fn connect_once(config: &ClusterConfig) -> Result<Client, ClusterError> {
    let options = match &config.credentials {
        Some(text) => ConnectOptions::with_credentials(text).map_err(ClusterError::Credentials)?,
        None => ConnectOptions::new(),
    };
    let options = options.name(format!("tidings {}", config.node));
    let options = options.tls_client_config(rustls::ClientConfig::clone(&config.tls));
    let options = options.ignore_discovered_servers(); // They would be spoken to as they say, so perhaps in plain text.
    let options = options.subscription_capacity(WAITING_COUNT_MAX).client_capacity(COMMAND_COUNT_MAX);
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
    process: u64,
) {
    // Not to everything of this name: nobody may subscribe to the log and the lease themselves.
    let mut heard = SelectAll::new();
    for what in ["nudge", "move", "node.*"] {
        match client.subscribe(format!("{name}.{what}")).await {
            Ok(subscriber) => heard.push(subscriber),
            Err(error) => warn!(error = chain(&error), what, "Cannot listen to other nodes"),
        }
    }
    let mut is_said = false;
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
                let Ok(report) = serde_json::from_slice::<NodeReport>(&message.payload) else { continue };
                if report.node == node && report.process != process && !std::mem::replace(&mut is_said, true) {
                    warn!(
                        node,
                        "Another server of the cluster has the name of this one: set cluster.node to another name"
                    );
                }
                note(&reports, report);
            }
            _ => {}
        }
    }
}

fn note(reports: &Mutex<Vec<(NodeReport, Instant)>>, report: NodeReport) {
    let mut reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    reports.retain(|(known, at)| known.process != report.process && at.elapsed() < ABSENCE_MAX);
    reports.push((report, Instant::now()));
}

/// Says each second how this node is.
async fn report(
    client: Client,
    config: ClusterConfig,
    process: u64,
    store: Arc<Mutex<Option<Store>>>,
    is_whole: Arc<AtomicBool>,
) {
    let subject = format!("{}.node.{}", config.name, config.node);
    let mut pulse = interval(REPORT_INTERVAL);
    loop {
        pulse.tick().await;
        let store = store.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let epoch = store.as_ref().map(|store| store.channel_start().epoch);
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
        let ClusterConfig { node, address, version, may_lead, .. } = config.clone();
        let is_whole = store.is_some() && is_whole.load(Ordering::Relaxed);
        let report = NodeReport { node, process, address, version, role, sequence, epoch, is_whole, may_lead };
        let payload = serde_json::to_vec(&report).unwrap_or_default();
        if client.connection_state() == async_nats::connection::State::Connected {
            let _ = client.publish(subject.clone(), payload.into()).await; // The next one follows soon.
        }
    }
}

/// The other nodes of a cluster.
#[derive(Debug, Clone)]
pub struct Others {
    reports: Arc<Mutex<Vec<(NodeReport, Instant)>>>,
    own: u64,
}

impl Others {
    /// The processes that were heard within this time, without this one.
    pub fn processes(&self, within: Duration) -> Vec<u64> {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let is_here = |(report, at): &&(NodeReport, Instant)| report.process != self.own && at.elapsed() < within;
        reports.iter().filter(is_here).map(|(report, _)| report.process).collect()
    }

    /// Whether one of them was heard within the last seconds and can lead at once.
    pub fn can_lead(&self) -> bool {
        self.any(NodeReport::can_lead)
    }

    /// Whether one of them was heard within the last seconds, has all, and may lead.
    fn have_all(&self) -> bool {
        self.any(|report| report.is_whole && report.may_lead)
    }

    fn any(&self, is_such: fn(&NodeReport) -> bool) -> bool {
        let reports = self.reports.lock().unwrap_or_else(PoisonError::into_inner);
        let is_heard = |(report, at): &&(NodeReport, Instant)| report.process != self.own && at.elapsed() < SILENCE;
        reports.iter().filter(is_heard).any(|(report, _)| is_such(report))
    }
}

/// How far the node is that is furthest, of those that were heard of late and whose store is the same.
fn furthest(reports: &Mutex<Vec<(NodeReport, Instant)>>, epoch: Epoch) -> u64 {
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    let heard = reports.iter().filter(|(report, at)| at.elapsed() < ABSENCE_MAX && report.epoch == Some(epoch));
    heard.map(|(report, _)| report.sequence).max().unwrap_or_default()
}

/// Whether a node that begins with a copy as of this entry finds the next one in the log.
fn is_of_use(copied: u64, state: &LogState) -> bool {
    copied + 1 >= state.first && copied <= state.last
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
    pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        pulse.tick().await;
        let tended = async {
            let Some(log) = Trimmer::open(context, &config.name).await else { return Ok(()) };
            let (copied, Some(state)) = (copies.sequence().await?, log.state().await) else { return Ok(()) };
            let goal = goal(&state, store.log_position().sequence, reports);
            let mut copied = copied.filter(|copied| is_of_use(*copied, &state));
            if copied.is_none_or(|copied| goal.is_some_and(|goal| copied < goal)) {
                let sequence = copies.put(store.clone()).await?;
                info!(sequence, "The copy for new nodes is made");
                copied = Some(sequence);
            }
            if let Some((goal, copied)) = goal.zip(copied) {
                trim(&log, goal.min(copied)).await;
            }
            Ok::<_, CopyError>(())
        };
        if let Err(error) = tended.await {
            warn!(error = chain(&error), "The copy for new nodes cannot be made; it is tried again");
        }
    }
}

/// The entry to which the log should be trimmed, if it should: when it is half full, what all nodes have read; when it is
/// fuller still, whatever the leader has.
fn goal(state: &LogState, reached: u64, reports: &Mutex<Vec<(NodeReport, Instant)>>) -> Option<u64> {
    let goal = if state.bytes > state.bytes_max / 4 * 3 {
        reached
    } else if state.bytes > state.bytes_max / 2 {
        slowest(reports, reached)
    } else {
        return None;
    };
    // A copy of the store is much work, for a log that would hardly be shorter.
    let gain = goal.saturating_sub(state.first);
    (gain > state.last.saturating_sub(state.first) / 8).then_some(goal)
}

/// The last entry that all nodes have read which were heard of late. A node that joins may have an old copy.
fn slowest(reports: &Mutex<Vec<(NodeReport, Instant)>>, reached: u64) -> u64 {
    let reports = reports.lock().unwrap_or_else(PoisonError::into_inner);
    let needed = reports.iter().filter_map(|(report, at)| match report.role {
        NodeRole::Standby if at.elapsed() < ABSENCE_MAX => Some(report.sequence),
        NodeRole::Joining if at.elapsed() < JOIN_MAX => Some(0),
        _ => None,
    });
    needed.fold(reached, u64::min)
}

async fn trim(log: &Trimmer, first: u64) {
    match first {
        0 | 1 => {} // NATS would remove everything.
        _ if log.trim(first).await => info!(first, "The log is trimmed"),
        _ => warn!(first, "NATS does not say that it has trimmed the log; it is tried again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(node: &str, role: NodeRole, sequence: u64, epoch: Epoch) -> NodeReport {
        let (node, version) = (node.to_owned(), String::new());
        let process = node.bytes().map(u64::from).sum();
        let epoch = Some(epoch);
        NodeReport { node, process, address: None, version, role, sequence, epoch, is_whole: true, may_lead: true }
    }

    fn heard(reports: &[(&str, NodeRole, u64)]) -> Mutex<Vec<(NodeReport, Instant)>> {
        let heard = Mutex::default();
        for (node, role, sequence) in reports {
            note(&heard, report(node, *role, *sequence, Epoch::from_random(1)));
        }
        heard
    }

    /// Entries 100 to 1100.
    fn log(bytes: u64) -> LogState {
        LogState { first: 100, last: 1100, bytes, bytes_max: 1000 }
    }

    #[test]
    fn the_log_is_trimmed_to_what_all_have_read_and_in_need_to_what_the_leader_has() {
        let behind = heard(&[("a", NodeRole::Leading, 1100), ("b", NodeRole::Standby, 700), ("c", NodeRole::Lost, 50)]);
        assert_eq!(goal(&log(500), 1100, &behind), None, "half full");
        assert_eq!(goal(&log(501), 1100, &behind), Some(700));
        assert_eq!(goal(&log(751), 1100, &behind), Some(1100), "one that stands still does not stop the others");
        let stuck = heard(&[("b", NodeRole::Standby, 150)]);
        assert_eq!(goal(&log(501), 1100, &stuck), None, "not for so little");
        let joining = heard(&[("b", NodeRole::Joining, 0)]);
        assert_eq!(goal(&log(501), 1100, &joining), None, "it may have an old copy");
        assert_eq!(goal(&log(751), 1100, &joining), Some(1100));
    }

    #[test]
    fn a_copy_is_of_use_if_the_log_goes_on_behind_it() {
        let uses = [98, 99, 100, 1100, 1101].map(|copied| is_of_use(copied, &log(1)));
        assert_eq!(uses, [false, true, true, true, false]);
    }

    #[test]
    fn who_is_furthest_is_asked_of_nodes_with_the_same_store() {
        let reports = heard(&[("a", NodeRole::Lost, 70), ("b", NodeRole::Standby, 50), ("a", NodeRole::Lost, 60)]);
        note(&reports, report("x", NodeRole::Lost, 9000, Epoch::from_random(2)));
        assert_eq!(furthest(&reports, Epoch::from_random(1)), 60, "the latest report of a process counts");
        assert_eq!(furthest(&Mutex::default(), Epoch::from_random(1)), 0);
    }
}
