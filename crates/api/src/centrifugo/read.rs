//! `history`, `presence`, `presence_stats`, `channels` and `info`, which change nothing, and `history_remove`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use tidings_hub::{HubError, LOAD_TIMEOUT, Wanted};
use tidings_protocol::{ClientId, ClientInfo, NamespaceOptions, Publication, Tags};
use tidings_stream::HistoryFilter;
use tidings_telemetry::chain;
use tidings_types::{ChannelName, Epoch, Json, Offset};
use tokio::time::timeout;
use tracing::debug;

use super::answer::{ANSWER_BYTES_MAX, Done};
use super::error::ApiError;
use super::glob::glob;
use crate::audited::Note;
use crate::ports::NodeView;
use crate::shared::Shared;

/// The most publications that are read: more than fit into an answer, where each takes at least
/// `{"data":1,"offset":1}`.
const COUNT_MAX: usize = ANSWER_BYTES_MAX / 21;

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct HistoryRequest {
    channel: Option<String>,
    limit: Option<i32>,
    since: Option<Since>,
    reverse: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Since {
    offset: Option<u64>,
    epoch: Option<String>,
}

/// All fields are always written.
#[derive(Debug, Serialize)]
pub(super) struct HistoryResult {
    publications: Vec<PublicationResult>,
    epoch: Epoch,
    offset: Offset,
}

impl HistoryRequest {
    /// The publications that the page may have; `None`: none.
    fn wanted(&self) -> Option<Wanted<'_>> {
        if self.limit.unwrap_or_default() == 0 {
            return None;
        }
        let since = self.since.as_ref().filter(|_| self.reverse != Some(true));
        Some(match since {
            Some(Since { offset, epoch }) => {
                Wanted::After(Offset(offset.unwrap_or_default()), epoch.as_deref().unwrap_or_default())
            }
            None => Wanted::Any,
        })
    }
}

#[derive(Debug, Serialize)]
struct PublicationResult {
    data: Json,
    #[serde(skip_serializing_if = "Option::is_none")]
    info: Option<Arc<ClientInfo>>,
    offset: Offset,
    #[serde(skip_serializing_if = "Tags::is_empty", serialize_with = "tags")]
    tags: Tags,
}

fn tags<S: Serializer>(tags: &Tags, serializer: S) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(None)?;
    tags.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))?;
    map.end()
}

/// Reads the publications from the disk if they are not in memory.
pub(super) async fn load(shared: &Shared, request: &HistoryRequest) {
    if let Ok((channel, _)) = channel(shared, request.channel.as_deref())
        && let Some(load) = request.wanted().and_then(|wanted| shared.hub.load(&channel, wanted))
    {
        let _ = timeout(LOAD_TIMEOUT, load).await; // Too late: they are lacking.
    }
}

pub(super) fn history(shared: &Shared, request: &HistoryRequest) -> Result<HistoryResult, ApiError> {
    let (channel, options) = channel(shared, request.channel.as_deref())?;
    if !options.has_history() {
        return Err(ApiError::NotAvailable);
    }
    if request.wanted().is_some_and(|wanted| shared.hub.lacks(&channel, wanted)) {
        return Err(ApiError::Internal); // They could not be read.
    }
    let limit = usize::try_from(request.limit.unwrap_or_default()).ok(); // A negative one means all.
    let filter = HistoryFilter {
        since: request.since.as_ref().map(|since| Offset(since.offset.unwrap_or_default())),
        limit: Some(limit.map_or(COUNT_MAX, |limit| limit.min(COUNT_MAX))),
        reverse: request.reverse == Some(true),
        bytes_max: None,
    };
    let (publications, top) = shared.hub.history(&channel, filter).map_err(|error| match error {
        HubError::UnknownNamespace(_) => ApiError::UnknownChannel,
        HubError::ChannelLimit { .. } => ApiError::NoRoom,
        HubError::Gap(_) => ApiError::Internal,
    })?;
    let since_epoch = request.since.as_ref().and_then(|since| since.epoch.as_deref()).unwrap_or_default();
    if !since_epoch.is_empty() && since_epoch != top.epoch.as_str() {
        return Err(ApiError::UnrecoverablePosition);
    }
    let result = |Publication { offset, data, info, tags, .. }| PublicationResult { data, info, offset, tags };
    let publications = publications.into_iter().map(result).collect();
    Ok(HistoryResult { publications, epoch: top.epoch, offset: top.offset })
}

