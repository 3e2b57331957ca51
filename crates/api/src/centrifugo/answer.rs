//! The size of the answer to one request.
//!
//! Results are written into the answer's *room* of [`ANSWER_BYTES_MAX`]. A read (history, presence) whose result does
//! not fit is refused. When the room is full, the remaining commands of the request are not performed. So the result of
//! every performed command is in the answer.
//!
//! An answer over [`SMALL_ANSWER_BYTES`] takes one of [`LARGE_ANSWER_COUNT_MAX`] places until it is written to its
//! reader.

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

/// The most bytes of all results of a request.
pub(crate) const ANSWER_BYTES_MAX: usize = 8 << 20;
const _: () = assert!(ANSWER_BYTES_MAX == 8 << 20, "the message of `AnswerTooLarge` says so");
/// The most bytes of an answer that needs no place.
const SMALL_ANSWER_BYTES: usize = 64 << 10;
/// The most larger answers at a time.
pub(crate) const LARGE_ANSWER_COUNT_MAX: usize = 16;

/// A result without fields.
#[derive(Debug, Serialize)]
pub(super) struct Done {}

/// The room of one request's answer.
pub(super) struct Room<'r> {
    shared: &'r Arc<Shared>,
    caller: &'r Caller,
    left: AtomicUsize,
    /// A read did not fit. To find that out takes as long as filling the room, so it is done only once.
    is_overrun: AtomicBool,
    place: Mutex<Option<OwnedSemaphorePermit>>,
}

impl<'r> Room<'r> {
    pub(super) fn new(shared: &'r Arc<Shared>, caller: &'r Caller) -> Self {
        let (left, is_overrun, place) = (AtomicUsize::new(ANSWER_BYTES_MAX), AtomicBool::new(false), Mutex::default());
        Self { shared, caller, left, is_overrun, place }
    }

    /// To be called before a command is performed.
    ///
    /// # Errors
    /// If there is no room for a result.
    pub(super) fn check(&self) -> Result<(), ApiError> {
        if self.left.load(Ordering::Relaxed) == 0 { Err(ApiError::AnswerTooLarge) } else { Ok(()) }
    }

    /// The result of a performed command: it is written even if it does not fit.
    pub(super) fn done(&self, result: &impl Serialize) -> String {
        let text = text(result);
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(text.len()), Ordering::Relaxed);
        let _ = self.place(); // Without a place it is written all the same.
        text
    }

    /// The result of `read`, if it fits.
    ///
    /// # Errors
    /// Those of `read`; also if the room is too small, or if there are too many large answers.
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

    /// Takes a place if the answer is large now.
    fn place(&self) -> Result<(), ApiError> {
        let is_large = ANSWER_BYTES_MAX - self.left.load(Ordering::Relaxed) > SMALL_ANSWER_BYTES;
        if is_large { self.reserve() } else { Ok(()) }
    }

    /// Takes a place for a result that may be large before it is written.
    ///
    /// # Errors
    /// If there are too many large answers.
    pub(super) fn reserve(&self) -> Result<(), ApiError> {
        let mut place = self.place.lock();
        if place.is_none() {
            *place = Some(self.shared.large_answers.take(self.caller).ok_or(ApiError::TooManyLargeAnswers)?);
        }
        Ok(())
    }

    /// The whole answer. Its place, if it has one, is freed when its bytes are written.
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

/// Accepts a number of bytes and then fails.
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
