//! Reports outcomes to the sink: exactly one for each notification taken, with its metrics and latency.
//!
//! [`Outcomes::settle`] takes the [`Attempt`] and so ends it. An attempt that ends without that call is not reported,
//! and is counted as left behind when the gateway stops. Outcomes wait for [`Outcomes::flush`], which hands them to the
//! sink in one call. Bound: at most as many wait as the transport holds notifications, or as a lake has room for.

use std::sync::Arc;

use tidings_push::{Outcome, OutcomeSink, Settled, TokenGone};
use tidings_telemetry::{LocalHistogram, unix_now};
use tidings_types::Timestamp;
use tokio::time::Instant;

use crate::attempt::{Attempt, Standings};
use crate::metrics::Metrics;

/// Outcomes of one thread that are not reported yet.
pub(crate) struct Outcomes {
    sink: Arc<dyn OutcomeSink>,
    metrics: Metrics,
    latency: LocalHistogram,
    queued: LocalHistogram,
    pending: Vec<Settled>,
}

impl Outcomes {
    pub(crate) fn new(sink: Arc<dyn OutcomeSink>, metrics: Metrics) -> Self {
        let (latency, queued) = (metrics.latency.local(), metrics.queued.local());
        Self { sink, latency, queued, metrics, pending: Vec::new() }
    }

    /// The standings of one batch: whether its notifications are still to be sent.
    pub(crate) fn standings(&self) -> Standings {
        Standings::new(Arc::clone(&self.sink))
    }

    /// Ends an attempt. `gone_at`: since when its device's token or subscription is gone.
    pub(crate) fn settle(&mut self, attempt: Attempt, outcome: Outcome, gone_at: Option<Timestamp>, now: Instant) {
        let (outcome, latency, repeats) = (attempt.told(outcome), attempt.latency(now), attempt.failed());
        self.latency.record(latency);
        let in_all = unix_now().saturating_since(attempt.notification.queued_at);
        self.queued.record(in_all.saturating_sub(latency));
        self.metrics.on_settled(outcome);
        let token_gone = gone_at.map(|at| TokenGone { token: attempt.notification.token, at });
        self.pending.push(Settled { ticket: attempt.notification.ticket, outcome, token_gone, repeats, latency });
    }

    /// How many are settled and not told.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Tells the sink what is done; returns how many that were.
    pub(crate) fn flush(&mut self) -> usize {
        let count = self.pending.len();
        if count > 0 {
            self.sink.settle(&mut self.pending);
            self.pending.clear();
            self.latency.flush();
            self.queued.flush();
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use tidings_types::EventPriority;

    use super::*;
    use crate::attempt::tests::{Sink, metrics, notification};
    use crate::metrics::Repeat;

    #[test]
    fn each_is_told_once_with_what_became_of_it() {
        let (sink, metrics, now) = (Arc::<Sink>::default(), metrics(), Instant::now());
        let mut outcomes = Outcomes::new(Arc::clone(&sink) as _, metrics.clone());
        let attempt = |device| Attempt::new(notification(device), EventPriority::Normal, now);
        let mut repeated = attempt(2);
        repeated.on_failed(Repeat::Unknown, &metrics);
        outcomes.settle(attempt(1), Outcome::Accepted, None, now);
        outcomes.settle(repeated, Outcome::Expired, Some(Timestamp(7)), now);
        assert_eq!((outcomes.pending(), sink.outcomes().len()), (2, 0));
        assert_eq!((outcomes.flush(), outcomes.flush(), outcomes.pending()), (2, 0, 0));
        let told = sink.0.lock().unwrap();
        assert_eq!((told[0].outcome, told[0].repeats), (Outcome::Accepted, 0));
        assert_eq!((told[1].outcome, told[1].repeats), (Outcome::Unknown, 1));
        let gone = told.iter().map(|it| it.token_gone.as_ref().map(|gone| gone.at)).collect::<Vec<_>>();
        assert_eq!(gone, [None, Some(Timestamp(7))]);
    }
}
