//! Jobs: from an accepted event to one counted outcome for every device of its audience.
//!
//! The [`Sender`] follows the journal. Each event becomes a *job*. The job freezes its audience and walks it once, in
//! the order of device numbers. It renders the text once per language, provider and app, and hands notifications to the
//! lakes of the provider pools. Gateways take from the lakes and report outcomes to [`Sender::sink`]. With `push:
//! unless_received`, devices that may prove that they got the event over a live connection are held back for a while;
//! those that prove it are done. [`Topics`] holds the texts. It also tells the API whether an event can be rendered for
//! every device.
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
//! **Once.** Every selected device ends in exactly one [`DeviceOutcome`]; `tidings_jobs::Books` has the proof. A device
//! that registered after the event was accepted does not get it. The record that is read when the device's window is
//! opened decides its token, language and pool.
//!
//! **In turn.** A lane is one app of one pool. At a lake, lanes take turns by app, then by job, one window each
//! (`round_robin.rs`). Each priority has its own lakes. Walks take turns on the thread, urgent ones first. The journal
//! is read in its order. A job that gets no slot waits; the most urgent waiting job starts first
//! (`tidings_jobs::Slots`). An urgent event waits for less urgent events only while the audience of one is selected,
//! for one window at a time at lakes and walks, and within the limits that `Slots` names.
//!
//! **Brakes** are rows of the store (`brakes.rs`): pauses and cancellations. Paused lanes hand out nothing.
//! Notifications that are in a lake already are still sent, and those that wait for room in a lake come back. Meanwhile
//! receipts count and events expire. A cancelled job counts everything that is not handed out as cancelled at once;
//! [`Sender::sink`] tells the gateways not to try the rest again. Pauses and cancellations survive a restart. An
//! audience that does not have the expected size, or is larger than the API key may reach, is not pushed.
//!
//! **Filter.** A device that the event's `filter` does not admit when the audience is selected is not part of the
//! audience, and is counted nowhere. The filter is applied again to each record that is read; a device that has changed
//! by then is counted as filtered.
//!
//! **Superseded.** A newer event with the same `collapse_key` takes over the devices that are in both audiences.
//! `supersede.rs` proves that no device is left without news, and that none shows the older event last.
//!
//! **Received.** A job looks at its event's receipts when it begins, and then, while devices are held, at most every 10
//! ms until `receipt_wait` after the acceptance. A receipt counts if it was known when the walk came to the device, or
//! if it came while the device was held. No device is held for longer than half of the event's life, so that there is
//! time left to push. An event that is dispatched later than that holds no devices. If no device of the audience may
//! answer, the job holds no devices and needs no timer and no extra task.
//!
//! **Proven.** The sender tells the store when a device's token is accepted for the first time, four times a second in
//! one batch. Until then, a pool with a quarantine sends the device's pushes through the quarantine. Nothing moves from
//! a quarantine into the main lakes: if the quarantine is too slow, notifications expire.
//!
//! **After a crash** a job continues from its last checkpoint, which lags by at most `checkpoint_interval` (100 ms) and
//! the time that the store takes to write it. Nothing is skipped. At most two kinds of devices are repeated: devices
//! whose outcome came since that checkpoint, and devices in flight (lake, gateway). A repeat has the same notification
//! id and collapse id. Receipts are not durable. So held devices are pushed at once, also after an orderly stop, and so
//! are devices whose receipt came since that checkpoint. The part of the audience that was not walked yet is selected
//! anew, with the subscriptions of that moment.
//!
//! **Told.** With `tell_finished` the row of a finished job says that a report is owed, until the report is delivered
//! ([`Sender::take_untold`]). The mark is in the row before the report is sent, and a later checkpoint writes "told"
//! into the row. So reports are delivered at least once. The caller decides how to deliver them and how often to try.
//!
//! **Bounds**
//!
//! | What | Limit | Beyond it |
//! |---|---|---|
//! | jobs, running and waiting | multiples of `job_count_max` (1024), see `tidings_jobs::Slots` | events wait in the journal, which the store bounds |
//! | tasks | one per running job, one per lane with devices of its audience | |
//! | devices in flight, per job and lane | `window_device_count` × `window_open_count_max` (1024 × 32); in practice lakes and gateways bound them first | the lane waits |
//! | renderings per job | (own texts + catalogues + 1) × lanes; 512 × lanes more if it has typed values (`places.rs`) | values in the conventions of the text, not of the device |
//! | bytes of running jobs, by their sizes at the start (`JobSize` of `jobs`) | `job_bytes_max` (1 GiB) and one job | events wait as above |
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
mod levels;
mod memory;
mod metrics;
mod parts;
mod permits;
mod phase;
mod places;
mod registry;
mod report;
mod round_robin;
mod routes;
mod service;
mod spans;
mod supersede;
mod topic;
mod trails;
mod waiting;
mod walk;
mod wave;
mod why;
mod worker;

pub use config::{Pool, SenderConfig, Shadow, Tenure};
pub use error::{StartError, TopicError};
pub use report::{Backlog, Drained, Estimate};
pub use service::Sender;
pub use tidings_jobs::{
    Counts, DeviceOutcome, DeviceTrail, JobPart, JobReport, Note, Suppression, Telling, TrailStep, Way, Whereabouts,
};
pub use topic::{CurrentTopics, NAMES, TextIndex, TopicTemplates, Topics};
pub use why::DeviceEvents;
