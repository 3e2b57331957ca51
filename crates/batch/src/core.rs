//! The waiting messages in pages: the state of a batching writer, without clock, lock or I/O.
//!
//! Producers [`offer`](Core::offer) messages. A message is copied into the last page, or into a new one if it does not
//! fit. The driver takes the [`next`](Core::next) piece of work (the first page or an announcement), does it, and
//! reports the result. One piece is in flight at a time.
//!
//! ```text
//!            evict ◄─┐
//!   in flight ◄── [ page ][ page ][ page … ◄── offer      spare pages ◄── settled
//!                   │       └ lost_behind: dropped while this was the last page
//!                   └ lost_before: evicted, dropped, or in a page that the sink failed at
//! ```
//!
//! Law: every offered message is sent, dropped, refused, waiting or in flight. Pages contain whole messages in order,
//! at most `page_bytes`; a larger message has a page of its own. An announcement of a loss comes at the place of the
//! loss, exact to the page: no page is handed out before an announcement that is due before it.
//!
//! Bounds: at most `count_max` messages and `bytes_max` bytes wait. Memory: two neighbouring pages together have more
//! bytes than one full page, so waiting messages take at most twice `bytes_max` and 8 bytes per message. Empty pages
//! are kept for reuse: as many as `bytes_max` fills, each at most one and a half times as large. One page is in flight.

mod page;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::ErrorKind;

pub(crate) use page::Page;

use crate::config::{BYTES_MAX, Full, Loss, PAGE_BYTES_MAX};

/// Producers that wait are woken when this part of the bounds is free.
const ROOM_DIVISOR: usize = 8;

/// The state of one writer.
#[derive(Debug)]
pub(crate) struct Core {
    pages: VecDeque<Page>,
    spare: Vec<Page>,
    in_flight: Option<InFlight>,
    limits: Limits,
    full: Full,
    /// Messages and bytes in `pages`.
    waiting_count: usize,
    waiting_bytes: usize,
    /// Messages that were lost before the first of `pages` and are not announced yet.
    lost_before: u64,
    /// A message found no room since work was last taken, so a linger is useless.
    is_pressed: bool,
    /// A flush waits for the messages before this number.
    flush_to: u64,
    /// A flush waits for the announcement of losses, even while the sink fails.
    flushes_loss: bool,
    /// The error of the last piece of work.
    failure: Option<ErrorKind>,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) total: u64,
    pub(crate) sent: u64,
    pub(crate) dropped: u64,
    pub(crate) refused: u64,
    pub(crate) announced: u64,
    /// Lost messages whose announcement has no text.
    unannounced: u64,
    pub(crate) pages: u64,
    pub(crate) failures: u64,
    /// Accepted messages: the number of the next message.
    entered: u64,
}

#[derive(Debug)]
struct Limits {
    page_bytes: usize,
    /// The sink's largest page; `None` for any size.
    sink_bytes: Option<usize>,
    count_max: usize,
    bytes_max: usize,
    announces: bool,
}

#[derive(Debug)]
struct InFlight {
    /// The number of the first message.
    first: u64,
    count: usize,
    bytes: usize,
    memory_bytes: usize,
}

/// The next piece of work for the driver.
#[derive(Debug)]
pub(crate) enum Work {
    /// Announce the loss, then call [`Core::announced`], [`Core::unannounced`] or [`Core::fail`].
    Announce(Loss),
    /// Give the page to the sink, then call [`Core::settle`].
    Page(Page),
}

/// Why a message was not accepted. It is not counted yet: see [`Core::refuse`] and [`Core::lose`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no room, and the policy is not to drop a message.
    Full,
    /// The message is larger than this, so it never fits.
    TooLarge { bytes_max: usize },
}

/// The point in the stream that a flush waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    entered: u64,
    lost: u64,
    failures: u64,
}

/// The progress towards a [`Mark`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Waiting,
    Done,
    /// The sink has failed since the mark.
    Failed,
}

