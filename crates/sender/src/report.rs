//! What can be asked about the sender as a whole. Plain values, true at the moment of asking.

use tidings_push::Forecast;
use tidings_types::Provider;

/// What is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Accepted events that have no job yet, and jobs that have no slot.
    pub events_waiting: u64,
    /// Jobs in work.
    pub jobs_running: u64,
    /// Devices that were handed to a lake and have no outcome.
    pub devices_in_flight: u64,
}

impl Backlog {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How draining ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Devices that had no answer by the deadline: handed out again at the next start.
    pub devices_in_flight: u64,
    /// Whether the last checkpoint was written; if not, the one before counts.
    pub checkpointed: bool,
}

/// How long an event would take through one pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The pool's name.
    pub pool: String,
    /// Its provider.
    pub provider: Provider,
    /// Devices of the audience that it reaches; an estimate too, where the audience is large.
    pub devices: u64,
    /// How long they take when nothing else is sent, and what limits that; `None` while the pool's rate is not known.
    pub forecast: Option<Forecast>,
}
