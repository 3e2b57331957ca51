//! Decides which report is tried when: logic without clock and sockets.
//!
//! ```text
//!  add ─► due ──next──► in flight ──taken──► told
//!          ▲ back-off, at most     │
//!          └───── until the end ◄──┴─failed─► (the end is over) given up
//! ```
//!
//! A failed attempt is repeated after a random time from `backoff_min` to `backoff_min` doubled with each attempt, at
//! most `backoff_max` (full jitter: Brooker, "Exponential Backoff And Jitter"). The last attempt is at the report's
//! end. Each report gets at least one attempt, even if its end has passed, because then the server was off, not the
//! receiver. A receiver that sends `Retry-After` gets that pause, at most `backoff_max`; with 429 and 503 the pause
//! holds for all reports. After a 410 nothing is tried until [`Schedule::reopen`].
//!
//! A report that could not be sent because there was no connection stays due, and this does not count as an attempt.
//! For [`UNSENT_PAUSE`] no more reports are in flight than at that moment, plus one for each report that is taken.
//!
//! Bound: `capacity` reports; the caller asks [`Schedule::room`] before it adds. `in_flight_max` are tried at a time.
//! The report that has been due for longest is next.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tidings_types::{Backoff, JournalPosition};
use tokio::time::Instant;

use super::answer::Answer;

/// The pause after an attempt that found no connection; shorter if `backoff_min` is.
pub(super) const UNSENT_PAUSE: Duration = Duration::from_millis(250);

/// What bounds it.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) capacity: usize,
    pub(super) in_flight_max: usize,
    /// Invariant: from 1 ms to `backoff_max`.
    pub(super) backoff_min: Duration,
    pub(super) backoff_max: Duration,
}

/// What happens to a report after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Told,
    GivenUp,
    /// It is tried again after this time, unless something changes.
    Again(Duration),
}

pub(super) struct Schedule {
    terms: Terms,
    reports: HashMap<JournalPosition, Report>,
    /// Invariant: exactly the reports with a `due`.
    due: BTreeSet<(Instant, JournalPosition)>,
    /// Nothing is tried before then.
    paused_until: Option<Instant>,
    hold: Option<Hold>,
    is_closed: bool,
}

/// Fewer reports are tried at a time, because connections are missing.
struct Hold {
    until: Instant,
    /// Reports in flight at that time.
    in_flight_max: usize,
}

struct Report {
    /// Failed attempts.
    attempts: u32,
    /// A failure after this time is final.
    end: Instant,
    /// `None` while in flight.
    due: Option<Instant>,
}

impl Schedule {
    pub(super) fn new(terms: Terms) -> Self {
        Self { terms, reports: HashMap::new(), due: BTreeSet::new(), paused_until: None, hold: None, is_closed: false }
    }

    /// How many more reports it can take.
    pub(super) fn room(&self) -> usize {
        self.terms.capacity.saturating_sub(self.reports.len())
    }

    pub(super) fn in_flight(&self) -> usize {
        self.reports.len() - self.due.len()
    }

    /// Whether the receiver has said that it has left.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds a report to be tried from `now` until `end`. A report that is known already stays unchanged.
    pub(super) fn add(&mut self, position: JournalPosition, end: Instant, now: Instant) {
        self.reports.entry(position).or_insert_with(|| {
            self.due.insert((now, position));
            Report { attempts: 0, end, due: Some(now) }
        });
    }

    /// Forgets the reports that `keep` does not want, unless they are in flight.
    pub(super) fn retain(&mut self, keep: impl Fn(JournalPosition) -> bool) {
        let Self { reports, due, .. } = self;
        reports.retain(|&position, report| {
            let Some(at) = report.due else { return true };
            let keep = keep(position);
            if !keep {
                due.remove(&(at, position));
            }
            keep
        });
    }

    /// The next report to try; it is in flight until [`Schedule::ended`] or [`Schedule::forget`].
    pub(super) fn next(&mut self, now: Instant) -> Option<JournalPosition> {
        if self.wake_at()? > now {
            return None;
        }
        let (_, position) = self.due.pop_first()?;
        self.reports.get_mut(&position).expect("what is due is known").due = None;
        Some(position)
    }

    /// When [`Schedule::next`] will have a report; `None` if that needs another call first.
    pub(super) fn wake_at(&self) -> Option<Instant> {
        if self.is_closed || self.in_flight() >= self.terms.in_flight_max {
            return None;
        }
        let &(due, _) = self.due.first()?;
        let hold = self.hold.as_ref().filter(|hold| self.in_flight() >= hold.in_flight_max).map(|hold| hold.until);
        [self.paused_until, hold].into_iter().flatten().max().map(|pause| pause.max(due)).or(Some(due))
    }

