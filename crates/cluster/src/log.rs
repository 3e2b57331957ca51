//! One node's view of the log, over a broker.

use std::error::Error;
use std::time::Duration;

use tidings_store::{CommitLog, LogError, LogPosition, LogRecord};

use crate::entry::{self, Content, WriterId, hash};
use crate::reader::{Read, Reader};
use crate::writer::{Reply, Step, Writer, Written};

/// How often a reader finds nothing before it checks again whether the log has what it continues. With the patience of a
/// store, five seconds.
const EMPTY_COUNT_MAX: u32 = 256;

/// What keeps the entries: a stream that gives sequence numbers from 1 on, without gaps, and never changes an entry.
///
/// Its methods block, each for a bounded time.
pub trait Broker: Send {
    /// Appends an entry behind the one with this sequence number, if that is the last one. Answers [`Reply::Stored`],
    /// [`Reply::Taken`] or [`Reply::Nothing`].
    fn put(&mut self, after: u64, entry: &[u8]) -> Reply;

    /// Reads an entry, and waits for it for `patience`. Answers [`Reply::Found`] or [`Reply::Nothing`]. Must not answer with
    /// an entry that may be lost again while all members of the broker work.
    fn look(&mut self, sequence: u64, patience: Duration) -> Reply;

    /// The sequence numbers of the first and of the last entry that it has. Without an entry, the first is one more than the
    /// last.
    ///
    /// # Errors
    /// When the broker does not answer.
    fn range(&mut self) -> Result<(u64, u64), Unreached>;

    /// Whether this node stops, so that nothing is tried again.
    fn is_stopped(&self) -> bool;
}

/// The broker did not answer.
#[derive(Debug, thiserror::Error)]
#[error("the broker does not answer")]
pub struct Unreached;

/// One node's [`CommitLog`].
#[derive(Debug)]
pub struct Log<B> {
    broker: B,
    id: WriterId,
    reader: Reader,
    /// How often nothing was found since it was checked that the log has what the reader continues; `None`: it was not yet.
    checked: Option<u32>,
    /// While this node leads.
    writer: Option<Writer>,
}

impl<B: Broker> Log<B> {
    /// Reads from the beginning on, until it is told another place ([`CommitLog::seek`]).
    pub fn new(broker: B) -> Self {
        let id = WriterId(rand::random());
        Self { broker, id, reader: Reader::new(LogPosition::default()), checked: None, writer: None }
    }

    /// Appends an entry with this writer, however long it takes; or while the broker answers, if it `gives_up`.
    fn write(
        &mut self,
        mut writer: Writer,
        content: Content<'_>,
        gives_up: bool,
    ) -> Result<(Writer, Written), LogError> {
        let appending = writer.begin(content);
        let mut step = Step::Put;
        loop {
            let reply = match step {
                Step::End(written) => return Ok((writer, written)),
                _ if self.broker.is_stopped() => return Err(unavailable(Unreached)),
                Step::Put => self.broker.put(appending.after, &appending.bytes),
                Step::Look => self.broker.look(appending.after + 1, Duration::ZERO),
            };
            match reply {
                Reply::Nothing if gives_up => return Err(unavailable(Unreached)),
                Reply::Found(None) => self.check(writer.last())?, // Perhaps there is less than it stands behind.
                _ => {}
            }
            step = writer.next(&appending, reply);
        }
    }

    /// Refuses a log that does not have the entry at this position, or not all behind it.
    fn check(&mut self, position: LogPosition) -> Result<(), LogError> {
        let LogPosition { sequence, .. } = position;
        let found = if sequence == 0 { Reply::Found(None) } else { self.broker.look(sequence, Duration::ZERO) };
        match found {
            Reply::Found(Some(bytes)) if hash(&bytes) == position.hash => return Ok(()),
            Reply::Found(Some(_)) => return Err(LogError::Lost(format!("its entry {sequence} is another one"))),
            Reply::Found(None) => {}
            _ => return Err(unavailable(Unreached)),
        }
        let (first, last) = self.broker.range().map_err(unavailable)?;
        if last < sequence {
            return Err(LogError::Lost(format!(
                "it ends with entry {last}, and this store has followed it to {sequence}"
            )));
        }
        if first > sequence + 1 {
            return Err(LogError::Lost(format!(
                "it begins with entry {first}, and this store has followed it to {sequence}"
            )));
        }
        Ok(()) // That entry was trimmed. The next one tells whether it follows on it.
    }
}

fn unavailable(error: impl Error + Send + Sync + 'static) -> LogError {
    LogError::Unavailable(Box::new(error))
}

impl<B: Broker> CommitLog for Log<B> {
    fn seek(&mut self, after: LogPosition) {
        (self.reader, self.checked, self.writer) = (Reader::new(after), None, None);
    }

    fn next(&mut self, patience: Duration) -> Result<Option<LogRecord>, LogError> {
        // Now and then again: that there is nothing looks the same if what comes next was trimmed.
        if self.checked.is_none_or(|empty_count| empty_count >= EMPTY_COUNT_MAX) {
            self.check(self.reader.position())?;
            self.checked = Some(0);
        }
        loop {
            let sequence = self.reader.position().sequence + 1;
            let bytes = match self.broker.look(sequence, patience) {
                Reply::Found(Some(bytes)) => bytes,
                Reply::Found(None) => {
                    self.checked = self.checked.map(|empty_count| empty_count + 1);
                    return Ok(None);
                }
                _ => return Err(unavailable(Unreached)),
            };
            if let Read::Record(record) = self.reader.take(sequence, &bytes)? {
                return Ok(Some(record));
            }
        }
    }

    fn lead(&mut self) -> Result<Option<LogPosition>, LogError> {
        let position = self.reader.position();
        self.check(position)?;
        let writer = Writer::new(self.id, position.term + 1, position);
        let (writer, written) = self.write(writer, Content::Term, true)?;
        let Written::At(position) = written else { return Ok(None) };
        // The reader stays where it is: it is not used in this term, and `seek` ends the term.
        self.writer = Some(writer);
        Ok(Some(position))
    }

    fn append(&mut self, record: &[u8]) -> Result<LogPosition, LogError> {
        let Some(mut writer) = self.writer.take() else {
            return Err(LogError::Fenced { sequence: self.reader.position().sequence });
        };
        let parts = entry::parts(record).ok_or_else(|| LogError::Lost("a record is too large for it".to_owned()))?;
        for part in parts {
            let written;
            (writer, written) = self.write(writer, part, false)?;
            if let Written::Fenced { sequence } = written {
                return Err(LogError::Fenced { sequence });
            }
        }
        let position = writer.last();
        self.writer = Some(writer);
        Ok(position)
    }
}
