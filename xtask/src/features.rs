//! The step `features`: what is promised in plain words (`features/*.feature`) holds on the real program.
//!
//! They are run by `crates/tidings/tests/features.rs`, which leaves its results as JSON (its form is told in
//! `tests/features/report.rs`). From these come the lines on the terminal, the coverage, which is the part of all
//! scenarios that passes, and a page for people, `target/xtask/features.html`. A pending scenario is not covered and does
//! not fail.

mod page;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};
use serde::Deserialize;

use crate::Workshop;
use crate::command::{cargo, run};
use crate::report::{Failure, Tally};

const RESULTS: &str = "xtask/features.json";
const PAGE: &str = "xtask/features.html";

/// Runs them, writes the page, and counts the scenarios that passed.
pub(crate) fn features(workshop: &Workshop) -> Result<Tally, Failure> {
    let results = workshop.built(RESULTS);
    let _ = fs::remove_file(&results); // Those of an earlier run must not be taken for this one's.
    let mut command = cargo(workshop, &["test", "--workspace", "--test", "features"]); // As the step `test` built it.
    command.env("TIDINGS_FEATURES_JSON", &results);
    let ended = run(workshop, "features", command, |_| ());
    let Ok(text) = fs::read_to_string(&results) else {
        return Err(ended.err().unwrap_or_else(|| anyhow!("there are no results in {RESULTS}")).into());
    };
    let run: Run = serde_json::from_str(&text).context("the results cannot be read").map_err(Failure::from)?;
    fs::write(workshop.built(PAGE), page::page(&run)).context("cannot write the page").map_err(Failure::from)?;
    summary(&run, &workshop.target.join(PAGE)).iter().for_each(|line| println!("    {line}"));
    let counts = run.counts();
    match ended {
        Ok(()) => Ok(Tally { passed: counts.passed, skipped: Vec::new() }),
        Err(error) => Err(Failure::Failed { error, passed: counts.passed, failed: counts.failed + run.errors.len() }),
    }
}

/// What came of a run.
#[derive(Debug, Deserialize)]
struct Run {
    seconds: f64,
    /// Why features could not be read.
    errors: Vec<String>,
    features: Vec<Feature>,
}

#[derive(Debug, Deserialize)]
struct Feature {
    file: String,
    name: String,
    /// What it is about, in a few lines.
    about: String,
    scenarios: Vec<Scenario>,
}

#[derive(Debug, Deserialize)]
struct Scenario {
    line: usize,
    name: String,
    state: State,
    seconds: f64,
    /// What is wrong or, of a pending one, missing.
    problem: Option<String>,
    /// The end of the server's log.
    log: Option<String>,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
struct Step {
    keyword: String,
    text: String,
    state: StepState,
    seconds: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Passed,
    Failed,
    Pending,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StepState {
    Passed,
    Failed,
    /// Nobody has written it.
    Undefined,
    /// It was not come to.
    Left,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    pending: usize,
}

impl Counts {
    fn of<'a>(scenarios: impl Iterator<Item = &'a Scenario>) -> Self {
        scenarios.fold(Self::default(), |mut counts, scenario| {
            match scenario.state {
                State::Passed => counts.passed += 1,
                State::Failed => counts.failed += 1,
                State::Pending => counts.pending += 1,
            }
            counts
        })
    }

    fn total(self) -> usize {
        self.passed + self.failed + self.pending
    }

    /// Whole percents that passed: 100 only if all did.
    fn coverage(self) -> usize {
        100 * self.passed / self.total().max(1)
    }
}

impl Run {
    fn counts(&self) -> Counts {
        Counts::of(self.features.iter().flat_map(|feature| &feature.scenarios))
    }
}

impl Feature {
    fn counts(&self) -> Counts {
        Counts::of(self.scenarios.iter())
    }
}

/// A table of the features, what fails, and the coverage.
fn summary(run: &Run, page: &Path) -> Vec<String> {
    let width = run.features.iter().map(|feature| feature.name.chars().count()).max().unwrap_or_default().max(7);
    let mut lines = vec![format!("{:<width$}  passed  failed  pending", "feature")];
    lines.extend(run.features.iter().map(|feature| {
        let Counts { passed, failed, pending } = feature.counts();
        format!("{:<width$}  {passed:>6}  {failed:>6}  {pending:>7}", feature.name)
    }));
    lines.extend(run.errors.iter().map(|error| format!("unreadable: {error}")));
    let failures = run.features.iter().flat_map(|feature| feature.scenarios.iter().map(move |one| (feature, one)));
    for (feature, scenario) in failures.filter(|(_, scenario)| scenario.state == State::Failed) {
        let problem = scenario.problem.as_deref().unwrap_or_default().replace('\n', ": ");
        lines.push(format!("FAILED {}:{} {}: {problem}", feature.file, scenario.line, scenario.name));
    }
    let counts = run.counts();
    let (passed, total, percent) = (counts.passed, counts.total(), counts.coverage());
    lines.push(format!("{passed} of {total} scenarios covered ({percent} %), see {}", page.display()));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run with one scenario of each kind.
    pub(super) fn mixed() -> Run {
        serde_json::from_str(
            r#"{"seconds": 12.34, "errors": [], "features": [
                {"file": "push.feature", "name": "Push", "about": "One, & in <time>.", "scenarios": [
                    {"line": 4, "name": "A phone is pushed", "state": "passed", "seconds": 0.25, "problem": null,
                     "log": null, "steps": [
                        {"keyword": "Then", "text": "it is pushed", "state": "passed", "seconds": 0.2}]},
                    {"line": 9, "name": "A goal is quick", "state": "failed", "seconds": 2.0,
                     "problem": "Then it is quick\nit took <9> ms", "log": "INFO & more", "steps": [
                        {"keyword": "Given", "text": "a goal", "state": "passed", "seconds": 0.1},
                        {"keyword": "Then", "text": "it is quick", "state": "failed", "seconds": 1.9},
                        {"keyword": "And", "text": "nothing else", "state": "left", "seconds": 0}]}]},
                {"file": "live.feature", "name": "Live", "about": "", "scenarios": [
                    {"line": 3, "name": "A slow app", "state": "pending", "seconds": 0.0,
                     "problem": "not automated yet: Given a slow line", "log": null, "steps": [
                        {"keyword": "Given", "text": "a slow line", "state": "undefined", "seconds": 0}]}]}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn a_pending_scenario_is_neither_covered_nor_failed() {
        let counts = mixed().counts();
        assert_eq!(counts, Counts { passed: 1, failed: 1, pending: 1 });
        assert_eq!((counts.total(), counts.coverage()), (3, 33));
        assert_eq!(Counts { passed: 199, failed: 0, pending: 1 }.coverage(), 99, "not rounded up to all");
        assert_eq!(Counts::default().coverage(), 0);
    }

    #[test]
    fn the_summary_names_what_fails_and_what_is_covered() {
        assert_eq!(
            summary(&mixed(), Path::new("target/xtask/features.html")),
            [
                "feature  passed  failed  pending",
                "Push          1       1        0",
                "Live          0       0        1",
                "FAILED push.feature:9 A goal is quick: Then it is quick: it took <9> ms",
                "1 of 3 scenarios covered (33 %), see target/xtask/features.html",
            ]
        );
    }

    #[test]
    fn a_feature_that_cannot_be_read_is_named() {
        let run = Run { errors: vec!["push.feature: no Feature".to_owned()], ..mixed() };
        assert!(summary(&run, Path::new(PAGE)).contains(&"unreadable: push.feature: no Feature".to_owned()));
    }
}
