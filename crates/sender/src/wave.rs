//! Waves: when many tokens of an app are rejected at once as belonging to another app or environment, the cause is a
//! mistake in the set-up, not the tokens.
//!
//! A provider may say that a single token belongs to another app or environment ([`is_doubtful`]): the device was built
//! for the sandbox and registered for production, or the token was cut short. A single such token is dead. But when a
//! build goes out with the wrong environment, or an import mixes two apps, thousands of living tokens get this answer,
//! and must not be deleted. So such tokens wait for a window ([`Waves::new`]). If their group raises an alarm in that
//! time, they are kept. An answer that is certain (410, `UNREGISTERED`) does not wait and raises no alarm.
//!
//! A group is an app of one pool with its quarantine, so it has one provider and environment. Its alarm is raised when
//! at least 20 % of the answers of this window and the last, and at least [`DOUBTFUL_COUNT_MIN`], were doubtful. It
//! ends after a whole window with answers of which fewer were doubtful. A core: it is given the time, and returns
//! changes of the alarm to its driver.
//!
//! Bound: two pairs of counters for each group.

use std::time::Duration;

use tidings_push::Reason;
use tokio::time::Instant;

/// The fewest doubtful answers for an alarm: a few dead tokens are normal.
pub(crate) const DOUBTFUL_COUNT_MIN: u64 = 20;
/// The least share of all answers for an alarm: one in this many.
const DOUBTFUL_SHARE: u64 = 5;

/// Whether the provider says that the token belongs to another app or environment, rather than that it is gone.
pub(crate) fn is_doubtful(reason: Reason) -> bool {
    use tidings_push::{apns, fcm};
    matches!(
        reason,
        Reason::Apns(apns::Reason::BadDeviceToken)
            | Reason::Fcm(fcm::Reason::InvalidToken | fcm::Reason::SenderIdMismatch)
    )
}

/// Answers of one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Answers {
    pub(crate) accepted: u64,
    pub(crate) doubtful: u64,
}

impl Answers {
    fn add(&mut self, other: Self) {
        self.accepted += other.accepted;
        self.doubtful += other.doubtful;
    }

    fn is_wave(self) -> bool {
        let all = self.accepted + self.doubtful;
        self.doubtful >= DOUBTFUL_COUNT_MIN && self.doubtful * DOUBTFUL_SHARE >= all
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }
}

/// What happened to a group's alarm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Change {
    /// With what was seen.
    Raised(Answers),
    Ended,
}

/// The groups' answers and alarms.
#[derive(Debug)]
pub(crate) struct Waves {
    window: Duration,
    groups: Vec<Group>,
}

#[derive(Debug, Clone, Copy)]
struct Group {
    began: Instant,
    last: Answers,
    this: Answers,
    is_alarmed: bool,
}

impl Waves {
    pub(crate) fn new(window: Duration, group_count: usize, now: Instant) -> Self {
        let group = Group { began: now, last: Answers::default(), this: Answers::default(), is_alarmed: false };
        Self { window, groups: vec![group; group_count] }
    }

    /// How long a doubtful token waits.
    pub(crate) fn window(&self) -> Duration {
        self.window
    }

    /// Takes answers of a group.
    pub(crate) fn count(&mut self, group: usize, answers: Answers, now: Instant) -> Option<Change> {
        let group = &mut self.groups[group];
        let ended = group.turn(self.window, now);
        group.this.add(answers);
        let mut seen = group.last;
        seen.add(group.this);
        if group.is_alarmed || !seen.is_wave() {
            return ended.then_some(Change::Ended);
        }
        group.is_alarmed = true;
        // An alarm that ends and begins again in the same moment has not ended.
        (!ended).then_some(Change::Raised(seen))
    }

    pub(crate) fn is_alarmed(&self, group: usize) -> bool {
        self.groups[group].is_alarmed
    }
}

impl Group {
    /// Begins the next window when this one is over; true if that ends the alarm.
    fn turn(&mut self, window: Duration, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.began);
        if passed < window {
            return false;
        }
        let ends = self.is_alarmed && !self.this.is_empty() && !self.this.is_wave();
        self.is_alarmed &= !ends;
        self.last = if passed < 2 * window { self.this } else { Answers::default() };
        (self.this, self.began) = (Answers::default(), now);
        ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(60);

    fn answers(accepted: u64, doubtful: u64) -> Answers {
        Answers { accepted, doubtful }
    }

    #[test]
    fn an_alarm_needs_many_and_a_fifth_and_looks_at_two_windows() {
        let now = Instant::now();
        let raised = |parts: &[(u64, (u64, u64))]| {
            let mut waves = Waves::new(WINDOW, 2, now);
            for &(second, (accepted, doubtful)) in parts {
                waves.count(1, answers(accepted, doubtful), now + Duration::from_secs(second));
            }
            assert!(!waves.is_alarmed(0), "another group's answers are its own");
            waves.is_alarmed(1)
        };
        assert!(!raised(&[(0, (0, 19))]));
        assert!(raised(&[(0, (0, 20))]));
        assert!(raised(&[(0, (80, 20))]));
        assert!(!raised(&[(0, (81, 20))]));
        assert!(raised(&[(50, (0, 10)), (70, (0, 10))]), "this window and the last");
        assert!(!raised(&[(0, (0, 10)), (121, (0, 10))]), "an older one is forgotten");
    }

    #[test]
    fn an_alarm_is_raised_once_and_ends_after_a_window_of_good_answers() {
        let now = Instant::now();
        let at = |second| now + Duration::from_secs(second);
        let mut waves = Waves::new(WINDOW, 1, now);
        assert_eq!(waves.count(0, answers(5, 30), at(1)), Some(Change::Raised(answers(5, 30))));
        assert_eq!(waves.count(0, answers(0, 30), at(2)), None);
        // The window in which it was raised was bad; one without answers says nothing.
        assert_eq!(waves.count(0, answers(0, 0), at(61)), None);
        assert_eq!(waves.count(0, answers(0, 0), at(1000)), None);
        assert!(waves.is_alarmed(0));
        assert_eq!(waves.count(0, answers(100, 1), at(1001)), None);
        assert_eq!(waves.count(0, answers(1, 0), at(1061)), Some(Change::Ended));
        assert!(!waves.is_alarmed(0));
    }
}
