//! The store: all state that survives `kill -9`. It holds the journal of events; scheduled events; durable channels;
//! devices with their users, secrets, subscriptions and mutes; the set of proven tokens; the progress of imports; how
//! far feeds are read; jobs and brakes.
//!
//! [`Store`] is a cheap handle. All writes go through one *committer* with its own thread. It drains bounded queues
//! (events before devices before imports, but no queue starves) and makes one atomic batch. It syncs the batch, applies
//! it to the device table and the audience index in memory, and calls the [`CommitSink`] in journal order. Only then it
//! acknowledges.
//!
//! ```text
//!  append, put, subscribe ─► queues ─► committer: rows ─► sync ─► table, index ─► sink ─► acknowledge
//!                          (bounded)                       │ error
//!                                                          └► refuse all, close, back off, reopen, rebuild, go on
//!  events_from, prove, select, with_recipients  ◄─── rows │ table │ index         (no queue: readers never wait for a write)
//! ```
//!
//! Guarantees: an acknowledged write survives a crash. A batch is written completely or not at all. A write that was
//! *not* acknowledged may still have been made, and repeating it gives the same answer (events by id, publications by
//! idempotency key if they have one, all other writes because they are idempotent). These guarantees rest on fjall's
//! journal (batches have checksums, a torn batch is cut off at open) and on `fdatasync`. Job rows, trimming, proven
//! tokens and the time when a device was last seen are written without a sync: after a power failure they may be older,
//! and their readers allow for that.
//!
//! A store can also be one of several that share a log (`log.rs`): then the log is what makes a batch durable, one store
//! leads, and the others make the same batches of its records (`record.rs`) and refuse writes.
//!
//! Full: when a queue, the journal or a count is at its bound, writes fail with [`WriteError::Overloaded`]. While the
//! disk fails, writes fail with [`WriteError::Unavailable`]; reading and sending from memory continue.
//!
//! A damaged row affects only the operations that need it; `damage.rs` has the list by table.
//!
//! While the store is in use, it never accepts a folder that has lost its data or belongs to another store, and never
//! starts an empty store there.
//!
//! Files: each subject has a folder with its types, its rows (`rows.rs`), its writes (`write.rs`) and its reads
//! (`read.rs`): `events`, `channels`, `devices`, `subscriptions`, `mutes`, `jobs`, `brakes`, `imports`,
//! `feeds`. All use one
//! core: `engine` (fjall), `committer` with its `draft`, `queue`, `table` and `blocks` (devices by number),
//! `checkpoint`. A new kind of write is a method of [`Store`] that gives the committer a piece of work, and a method of
//! the draft that does it. Both are in the subject's folder.
//!
//! Not here: selection (audience), sending (sender), fan-out (hub), clocks. Every write brings its `now`. Expiry uses
//! the latest `now` seen, or [`StoreConfig::clock`] while there are no writes.

pub mod backup;
mod blocks;
mod brakes;
mod channels;
mod checkpoint;
mod committer;
mod config;
mod damage;
mod devices;
mod engine;
mod error;
mod events;
mod feeds;
mod folder;
mod hash;
mod imports;
mod jobs;
mod log;
mod memory;
mod meta;
mod metrics;
mod mutes;
mod open;
mod packed;
mod queue;
mod record;
mod rows;
mod service;
mod shared;
mod sink;
mod subscriptions;
mod table;
mod weight;

pub use brakes::positions::PositionSet;
pub use brakes::{Brakes, PAUSE_COUNT_MAX};
pub use channels::{DurableChannel, Once, RestoredChannel, StoredPublication, Version};
pub use config::{QueueLimit, StoreConfig};
pub use devices::credential::{Credential, CredentialHash, GivenCredential};
pub use devices::export::PAGE_BYTES as EXPORT_PAGE_BYTES;
pub use devices::{
    ExportPage, Exported, GoneToken, NewDevice, Precondition, PutTerms, Recipient, Registered, USER_DEVICE_COUNT_MAX,
};
pub use engine::EngineError;
pub use error::{AppendError, ChangeError, ImportError, OpenError, ReadError, SubscribeError, WriteError};
pub use events::{AcceptedEvent, Appended, AppendedTo, LaterEvent, LaterKey, NewEvent};
pub use feeds::{FEED_COUNT_MAX, FeedChange, FeedEntry, FeedState, FeedValidator, FileMark, KeptFeed};
pub use imports::{ImportProgress, ImportStep, Imported, NewImport};
pub use log::{CommitLog, LogError, LogPosition, LogRecord, Role};
pub use service::{Counts, Store};
pub use sink::CommitSink;
pub use subscriptions::Selection;
