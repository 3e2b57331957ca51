//! The step `features`: the promises in plain words (`features/*.feature`) hold on the real program.
//!
//! `crates/tidings/tests/features.rs` runs them and writes its results as JSON; `tests/features/report.rs` describes the
//! form. In the step `features` each scenario has one server. In the step `features-three`, of the long proof, it has three that
//! work together, except for the scenarios whose tags say why not; for the report these are other scenarios: their features are
//! called "on three servers". A step keeps its run in the history, and makes of it, under `target/xtask`: a page for people
//! (`features.html`), the same for programs (`features.json`) and a badge (`features.svg`). It prints the status as the
//! last line, and posts it to a chat if it is told to. A pending scenario is not covered, and does not fail.
//!
//! A history that cannot be kept, and a chat that takes no message, fail nothing: the promises hold all the same. Both are
//! told.

mod badge;
mod habits;
mod history;
mod notify;
mod page;
mod pictures;
mod report;
mod results;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};

use crate::command::{now, run};
use crate::compile::{Built, campaigns};
use crate::step::{Failure, Tally};
use crate::workshop::Workshop;
use crate::{git, install};
use history::{History, Record};
use report::Report;
use results::{Counts, Run};

const STEP: &str = "features";
/// The folder of a run's results and pictures.
const RESULTS: &str = "xtask/features-results";
const HISTORY: &str = "xtask/features-history.ndjson";
const PAGE: &str = "xtask/features.html";
const JSON: &str = "xtask/features.json";
const BADGE: &str = "xtask/features.svg";
/// Instead of `--notify` and `--history`.
const WEBHOOK_VARIABLE: &str = "TIDINGS_FEATURES_WEBHOOK";
const HISTORY_VARIABLE: &str = "TIDINGS_FEATURES_HISTORY";
/// What people see of a commit.
const SHOWN_DIGITS: usize = 12;

/// How the scenarios are run.
#[derive(Clone, Copy)]
enum Way {
    OnOne,
    OnThree,
}

impl Way {
    /// As the test is told.
    fn server_count(self) -> &'static str {
        match self {
            Self::OnOne => "1",
            Self::OnThree => "3",
        }
    }

    fn step(self) -> &'static str {
        match self {
            Self::OnOne => STEP,
            Self::OnThree => "features-three",
        }
    }

    /// Where this way writes such a file.
    fn file(self, path: &str) -> String {
        path.replacen(STEP, self.step(), 1)
    }

    /// What the names of its features end with.
    fn suffix(self) -> &'static str {
        match self {
            Self::OnOne => "",
            Self::OnThree => " on three servers",
        }
    }
}

/// Builds the program, and the test that tries it.
pub(crate) fn build(workshop: &Workshop) -> Result<Built, Failure> {
    install::chromium(workshop, STEP)?;
    install::nats_server(workshop, STEP)?;
    Ok(campaigns(workshop, STEP, &[STEP])?)
}

/// Runs the features on one server, tells of them, and counts the scenarios that passed.
pub(crate) fn on_one(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    features(workshop, built, Way::OnOne)
}

/// The same on three.
pub(crate) fn on_three(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    features(workshop, built, Way::OnThree)
}

fn features(workshop: &Workshop, built: &Built, way: Way) -> Result<Tally, Failure> {
    let (run, ended) = run_on(workshop, built, way)?;
    let report = keep(workshop, run);
    write(workshop, &report, way)?;
    summary(&report.run, &workshop.target.join(way.file(PAGE))).iter().for_each(|line| println!("    {line}"));
    tell(workshop, &report);
    let counts = report.run.counts();
    println!("    {counts}");
    match ended {
        Ok(()) => Ok(Tally { passed: counts.passed, skipped: Vec::new() }),
        Err(error) => {
            Err(Failure::Failed { error, passed: counts.passed, failed: counts.failed + report.run.errors.len() })
        }
    }
}

