//! What goes in beside a document's bytes, and what comes out.

use tidings_types::{EventId, Timestamp};

use crate::error::Position;

/// What is known about a document besides its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Document<'a> {
    /// The name of its feed; events' ids begin with it.
    pub feed: &'a str,
    /// The time, for entries that expire or are too old.
    pub now: Timestamp,
    /// The encoding that the sender named (`charset` of `Content-Type`). A byte order mark is stronger, and it is stronger
    /// than the document's own declaration (RFC 7303).
    pub charset: Option<&'a str>,
}

/// An entry of a document, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its number in the document, from 1.
    pub number: u64,
    /// Where it begins.
    pub position: Position,
    /// The provider's id of the entry, if it has one.
    pub id: Option<String>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What becomes of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// An event.
    Event(Draft),
    /// Nothing, because the mapping says so.
    Skipped {
        /// Why, for people: `when[1]: @type_id is "5", not one of "16", "17"`.
        reason: String,
    },
    /// Nothing, because the entry is not as the mapping expects it.
    Wrong {
        /// The field of the mapping, for example `params.minute`.
        field: String,
        /// What is wrong, for people.
        problem: String,
    },
}

/// An event that the API has not checked yet.
#[derive(Clone, PartialEq, Eq)]
pub struct Draft {
    /// The event's id: made of the feed's name, the entry's id and its revision. The same entry has the same id in every
    /// document.
    pub id: EventId,
    /// A hash of the event, id included: another content has another hash.
    pub content: u64,
    /// The event as `POST /v1/events` takes it: a JSON object.
    pub json: String,
}

// Texts for users never reach a log.
impl std::fmt::Debug for Draft {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Draft({:?}, {} bytes)", self.id, self.json.len())
    }
}
