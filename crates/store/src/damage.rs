//! The cost of damaged rows. Only this module decides it, and logs it.
//!
//! A row is damaged if it is not as the store wrote it, or if its block in a file cannot be read. It affects only the
//! operations that need it. The log and the error name it. A request that needs it is refused, and the other requests of
//! its batch are done. The store stays open, because opening it again would not repair the row.
//!
//! | Table | What a damaged row costs |
//! |---|---|
//! | `event` | The event is left out of the journal, so no device gets it. It is deleted when it is the oldest event and the sender is done with it. Until then, a repeated event with its id is refused. |
//! | `event_id` | A repeated event with this id is refused until the row is trimmed with its event. |
//! | `later` | The event is lost when it is due, and its id becomes free. Events behind an unreadable block are found by their ids, which needs a scan of all ids. |
//! | `channel` | The channel continues behind the last publication of its history. If that is empty, it continues behind all offsets that it can have used. |
//! | `channel_due` | All channels are read for what is due, once a minute while a block cannot be read. |
//! | `history` | The history begins behind this publication. |
//! | `publish_key` | A publication with this idempotency key is published again. |
//! | `publish_key_order` | The key's row stays until the key is used again. It has no effect after its time. |
//! | `device`, `subscription` | If the store is opened without a checkpoint, the row is left out. With a checkpoint, the damage is found when the row is read. A device comes back when it registers. |
//! | `proven` | The row is left out at open. The tokens of its 65 536 device numbers are unproven until their provider accepts them again. |
//! | `change` | All rows are read at open, as with a damaged checkpoint. |
//! | `device_id`, `token` | The device is searched in memory. The row is written anew when the device registers. |
//! | `mute` | A mute with an unreadable end holds until it is removed. One with an unreadable key is left out at open without a checkpoint. |
//! | `mute_end` | The mute holds until it is removed. If a block cannot be read, ended mutes are searched among all mutes, which takes longer. |
//! | `import` | The next step of the import is refused. Under another name it can begin anew. |
//! | `feed` | The feed is read as if it were new, but entries that are known are not sent again. |
//! | `feed_entry` | The entry is unknown: if its feed still has it, it is sent again. |
//! | `brake` | Everything is paused until `Everything` is resumed. |
//! | `cancelled` | The row is left out at open. |
//! | `job` | The store does not read the content. The sender handles damage. |
//! | `block` | The row is left out at open. Its numbers belong to the common group. |
//! | `meta` | The store does not open, or the position up to which events have jobs is unknown. A copy of the folder is needed. |
//!
//! Up to [`LEFT_OUT_COUNT_MAX`] rows of all tables together are left out at open. With more, or if a whole block of rows
//! that are read at open is damaged, the store does not open.
//!
//! Code that can continue without a damaged row calls a function of this module. Any other damage is an error:
//! `Draft::attempt` refuses the write, and a read returns its `ReadError`.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidings_telemetry::chain;
use tracing::error;

use crate::engine::EngineError;

/// Damaged rows that are left out at open. With more, the store does not open, because so many are not single accidents.
const LEFT_OUT_COUNT_MAX: usize = 16;

/// Turns damage into `None`, and logs its cost. Other errors stay.
pub(crate) fn tolerate<T>(read: Result<T, EngineError>, cost: impl Display) -> Result<Option<T>, EngineError> {
    tolerate_quietly(read.inspect_err(|error| {
        if error.is_damage() {
            error!(error = chain(error), "{cost}");
        }
    }))
}

/// Like [`tolerate`] without a log line, for damage that is logged elsewhere or costs nothing.
pub(crate) fn tolerate_quietly<T>(read: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

/// The content of a row; `None` and a log line if it cannot be decoded.
pub(crate) fn understood<T>(row: Result<T, EngineError>, cost: impl Display) -> Option<T> {
    row.inspect_err(|error| error!(error = chain(error), "{cost}")).ok()
}

/// Counts the damaged rows that are left out at open.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(AtomicUsize);

impl LeftOut {
    /// Leaves out a row that `read` finds damaged, unless there are too many. True: the scan continues.
    pub(crate) fn tolerate(&self, read: impl FnOnce() -> Result<(), EngineError>) -> Result<bool, EngineError> {
        let read = read();
        let is_damage = read.as_ref().is_err_and(EngineError::is_damage);
        if is_damage && self.0.fetch_add(1, Ordering::Relaxed) >= LEFT_OUT_COUNT_MAX {
            return read.map(|()| true);
        }
        tolerate(read, "A damaged row is left out").map(|_| true)
    }
}