pub(super) async fn history_remove(shared: &Shared, request: &ChannelRequest, note: &Note) -> Result<Done, ApiError> {
    request.channel.iter().for_each(|channel| note.touch(channel));
    let (channel, options) = channel(shared, request.channel.as_deref())?;
    if !options.has_history() {
        return Err(ApiError::NotAvailable);
    }
    if options.durable {
        shared.store.remove_history(&channel).await.map_err(|error| {
            debug!(error = chain(&error), "Cannot remove a history");
            ApiError::Internal
        })?; // The journal tells the hub.
    } else {
        shared.hub.remove_history(&channel, None);
    }
    Ok(Done {})
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ChannelsRequest {
    pattern: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct ChannelsResult {
    channels: BTreeMap<ChannelName, ChannelResult>,
}

#[derive(Debug, Default, Serialize)]
struct ChannelResult {
    num_clients: usize,
}

/// The channels that have subscribers.
pub(super) async fn channels(shared: &Shared, request: &ChannelsRequest) -> Result<ChannelsResult, ApiError> {
    let pattern = request.pattern.as_deref().filter(|pattern| !pattern.is_empty()).unwrap_or("*");
    let glob = glob(pattern).ok_or(ApiError::BadRequest)?;
    let there = match &shared.node.others {
        Some(others) => others.channels().await,
        None => Vec::new(),
    };
    let there = there.into_iter().filter(|(name, _)| glob.matches(name.as_str()));
    let mut channels = BTreeMap::<_, ChannelResult>::new();
    for (name, count) in shared.hub.read_channels(|name| glob.matches(name)).into_iter().chain(there) {
        channels.entry(name).or_default().num_clients += count;
    }
    Ok(ChannelsResult { channels })
}

/// Parameters of methods that need only a channel.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct ChannelRequest {
    channel: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct PresenceResult {
    presence: BTreeMap<ClientId, ClientInfo>,
}

pub(super) async fn presence(shared: &Shared, request: &ChannelRequest) -> Result<PresenceResult, ApiError> {
    let channel = channel_with_presence(shared, request)?;
    let there = match &shared.node.others {
        Some(others) => others.presence(channel.clone()).await.ok_or(ApiError::AnswerTooLarge)?,
        None => Vec::new(),
    };
    let all = shared.hub.presence(&channel).into_iter().chain(there);
    Ok(PresenceResult { presence: all.map(|info| (info.client, info)).collect() })
}

/// All fields are always written.
#[derive(Debug, Serialize)]
pub(super) struct PresenceStatsResult {
    num_clients: u64,
    num_users: u64,
}

pub(super) async fn presence_stats(shared: &Shared, request: &ChannelRequest) -> Result<PresenceStatsResult, ApiError> {
    let channel = channel_with_presence(shared, request)?;
    let there = match &shared.node.others {
        Some(others) => others.presence_stats(channel.clone()).await,
        None => (0, 0),
    };
    let here = shared.hub.presence_stats(&channel);
    Ok(PresenceStatsResult { num_clients: here.0 + there.0, num_users: here.1 + there.1 })
}

#[derive(Debug, Serialize)]
pub(super) struct InfoResult {
    nodes: Vec<NodeView>,
}

pub(super) async fn info(shared: &Shared) -> InfoResult {
    let node = &shared.node;
    let (clients, hub) = ((node.clients)(), shared.hub.counts());
    let this = NodeView {
        uid: node.uid.clone(),
        name: node.name.clone(),
        version: node.version.clone(),
        num_clients: clients.connections,
        num_users: clients.users,
        num_subs: hub.subscriptions,
        num_channels: hub.channels,
        uptime: shared.started.elapsed().as_secs(),
    };
    let mut nodes = vec![this];
    if let Some(others) = &node.others {
        nodes.extend(others.nodes().await);
    }
    InfoResult { nodes }
}

fn channel_with_presence(shared: &Shared, request: &ChannelRequest) -> Result<ChannelName, ApiError> {
    let (channel, options) = channel(shared, request.channel.as_deref())?;
    if options.presence { Ok(channel) } else { Err(ApiError::NotAvailable) }
}

fn channel<'s>(shared: &'s Shared, name: Option<&str>) -> Result<(ChannelName, &'s NamespaceOptions), ApiError> {
    let channel = ChannelName::new(name.unwrap_or_default()).map_err(|_| ApiError::BadRequest)?;
    let options = shared.hub.options(&channel).map_err(|_| ApiError::UnknownChannel)?;
    Ok((channel, options))
}
