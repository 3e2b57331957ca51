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
//! A damaged row, or block of a file, costs what needs it and no more. It is named in the log and in the error, and a
//! request that rests on it is refused, while the others of its batch are done and the store stays open:
//!
//! - `event`: left out of the journal, so it is sent to nobody; trimmed when its turn comes. A retry of it is refused
//!   until then. `event_id`: as that. `later`: lost when its turn comes, its id free. Those behind a block of `later`
//!   that cannot be read are found by their ids, at the price of a walk over all of them.
//! - `channel`: goes on behind the last publication of its history, or else behind all offsets that it can have given
//!   out. `history`: ends the history before it.
//! - `device`, `subscription`, `proven`: left out where all rows are read at open, up to 16; with more, or a block that
//!   cannot be read, the store does not open. From a checkpoint they are there, and found when their rows are asked for. A
//!   device comes back when it registers. `change`, as the checkpoint: all rows are read. `device_id`, `token`: memory
//!   is asked, and the row written anew.
//! - `mute`: one whose end cannot be read holds until it is taken back. `mute_end`: its mute holds until it is taken
//!   back; with a block that cannot be read, what is over is looked for among all mutes, and later. `import`: its next
//!   step is refused; under another name it begins anew.
//! - `brake`: everything is paused until that is resumed. `cancelled`: left out. `job`: its bytes are the sender's to
//!   judge.
//! - `meta`: the store does not open, or nobody knows up to where events have jobs; a copy of the folder is needed.
//!
//! A folder whose data is gone or another store's is never taken
//! for this one, nor begun anew, while the store is in use.
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
