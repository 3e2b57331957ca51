//! Events and durable channels as callers see them, and the sink that is told what has become durable.
//!
//! A [`StoredPublication`] is complete in itself: history is read and restored without the journal, which is trimmed
//! on its own terms. [`DurableChannel`], [`LaterKey`] and `StoredPublication` are also durable forms: what changes in their
//! serde form changes the store's format.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_types::{
    ChannelName, DeviceNumber, Event, JournalPosition, Json, Offset, ParamValue, ReceiptRequest, StreamPosition,
    Subject, Timestamp, TopicName,
};

mod former;
mod later;
mod write;

/// An event to be accepted, with the durable channels it is published in.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The event, checked against the limits.
    pub event: Event,
    /// Where it is published; each name once.
    pub channels: Vec<DurableChannel>,
    /// How many devices its audience may have at most, by leave of whoever handed it in. Not part of its content.
    pub audience_max: Option<u64>,
}

/// A durable channel with the history its namespace grants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableChannel {
    /// Its name.
    pub name: ChannelName,
    /// Publications kept; older ones go in the batch that adds a new one.
    pub history_size: u32,
    /// How long a publication is kept.
    pub history_ttl: Duration,
}

/// The answer to an accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Where it is now.
    pub to: AppendedTo,
    /// It had been accepted before: this is the first answer again, and nothing was done.
    pub repeated: bool,
}

/// Where an accepted event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendedTo {
    /// In the journal.
    Journal {
        /// Its place there.
        position: JournalPosition,
        /// Where it was published.
        published: Vec<(ChannelName, StreamPosition)>,
    },
    /// It waits for its time, and goes into the journal then.
    Later {
        /// When it is due.
        at: Timestamp,
    },
}

impl Appended {
    /// Its place in the journal; `None` when it is not there yet.
    pub fn position(&self) -> Option<JournalPosition> {
        match &self.to {
            AppendedTo::Journal { position, .. } => Some(*position),
            AppendedTo::Later { .. } => None,
        }
    }

    /// Where it was published; nowhere when it is not due yet.
    pub fn published(&self) -> &[(ChannelName, StreamPosition)] {
        match &self.to {
            AppendedTo::Journal { published, .. } => published,
            AppendedTo::Later { .. } => &[],
        }
    }
}

/// Order of the events that are not yet due: the earliest first, those of one moment as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaterKey {
    /// When it is due.
    pub at: Timestamp,
    /// Increases with every such event that is accepted.
    pub arrival: u64,
}

/// An event that was accepted and is not yet due.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterEvent {
    /// Its place among the others.
    pub key: LaterKey,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// As [`NewEvent::audience_max`].
    pub audience_max: Option<u64>,
    /// The event.
    pub event: Event,
}

/// An event of the journal.
#[derive(Debug, Clone, PartialEq)]
pub struct AcceptedEvent {
    /// When it was accepted, or when it was due if that was later; its time to live counts from here.
    pub accepted_at: Timestamp,
    /// Where it was published.
    pub published: Vec<(ChannelName, StreamPosition)>,
    /// As [`NewEvent::audience_max`]: to be checked when its audience is selected.
    pub audience_max: Option<u64>,
    /// The event.
    pub event: Event,
}

/// A publication of a durable channel, complete in itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPublication {
    /// What subscribers are given.
    pub data: Json,
    /// Tags; that of an event is `event`, its id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The publishing client, when a client published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Json>,
    /// When it was published.
    pub time: Timestamp,
    /// What the event asks of the connections it is written to; none for a client's publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptRequest>,
}

// Payloads never reach a log.
impl std::fmt::Debug for StoredPublication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredPublication({} bytes)", self.data.as_str().len())
    }
}

/// A durable channel as it was found at open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoredChannel {
    /// Its name.
    pub name: ChannelName,
    /// The offset of its last publication, kept or not.
    pub top: Offset,
    /// What is kept and has not expired, oldest first, without gaps, ending at `top` unless empty.
    pub publications: Vec<(Offset, StoredPublication)>,
}

/// Told what became durable, on the committer's thread: after the sync, before the acknowledgement, in journal order.
///
/// Nothing is told twice. What became durable although its caller was refused (a disk that failed at the wrong
/// moment) is told as well, after the store is open again. Implementations must not block and not call the store.
pub trait CommitSink: Send + Sync {
    /// A publication was added. Offsets come without gaps, but for the first of a channel, which is behind all floors so far, and where a
    /// row was damaged.
    fn on_publication(
        &self,
        channel: &ChannelName,
        position: StreamPosition,
        publication: &StoredPublication,
        durable: &DurableChannel,
    );

    /// The journal now ends at `end`: every event before it can be read.
    fn on_events(&self, end: JournalPosition);

    /// A channel in which nothing was published for long is forgotten. From now on one that is not there begins at `floor`:
    /// its first publication has a later offset.
    fn on_channel_given_back(&self, _channel: &ChannelName, _floor: Offset) {}

    /// The device of this number is gone, and some time later the number is given to another one: what is known by it is to
    /// be forgotten within some seconds, above all which live connections were proven to be it.
    fn on_device_removed(&self, _: DeviceNumber) {}
}

/// What connected clients are given of an event: its own data, or else what it says of itself.
pub(crate) fn publication_data(event: &Event) -> Json {
    #[derive(Serialize)]
    struct Plain<'a> {
        topic: &'a TopicName,
        subjects: &'a [Subject],
        params: &'a BTreeMap<String, ParamValue>,
    }
    let Event { topic, subjects, params, data, .. } = event;
    data.clone().unwrap_or_else(|| Json::of(&Plain { topic, subjects, params }))
}
