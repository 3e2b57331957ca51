//! Events as callers see them: new, in the journal, or scheduled.
//!
//! Rows contain [`LaterKey`] as JSON. So a change of its serde form changes the store's format.

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

/// An event to be accepted, with the durable channels in which it is published.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// The event, checked against the limits.
    pub event: Event,
    /// The channels in which it is published; each name once.
    pub channels: Vec<DurableChannel>,
    /// How many devices its audience may have at most, as its producer allows. Not part of the event's content.
    pub audience_max: Option<u64>,
}

/// The answer to an accepted event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appended {
    /// Where it is now.
    pub to: AppendedTo,
    /// It was accepted before. This is the first answer again, and nothing was done.
    pub repeated: bool,
}

/// Where an accepted event is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendedTo {
    /// In the journal.
    Journal {
        /// Its position.
        position: JournalPosition,
        /// The channels and positions at which it was published.
        published: Vec<(ChannelName, StreamPosition)>,
    },
    /// It is scheduled, and moves into the journal when it is due.
    Later {
        /// When it is due.
        at: Timestamp,
    },
}

impl Appended {
    /// Its position in the journal; `None` while it is scheduled.
    pub fn position(&self) -> Option<JournalPosition> {
        match &self.to {
            AppendedTo::Journal { position, .. } => Some(*position),
            AppendedTo::Later { .. } => None,
        }
    }

    /// Where it was published; nowhere while it is scheduled.
    pub fn published(&self) -> &[(ChannelName, StreamPosition)] {
        match &self.to {
            AppendedTo::Journal { published, .. } => published,
            AppendedTo::Later { .. } => &[],
        }
    }
}

/// The order of scheduled events: the earliest first; events of the same time in the order in which they were accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LaterKey {
    /// When it is due.
    pub at: Timestamp,
    /// Increases with every accepted scheduled event.
    pub arrival: u64,
}

/// A scheduled event: accepted and not yet due.
#[derive(Debug, Clone, PartialEq)]
pub struct LaterEvent {
    /// Its place in the order of scheduled events.
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
    /// When it was accepted, or when it was due if that was later. Its time to live begins here.
    pub accepted_at: Timestamp,
    /// Where it was published.
    pub published: Vec<(ChannelName, StreamPosition)>,
    /// As [`NewEvent::audience_max`]. To be checked when the audience is selected.
    pub audience_max: Option<u64>,
    /// The event.
    pub event: Event,
}

/// What the event's texts are made of, if one of its channels has texts.
pub(crate) fn texts(event: &Event, channels: &[DurableChannel]) -> Option<Box<Event>> {
    channels.iter().any(|channel| channel.has_texts).then(|| Box::new(event.texts_only()))
}

/// The data of an event's publications: its own data, or else its topic, subjects and parameters.
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
