//! Polls a feed: one task per feed, one poll at a time.
//!
//! Bound: [`POLL_COUNT_MAX`] feeds are read at once, because each needs a thread; the others wait for their turn.

use std::sync::Arc;
use std::time::Duration;

use tidings_store::FeedValidator;
use tidings_telemetry::{chain, unix_now};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::door::Patience;
use crate::feed::{Feed, PieceFuture, Pieces, Source};
use crate::fetch::{Answer, Body, Fetch};
use crate::schedule::{Pace, Schedule};

/// Feeds that are read at once.
pub(crate) const POLL_COUNT_MAX: usize = 8;

impl Pieces for Body {
    fn next(&mut self) -> PieceFuture<'_> {
        Box::pin(Body::next(self))
    }
}

/// Polls until it is dropped.
pub(crate) async fn run(feed: Arc<Feed>, fetch: Box<Fetch>, pace: Pace, limit: Duration, polls: Arc<Semaphore>) {
    let mut schedule = Schedule::new(pace);
    let mut pause = schedule.first(rand::random());
    loop {
        feed.wait(pause).await;
        let permit = polls.acquire().await.expect("it is never closed");
        feed.tracker.began();
        let polled = timeout(limit, feed.poll(&fetch)).await;
        let polled = polled.unwrap_or_else(|_| Err((format!("the poll took longer than {limit:?}"), None)));
        drop(permit);
        let asked = polled.as_ref().err().and_then(|(_, asked)| *asked);
        if let Err((error, _)) = &polled {
            feed.tracker.failed(error);
        }
        pause = schedule.next(polled.is_ok(), asked, rand::random());
        feed.read_count.send_modify(|count| *count += 1);
    }
}

impl Feed {
    /// Waits until the feed is to be read again.
    pub(crate) async fn wait(&self, pause: Duration) {
        self.tracker.update(|status| status.next_at = Some(unix_now().saturating_add(pause)));
        tokio::select! {
            () = sleep(pause) => {}
            () = self.wanted.notified() => {}
        }
        self.tracker.update(|status| status.next_at = None);
    }

    /// One poll. An error has the pause that the server asks for.
    async fn poll(&self, fetch: &Fetch) -> Result<(), (String, Option<Duration>)> {
        let mut memory = self.memory.lock().await;
        let source = self.config.fingerprint;
        // With another address or mapping, an unchanged document may say something new.
        let former = &memory.state.validator;
        let former = if former.source == source { former.clone() } else { FeedValidator::default() };
        let answer = fetch.fetch(&former).await.map_err(|error| (chain(&error), error.retry_after()))?;
        let Answer::Document(mut document) = answer else {
            self.tracker.worked(None);
            return Ok(());
        };
        let source_bytes = Source::Pieces(&mut document.body, document.said);
        let (report, read) = self.read(&mut memory, source_bytes, Patience::Wait).await;
        read.map_err(|error| (chain(&error), None))?;
        let validator = FeedValidator { source, ..document.validator };
        if validator != memory.state.validator || !memory.state.is_begun {
            (memory.state.validator, memory.state.is_begun) = (validator, true);
            let kept = self.keep(&mut memory, Vec::new(), Patience::Wait).await;
            kept.map_err(|error| (error.to_string(), None))?;
        }
        self.tracker.worked(Some(report.counts));
        Ok(())
    }
}