impl Core {
    pub(crate) fn new(page_bytes: usize, count_max: usize, bytes_max: usize, full: Full, announces: bool) -> Self {
        let mut core = Self {
            pages: VecDeque::new(),
            spare: Vec::new(),
            in_flight: None,
            limits: Limits { page_bytes: 1, sink_bytes: None, count_max: 1, bytes_max: 1, announces },
            full,
            waiting_count: 0,
            waiting_bytes: 0,
            lost_before: 0,
            is_pressed: false,
            flush_to: 0,
            flushes_loss: false,
            failure: None,
            tally: Tally::default(),
        };
        core.set_page_bytes(page_bytes);
        core.set_capacity(count_max, bytes_max);
        core
    }

    // Producers

    /// Accepts, drops or refuses a message, as the policy says. An empty message is ignored.
    pub(crate) fn offer(&mut self, message: &[u8]) -> Result<(), Refusal> {
        let bytes = message.len();
        if bytes == 0 {
            return Ok(());
        }
        if !self.has_room(bytes) {
            let bytes_max = self.message_bytes_max();
            if bytes > bytes_max {
                return Err(Refusal::TooLarge { bytes_max });
            }
            self.is_pressed = true;
            match self.full {
                Full::EvictOldest => {
                    while !self.has_room(bytes) {
                        self.evict_first();
                    }
                }
                Full::DropNewest => {
                    self.lose();
                    return Ok(());
                }
                Full::Reject | Full::Wait { .. } => return Err(Refusal::Full),
            }
        }
        self.append(message);
        Ok(())
    }

