//! Answers what other servers of a cluster ask.

use std::sync::Arc;

use serde::Serialize;
use tidings_api::NodeView;
use tidings_cluster::{PART_BYTES_MAX, Questions};
use tidings_edge::{Edge, Publisher};
use tidings_hub::{Hub, NewPublication};
use tidings_protocol::{EmulationRequest, ErrorCode, Publication};
use tidings_store::Store;
use tidings_telemetry::memory::Term;
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::unix_now;
use tidings_types::Offset;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::debug;

use super::pass::HAND_OVER_MAX;
use super::peers::{Copies, PeerLink, Question};
use super::publisher::publish_at_home;
use crate::listeners::Routes;

/// Answers that are being made at a time. Further questions wait in the client library, which drops what is too many.
const ANSWER_COUNT_MAX: usize = 256;
/// Publications that wait for the journal. One more is refused.
const PUBLISH_COUNT_MAX: usize = 1024;

/// Copies of a question: as it came, and as it was read.
const COPIES: usize = 2;

/// What questions may take that are answered, or wait for the journal. Answers are in no term.
pub(super) fn memory_terms() -> Vec<Term> {
    let count = ANSWER_COUNT_MAX + PUBLISH_COUNT_MAX;
    vec![Term::peak("questions of servers", count, COPIES * PART_BYTES_MAX, "cluster.servers")]
}

/// What answers are made of.
pub(super) struct Answers {
    pub(super) hub: Arc<Hub>,
    pub(super) edge: Arc<Edge>,
    pub(super) store: Store,
    pub(super) journal: Arc<dyn Publisher>,
    /// As the API calls this server.
    pub(super) uid: String,
    pub(super) name: String,
    pub(super) started: Instant,
    /// Something while this server leads.
    pub(super) leading: watch::Receiver<Option<Routes>>,
    pub(super) link: PeerLink,
}

impl Answers {
    /// Goes on until it is dropped.
    pub(super) async fn run(self, mut questions: Questions) {
        let (this, mut tasks, mut publishing) = (Arc::new(self), JoinSet::new(), JoinSet::new());
        loop {
            tokio::select! {
                asked = questions.next(), if tasks.len() < ANSWER_COUNT_MAX => {
                    let Some(asked) = asked else { return };
                    let Ok(question) = serde_json::from_slice(&asked.bytes) else {
                        debug!("Another server asks what this one does not understand"); // It is of a later version.
                        continue;
                    };
                    let is_publish = matches!(question, Question::Publish { .. });
                    let is_full = is_publish && publishing.len() >= PUBLISH_COUNT_MAX;
                    let this = this.clone();
                    let answer = async move {
                        let answer = match is_full {
                            true => bytes(&Err::<(), _>(ErrorCode::TooManyRequests)),
                            false => this.find(question).await,
                        };
                        asked.answer(&answer).await;
                    };
                    let tasks = if is_publish && !is_full { &mut publishing } else { &mut tasks };
                    tasks.spawn(panics::catch_async(Work::Connection, answer));
                }
                Some(_answered) = tasks.join_next() => {}
                Some(_answered) = publishing.join_next() => {}
            }
        }
    }

    async fn find(&self, question: Question) -> Vec<u8> {
        match question {
            Question::Publish { channel, data, info, tags, skip_history } => {
                let (offset, info, tags) = (Offset(0), info.map(Arc::new), tags.into());
                let publication = Publication { offset, data, info, tags, receipt: None, texts: None };
                let new = NewPublication { publication, skip_history };
                let is_home = self.hub.is_home() || self.comes_to_lead().await;
                bytes(&match is_home {
                    true => Some(publish_at_home(&self.hub, &*self.journal, channel, new).await),
                    false => None,
                })
            }
            Question::Seen(device) => bytes(&self.store.touch(&device, unix_now()).await.is_ok()),
            Question::Announce { process, devices, number } => {
                bytes(&self.hub.receipts().take_announced(process, &devices, number))
            }
            Question::Copies(cursor) => {
                let copies: Copies = self.hub.is_home().then(|| {
                    let epoch = self.hub.memory_epoch(); // Before: channels that begin meanwhile have it or a later one.
                    let (copies, next) = self.hub.copies(cursor, PART_BYTES_MAX);
                    (epoch, copies, next)
                });
                bytes(&copies)
            }
            Question::ReportAll => bytes(&self.hub.receipts().report_all()),
            Question::Presence(channel, bytes_max) => bytes(&self.hub.presence_within(&channel, bytes_max)),
            Question::PresenceStats(channel) => bytes(&self.hub.presence_stats(&channel)),
            Question::Channels => bytes(&self.hub.read_channels(|_| true)),
            Question::Node => bytes(&self.node()),
            Question::Emulate { node, session, data } => {
                bytes(&self.edge.take_emulated(EmulationRequest { node, session, data }))
            }
            Question::Order(target, order) => bytes(&self.edge.order(target, order).await),
            Question::Connections(target) => bytes(&self.edge.connections(target).await),
        }
    }

    fn node(&self) -> NodeView {
        let counts = self.hub.counts();
        NodeView {
            uid: self.uid.clone(),
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            num_clients: self.edge.connection_count(),
            num_users: self.edge.user_count(),
            num_subs: counts.subscriptions,
            num_channels: counts.channels,
            uptime: self.started.elapsed().as_secs(),
        }
    }

    /// Waits a moment for this server to lead, while it has the lease. One that does not have it, or gives it back, does not.
    async fn comes_to_lead(&self) -> bool {
        let mut leading = self.leading.clone();
        tokio::select! {
            () = self.link.is_not_leader() => false,
            led = timeout(HAND_OVER_MAX, leading.wait_for(Option::is_some)) => matches!(led, Ok(Ok(_))),
        }
    }
}

fn bytes(answer: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).unwrap_or_default() // Nothing here fails; without an answer the asker goes on.
}
