//! `publish` and `broadcast`.
//!
//! With an idempotency key a publication is published once per channel: in a durable channel the store sees to that, also
//! over a crash, and in a memory channel `idempotency` does, until the server ends.
//!
//! A publication whose version is not newer than that of an earlier one in the channel is swallowed. The store and the hub
//! see to that. With `skip_history` a publication goes to the live readers only, also in a durable channel.
//!
//! Bounds, refused with 107: a publication of [`DATA_BYTES_MAX`], tags of [`TAGS_BYTES_MAX`], an idempotency key and a
//! version epoch of [`KEY_BYTES_MAX`].

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use tidings_hub::{Hub, HubError, NewPublication, Version};
use tidings_protocol::{Publication, Tags};
use tidings_store::{DurableChannel, Once, Store, WriteError};
use tidings_telemetry::{chain, unix_now};
use tidings_types::{ChannelName, Json, Offset, StreamPosition};
use tracing::debug;

use super::error::ApiError;
use crate::audited::Note;
use crate::events::durable_channel;
use crate::shared::Shared;

/// The most channels in one broadcast.
pub(super) const CHANNEL_COUNT_MAX: usize = 1000;
const _: () = assert!(CHANNEL_COUNT_MAX == 1000, "the message of `TooManyChannels` says so");
/// Channels or commands of one request in work at a time.
pub(super) const CONCURRENT_MAX: usize = 128;

/// The most bytes of one publication's data.
pub(super) const DATA_BYTES_MAX: usize = 512 << 10;
/// The most bytes of all tags of a publication, names and values together.
pub(super) const TAGS_BYTES_MAX: usize = 4 << 10;
/// The most bytes of an idempotency key, or of a version epoch.
pub(super) const KEY_BYTES_MAX: usize = 255;

/// Parameters of both methods: one has `channel`, the other `channels`.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct PublishRequest<'a> {
    channel: Option<String>,
    channels: Option<Vec<String>>,
    #[serde(borrow, deserialize_with = "present")]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    skip_history: Option<bool>,
    tags: Option<BTreeMap<String, String>>,
    idempotency_key: Option<String>,
    version: Option<u64>,
    version_epoch: Option<String>,
}

/// `null` is data like any other value; only a missing field is no data.
fn present<'de: 'a, 'a, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// What is published, in one channel or many.
struct Content {
    data: Json,
    tags: BTreeMap<String, String>,
    skip_history: bool,
    key: Option<Arc<str>>,
    version: Option<Version>,
}

impl PublishRequest<'_> {
    fn content(&self) -> Result<Content, ApiError> {
        let data = self.data.filter(|_| self.b64data.as_ref().is_none_or(String::is_empty));
        let data = data.filter(|data| data.get().len() <= DATA_BYTES_MAX).ok_or(ApiError::BadRequest)?;
        let tags = self.tags.clone().unwrap_or_default();
        let tags_bytes: usize = tags.iter().map(|(name, value)| name.len() + value.len()).sum();
        let key = self.idempotency_key.as_deref().filter(|key| !key.is_empty());
        if tags_bytes > TAGS_BYTES_MAX || key.is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            return Err(ApiError::BadRequest);
        }
        let skip_history = self.skip_history == Some(true);
        let number = self.version.filter(|number| *number > 0);
        let epoch = self.version_epoch.as_deref().unwrap_or_default();
        if epoch.len() > KEY_BYTES_MAX {
            return Err(ApiError::BadRequest);
        }
        let version = number.map(|number| Version { number, epoch: epoch.into() });
        Ok(Content { data: Json::from_raw(data), tags, skip_history, key: key.map(Arc::from), version })
    }
}

/// Where it was published; empty if the channel keeps no history.
#[derive(Debug, Serialize)]
pub(super) struct Published {
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<Offset>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<tidings_types::Epoch>,
}

/// One channel's part of a broadcast.
#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Result(Published),
    Error { code: u16, message: &'static str },
}

#[derive(Debug, Serialize)]
pub(super) struct Broadcasted {
    responses: Vec<Part>,
}

