//! Who is to be told (R8): sets of device numbers per (topic, subject) and per user, and their union for one event.
//!
//! The [`Index`] is derived from the durable subscriptions and can be thrown away; the store fills it, keeps it in
//! step and asks it. [`Index::freeze`] answers an event with a [`Frozen`] audience: every device that subscribed to the
//! event's topic on any of its subjects, and whatever the topic every device of a user that is a subject (`user:<id>`),
//! each once, in the order of device numbers. [`Index::freeze_named`] answers one that names users and devices itself.
//! Later changes of the index do not touch what is frozen, so a job can stream it and resume from any number without
//! skipping or doubling.
//!
//! Not here: what a device is, its token or its language; who is muted; files, clocks, locks.
//!
//! Shape: numbers are split in shards of 2^20 (`SHARD_DEVICE_COUNT`). In a shard each (topic, subject) has one set: the
//! number itself when there is one, a sorted array up to 4096 (`ARRAY_DEVICE_COUNT_MAX`), Roaring above. Names are kept once and sets
//! are keyed by their 32-bit numbers, so that a subscription costs about 4 bytes in an array (with at most an eighth of
//! slack) and 2 or less in a Roaring set; a name is forgotten with its last set. A user with one device costs about 80
//! bytes and its name.
//!
//! Bound: the caller's; the store limits subscriptions per device.

mod frozen;
mod index;
mod names;
mod set;

pub use frozen::Frozen;
pub use index::{Index, SHARD_DEVICE_COUNT, USER_KIND};