    /// Whether a message of this size would be accepted without a loss.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.waiting_count < self.limits.count_max
            && bytes <= self.limits.bytes_max.saturating_sub(self.waiting_bytes)
            && self.limits.sink_bytes.is_none_or(|sink_bytes| bytes <= sink_bytes)
    }

    /// Whether producers that wait for room should be woken: there is enough room, or no more is expected soon.
    pub(crate) fn is_roomy(&self) -> bool {
        let is_free = |used: usize, max: usize| max.saturating_sub(used) >= (max / ROOM_DIVISOR).max(1);
        let is_room =
            is_free(self.waiting_count, self.limits.count_max) && is_free(self.waiting_bytes, self.limits.bytes_max);
        is_room || !self.is_due()
    }

    /// Counts a refused message. Its producer gets an error.
    pub(crate) fn refuse(&mut self) {
        self.tally.total += 1;
        self.tally.refused += 1;
    }

    /// Counts a dropped message. Its producer gets no error.
    pub(crate) fn lose(&mut self) {
        self.tally.total += 1;
        self.tally.dropped += 1;
        if self.limits.announces {
            match self.pages.back_mut() {
                Some(last) => last.lost_behind += 1,
                None => self.lost_before += 1,
            }
        }
    }

    /// Counts the last refused message as dropped instead.
    pub(crate) fn lose_refused(&mut self) {
        self.tally.total -= 1;
        self.tally.refused -= 1;
        self.lose();
    }

    fn append(&mut self, message: &[u8]) {
        let bytes = message.len();
        let page_bytes = self.page_bytes();
        match self.pages.back_mut() {
            Some(last) if last.used() + bytes <= page_bytes => last.append(message),
            _ => {
                let mut page = if bytes > page_bytes { Page::with_capacity(bytes) } else { self.fresh_page() };
                page.append(message);
                self.pages.push_back(page);
            }
        }
        self.waiting_count += 1;
        self.waiting_bytes += bytes;
        self.tally.total += 1;
        self.tally.entered += 1;
    }

    // The driver

    /// Whether there is anything to do. After a failure, an announcement alone is a reason to try again only for a flush.
    pub(crate) fn has_work(&self) -> bool {
        !self.pages.is_empty() || (self.lost_before > 0 && (self.failure.is_none() || self.flushes_loss))
    }

    /// Whether a linger is useless: a page is full, a flush waits, or only an announcement is left.
    pub(crate) fn is_due(&self) -> bool {
        let first_bytes = self.pages.front().map_or(0, Page::len);
        self.pages.len() > 1
            || first_bytes >= self.page_bytes()
            || self.waiting_count >= self.limits.count_max
            || self.is_pressed
            || self.is_flushing()
            || (self.pages.is_empty() && self.has_work())
    }

    /// Whether a flush waits for messages that are not in flight yet, or for an announcement.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flush_to > self.first_waiting() || (self.flushes_loss && self.lost_before > 0)
    }

    /// Takes the next piece of work. The result of the last piece must be known.
    pub(crate) fn next(&mut self) -> Option<Work> {
        debug_assert!(self.in_flight.is_none(), "one page is in flight at a time");
        self.is_pressed = false;
        while self.is_first_too_large() {
            self.evict_first();
        }
        if self.lost_before > 0 && self.has_work() {
            return Some(Work::Announce(Loss { count: self.lost_before, is_torn: self.failure.is_some() }));
        }
        let page_bytes = self.page_bytes();
        let first = self.pages.front_mut()?;
        let page = if first.len() > page_bytes && first.count() > 1 {
            // The page size was reduced after this page was filled.
            let mut page = Page::with_capacity(page_bytes);
            first.split_front(page_bytes, &mut page);
            page
        } else {
            let mut page = self.pages.pop_front()?;
            self.lost_before += std::mem::take(&mut page.lost_behind);
            page
        };
        self.in_flight = Some(InFlight {
            first: self.first_waiting(),
            count: page.count(),
            bytes: page.len(),
            memory_bytes: page.memory_bytes(),
        });
        self.waiting_count -= page.count();
        self.waiting_bytes -= page.len();
        Some(Work::Page(page))
    }

    /// Records the result of a page. If the sink failed, all messages of the page are lost, even if it wrote a part.
    pub(crate) fn settle(&mut self, page: Page, result: Result<(), ErrorKind>) {
        let Some(flown) = self.in_flight.take() else { return }; // `drop_all` or `abandon` has counted the page.
        let count = flown.count as u64;
        match result {
            Ok(()) => {
                self.tally.sent += count;
                self.tally.pages += 1;
                self.failure = None;
            }
            Err(kind) => {
                self.drop_before(count);
                self.fail(kind);
            }
        }
        self.recycle(page);
    }

    /// Records that the announcement is written.
    pub(crate) fn announced(&mut self, loss: Loss) {
        let count = loss.count.min(self.lost_before);
        self.lost_before -= count;
        self.tally.announced += count;
        (self.failure, self.flushes_loss) = (None, false);
    }

    /// Records that the announcement has no text, or too large a text: nothing was written.
    pub(crate) fn unannounced(&mut self, loss: Loss) {
        let count = loss.count.min(self.lost_before);
        self.lost_before -= count;
        self.tally.unannounced += count;
        self.flushes_loss = false;
    }

    /// Records that the sink has failed. Flushes end with an error.
    pub(crate) fn fail(&mut self, kind: ErrorKind) {
        self.failure = Some(kind);
        self.tally.failures += 1;
        (self.flush_to, self.flushes_loss) = (0, false);
    }

    /// Records that the driver has ended while it was writing a page.
    pub(crate) fn abandon(&mut self) {
        if let Some(flown) = self.in_flight.take() {
            self.drop_before(flown.count as u64);
            self.fail(ErrorKind::Interrupted);
        }
    }

    /// Drops all messages, also those in flight, and returns their number.
    pub(crate) fn drop_all(&mut self) -> usize {
        let flown = self.in_flight.take().map_or(0, |flown| flown.count);
        let count = self.waiting_count + flown;
        self.tally.dropped += count as u64;
        self.pages.clear();
        self.spare.clear();
        (self.waiting_count, self.waiting_bytes, self.lost_before) = (0, 0, 0);
        count
    }

    // Flush

    /// Begins a flush of all messages and losses so far. Waiting messages are due from now on.
    pub(crate) fn mark(&mut self) -> Mark {
        self.flush_to = self.tally.entered;
        self.flushes_loss = self.lost_before > 0;
        let lost = self.tally.announced
            + self.tally.unannounced
            + self.lost_before
            + self.pages.iter().map(|page| page.lost_behind).sum::<u64>();
        Mark { entered: self.tally.entered, lost, failures: self.tally.failures }
    }

    pub(crate) fn progress(&self, mark: Mark) -> Progress {
        let is_gone = self.first_waiting() >= mark.entered
            && self.in_flight.as_ref().is_none_or(|flown| flown.first >= mark.entered);
        if self.tally.failures > mark.failures {
            Progress::Failed
        } else if is_gone && self.tally.announced + self.tally.unannounced >= mark.lost {
            Progress::Done
        } else {
            Progress::Waiting
        }
    }

    // Settings

    pub(crate) fn set_page_bytes(&mut self, page_bytes: usize) {
        self.limits.page_bytes = page_bytes.clamp(1, PAGE_BYTES_MAX);
        self.spare.clear();
    }

    /// Sets the sink's largest page. Larger waiting messages are dropped when it is their turn.
    pub(crate) fn set_sink_bytes(&mut self, sink_bytes: Option<usize>) {
        self.limits.sink_bytes = sink_bytes;
        self.spare.clear();
    }

    /// Sets the capacity. Messages that wait already stay, even above a lower capacity.
    pub(crate) fn set_capacity(&mut self, count_max: usize, bytes_max: usize) {
        self.limits.count_max = count_max.max(1);
        self.limits.bytes_max = bytes_max.clamp(1, BYTES_MAX);
        self.spare.truncate(self.spare_count_max());
    }

    // Queries

    pub(crate) fn full(&self) -> Full {
        self.full
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    pub(crate) fn failure(&self) -> Option<ErrorKind> {
        self.failure
    }

    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting_count
    }

    pub(crate) fn in_flight_count(&self) -> usize {
        self.in_flight.as_ref().map_or(0, |flown| flown.count)
    }

    /// Bytes of the messages that wait or are in flight.
    pub(crate) fn held_bytes(&self) -> usize {
        self.waiting_bytes + self.in_flight.as_ref().map_or(0, |flown| flown.bytes)
    }

    /// Memory of the pages that wait, are in flight or spare.
    pub(crate) fn memory_bytes(&self) -> usize {
        let pages = self.pages.iter().chain(&self.spare).map(Page::memory_bytes).sum::<usize>();
        pages + self.in_flight.as_ref().map_or(0, |flown| flown.memory_bytes)
    }

    /// The largest message that can ever be accepted.
    pub(crate) fn message_bytes_max(&self) -> usize {
        self.limits.sink_bytes.unwrap_or(usize::MAX).min(self.limits.bytes_max)
    }

    /// The page size that is set, or the sink's largest page if that is smaller.
    fn page_bytes(&self) -> usize {
        self.limits.sink_bytes.unwrap_or(usize::MAX).clamp(1, self.limits.page_bytes)
    }

    /// The number of the first message of `pages`.
    fn first_waiting(&self) -> u64 {
        self.tally.entered - self.waiting_count as u64
    }

    fn is_first_too_large(&self) -> bool {
        let Some(sink_bytes) = self.limits.sink_bytes else { return false };
        self.pages.front().is_some_and(|page| page.first_len() > sink_bytes)
    }

    fn evict_first(&mut self) {
        let Some(first) = self.pages.front_mut() else { return };
        self.waiting_count -= 1;
        self.waiting_bytes -= first.evict_first();
        let emptied = if first.count() == 0 { self.pages.pop_front() } else { None };
        self.drop_before(1);
        if let Some(page) = emptied {
            self.lost_before += page.lost_behind;
            self.recycle(page);
        }
    }

    fn drop_before(&mut self, count: u64) {
        self.tally.dropped += count;
        if self.limits.announces {
            self.lost_before += count;
        }
    }

    fn fresh_page(&mut self) -> Page {
        self.spare.pop().unwrap_or_else(|| Page::with_capacity(self.page_bytes()))
    }

    /// Keeps a page of ordinary size for reuse.
    fn recycle(&mut self, mut page: Page) {
        let page_bytes = self.page_bytes();
        if (page_bytes..=page_bytes + page_bytes / 8).contains(&page.capacity())
            && self.spare.len() < self.spare_count_max()
        {
            page.clear();
            self.spare.push(page);
        }
    }

    /// All pages that can wait at once, and the one in flight.
    fn spare_count_max(&self) -> usize {
        self.limits.bytes_max / self.page_bytes() + 2
    }
}