pub(super) async fn publish(
    shared: &Arc<Shared>,
    request: PublishRequest<'_>,
    note: &Note,
) -> Result<Published, ApiError> {
    request.channel.iter().for_each(|channel| note.touch(channel));
    let content = Arc::new(request.content()?);
    publish_into(shared, request.channel.as_deref().unwrap_or_default(), content).await
}

pub(super) async fn broadcast(
    shared: &Arc<Shared>,
    request: PublishRequest<'_>,
    note: &Note,
) -> Result<Broadcasted, ApiError> {
    request.channels.iter().flatten().for_each(|channel| note.touch(channel));
    let content = Arc::new(request.content()?);
    let channels = request.channels.unwrap_or_default();
    if channels.is_empty() {
        return Err(ApiError::BadRequest);
    }
    if channels.len() > CHANNEL_COUNT_MAX {
        return Err(ApiError::TooManyChannels);
    }
    let parts: Vec<_> = channels.iter().map(|channel| part(shared, channel, content.clone())).collect();
    Ok(Broadcasted { responses: stream::iter(parts).buffered(CONCURRENT_MAX).collect().await })
}

async fn part(shared: &Arc<Shared>, channel: &str, content: Arc<Content>) -> Part {
    publish_into(shared, channel, content).await.map_or_else(
        |error| {
            shared.centrifugo.count(error);
            Part::Error { code: error.code(), message: error.message() }
        },
        Part::Result,
    )
}

async fn publish_into(shared: &Arc<Shared>, channel: &str, content: Arc<Content>) -> Result<Published, ApiError> {
    let channel = ChannelName::new(channel).map_err(|_| ApiError::BadRequest)?;
    let options = shared.hub.options(&channel).map_err(|_| ApiError::UnknownChannel)?;
    if !options.data_format.admits(&content.data) {
        return Err(ApiError::BadRequest);
    }
    let position = if options.durable && !content.skip_history {
        Some(publish_durably(&shared.store, durable_channel(channel, options), &content).await?)
    } else if let Some(key) = content.key.clone() {
        // The delivery must hold no handle to `Shared`, because `Shared` holds the remembered deliveries.
        let (hub, name) = (shared.hub.clone(), channel.clone());
        let delivery = async move { publish_in_memory(&hub, &name, &content) };
        shared.idempotency.once(channel, key, delivery).await?
    } else {
        publish_in_memory(&shared.hub, &channel, &content)?
    };
    Ok(Published { offset: position.map(|position| position.offset), epoch: position.map(|position| position.epoch) })
}

fn publish_in_memory(hub: &Hub, channel: &ChannelName, content: &Content) -> Result<Option<StreamPosition>, ApiError> {
    if !hub.is_home() {
        return Err(ApiError::Internal); // Another server has come to lead meanwhile. Here it would be lost.
    }
    let (data, tags) = (content.data.clone(), Tags::from(content.tags.clone()));
    let publication = Publication { offset: Offset(0), data, info: None, tags, receipt: None, texts: None };
    let new = NewPublication { publication, skip_history: content.skip_history };
    hub.publish_newer(channel, new, content.version.as_ref(), unix_now()).map_err(|error| {
        debug!(error = chain(&error), "Cannot publish");
        if matches!(error, HubError::ChannelLimit { .. }) { ApiError::NoRoom } else { ApiError::Internal }
    })
}

async fn publish_durably(
    store: &Store,
    channel: DurableChannel,
    content: &Content,
) -> Result<StreamPosition, ApiError> {
    let (data, tags) = (content.data.clone(), content.tags.clone());
    let version = content.version.as_ref();
    let version = version.map(|version| tidings_store::Version { number: version.number, epoch: &version.epoch });
    let once = Once { key: content.key.as_deref(), version };
    store.append_publication_once(channel, once, data, tags, unix_now()).await.map_err(|error| {
        debug!(error = chain(&error), "Cannot publish");
        if matches!(error, WriteError::Overloaded { .. }) { ApiError::NoRoom } else { ApiError::Internal }
    })
}
