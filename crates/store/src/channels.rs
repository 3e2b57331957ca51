//! Durable channels as callers see them.
//!
//! A [`StoredPublication`] is complete: history is read and restored without the journal, which is trimmed independently.
//! Rows contain it and [`DurableChannel`] as JSON. So a change of their serde form changes the store's format.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, Event, Json, Offset, ReceiptRequest, Timestamp, TraceContext};

mod keys;
mod read;
mod remove;
pub(crate) mod rows;
pub(crate) mod trim;
mod write;

/// A durable channel with the history settings of its namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DurableChannel {
    /// Its name.
    pub name: ChannelName,
    /// Publications kept. The batch that adds a new one deletes older ones.
    pub history_size: u32,
    /// How long a publication is kept.
    pub history_ttl: Duration,
    /// The publications of events keep what the events' texts are made of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_texts: bool,
}

/// A publication of a durable channel.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredPublication {
    /// The data for subscribers.
    pub data: Json,
    /// Tags. The publication of an event has the tag `event` with its id.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// The publishing client, if a client published it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub info: Option<Json>,
    /// When it was published.
    pub time: Timestamp,
    /// The receipts that the event asks for; none for a client's publication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptRequest>,
    /// In a channel with texts: the event, as far as its texts are made of it ([`Event::texts_only`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Box<Event>>,
    /// The event's trace; known only while it is published, and not in the row.
    #[serde(skip)]
    pub trace: Option<Box<TraceContext>>,
}

/// What makes a publication be swallowed instead of published a second time.
#[derive(Debug, Clone, Copy, Default)]
pub struct Once<'a> {
    /// An earlier publication in the channel has this idempotency key.
    pub key: Option<&'a str>,
    /// An earlier publication in the channel has this version or a later one, in the same version epoch.
    pub version: Option<Version<'a>>,
}

/// Which of several publications about one thing is newer.
#[derive(Debug, Clone, Copy)]
pub struct Version<'a> {
    /// Grows with each change of the thing.
    pub number: u64,
    /// One life of the numbers; numbers of two lives are not compared.
    pub epoch: &'a str,
}

// Payloads never reach a log.
impl std::fmt::Debug for StoredPublication {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StoredPublication({} bytes)", self.data.as_str().len())
    }
}

/// A durable channel as found when the store is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoredChannel {
    /// Its name.
    pub name: ChannelName,
    /// The offset of its last publication, kept or not.
    pub top: Offset,
    /// When the last publication was added, or when the last scheduled event is due if that is later.
    pub published_at: Timestamp,
}
