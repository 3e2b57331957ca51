//! A run, judged together with the runs before it: what the page, the file for programs and the chat message tell.

use serde_json::{Value, json};

use super::habits::{self, Habit};
use super::history::{History, Record, key};
use super::results::{Feature, Run, Scenario, State};

pub(super) struct Report {
    pub(super) run: Run,
    /// The last record is this run.
    pub(super) history: History,
}

impl Report {
    /// `history` are the runs before.
    pub(super) fn new(run: Run, mut history: History, record: Record) -> Self {
        history.push(record);
        Self { run, history }
    }

    pub(super) fn is_good(&self) -> bool {
        let counts = self.run.counts();
        counts.failed == 0 && counts.passed > 0 && self.run.errors.is_empty()
    }

    /// This run.
    pub(super) fn record(&self) -> &Record {
        self.history.runs.back().expect("this run is there")
    }

    /// The last results of a scenario.
    pub(super) fn marks(&self, feature: &Feature, scenario: &Scenario) -> Vec<(&Record, Option<State>)> {
        habits::marks(&self.history, &key(&feature.file, &scenario.name))
    }

    pub(super) fn habit(&self, feature: &Feature, scenario: &Scenario) -> Option<Habit> {
        habits::habit(self.history.runs.iter(), &key(&feature.file, &scenario.name))
    }

    /// The scenarios that have a habit.
    pub(super) fn habits(&self) -> impl Iterator<Item = (&Feature, &Scenario, Habit)> {
        let all = self.run.features.iter().flat_map(|feature| feature.scenarios.iter().map(move |one| (feature, one)));
        all.filter_map(|(feature, scenario)| Some((feature, scenario, self.habit(feature, scenario)?)))
    }

    /// Those that had none before this run.
    pub(super) fn newly_flaky(&self) -> Vec<String> {
        let before = || self.history.runs.iter().take(self.history.runs.len() - 1);
        let new = self.habits().filter_map(|(feature, scenario, habit)| {
            let key = key(&feature.file, &scenario.name);
            habits::habit(before(), &key).is_none().then(|| format!("{key} ({habit})"))
        });
        new.collect()
    }

    /// For programs. Without the logs of servers.
    pub(super) fn json(&self) -> Value {
        let (counts, record) = (self.run.counts(), self.record());
        let scenario = |feature: &Feature, scenario: &Scenario| {
            let states = self.marks(feature, scenario).into_iter().map(|(_, state)| state);
            json!({
                "line": scenario.line,
                "name": scenario.name,
                "state": scenario.state,
                "seconds": scenario.seconds,
                "reason": scenario.reason,
                "problem": scenario.problem,
                "steps": scenario.steps,
                "habit": self.habit(feature, scenario).map(|habit| habit.to_string()),
                "last": states.collect::<Vec<_>>(),
            })
        };
        let feature = |feature: &Feature| {
            let scenarios: Vec<Value> = feature.scenarios.iter().map(|one| scenario(feature, one)).collect();
            let Feature { file, name, about, .. } = feature;
            json!({ "file": file, "name": name, "about": about, "counts": feature.counts(), "scenarios": scenarios })
        };
        json!({
            "status": counts.to_string(),
            "good": self.is_good(),
            "at": record.at.to_string(),
            "commit": record.commit,
            "clean": record.is_clean,
            "seconds": self.run.seconds,
            "counts": counts,
            "coverage": counts.coverage(),
            "errors": self.run.errors,
            "history": { "runs": self.history.runs.len(), "damaged_lines": self.history.damaged },
            "features": self.run.features.iter().map(feature).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use jiff::{Timestamp, ToSpan as _};

    use super::super::results::tests::mixed;
    use super::*;

    /// A run with one scenario of each kind; the one that fails has passed with the same commit before.
    pub(in super::super) fn report() -> Report {
        let at: Timestamp = "2026-11-27T05:30:00Z".parse().unwrap();
        let record = |run: &Run, at| Record::new(run, at, Some("5f62eeb".to_owned()), true);
        let mut good = mixed();
        good.features[0].scenarios[1].state = State::Passed;
        let mut history = History { damaged: 2, ..History::default() };
        history.push(record(&good, at - 1.hour()));
        let run = mixed();
        let record = record(&run, at);
        Report::new(run, history, record)
    }

    #[test]
    fn what_was_flaky_before_is_not_newly_so() {
        let report = report();
        let flaky = ["push.feature: A goal is quick (flaky: it passed and failed with the same commit 5f62eeb)"];
        assert_eq!(report.newly_flaky(), flaky);
        let (run, record) = (mixed(), report.record().clone());
        let next = Report::new(run, report.history, record);
        assert_eq!((next.newly_flaky(), next.habits().count()), (Vec::new(), 1));
    }

    #[test]
    fn programs_find_the_status_and_each_scenario() {
        let json = report().json();
        assert_eq!(
            (&json["status"], &json["good"]),
            (&json!("1 passed, 1 failed, 1 pending, coverage 66 %"), &json!(false))
        );
        assert_eq!((&json["at"], &json["commit"]), (&json!("2026-11-27T05:30:00Z"), &json!("5f62eeb")));
        assert_eq!(json["history"], json!({ "runs": 2, "damaged_lines": 2 }));
        let failed = &json["features"][0]["scenarios"][1];
        assert_eq!((&failed["state"], &failed["last"]), (&json!("failed"), &json!(["passed", "failed"])));
        assert_eq!(failed["steps"][1]["state"], "failed");
        assert_eq!(json["features"][1]["scenarios"][0]["reason"], "Nothing is thinned out.");
        assert!(!json.to_string().contains("INFO"), "no logs");
    }
}
