//! Hears what the other servers of a cluster tell, and keeps this server's copy of the channels in memory equal to the leader's.
//!
//! ```text
//!   another leads ──► all its channels, page by page ──► its news, one after the other
//!                              ▲                                  │
//!                              └────── something is missing ──────┘
//! ```
//!
//! While the pages come, news come, too. News of a channel whose page is yet to come wait for it. The hub knows what of a page
//! and of news is newer, and has the readers of a channel begin anew that is not what it was.
//!
//! What other servers report of receipts is taken in by each server, so that whoever leads next knows who is connected.
//!
//! | What | Limit | Then |
//! |---|---|---|
//! | bytes of a message | [`MESSAGE_BYTES_MAX`] | as if it was lost |
//! | news that wait for a page | [`EARLY_BYTES_MAX`] | all pages come once more |
//! | the silence of the leader | [`SILENCE_MAX`] | clients are sent away, and none is let in |

use std::collections::HashMap;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::BytesMut;
use tidings_cluster::{NewsPart, NewsReceiver};
use tidings_edge::Edge;
use tidings_hub::{Applied, ChannelCopy, CopyCursor, Hub, News};
use tidings_protocol::OrderError;
use tidings_store::{Role, Store};
use tidings_telemetry::memory::Term;
use tidings_telemetry::unix_now;
use tidings_types::{ChannelName, DeviceNumber};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use super::peers::{Copies, Notice, Notices, PRESENCE_MAX, PULSE, PeerLink, SILENCE_MAX};

/// Bytes of one message of another server that has several parts.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// Bytes of news that wait for a page.
const EARLY_BYTES_MAX: usize = 64 << 20;
/// The pause before a page is asked for again.
const RETRY: Duration = Duration::from_millis(200);
/// A server that was not heard for so long is forgotten.
const MEMORY_MAX: Duration = Duration::from_secs(60);
/// How long the store may take to have the entry with which a credential ended, and the pause between two looks.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(60);
const REVOKE_PAUSE: Duration = Duration::from_millis(20);

/// What news that wait for a page, and messages whose parts come, may take. In a cluster of three two others send parts, into buffers that
/// may have twice the room that they need. A server that was started anew counts twice for a minute.
pub(super) fn memory_terms() -> Vec<Term> {
    vec![
        Term::peak("news before a page", 1, EARLY_BYTES_MAX, "cluster.servers"),
        Term::peak("news in parts", 2 * 2, MESSAGE_BYTES_MAX, "cluster.servers"),
    ]
}

/// How this server's copy of the channels in memory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CopyState {
    /// There is none yet, or the leader is out of reach.
    Apart,
    /// It is the leader's, but for what is on its way. Or this server leads.
    Whole,
}

/// Keeps the copy.
pub(super) struct Copying {
    pub(super) link: PeerLink,
    pub(super) hub: Arc<Hub>,
    pub(super) edge: Arc<Edge>,
    pub(super) store: Store,
    /// Told how the copy is.
    pub(super) state: watch::Sender<CopyState>,
    /// As above, for the lease: a server without a copy does not lead while another one has it.
    pub(super) is_whole: Arc<AtomicBool>,
}

/// What is known of the others while the copy is kept.
struct Keeper {
    ports: Copying,
    role: watch::Receiver<Role>,
    /// Who was heard.
    speakers: HashMap<u64, Speaker>,
    /// The process whose channels are copied, or are being copied.
    source: Option<u64>,
    round: Option<Round>,
    /// When the leader was heard last.
    heard_at: Instant,
    /// Connections that are being closed.
    closing: JoinSet<Result<(), OrderError>>,
    /// Other work that nobody waits for.
    tasks: JoinSet<()>,
}

/// A process that tells news.
struct Speaker {
    /// The number of its next part.
    next: u64,
    /// The parts of a message that is not whole yet.
    begun: BytesMut,
    heard_at: Instant,
}

/// The pages of the leader's channels that are to come.
struct Round {
    cursor: CopyCursor,
    next: Pin<Box<dyn Future<Output = Copies> + Send>>,
    early: Early,
}

/// News of channels whose pages are to come.
#[derive(Default)]
struct Early {
    news: HashMap<ChannelName, Vec<News>>,
    bytes: usize,
    /// There were more.
    is_over: bool,
}

