//! A publication in the protocol: data, the client that published it, labels, and its offset in the channel.
//!
//! It is encoded here, once per channel or reply, and then shared. The component that accepts data and tags bounds
//! them. Data and the texts of tags do not show in `Debug`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidings_types::{Json, Offset, ReceiptRequest};

use crate::ClientInfo;
use crate::fields::Fields;

/// What was published in a channel. A clone shares everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Publication {
    /// Its position in the channel; 0 if the channel has no positions.
    pub offset: Offset,
    /// The published data.
    pub data: Json,
    /// The client that published it, if it was a client.
    pub info: Option<Arc<ClientInfo>>,
    /// Labels; an event's publications carry `event`.
    pub tags: Tags,
    /// The receipts that are wanted from the connections to which it is written; never on the wire.
    pub receipt: Option<ReceiptRequest>,
}

/// Bytes of an encoded publication besides its texts: names, punctuation, numbers, the client's id.
const FIXED_BYTES: usize = 160;

impl Publication {
    /// About how many bytes it takes in an answer; rather too many than too few.
    pub fn weight(&self) -> usize {
        let info = self.info.as_ref().map_or(0, |info| info.weight());
        let tags: usize = self.tags.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        FIXED_BYTES + self.data.bytes().len() + info + tags
    }

    pub(crate) fn encode(&self, fields: &mut Fields<'_>) {
        fields.json(("data", 4), Some(&self.data));
        if let Some(info) = &self.info {
            fields.message(("info", 5), |fields| info.encode(fields));
        }
        fields.number(("offset", 6), self.offset.0);
        if !self.tags.is_empty() {
            fields.map(("tags", 7), self.tags.iter(), |entry, field, value| entry.text_always(field, value));
        }
    }
}

/// Labels of a publication, shared by its clones; without labels nothing is allocated.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Tags(Option<Arc<BTreeMap<String, String>>>);

impl Tags {
    /// The label with this name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// All labels, ordered by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().flat_map(|tags| tags.iter()).map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl From<BTreeMap<String, String>> for Tags {
    fn from(tags: BTreeMap<String, String>) -> Self {
        Self((!tags.is_empty()).then(|| Arc::new(tags)))
    }
}

// Tags are text of the application, which must never appear in a log.
impl fmt::Debug for Tags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tags({})", self.iter().count())
    }
}
