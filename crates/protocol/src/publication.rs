//! A publication in the protocol: data, the client that published it, labels, and its offset in the channel.
//!
//! It is encoded here, once per channel or reply, and then shared. The component that accepts data and tags bounds
//! them. Data and tags do not show in `Debug`.

use std::sync::Arc;

use tidings_types::{Event, Json, Offset, ReceiptRequest, Tags};

use crate::ClientInfo;
use crate::fields::Fields;

/// What was published in a channel. A clone shares everything.
#[derive(Debug, Clone, PartialEq)]
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
    /// The event whose texts readers get, each in its language; never on the wire. Only in channels with texts.
    pub texts: Option<Arc<Event>>,
}

/// How the data of a publication is written.
#[derive(Debug, Clone, Copy)]
pub enum DataForm<'a> {
    /// As it is.
    Plain,
    /// Whole, for a client that gets deltas: in JSON such a client expects a text.
    Whole,
    /// As the difference to the publication before.
    Delta(&'a str),
}

/// Bytes of an encoded publication besides its texts: names, punctuation, numbers, the client's id.
const FIXED_BYTES: usize = 160;

/// The most bytes of title and body together that a publication carries. No notification has more.
pub const TEXTS_BYTES_MAX: usize = 4096;

impl Publication {
    /// About how many bytes it takes in an answer; rather too many than too few.
    pub fn weight(&self) -> usize {
        let info = self.info.as_ref().map_or(0, |info| info.weight());
        let tags: usize = self.tags.iter().map(|(name, value)| name.len() + value.len() + 6).sum();
        let texts = self.texts.as_ref().map_or(0, |_| TEXTS_BYTES_MAX);
        FIXED_BYTES + self.data.bytes().len() + info + tags + texts
    }

    pub(crate) fn encode(&self, fields: &mut Fields<'_>) {
        self.encode_as(&DataForm::Plain, fields);
    }

    pub(crate) fn encode_as(&self, form: &DataForm<'_>, fields: &mut Fields<'_>) {
        match form {
            DataForm::Plain => fields.json(("data", 4), Some(&self.data)),
            DataForm::Whole => fields.text_always(("data", 4), self.data.as_str()),
            DataForm::Delta(delta) => fields.text_always(("data", 4), delta),
        }
        if let Some(info) = &self.info {
            fields.message(("info", 5), |fields| info.encode(fields));
        }
        fields.number(("offset", 6), self.offset.0);
        if !self.tags.is_empty() {
            fields.map(("tags", 7), self.tags.iter(), |entry, field, value| entry.text_always(field, value));
        }
        fields.flag(("delta", 8), matches!(form, DataForm::Delta(_)));
    }
}
