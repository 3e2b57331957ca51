//! What others ask of a feed: to take a document, or to be read now.

use std::time::Duration;

use tidings_telemetry::chain;
use tidings_types::FeedName;
use tokio::time::timeout;

use crate::Intake;
use crate::config::How;
use crate::door::Patience;
use crate::feed::{Pieces, ReadError, Source};
use crate::pieces::Said;
use crate::status::{Report, SourceStatus};

/// How long a document waits while another one of its feed is read.
const TURN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request to read a feed now waits for the end.
const POLL_WAIT: Duration = Duration::from_secs(30);

/// What became of a received document.
#[derive(Debug)]
pub struct Received {
    /// What became of the entries that were read.
    pub report: Report,
    /// `None`: the document was read to its end.
    pub error: Option<ReceiveError>,
}

/// Why a document was not taken, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// No feed has this name.
    #[error("no feed is called {0}")]
    Unknown(FeedName),
    /// The feed takes no documents.
    #[error("the feed {0} is not received: set `received = true`")]
    NotReceived(FeedName),
    /// The document is wrong from here on.
    #[error("{0}")]
    Malformed(String),
    /// The document is too large.
    #[error("the document must have at most {0} bytes")]
    TooLarge(u64),
    /// Other documents of the feed are read, or the store takes nothing now. Later it may.
    #[error("{0}")]
    Busy(String),
}

/// Why a feed is not read now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PollError {
    /// No feed has this name.
    #[error("no feed is called {0}")]
    Unknown(FeedName),
    /// Nothing can be fetched.
    #[error("the feed {0} is received, so there is nothing to fetch")]
    NotPolled(FeedName),
}

impl Intake {
    /// Takes a document of a received feed.
    ///
    /// # Cancel safety
    /// Dropped: entries that were read may have been sent. The document may be sent again as a whole.
    pub async fn receive(&self, name: &FeedName, said: Said, pieces: &mut dyn Pieces) -> Received {
        let refused = |error| Received { report: Report::default(), error: Some(error) };
        let Some(feed) = self.feeds.get(name) else { return refused(ReceiveError::Unknown(name.clone())) };
        if !matches!(feed.config.how, How::Received) {
            return refused(ReceiveError::NotReceived(name.clone()));
        }
        let Ok(mut memory) = timeout(TURN_TIMEOUT, feed.memory.lock()).await else {
            let seconds = TURN_TIMEOUT.as_secs();
            return refused(ReceiveError::Busy(format!("other documents of the feed were read for {seconds} seconds")));
        };
        feed.tracker.began();
        let (report, read) = feed.read(&mut memory, Source::Pieces(pieces, said), Patience::GiveUp).await;
        match &read {
            Ok(()) => feed.tracker.worked(Some(report.counts)),
            Err(error) => feed.tracker.failed(&chain(error)),
        }
        feed.read_count.send_modify(|count| *count += 1);
        let error = read.err().map(|error| match error {
            ReadError::Closed(error) => ReceiveError::Busy(error.to_string()),
            ReadError::Fault(crate::pieces::Fault::TooLarge(limit)) => ReceiveError::TooLarge(limit),
            error => ReceiveError::Malformed(chain(&error)),
        });
        Received { report, error }
    }

    /// Reads a feed now, waits for the end for up to 30 seconds, and returns its status then.
    ///
    /// # Errors
    /// If there is no such feed, or nothing to fetch.
    ///
    /// # Cancel safety
    /// Dropped: the feed is read nevertheless.
    pub async fn poll(&self, name: &FeedName) -> Result<SourceStatus, PollError> {
        let feed = self.feeds.get(name).ok_or_else(|| PollError::Unknown(name.clone()))?;
        if matches!(feed.config.how, How::Received) {
            return Err(PollError::NotPolled(name.clone()));
        }
        let mut read_count = feed.read_count.subscribe();
        feed.wanted.notify_one();
        let _ = timeout(POLL_WAIT, read_count.changed()).await; // Otherwise the status says that it is being read.
        Ok(feed.tracker.status())
    }
}
