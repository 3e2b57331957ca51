//! Answers about the sender as a whole. Plain values, true at the moment of the call.

use tidings_push::Forecast;
use tidings_types::Provider;

/// The work that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Accepted events that have no job yet, and jobs that have no slot.
    pub events_waiting: u64,
    /// Running jobs.
    pub jobs_running: u64,
    /// Devices that were handed to a lake and have no outcome.
    pub devices_in_flight: u64,
}

impl Backlog {
    /// Whether no work is left.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How draining ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Devices without an answer at the deadline. They are handed out again at the next start.
    pub devices_in_flight: u64,
    /// Whether the last checkpoint was written. If not, the one before is valid.
    pub checkpointed: bool,
}

/// How long an event would take through one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The pool's name.
    pub pool: String,
    /// Its provider.
    pub provider: Provider,
    /// Devices of the audience that the pool reaches; for a large audience this is an estimate too.
    pub devices: u64,
    /// How long they take if nothing else is sent, and what limits the rate; `None` while the pool's rate is not known.
    pub forecast: Option<Forecast>,
}
