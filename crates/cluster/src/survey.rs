//! A cluster from outside, for operators: who leads, how each node is, whether the log is whole; and the request to move the
//! lead. It asks NATS, not the nodes, so it also works when no node runs.

use std::collections::BTreeMap;
use std::time::Duration;

use async_nats::jetstream::context::{DeleteStreamError, DeleteStreamErrorKind};
use async_nats::jetstream::{self, Context, ErrorCode};
use async_nats::{Client, RequestErrorKind};
use futures_util::StreamExt as _;
use serde::Serialize;
use tidings_store::LogError;
use tokio::time::{Instant, timeout_at};

use crate::copies::Copies;
use crate::entry::{Content, Entry, hash};
use crate::jetstream::{LogState, Trimmer};
use crate::lease::{Answer, Holder};
use crate::node::{ClusterConfig, ClusterError, NodeReport, REPORT_INTERVAL, connect_once};
use crate::register::Register;

/// How long a survey listens to the nodes: each says twice how it is.
const LISTEN: Duration = Duration::from_millis(2 * REPORT_INTERVAL.as_millis() as u64 + 100);

/// The cluster now.
#[derive(Debug, Clone, Serialize)]
pub struct ClusterStatus {
    /// Who has the lease, or had it last.
    pub lease: Option<Holder>,
    /// The log; `None`: there is none yet.
    pub log: Option<LogState>,
    /// How far in the log the copy for new nodes is; `None`: there is none yet.
    pub copy: Option<u64>,
    /// The nodes that work, by name.
    pub nodes: Vec<NodeReport>,
}

/// A log that was read from its first entry to its last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Checked {
    /// The number of the first entry.
    pub first: u64,
    /// The number of the last entry.
    pub last: u64,
    /// Entries that begin a term: changes of the leader.
    pub terms: u64,
    /// Entries that are a record or a part of one.
    pub parts: u64,
    /// Bytes of all entries.
    pub bytes: u64,
}

/// The request was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// NATS cannot be used.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// NATS did not answer in time.
    #[error("NATS does not answer")]
    Unreached,
    /// Nobody can give the lead away.
    #[error("no node leads now")]
    NoLeader,
    /// No working node has this name.
    #[error("no node that works is called {0}")]
    NoNode(String),
    /// The node cannot lead now.
    #[error("{0} cannot lead now: see `tidings cluster status`")]
    NotReady(String),
    /// No other node can lead now.
    #[error("no other node can lead now: see `tidings cluster status`")]
    NobodyReady,
    /// The node may not lead.
    #[error("{0} may not lead: set cluster.may_lead there, or choose another node")]
    MayNot(String),
    /// A node works, so nothing is deleted.
    #[error("{0} works: stop all servers first")]
    Works(String),
    /// There is no log.
    #[error("the cluster has no log yet")]
    NoLog,
    /// The log is not whole.
    #[error(transparent)]
    Log(#[from] LogError),
}

/// Whether there is no such stream.
fn is_missing(error: &DeleteStreamError) -> bool {
    matches!(error.kind(), DeleteStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND)
}

/// A cluster that is looked at.
pub struct Survey {
    client: Client,
    context: Context,
    config: ClusterConfig,
}

impl std::fmt::Debug for Survey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Survey").field("cluster", &self.config.name).finish_non_exhaustive()
    }
}

impl Survey {
    /// Connects to NATS.
    ///
    /// # Errors
    /// When NATS does not answer or refuses.
    pub async fn connect(config: ClusterConfig) -> Result<Self, SurveyError> {
        let client = connect_once(&config).await?;
        Ok(Self { context: jetstream::new(client.clone()), client, config })
    }

    /// Looks at everything. Listens to the nodes for two seconds.
    ///
    /// # Errors
    /// When NATS does not answer.
    pub async fn status(&self) -> Result<ClusterStatus, SurveyError> {
        let nodes = self.nodes().await?;
        let log = match Trimmer::open(&self.context, &self.config.name).await {
            Some(trimmer) => trimmer.state().await,
            None => None,
        };
        let copy = match Copies::find(&self.context, &self.config.name).await {
            Some(copies) => copies.sequence().await.map_err(ClusterError::from)?,
            None => None,
        };
        Ok(ClusterStatus { lease: self.lease().await?, log, copy, nodes })
    }

    /// Who has the lease, or had it last.
    async fn lease(&self) -> Result<Option<Holder>, SurveyError> {
        let Some(register) = Register::find(self.context.clone(), &self.config.name).await else { return Ok(None) };
        match register.look().await {
            Answer::Has(_, holder) => Ok(holder.map(|holder| Holder { secret: None, ..holder })),
            _ => Err(SurveyError::Unreached),
        }
    }