impl Early {
    fn put(&mut self, channel: ChannelName, news: News) {
        self.bytes += news.weight();
        if self.bytes > EARLY_BYTES_MAX {
            (self.news, self.is_over) = (HashMap::new(), true);
        } else if !self.is_over {
            self.news.entry(channel).or_default().push(news);
        }
    }

    fn take(&mut self, channel: &ChannelName) -> Vec<News> {
        self.news.remove(channel).unwrap_or_default()
    }
}

impl Speaker {
    fn new(next: u64) -> Self {
        Self { next, begun: BytesMut::new(), heard_at: Instant::now() }
    }

    /// Takes a part. Returns the message that it ends, if it does, and whether nothing is missing before.
    fn take(&mut self, part: &NewsPart) -> (Option<Notices>, bool) {
        let is_next = part.number == self.next && self.begun.len() <= MESSAGE_BYTES_MAX;
        (self.next, self.heard_at) = (part.number + 1, Instant::now());
        if !is_next {
            self.begun.clear();
        }
        self.begun.extend_from_slice(&part.bytes);
        if part.has_more {
            return (None, is_next);
        }
        // The end of a message whose beginning is missing is not read, most likely.
        let notices: Option<Notices> = serde_json::from_slice(&self.begun.split()).ok();
        let is_read = notices.is_some();
        (notices, is_next && is_read)
    }
}

impl Copying {
    /// Goes on until it is dropped.
    pub(super) async fn run(self, mut news: NewsReceiver) {
        let role = self.store.role();
        let mut keeper = Keeper {
            ports: self,
            role,
            speakers: HashMap::new(),
            source: None,
            round: None,
            heard_at: Instant::now(),
            closing: JoinSet::new(),
            tasks: JoinSet::new(),
        };
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            keeper.find_source();
            let page = async {
                match &mut keeper.round {
                    Some(round) => round.next.as_mut().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                part = news.next() => match part {
                    Some(part) => keeper.hear(&part),
                    None => return, // The client of NATS has ended, with the process.
                },
                copies = page => keeper.take_page(copies),
                _ = pulse.tick() => keeper.look(),
                Some(_closed) = keeper.closing.join_next() => {}
                Some(_done) = keeper.tasks.join_next() => {}
            }
        }
    }
}

