//! One node's view of the log, over a broker.

use std::error::Error;
use std::time::Duration;

use tidings_store::{CommitLog, LogError, LogPosition, LogRecord};

use crate::entry::{self, Content, WriterId};
use crate::reader::{Read, Reader};
use crate::writer::{Reply, Step, Writer, Written};

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

    /// The last sequence number.
    ///
    /// # Errors
    /// When the broker does not answer.
    fn last(&mut self) -> Result<u64, Unreached>;

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
    /// While this node leads.
    writer: Option<Writer>,
}

impl<B: Broker> Log<B> {
    /// Reads from the beginning on, until it is told another place ([`CommitLog::seek`]).
    pub fn new(broker: B, id: WriterId) -> Self {
        Self { broker, id, reader: Reader::new(LogPosition::default()), writer: None }
    }

    /// Appends an entry with this writer, however long it takes.
    fn write(&mut self, mut writer: Writer, content: Content<'_>) -> Result<(Writer, Written), LogError> {
        let appending = writer.begin(content);
        let mut step = Step::Put;
        loop {
            let reply = match step {
                Step::End(written) => return Ok((writer, written)),
                _ if self.broker.is_stopped() => return Err(unavailable(Unreached)),
                Step::Put => self.broker.put(appending.after, &appending.bytes),
                Step::Look => self.broker.look(appending.after + 1, Duration::ZERO),
            };
            step = writer.next(&appending, reply);
        }
    }
}

fn unavailable(error: impl Error + Send + Sync + 'static) -> LogError {
    LogError::Unavailable(Box::new(error))
}

impl<B: Broker> CommitLog for Log<B> {
    fn seek(&mut self, after: LogPosition) -> Result<(), LogError> {
        (self.reader, self.writer) = (Reader::new(after), None);
        let last = self.broker.last().map_err(unavailable)?;
        if last < after.sequence {
            let what = format!("it ends with entry {last}, and this store has followed it to {}", after.sequence);
            return Err(LogError::Lost(what));
        }
        Ok(())
    }

    fn next(&mut self, patience: Duration) -> Result<Option<LogRecord>, LogError> {
        let mut patience = patience;
        loop {
            let sequence = self.reader.position().sequence + 1;
            let bytes = match self.broker.look(sequence, patience) {
                Reply::Found(Some(bytes)) => bytes,
                Reply::Found(None) => return Ok(None),
                _ => return Err(unavailable(Unreached)),
            };
            if let Read::Record(record) = self.reader.take(sequence, &bytes)? {
                return Ok(Some(record));
            }
            patience = Duration::ZERO; // What follows on it is there, or not yet.
        }
    }

    fn lead(&mut self) -> Result<Option<LogPosition>, LogError> {
        let position = self.reader.position();
        let writer = Writer::new(self.id, position.term + 1, position);
        let (writer, written) = self.write(writer, Content::Term)?;
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
            (writer, written) = self.write(writer, part)?;
            if let Written::Fenced { sequence } = written {
                return Err(LogError::Fenced { sequence });
            }
        }
        let position = writer.last();
        self.writer = Some(writer);
        Ok(position)
    }
}
