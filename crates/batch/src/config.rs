//! The settings of a writer.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The largest page there can be; a larger setting is taken as this.
pub const PAGE_BYTES_MAX: usize = 1 << 30;

/// The most bytes that can wait; a larger setting is taken as this.
pub const BYTES_MAX: usize = u32::MAX as usize;

/// How a writer gathers, and what it does when there is no room.
#[derive(Debug, Clone)]
pub struct BatchConfig {
    /// The sink is given at most this many bytes at once, but for a message that is larger. From 1 to
    /// [`PAGE_BYTES_MAX`].
    pub page_bytes: usize,
    /// At most this many messages wait, at least 1. One page more may be on its way into the sink.
    pub count_max: usize,
    /// At most this many bytes of messages wait, up to [`BYTES_MAX`]. A larger message is refused by name.
    pub bytes_max: usize,
    /// What happens to a message when one of the two is reached.
    pub full: Full,
    /// How long a page that is not full waits for more, counted from when the driver could have taken it. Zero: not at
    /// all, which is what most want: while the sink is busy, pages fill by themselves.
    pub linger: Duration,
    /// A page that an asynchronous sink has not taken within this is given up and counts as dropped. A blocking
    /// [`IoSink`](crate::IoSink) cannot be interrupted.
    pub write_timeout: Duration,
    /// Writes what tells of losses into the stream; none for silence.
    pub announce: Option<Announce>,
}

/// What happens to a message for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Full {
    /// The oldest that wait go, counted as dropped: who reads later sees the newest.
    EvictOldest,
    /// It goes itself, counted as dropped: who reads later sees how it began.
    DropNewest,
    /// Its producer gets [`WriteError::Full`](crate::WriteError::Full).
    Reject,
    /// Its producer's thread waits for room, but not longer than this; then as `Reject`. Not for asynchronous tasks:
    /// they use [`write_when_room`](crate::BatchWriter::write_when_room). Both are woken when an eighth of the room is
    /// free, or as much as there will be: for every page would cost more than the writing.
    Wait {
        /// The longest a producer waits.
        at_most: Duration,
    },
}

/// Messages that were accepted, or their producers thought so, and that the sink will never get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loss {
    /// How many.
    pub count: u64,
    /// The sink failed last time, so the stream may end in the middle of a message.
    pub is_torn: bool,
}

/// Turns a [`Loss`] into what stands in the stream in place of the messages lost.
///
/// It is called by the driver, before it writes what follows the loss, and the result is given to the sink as a page of
/// its own. A text longer than the sink's largest page is not written.
#[derive(Clone)]
pub struct Announce(Arc<AnnounceFn>);

type AnnounceFn = dyn Fn(Loss, &mut Vec<u8>) + Send + Sync;

impl Announce {
    /// `write` appends the text to the empty buffer it is given. If it appends nothing or panics, nothing is written.
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

/// What went through a writer and what it holds.
///
/// `total == sent + dropped + refused + waiting + in_flight`, at any moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Messages handed in.
    pub total: u64,
    /// Messages in pages that the sink has taken without an error.
    pub sent: u64,
    /// Messages lost: evicted, dropped, in a page the sink failed at, or held when the writer was closed.
    pub dropped: u64,
    /// Messages that were not taken and whose producers were told.
    pub refused: u64,
    /// Of `dropped`: those an announcement in the stream tells of.
    pub announced: u64,
    /// Pages the sink has taken, announcements not counted.
    pub pages: u64,
    /// Pages and announcements the sink failed at.
    pub failures: u64,
    /// Why it failed last; none as soon as it works again.
    pub failure: Option<std::io::ErrorKind>,
    /// Messages that wait.
    pub waiting: usize,
    /// Messages in the page that the sink is writing.
    pub in_flight: usize,
    /// Bytes of the messages that wait or are in flight.
    pub bytes: usize,
    /// Memory of the pages, with room not used and pages kept for later.
    pub memory_bytes: usize,
}
