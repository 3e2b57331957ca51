//! The rows of all tables at a glance. The code that writes and reads them is in the `rows.rs` of each subject, and is
//! exported again from here.
//!
//! Numbers in keys are big-endian, so keys have the order of their numbers. Names are visible ASCII without a zero byte,
//! so a zero byte ends a name in a key.
//!
//! ```text
//! meta          "format" → text, "state" → State, "dispatched" → position
//! event         position → accepted_at u64, hash16 of id, JSON {published, audience_max?, event}
//! event_id      hash16 of id → position u64 (or, while the event is in `later`, its key there), hash32 of content
//! later         at u64, arrival u64 → hash16 of id, JSON {accepted_at, channels, audience_max?, event}
//! channel       name → ChannelRow
//! channel_due   at u64, name → nothing
//! history       name 0 offset → HistoryRow
//! publish_key   hash16 of channel 0 idempotency key → number u64, published_at u64, offset u64
//! publish_key_order   number u64 → hash16 of channel 0 idempotency key
//! job           position → the sender's bytes
//! brake         scope → paused at u64
//! cancelled     position → nothing
//! device        number u32 → DeviceRow (`devices/rows/device.rs`)
//! device_id     id → number u32
//! token         hash16 of token (`token_key`) → number u32
//! subscription  number u32, subject 0 topic → nothing
//! block         first number u32 → group, length, numbers given (`blocks/rows.rs`)
//! change        number u64 → the changes of one batch to the table and the index
//! proven        upper 16 bits of numbers → Roaring set of the lower 16
//! mute          number u32, subject or nothing → until u64, 0 for never
//! mute_end      until u64, key of the mute → nothing
//! import        name → ImportProgress
//! feed          name → FeedState
//! feed_entry    name 0 key of the entry (16 bytes) → when it was last seen, as a growing number u64
//! ```

pub(crate) mod parts;

pub(crate) use self::parts::*;
pub(crate) use crate::blocks::rows::*;
pub(crate) use crate::brakes::rows::*;
pub(crate) use crate::channels::rows::*;
pub(crate) use crate::checkpoint::change::*;
pub(crate) use crate::devices::rows::device::*;
pub(crate) use crate::devices::rows::*;
pub(crate) use crate::events::rows::*;
pub(crate) use crate::feeds::rows::*;
pub(crate) use crate::meta::*;
pub(crate) use crate::mutes::rows::*;
pub(crate) use crate::subscriptions::rows::*;
