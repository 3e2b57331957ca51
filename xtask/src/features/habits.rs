//! What the history says of a scenario: its last results, and whether its failures come and go. No I/O, no clock.
//!
//! # Rules
//! 1. *Flaky*: it passed and failed with exactly the same commit within the last 30 runs, or its result changed at least
//!    twice within its last 10 results. One change is a regression or a repair, not a habit.
//! 2. *Fails at a time*: its failures keep to one day of the week, or to one hour of the day (UTC). Runs of one day say little
//!    more than one run, so days are counted, not runs: a day failed if a run of it failed; for an hour of the day it is that
//!    hour of each date. The time is named if at least 2 of these failed, the last of them too, if at least 9 of 10 failures
//!    lie there, and if chance gives so many there less often than once in 20 histories (Fisher's exact test, one-sided,
//!    corrected for the 7 days and 24 hours that are tried).
//! 3. The second says more, so it is told where both are true.
//!
//! Pending results, and runs without the scenario, count for neither.

use std::collections::BTreeMap;
use std::fmt;

use jiff::tz::TimeZone;

use super::history::{History, Record};
use super::results::State;

/// Results that are shown.
pub(super) const MARKS_MAX: usize = 30;
/// Results among which changes are counted, and how many changes are a habit.
const CHANGE_WINDOW: usize = 10;
const CHANGES_MIN: usize = 2;
const DAYS: [&str; 7] = ["Mondays", "Tuesdays", "Wednesdays", "Thursdays", "Fridays", "Saturdays", "Sundays"];
/// Of the seven days and the 24 hours together.
const CHANCE_MAX: f64 = 0.05 / 31.0;

/// Why failures of a scenario do not simply follow the code.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Habit {
    /// It passed and failed with this commit.
    SameCommit(String),
    /// Its result changed so often, of late.
    Changes(usize),
    /// It fails then: on so many of so many such days, and on so many of so many others.
    Time { name: String, here: Tries, elsewhere: Tries },
}

/// How often something was tried, and failed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tries {
    pub(super) failed: usize,
    pub(super) total: usize,
}

impl Habit {
    /// In a word or two.
    pub(super) fn word(&self) -> String {
        match self {
            Self::SameCommit(_) | Self::Changes(_) => "flaky".to_owned(),
            Self::Time { name, .. } => format!("fails {name}"),
        }
    }
}

impl fmt::Display for Habit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SameCommit(commit) => write!(f, "flaky: it passed and failed with the same commit {commit}"),
            Self::Changes(count) => {
                write!(f, "flaky: its result changed {count} times within its last {CHANGE_WINDOW} results")
            }
            Self::Time { name, here, elsewhere } => write!(
                f,
                "fails {name}: {} of {} times there, {} of {} times elsewhere",
                here.failed, here.total, elsewhere.failed, elsewhere.total
            ),
        }
    }
}

/// The results of the last runs, the oldest first; `None`: the scenario was not there.
pub(super) fn marks<'a>(history: &'a History, key: &str) -> Vec<(&'a Record, Option<State>)> {
    let runs = history.runs.range(history.runs.len().saturating_sub(MARKS_MAX)..);
    runs.map(|run| (run, run.scenarios.get(key).map(|outcome| outcome.state))).collect()
}

/// The habit that a scenario shows in the runs, the oldest first.
pub(super) fn habit<'a>(runs: impl DoubleEndedIterator<Item = &'a Record> + Clone, key: &str) -> Option<Habit> {
    at_a_time(runs.clone(), key).or_else(|| flaky(runs, key))
}

/// Whether a run failed; `None` if it says nothing.
fn failed(run: &Record, key: &str) -> Option<bool> {
    match run.scenarios.get(key)?.state {
        State::Passed => Some(false),
        State::Failed => Some(true),
        State::Pending => None,
    }
}

