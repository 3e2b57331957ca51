//! Hears what the other servers of a cluster tell, and keeps this server's copy of the channels in memory equal to the leader's.
//!
//! ```text
//!   another leads ──► all its channels, part by part ──► its news, one after the other
//!                              ▲                                  │
//!                              └────── something is missing ──────┘
//! ```
//!
//! While the parts come, the news are taken, too: the hub knows what of both is newer. Readers of a channel that is not what
//! it was are disconnected (3010) and begin anew.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tidings_cluster::{Heard, Hearing};
use tidings_edge::Edge;
use tidings_hub::{Applied, CopyCursor, Hub, News};
use tidings_protocol::OrderError;
use tidings_store::Role;
use tidings_telemetry::unix_now;
use tidings_types::ChannelName;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{debug, info, warn};

use crate::peers::{Bulletin, Copies, Item, Line, PULSE};

/// Bytes of one message of another server that has several parts.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// A leader that was not heard for so long is out of reach: clients are better off elsewhere. Longer than it takes until
/// another one leads.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// The pause before a part is asked for again.
const RETRY: Duration = Duration::from_millis(200);
/// A server that was not heard for so long is forgotten.
const MEMORY_MAX: Duration = Duration::from_secs(60);

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
    line: Line,
    hub: Arc<Hub>,
    edge: Arc<Edge>,
    role: watch::Receiver<Role>,
    state: watch::Sender<CopyState>,
    /// Who was heard.
    speakers: HashMap<u64, Speaker>,
    /// The process whose channels are copied, or are being copied.
    source: Option<u64>,
    round: Option<Round>,
    /// News came in this round for which a part was missing. The part may be older than they are, so another round follows.
    is_unsure: bool,
    /// When the leader was heard last.
    heard_at: Instant,
    /// Connections that are being closed.
    closing: JoinSet<Result<(), OrderError>>,
    /// Servers that are asked for what they have.
    asking: JoinSet<()>,
}

/// A process that tells news.
struct Speaker {
    /// The number of its next part.
    next: u64,
    /// The parts of a message that is not whole yet.
    begun: BytesMut,
    heard_at: Instant,
}

/// The parts of the leader's channels that are to come.
struct Round {
    cursor: CopyCursor,
    next: Pin<Box<dyn Future<Output = Copies> + Send>>,
}

impl Speaker {
    fn new(next: u64) -> Self {
        Self { next, begun: BytesMut::new(), heard_at: Instant::now() }
    }

    /// Takes a part. Returns the message that it ends, if it does, and whether nothing is missing before.
    fn take(&mut self, heard: &Heard) -> (Option<Bulletin>, bool) {
        let is_next = heard.number == self.next && self.begun.len() <= MESSAGE_BYTES_MAX;
        (self.next, self.heard_at) = (heard.number + 1, Instant::now());
        if !is_next {
            self.begun.clear();
        }
        self.begun.extend_from_slice(&heard.bytes);
        if heard.has_more {
            return (None, is_next);
        }
        // The end of a message whose beginning is missing is not read, most likely.
        let bulletin = serde_json::from_slice(&self.begun.split()).ok();
        let is_read = bulletin.is_some();
        (bulletin, is_next && is_read)
    }
}

impl Copying {
    /// `state` is told how the copy is.
    pub(super) fn new(
        line: Line,
        hub: Arc<Hub>,
        edge: Arc<Edge>,
        role: watch::Receiver<Role>,
        state: watch::Sender<CopyState>,
    ) -> Self {
        Self {
            line,
            hub,
            edge,
            role,
            state,
            speakers: HashMap::new(),
            source: None,
            round: None,
            is_unsure: false,
            heard_at: Instant::now(),
            closing: JoinSet::new(),
            asking: JoinSet::new(),
        }
    }

    /// Goes on until it is dropped.
    pub(super) async fn run(mut self, mut hearing: Hearing) {
        let mut pulse = interval(PULSE);
        pulse.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.find_source();
            let part = async {
                match &mut self.round {
                    Some(round) => round.next.as_mut().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                heard = hearing.next() => match heard {
                    Some(heard) => self.hear(&heard),
                    None => return, // The connection's task has ended, with the process.
                },
                copies = part => self.take_part(copies),
                _ = pulse.tick() => self.look(),
                Some(_closed) = self.closing.join_next() => {}
                Some(_asked) = self.asking.join_next() => {}
            }
        }
    }

    /// Begins to copy from the leader, if it is another one.
    fn find_source(&mut self) {
        if self.hub.is_home() {
            (self.source, self.round) = (None, None);
            return;
        }
        let leader = self.line.leader();
        if leader.is_some() && leader != self.source {
            self.source = leader;
            self.begin_round();
        }
    }