impl Keeper {
    /// Begins to copy from the leader, if it is another one.
    fn find_source(&mut self) {
        if self.ports.hub.is_home() {
            (self.source, self.round, self.heard_at) = (None, None, Instant::now());
            return;
        }
        let leader = self.ports.link.leader();
        if leader.is_some() && leader != self.source {
            self.source = leader;
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let Some(source) = self.source else { return };
        self.ports.hub.begin_round();
        let cursor = CopyCursor::default();
        let next = self.ask(source, cursor.clone(), Duration::ZERO);
        self.round = Some(Round { cursor, next, early: Early::default() });
    }

    fn ask(&self, source: u64, cursor: CopyCursor, pause: Duration) -> Pin<Box<dyn Future<Output = Copies> + Send>> {
        let link = self.ports.link.clone();
        Box::pin(async move {
            sleep(pause).await;
            link.copies(source, cursor).await
        })
    }

    fn take_page(&mut self, copies: Copies) {
        let (Some(Round { cursor, mut early, .. }), Some(source)) = (self.round.take(), self.source) else { return };
        let Some((epoch, copies, next)) = copies else {
            let next = self.ask(source, cursor.clone(), RETRY); // It is about to lead, or a message was lost.
            self.round = Some(Round { cursor, next, early });
            return;
        };
        self.heard_at = Instant::now();
        if cursor == CopyCursor::default() {
            self.ports.hub.set_memory_epoch(epoch); // Later ones are news.
        }
        for copy in copies {
            self.take_copy(copy, &mut early);
        }
        match next {
            Some(cursor) => {
                let next = self.ask(source, cursor.clone(), Duration::ZERO);
                self.round = Some(Round { cursor, next, early });
            }
            None => self.end_round(early),
        }
    }

    fn take_copy(&self, copy: ChannelCopy, early: &mut Early) {
        let (hub, name) = (&self.ports.hub, copy.channel.clone());
        hub.take_copy(copy, unix_now());
        for news in early.take(&name) {
            if let Applied::Missing(channel) = hub.apply(news.clone(), unix_now()) {
                early.put(channel, news);
            }
        }
    }

    fn end_round(&mut self, early: Early) {
        if early.is_over || !early.news.is_empty() {
            debug!("News came before what they follow on, so the channels in memory are copied again");
            self.begin_round();
            return;
        }
        self.ports.hub.end_round();
        info!("This server has the channels in memory of the server that leads");
        self.look();
    }

    fn hear(&mut self, part: &NewsPart) {
        let is_source = Some(part.process) == self.source && !self.ports.hub.is_home();
        if is_source {
            self.heard_at = Instant::now();
        }
        let is_new = !self.speakers.contains_key(&part.process);
        let speaker = self.speakers.entry(part.process).or_insert_with(|| Speaker::new(part.number));
        let (notices, mut is_whole) = speaker.take(part);
        if is_source && (is_new || !is_whole) {
            debug!("Something of the leader's news is missing, so its channels in memory are copied again");
            self.begin_round(); // Before what is behind the hole.
        }
        for notice in notices.map(|notices| notices.items).unwrap_or_default() {
            match notice {
                Notice::Hub(news) if is_source || is_from_anybody(&news) => is_whole &= self.apply(news),
                Notice::Hub(_) => {} // Of a server that led before, or leads in a moment: then all channels are copied.
                Notice::Report(report) => _ = self.ports.hub.receipts().take_in(part.process, report),
                Notice::Replace(user, number) => drop(self.closing.spawn(self.ports.edge.replace(user, number))),
                Notice::Revoke { device, close, sequence } => self.revoke(device, close, sequence),
            }
        }
        if !is_whole {
            self.ports.hub.receipts().forget_node(part.process); // It is asked for what it has: see `look`.
        }
    }

    /// Whether nothing is missing before these news.
    fn apply(&mut self, news: News) -> bool {
        match (self.ports.hub.apply(news.clone(), unix_now()), &mut self.round) {
            (Applied::Done, _) => true,
            (Applied::Missing(channel), Some(round)) => {
                round.early.put(channel, news);
                true
            }
            (Applied::Missing(_), None) => {
                self.begin_round();
                false
            }
        }
    }

    /// Ends the proof of the device's connections, and once more when the store knows that its credential has ended: a client
    /// may connect with it until then.
    fn revoke(&mut self, device: DeviceNumber, close: bool, sequence: u64) {
        self.ports.edge.revoke(device, close);
        let (edge, store, end) = (self.ports.edge.clone(), self.ports.store.clone(), Instant::now() + REVOKE_TIMEOUT);
        self.tasks.spawn(async move {
            while store.log_position().sequence < sequence && Instant::now() < end {
                sleep(REVOKE_PAUSE).await;
            }
            edge.revoke(device, false); // Whoever has a new credential by now stays connected.
        });
    }

    fn look(&mut self) {
        let Copying { link, hub, edge, state, is_whole, .. } = &self.ports;
        self.speakers.retain(|_, speaker| speaker.heard_at.elapsed() < MEMORY_MAX);
        let is_present = |speaker: &Speaker| speaker.heard_at.elapsed() < PRESENCE_MAX;
        let present: Vec<u64> = self.speakers.iter().filter(|(_, it)| is_present(it)).map(|(it, _)| *it).collect();
        hub.receipts().retain_nodes(&present);
        for process in present.into_iter().filter(|process| !hub.receipts().knows(*process)) {
            let link = link.clone();
            self.tasks.spawn(async move { link.report_all(process).await });
        }
        let is_lost = *self.role.borrow() == Role::Lost;
        let is_heard = !is_lost && (hub.is_home() || self.heard_at.elapsed() < SILENCE_MAX);
        let has_copy = hub.is_home() || self.source.is_some() && self.round.is_none();
        let was = *state.borrow();
        let now = match was {
            _ if !is_heard => CopyState::Apart,
            CopyState::Apart if has_copy => CopyState::Whole,
            known => known, // A copy that is made again does for as long.
        };
        state.send_replace(now);
        is_whole.store(now == CopyState::Whole, Ordering::Relaxed);
        if !is_heard {
            if was == CopyState::Whole {
                warn!("The server that leads is out of reach, so clients are sent away");
            }
            self.closing.spawn(edge.send_away());
        }
    }
}

/// Whether this holds whoever tells it: what every server tells of its own clients, and publications that no channel keeps. These come
/// also from a server of which this one does not know yet that it leads.
fn is_from_anybody(news: &News) -> bool {
    matches!(news, News::Joined { .. } | News::Left { .. } | News::Published { epoch: None, .. })
}
