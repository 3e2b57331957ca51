//! What the servers of a cluster ask and tell each other: the words, and the asking side.
//!
//! ```text
//!  a client publishes, a device is seen ──► Question ──► the leader
//!  an order, presence, counts           ──► Question ──► every other server, whose answers are put together
//!  publications, joins, receipts        ──► Bulletin ──► every other server
//! ```
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | an answer of the leader | [`ASK_TIMEOUT`] | the client is told error 100 and may try again |
//! | answers about presence and counts | [`GATHER_TIMEOUT`] | what the others have is not in the answer |
//! | answers to an order | [`ORDER_TIMEOUT`] | the giver is told that it may be carried out later |
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
use tidings_edge::{Others, PresenceFuture, StatsFuture};
use tidings_hub::{ChannelCopy, CopyCursor, Hub, News, Relay, Report};
use tidings_protocol::{ClientInfo, LiveConnection, Order, OrderError, Target};
use tidings_types::{ChannelName, DeviceId, DeviceNumber, Json};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout};

/// How long the leader may take for an answer.
const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// How long others may take to say what they have.
const GATHER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long others may take to carry out an order; their own limit is shorter.
const ORDER_TIMEOUT: Duration = Duration::from_secs(6);
/// How long a part of the leader's channels may take.
const COPY_TIMEOUT: Duration = Duration::from_secs(5);
/// News that wait to be told.
const WAITING_COUNT_MAX: usize = 65_536;
/// Bytes of these.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// News that are told together, at most.
const TOGETHER_COUNT_MAX: usize = 256;
/// Bytes of these, about.
const TOGETHER_BYTES_MAX: usize = 256 << 10;
/// The pause between two reports of what clients have received.
const REPORT_PAUSE: Duration = Duration::from_millis(20);
/// How often a server tells that it is there, if there is no news.
pub(super) const PULSE: Duration = Duration::from_millis(500);

/// What one server asks another one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Question {
    /// Publish it; of the leader. Answer: `Result<(), ErrorCode>`.
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
    /// A part of the channels in memory; of the leader. Answer: [`Copies`].
    Copies(CopyCursor),
    /// Report all devices again; asked by the leader. Answer: `()`.
    ReportAll,
    /// Who is in the channel. Answer: `Vec<ClientInfo>`.
    Presence(ChannelName),
    /// How many are in the channel. Answer: `(u64, u64)`, connections and users.
    PresenceStats(ChannelName),
    /// The channels that have subscribers. Answer: `Vec<(ChannelName, usize)>`.
    Channels,
    /// What the server has. Answer: [`NodeView`].
    Node,
    /// Carry this out. Answer: `Result<(), OrderError>`.
    Order(Target, Order),
    /// The live connections. Answer: `Result<Vec<LiveConnection>, OrderError>`.
    Connections(Target),
}

/// A part of the leader's channels in memory. `None`: the server does not lead.
pub(super) type Copies = Option<(u64, Vec<ChannelCopy>, Option<CopyCursor>)>;

/// What one server tells all others.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Item {
    /// Of its hub.
    Hub(News),
    /// Of its connections, for the leader.
    Report(Report),
    /// A connection of this user has taken the place of all others.
    Replace(String),
    /// The device has to prove itself again; whether its connections are closed.
    Revoke(DeviceNumber, bool),
}

/// What is told at a time.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Bulletin {
    pub(super) items: Vec<Item>,
}

/// The way to the other servers.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) peers: Peers,
    nodes: Nodes,
    standing: watch::Receiver<Standing>,
    /// What other servers show to prove that they are some, while this one leads.
    pub(super) secret: Secret,
    outbox: Arc<Outbox>,
}

impl Line {
    /// The way, and what is to be [told](tell).
    pub(super) fn new(
        peers: Peers,
        nodes: Nodes,
        standing: watch::Receiver<Standing>,
        secret: Secret,
    ) -> (Self, mpsc::Receiver<Item>) {
        let (queue, waiting) = mpsc::channel(WAITING_COUNT_MAX);
        let outbox = Outbox { queue, bytes: AtomicUsize::new(0), is_lost: AtomicBool::new(false) };
        (Self { peers, nodes, standing, secret, outbox: Arc::new(outbox) }, waiting)
    }

    /// The process that leads; `None`: this one, or nobody.
    pub(super) fn leader(&self) -> Option<u64> {
        self.standing.borrow().holder.as_ref().map(|holder| holder.process)
    }

    /// Where the hub tells what others must know.
    pub(super) fn relay(&self) -> Arc<dyn Relay> {
        self.outbox.clone()
    }

    /// Tells all others.
    pub(super) fn tell(&self, item: Item) {
        self.outbox.put(item);
    }

    /// `None`: nobody leads, or the leader does not answer.
    pub(super) async fn ask_leader<A: DeserializeOwned>(&self, question: &Question) -> Option<A> {
        self.ask(self.leader()?, question, ASK_TIMEOUT).await.ok()
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
        let answer = timeout(10 * patience, self.peers.fetch(process, question, patience)).await;
        serde_json::from_slice(&answer.map_err(|_| Unanswered::Late)??).map_err(|_| Unanswered::Late)
    }

    /// A part of the leader's channels in memory.
    pub(super) async fn copies(&self, leader: u64, from: CopyCursor) -> Copies {
        self.fetch(leader, &Question::Copies(from), COPY_TIMEOUT).await.ok().flatten()
    }

