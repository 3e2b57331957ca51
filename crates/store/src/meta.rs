//! The rows of `meta`: the store's format, the committer's counters, and the position up to which events have a job.

use serde::{Deserialize, Serialize};
use tidings_types::{Epoch, Offset, Timestamp};

use crate::engine::{Engine, EngineError, Rows, STATE_KEY, Table};
use crate::events::LaterKey;
use crate::rows::parts::{decode, encode};

/// The value of `meta/format`.
pub(crate) const FORMAT: &str = "tidings-store-4";

/// Older formats that are read too. A row keeps its format until it is written again, so a store may have rows of several
/// formats. Each row shows which format it has. In format 3 no idle channel was forgotten, in format 2 the texts of tokens
/// were not packed, and in format 1 devices were JSON and there was no `change`.
const FORMATS_BEFORE: [&str; 3] = ["tidings-store-3", "tidings-store-2", "tidings-store-1"];

/// Whether stores of this format can be opened.
pub(crate) fn is_known_format(format: &[u8]) -> bool {
    [FORMAT].iter().chain(&FORMATS_BEFORE).any(|known| known.as_bytes() == format)
}

pub(crate) const FORMAT_KEY: &[u8] = b"format";

pub(crate) const DISPATCHED_KEY: &[u8] = b"dispatched";

/// The committer's own counters; written in every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// The number of the batch that wrote this row. After a failed commit it shows whether that batch is durable.
    pub(crate) commit: u64,
    /// The position of the oldest event.
    pub(crate) journal_base: u64,
    /// The position of the next event.
    pub(crate) journal_end: u64,
    /// Bytes of all event rows.
    pub(crate) journal_bytes: u64,
    /// The first device number that is in no block.
    pub(crate) device_next: u32,
    /// Rows of `channel`.
    pub(crate) channel_count: u64,
    /// The epoch of all durable channels.
    pub(crate) epoch: Epoch,
    /// New channels begin behind this offset. No channel that was forgotten had a later publication.
    #[serde(default)]
    pub(crate) channel_floor: Offset,
    /// The number of the oldest row of `change` and of the next one, and the bytes of these rows. A store that began as a copy
    /// lacks those from before the copy.
    #[serde(default)]
    pub(crate) change_base: u64,
    #[serde(default)]
    pub(crate) change_end: u64,
    #[serde(default)]
    pub(crate) change_bytes: u64,
    /// The latest revision of any device.
    #[serde(default)]
    pub(crate) revision: u64,
    /// The `arrival` of the next scheduled event.
    #[serde(default)]
    pub(crate) later_arrival: u64,
    /// Rows of `later`, and their bytes.
    #[serde(default)]
    pub(crate) later_count: u64,
    #[serde(default)]
    pub(crate) later_bytes: u64,
    /// The first key of `later`.
    #[serde(default)]
    pub(crate) later_first: Option<LaterKey>,
    /// The number of the oldest idempotency key, and of the next one.
    #[serde(default)]
    pub(crate) publish_key_base: u64,
    #[serde(default)]
    pub(crate) publish_key_end: u64,
    /// All mutes that end before this have ended.
    #[serde(default)]
    pub(crate) mutes_ended: Timestamp,
    /// No row of `channel_due` that counts is before this.
    #[serde(default)]
    pub(crate) channel_due: Timestamp,
}

impl State {
    /// The state of an empty store. The first event gets position 1, so that 0 is before all events.
    pub(crate) const fn empty(epoch: Epoch) -> Self {
        Self {
            commit: 0,
            journal_base: 1,
            journal_end: 1,
            journal_bytes: 0,
            device_next: 0,
            channel_count: 0,
            epoch,
            channel_floor: Offset(0),
            change_base: 0,
            change_end: 0,
            change_bytes: 0,
            revision: 0,
            later_arrival: 0,
            later_count: 0,
            later_bytes: 0,
            later_first: None,
            publish_key_base: 0,
            publish_key_end: 0,
            mutes_ended: Timestamp(0),
            channel_due: Timestamp(u64::MAX),
        }
    }

    /// The number of events in the journal.
    pub(crate) fn journal_events(&self) -> u64 {
        self.journal_end.saturating_sub(self.journal_base)
    }
}

/// The rows of a new store with this state.
pub(crate) fn first_rows(state: &State) -> Rows {
    let mut rows = Rows::default();
    rows.put(Table::Meta, FORMAT_KEY, FORMAT);
    rows.put(Table::Meta, STATE_KEY, encode(state));
    rows
}

/// Reads the committer's counters. An error if the log lacks a commit that was acknowledged.
pub(crate) fn read_state(engine: &Engine) -> Result<State, EngineError> {
    let state = engine.read(Table::Meta, STATE_KEY, |key, row| decode::<State>(Table::Meta, key, row))?;
    let state = state.ok_or_else(|| EngineError::damaged(Table::Meta, STATE_KEY))?;
    engine.check_acknowledged(state.commit)?;
    Ok(state)
}
