//! Runs the reader of documents on a thread that may block, and hands on what it finds.

use std::fmt;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::Arc;

use tidings_feed::{Document, Entry, Mapping, Outcome};
use tidings_telemetry::unix_now;
use tidings_types::{EventId, FeedName};

use crate::status::WrongEntry;

/// What a document has.
#[derive(Debug)]
pub enum Found {
    /// An entry, as an event.
    Entry {
        /// The event's id. It is the same whenever the entry is read.
        id: EventId,
        /// The event as `POST /v1/events` takes it.
        json: String,
        /// Where the entry is in the document.
        at: String,
    },
    /// An entry that is not to be sent.
    Skipped {
        /// Where it is in the document.
        at: String,
        /// Why.
        reason: String,
    },
    /// An entry that cannot be sent.
    Wrong(WrongEntry),
}

/// A document cannot be read to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct Malformed {
    /// Where.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// Reads a document and tells what it has, in order, until the caller wants no more.
#[derive(Clone)]
pub struct Parser(pub Arc<ParseFn>);

/// See [`Parser`]. The text is the encoding that the sender named.
pub type ParseFn = dyn Fn(&mut dyn BufRead, Option<&str>, &mut dyn FnMut(Found) -> ControlFlow<()>) -> Result<(), Malformed>
    + Send
    + Sync;

impl Parser {
    /// A parser by a mapping. The ids of its events begin with the feed's name.
    pub fn new(feed: FeedName, mapping: Mapping) -> Self {
        Self(Arc::new(move |source, charset, tell| {
            let document = Document { feed: feed.as_str(), now: unix_now(), charset };
            let read = tidings_feed::read(source, &mapping, &document, |Entry { position, outcome, .. }| {
                tell(match outcome {
                    Outcome::Event(draft) => Found::Entry { id: draft.id, json: draft.json, at: position.to_string() },
                    Outcome::Skipped { reason } => Found::Skipped { at: position.to_string(), reason },
                    Outcome::Wrong { field, problem } => {
                        Found::Wrong(WrongEntry { at: position.to_string(), reason: format!("{field}: {problem}") })
                    }
                })
            });
            read.map(drop).map_err(|error| Malformed { at: error.at.to_string(), reason: error.problem.to_string() })
        }))
    }
}

impl fmt::Debug for Parser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Parser")
    }
}
