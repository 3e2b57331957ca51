//! Events as callers see them: to be accepted, in the journal, scheduled for later.
//!
//! [`LaterKey`] is also a durable form: a change of its serde form is another format of the store.

use std::collections::BTreeMap;

use crate::channels::DurableChannel;
use serde::{Deserialize, Serialize};
use tidings_types::{
    ChannelName, Event, JournalPosition, Json, ParamValue, StreamPosition, Subject, Timestamp, TopicName,
};

mod former;
mod later;
pub(crate) mod prepared;
pub(crate) mod read;
pub(crate) mod rows;
mod trim;
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
