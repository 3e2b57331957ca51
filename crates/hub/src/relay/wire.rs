//! The serde form of publications between nodes.
//!
//! It has what a memory channel keeps. Receipts are asked for only by the journal's publications, so it has none.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tidings_protocol::{ClientInfo, Publication};
use tidings_types::{Event, Json, Offset, ReceiptRequest, Tags};

/// One publication.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Publication")]
pub(super) struct One {
    #[serde(rename = "o", default)]
    offset: Offset,
    #[serde(rename = "d")]
    data: Json,
    #[serde(rename = "i", default, skip_serializing_if = "Option::is_none")]
    info: Option<Arc<ClientInfo>>,
    #[serde(rename = "g", default, with = "Labels", skip_serializing_if = "Tags::is_empty")]
    tags: Tags,
    #[serde(skip)]
    receipt: Option<ReceiptRequest>,
    #[serde(rename = "x", default, skip_serializing_if = "Option::is_none")]
    texts: Option<Arc<Event>>,
}

/// The tags of a publication.
struct Labels;

impl Labels {
    fn serialize<S: Serializer>(tags: &Tags, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(tags.iter())
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tags, D::Error> {
        BTreeMap::deserialize(deserializer).map(Tags::from)
    }
}

/// A list of publications.
pub(super) struct Many;

impl Many {
    pub(super) fn serialize<S: Serializer>(list: &[Publication], serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Item<'a>(#[serde(with = "One")] &'a Publication);
        serializer.collect_seq(list.iter().map(Item))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Publication>, D::Error> {
        #[derive(Deserialize)]
        struct Item(#[serde(with = "One")] Publication);
        let items = Vec::<Item>::deserialize(deserializer)?;
        Ok(items.into_iter().map(|Item(publication)| publication).collect())
    }
}
