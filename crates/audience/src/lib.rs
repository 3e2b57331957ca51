//! Who is to be told: sets of device numbers per (topic, subject), per user, platform, app, locale and country,
//! and of those who muted, and what becomes of them for one event.
//!
//! The [`Index`] is derived from the durable rows and can be thrown away; the store fills it, keeps it in step and asks
//! it. [`Index::freeze`] answers an event with a [`Frozen`] audience: every device that subscribed to the event's topic
//! on any of its subjects, and whatever the topic every device of a user that is a subject (`user:<id>`), each once, in
//! the order of device numbers. [`Index::freeze_named`] answers one that names users and devices itself,
//! [`Index::freeze_selected`] one with a selector. Each takes a filter and leaves out who muted everything or one of
//! the event's subjects. Later changes of the index do not touch what is frozen, so a job can stream it and resume from
//! any number without skipping or doubling. [`Index::encode_shard`] writes the index piece by piece while it changes.
//!
//! Not here: what a device is beside its [`Traits`]; until when something is muted; files, clocks, locks.
//!
//! Shape: a (topic, subject), a user, a language tag and so on has one set, in the cheapest of four forms (`set`): some
//! bytes in the table, bytes in a pool, 2 bytes for each number, and Roaring for a large one, the last two by shards of
//! 2^20 numbers (`SHARD_DEVICE_COUNT`), so that a change or a union never touches more than 128 KiB at once. Names are
//! kept once, each with a number by which sets are known. 25 million subscriptions of 5 million devices, skewed as in
//! life, take some 4.5 bytes each, everything included; a user with one device 60 bytes and its name. A name is
//! forgotten with its last set.
//!
//! Bound: the caller's; the store limits subscriptions per device.

mod builder;
mod codec;
mod evaluate;
mod frozen;
mod gaps;
mod halves;
mod index;
mod lookup;
mod names;
mod pool;
mod set;
mod sets;
mod shard;
mod slots;

pub use builder::{Builder, Subscribers};
pub use codec::{DecodeError, Filling, NamedShards, Naming, Shard};
pub use evaluate::{ExplainedNode, Explaining, Explanation, Selecting};
pub use frozen::Frozen;
pub use index::{Index, Traits, USER_KIND};
pub use shard::SHARD_DEVICE_COUNT;