    fn begin_round(&mut self) {
        let Some(source) = self.source else { return };
        self.hub.begin_round();
        self.hub.receipts().report_all(); // The leader may be another one.
        self.is_unsure = false;
        let cursor = CopyCursor::default();
        self.round = Some(Round { cursor: cursor.clone(), next: self.ask(source, cursor, Duration::ZERO) });
    }

    fn ask(&self, source: u64, cursor: CopyCursor, pause: Duration) -> Pin<Box<dyn Future<Output = Copies> + Send>> {
        let line = self.line.clone();
        Box::pin(async move {
            sleep(pause).await;
            line.copies(source, cursor).await
        })
    }

    fn take_part(&mut self, copies: Copies) {
        let (Some(Round { cursor, .. }), Some(source)) = (self.round.take(), self.source) else { return };
        let Some((epoch, copies, next)) = copies else {
            let next = self.ask(source, cursor.clone(), RETRY); // It is about to lead, or a message was lost.
            self.round = Some(Round { cursor, next });
            return;
        };
        self.heard_at = Instant::now();
        if cursor == CopyCursor::default() {
            self.hub.set_memory_epoch(epoch); // Later ones are news.
        }
        let mut restarted = HashSet::new();
        for copy in copies {
            let name = copy.channel.clone();
            if self.hub.take_copy(copy, unix_now()) {
                restarted.insert(name);
            }
        }
        match next {
            Some(cursor) => {
                let next = self.ask(source, cursor.clone(), Duration::ZERO);
                self.round = Some(Round { cursor, next });
            }
            None if self.is_unsure => self.begin_round(),
            None => {
                restarted.extend(self.hub.end_round());
                info!("This server has the channels in memory of the server that leads");
            }
        }
        self.restart(restarted);
        self.look();
    }

    fn hear(&mut self, heard: &Heard) {
        let is_source = Some(heard.process) == self.source && !self.hub.is_home();
        if is_source {
            self.heard_at = Instant::now();
        }
        let is_new = !self.speakers.contains_key(&heard.process);
        let speaker = self.speakers.entry(heard.process).or_insert_with(|| Speaker::new(heard.number));
        let (bulletin, is_whole) = speaker.take(heard);
        let (mut restarted, mut is_missing, mut has_all) = (HashSet::new(), !is_whole, is_whole);
        for item in bulletin.map(|bulletin| bulletin.items).unwrap_or_default() {
            match item {
                Item::Hub(news) if is_source || is_from_anybody(&news) => match self.hub.apply(news, unix_now()) {
                    Applied::Done => {}
                    Applied::Restart(channel) => drop(restarted.insert(channel)),
                    Applied::Missing(_) if self.round.is_some() => self.is_unsure = true,
                    Applied::Missing(_) => is_missing = true,
                },
                Item::Hub(_) => {} // Of a server that led before.
                Item::Report(report) if self.hub.is_home() => {
                    has_all &= self.hub.receipts().take_in(heard.process, report);
                }
                Item::Report(_) => {} // For the leader.
                Item::Replace(user) => drop(self.closing.spawn(self.edge.replace(user))),
                Item::Revoke(device, close) => self.edge.revoke(device, close),
            }
        }
        self.restart(restarted);
        if self.hub.is_home() && !has_all {
            let (line, process) = (self.line.clone(), heard.process);
            self.asking.spawn(async move { line.report_all(process).await });
        }
        if is_source && (is_missing || is_new) {
            debug!("Something of the leader's news is missing, so its channels are copied again");
            self.begin_round();
        }
    }

    /// Readers of these channels begin anew.
    fn restart(&mut self, channels: HashSet<ChannelName>) {
        if !channels.is_empty() {
            self.closing.spawn(self.edge.restart(channels));
        }
    }

    fn look(&mut self) {
        if self.hub.is_home() {
            self.hub.receipts().retain_nodes(&self.line.processes());
        }
        self.speakers.retain(|_, speaker| speaker.heard_at.elapsed() < MEMORY_MAX);
        let is_lost = *self.role.borrow() == Role::Lost;
        let is_heard = !is_lost && (self.hub.is_home() || self.heard_at.elapsed() < SILENCE_MAX);
        let is_whole = self.hub.is_home() || self.source.is_some() && self.round.is_none();
        let now = match *self.state.borrow() {
            _ if !is_heard => CopyState::Apart,
            CopyState::Apart if is_whole => CopyState::Whole,
            known => known, // A copy that is made again does for as long.
        };
        let was = self.state.send_replace(now);
        if now == CopyState::Apart && !is_heard {
            if was == CopyState::Whole {
                warn!("The server that leads is out of reach, so clients are sent away");
            }
            self.closing.spawn(self.edge.send_away());
        }
    }
}

/// Whether every server tells this of its own clients, not only the one that leads of the channels.
fn is_from_anybody(news: &News) -> bool {
    matches!(news, News::Joined { .. } | News::Left { .. })
}
