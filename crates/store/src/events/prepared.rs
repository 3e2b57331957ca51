//! An event on its way to the committer, with everything that the caller's task can compute.

use tidings_types::{Event, EventId, Json, ReceiptTerms, Timestamp, TraceContext};

use crate::channels::DurableChannel;
use crate::events::{NewEvent, publication_data, texts};
use crate::hash::{Hash16, Hash32, hash16, hash32};
use crate::rows::parts::encode;
use crate::weight;

pub(crate) struct PreparedEvent {
    pub(crate) id: EventId,
    pub(crate) id_hash: Hash16,
    /// Hash of `json`. Two events with the same id and content are the same event.
    pub(crate) content: Hash32,
    pub(crate) json: Vec<u8>,
    /// The data of its publications.
    pub(crate) data: Json,
    /// What its texts are made of, if one of its channels has texts.
    pub(crate) texts: Option<Box<Event>>,
    pub(crate) channels: Vec<DurableChannel>,
    /// The receipts that its publications ask for.
    pub(crate) receipt: Option<ReceiptTerms>,
    pub(crate) audience_max: Option<u64>,
    pub(crate) trace: Option<Box<TraceContext>>,
    /// When it is due, if that is later than now.
    pub(crate) later_at: Option<Timestamp>,
}

impl PreparedEvent {
    pub(crate) fn bytes(&self) -> usize {
        self.json.len() + (self.data.bytes().len() + weight::PUBLICATION) * self.channels.len() + weight::EVENT
    }
}

pub(crate) fn prepare(NewEvent { mut event, channels, audience_max }: NewEvent, now: Timestamp) -> PreparedEvent {
    let json = encode(&event);
    PreparedEvent {
        id_hash: hash16(event.id.as_str().as_bytes()),
        content: hash32(&json),
        data: publication_data(&event),
        texts: texts(&event, &channels),
        receipt: event.receipt_terms(now),
        later_at: event.at.filter(|at| *at > now),
        trace: event.trace.take(),
        id: event.id,
        json,
        channels,
        audience_max,
    }
}
