//! One feed: reads its documents one at a time, sends entries that are not known, and keeps what is known.
//!
//! ```text
//!  socket or request ─► pieces ─► thread: inflate, parse ─► found ─► batch ─► door ─► store: known entries
//!               file ──────────────┘ (bounded)          (bounded)
//! ```
//!
//! Entries are sent as they come, so a document of any size takes constant memory. A document that breaks off in the
//! middle has sent what came before the break. It is fetched again as a whole, and then its known entries are not sent
//! again.
//!
//! Order of writes: the events, then the known entries, then, at the end of the document, what the server knows it by.
//! So after a crash an entry is read again rather than lost, and the id of its event makes that harmless.
//!
//! Bounds: [`FOUND_COUNT_MAX`] entries wait for the journal, [`BATCH_COUNT_MAX`] are published at once; when the journal
//! is full, the document is not read further. One document of a feed is read at a time.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use tidings_store::{FeedChange, FeedState, Store, WriteError};
use tidings_telemetry::panics::{self, Work};
use tidings_telemetry::unix_now;
use tidings_types::FeedName;
use tokio::sync::{Mutex, Notify, mpsc, watch};
use tokio::task::spawn_blocking;

use crate::config::FeedConfig;
use crate::door::{Door, Patience, Verdict};
use crate::parse::{Found, Malformed};
use crate::pieces::{self, Fault, Outcome, PIECE_COUNT_MAX, Piece, Said};
use crate::seen::{self, Key, Seen};
use crate::status::{Report, Tracker, WrongEntry};

/// Entries that wait for the journal.
const FOUND_COUNT_MAX: usize = 128;
/// Entries that are published at once. Each is at most some 64 KiB.
const BATCH_COUNT_MAX: usize = 128;
/// Why entries of the first document of a feed are skipped.
const BACKLOG: &str = "it was in the feed before the feed was first read (skip_backlog)";

/// A feed at work.
pub(crate) struct Feed {
    pub(crate) name: FeedName,
    pub(crate) config: FeedConfig,
    pub(crate) tracker: Arc<Tracker>,
    pub(crate) door: Arc<dyn Door>,
    pub(crate) store: Store,
    /// Locked while a document is read.
    pub(crate) memory: Mutex<Memory>,
    /// Somebody wants the feed to be read now.
    pub(crate) wanted: Notify,
    /// How often it was read since the start.
    pub(crate) read_count: watch::Sender<u64>,
}

/// What is known of a feed.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) seen: Seen,
    pub(crate) state: FeedState,
}

/// Where the bytes of a document come from.
pub(crate) enum Source<'s> {
    /// Pieces that arrive, and what their sender says of them.
    Pieces(&'s mut (dyn Pieces + 's), Said),
    File(std::fs::File),
}

/// Pieces of a document that arrives.
pub trait Pieces: Send {
    /// The next piece; `None` at the proper end.
    fn next(&mut self) -> PieceFuture<'_>;
}

/// See [`Pieces::next`]. An error says why the pieces broke off.
pub type PieceFuture<'p> = std::pin::Pin<Box<dyn Future<Output = Option<Result<Bytes, String>>> + Send + 'p>>;