fn flaky<'a>(runs: impl DoubleEndedIterator<Item = &'a Record> + Clone, key: &str) -> Option<Habit> {
    let mut by_commit = BTreeMap::new();
    for run in runs.clone().rev().take(MARKS_MAX) {
        if let (Some(commit), Some(failed)) = (run.exact_commit(), failed(run, key))
            && *by_commit.entry(commit).or_insert(failed) != failed
        {
            return Some(Habit::SameCommit(commit.to_owned()));
        }
    }
    let results: Vec<bool> = runs.rev().filter_map(|run| failed(run, key)).take(CHANGE_WINDOW).collect();
    let changes = results.windows(2).filter(|pair| pair[0] != pair[1]).count();
    (changes >= CHANGES_MIN).then_some(Habit::Changes(changes))
}

fn at_a_time<'a>(runs: impl Iterator<Item = &'a Record>, key: &str) -> Option<Habit> {
    // By date, and by date and hour: the day of the week, the hour, and whether a run failed then.
    let (mut days, mut hours) = (BTreeMap::new(), BTreeMap::new());
    for run in runs {
        let Some(failed) = failed(run, key) else { continue };
        let at = TimeZone::UTC.to_datetime(run.at);
        let day = usize::from(at.weekday().to_monday_zero_offset().unsigned_abs());
        let hour = usize::from(at.hour().unsigned_abs());
        days.entry(at.date()).or_insert((day, false)).1 |= failed;
        hours.entry((at.date(), hour)).or_insert((hour, false)).1 |= failed;
    }
    let days: Vec<(usize, bool)> = days.into_values().collect();
    let hours: Vec<(usize, bool)> = hours.into_values().collect();
    let named = |slots: &[(usize, bool)], name: fn(usize) -> String| {
        let (slot, chance, here, elsewhere) = slot(slots)?;
        Some((chance, Habit::Time { name: name(slot), here, elsewhere }))
    };
    let day = named(&days, |day| format!("on {}", DAYS[day]));
    let hour = named(&hours, |hour| format!("between {hour:02}:00 and {:02}:00 UTC", (hour + 1) % 24));
    let found = [day, hour].into_iter().flatten().min_by(|one, other| one.0.total_cmp(&other.0));
    found.map(|(_, habit)| habit)
}

/// The slot to which the failures keep, by rule 2, with its chance; the units are in order of time.
fn slot(units: &[(usize, bool)]) -> Option<(usize, f64, Tries, Tries)> {
    let (slot, _) = *units.iter().rev().find(|(_, failed)| *failed)?; // Where the last failure was, or nowhere.
    let tries = |is_here: bool| {
        let of = units.iter().filter(|(of, _)| (*of == slot) == is_here);
        of.fold(Tries::default(), |tries, (_, failed)| Tries {
            failed: tries.failed + usize::from(*failed),
            total: tries.total + 1,
        })
    };
    let (here, elsewhere) = (tries(true), tries(false));
    let has_failed_last = units.iter().rev().find(|(of, _)| *of == slot).is_some_and(|(_, failed)| *failed);
    let keeps_to_it = here.failed >= 2 && 10 * here.failed >= 9 * (here.failed + elsewhere.failed);
    let chance = chance(here, elsewhere);
    (has_failed_last && keeps_to_it && chance <= CHANCE_MAX).then_some((slot, chance, here, elsewhere))
}

/// How likely at least so many of the failures are here if they fall where they like (the hypergeometric distribution).
fn chance(here: Tries, elsewhere: Tries) -> f64 {
    let (failed, total) = (here.failed + elsewhere.failed, here.total + elsewhere.total);
    let all = ln_ways(total, here.total);
    let most = failed.min(here.total);
    let so_many = |count: usize| match here.total - count {
        rest if rest > total - failed => 0.0,
        rest => (ln_ways(failed, count) + ln_ways(total - failed, rest) - all).exp(),
    };
    (here.failed..=most).map(so_many).sum()
}

