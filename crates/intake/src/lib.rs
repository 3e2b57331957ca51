//! Where events come from besides the API: feeds of documents, which become events by a mapping.
//!
//! A feed is *polled* (a server is asked in intervals), *received* (somebody posts its documents), or *files* (they
//! appear in a folder). Each document has entries, and each entry that is not known becomes an event.
//!
//! ```text
//!  poll ──┐
//!  files ─┼─► feed: bytes ─► parse ─► seen? ─► door ─► journal
//!  POST ──┘                            ▲                 │
//!                                      └── known entries ┘   (durable, after the events)
//! ```
//!
//! Guarantee: each entry is sent once, in the order of its document, even if the feed repeats it, breaks off, or the
//! server crashes. It rests on two things: the event of an entry always has the same id, so the journal takes it once;
//! and the known entries are durable, so it stays so after the journal has forgotten the id. Nothing is lost, because an
//! entry is known only when its event is durable. An entry that is wrong costs only itself.
//!
//! What other sources of events share with feeds: the [`Door`], [`Patience`] while it is closed, and the [`Tracker`] for
//! status, metrics and log lines.
//!
//! Not here: what a document means (the parser), what a valid event is (the door), HTTP routes.
//!
//! Bounds: [`SOURCE_COUNT_MAX`] sources; `POLL_COUNT_MAX` documents read at once, received ones besides; see `feed`,
//! `pieces`, `fetch`, `files` and `status` for the bounds of each.

mod config;
mod door;
mod feed;
mod fetch;
mod files;
mod memory;
#[cfg(feature = "sources")]
mod messages;
mod parse;
mod pieces;
mod place;
mod poll;
mod receive;
mod schedule;
mod seen;
mod status;
mod within;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidings_store::Store;
use tidings_telemetry::Registry;
use tidings_types::FeedName;
use tokio::sync::{Mutex, Notify, Semaphore, watch};
use tokio::task::JoinSet;

pub use config::{FeedConfig, How};
pub use door::{Door, DoorFuture, Patience, Verdict};
pub use feed::{PieceFuture, Pieces};
pub use fetch::{Address, Fetch, REDIRECT_COUNT_MAX};
pub use files::FILE_COUNT_MAX;
pub use memory::memory_terms;
#[cfg(feature = "sources")]
pub use messages::{
    DatabaseError, EVENT_BYTES_MAX, JetStreamConfig, MESSAGE_COUNT_MAX, MessageSource, OutboxConfig, database,
};
pub use parse::{Found, Malformed, ParseFn, Parser};
pub use pieces::Said;
pub use place::{ServerError, check_server, is_identifier, is_loopback, is_nats_name, is_table};
pub use receive::{PollError, ReceiveError, Received};
pub use schedule::Pace;
pub use status::{
    Counts, REASON_COUNT_MAX, Report, SOURCE_COUNT_MAX, SourceStatus, Tracker, WRONG_COUNT_MAX, WrongEntry,
};
pub use within::open_within;

use feed::{Feed, Memory};
use poll::POLL_COUNT_MAX;
use seen::Seen;

/// The feeds of a server, at work. Dropped: all of them stop.
pub struct Intake {
    feeds: BTreeMap<FeedName, Arc<Feed>>,
    /// The sources of messages.
    trackers: Vec<Arc<Tracker>>,
    tasks: std::sync::Mutex<JoinSet<()>>,
}

impl fmt::Debug for Intake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Intake").field("feeds", &self.feeds.keys()).finish_non_exhaustive()
    }
}

impl Intake {
    /// Reads what is known of the feeds, and starts them.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn start(
        feeds: BTreeMap<FeedName, FeedConfig>,
        store: &Store,
        door: &Arc<dyn Door>,
        registry: &Registry,
    ) -> Result<Self, tidings_store::ReadError> {
        let (mut tasks, reads) = (JoinSet::new(), Arc::new(Semaphore::new(POLL_COUNT_MAX)));
        let mut started = BTreeMap::new();
        for (name, config) in feeds {
            let kept = store.feed(&name)?;
            let tracker = Tracker::new(name.as_str(), config.kind, config.how.word(), config.how.place(), registry);
            let (known, etag) = (kept.entries.len(), kept.state.validator.etag.clone());
            tracker.update(|status| (status.known, status.etag) = (known, etag));
            let memory = Memory { seen: Seen::new(kept.entries, config.known_count_max), state: kept.state };
            let how = config.how.clone();
            let feed = Arc::new(Feed {
                name: name.clone(),
                config,
                tracker: Arc::new(tracker),
                door: door.clone(),
                store: store.clone(),
                memory: Mutex::new(memory),
                wanted: Notify::new(),
                read_count: watch::Sender::new(0),
            });
            match how {
                How::Polled { fetch, pace, timeout, .. } => {
                    tasks.spawn(poll::run(feed.clone(), fetch, pace, timeout, reads.clone()));
                }
                How::Files { folder, affixes, interval } => {
                    tasks.spawn(files::run(feed.clone(), folder, affixes, interval, reads.clone()));
                }
                How::Received => {}
            }
            started.insert(name, feed);
        }
        Ok(Self { feeds: started, trackers: Vec::new(), tasks: std::sync::Mutex::new(tasks) })
    }

    /// The status of each source: feeds by name, then the sources of messages.
    pub fn statuses(&self) -> Vec<SourceStatus> {
        let feeds = self.feeds.values().map(|feed| &feed.tracker);
        feeds.chain(&self.trackers).map(|tracker| tracker.status()).collect()
    }

    /// Stops all feeds. What they were about to read is read after the next start.
    pub async fn stop(&self) {
        let mut tasks = std::mem::take(&mut *tidings_telemetry::panics::lock(&self.tasks));
        tasks.shutdown().await;
    }
}
