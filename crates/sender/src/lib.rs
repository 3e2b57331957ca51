//! Jobs: from an accepted event to one counted outcome for every device of its audience.
//!
//! The [`Sender`] follows the journal. Each event becomes a *job*: its audience is frozen, walked once in the order of
//! device numbers, rendered once per language, provider and app, and handed to the lakes of the provider pools as
//! notifications; gateways draw from the lakes and report outcomes to [`Sender::sink`]. With `push: unless_received`,
//! devices that may prove to have got it over a live connection are held back for a while; those that do are done.
//! [`Topics`] holds the texts and tells the API at the door whether an event can be told to everybody.
//!
//! ```text
//! store: journal ─► dispatcher ─► job: walk ─┬─ lane ─(turn)─► lake of pool A ─► gateway ─┐
//!        (in order)   ▲ │           ▲        ├─ lane ─(turn)─► lake of pool B ─► gateway ─┤
//!                     │ └─► waiting ◄─┘        │                                            │
//! store: brakes ──────┴─► lanes              │                                            │
//! hub: receipts ─────────────────────────────┴─ hold ─────────────────────────────────────┤
//! store: job rows ◄── checkpoint ◄──────────── books ◄───────────── sink.settle ◄─────────┘
//! ```
//!
//! **Once.** Every selected device ends in exactly one [`DeviceOutcome`]; `tidings_jobs` holds the argument. Who registered
//! after the event was accepted is not told of it. The record read when its window is opened decides a device's token,
//! language and pool.
//!
//! **In turn.** A lane is one app of one pool. At a lake lanes take turns by app, then by job, a window each
//! (`turns.rs`); each priority has lakes of its own. Walks take turns on the thread, urgent ones first. The journal is
//! read in its order; a job that finds no slot, or has nothing to send, waits, and starts the more urgent first
//! (`tidings_jobs::Slots`). So an urgent event waits for no other of lower priority, except while that is selected.
//!
//! **Brakes** are the store's rows (`brakes.rs`). Paused lanes hand out nothing; what is in a lake already goes, and
//! what waits for room in one comes back. Receipts count and events expire meanwhile. A cancelled job counts everything
//! that is not handed out as cancelled at once; the gateways learn from [`Sender::sink`] not to try the rest again.
//! Both hold over a restart. An audience that is not as large as the event expects, or larger than the API key may
//! reach, is told nothing.
//!
//! **Filter.** Whom an event's `filter` does not admit when its audience is selected is not of it, and counted nowhere.
//! The filter is asked again with each record that is read: who has changed by then is counted as filtered.
//!
//! **Superseded.** A newer event with the same `collapse_key` takes the devices in both audiences over; `supersede.rs`
//! holds the argument that nobody is left without news or shown the older one last.
//!
//! **Received.** An event's receipts are looked at when its job begins, and then, while anybody is held, at most every
//! 10 ms until `receipt_wait` after its acceptance. A receipt counts that was known when the walk came to the device,
//! or came while it was held. Nobody is held for longer than half of the event's life: there is time left to push. An
//! event dispatched later than that holds nobody. Nobody is held for an event that no device of its audience may
//! answer: such a job has neither a timer nor a task more.
//!
//! **Proven.** The first acceptance of a device's token is told to the store, four times a second and together. Until
//! then a pool with a quarantine has the device's pushes go through that. Nothing spills from a quarantine into the
//! main lakes: what it is too slow for expires.
//!
//! **After a crash** a job goes on from its last checkpoint, which lags by at most `checkpoint_interval` (100 ms) and
//! what the store takes to write it. Nothing is skipped. Repeated are at most the devices whose outcome came since that
//! checkpoint and those in flight (lake, gateway); a repeat carries the same notification and collapse ids. Receipts
//! are not durable: who was held is pushed at once, also after an orderly stop, and so is whose receipt came since that
//! checkpoint. The audience of devices not walked yet is selected anew: a subscription ended or begun meanwhile counts
//! as it is then.
//!
//! **Told.** With `tell_finished` the row of a finished job says that somebody outside is to be told, until they are
//! ([`Sender::take_untold`]). The mark is in the row before the job is told, and "told" comes into it with a later
//! checkpoint: at least once. How it is told, and how often it is tried, is the caller's.
//!
//! **Bounds.** `job_count_max` jobs that have something to hand out (1024), as many again that are more urgent, others
//! that have something in flight, 16 × as many in all, and 64 × as many waiting ones: see `tidings_jobs::Slots`. Per job and
//! lane `window_device_count` × `window_open_count_max` devices in flight (1024 × 32; in practice lake and gateway
//! bound them first); renderings per job: (catalogues + 1) × lanes; the sets of a job: three bits per device number and
//! two more per lane with devices, at most; 512 parts of its counts. A job has a task, and one per lane that somebody
//! of its audience belongs to. A job that holds devices back counts as running, but does not keep others waiting for
//! long: with all slots taken and events waiting, the oldest that only wait for receipts let go, looked for every 100
//! ms, half a second after their events' acceptance: some 1500 events a second begin although each has somebody who
//! does not answer. An event that begins late holds shorter, in the end not at all. Full lake: lanes wait in line, a
//! window each; then slots fill up, then events wait, then the journal grows, which the store bounds. Dead tokens:
//! `gone_token_count_max` (4096) on their way and as many doubtful ones (`wave.rs`), more are forgotten; first
//! acceptances: 2^20. Store refuses checkpoints: they are repeated; finished jobs wait up to twice `report_count_max`
//! (10 000), then dispatching stops.
//!
//! Threads: everything runs on one own thread, a window of a walk or a lane at a time, except [`Sender::sink`], which
//! runs on those of the gateways under a lock per job and never waits, and [`Sender::estimate`], which runs on its
//! caller's.

mod brakes;
mod checkpoint;
mod config;
mod context;
mod desk;
mod dispatcher;
mod error;
mod estimate;
mod flow;
mod hold;
mod job;
mod lane;
mod metrics;
mod parts;
mod report;
mod routes;
mod service;
mod shared;
mod supersede;
mod topic;
mod turns;
mod waiting;
mod walk;
mod wave;
mod worker;

pub use config::{Pool, SenderConfig, Shadow};
pub use error::{StartError, TopicError};
pub use report::{Backlog, Drained, Estimate};
pub use service::Sender;
pub use tidings_jobs::{
    Counts, DeviceOutcome, JobPart, JobReport, JobState, RUNNING_PER_SLOT, Suppression, Telling, TimeTo,
    WAITING_BYTES_MAX, WAITING_PER_SLOT,
};
pub use topic::{TopicTemplates, Topics};