/// Why a document was not read to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The document itself is wrong.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// Its bytes ended early.
    #[error(transparent)]
    Fault(#[from] Fault),
    #[error("{0}")]
    BrokenOff(String),
    /// The journal takes no events.
    #[error("events cannot be written")]
    Closed(#[source] WriteError),
    #[error("a panic ended the reader, the log says where")]
    Panicked,
}

impl Feed {
    /// Reads a document to its end, or as far as possible. What was read is sent and known either way.
    ///
    /// # Cancel safety
    /// Dropped: the rest of the document is not read. Some entries may have been sent and are not known yet; they are
    /// recognized by their ids.
    pub(crate) async fn read(
        &self,
        memory: &mut Memory,
        source: Source<'_>,
        patience: Patience,
    ) -> (Report, Result<(), ReadError>) {
        let (outcome, (found_tx, found)) = (Outcome::default(), mpsc::channel(FOUND_COUNT_MAX));
        let (parser, bytes_max) = (self.config.parser.clone(), self.config.document_bytes_max);
        let (kept, (pieces_tx, arriving)) = (outcome.clone(), mpsc::channel(PIECE_COUNT_MAX));
        let (source, said, file) = match source {
            Source::Pieces(pieces, said) => (Some(pieces), said, None),
            Source::File(file) => (None, Said::default(), Some(file)),
        };
        let parsing = spawn_blocking(move || {
            panics::catch(Work::Document, || {
                let mut document = match file {
                    Some(file) => pieces::of_file(file, bytes_max, kept),
                    None => pieces::of_pieces(arriving, said.coding.as_deref(), bytes_max, kept)?,
                };
                // Nobody takes what is found: the caller has given up.
                let mut tell = |found| match found_tx.blocking_send(found) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(_) => ControlFlow::Break(()),
                };
                Ok((parser.0)(&mut document, said.charset.as_deref(), &mut tell)?)
            })
        });
        let mut report = Report::default();
        let feeding = feed(source, pieces_tx);
        let (broken, taken, parsed) = tokio::join!(feeding, self.take(memory, found, &mut report, patience), parsing);
        self.tracker.count_bytes(outcome.bytes());
        let result = match (taken, broken, outcome.fault(), parsed) {
            (Err(closed), ..) => Err(ReadError::Closed(closed)),
            (_, Some(why), Some(Fault::BrokenOff), _) => Err(ReadError::BrokenOff(why)),
            (_, _, Some(fault), _) => Err(fault.into()),
            (_, _, None, Ok(Ok(parsed))) => parsed,
            (_, _, None, Ok(Err(_)) | Err(_)) => Err(ReadError::Panicked),
        };
        (report, result)
    }

    /// Sends what was found, batch by batch.
    async fn take(
        &self,
        memory: &mut Memory,
        mut found: mpsc::Receiver<Found>,
        report: &mut Report,
        patience: Patience,
    ) -> Result<(), WriteError> {
        let mut batch = Vec::with_capacity(BATCH_COUNT_MAX);
        while found.recv_many(&mut batch, BATCH_COUNT_MAX).await > 0 {
            let before = report.counts;
            let sent = self.send(memory, batch.drain(..), report, patience).await;
            self.tracker.count(report.counts - before);
            sent?;
        }
        Ok(())
    }

    async fn send(
        &self,
        memory: &mut Memory,
        batch: impl Iterator<Item = Found>,
        report: &mut Report,
        patience: Patience,
    ) -> Result<(), WriteError> {
        let is_backlog = self.config.how.skips_backlog() && !memory.state.is_begun;
        let (mut keys, mut places, mut events) = (Vec::new(), Vec::new(), Vec::<String>::new());
        let mut known: Vec<Key> = Vec::new();
        for found in batch {
            match found {
                Found::Skipped { reason, .. } => report.skip(&reason),
                Found::Wrong(wrong) => report.note_wrong(self.tracker.note_wrong(wrong)),
                Found::Entry { id, json, at } => {
                    let key = seen::key(&id);
                    if memory.seen.touch(&key) || keys.contains(&key) || known.contains(&key) {
                        report.counts.repeated += 1;
                    } else if is_backlog {
                        report.skip(BACKLOG);
                        known.push(key);
                    } else {
                        keys.push(key);
                        places.push(at);
                        events.push(json);
                    }
                }
            }
        }
        if !events.is_empty() {
            let verdicts = patience.publish(&*self.door, events, &self.tracker).await?;
            for ((key, at), verdict) in keys.into_iter().zip(places).zip(verdicts) {
                match verdict {
                    Verdict::Accepted => report.counts.sent += 1,
                    // With other content: the entry has changed, and its id says that it is the same event.
                    Verdict::Repeated | Verdict::Conflict => report.counts.repeated += 1,
                    Verdict::Refused { detail, .. } => {
                        report.note_wrong(self.tracker.note_wrong(WrongEntry { at, reason: detail }));
                        continue; // It is not known, so it is sent when the configuration was mended.
                    }
                }
                known.push(key);
            }
        }
        if known.is_empty() { Ok(()) } else { self.keep(memory, known, patience).await }
    }

    /// Makes durable what is known of the feed, and that these entries are known now.
    pub(crate) async fn keep(
        &self,
        memory: &mut Memory,
        known: Vec<Key>,
        patience: Patience,
    ) -> Result<(), WriteError> {
        let mut seen: Vec<_> = known.into_iter().map(|key| memory.seen.add(key)).collect();
        let forgotten = memory.seen.trim();
        seen.retain(|(key, _)| memory.seen.knows(key)); // One document may have more than are kept.
        memory.state.at = unix_now();
        let change = FeedChange { state: memory.state.clone(), seen, forgotten };
        patience.keep(&self.store, &self.name, change, &self.tracker).await?;
        let (known, etag) = (memory.seen.count(), memory.state.validator.etag.clone());
        self.tracker.update(|status| (status.known, status.etag) = (known, etag));
        Ok(())
    }
}

/// Hands the pieces to the reader; says why they broke off.
async fn feed(source: Option<&mut dyn Pieces>, pieces: mpsc::Sender<Piece>) -> Option<String> {
    let source = source?;
    loop {
        let next = tokio::select! {
            next = source.next() => next,
            () = pieces.closed() => return None, // The reader wants no more.
        };
        let piece = match next {
            Some(Ok(data)) => Piece::Data(data),
            Some(Err(why)) => return Some(why),
            None => Piece::End,
        };
        let is_end = matches!(piece, Piece::End);
        if pieces.send(piece).await.is_err() || is_end {
            return None;
        }
    }
}
