//! The feeds of a server, as the API sees them: a port, and what it tells.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use http_body_util::BodyExt;
use serde::Serialize;
use tidings_types::FeedName;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::problem::{Kind, Problem};
use crate::rfc3339::Rfc3339;

/// The feeds of a server.
pub trait Feeds: Send + Sync {
    /// All sources of events, by name.
    fn list(&self) -> Vec<FeedView>;

    /// Reads a document of a feed to its end.
    fn receive(
        &self,
        name: FeedName,
        headers: HeaderMap,
        body: FeedBody,
    ) -> FeedFuture<Result<FeedReport, FeedRefusal>>;

    /// Reads a feed now. Resolves within a minute.
    fn poll(&self, name: FeedName) -> FeedFuture<Result<FeedView, FeedRefusal>>;
}

/// See [`Feeds`].
pub type FeedFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A document that arrives. The handler has the other clone.
#[derive(Debug, Clone)]
pub struct FeedBody {
    body: Arc<Mutex<Body>>,
    /// How long a piece may take.
    timeout: Duration,
}

impl FeedBody {
    pub(crate) fn new(body: Body, timeout: Duration) -> Self {
        Self { body: Arc::new(Mutex::new(body)), timeout }
    }

    /// The next piece; `None` at the proper end.
    ///
    /// # Errors
    /// If the body breaks off, with the reason.
    ///
    /// # Cancel safety
    /// Dropped: no piece is lost.
    pub async fn next(&mut self) -> Option<Result<Bytes, String>> {
        match timeout(self.timeout, async { self.body.lock().await.frame().await }).await {
            Ok(frame) => {
                let data = frame?.map(|frame| frame.into_data().unwrap_or_default());
                Some(data.map_err(|error| format!("the body broke off: {error}")))
            }
            Err(_) => Some(Err(format!("nothing more of the body came within {} seconds", self.timeout.as_secs()))),
        }
    }
}

/// Why a feed does not do what is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FeedRefusal {
    /// There is no such feed, or it is not of a kind for this.
    Unknown(String),
    /// The document is malformed from here on.
    Malformed {
        /// Where, and why.
        detail: String,
        /// What became of the entries before.
        counts: FeedCounts,
    },
    /// The document has more bytes.
    TooLarge(u64),
    /// It may work later.
    Busy(String),
}

impl From<FeedRefusal> for Problem {
    fn from(refusal: FeedRefusal) -> Self {
        match refusal {
            FeedRefusal::Unknown(detail) => Self::new(Kind::NotFound, detail),
            FeedRefusal::Malformed { detail, counts } => {
                let FeedCounts { sent, repeated, skipped, wrong } = counts;
                let before =
                    format!("entries before that: {sent} sent, {repeated} repeated, {skipped} skipped, {wrong} wrong");
                Self::new(Kind::MalformedDocument, format!("{detail}; {before}"))
            }
            FeedRefusal::TooLarge(limit) => {
                let detail = format!("the document must have at most {limit} bytes (document_bytes_max)");
                Self::new(Kind::TooLarge, detail).limit(limit)
            }
            FeedRefusal::Busy(detail) => Self::new(Kind::Overloaded, detail),
        }
    }
}

/// What became of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FeedCounts {
    /// Sent as events.
    pub sent: u64,
    /// Sent before.
    pub repeated: u64,
    /// Not to be sent.
    pub skipped: u64,
    /// Cannot be sent.
    pub wrong: u64,
}

/// What became of the entries of a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedReport {
    /// All entries.
    pub entries: u64,
    /// What became of them.
    #[serde(flatten)]
    pub counts: FeedCounts,
    /// How many were skipped for which reason.
    pub reasons: Vec<FeedReason>,
    /// The first wrong entries.
    pub errors: Vec<FeedError>,
}

/// Entries that were skipped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedReason {
    /// Why.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// An entry that cannot be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedError {
    /// Where it is in its document.
    pub place: String,
    /// What is wrong.
    pub reason: String,
}

/// The state of a source of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FeedView {
    /// Its name.
    pub name: String,
    /// What its documents are.
    pub kind: &'static str,
    /// How they come.
    pub how: &'static str,
    /// Where they come from, without secrets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Whether it works.
    pub state: FeedState,
    /// When it was last read or tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_at: Option<Rfc3339>,
    /// When that last worked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worked_at: Option<Rfc3339>,
    /// When it is read next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Rfc3339>,
    /// The `ETag` of its last document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    /// Entries that are known.
    pub known: usize,
    /// Failures in a row.
    pub failures: u32,
    /// The last failure of these, or for what it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The entries of the last document.
    pub last: FeedCounts,
    /// All entries since the server started.
    pub total: FeedCounts,
    /// The newest wrong entries.
    pub errors: Vec<FeedError>,
}

/// Whether a source works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedState {
    /// Nothing was read yet.
    New,
    /// It is being read.
    Reading,
    /// It waits for the next document.
    Waiting,
    /// The last attempts to read it failed.
    Failing,
}
