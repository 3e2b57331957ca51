//! The way of an event into the journal, the same for every source.
//!
//! A source makes events, gives each an id that is the same at every repeat, and publishes them through the [`Door`].
//! The ids make a repeat harmless, so a source publishes first and notes its progress afterwards. While the door is
//! closed, because the journal is full or the disk fails, a source waits and tries again ([`Patience`]).

use std::pin::Pin;
use std::time::Duration;

use tidings_store::{FeedChange, Store, WriteError};
use tidings_types::{Backoff, FeedName};
use tokio::time::sleep;

use crate::status::Tracker;

/// Before the door is tried again. They are short: a full journal has room again when jobs end.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

/// Checks events as `POST /v1/events` does, and makes them durable.
pub trait Door: Send + Sync + 'static {
    /// Publishes events, each an object in JSON as `POST /v1/events` takes it, and says what became of each, in their
    /// order. At an error the events may be published again.
    fn publish(&self, events: Vec<String>) -> DoorFuture<'_>;
}

/// See [`Door::publish`].
pub type DoorFuture<'d> = Pin<Box<dyn Future<Output = Result<Vec<Verdict>, WriteError>> + Send + 'd>>;

/// What became of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is in the journal, or scheduled.
    Accepted,
    /// It was accepted before.
    Repeated,
    /// An event with its id and other content was accepted before.
    Conflict,
    /// It breaks a rule, so it will never be accepted as it is.
    Refused {
        /// The field that breaks the rule; may be empty.
        field: String,
        /// The rule, and perhaps the value: not for logs.
        detail: String,
    },
}

/// What a source does while the store takes nothing, because the journal is full or the disk fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It tries again until the store takes its events.
    Wait,
    /// It gives up, and tells who has sent the events.
    GiveUp,
}

impl Patience {
    /// Publishes events.
    ///
    /// # Errors
    /// If the store takes nothing, and the source gives up.
    ///
    /// # Cancel safety
    /// Dropped: the events are published or not, and may be published again.
    pub async fn publish(
        self,
        door: &dyn Door,
        events: Vec<String>,
        tracker: &Tracker,
    ) -> Result<Vec<Verdict>, WriteError> {
        let mut attempts = 0;
        loop {
            match door.publish(events.clone()).await {
                Err(error) => self.pause(error, &mut attempts, tracker).await?,
                verdicts => return verdicts,
            }
        }
    }

    /// Keeps what is known of a feed.
    ///
    /// # Errors
    /// As [`Patience::publish`].
    pub(crate) async fn keep(
        self,
        store: &Store,
        name: &FeedName,
        change: FeedChange,
        tracker: &Tracker,
    ) -> Result<(), WriteError> {
        let mut attempts = 0;
        loop {
            match store.put_feed(name.clone(), change.clone()).await {
                Err(error) => self.pause(error, &mut attempts, tracker).await?,
                done => return done,
            }
        }
    }

    /// The pause before the store is tried again; the status says for what the source waits.
    async fn pause(self, error: WriteError, attempts: &mut u32, tracker: &Tracker) -> Result<(), WriteError> {
        if self == Self::GiveUp {
            return Err(error);
        }
        tracker.update(|status| status.error = Some(format!("waiting: {error}")));
        *attempts += 1;
        sleep(PAUSES.pause(*attempts, rand::random())).await;
        Ok(())
    }
}
