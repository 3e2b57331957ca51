//! What is to become of notifications, and who is told: exactly one outcome for each.

use std::sync::Arc;
use std::time::Duration;

use tidings_push::retry::repeat_at;
use tidings_push::{Notification, Outcome, OutcomeSink, Settled, Standing, TokenGone};
use tidings_telemetry::LocalHistogram;
use tidings_types::Timestamp;
use tokio::time::Instant;

use super::gate::Now;
use crate::metrics::{Metrics, Repeat};
use crate::pool::Standings;

/// A notification taken out of a lake, with its history.
pub(super) struct Attempt {
    pub(super) notification: Notification,
    taken_at: Instant,
    /// Attempts that failed.
    failed: u32,
    /// One of them may have been delivered: nobody knows.
    maybe_delivered: bool,
}

impl Attempt {
    pub(super) fn new(notification: Notification, now: Now) -> Self {
        Self { notification, taken_at: now.at, failed: 0, maybe_delivered: false }
    }

    pub(super) fn is_repeat(&self) -> bool {
        self.failed > 0
    }
}

/// Outcomes on their way to the sink. At most as many as are held, or as a lake has room for.
pub(super) struct Books {
    sink: Arc<dyn OutcomeSink>,
    metrics: Metrics,
    latency: LocalHistogram,
    settled: Vec<Settled>,
}

impl Books {
    pub(super) fn new(sink: Arc<dyn OutcomeSink>, metrics: Metrics) -> Self {
        Self { sink, latency: metrics.latency.local(), metrics, settled: Vec::new() }
    }

    /// Whom to ask whether notifications are still to be sent; for one batch.
    pub(super) fn standings(&self) -> Standings {
        Standings::new(Arc::clone(&self.sink))
    }

    /// Notes that an attempt has failed; returns when to repeat it, if there is time for that after `floor`. What of
    /// that its origin's gate keeps, `kept`, is not waited for here.
    pub(super) fn on_failed(
        &mut self,
        attempt: &mut Attempt,
        cause: Repeat,
        floor: Duration,
        kept: Duration,
        now: Now,
    ) -> Option<Instant> {
        self.metrics.on_repeat(cause);
        attempt.failed = attempt.failed.saturating_add(1);
        attempt.maybe_delivered |= cause == Repeat::Unknown;
        let expires_at = attempt.notification.rendering.expires_at();
        let at = repeat_at(attempt.failed, floor, expires_at, rand::random(), now.unix)?;
        Some(now.at + at.saturating_since(now.unix).saturating_sub(kept.min(floor)))
    }

    /// It is done. `gone_at` says that its subscription is, too.
    pub(super) fn settle(&mut self, attempt: Attempt, outcome: Outcome, gone_at: Option<Timestamp>, now: Now) {
        let Attempt { notification, taken_at, failed, maybe_delivered } = attempt;
        let outcome = if maybe_delivered { outcome.after_unknown() } else { outcome };
        let latency = now.at.saturating_duration_since(taken_at);
        self.latency.record(latency);
        self.metrics.on_settled(outcome);
        let token_gone = gone_at.map(|at| TokenGone { token: notification.token, at });
        self.settled.push(Settled { ticket: notification.ticket, outcome, token_gone, repeats: failed, latency });
    }

    /// Tells the sink what is done.
    pub(super) fn flush(&mut self) {
        if !self.settled.is_empty() {
            self.sink.settle(&mut self.settled);
            self.settled.clear();
            self.latency.flush();
        }
    }
}

/// Why a notification must not be sent any more, if it must not.
pub(super) fn why_over(attempt: &Attempt, standings: &mut Standings, now: Now) -> Option<Outcome> {
    if attempt.notification.rendering.expires_at() <= now.unix {
        return Some(Outcome::Expired);
    }
    match standings.standing(attempt.notification.ticket) {
        Standing::Go => None,
        Standing::Cancelled => Some(Outcome::Cancelled),
        Standing::Superseded => Some(Outcome::Superseded),
    }
}
