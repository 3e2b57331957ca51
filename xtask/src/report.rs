//! Runs the steps in order, some side by side, and reports the results.
//!
//! After a failed step the later ones still run. The last line is always `N passed, N failed, N skipped`. A step that runs
//! tests counts each test; any other step counts as one.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::command::{start_log, stopwatch};
use crate::workshop::Workshop;

#[derive(Args, Default)]
pub(crate) struct TestArguments {
    /// Run only this step (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub(crate) only: Vec<String>,
    /// Leave out this step (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub(crate) skip: Vec<String>,
    /// Also run the steps that otherwise run only by name.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the steps and stop.
    #[arg(long)]
    pub(crate) list: bool,
}

/// One row of the table of steps.
pub(crate) struct Step {
    /// The name for `--only` and `--skip`.
    pub(crate) name: &'static str,
    /// What it proves, in a few words.
    pub(crate) proves: &'static str,
    /// Whether it runs only with `--all` or by name.
    pub(crate) on_request: bool,
    /// Whether it runs side by side with neighbours that say so too.
    pub(crate) together: bool,
    pub(crate) run: fn(&Workshop) -> Result<Tally, Failure>,
}

/// The result of a step that passed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Parts that were left out because something is missing, each with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Why a step did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something is wrong. `passed` and `failed` count tests; both are 0 if none were counted.
    Failed { error: anyhow::Error, passed: usize, failed: usize },
    /// A tool that the step needs is missing.
    Missing(String),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed { error, passed: 0, failed: 0 }
    }
}