    /// Tells the leader that a device was seen. Without a leader nobody is told: it is seen again.
    pub(super) async fn seen(&self, device: DeviceId) {
        let _noted: Option<bool> = self.ask_leader(&Question::Seen(device)).await;
    }

    /// Has a server report all devices.
    pub(super) async fn report_all(&self, process: u64) {
        let _: Result<(), Unanswered> = self.ask(process, &Question::ReportAll, ASK_TIMEOUT).await; // Else it is asked again.
    }

    /// Who else has a store and was heard of late.
    pub(super) fn processes(&self) -> Vec<u64> {
        self.nodes.processes()
    }

    /// The answers of all other servers that answer in time.
    async fn gather<A: DeserializeOwned>(&self, question: &Question) -> Vec<A> {
        let ask = |process| self.fetch(process, question, GATHER_TIMEOUT);
        join_all(self.processes().into_iter().map(ask)).await.into_iter().filter_map(Result::ok).collect()
    }

    /// Who is in the channel on other servers.
    pub(super) async fn presence(&self, channel: ChannelName) -> Vec<ClientInfo> {
        self.gather::<Vec<ClientInfo>>(&Question::Presence(channel)).await.concat()
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
    pub(super) async fn order(&self, target: Target, order: Order) -> Result<(), OrderError> {
        let question = Question::Order(target, order);
        let ask = |process| self.ask::<Result<(), OrderError>>(process, &question, ORDER_TIMEOUT);
        let answers = join_all(self.processes().into_iter().map(ask)).await;
        answers.into_iter().fold(Ok(()), |outcome, answer| outcome.and(heard(answer, ())))
    }

    /// The live connections of all other servers.
    pub(super) async fn connections(&self, target: Target) -> Result<Vec<LiveConnection>, OrderError> {
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
        Err(Unanswered::Late | Unanswered::TooLarge) => Err(OrderError::Late),
    }
}

/// What waits to be told to the others.
#[derive(Debug)]
struct Outbox {
    queue: mpsc::Sender<Item>,
    bytes: AtomicUsize,
    /// Something was dropped.
    is_lost: AtomicBool,
}

impl Outbox {
    fn put(&self, item: Item) {
        let bytes = weight(&item);
        let held = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if held > WAITING_BYTES_MAX || self.queue.try_send(item).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.is_lost.store(true, Ordering::Relaxed);
        }
    }
}

impl Relay for Outbox {
    fn tell(&self, news: News) {
        self.put(Item::Hub(news));
    }
}

/// About the bytes of an item.
fn weight(item: &Item) -> usize {
    match item {
        Item::Hub(news) => news.weight(),
        Item::Report(report) => report.weight(),
        Item::Replace(user) => user.len(),
        Item::Revoke(..) => 16,
    }
}

/// Tells the others what waits, and now and then that this server is there. Ends when it is dropped.
pub(super) async fn tell(line: Line, mut waiting: mpsc::Receiver<Item>) {
    let mut voice = line.peers.voice();
    let mut items = Vec::new();
    loop {
        let _ = timeout(PULSE, waiting.recv_many(&mut items, TOGETHER_COUNT_MAX)).await;
        if line.outbox.is_lost.swap(false, Ordering::Relaxed) {
            voice.skip();
        }
        let mut bulletins = vec![Bulletin::default()];
        let mut bytes = 0;
        for item in items.drain(..) {
            let own = weight(&item);
            line.outbox.bytes.fetch_sub(own, Ordering::Relaxed);
            if bytes > 0 && bytes + own > TOGETHER_BYTES_MAX {
                bulletins.push(Bulletin::default());
                bytes = 0;
            }
            bytes += own;
            bulletins.last_mut().expect("there is one").items.push(item);
        }
        for bulletin in bulletins {
            match serde_json::to_vec(&bulletin) {
                Ok(bytes) => voice.tell(&bytes).await,
                Err(_) => voice.skip(),
            }
        }
    }
}

/// Reports to the leader what clients of this server have received. Ends when this server leads.
pub(super) async fn report(line: Line, hub: Arc<Hub>) {
    while !hub.is_home() {
        hub.receipts().has_report().await;
        sleep(REPORT_PAUSE).await; // More comes at the same time.
        if let Some(report) = hub.receipts().take_report() {
            line.tell(Item::Report(report));
        }
    }
}

impl Others for Line {
    fn presence(&self, channel: &ChannelName) -> Option<PresenceFuture> {
        let (line, channel) = (self.clone(), channel.clone());
        Some(Box::pin(async move { line.presence(channel).await }))
    }

    fn presence_stats(&self, channel: &ChannelName) -> Option<StatsFuture> {
        let (line, channel) = (self.clone(), channel.clone());
        Some(Box::pin(async move { line.presence_stats(channel).await }))
    }

    fn replace(&self, user: &str) {
        self.tell(Item::Replace(user.to_owned()));
    }
}

impl tidings_api::Others for Line {
    fn presence(&self, channel: ChannelName) -> OthersFuture<Vec<ClientInfo>> {
        let line = self.clone();
        Box::pin(async move { line.presence(channel).await })
    }

    fn presence_stats(&self, channel: ChannelName) -> OthersFuture<(u64, u64)> {
        let line = self.clone();
        Box::pin(async move { line.presence_stats(channel).await })
    }

    fn channels(&self) -> OthersFuture<Vec<(ChannelName, usize)>> {
        let line = self.clone();
        Box::pin(async move { line.channels().await })
    }

    fn nodes(&self) -> OthersFuture<Vec<NodeView>> {
        let line = self.clone();
        Box::pin(async move { line.nodes().await })
    }
}
