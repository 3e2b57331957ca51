//! What the servers of a cluster ask and tell each other: the words, and the asking side.
//!
//! ```text
//!  a client publishes, a device is seen ──► Question ──► the leader
//!  an order, presence, counts           ──► Question ──► every other server, whose answers are put together
//!  a device connects                    ──► Question ──► the leader, before the client is let in
//!  publications, joins, receipts        ──► Notices ──► every other server
//! ```
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | an answer of the leader | [`ASK_TIMEOUT`] | the client is told error 100 and may try again |
//! | a publication of a client | `PART_BYTES_MAX` of `tidings_cluster` | the client is told error 106 |
//! | answers about presence and counts | [`GATHER_TIMEOUT`] a part | what that server has is not in the answer |
//! | bytes of an answer | [`ANSWER_BYTES_MAX`] | as above |
//! | answers to an order | [`ORDER_TIMEOUT`] | the giver is told that it may be carried out later |
//! | the leader's word about a device that connects | [`ANNOUNCE_TIMEOUT`] | the client is let in, and may be pushed once too often |
//! | news that wait to be told | [`WAITING_COUNT_MAX`], [`WAITING_BYTES_MAX`] | dropped; the others learn that something is missing |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tidings_api::{NodeView, OthersFuture};
use tidings_cluster::lease::Secret;
use tidings_cluster::{Others as Nodes, Peers, Standing, Unanswered};
use tidings_edge::{Emulation, EmulationFuture, Others, PresenceFuture, StatsFuture};
use tidings_hub::{ChannelCopy, CopyCursor, Hub, News, Relay, Report};
use tidings_protocol::{ClientInfo, EmulationRequest, LiveConnection, Order, OrderError, Target};
use tidings_telemetry::memory::Term;
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, DeviceId, DeviceNumber, Json};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

/// How long the leader may take for an answer: longer than NATS needs to choose a leader of its own.
const ASK_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a server may take to hand commands to a session.
const EMULATE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long others may take to say what they have.
const GATHER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long others may take to carry out an order; their own limit is shorter.
const ORDER_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a part of the leader's channels may take.
const COPY_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// A server that was not heard for so long has no clients any more: it has sent them away.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A server that was not heard for so long is taken for gone: its devices are pushed.
pub(super) const PRESENCE_MAX: Duration = Duration::from_secs(3);
/// How long a client waits until the leader knows of its device.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a device counts as connected and visible while its client is let in.
const ANNOUNCED_MAX: Duration = Duration::from_secs(3);
/// Devices that are announced together.
const ANNOUNCED_COUNT_MAX: usize = 4096;
/// News that wait to be told.
const WAITING_COUNT_MAX: usize = 65_536;
/// Bytes of these.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// News that are told together, at most.
const TOGETHER_COUNT_MAX: usize = 256;
/// Bytes of these, about.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// The pause between two reports of what clients have received.
const REPORT_PAUSE: Duration = Duration::from_millis(3);
/// How often a server tells that it is there, if there is no news.
pub(super) const PULSE: Duration = Duration::from_millis(500);

/// What news that wait to be told may take: as such, and as the message that is made of them.
pub(super) fn memory_terms() -> Vec<Term> {
    vec![Term::peak("news for servers", 2, WAITING_BYTES_MAX, "cluster.servers")]
}

