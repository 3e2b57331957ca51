//! Settings of the store; the defaults are the binary's. Each bound says what happens when it is reached.

use std::path::PathBuf;
use std::time::Duration;

use tidings_types::Timestamp;

/// Where the store lives and what bounds it.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The folder; created when missing, locked while open.
    pub path: PathBuf,
    /// Appends and publications that wait for the committer.
    pub event_queue: QueueLimit,
    /// Changes of devices and subscriptions that wait.
    pub device_queue: QueueLimit,
    /// Import chunks that wait.
    pub import_queue: QueueLimit,
    /// Events in the journal; at this many, appending is refused until the sender is done with older ones.
    pub journal_event_count_max: u64,
    /// Bytes of events in the journal; as above.
    pub journal_bytes_max: u64,
    /// Events that are accepted and not yet due; at this many, or at `journal_bytes_max` bytes of them, another is
    /// refused.
    pub later_count_max: u64,
    /// How long an event's id is remembered at least from when it is due, unless `id_window_count` is exceeded.
    pub id_window: Duration,
    /// How many ids are remembered; with more, the oldest are forgotten before `id_window` is over.
    pub id_window_count: u64,
    /// Devices that live. Twice as many numbers and 65 536 more may be in use, with 10 bytes of memory each, and up
    /// to 23 for each of the most that lived since the opening.
    pub device_count_max: u32,
    /// Subscriptions of one device, counted as (subject, topic). At most 65 535; more count as that.
    pub subscription_count_max: u32,
    /// Mutes of one device, counted by scope.
    pub mute_count_max: u32,
    /// How long a device that is not seen is kept: then it is deleted, within about a day. `None`: for ever.
    pub idle_max: Option<Duration>,
    /// Durable channels that are remembered; at this many, publishing into another one is refused.
    pub channel_count_max: u64,
    /// A durable channel whose history is empty and in which nothing was published for this long is forgotten. A reader that
    /// comes back to it then starts anew.
    pub channel_ttl: Duration,
    /// How many changes of devices, subscriptions and mutes, and moves of records, make a new checkpoint due: with more,
    /// there are fewer checkpoints, and opening takes longer. 1 M are replayed in some seconds.
    pub checkpoint_change_count: u64,
    /// First pause before a failed store is opened again; doubles up to `reopen_backoff_max`.
    pub reopen_backoff_min: Duration,
    /// Longest pause between two tries.
    pub reopen_backoff_max: Duration,
    /// Memory for blocks read from disk, in bytes.
    pub cache_bytes: u64,
    /// The wall clock: what ends by itself (mutes, idle devices) also ends while nobody writes.
    pub clock: fn() -> Timestamp,
}

/// Bound of one of the committer's queues. Full: the caller is refused at once. Closed: what waits is still written.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimit {
    /// Requests that wait.
    pub count: usize,
    /// Their bytes together.
    pub bytes: usize,
}