/// The logarithm of the number of ways to choose `count` of `of`.
fn ln_ways(of: usize, count: usize) -> f64 {
    (1..=count).map(|n| ((of - count + n) as f64 / n as f64).ln()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::history::tests::run_of;
    use super::*;

    const KEY: &str = "a.feature: A";
    const HOUR: i64 = 3600;
    const DAY: i64 = 24 * HOUR;
    /// 2026-11-02, a Monday, midnight.
    const MONDAY: i64 = 1_793_577_600;

    fn found(runs: &[Record]) -> Option<Habit> {
        habit(runs.iter(), KEY)
    }

    /// Runs of these results, an hour apart, each with a commit of its own.
    fn runs(results: &str) -> Vec<Record> {
        let commits = results.char_indices().map(|(index, letter)| (index, letter, format!("commit-{index}")));
        commits.map(|(index, letter, commit)| run_of(MONDAY + index as i64 * HOUR, &commit, state(letter))).collect()
    }

    fn state(letter: char) -> State {
        match letter {
            'p' => State::Passed,
            'F' => State::Failed,
            _ => State::Pending,
        }
    }

    /// A run on each of so many days, at 03:00; it fails if `fails` says so of the day.
    fn nights(count: i64, fails: impl Fn(i64) -> bool) -> Vec<Record> {
        let state = |day| if fails(day) { State::Failed } else { State::Passed };
        (0..count).map(|day| run_of(MONDAY + day * DAY + 3 * HOUR, &format!("commit-{day}"), state(day))).collect()
    }

    #[test]
    fn a_regression_and_its_repair_are_no_habit_unless_they_come_again() {
        assert_eq!(found(&runs("pppp")), None);
        assert_eq!(found(&runs("ppFF")), None);
        assert_eq!(found(&runs("FFpp")), None);
        assert_eq!(found(&runs("pFpp")), Some(Habit::Changes(2)));
        assert_eq!(found(&runs("pF.p.F")), Some(Habit::Changes(3)), "pending results are passed over");
        assert_eq!(found(&runs("pFppppppppppp")), None, "that is long ago");
    }

    #[test]
    fn two_results_with_one_commit_are_flaky() {
        let mut both = runs("ppF");
        both[2].commit = both[1].commit.clone();
        assert_eq!(found(&both), Some(Habit::SameCommit("commit-1".to_owned())));
        both[2].is_clean = false;
        assert_eq!(found(&both), None, "there were changes beside the commit");
        for run in &mut both {
            (run.commit, run.is_clean) = (None, true);
        }
        assert_eq!(found(&both), None, "nobody knows the commits");
    }

    #[test]
    fn what_fails_every_sunday_is_told_after_the_third() {
        let sundays = |weeks: i64| nights(7 * weeks, |day| day % 7 == 6);
        assert!(matches!(found(&sundays(2)), None | Some(Habit::Changes(_))));
        let habit = found(&sundays(4)).unwrap();
        assert_eq!(habit.to_string(), "fails on Sundays: 4 of 4 times there, 0 of 24 times elsewhere");
        assert_eq!(habit.word(), "fails on Sundays");
    }

    #[test]
    fn what_fails_in_one_hour_of_the_day_is_told() {
        let of_day = |day: i64| [1, 9, 14, 23].map(|hour| (MONDAY + day * DAY + hour * HOUR, hour == 23));
        let state = |fails| if fails { State::Failed } else { State::Passed };
        let runs: Vec<Record> =
            (0..6).flat_map(of_day).map(|(at, fails)| run_of(at, &at.to_string(), state(fails))).collect();
        let told = found(&runs).unwrap().to_string();
        assert_eq!(told, "fails between 23:00 and 00:00 UTC: 6 of 6 times there, 0 of 18 times elsewhere");
    }

    #[test]
    fn one_bad_sunday_is_not_every_sunday_however_often_it_was_tried() {
        let mut runs = nights(20, |_| false);
        let sunday = |minute: i64| MONDAY + 20 * DAY + 4 * HOUR + minute * 60;
        runs.extend((0..40).map(|minute| run_of(sunday(minute), &format!("sunday-{minute}"), State::Failed)));
        assert_eq!(found(&runs), None);
    }

    #[test]
    fn a_habit_that_was_given_up_and_failures_elsewhere_are_not_told() {
        assert_eq!(found(&nights(70, |day| day % 7 == 6 && day < 55)), None, "the last Sundays were good");
        let half = nights(70, |day| day % 7 == 6 || day % 7 == 2);
        assert!(matches!(found(&half), Some(Habit::Changes(_))), "Sundays are no better than Wednesdays");
    }

    #[test]
    fn the_chance_is_that_of_fisher() {
        let tries = |failed, total| Tries { failed, total };
        // The lady tasting tea: 4 of 4 right is one way in 70, 3 of 4 is 16 more.
        assert!((chance(tries(4, 4), tries(0, 4)) - 1.0 / 70.0).abs() < 1e-9);
        assert!((chance(tries(3, 4), tries(1, 4)) - 17.0 / 70.0).abs() < 1e-9);
        assert!((chance(tries(0, 4), tries(4, 4)) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_last_runs_are_shown_also_those_without_the_scenario() {
        let mut history = History::default();
        runs("pF.").into_iter().for_each(|run| history.push(run));
        history.push(Record { scenarios: BTreeMap::new(), ..run_of(MONDAY, "d", State::Passed) });
        let states: Vec<_> = marks(&history, KEY).iter().map(|(_, state)| *state).collect();
        assert_eq!(states, [Some(State::Passed), Some(State::Failed), Some(State::Pending), None]);
        (0..100).for_each(|_| history.push(run_of(MONDAY, "e", State::Passed)));
        assert_eq!(marks(&history, KEY).len(), MARKS_MAX);
    }

    fn any_runs() -> impl Strategy<Value = Vec<Record>> {
        let run = (0..60 * DAY, 0..5_u8, prop_oneof![Just('p'), Just('F'), Just('.')]);
        prop::collection::vec(run, 0..120).prop_map(|mut runs| {
            runs.sort_by_key(|run| run.0);
            runs.into_iter()
                .map(|(at, commit, letter)| run_of(MONDAY + at, &commit.to_string(), state(letter)))
                .collect()
        })
    }

    proptest! {
        #[test]
        fn what_never_failed_or_never_passed_has_no_habit(mut runs in any_runs(), state in prop_oneof![Just('p'), Just('F')]) {
            runs.iter_mut().flat_map(|run| run.scenarios.values_mut()).for_each(|it| it.state = self::state(state));
            prop_assert_eq!(found(&runs), None);
        }

        #[test]
        fn pending_runs_change_nothing_at_their_end(mut runs in any_runs()) {
            let at_a_time = |runs: &[Record]| super::at_a_time(runs.iter(), KEY);
            let before = at_a_time(&runs);
            runs.extend((0..40).map(|_| run_of(MONDAY + 90 * DAY, "late", State::Pending)));
            prop_assert_eq!(at_a_time(&runs), before);
        }

        #[test]
        fn weeks_later_the_time_is_the_same(mut runs in any_runs(), weeks in 0..500_i64) {
            let before = found(&runs);
            for run in &mut runs {
                run.at = jiff::Timestamp::from_second(run.at.as_second() + weeks * 7 * DAY).unwrap();
            }
            prop_assert_eq!(found(&runs), before);
        }

        #[test]
        fn of_a_time_most_failures_are_there(
            days in prop::collection::vec(prop::bool::weighted(0.05), 0..200), slot in 0..7_usize
        ) {
            let runs = nights(days.len() as i64, |day| days[day as usize] || day as usize % 7 == slot);
            if let Some(Habit::Time { here, elsewhere, .. }) = found(&runs) {
                prop_assert!(10 * here.failed >= 9 * (here.failed + elsewhere.failed), "{:?} {:?}", here, elsewhere);
                prop_assert_eq!(here.total + elsewhere.total, days.len());
            }
        }

        #[test]
        fn a_chance_is_one_and_falls_with_each_failure_here(
            here in 1..40_usize, elsewhere in 1..200_usize, failed in 0..40_usize
        ) {
            let failed = failed.min(elsewhere);
            let at = |count| {
                chance(Tries { failed: count, total: here }, Tries { failed: failed.saturating_sub(count), total: elsewhere })
            };
            let chances: Vec<f64> = (0..=here.min(failed)).map(at).collect();
            prop_assert!((chances[0] - 1.0).abs() < 1e-9, "{}", chances[0]);
            prop_assert!(chances.is_sorted_by(|one, next| one >= next), "{:?}", chances);
        }
    }
}