    async fn nodes(&self) -> Result<Vec<NodeReport>, SurveyError> {
        let subject = format!("{}.node.*", self.config.name);
        let mut heard = self.client.subscribe(subject).await.map_err(|_| SurveyError::Unreached)?;
        let (end, mut nodes) = (Instant::now() + LISTEN, BTreeMap::new());
        while let Ok(Some(message)) = timeout_at(end, heard.next()).await {
            if let Ok(report) = serde_json::from_slice::<NodeReport>(&message.payload) {
                nodes.insert(report.node.clone(), report);
            }
        }
        Ok(nodes.into_values().collect())
    }

    /// Asks the leader to give the lead to this node, or to any other one. Returns the name of the leader that has been
    /// asked, which then stops what it does; it may take some seconds.
    ///
    /// # Errors
    /// When nobody leads, or there is no such node, or it cannot lead.
    pub async fn ask_to_move(&self, to: Option<String>) -> Result<String, SurveyError> {
        let nodes = self.nodes().await?;
        match &to {
            None if !nodes.iter().any(NodeReport::can_lead) => return Err(SurveyError::NobodyReady),
            None => {}
            Some(to) => match nodes.into_iter().find(|node| node.node == *to) {
                None => return Err(SurveyError::NoNode(to.clone())),
                Some(node) if !node.may_lead => return Err(SurveyError::MayNot(node.node)),
                Some(node) if !node.can_lead() => return Err(SurveyError::NotReady(node.node)),
                Some(_) => {}
            },
        }
        let payload = serde_json::to_vec(&to).unwrap_or_default();
        match self.client.request(format!("{}.move", self.config.name), payload.into()).await {
            Ok(answer) => Ok(String::from_utf8_lossy(&answer.payload).into_owned()),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Err(SurveyError::NoLeader),
            Err(error) if error.kind() == RequestErrorKind::TimedOut => Err(SurveyError::NoLeader),
            Err(_) => Err(SurveyError::Unreached),
        }
    }

    /// Who leads: has the lease and has not given it back.
    ///
    /// # Errors
    /// When NATS does not answer.
    pub async fn leader(&self) -> Result<Option<Holder>, SurveyError> {
        Ok(self.lease().await?.filter(|holder| !holder.released))
    }

    /// Deletes the log, the lease and the copy for new nodes. The first node that starts then begins a new log with what its
    /// store has.
    ///
    /// # Errors
    /// [`SurveyError::Works`] while a node runs; also when NATS does not answer.
    pub async fn forget(&self) -> Result<(), SurveyError> {
        if let Some(node) = self.nodes().await?.into_iter().next() {
            return Err(SurveyError::Works(node.node));
        }
        let name = &self.config.name;
        // The log goes last: a copy of another log must not be beside a new one.
        for stream in [format!("OBJ_{name}_copy"), format!("{name}_lease"), name.clone()] {
            match self.context.delete_stream(&stream).await {
                Ok(_) => {}
                Err(error) if is_missing(&error) => {}
                Err(_) => return Err(SurveyError::Unreached),
            }
        }
        Ok(())
    }

    /// Reads the log and checks that each entry follows on the one before. Calls `progress` with the number of each entry
    /// and of the last one.
    ///
    /// # Errors
    /// [`SurveyError::Log`] where the log is not whole; also when there is none, or NATS does not answer.
    pub async fn check(&self, mut progress: impl FnMut(u64, u64)) -> Result<Checked, SurveyError> {
        let log = Trimmer::open(&self.context, &self.config.name).await.ok_or(SurveyError::NoLog)?;
        let LogState { first, last, .. } = log.state().await.ok_or(SurveyError::Unreached)?;
        let mut checked = Checked { first, last, terms: 0, parts: 0, bytes: 0 };
        let mut before: Option<(u128, u64)> = None;
        for sequence in first..=last {
            let bytes = log.entry(sequence).await.ok_or(SurveyError::Unreached)?;
            let lost = |what: &str| LogError::Lost(format!("entry {sequence} {what}"));
            let bytes = bytes.ok_or_else(|| lost("is missing"))?;
            let entry = Entry::decode(&bytes).ok_or_else(|| lost("is not written by this program"))?;
            if before.is_some_and(|(before, _)| before != entry.before) {
                return Err(lost("follows on another entry than the one before").into());
            }
            if before.is_some_and(|(_, term)| entry.term < term) {
                return Err(lost("is of an earlier term than the one before").into());
            }
            before = Some((hash(&bytes), entry.term));
            checked.bytes += bytes.len() as u64;
            match entry.content {
                Content::Term => checked.terms += 1,
                Content::Part { .. } => checked.parts += 1,
            }
            progress(sequence, last);
        }
        Ok(checked)
    }
}