    /// Removes a report in flight that is no longer wanted.
    pub(super) fn forget(&mut self, position: JournalPosition) {
        if let Some(Report { due: Some(at), .. }) = self.reports.remove(&position) {
            self.due.remove(&(at, position));
        }
    }

    /// An attempt has ended. `random` is any 64 random bits.
    pub(super) fn ended(&mut self, position: JournalPosition, answer: Answer, random: u64, now: Instant) -> Fate {
        let Some(report) = self.reports.get_mut(&position) else { return Fate::GivenUp };
        let longest = self.terms.backoff_max;
        let mut at_least = Duration::ZERO;
        match answer {
            Answer::Taken => {
                self.forget(position);
                if let Some(hold) = &mut self.hold {
                    hold.in_flight_max += 1;
                }
                return Fate::Told;
            }
            Answer::Unsent if now < report.end => {
                report.due = Some(now);
                self.due.insert((now, position));
                let pause = UNSENT_PAUSE.min(self.terms.backoff_min);
                self.hold = Some(Hold { until: now + pause, in_flight_max: self.in_flight() });
                return Fate::Again(pause);
            }
            Answer::Unsent => {}
            Answer::Gone => self.is_closed = true,
            Answer::Busy { retry_after } => {
                at_least = retry_after.min(longest);
                let until = now + at_least;
                self.paused_until = Some(self.paused_until.map_or(until, |pause| pause.max(until)));
            }
            Answer::Failed { retry_after } => at_least = retry_after.unwrap_or_default().min(longest),
        }
        if now >= report.end {
            self.forget(position);
            return Fate::GivenUp;
        }
        report.attempts = report.attempts.saturating_add(1);
        let pause =
            backoff(self.terms.backoff_min, longest, report.attempts, random).max(at_least).min(report.end - now);
        report.due = Some(now + pause);
        self.due.insert((now + pause, position));
        Fate::Again(pause)
    }

    /// Tries all waiting reports at once: pauses end, and a receiver that had left is tried again.
    pub(super) fn reopen(&mut self, now: Instant) {
        (self.is_closed, self.paused_until, self.hold) = (false, None, None);
        let waiting = std::mem::take(&mut self.due);
        for (at, position) in waiting {
            let due = at.min(now);
            self.reports.get_mut(&position).expect("what is due is known").due = Some(due);
            self.due.insert((due, position));
        }
    }

    #[cfg(test)]
    fn check(&self) {
        let waiting = self.reports.iter().filter_map(|(&position, report)| Some((report.due?, position)));
        assert_eq!(waiting.collect::<BTreeSet<_>>(), self.due);
        assert!(self.in_flight() <= self.terms.in_flight_max && self.reports.len() <= self.terms.capacity);
    }
}

