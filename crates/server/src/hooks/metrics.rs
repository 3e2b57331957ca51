//! What each hook counts and times.

use tidings_protocol::HookAnswer;
use tidings_telemetry::metrics::hooks as table;
use tidings_telemetry::{Counter, Gauge, Histogram, Registry};

/// How a call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The back end agreed.
    Result,
    /// It answered with an error for the client.
    Error,
    /// It had the client disconnected.
    Disconnect,
    /// Another status than 200, without a meaning.
    Status,
    /// Not an answer, or too large.
    Invalid,
    /// No answer in time.
    Timeout,
    /// No connection, a connection that broke, or a proxy that says so.
    Down,
    /// Too many calls.
    Busy,
    /// Refused by the breaker.
    Open,
    /// The client went before the answer.
    Abandoned,
}

impl Outcome {
    const ALL: [Self; 10] = [
        Self::Result,
        Self::Error,
        Self::Disconnect,
        Self::Status,
        Self::Invalid,
        Self::Timeout,
        Self::Down,
        Self::Busy,
        Self::Open,
        Self::Abandoned,
    ];

    pub(super) fn of(answer: &HookAnswer) -> Self {
        match answer {
            HookAnswer::Result(_) => Self::Result,
            HookAnswer::Error(_) => Self::Error,
            HookAnswer::Disconnect(_) => Self::Disconnect,
            HookAnswer::Failed(_) => Self::Invalid,
        }
    }

    /// The back end has been asked and has not answered as it should.
    pub(super) fn is_failure(self) -> bool {
        matches!(self, Self::Status | Self::Invalid | Self::Timeout | Self::Down)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Result => "result",
            Self::Error => "error",
            Self::Disconnect => "disconnect",
            Self::Status => "status",
            Self::Invalid => "invalid",
            Self::Timeout => "timeout",
            Self::Down => "down",
            Self::Busy => "busy",
            Self::Open => "breaker",
            Self::Abandoned => "abandoned",
        }
    }
}

pub(super) struct Metrics {
    /// By [`Outcome`].
    calls: [Counter; Outcome::ALL.len()],
    pub(super) seconds: Histogram,
    pub(super) in_flight: Gauge,
}

impl Metrics {
    pub(super) fn new(hook: &str, registry: &Registry) -> Self {
        Self {
            calls: Outcome::ALL.map(|outcome| registry.counter(&table::CALLS_TOTAL, &[hook, outcome.name()])),
            seconds: registry.histogram(&table::CALL_SECONDS, &[hook]),
            in_flight: registry.gauge(&table::IN_FLIGHT, &[hook]),
        }
    }

    pub(super) fn count(&self, outcome: Outcome) {
        self.calls[outcome as usize].inc();
    }
}
