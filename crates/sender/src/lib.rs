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
//!                     │ └─► waiting◄┘        │                                            │
//! store: brakes ──────┴─► lanes              │                                            │
//! hub: receipts ─────────────────────────────┴─ hold ─────────────────────────────────────┤
//! store: job rows ◄── checkpoint ◄──────────── books ◄───────────── sink.settle ◄─────────┘
//! ```
//!
//! **Once.** Every selected device ends in exactly one [`DeviceOutcome`]; `tidings_jobs::Books` holds the argument. Who
//! registered after the event was accepted is not told of it. The record read when its window is opened decides a
//! device's token, language and pool.
//!
//! **In turn.** A lane is one app of one pool. At a lake lanes take turns by app, then by job, a window each
//! (`round_robin.rs`); each priority has lakes of its own. Walks take turns on the thread, urgent ones first. The journal is
//! read in its order. A job that gets no slot waits; the most urgent waiting job starts first (`tidings_jobs::Slots`). An
//! urgent event waits for less urgent ones only while one of these is selected, for one window at a time at lakes and walks,
//! and within the limits that `Slots` names.
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
//! **Bounds**
//!
//! | What | Limit | Beyond it |
//! |---|---|---|
//! | jobs, running and waiting | multiples of `job_count_max` (1024), see `tidings_jobs::Slots` | events wait in the journal, which the store bounds |
//! | tasks | one per running job, one per lane with devices of its audience | |
//! | devices in flight, per job and lane | `window_device_count` × `window_open_count_max` (1024 × 32); in practice lakes and gateways bound them first | the lane waits |
//! | renderings per job | (catalogues + 1) × lanes | |
//! | sets per job | three bits per device number, two more per lane with devices | |
//! | parts of a job's counts | 512 | counted without a part |
//! | jobs that only hold devices back | half a second after acceptance while others wait for their slots, looked up every 100 ms: some 1500 events a second begin | the oldest let go; an event that begins late holds shorter, in the end not at all |
//! | full lake | lanes wait in line, a window each | |
//! | dead tokens, and doubtful ones (`wave.rs`) | `gone_token_count_max` (4096) each | forgotten until the provider says so again |
//! | first acceptances on their way to the store | 2^20 | forgotten until the next acceptance |
//! | finished jobs while the store refuses checkpoints | 2 × `report_count_max` (10 000) | no job starts |
//!
//! Threads: everything runs on one own thread, a window of a walk or a lane at a time, except [`Sender::sink`], which
//! runs on those of the gateways under a lock per job and never waits, and [`Sender::estimate`], which runs on its
//! caller's.

mod brakes;
mod checkpoint;
mod collapse;
mod config;
mod context;
mod dispatcher;
mod error;
mod estimate;
mod flow;
mod hold;
mod job;
mod lane;
mod metrics;
mod parts;
mod permits;
mod phase;
mod registry;
mod report;
mod round_robin;
mod routes;
mod service;
mod supersede;
mod topic;
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
