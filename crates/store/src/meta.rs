//! The rows of `meta`: the store's format, the committer's counters, and the key under which it is up to where events have a
//! job.

use serde::{Deserialize, Serialize};
use tidings_types::{Epoch, Offset};

use crate::engine::{Engine, EngineError, STATE_KEY, Table};
use crate::events::LaterKey;
use crate::rows::parts::decode;

/// What `meta/format` says.
pub(crate) const FORMAT: &str = "tidings-store-4";

/// The formats before, which are read too. Rows tell themselves of which they are, and stay as they are until they change, so
/// that a store has rows of several: no channel is given back in 3; texts of tokens are not packed in 2; devices are JSON in 1, and
/// there is no `change`.
const FORMATS_BEFORE: [&str; 3] = ["tidings-store-3", "tidings-store-2", "tidings-store-1"];

/// Whether stores of this format are read; any other is refused at open.
pub(crate) fn is_known_format(format: &[u8]) -> bool {
    [FORMAT].iter().chain(&FORMATS_BEFORE).any(|known| known.as_bytes() == format)
}

pub(crate) const FORMAT_KEY: &[u8] = b"format";

pub(crate) const DISPATCHED_KEY: &[u8] = b"dispatched";

/// The committer's own counters; written in every batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Number of the batch that wrote this row: tells after a failure whether that batch is durable.
    pub(crate) commit: u64,
    /// The oldest event that is kept.
    pub(crate) journal_base: u64,
    /// The position of the next event.
    pub(crate) journal_end: u64,
    /// Bytes of the event rows kept.
    pub(crate) journal_bytes: u64,
    /// The number of the next new device.
    pub(crate) device_next: u32,
    /// Rows of `channel`.
    pub(crate) channel_count: u64,
    /// The life of all durable channels: that of the store.
    pub(crate) epoch: Epoch,
    /// No channel that was given back has a publication behind this: here a channel begins that is not there.
    #[serde(default)]
    pub(crate) channel_floor: Offset,
    /// The number of the oldest row of `change`, and of the next one; the bytes of those kept.
    #[serde(default)]
    pub(crate) change_base: u64,
    #[serde(default)]
    pub(crate) change_end: u64,
    #[serde(default)]
    pub(crate) change_bytes: u64,
    /// The latest revision of any device.
    #[serde(default)]
    pub(crate) revision: u64,
    /// The last part of the next later event's key.
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
}

impl State {
    /// That of a store without anything: the first event gets position 1, so that 0 is before all.
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
        }
    }
}

/// The committer's counters, if the log has all commits that they should count.
pub(crate) fn read_state(engine: &Engine) -> Result<State, EngineError> {
    let damaged = || EngineError::damaged(Table::Meta, STATE_KEY);
    let state = engine.get(Table::Meta, STATE_KEY)?.ok_or_else(damaged)?;
    let state: State = decode(Table::Meta, STATE_KEY, state.as_ref())?;
    engine.check_acknowledged(state.commit)?;
    Ok(state)
}
