//! Mutes of devices.
//!
//! A mute is a row under its device. A mute with an end has another row under its end. The index knows which devices are
//! muted now. Bound: `mute_count_max` for each device.

pub(crate) mod ends;
pub(crate) mod read;
pub(crate) mod rows;
pub(crate) mod write;
