//! Durable channels as callers see them.
//!
//! A [`StoredPublication`] is complete in itself: history is read and restored without the journal, which is trimmed
//! on its own terms. It and [`DurableChannel`] are also durable forms: what changes in their serde form changes the
//! store's format.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidings_types::{ChannelName, Json, Offset, ReceiptRequest, Timestamp};

mod keys;
mod read;
pub(crate) mod rows;
mod trim;
mod write;

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
