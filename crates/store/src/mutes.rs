//! What devices do not want to be told.
//!
//! A mute is a row under its device. If it ends by itself there is another row under its end. The index knows only who is
//! muted now. Bound: `mute_count_max` for each device.

pub(crate) mod ends;
pub(crate) mod read;
pub(crate) mod rows;
pub(crate) mod write;