/// What one server asks another one. Without `Debug`: it holds what clients publish, and the ids of their sessions.
#[derive(Serialize, Deserialize)]
pub(super) enum Question {
    /// Publish it; of the leader. Answer: `Option<Result<(), ErrorCode>>`; `None`: the server does not lead.
    Publish {
        channel: ChannelName,
        data: Json,
        #[serde(skip_serializing_if = "Option::is_none")]
        info: Option<ClientInfo>,
        tags: BTreeMap<String, String>,
        skip_history: bool,
    },
    /// The device was seen; of the leader. Answer: whether that is noted.
    Seen(DeviceId),
    /// Clients on these devices are about to be let in by this process; of the leader. `number`: that of the last announcement.
    /// Answer: `()`.
    Announce { process: u64, devices: Vec<u32>, number: u64 },
    /// A part of the channels in memory; of the leader. Answer: [`Copies`].
    Copies(CopyCursor),
    /// Report all devices again. Answer: `()`.
    ReportAll,
    /// Who is in the channel. Answer: `Option<Vec<ClientInfo>>`; `None`: they take more than so many bytes.
    Presence(ChannelName, usize),
    /// How many are in the channel. Answer: `(u64, u64)`, connections and users.
    PresenceStats(ChannelName),
    /// The channels that have subscribers. Answer: `Vec<(ChannelName, usize)>`.
    Channels,
    /// What the server has. Answer: [`NodeView`].
    Node,
    /// Hand these commands to the session. Answer: [`Emulation`].
    Emulate { node: String, session: String, data: Vec<u8> },
    /// Carry this out. Answer: `Result<(), OrderError>`.
    Order(Target, Order),
    /// The live connections. Answer: `Result<Vec<LiveConnection>, OrderError>`.
    Connections(Target),
}

/// A part of the leader's channels in memory. `None`: the server does not lead.
pub(super) type Copies = Option<(u64, Vec<ChannelCopy>, Option<CopyCursor>)>;

/// What one server tells all others. Without `Debug`, as [`Question`].
#[derive(Serialize, Deserialize)]
pub(super) enum Notice {
    /// Of its hub.
    Hub(News),
    /// Of its connections, for the server that leads and for whoever leads next.
    Report(Report),
    /// The connection with this number has taken the place of the user's connections with lower numbers.
    Replace(String, u64),
    /// The device has to prove itself again. `close`: its connections are closed. Its old credential does not hold any more when
    /// the store has the entry of the log with this number.
    Revoke { device: DeviceNumber, close: bool, sequence: u64 },
}

/// What is told at a time.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct Notices {
    pub(super) items: Vec<Notice>,
}

/// A device whose client is about to be let in, and who waits until the leader knows.
pub(super) type Announced = (DeviceNumber, oneshot::Sender<()>);

/// What waits to be sent to the other servers.
pub(super) struct Waiting {
    pub(super) notices: mpsc::Receiver<Notice>,
    pub(super) announced: mpsc::Receiver<Announced>,
}

/// The way to the other servers.
#[derive(Debug, Clone)]
pub(super) struct PeerLink {
    pub(super) peers: Peers,
    nodes: Nodes,
    standing: watch::Receiver<Standing>,
    /// What other servers show to prove that they are some, while this one leads.
    pub(super) secret: Secret,
    outbox: Arc<Outbox>,
    announced: mpsc::Sender<Announced>,
}

impl PeerLink {
    /// The way, and what is to be [told](tell) and [announced](announce).
    pub(super) fn new(
        peers: Peers,
        nodes: Nodes,
        standing: watch::Receiver<Standing>,
        secret: Secret,
    ) -> (Self, Waiting) {
        let (queue, notices) = mpsc::channel(WAITING_COUNT_MAX);
        let (announced, announcing) = mpsc::channel(WAITING_COUNT_MAX);
        let (bytes, is_empty, is_lost) = (AtomicUsize::new(0), Notify::new(), AtomicBool::new(false));
        let outbox = Outbox { queue, bytes, is_empty, is_lost };
        let link = Self { peers, nodes, standing, secret, outbox: Arc::new(outbox), announced };
        (link, Waiting { notices, announced: announcing })
    }

    /// The other process that leads; `None`: this one leads, or nobody.
    pub(super) fn leader(&self) -> Option<u64> {
        self.standing.borrow().holder.as_ref().map(|holder| holder.process)
    }

