//! What is kept of a feed: how far it was read, and the entries that are known, so that none is sent twice.
//!
//! The store knows an entry by a key of 16 bytes that the caller makes. It keeps as many entries as the caller puts and
//! does not take back: the caller has the bound, because it knows which entries a feed still has.
//!
//! Bound: [`FEED_COUNT_MAX`] feeds. For a further one, the feed that changed the longest time ago is forgotten with its
//! entries.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tidings_types::Timestamp;

pub(crate) mod rows;
mod write;

/// Feeds whose state is kept, configured or not: four times as many as a configuration may have.
pub const FEED_COUNT_MAX: usize = 256;

/// A known entry: its key, and when it was last seen, as a number that grows.
pub type FeedEntry = ([u8; 16], u64);

/// What is kept of a feed, except its entries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeedState {
    /// By what the server knows the newest document that was read to its end.
    #[serde(default)]
    pub validator: FeedValidator,
    /// A document of this feed was once read to its end.
    #[serde(default)]
    pub is_begun: bool,
    /// Files that were read to their end, by name.
    #[serde(default)]
    pub files: BTreeMap<String, FileMark>,
    /// When this state was written.
    pub at: Timestamp,
}

/// With these values a server answers whether its document has changed (RFC 9110, 13.1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FeedValidator {
    /// A hash of where and how the document was read. With another address or mapping, the rest says nothing.
    #[serde(default)]
    pub source: u64,
    /// The `ETag`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// The `Last-Modified`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
}

/// By what a file is known that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileMark {
    /// Its size.
    pub bytes: u64,
    /// When it was changed, in nanoseconds since 1970.
    pub modified_nanos: u64,
}

/// All that is kept of a feed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeptFeed {
    /// How far it was read.
    pub state: FeedState,
    /// The known entries.
    pub entries: Vec<FeedEntry>,
}

/// A change of what is kept of a feed; it is made as a whole or not at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedChange {
    /// How far it was read.
    pub state: FeedState,
    /// Entries that are known now.
    pub seen: Vec<FeedEntry>,
    /// Entries that are forgotten.
    pub forgotten: Vec<[u8; 16]>,
}
