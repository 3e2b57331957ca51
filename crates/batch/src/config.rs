//! The settings of a writer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The largest page. A larger setting is reduced to this.
pub const PAGE_BYTES_MAX: usize = 1 << 30;

/// The most bytes that can wait. A larger setting is reduced to this.
pub const BYTES_MAX: usize = u32::MAX as usize;

/// The settings of a writer.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// The size of a page, from 1 to [`PAGE_BYTES_MAX`]. The sink gets at most one page at once. A larger message is a page
    /// of its own.
    pub page_bytes: usize,
    /// The most messages that wait, at least 1. The sink may have one more page.
    pub count_max: usize,
    /// The most bytes of messages that wait, up to [`BYTES_MAX`]. A larger message is refused with
    /// [`WriteError::TooLarge`](crate::WriteError::TooLarge).
    pub bytes_max: usize,
    /// What happens to a message when one of these two limits is reached.
    pub full: Full,
    /// How long a page that is not full waits for further messages, from the moment when the driver could take it. Zero is
    /// right for most uses: pages fill by themselves while the sink is busy.
    pub linger: Duration,
    /// A page that an asynchronous sink has not written within this time is dropped. A blocking
    /// [`IoSink`](crate::IoSink) cannot be interrupted.
    pub write_timeout: Duration,
    /// The text that reports losses in the stream; `None` for no text.
    pub announce: Option<Announce>,
}

impl BatchConfig {
    /// About the most memory that a writer takes: messages that wait and their pages, an entry for each message, and the pages
    /// that are kept for the next ones.
    pub fn memory_bytes_max(&self) -> usize {
        let (bytes, pages) = (self.bytes_max.min(BYTES_MAX), self.page_bytes.min(PAGE_BYTES_MAX));
        bytes.saturating_add(pages).saturating_mul(3).saturating_add(self.count_max.saturating_mul(size_of::<u64>()))
    }
}

/// What happens to a message when there is no room for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The oldest waiting messages are dropped. A reader sees the newest messages.
    EvictOldest,
    /// The new message is dropped. A reader sees the first messages.
    DropNewest,
    /// The producer gets [`WriteError::Full`](crate::WriteError::Full).
    Reject,
    /// The producer's thread waits for room, at most this long; then as `Reject`. Asynchronous tasks must use
    /// [`write_when_room`](crate::BatchWriter::write_when_room) instead. Waiting producers are woken when an eighth of the
    /// room is free, or no more room is expected: waking them for every page would cost more than the writing.
    Wait {
        /// The longest a producer waits.
        at_most: Duration,
    },
}

/// Messages that the sink will never get. Their producers got no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// The number of messages.
    pub count: u64,
    /// The sink failed last time, so the stream may end in the middle of a message.
    pub is_torn: bool,
}

/// Writes the text that replaces lost messages in the stream.
///
/// The driver calls it before it writes the messages after the loss. The text is a page of its own. A text longer than the
/// sink's largest page is not written.
#[derive(Clone)]
pub struct Announce(Arc<AnnounceFn>);

type AnnounceFn = dyn Fn(Loss, &mut Vec<u8>) + Send + Sync;

impl Announce {
    /// `write` appends the text to an empty buffer. If it appends nothing or panics, nothing is written.
    pub fn new(write: impl Fn(Loss, &mut Vec<u8>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// A line of text for people: `… 17 messages lost …`.
    #[must_use]
    pub fn line() -> Self {
        Self::new(|loss, text| {
            let torn = if loss.is_torn { "\n" } else { "" };
            let plural = if loss.count == 1 { "" } else { "s" };
            text.extend_from_slice(format!("{torn}… {} message{plural} lost …\n", loss.count).as_bytes());
        })
    }

    pub(crate) fn write(&self, loss: Loss, text: &mut Vec<u8>) {
        (self.0)(loss, text);
    }
}

impl fmt::Debug for Announce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Announce")
    }
}

/// The counters of a writer.
///
/// `total == sent + dropped + refused + waiting + in_flight`, at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// All messages that producers have written.
    pub total: u64,
    /// Messages in pages that the sink has written without an error.
    pub sent: u64,
    /// Lost messages: evicted, dropped, in a page at which the sink failed, or held when the writer was closed.
    pub dropped: u64,
    /// Messages that were refused. Their producers got an error.
    pub refused: u64,
    /// Of `dropped`, those that an announcement in the stream has reported.
    pub announced: u64,
    /// Pages that the sink has written, without announcements.
    pub pages: u64,
    /// Pages and announcements at which the sink failed.
    pub failures: u64,
    /// The last error of the sink; `None` when it works again.
    pub failure: Option<std::io::ErrorKind>,
    /// Messages that wait.
    pub waiting: usize,
    /// Messages in the page that the sink is writing.
    pub in_flight: usize,
    /// Bytes of the messages that wait or are in flight.
    pub bytes: usize,
    /// Memory of the pages, including unused room and empty pages for reuse.
    pub memory_bytes: usize,
}
