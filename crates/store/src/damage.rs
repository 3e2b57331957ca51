//! What a damaged row costs. This is the one place that decides it, and says it in the log.
//!
//! A row is damaged if it is not what we wrote, or if the block of the file that has it cannot be read. It costs what needs
//! it and no more. It is named in the log and in the error. A request that rests on it is refused, while the others of its
//! batch are done, and the store stays open: opening it again would find the row as it is.
//!
//! | Table | What a damaged row costs |
//! |---|---|
//! | `event` | It is left out of the journal, so it is sent to nobody. It is trimmed when its turn comes; until then a retry of it is refused. |
//! | `event_id` | As `event`. |
//! | `later` | The event is lost when its turn comes, and its id is free. Events behind a block that cannot be read are found by their ids, at the price of a walk over all ids. |
//! | `channel` | The channel goes on behind the last publication of its history, or else behind all offsets that it can have given out. |
//! | `history` | The history ends before it. |
//! | `publish_key` | It is not known: a publication with its idempotency key is published again. |
//! | `publish_key_order` | Its key's row stays until the key comes again; it is of no effect after its time. |
//! | `device`, `subscription`, `proven` | Where all rows are read at open, it is left out, up to [`LEFT_OUT_COUNT_MAX`] rows. With more of them, or with a block that cannot be read, the store does not open. From a checkpoint they are there, and the damage is found when their rows are asked for. A device comes back when it registers. |
//! | `change` | As a damaged checkpoint: all rows are read. |
//! | `device_id`, `token` | Memory is asked, and the row is written anew. |
//! | `mute` | A mute whose end cannot be read holds until it is taken back. |
//! | `mute_end` | Its mute holds until it is taken back. With a block that cannot be read, mutes that are over are looked for among all mutes, and later. |
//! | `import` | Its next step is refused; under another name it begins anew. |
//! | `brake` | Everything is paused until that is resumed. |
//! | `cancelled` | It is left out. |
//! | `job` | The store does not look into it: its bytes are the sender's to judge. |
//! | `block` | Its numbers belong to the common group. |
//! | `meta` | The store does not open, or nobody knows up to where events have jobs: a copy of the folder is needed. |
//!
//! Code that reads rows and can do without a damaged one asks a function of this module. Any other damage is refused: of a
//! write by `Draft::attempt`, of a read by its `ReadError`.

use std::fmt::Display;
use std::sync::atomic::{AtomicUsize, Ordering};

use tidings_telemetry::chain;
use tracing::error;

use crate::engine::EngineError;

/// Rows that are left out at open. More are no accident of single rows, and rather than serve without the rest the store is
/// not opened.
const LEFT_OUT_COUNT_MAX: usize = 16;

/// What was read; `None`, and a line in the log that says what it costs, if it is damaged.
pub(crate) fn tolerate<T>(read: Result<T, EngineError>, cost: impl Display) -> Result<Option<T>, EngineError> {
    let told = read.inspect_err(|error| {
        if error.is_damage() {
            error!(error = chain(error), "{cost}");
        }
    });
    tolerate_quietly(told)
}

/// The same without a line in the log: it was said before, is said elsewhere, or costs nothing.
pub(crate) fn tolerate_quietly<T>(read: Result<T, EngineError>) -> Result<Option<T>, EngineError> {
    match read {
        Err(error) if error.is_damage() => Ok(None),
        read => read.map(Some),
    }
}

/// What a row says that could be read; `None`, and a line in the log, if it is not what we wrote.
pub(crate) fn understood<T>(row: Result<T, EngineError>, cost: impl Display) -> Option<T> {
    row.inspect_err(|error| error!(error = chain(error), "{cost}")).ok()
}

/// Counts the rows that are left out at open.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(AtomicUsize);

impl LeftOut {
    /// Leaves a row out that `read` finds damaged, unless there are too many. True: the scan of the table goes on.
    pub(crate) fn tolerate(&self, read: impl FnOnce() -> Result<(), EngineError>) -> Result<bool, EngineError> {
        let read = read();
        let is_damage = read.as_ref().is_err_and(EngineError::is_damage);
        if is_damage && self.0.fetch_add(1, Ordering::Relaxed) >= LEFT_OUT_COUNT_MAX {
            return read.map(|()| true);
        }
        tolerate(read, "A damaged row is left out").map(|_| true)
    }
}