/// The pause behind the attempt that was the `attempts`th to fail.
pub(super) fn backoff(min: Duration, max: Duration, attempts: u32, random: u64) -> Duration {
    Backoff::new(min, max).at_least(min).pause(attempts, random)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIN: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(3600);
    const DAY: Duration = Duration::from_secs(24 * 3600);
    const FAILED: Answer = Answer::Failed { retry_after: None };

    fn terms() -> Terms {
        Terms { capacity: 8, in_flight_max: 3, backoff_min: MIN, backoff_max: MAX }
    }

    fn at(position: u64) -> JournalPosition {
        JournalPosition(position)
    }

    /// The moments of all attempts of a report that fails each time.
    fn attempts(end: Duration, random: impl Fn(usize) -> u64) -> (Vec<Duration>, Duration) {
        let mut schedule = Schedule::new(terms());
        let start = Instant::now();
        schedule.add(at(1), start + end, start);
        let mut made = Vec::new();
        loop {
            let now = schedule.wake_at().expect("it waits for its time only");
            assert_eq!(schedule.next(now), Some(at(1)));
            made.push(now - start);
            let fate = schedule.ended(at(1), FAILED, random(made.len()), now);
            schedule.check();
            if fate == Fate::GivenUp {
                return (made, now - start);
            }
        }
    }

    #[test]
    fn a_report_is_tried_until_its_end_and_at_its_end_for_the_last_time() {
        let (made, given_up) = attempts(DAY, |_| u64::MAX); // The longest pauses.
        let pauses: Vec<u64> = made.windows(2).map(|two| (two[1] - two[0]).as_secs_f64().round() as u64).collect();
        assert_eq!(pauses[..6], [2, 3, 5, 9, 17, 33], "doubling above the least");
        assert!(pauses[12..pauses.len() - 1].iter().all(|&pause| pause == 3600), "up to the longest: {pauses:?}");
        assert_eq!((made.last(), given_up), (Some(&DAY), DAY));
        let (made, _) = attempts(DAY, |_| 0); // The shortest.
        assert_eq!(made.len(), 24 * 3600 + 1, "one a second");
    }

    #[test]
    fn one_attempt_is_made_even_where_the_end_was_over() {
        assert_eq!(attempts(Duration::ZERO, |_| 0).0, [Duration::ZERO]);
    }

    #[test]
    fn who_asks_for_time_gets_it_within_bounds_and_who_is_busy_from_all() {
        let start = Instant::now();
        let mut schedule = Schedule::new(terms());
        (1..=3).for_each(|position| schedule.add(at(position), start + DAY, start));
        assert_eq!(schedule.next(start), Some(at(1)));
        let retry_after = Duration::from_secs(100);
        let failed = Answer::Failed { retry_after: Some(retry_after) };
        assert_eq!(schedule.ended(at(1), failed, 0, start), Fate::Again(retry_after));
        assert_eq!(schedule.next(start), Some(at(2)), "that was for one report");
        let fate = schedule.ended(at(2), Answer::Busy { retry_after }, 0, start);
        assert_eq!(fate, Fate::Again(retry_after));
        assert_eq!((schedule.next(start), schedule.wake_at()), (None, Some(start + retry_after)), "this is for all");
        let later = start + retry_after;
        assert_eq!(schedule.next(later), Some(at(3)), "it has been due for longest");
        let endless = Answer::Busy { retry_after: 100 * DAY };
        assert_eq!(schedule.ended(at(3), endless, 0, later), Fate::Again(MAX), "nobody asks for ever");
        assert_eq!(schedule.wake_at(), Some(later + MAX));
        let hasty = Answer::Failed { retry_after: Some(Duration::ZERO) };
        assert_eq!(schedule.next(later + MAX), Some(at(1)));
        assert_eq!(schedule.ended(at(1), hasty, 0, later + MAX), Fate::Again(MIN), "nor for no time at all");
    }

    #[test]
    fn who_has_left_is_asked_no_more_until_something_changes() {
        let start = Instant::now();
        let mut schedule = Schedule::new(terms());
        schedule.add(at(1), start + DAY, start);
        schedule.add(at(2), start + DAY, start);
        schedule.next(start).unwrap();
        assert!(matches!(schedule.ended(at(1), Answer::Gone, 0, start), Fate::Again(_)), "it is kept");
        assert!(schedule.is_closed());
        assert_eq!((schedule.next(start + DAY), schedule.wake_at()), (None, None));
        schedule.reopen(start + MIN / 2);
        schedule.check();
        assert!(!schedule.is_closed());
        assert_eq!(schedule.next(start + MIN / 2), Some(at(2)));
        assert_eq!(schedule.next(start + MIN / 2), Some(at(1)), "without waiting for its time");
    }

    #[test]
    fn what_was_not_sent_was_not_tried_and_others_wait_for_connections_too() {
        let start = Instant::now();
        let mut schedule = Schedule::new(terms());
        (1..=5).for_each(|position| schedule.add(at(position), start + DAY, start));
        (1..=3).for_each(|position| assert_eq!(schedule.next(start), Some(at(position))));
        assert_eq!(schedule.ended(at(3), Answer::Unsent, 0, start), Fate::Again(UNSENT_PAUSE));
        assert_eq!(
            (schedule.next(start), schedule.wake_at()),
            (None, Some(start + UNSENT_PAUSE)),
            "two have a connection"
        );
        assert_eq!(schedule.ended(at(1), FAILED, u64::MAX, start), Fate::Again(2 * MIN - Duration::from_nanos(1)));
        assert_eq!(schedule.next(start), Some(at(3)), "there is one, and it is tried as if it had not been");
        assert_eq!(schedule.ended(at(2), Answer::Taken, 0, start), Fate::Told);
        assert_eq!(schedule.next(start), Some(at(4)));
        assert_eq!(schedule.next(start), Some(at(5)), "perhaps there is one more");
        let later = start + MIN;
        for position in 3..=5 {
            schedule.ended(at(position), Answer::Unsent, 0, later);
        }
        assert_eq!((schedule.next(later), schedule.wake_at()), (None, Some(later + UNSENT_PAUSE)), "there is none");
        assert_eq!(schedule.next(later + UNSENT_PAUSE), Some(at(3)), "due for longest");
        assert_eq!(schedule.next(later + UNSENT_PAUSE), Some(at(4)));
        assert_eq!(schedule.ended(at(3), Answer::Unsent, 0, start + DAY), Fate::GivenUp);
    }

    #[test]
    fn what_is_forgotten_elsewhere_makes_room() {
        let start = Instant::now();
        let mut schedule = Schedule::new(terms());
        (0..8).for_each(|position| schedule.add(at(position), start + DAY, start));
        assert_eq!(schedule.room(), 0);
        assert_eq!(schedule.next(start), Some(at(0)));
        schedule.retain(|position| position.0 % 2 == 1);
        schedule.check();
        assert_eq!((schedule.room(), schedule.in_flight()), (3, 1), "what is in flight stays");
        assert_eq!(schedule.next(start), Some(at(1)));
        schedule.forget(at(0));
        schedule.forget(at(3));
        schedule.check();
        assert_eq!(schedule.room(), 5);
        assert_eq!(schedule.ended(at(0), Answer::Taken, 0, start), Fate::GivenUp, "it is nobody's");
    }

    #[derive(Debug, Clone)]
    enum Step {
        Add(u64),
        Try,
        End { place: usize, answer: Answer, random: u64 },
        Wait(u64),
        Reopen,
        Retain(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let answer = prop_oneof![
            4 => Just(Answer::Taken),
            6 => prop::option::of(0..5000_u64)
                .prop_map(|seconds| Answer::Failed { retry_after: seconds.map(Duration::from_secs) }),
            1 => (0..5000_u64).prop_map(|seconds| Answer::Busy { retry_after: Duration::from_secs(seconds) }),
            1 => Just(Answer::Gone),
            2 => Just(Answer::Unsent),
        ];
        let step = prop_oneof![
            4 => (0..20_u64).prop_map(Step::Add),
            6 => Just(Step::Try),
            6 => (any::<usize>(), answer, any::<u64>())
                .prop_map(|(place, answer, random)| Step::End { place, answer, random }),
            4 => (0..5_000_000_u64).prop_map(Step::Wait),
            1 => Just(Step::Reopen),
            1 => (1..5_u64).prop_map(Step::Retain),
        ];
        prop::collection::vec(step, 0..200)
    }

    proptest! {
        /// Whatever comes in whatever order: bounds hold, nobody is tried before their time, and nobody is lost: each is
        /// told, given up at its end, or still known.
        #[test]
        fn nobody_is_lost_and_bounds_hold(steps in steps()) {
            let start = Instant::now();
            let mut now = start;
            let mut schedule = Schedule::new(terms());
            let mut known = std::collections::BTreeMap::new(); // Position to the earliest next attempt and the end.
            let mut flying = Vec::new();
            for step in steps {
                match step {
                    Step::Add(position) if schedule.room() > 0 => {
                        known.entry(position).or_insert((now, now + DAY));
                        schedule.add(at(position), known[&position].1, now);
                    }
                    Step::Add(_) => {}
                    Step::Try => {
                        if let Some(position) = schedule.next(now) {
                            prop_assert!(known[&position.0].0 <= now && !flying.contains(&position));
                            flying.push(position);
                        }
                    }
                    Step::End { .. } if flying.is_empty() => {}
                    Step::End { place, answer, random } => {
                        let position = flying.swap_remove(place % flying.len());
                        let end = known[&position.0].1;
                        match schedule.ended(position, answer, random, now) {
                            Fate::Told => {
                                prop_assert_eq!(answer, Answer::Taken);
                                known.remove(&position.0);
                            }
                            Fate::GivenUp => {
                                prop_assert!(now >= end);
                                known.remove(&position.0);
                            }
                            Fate::Again(pause) if answer == Answer::Unsent => {
                                prop_assert!(now < end && pause <= MIN);
                                known.insert(position.0, (now, end));
                            }
                            Fate::Again(pause) => {
                                prop_assert!(now < end && pause <= MAX && (pause >= MIN || now + pause == end));
                                known.insert(position.0, (now + pause, end));
                            }
                        }
                    }
                    Step::Wait(millis) => now += Duration::from_millis(millis),
                    Step::Reopen => {
                        schedule.reopen(now);
                        known.values_mut().for_each(|(next, _)| *next = (*next).min(now));
                    }
                    Step::Retain(divisor) => {
                        let keep = |position: u64| position.is_multiple_of(divisor);
                        schedule.retain(|position| keep(position.0));
                        known.retain(|&position, _| keep(position) || flying.contains(&at(position)));
                    }
                }
                schedule.check();
                prop_assert_eq!(schedule.reports.len(), known.len());
                prop_assert_eq!(schedule.in_flight(), flying.len());
            }
        }
    }
}
