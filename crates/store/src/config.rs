//! Settings of the store; the binary has the defaults. Each bound says what happens when it is reached.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tidings_types::Timestamp;

/// The store's folder and its bounds.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The folder; created if missing, locked while open.
    pub path: PathBuf,
    /// Appends and publications that wait for the committer.
    pub event_queue: QueueLimit,
    /// Changes of devices and subscriptions that wait.
    pub device_queue: QueueLimit,
    /// Import chunks that wait.
    pub import_queue: QueueLimit,
    /// Events in the journal. At this many, appending is refused until older ones are done and trimmed.
    pub journal_event_count_max: u64,
    /// Bytes of events in the journal; as above.
    pub journal_bytes_max: u64,
    /// Scheduled events. At this many, or at `journal_bytes_max` bytes of them, a further one is refused.
    pub later_count_max: u64,
    /// How long an event's id is remembered at least, from when the event is due, unless `id_window_count` is exceeded.
    pub id_window: Duration,
    /// How many ids are remembered. If there are more, the oldest are forgotten before `id_window` is over.
    pub id_window_count: u64,
    /// Living devices. Twice as many numbers and 65 536 more may be in use, with 10 bytes of memory each. In addition, up
    /// to 23 bytes for each device at the highest count since the opening.
    pub device_count_max: u32,
    /// Subscriptions of one device, counted as (subject, topic). A value above 65 535 counts as 65 535.
    pub subscription_count_max: u32,
    /// Mutes of one device, counted by scope.
    pub mute_count_max: u32,
    /// A device that was not seen for this long is deleted within about a day. `None`: never.
    pub idle_max: Option<Duration>,
    /// Durable channels. At this many, publishing into a further one is refused.
    pub channel_count_max: u64,
    /// A durable channel with an empty history and without a publication for this long is forgotten. A reader that comes
    /// back to it starts anew.
    pub channel_ttl: Duration,
    /// The same for namespaces that have a time of their own; "" is that of channels without one.
    pub namespace_ttls: BTreeMap<String, Duration>,
    /// A new checkpoint is due after so many changes of devices, subscriptions and mutes, and moves of records. With a
    /// higher number there are fewer checkpoints, and opening takes longer. 1 M changes are replayed in some seconds.
    pub checkpoint_change_count: u64,
    /// First pause before a failed store is opened again; doubles up to `reopen_backoff_max`.
    pub reopen_backoff_min: Duration,
    /// Longest pause between two attempts.
    pub reopen_backoff_max: Duration,
    /// Memory for blocks read from disk, in bytes.
    pub cache_bytes: u64,
    /// The wall clock. With it, mutes and idle devices also end when there are no writes.
    pub clock: fn() -> Timestamp,
}

/// Bound of one of the committer's queues. Full: the caller is refused at once. Closed: waiting requests are still written.
#[derive(Debug, Clone, Copy)]
pub struct QueueLimit {
    /// Requests.
    pub count: usize,
    /// Bytes of all requests together.
    pub bytes: usize,
}
