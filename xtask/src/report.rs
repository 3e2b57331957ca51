//! Running the steps in order, some side by side, and telling what came of them.
//!
//! A failed step does not stop the later ones. The last line is always `N passed, N failed, N skipped`: a step that runs
//! tests counts them one by one, any other step counts as one.

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::command::{start_log, stopwatch};
use crate::workshop::Workshop;

#[derive(Args, Default)]
pub(crate) struct TestArguments {
    /// Run only this step (may be given several times).
    #[arg(long, value_name = "STEP")]
    pub(crate) only: Vec<String>,
    /// Leave this step out (may be given several times).
    #[arg(long, value_name = "STEP")]
    pub(crate) skip: Vec<String>,
    /// Run the steps too that must be asked for.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the steps and stop.
    #[arg(long)]
    pub(crate) list: bool,
}

/// One row of the table of steps.
pub(crate) struct Step {
    /// What `--only` and `--skip` call it.
    pub(crate) name: &'static str,
    /// What it proves, in a few words.
    pub(crate) proves: &'static str,
    /// Whether it runs only with `--all` or when named.
    pub(crate) on_request: bool,
    /// Whether it runs side by side with its neighbours that say so too.
    pub(crate) together: bool,
    /// Does it.
    pub(crate) run: fn(&Workshop) -> Result<Tally, Failure>,
}

/// What a step that passed has counted.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Parts left out because something is missing here, each with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Why a step did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something is wrong; so many tests passed and failed (both 0 where none were counted).
    Failed { error: anyhow::Error, passed: usize, failed: usize },
    /// A tool that the step needs is not here.
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

/// Runs the steps that `arguments` ask for and prints the table and the sums.
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
        println!("    this step alone: cargo xtask {}", step.name);
    }
    Row { step: step.name, result, took: Some(watch.elapsed()), counts }
}

/// Why a step that was not left out by `--only` is not run; none when it is.
fn left_out(step: &Step, arguments: &TestArguments) -> Option<&'static str> {
    if arguments.skip.iter().any(|name| name == step.name) {
        Some("left out by --skip")
    } else if step.on_request && arguments.only.is_empty() && !arguments.all {
        Some("not asked for (--all runs it)")
    } else {
        None
    }
}

/// The line and the counts of a step's end. What is missing fails a strict run: there it would hide a hole.
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
    fn what_is_missing_is_skipped_by_hand_and_fails_in_ci() {
        let part = || Ok(Tally { passed: 7, skipped: vec!["msgfmt".to_owned()] });
        assert_eq!((counts(part(), false), counts(part(), true)), ((7, 0, 1), (7, 1, 0)));
        let all = || Err(Failure::Missing("node".to_owned()));
        assert_eq!((counts(all(), false), counts(all(), true)), ((0, 0, 1), (0, 1, 0)));
    }

    #[test]
    fn a_failure_never_counts_as_none() {
        assert_eq!(counts(Err(anyhow!("no compiler").into()), false), (0, 1, 0));
        let failure = Failure::Failed { error: anyhow!("tests"), passed: 40, failed: 2 };
        assert_eq!(counts(Err(failure), false), (40, 2, 0));
    }

    #[test]
    fn which_steps_run() {
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
