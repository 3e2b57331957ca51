//! Jobs (R9): from an accepted event to one counted outcome for every device of its audience.
//!
//! The [`Sender`] follows the journal. Each event becomes a *job*: its audience is frozen, walked once in the order of
//! device numbers, rendered once per language and app, and handed to the lakes of the provider pools as notifications;
//! gateways draw from the lakes and report outcomes to [`Sender::sink`]. [`Topics`] holds the texts and tells the API at
//! the door whether an event can be told to everybody.
//!
//! ```text
//! store: journal ─► dispatcher ─► job ─┬─ lane ─► lake of pool A ─► gateway ─┐
//!         (in order, job_count_max)    └─ lane ─► lake of pool B ─► gateway ─┤
//! store: job rows ◄── checkpoint ◄──────────── books ◄── sink.settle ◄───────┘
//! ```
//!
//! **Once.** Every selected device ends in exactly one [`DeviceOutcome`]; `job.rs` holds the argument. Who registered
//! after the event was accepted is not told of it. The record read when its window is opened decides a device's token,
//! language and pool.
//!
//! **After a crash** a job goes on from its last checkpoint, which lags by at most `checkpoint_interval` (100 ms) and
//! what the store takes to write it. Nothing is skipped. Repeated are at most the devices whose outcome came since that
//! checkpoint and those in flight (lake, gateway); a repeat carries the same notification and collapse ids. The
//! audience of devices not walked yet is selected anew: a subscription ended or begun meanwhile counts as it is then.
//!
//! **Bounds.** `job_count_max` jobs (1024); per job and pool `window_device_count` × `window_open_count_max` devices in
//! flight (1024 × 32; in practice lake and gateway bound them first); renderings per job: (catalogues + 1) × apps; the
//! sets of a job: two bits per device number at most. Full lake: lanes wait in line, a window each; then running jobs
//! fill up, then the journal does, which the store bounds. Dead tokens: `gone_token_count_max` (4096), more are forgotten.
//! Store refuses checkpoints: they are repeated; finished jobs wait up to twice `report_count_max` (10 000), then
//! dispatching stops.
//!
//! **Not here yet**: holding back for receipts, superseding, priorities, cancelling, pausing. Jobs share a pool window
//! by window, none before another.
//!
//! Threads: everything runs on one own thread, except [`Sender::sink`], which runs on those of the gateways under a
//! lock per job and never waits.

mod checkpoint;
mod config;
mod error;
mod job;
mod lane;
mod latency;
mod metrics;
mod outcome;
mod report;
mod row;
mod service;
mod shared;
mod topic;
mod worker;

pub use config::{Pool, SenderConfig};
pub use error::{StartError, TopicError};
pub use latency::TimeTo;
pub use outcome::{Counts, DeviceOutcome, Suppression};
pub use report::{Backlog, Drained, JobReport, JobState};
pub use service::Sender;
pub use topic::{TopicTemplates, Topics};
