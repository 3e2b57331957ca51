//! The step `features`: the promises in plain words (`features/*.feature`) hold on the real program.
//!
//! `crates/tidings/tests/features.rs` runs them and writes its results as JSON; `tests/features/report.rs` describes the
//! form. From the results this step makes the lines on the terminal, the coverage (the share of all scenarios that pass),
//! and a page for people, `target/xtask/features.html`. A pending scenario is not covered, and does not fail.

mod page;
mod results;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use crate::command::{cargo, run};
use crate::report::{Failure, Tally};
use crate::workshop::Workshop;
use results::{Counts, Run, State};

const RESULTS: &str = "xtask/features.json";
const PAGE: &str = "xtask/features.html";

/// Runs the features, writes the page, and counts the scenarios that passed.
pub(crate) fn features(workshop: &Workshop) -> Result<Tally, Failure> {
    let results = workshop.built(RESULTS);
    let _ = fs::remove_file(&results); // Results of an earlier run must not be read.
    let mut command = cargo(workshop, &["test", "--workspace", "--test", "features"]); // Built as in the step `test`.
    command.env("TIDINGS_FEATURES_JSON", &results);
    let ended = run(workshop, "features", command, |_| ());
    let Ok(text) = fs::read_to_string(&results) else {
        return Err(ended.err().unwrap_or_else(|| anyhow!("the test wrote no results to {RESULTS}")).into());
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

/// Lines for the terminal: a table of the features, the failures, and the coverage.
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
    use super::results::tests::mixed;
    use super::*;

    #[test]
    fn the_summary_has_the_failures_and_the_coverage() {
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
    fn an_unreadable_feature_is_named() {
        let run = Run { errors: vec!["push.feature: no Feature".to_owned()], ..mixed() };
        assert!(summary(&run, Path::new(PAGE)).contains(&"unreadable: push.feature: no Feature".to_owned()));
    }
}