/// What came of the scenarios, and how the test ended. Fails if it wrote nothing down.
fn run_on(workshop: &Workshop, built: &Built, way: Way) -> Result<(Run, Result<()>), Failure> {
    let folder = workshop.built(RESULTS).join(way.server_count());
    let _ = fs::remove_dir_all(&folder); // Results and pictures of an earlier run must not be read.
    fs::create_dir_all(&folder).context("cannot make the folder of the results")?;
    let (results, pictures) = (folder.join("results.json"), folder.join("pictures"));
    let mut command = built.campaign(STEP)?.command();
    command.env("NATS_SERVER", workshop.built(install::NATS_PROGRAM)).env("FEATURES_NODES", way.server_count());
    command.env("TIDINGS_FEATURES_JSON", &results).env("TIDINGS_FEATURES_PICTURES", &pictures);
    command.env_remove(WEBHOOK_VARIABLE); // A secret, and nothing for the features.
    let ended = run(workshop, way.step(), command, |_| ());
    let Ok(text) = fs::read_to_string(&results) else {
        let unwritten = || anyhow!("the test wrote no results to {}", results.display());
        return Err(ended.err().unwrap_or_else(unwritten).into());
    };
    let mut run: Run = serde_json::from_str(&text).context("the results cannot be read")?;
    pictures::attach(&mut run, &pictures);
    run.rename(way.suffix());
    Ok((run, ended))
}

/// Writes the run at the end of the history, and judges it with those before.
fn keep(workshop: &Workshop, run: Run) -> Report {
    let path = workshop.features.history.clone().or_else(|| std::env::var_os(HISTORY_VARIABLE).map(PathBuf::from));
    let path = path.map_or_else(|| workshop.built(HISTORY), |path| workshop.root.join(path));
    let commit = git::head(&workshop.root).map(|commit| commit.chars().take(SHOWN_DIGITS).collect());
    let is_clean = git::uncommitted(&workshop.root, &["."]).is_some_and(|changes| changes.is_empty());
    let record = Record::new(&run, now(), commit, is_clean);
    let before = History::open(&path).and_then(|before| history::append(&path, &record).map(|()| before));
    let before = before.unwrap_or_else(|error| {
        println!("    the history is not kept: {}: {error}", path.display());
        History::default()
    });
    Report::new(run, before, record)
}

fn write(workshop: &Workshop, report: &Report, way: Way) -> Result<()> {
    let files = [(PAGE, page::page(report)), (JSON, report.json().to_string()), (BADGE, badge::badge(&report.run))];
    for (path, text) in files {
        let path = way.file(path);
        fs::write(workshop.built(&path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Posts to the chat, if there is one.
fn tell(workshop: &Workshop, report: &Report) {
    let Some(url) = workshop.features.notify.clone().or_else(|| std::env::var(WEBHOOK_VARIABLE).ok()) else { return };
    match notify::post(&url, &notify::message(report)) {
        Ok(()) => println!("    the chat was told"),
        Err(error) => println!("    THE CHAT WAS NOT TOLD: {error:#}"),
    }
}

/// Lines for the terminal: a table of the features, and the failures.
fn summary(run: &Run, page: &Path) -> Vec<String> {
    let width = run.features.iter().map(|feature| feature.name.chars().count()).max().unwrap_or_default().max(7);
    let mut lines = vec![format!("{:<width$}  passed  failed  pending", "feature")];
    lines.extend(run.features.iter().map(|feature| {
        let Counts { passed, failed, pending } = feature.counts();
        format!("{:<width$}  {passed:>6}  {failed:>6}  {pending:>7}", feature.name)
    }));
    lines.extend(run.errors.iter().map(|error| format!("unreadable: {error}")));
    lines.extend(run.failed().map(|(feature, scenario)| {
        let problem = scenario.problem.as_deref().unwrap_or_default().replace('\n', ": ");
        format!("FAILED {}:{} {}: {problem}", feature.file, scenario.line, scenario.name)
    }));
    lines.push(format!("see {}", page.display()));
    lines
}

#[cfg(test)]
mod tests {
    use super::results::tests::mixed;
    use super::*;

    #[test]
    fn the_summary_has_the_features_and_the_failures() {
        assert_eq!(
            summary(&mixed(), Path::new("target/xtask/features.html")),
            [
                "feature  passed  failed  pending",
                "Push          1       1        0",
                "Live          0       0        1",
                "FAILED push.feature:9 A goal is quick: Then it is quick: it took <9> ms",
                "see target/xtask/features.html",
            ]
        );
    }

    #[test]
    fn an_unreadable_feature_is_named() {
        let run = Run { errors: vec!["push.feature: no Feature".to_owned()], ..mixed() };
        assert!(summary(&run, Path::new(PAGE)).contains(&"unreadable: push.feature: no Feature".to_owned()));
    }
}
