//! Waves: when many tokens of an app are refused at once as not of this environment, it is not the tokens that are wrong.
//!
//! A provider says of a single token that it is none of its own ([`is_doubtful`]): a device that was built for the
//! sandbox and registered for production, or a token cut short. Alone that is a dead token. But when a build goes out
//! with the wrong environment, or an import mixes two apps, the same is said of thousands that are alive, and to
//! delete them would be to lose them. So such tokens are not deleted at once: they wait for a window ([`Waves::new`]), and
//! if their group raises an alarm in the meantime they are kept. What a provider is certain of (410, `UNREGISTERED`)
//! does not wait and raises nothing.
//!
//! A group is an app of one pool with its quarantine, so one provider and environment. Its alarm is raised when of the
//! answers of this window and the last at least a fifth and at least [`DOUBTFUL_COUNT_MIN`] were doubtful; it ends after a
//! whole window with answers of which fewer were. A core: it is given the time, and tells its driver what to say.
//!
//! Bound: two pairs of counters for each group.

use std::time::Duration;

use tidings_push::Reason;
use tokio::time::Instant;

/// Doubtful answers without which there is no alarm: a few dead tokens are nobody's mistake.
pub(crate) const DOUBTFUL_COUNT_MIN: u64 = 20;
/// And the share of all answers, one in so many.
const DOUBTFUL_SHARE: u64 = 5;

/// Whether the provider says that the token is none of its own, rather than one that has died.
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
        // One that ends and begins anew at one moment has not ended.
        (!ended).then_some(Change::Raised(seen))
    }

    pub(crate) fn is_alarmed(&self, group: usize) -> bool {
        self.groups[group].is_alarmed
    }
}

impl Group {
    /// Begins another window when this one is over; true when that ends the alarm.
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
