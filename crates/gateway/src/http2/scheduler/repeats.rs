//! Repeats that wait until they are due, and until the retry budget pays for them.
//!
//! A sweep settles repeats that are over, due or not, because a newer notification of the device may wait for that. A
//! sweep looks at [`SWEEP_TURN`] repeats in a turn and lets others work in between. Settling costs no budget.
//!
//! The scheduler bounds how many wait.

use std::collections::BTreeMap;
use std::ops::Bound;

use tidings_push::retry::RetryBudget;
use tidings_types::Timestamp;
use tokio::time::Instant;

use crate::attempt::{Attempt, BUDGET_PAUSE};
use crate::settle::Outcomes;

/// Repeats that one turn of a sweep looks at: well under a millisecond.
const SWEEP_TURN: usize = 1024;

/// When a repeat is due; equal moments are told apart by arrival.
type Due = (Instant, u64);

pub(super) struct Repeats {
    waiting: BTreeMap<Due, Attempt>,
    sequence: u64,
    budget: RetryBudget,
    /// The last one that a sweep under way has looked at.
    swept_to: Option<Due>,
}

impl Repeats {
    pub(super) fn new(now: Timestamp) -> Self {
        Self { waiting: BTreeMap::new(), sequence: 0, budget: RetryBudget::new(now), swept_to: None }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// A notification was accepted, at the first attempt or later.
    pub(super) fn on_accepted(&mut self) {
        self.budget.on_accepted();
    }

    /// Has an attempt wait until `due`. Returns whether it is the first of all.
    pub(super) fn wait(&mut self, attempt: Attempt, due: Instant) -> bool {
        let is_first = self.waiting.first_key_value().is_none_or(|(first, _)| due < first.0);
        self.sequence += 1;
        self.waiting.insert((due, self.sequence), attempt);
        is_first
    }

    /// Takes out what is due and paid for, and settles what is due and over. Returns when to come back as well.
    pub(super) fn release(
        &mut self,
        outcomes: &mut Outcomes,
        now: Instant,
        unix: Timestamp,
    ) -> (Vec<Attempt>, Option<Instant>) {
        let (mut standings, mut released) = (outcomes.standings(), Vec::new());
        while let Some(first) = self.waiting.first_entry() {
            let due = first.key().0;
            if due > now {
                return (released, Some(due));
            }
            let outcome = first.get().why_over(&mut standings, unix);
            if outcome.is_none() && !self.budget.try_spend(unix) {
                return (released, Some(now + BUDGET_PAUSE));
            }
            let attempt = first.remove();
            match outcome {
                None => released.push(attempt),
                Some(outcome) => outcomes.settle(attempt, outcome, None, now),
            }
        }
        (released, None)
    }

    /// One turn of a sweep: settles what is over. Returns whether there are more to look at, from where it stopped.
    pub(super) fn sweep(&mut self, outcomes: &mut Outcomes, now: Instant, unix: Timestamp) -> bool {
        let (mut standings, mut over) = (outcomes.standings(), Vec::new());
        let from = self.swept_to.take().map_or(Bound::Unbounded, Bound::Excluded);
        for (count, (&due, attempt)) in self.waiting.range((from, Bound::Unbounded)).enumerate() {
            if count == SWEEP_TURN {
                break;
            }
            if let Some(outcome) = attempt.why_over(&mut standings, unix) {
                over.push((due, outcome));
            }
            self.swept_to = (count + 1 == SWEEP_TURN).then_some(due);
        }
        for (due, outcome) in over {
            if let Some(attempt) = self.waiting.remove(&due) {
                outcomes.settle(attempt, outcome, None, now);
            }
        }
        self.swept_to.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use tidings_push::Outcome;
    use tidings_push::retry::RETRY_BUDGET_MAX;
    use tidings_telemetry::unix_now;
    use tidings_types::EventPriority;

    use super::*;
    use crate::attempt::tests::{SUPERSEDED, Sink, metrics, notification};

    struct Setup {
        repeats: Repeats,
        outcomes: Outcomes,
        sink: Arc<Sink>,
        /// The time of every call, so that nothing flows into the budget.
        unix: Timestamp,
    }

    fn setup(budget_since: Timestamp) -> Setup {
        let sink = Arc::<Sink>::default();
        let outcomes = Outcomes::new(Arc::clone(&sink) as _, metrics());
        Setup { repeats: Repeats::new(budget_since), outcomes, sink, unix: unix_now() }
    }

    impl Setup {
        fn wait(&mut self, device: u32, due: Instant) -> bool {
            let attempt = Attempt::new(notification(device), EventPriority::Normal, Instant::now());
            self.repeats.wait(attempt, due)
        }

        /// How many are released, and when to come back.
        fn release(&mut self, now: Instant) -> (usize, Option<Instant>) {
            let (released, next) = self.repeats.release(&mut self.outcomes, now, self.unix);
            (released.len(), next)
        }

        fn told(&mut self) -> Vec<Outcome> {
            self.outcomes.flush();
            self.sink.outcomes()
        }
    }

    #[test]
    fn each_is_released_when_it_is_due() {
        let (mut setup, now) = (setup(unix_now()), Instant::now());
        let [early, late] = [1, 2].map(|seconds| now + Duration::from_secs(seconds));
        assert!(setup.wait(1, late) && setup.wait(2, early), "each is the first so far");
        assert!(!setup.wait(3, late) && !setup.wait(4, early));
        assert_eq!(setup.release(now), (0, Some(early)));
        assert_eq!(setup.release(early), (2, Some(late)));
        assert_eq!(setup.release(late), (2, None));
    }

    #[test]
    fn what_the_budget_does_not_pay_for_waits_but_is_not_lost() {
        let mut setup = setup(Timestamp(u64::MAX)); // From then on no floor flows in.
        let now = Instant::now();
        for _ in 0..RETRY_BUDGET_MAX {
            setup.wait(1, now);
            assert_eq!(setup.release(now), (1, None));
        }
        setup.wait(1, now);
        assert_eq!(setup.release(now), (0, Some(now + BUDGET_PAUSE)));
        assert_eq!(setup.repeats.len(), 1);
    }

    #[test]
    fn what_is_over_needs_no_pay() {
        let (mut setup, now) = (setup(unix_now()), Instant::now());
        setup.wait(SUPERSEDED, now);
        while setup.repeats.budget.try_spend(unix_now()) {}
        assert_eq!(setup.release(now), (0, None));
        assert_eq!((setup.told(), setup.repeats.len()), (vec![Outcome::Superseded], 0));
    }
}