    /// Waits until another process leads, and not this one.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn has_leader_beside(&self, former: Option<u64>) {
        let is_other =
            |standing: &Standing| standing.holder.as_ref().is_some_and(|holder| Some(holder.process) != former);
        let _ = self.standing.clone().wait_for(is_other).await; // It ends with the process.
    }

    /// Waits until this process does not have the lease.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn is_not_leader(&self) {
        let _ = self.standing.clone().wait_for(|standing| !standing.is_held).await; // It ends with the process.
    }

    /// Where the hub tells what others must know.
    pub(super) fn outbox(&self) -> Arc<dyn Relay> {
        self.outbox.clone()
    }

    /// Tells all others.
    pub(super) fn tell(&self, notice: Notice) {
        self.outbox.put(notice);
    }

    /// Waits until everything that was to be told is told. NATS gets it before anything that is sent later.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn all_told(&self) {
        while self.outbox.bytes.load(Ordering::Relaxed) > 0 {
            self.outbox.is_empty.notified().await;
        }
    }

    /// Asks the leader.
    pub(super) async fn ask_leader<A: DeserializeOwned>(&self, question: &Question) -> Result<A, Unanswered> {
        let leader = self.leader().ok_or(Unanswered::Gone)?;
        self.ask(leader, question, ASK_TIMEOUT).await
    }

    async fn ask<A: DeserializeOwned>(
        &self,
        process: u64,
        question: &Question,
        patience: Duration,
    ) -> Result<A, Unanswered> {
        let question = serde_json::to_vec(question).map_err(|_| Unanswered::TooLarge)?;
        let answer = self.peers.ask(process, question, Instant::now() + patience).await?;
        serde_json::from_slice(&answer).map_err(|_| Unanswered::Late)
    }

    async fn fetch<A: DeserializeOwned>(
        &self,
        process: u64,
        question: &Question,
        patience: Duration,
    ) -> Result<A, Unanswered> {
        let question = serde_json::to_vec(question).map_err(|_| Unanswered::TooLarge)?;
        let answer = self.peers.fetch(process, question, ANSWER_BYTES_MAX, patience);
        let answer = timeout(2 * patience, answer).await.map_err(|_| Unanswered::Late)??;
        serde_json::from_slice(&answer).map_err(|_| Unanswered::Late)
    }

    /// A part of the leader's channels in memory.
    pub(super) async fn copies(&self, leader: u64, from: CopyCursor) -> Copies {
        self.fetch(leader, &Question::Copies(from), COPY_TIMEOUT).await.ok().flatten()
    }

    /// Tells the leader that a device was seen. Without a leader nobody is told: it is seen again.
    pub(super) async fn tell_seen(&self, device: DeviceId) {
        let _noted: Result<bool, Unanswered> = self.ask_leader(&Question::Seen(device)).await;
    }

    /// Waits until the leader knows that a client on the device is about to be let in, but not for long.
    pub(super) async fn await_announced(&self, device: DeviceNumber) {
        let (known, waiting) = oneshot::channel();
        if self.leader().is_some() && self.announced.try_send((device, known)).is_ok() {
            let _ = timeout(ANNOUNCE_TIMEOUT, waiting).await;
        }
    }

    /// Has a server report all devices.
    pub(super) async fn report_all(&self, process: u64) {
        let _: Result<(), Unanswered> = self.ask(process, &Question::ReportAll, ASK_TIMEOUT).await; // Else it is asked again.
    }

    /// The other processes that may have clients: those that were heard for as long as a server keeps its clients.
    fn processes(&self) -> Vec<u64> {
        self.nodes.processes(SILENCE_MAX)
    }

    /// The answers of all other servers that answer in time.
    async fn gather<A: DeserializeOwned>(&self, question: &Question) -> Vec<A> {
        let ask = |process| self.fetch(process, question, GATHER_TIMEOUT);
        join_all(self.processes().into_iter().map(ask)).await.into_iter().filter_map(Result::ok).collect()
    }

    /// Who is in the channel on other servers. `None`: those of one server take more than so many bytes.
    pub(super) async fn presence(&self, channel: ChannelName, bytes_max: usize) -> Option<Vec<ClientInfo>> {
        let all = self.gather::<Option<Vec<ClientInfo>>>(&Question::Presence(channel, bytes_max)).await;
        all.into_iter().try_fold(Vec::new(), |all, there| Some([all, there?].concat()))
    }

    /// How many connections and users are in the channel on other servers.
    pub(super) async fn presence_stats(&self, channel: ChannelName) -> (u64, u64) {
        let all = self.gather::<(u64, u64)>(&Question::PresenceStats(channel)).await;
        all.into_iter().fold((0, 0), |sum, there| (sum.0 + there.0, sum.1 + there.1))
    }

    /// The channels that have subscribers on other servers; several servers may have one.
    pub(super) async fn channels(&self) -> Vec<(ChannelName, usize)> {
        self.gather::<Vec<_>>(&Question::Channels).await.concat()
    }

    /// What each other server has.
    pub(super) async fn nodes(&self) -> Vec<NodeView> {
        self.gather(&Question::Node).await
    }

    /// Has all other servers carry it out.
    pub(super) async fn have_all_do(&self, target: Target, order: Order) -> Result<(), OrderError> {
        let question = Question::Order(target, order);
        let ask = |process| self.ask::<Result<(), OrderError>>(process, &question, ORDER_TIMEOUT);
        let answers = join_all(self.processes().into_iter().map(ask)).await;
        answers.into_iter().try_for_each(|answer| heard(answer, ()))
    }

    /// The live connections of all other servers.
    pub(super) async fn list_all(&self, target: Target) -> Result<Vec<LiveConnection>, OrderError> {
        let question = Question::Connections(target);
        let ask = |process| self.fetch::<Result<Vec<LiveConnection>, OrderError>>(process, &question, ORDER_TIMEOUT);
        let answers = join_all(self.processes().into_iter().map(ask)).await;
        answers.into_iter().try_fold(Vec::new(), |all, answer| Ok([all, heard(answer, Vec::new())?].concat()))
    }
}

