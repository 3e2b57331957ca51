//! Makes records of the entries of a log, and finds out that the log is not the one it was. A core: no I/O, no clock.

use tidings_store::{LogError, LogPosition, LogRecord};

use crate::entry::{Content, Entry, WriterId, hash};

/// Reads entries in order.
#[derive(Debug, Clone)]
pub struct Reader {
    position: LogPosition,
    /// The parts of a record that is not complete yet.
    begun: Option<Begun>,
}

#[derive(Debug, Clone)]
struct Begun {
    writer: (u64, WriterId),
    next: u16,
    count: u16,
    bytes: Vec<u8>,
}

/// What an entry was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// The end of a record.
    Record(LogRecord),
    /// Nothing for the store.
    Other,
}

impl Reader {
    /// Reads from behind this position on.
    pub fn new(after: LogPosition) -> Self {
        Self { position: after, begun: None }
    }

    /// The last entry that was read.
    pub fn position(&self) -> LogPosition {
        self.position
    }

    /// Takes the next entry, which the log has under this number.
    ///
    /// # Errors
    /// [`LogError::Lost`] if it cannot be the next one of the log that was read so far. Then nothing has changed.
    pub fn take(&mut self, sequence: u64, bytes: &[u8]) -> Result<Read, LogError> {
        let expected = self.position.sequence + 1;
        if sequence != expected {
            return Err(LogError::Lost(format!("it has no entry {expected} any more, but {sequence}")));
        }
        let entry = Entry::decode(bytes);
        let entry = entry.ok_or_else(|| LogError::Lost(format!("entry {sequence} is not written by this program")))?;
        if entry.before != self.position.hash {
            return Err(LogError::Lost(format!("entry {sequence} follows on another entry than {}", sequence - 1)));
        }
        if entry.term < self.position.term {
            let (term, last) = (entry.term, self.position.term);
            return Err(LogError::Lost(format!("entry {sequence} is of term {term}, and term {last} had begun")));
        }
        self.position = LogPosition { sequence, hash: hash(bytes), term: entry.term };
        Ok(self.read(&entry))
    }

    fn read(&mut self, entry: &Entry<'_>) -> Read {
        let Content::Part { part, count, bytes } = entry.content else {
            self.begun = None; // Who began it cannot end it any more.
            return Read::Other;
        };
        let writer = (entry.term, entry.writer);
        let begun = if part == 0 { None } else { self.begun.take() };
        let begun = begun.filter(|it| it.writer == writer && it.next == part && it.count == count);
        let mut begun = match begun {
            Some(begun) => begun,
            None if part == 0 => Begun { writer, next: 0, count, bytes: Vec::new() },
            None => return Read::Other, // Its beginning was given up.
        };
        begun.bytes.extend_from_slice(bytes);
        begun.next += 1;
        if begun.next == count {
            self.begun = None;
            return Read::Record(LogRecord { position: self.position, bytes: begun.bytes });
        }
        self.begun = Some(begun);
        Read::Other
    }
}
