//! What survives `kill -9`: the journal of events, and those that are not yet due; durable channels; devices
//! with their users, secrets, subscriptions and mutes, and which tokens are proven; how far imports are; jobs and brakes.
//!
//! [`Store`] is a cheap handle. All writing goes through one *committer* on a thread of its own: it drains bounded
//! queues (events before devices before imports, none for ever), makes one atomic batch, syncs it, applies it to the
//! device table and the audience index in memory, tells the [`CommitSink`] in journal order, and only then
//! acknowledges.
//!
//! ```text
//!  append, put, subscribe ─► queues ─► committer: rows ─► sync ─► table, index ─► sink ─► acknowledge
//!                          (bounded)                       │ error
//!                                                          └► refuse all, close, back off, reopen, rebuild, go on
//!  events_from, prove, select, with_recipients  ◄─── rows │ table │ index         (no queue: readers never wait for a write)
//! ```
//!
//! Guarantees: what was acknowledged is there after a crash; a batch is there as a whole or not at all; a write that
//! was *not* acknowledged may still be there, and repeating it gives the same answer (events by id, the rest by nature).
//! These rest on fjall's journal (checksummed batches, a torn one is cut off at open) and on `fdatasync`. Job rows,
//! trimming, proven tokens and when a device was seen are handed to the operating system without a sync: after a power
//! failure they lag, which their readers allow.
//!
//! Full: a queue, the journal or a count at its bound refuses with [`WriteError::Overloaded`]. A failing disk refuses
//! with [`WriteError::Unavailable`] until writing works again; reading and sending from memory go on meanwhile.
//!
//! A damaged row costs what needs it and no more; `damage.rs` says it table by table.
//!
//! A folder whose data is gone or another store's is never taken for this one, nor begun anew, while the store is in use.
//!
//! Where to find what: each subject has a folder, with its types, its rows (`rows.rs`), what callers ask and what the
//! committer does with it (`write.rs`), and what is read (`read.rs`): `events`, `channels`, `devices`, `subscriptions`,
//! `mutes`, `jobs`, `brakes`, `imports`. They stand on one core: `engine` (fjall), `committer` with its `draft`, `queue`,
//! `table` and `blocks` (devices by number), `checkpoint`. A new kind of write is a method of [`Store`] that hands the
//! committer a piece of work, and a method of the draft that does it: both in the subject's folder.
//!
//! Not here: who is to be told (audience), what is sent (sender), fan-out (hub), clocks: every write brings its `now`,
//! and what expires, expires by the latest one seen, or by [`StoreConfig::clock`] while nobody writes.

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
mod folder;
mod hash;
mod imports;
mod jobs;
mod message;
mod meta;
mod mutes;
mod open;
mod packed;
mod queue;
mod rows;
mod service;
mod shared;
mod sink;
mod subscriptions;
mod table;
mod weight;

pub use brakes::positions::PositionSet;
pub use brakes::{Brakes, PAUSE_COUNT_MAX};
pub use channels::{DurableChannel, RestoredChannel, StoredPublication};
pub use config::{QueueLimit, StoreConfig};
pub use devices::credential::{Credential, CredentialHash, GivenCredential};
pub use devices::{
    ExportPage, Exported, GoneToken, NewDevice, Precondition, PutTerms, Recipient, Registered, USER_DEVICE_COUNT_MAX,
};
pub use engine::EngineError;
pub use error::{AppendError, ChangeError, ImportError, OpenError, ReadError, SubscribeError, WriteError};
pub use events::{AcceptedEvent, Appended, AppendedTo, LaterEvent, LaterKey, NewEvent};
pub use imports::{ImportProgress, ImportStep, Imported, NewImport};
pub use service::{Counts, Store};
pub use sink::CommitSink;
pub use subscriptions::Selection;
