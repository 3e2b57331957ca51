//! Appends entries, also when the broker does not say whether it has one. A core: no I/O, no clock.
//!
//! Each entry names the sequence number behind which it must be, and one entry is under way at a time. If no answer comes,
//! the entry may be in the log, or on its way, or lost. Then the same bytes are put again, behind the same number. The broker
//! stores one entry under a number, so it cannot be there twice, however late a copy arrives.
//!
//! | Step | Answer | Then |
//! |---|---|---|
//! | put | stored | the entry is in the log |
//! | put | another entry has the place, or is about to | look |
//! | put or look | none | put |
//! | look | nothing is there: what had the place is lost | put |
//! | look | the same bytes | the entry is in the log |
//! | look | other bytes | it is fenced: the entry never will be in the log |
//!
//! docs/decisions/0033-a-doubtful-entry-is-put-again.md

use tidings_store::LogPosition;

use crate::entry::{Content, Entry, WriterId, hash};

/// Appends one entry after another in one term.
#[derive(Debug, Clone)]
pub struct Writer {
    id: WriterId,
    term: u64,
    /// The last entry of the log.
    last: LogPosition,
}

/// An entry that is being appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Appending {
    /// The sequence number of the entry before.
    pub after: u64,
    /// The entry.
    pub bytes: Vec<u8>,
}

/// What to do next for an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Ask the broker to append the entry behind the one before.
    Put,
    /// Ask the broker for the entry at its place.
    Look,
    /// It is known what became of it.
    End(Written),
}

/// What became of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is in the log, here.
    At(LogPosition),
    /// It is not in the log and never will be: somebody else has written here.
    Fenced {
        /// Where it would be.
        sequence: u64,
    },
}

/// What the broker said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// The entry is stored.
    Stored,
    /// It is not: another entry has its place, or is about to have it.
    Taken,
    /// The entry that was looked for; `None`: there is none.
    Found(Option<Vec<u8>>),
    /// There is no answer.
    Nothing,
}

impl Writer {
    /// Writes behind the last entry, in this term.
    pub fn new(id: WriterId, term: u64, last: LogPosition) -> Self {
        Self { id, term, last }
    }

    /// The last entry of the log.
    pub fn last(&self) -> LogPosition {
        self.last
    }

    /// Begins to append an entry. The first step is [`Step::Put`].
    pub fn begin(&self, content: Content<'_>) -> Appending {
        let Self { id: writer, term, last } = *self;
        let entry = Entry { term, writer, before: last.hash, content };
        Appending { after: last.sequence, bytes: entry.encode() }
    }

    /// Goes on after the answer to the last step.
    pub fn next(&mut self, appending: &Appending, reply: Reply) -> Step {
        let sequence = appending.after + 1;
        let written = match reply {
            Reply::Nothing | Reply::Found(None) => return Step::Put,
            Reply::Taken => return Step::Look,
            Reply::Found(Some(found)) if found != appending.bytes => Written::Fenced { sequence },
            Reply::Found(Some(_)) | Reply::Stored => {
                Written::At(LogPosition { sequence, hash: hash(&appending.bytes), term: self.term })
            }
        };
        if let Written::At(position) = written {
            self.last = position;
        }
        Step::End(written)
    }
}
