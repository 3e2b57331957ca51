//! Whether requests may be sent to an origin now: its own breaker, and the pauses that it asked for.
//!
//! After failures in a row (no connection, no answer, 5xx) the breaker opens for a while. Then a single attempt, the
//! *probe*, is made, and its result decides. A pause (429, `Retry-After`) shuts the gate for this origin only.

use std::time::Duration;

use tidings_push::pacing::Breaker;
use tidings_types::Timestamp;
use tokio::time::Instant;

/// Longest pause an origin can ask for. By then nearly everything that waits has expired, and Apple's and Mozilla's
/// services ask for an hour at most.
const PAUSE_MAX: Duration = Duration::from_secs(3600);

/// One moment on both clocks: the first for waiting, the second for what is stored or told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) at: Instant,
    pub(crate) unix: Timestamp,
}

/// What an ended attempt says about its origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Health {
    /// It answered as a push service does.
    Well,
    /// It was not reached, did not answer, or answered that it cannot.
    Failing,
    /// Nothing: it was not asked.
    Unknown,
}

pub(crate) struct Gate {
    breaker: Breaker,
    /// A probe was withdrawn before anything was sent: another may be made at once.
    owes_probe: bool,
    paused_until: Option<Instant>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { breaker: Breaker::new(), owes_probe: false, paused_until: None }
    }

    /// Whether an attempt may be made beside those in flight.
    pub(crate) fn is_open(&self, in_flight: usize, now: Now) -> bool {
        let may_probe = |at| in_flight == 0 && (at <= now.unix || self.owes_probe);
        !self.is_paused(now) && self.breaker.due_at(now.unix).is_none_or(may_probe)
    }

    /// Whether a pause that was asked for lasts.
    pub(crate) fn is_paused(&self, now: Now) -> bool {
        self.paused_until.is_some_and(|until| until > now.at)
    }

    /// Whether failures keep it shut, or a probe is still to show that it works.
    pub(crate) fn is_broken(&self) -> bool {
        self.breaker.retry_at().is_some()
    }

    /// When it may open by itself; nothing while it is open or waits for an attempt.
    pub(crate) fn opens_at(&self, now: Now) -> Option<Instant> {
        let pause = self.paused_until.filter(|until| *until > now.at);
        let retry_at = self.breaker.due_at(now.unix).filter(|at| *at > now.unix && !self.owes_probe);
        pause.max(retry_at.map(|at| now.at + at.saturating_since(now.unix)))
    }

    /// An attempt is made.
    pub(crate) fn on_started(&mut self, now: Now) {
        _ = self.breaker.admits(now.unix); // It is only told: `is_open` has decided.
        self.owes_probe = false;
    }

    /// An attempt is over; for `pause` nothing more may be sent. `random` is any 64 random bits.
    pub(crate) fn on_ended(&mut self, health: Health, pause: Duration, random: u64, now: Now) {
        match health {
            Health::Well => self.breaker.on_success(),
            Health::Failing => self.breaker.on_failure(random, now.unix),
            Health::Unknown => self.owes_probe = self.breaker.due_at(now.unix).is_some(),
        }
        if !pause.is_zero() {
            self.paused_until = self.paused_until.max(Some(now.at + pause.min(PAUSE_MAX)));
        }
    }
}
