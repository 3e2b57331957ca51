//! How large the answer to one request may be.
//!
//! Results are written into the answer's *room* of [`ANSWER_BYTES_MAX`]. What reads (history, presence) and does not fit is
//! refused. Once the room is full, nothing more of the request is done: no result is lost that somebody waits for.
//!
//! An answer over [`SMALL_ANSWER_BYTES`] takes one of [`LARGE_ANSWER_COUNT_MAX`] places until it is written to its reader.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use axum::body::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::OwnedSemaphorePermit;

use super::error::ApiError;
use crate::auth::Caller;
use crate::shared::Shared;

/// Bytes of all results of a request.
pub(super) const ANSWER_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(ANSWER_BYTES_MAX == 8 << 20, "the message of `AnswerTooLarge` says so");
/// Bytes of an answer that needs no place.
const SMALL_ANSWER_BYTES: usize = 64 << 10;
/// Larger answers at a time.
pub(crate) const LARGE_ANSWER_COUNT_MAX: usize = 16;

/// The room of one request's answer.
pub(super) struct Room<'r> {
    shared: &'r Arc<Shared>,
    caller: &'r Caller,
    left: AtomicUsize,
    /// Something that was to be read did not fit. Finding that out took as long as filling the room, so it is done once.
    is_overrun: AtomicBool,
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl<'r> Room<'r> {
    pub(super) fn new(shared: &'r Arc<Shared>, caller: &'r Caller) -> Self {
        let (left, is_overrun, place) = (AtomicUsize::new(ANSWER_BYTES_MAX), AtomicBool::new(false), Mutex::default());
        Self { shared, caller, left, is_overrun, place }
    }

    /// Before something is done.
    ///
    /// # Errors
    /// When there is no room for any result.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        if self.left.load(Ordering::Relaxed) == 0 { Err(ApiError::AnswerTooLarge) } else { Ok(()) }
    }

    /// The result of something that was done: it is told, whether or not it fits.
    pub(super) fn done(&self, result: &impl Serialize) -> String {
        let text = text(result);
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(text.len()), Ordering::Relaxed);
        let _ = self.place(); // Without one it is told all the same.
        text
    }

    /// What `read` finds, unless it does not fit.
    ///
    /// # Errors
    /// Those of `read`; when the room is too small, or there are too many large answers.
    pub(super) fn read<T: Serialize>(&self, read: impl FnOnce() -> Result<T, ApiError>) -> Result<String, ApiError> {
        let left = self.left.load(Ordering::Relaxed);
        if left == 0 || self.is_overrun.load(Ordering::Relaxed) {
            return Err(ApiError::AnswerTooLarge);
        }
        let mut bounded = Bounded { bytes: Vec::new(), bytes_max: left };
        if serde_json::to_writer(&mut bounded, &read()?).is_err() {
            self.is_overrun.store(true, Ordering::Relaxed);
            return Err(ApiError::AnswerTooLarge);
        }
        self.left.store(left - bounded.bytes.len(), Ordering::Relaxed);
        self.place()?;
        Ok(String::from_utf8(bounded.bytes).expect("JSON is UTF-8"))
    }

    /// Takes a place if the answer has become large.
    fn place(&self) -> Result<(), ApiError> {
        let mut place = self.place.lock();
        if place.is_none() && ANSWER_BYTES_MAX - self.left.load(Ordering::Relaxed) > SMALL_ANSWER_BYTES {
            *place = Some(self.shared.large_answers.take(self.caller).ok_or(ApiError::TooManyLargeAnswers)?);
        }
        Ok(())
    }

    /// The whole answer; its place, if it has one, is free when its bytes are written.
    pub(super) fn into_bytes(self, answer: String) -> Bytes {
        Bytes::from_owner(Held { bytes: answer.into_bytes(), _place: self.place.into_inner() })
    }
}

/// Bytes and the place that they take.
struct Held {
    bytes: Vec<u8>,
    _place: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Takes so many bytes and then fails.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A result as JSON.
pub(super) fn text(result: &impl Serialize) -> String {
    serde_json::to_string(result).expect("our own shapes have string keys")
}