/// A step's line in the table.
struct Row {
    step: &'static str,
    result: String,
    took: Option<Duration>,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// Prints the steps.
pub(crate) fn list(steps: &[Step]) {
    for Step { name, proves, on_request, .. } in steps {
        println!("{name:<12} {proves}{}", if *on_request { " (only with --all or by name)" } else { "" });
    }
}

/// Runs the steps that `arguments` select, and prints the table and the sums.
pub(crate) fn run_all(workshop: &Workshop, steps: &[Step], arguments: &TestArguments) -> ExitCode {
    let named = |step: &&Step| arguments.only.is_empty() || arguments.only.iter().any(|name| name == step.name);
    let steps: Vec<&Step> = steps.iter().filter(named).collect();
    let run = |step: &&Step| run(workshop, step, arguments);
    let rows: Vec<Row> = steps
        .chunk_by(|one, next| one.together && next.together)
        .flat_map(|steps| match steps {
            [step] => vec![run(step)],
            steps => thread::scope(|scope| {
                let runs: Vec<_> = steps.iter().map(|step| scope.spawn(move || run(step))).collect();
                runs.into_iter().map(|run| run.join().expect("a step returns its failure")).collect()
            }),
        })
        .collect();
    println!("\n{:<12} {:>8}  result", "step", "seconds");
    for Row { step, result, took, .. } in &rows {
        let took = took.map_or("-".to_owned(), |took| format!("{:.1}", took.as_secs_f64()));
        println!("{step:<12} {took:>8}  {result}");
    }
    let sum = rows.iter().fold(Counts::default(), |sum, Row { counts, .. }| Counts {
        passed: sum.passed + counts.passed,
        failed: sum.failed + counts.failed,
        skipped: sum.skipped + counts.skipped,
    });
    println!("\n{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(workshop: &Workshop, step: &Step, arguments: &TestArguments) -> Row {
    if let Some(why_not) = left_out(step, arguments) {
        return Row { step: step.name, result: why_not.to_owned(), took: None, counts: Counts::default() };
    }
    println!("==> {}: {}", step.name, step.proves);
    let watch = stopwatch();
    let ended = start_log(workshop, step.name).map_err(Failure::from).and_then(|()| (step.run)(workshop));
    let (result, counts) = judge(ended, workshop.strict);
    println!("<== {}: {result}", step.name);
    if counts.failed > 0 {
        println!("    to repeat this step: cargo xtask {}", step.name);
    }
    Row { step: step.name, result, took: Some(watch.elapsed()), counts }
}

/// Why a step that `--only` admits does not run; `None` if it runs.
fn left_out(step: &Step, arguments: &TestArguments) -> Option<&'static str> {
    if arguments.skip.iter().any(|name| name == step.name) {
        Some("left out by --skip")
    } else if step.on_request && arguments.only.is_empty() && !arguments.all {
        Some("not run by default (--all runs it)")
    } else {
        None
    }
}

/// The result line and the counts of a step. A missing tool fails a strict run, because otherwise nobody would notice.
fn judge(end: Result<Tally, Failure>, strict: bool) -> (String, Counts) {
    match end {
        Ok(Tally { passed, skipped }) => {
            let missing = skipped.len();
            let passed = if passed == 0 && missing == 0 { 1 } else { passed };
            let without = if missing == 0 { String::new() } else { format!(", without: {}", skipped.join("; ")) };
            if strict && missing > 0 {
                return (format!("FAILED{without}"), Counts { passed, failed: missing, skipped: 0 });
            }
            (format!("passed ({passed}){without}"), Counts { passed, failed: 0, skipped: missing })
        }
        Err(Failure::Missing(what)) if !strict => {
            (format!("skipped: {what}"), Counts { skipped: 1, ..Counts::default() })
        }
        Err(Failure::Missing(what)) => (format!("FAILED: {what}"), Counts { failed: 1, ..Counts::default() }),
        Err(Failure::Failed { error, passed, failed }) => {
            (format!("FAILED: {error:#}"), Counts { passed, failed: failed.max(1), skipped: 0 })
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::{Counts, Failure, Step, Tally, TestArguments, Workshop, judge, left_out};

    fn counts(end: Result<Tally, Failure>, strict: bool) -> (usize, usize, usize) {
        let (_, Counts { passed, failed, skipped }) = judge(end, strict);
        (passed, failed, skipped)
    }

    #[test]
    fn a_step_without_tests_counts_as_one() {
        assert_eq!(counts(Ok(Tally::default()), true), (1, 0, 0));
        assert_eq!(counts(Ok(Tally { passed: 7, skipped: Vec::new() }), true), (7, 0, 0));
    }

    #[test]
    fn a_missing_tool_is_skipped_locally_and_fails_in_ci() {
        let part = || Ok(Tally { passed: 7, skipped: vec!["msgfmt".to_owned()] });
        assert_eq!((counts(part(), false), counts(part(), true)), ((7, 0, 1), (7, 1, 0)));
        let all = || Err(Failure::Missing("node".to_owned()));
        assert_eq!((counts(all(), false), counts(all(), true)), ((0, 0, 1), (0, 1, 0)));
    }

    #[test]
    fn a_failure_counts_as_at_least_one() {
        assert_eq!(counts(Err(anyhow!("no compiler").into()), false), (0, 1, 0));
        let failure = Failure::Failed { error: anyhow!("tests"), passed: 40, failed: 2 };
        assert_eq!(counts(Err(failure), false), (40, 2, 0));
    }

    #[test]
    fn steps_on_request_run_with_all_or_by_name() {
        let step = |name, on_request| {
            let run = |_: &Workshop| Ok(Tally::default());
            Step { name, proves: "", on_request, together: false, run }
        };
        let (usual, rare) = (step("usual", false), step("rare", true));
        let runs = |step: &Step, only: &[&str], skip: &[&str], all| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            left_out(step, &TestArguments { only: owned(only), skip: owned(skip), all, list: false }).is_none()
        };
        assert!(runs(&usual, &[], &[], false) && !runs(&rare, &[], &[], false));
        assert!(runs(&usual, &[], &[], true) && runs(&rare, &[], &[], true));
        assert!(runs(&rare, &["rare"], &[], false));
        assert!(!runs(&usual, &[], &["usual"], true));
    }
}