/// What another server answered. One that is gone has no connections any more.
fn heard<A>(answer: Result<Result<A, OrderError>, Unanswered>, gone: A) -> Result<A, OrderError> {
    match answer {
        Ok(answer) => answer,
        Err(Unanswered::Gone) => Ok(gone),
        Err(Unanswered::Late | Unanswered::NotConnected | Unanswered::TooLarge) => Err(OrderError::Late),
    }
}

/// What waits to be told to the others.
#[derive(Debug)]
struct Outbox {
    queue: mpsc::Sender<Notice>,
    bytes: AtomicUsize,
    /// Nothing waits any more.
    is_empty: Notify,
    /// Something was dropped.
    is_lost: AtomicBool,
}

impl Outbox {
    fn put(&self, notice: Notice) {
        let bytes = weight(&notice);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if held > WAITING_BYTES_MAX || self.queue.try_send(notice).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Relay for Outbox {
    fn tell(&self, news: News) {
        self.put(Notice::Hub(news));
    }
}

/// About the bytes of a notice.
fn weight(notice: &Notice) -> usize {
    match notice {
        Notice::Hub(news) => news.weight(),
        Notice::Report(report) => report.weight(),
        Notice::Replace(user, _) => user.len() + 16,
        Notice::Revoke { .. } => 64,
    }
}

/// Tells the others what waits, and now and then that this server is there. Ends when it is dropped.
pub(super) async fn tell(link: PeerLink, mut waiting: mpsc::Receiver<Notice>) {
    let mut sender = link.peers.news_sender();
    let mut items = Vec::new();
    loop {
        let _ = timeout(PULSE, waiting.recv_many(&mut items, TOGETHER_COUNT_MAX)).await;
        if link.outbox.is_lost.swap(false, Ordering::Relaxed) {
            sender.skip();
        }
        let mut messages = vec![Notices::default()];
        let (mut bytes, mut bytes_in_all) = (0, 0);
        for item in items.drain(..) {
            let own = weight(&item);
            bytes_in_all += own;
            if bytes > 0 && bytes + own > TOGETHER_BYTES_MAX {
                messages.push(Notices::default());
                bytes = 0;
            }
            bytes += own;
            messages.last_mut().expect("there is one").items.push(item);
        }
        for notices in messages {
            match serde_json::to_vec(&notices) {
                Ok(bytes) => sender.tell(&bytes).await,
                Err(_) => sender.skip(),
            }
        }
        if link.outbox.bytes.fetch_sub(bytes_in_all, Ordering::Relaxed) == bytes_in_all {
            link.outbox.is_empty.notify_one();
        }
    }
}

/// Tells the leader of the devices whose clients are about to be let in: one question at a time, with all that came meanwhile. Goes
/// on until it is dropped.
pub(super) async fn announce(link: PeerLink, hub: Arc<Hub>, mut waiting: mpsc::Receiver<Announced>) {
    let mut some = Vec::new();
    while waiting.recv_many(&mut some, ANNOUNCED_COUNT_MAX).await > 0 {
        let until = unix_now().saturating_add(ANNOUNCED_MAX);
        let number = some.iter().map(|(device, _)| hub.receipts().announce(*device, until)).max().unwrap_or_default();
        let devices = some.iter().map(|(device, _)| device.0).collect();
        let question = Question::Announce { process: link.peers.process(), devices, number };
        if let Some(leader) = link.leader() {
            let _: Result<(), Unanswered> = link.ask(leader, &question, ANNOUNCE_TIMEOUT).await; // The report comes soon.
        }
        some.drain(..).for_each(|(_, known)| _ = known.send(())); // Who does not wait any more is let in.
    }
}

/// Reports which devices are connected to this server and, while it does not lead, what its clients have received. Goes on
/// until it is dropped.
pub(super) async fn report(link: PeerLink, hub: Arc<Hub>) {
    loop {
        hub.receipts().has_report().await;
        // At once: an event may come right after a device has connected.
        if let Some(report) = hub.receipts().take_report() {
            link.tell(Notice::Report(report));
        }
        sleep(REPORT_PAUSE).await;
    }
}

/// The name of a session's server, from which others know the process.
pub(super) fn name_of(process: u64) -> String {
    Uuid::from_u64_pair(process, rand::random()).to_string()
}

fn process_of(name: &str) -> Option<u64> {
    Uuid::try_parse(name).ok().map(|name| name.as_u64_pair().0)
}

impl Others for PeerLink {
    fn emulate(&self, emulation: EmulationRequest) -> Option<EmulationFuture> {
        let EmulationRequest { node, session, data } = emulation;
        let process = process_of(&node)?;
        let (link, question) = (self.clone(), Question::Emulate { node, session, data });
        Some(Box::pin(async move {
            match link.ask(process, &question, EMULATE_TIMEOUT).await {
                Ok(emulation) => emulation,
                Err(Unanswered::Gone | Unanswered::TooLarge) => Emulation::Unknown,
                Err(Unanswered::Late | Unanswered::NotConnected) => Emulation::Full,
            }
        }))
    }

    fn presence(&self, channel: &ChannelName, bytes_max: usize) -> Option<PresenceFuture> {
        let (link, channel) = (self.clone(), channel.clone());
        Some(Box::pin(async move { link.presence(channel, bytes_max).await }))
    }

    fn presence_stats(&self, channel: &ChannelName) -> Option<StatsFuture> {
        let (link, channel) = (self.clone(), channel.clone());
        Some(Box::pin(async move { link.presence_stats(channel).await }))
    }

    fn replace(&self, user: &str, number: u64) {
        self.tell(Notice::Replace(user.to_owned(), number));
    }
}

impl tidings_api::Others for PeerLink {
    fn presence(&self, channel: ChannelName) -> OthersFuture<Option<Vec<ClientInfo>>> {
        let link = self.clone();
        Box::pin(async move { link.presence(channel, ANSWER_BYTES_MAX).await })
    }

    fn presence_stats(&self, channel: ChannelName) -> OthersFuture<(u64, u64)> {
        let link = self.clone();
        Box::pin(async move { link.presence_stats(channel).await })
    }

    fn channels(&self) -> OthersFuture<Vec<(ChannelName, usize)>> {
        let link = self.clone();
        Box::pin(async move { link.channels().await })
    }

    fn nodes(&self) -> OthersFuture<Vec<NodeView>> {
        let link = self.clone();
        Box::pin(async move { link.nodes().await })
    }
}
