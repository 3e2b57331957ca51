//! Audiences: sets of device numbers per (topic, subject), per user, platform, app, locale and country, and of muted
//! devices; and the audience of one event.
//!
//! The [`Index`] is derived from the durable rows and can be thrown away; the store fills it, keeps it up to date and
//! reads it. [`Index::freeze`] returns the [`Frozen`] audience of an event: every device that subscribed to the event's
//! topic on any of its subjects, and, whatever the topic, every device of a user that is a subject (`user:<id>`), each
//! once, in the order of device numbers. [`Index::freeze_named`] does so for an event that names users and devices,
//! [`Index::freeze_selected`] for one with a selector. Each takes a filter and leaves out devices that muted everything
//! or one of the event's subjects. Later changes of the index do not change a frozen audience, so a job can stream it
//! and resume from any number without skipping or doubling. [`Index::encode_shard`] writes the index piece by piece
//! while it changes.
//!
//! Not here: data of devices other than their [`Traits`], the end of mutes, files, clocks, locks.
//!
//! Shape: each (topic, subject), user, language tag and so on has one set, in the smallest of four forms (`set`): bytes
//! within the table, bytes in a pool, 2 bytes for each number, and Roaring for large sets. The last two are split by
//! shards of 2^20 numbers (`SHARD_DEVICE_COUNT`), so that a change or a union never touches more than 128 KiB at once.
//! Names are stored once, each with a number that sets use. 25 million subscriptions of 5 million devices, distributed
//! as in practice, take about 4.5 bytes each in all; a user with one device takes 60 bytes and its name. A name is
//! deleted with its last set.
//!
//! Bound: none of its own; the store limits subscriptions per device.

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
