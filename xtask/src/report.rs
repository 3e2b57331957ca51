//! Runs the steps and reports the results.
//!
//! A step has two halves: `build` compiles or installs what it needs, `run` proves something. Builds go one after the other, in
//! the order of the table, since cargo uses all cores. Runs mostly wait, so up to [`AT_ONCE`] of them go on beside the builds
//! of later steps. A step that is [`alone`](Step::alone) runs at the end, with the machine for itself.
//!
//! After a failed step the others still run. The last line is always `N passed, N failed, N skipped`. A step that runs tests
//! counts each test; any other step counts as one. With `--busy` or `--times` all builds come first, then the runs in order.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::command::{start_log, stopwatch, today};
use crate::compile::Built;
use crate::load::Load;
use crate::record::{self, Records};
use crate::step::{Failure, Step, Tally};
use crate::workshop::Workshop;

/// Steps that run at the same time.
const AT_ONCE: usize = 2;

#[derive(Args, Default)]
pub(crate) struct TestArguments {
    /// Run only this step (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub(crate) only: Vec<String>,
    /// Leave out this step (may be repeated).
    #[arg(long, value_name = "STEP")]
    pub(crate) skip: Vec<String>,
    /// The long proof: also run the other steps, except those with a record of success for the same product code.
    #[arg(long)]
    pub(crate) all: bool,
    /// Keep so many threads busy beside the runs, as on a busy machine.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    pub(crate) busy: u16,
    /// Run each step so many times, without building again.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub(crate) times: u16,
    /// Print the steps and stop.
    #[arg(long)]
    pub(crate) list: bool,
}

/// A step's line in the table.
struct Row {
    step: &'static str,
    /// How long building and running took; none if the step was left out.
    took: Option<[Duration; 2]>,
    result: String,
    counts: Counts,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

/// A step after its first half.
struct Prepared<'a> {
    index: usize,
    step: &'a Step,
    built: Result<Built, Failure>,
    took: Duration,
}

/// Prints the steps.
pub(crate) fn list(steps: &[Step]) {
    for Step { name, proves, is_long, .. } in steps {
        println!("{name:<14} {proves}{}", if *is_long { " (only with --all or by name)" } else { "" });
    }
}

/// Runs the steps that `arguments` select, and prints the table and the sums.
pub(crate) fn run_all(workshop: &Workshop, steps: &[Step], arguments: &TestArguments) -> ExitCode {
    let watch = stopwatch();
    let records = record::read(&workshop.root).unwrap_or_default(); // The step `tidy` says what is wrong with it.
    let named = |step: &&Step| arguments.only.is_empty() || arguments.only.iter().any(|name| name == step.name);
    let (mut rows, mut chosen) = (Vec::new(), Vec::new());
    for step in steps.iter().filter(named) {
        match left_out(workshop, step, arguments, &records) {
            None => chosen.push(step),
            Some(why_not) => rows.push(Row { step: step.name, result: why_not, took: None, counts: Counts::default() }),
        }
    }
    let done = if arguments.busy > 0 || arguments.times > 1 {
        again_and_again(workshop, &chosen, arguments)
    } else {
        side_by_side(workshop, &chosen)
    };
    rows.splice(0..0, done);
    print_table(&rows);
    if !arguments.only.is_empty() {
        return sum(&rows);
    }
    let long: Vec<&Step> = steps.iter().filter(|step| step.is_long).collect();
    println!("\nthe long proof (cargo xtask test --all), as {} tells:", record::FILE);
    let records = record::read(&workshop.root).unwrap_or_default();
    record::ages(&workshop.root, &records, &long, today()).iter().for_each(|line| println!("  {line}"));
    let installing: Duration = rows.iter().filter(|row| row.step == INSTALL).filter_map(|row| Some(row.took?[0])).sum();
    let whole = watch.elapsed();
    println!(
        "\n{:.0} s, and {:.0} s for installing foreign programs",
        (whole - installing).as_secs_f64(),
        installing.as_secs_f64()
    );
    sum(&rows)
}

/// The step whose first half installs foreign programs; its time is told apart.
pub(crate) const INSTALL: &str = "install";

fn print_table(rows: &[Row]) {
    println!("\n{:<14} {:>8} {:>8}  result", "step", "build s", "run s");
    for Row { step, result, took, .. } in rows {
        let [build, run] =
            took.map_or(["-".to_owned(), "-".to_owned()], |took| took.map(|took| format!("{:.1}", took.as_secs_f64())));
        println!("{step:<14} {build:>8} {run:>8}  {result}");
    }
}

fn sum(rows: &[Row]) -> ExitCode {
    let sum = rows.iter().fold(Counts::default(), |sum, Row { counts, .. }| Counts {
        passed: sum.passed + counts.passed,
        failed: sum.failed + counts.failed,
        skipped: sum.skipped + counts.skipped,
    });
    println!("\n{} passed, {} failed, {} skipped", sum.passed, sum.failed, sum.skipped);
    if sum.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Builds in order, and runs beside that what may run beside it.
fn side_by_side(workshop: &Workshop, steps: &[&Step]) -> Vec<Row> {
    let (ready_tx, ready) = sync_channel(steps.len());
    let (ready, alone, rows) = (Mutex::new(ready), Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let next = || ready.lock().expect("no thread panics while it holds the lock").recv().ok();
    let keep =
        |index: usize, row: Row| rows.lock().expect("no thread panics while it holds the lock").push((index, row));
    thread::scope(|scope| {
        scope.spawn(move || {
            for (index, step) in steps.iter().enumerate() {
                ready_tx.send(prepare(workshop, index, step)).expect("the receiver lives longer");
            }
        });
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(prepared) = next() {
                    if prepared.step.alone {
                        alone.lock().expect("no thread panics while it holds the lock").push(prepared);
                    } else {
                        keep(prepared.index, finish(workshop, prepared));
                    }
                }
            });
        }
    });
    let mut alone = alone.into_inner().expect("no thread panicked while it held the lock");
    alone.sort_by_key(|prepared| prepared.index);
    alone.into_iter().for_each(|prepared| keep(prepared.index, finish(workshop, prepared)));
    let mut rows = rows.into_inner().expect("no thread panicked while it held the lock");
    rows.sort_by_key(|(index, _)| *index);
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Builds everything first, then runs each step so many times, beside the load.
fn again_and_again(workshop: &Workshop, steps: &[&Step], arguments: &TestArguments) -> Vec<Row> {
    let prepared: Vec<Prepared> =
        steps.iter().enumerate().map(|(index, step)| prepare(workshop, index, step)).collect();
    let _load = Load::start(arguments.busy.into());
    let rounds = (0..arguments.times).flat_map(|_| &prepared);
    rounds
        .map(|Prepared { step, built, took, .. }| {
            let started = stopwatch();
            let ended = match built {
                Ok(built) => (step.run)(workshop, built),
                Err(Failure::Missing(what)) => Err(Failure::Missing(what.clone())),
                Err(Failure::Failed { error, .. }) => Err(anyhow::anyhow!("{error:#}").into()),
            };
            row(workshop, step, ended, [*took, started.elapsed()])
        })
        .collect()
}

/// The first half of a step.
fn prepare<'a>(workshop: &Workshop, index: usize, step: &'a Step) -> Prepared<'a> {
    println!("==> {}: {}", step.name, step.proves);
    let watch = stopwatch();
    let built = start_log(workshop, step.name).map_err(Failure::from).and_then(|()| (step.build)(workshop));
    Prepared { index, step, built, took: watch.elapsed() }
}

/// The second half of a step, and its record.
fn finish(workshop: &Workshop, Prepared { step, built, took, .. }: Prepared) -> Row {
    let watch = stopwatch();
    let ended = built.and_then(|built| (step.run)(workshop, &built));
    let took = [took, watch.elapsed()];
    let row = row(workshop, step, ended, took);
    if step.is_long {
        let ended = (took.iter().sum::<Duration>().as_secs(), row.counts.failed == 0, row.result.as_str());
        if let Err(why_not) = record::keep(&workshop.root, step, ended, today()) {
            println!("    {}: not recorded in {}: {why_not}", step.name, record::FILE);
        }
    }
    row
}

fn row(workshop: &Workshop, step: &Step, ended: Result<Tally, Failure>, took: [Duration; 2]) -> Row {
    let (result, counts) = judge(ended, workshop.strict);
    println!("<== {}: {result} ({:.0} s)", step.name, took[1].as_secs_f64());
    if counts.failed > 0 {
        println!("    to repeat this step: cargo xtask {}", step.name);
    }
    Row { step: step.name, result, took: Some(took), counts }
}

/// Why a step that `--only` admits does not run; `None` if it runs.
fn left_out(workshop: &Workshop, step: &Step, arguments: &TestArguments, records: &Records) -> Option<String> {
    if arguments.skip.iter().any(|name| name == step.name) {
        Some("left out by --skip".to_owned())
    } else if !step.is_long || !arguments.only.is_empty() {
        None
    } else if !arguments.all {
        Some("not run by default (--all runs it)".to_owned())
    } else {
        let record = record::success(&workshop.root, records, step)?;
        Some(format!("{} on {}, and the product code is the same", record.result, record.date))
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
    use std::path::PathBuf;
    use std::sync::Mutex;

    use anyhow::anyhow;

    use super::{Built, Counts, Failure, Records, Step, Tally, TestArguments, Workshop, judge, left_out, side_by_side};
    use crate::step::tests::{long_step, step};
    use crate::workshop::{FeaturesArguments, FuzzArguments, Scope};

    fn workshop(root: PathBuf) -> Workshop {
        let (fuzz, features) = (FuzzArguments::default(), FeaturesArguments::default());
        Workshop { root, target: "target".into(), strict: true, fuzz, features, scope: Scope::All }
    }

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
    fn long_steps_run_with_all_or_by_name() {
        let (usual, long) = (step("usual"), long_step("long", &[]));
        let folder = tempfile::tempdir().unwrap();
        let runs = |step: &Step, only: &[&str], skip: &[&str], all| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            let arguments = TestArguments { only: owned(only), skip: owned(skip), all, ..TestArguments::default() };
            left_out(&workshop(folder.path().to_owned()), step, &arguments, &Records::new()).is_none()
        };
        assert!(runs(&usual, &[], &[], false) && !runs(&long, &[], &[], false));
        assert!(runs(&usual, &[], &[], true) && runs(&long, &[], &[], true));
        assert!(runs(&long, &["long"], &[], false));
        assert!(!runs(&usual, &[], &["usual"], true));
    }

    /// What the steps of the test below did, in order.
    static DONE: Mutex<Vec<&str>> = Mutex::new(Vec::new());

    fn note(what: &'static str) {
        DONE.lock().unwrap().push(what);
    }

    #[test]
    fn builds_come_in_order_and_what_is_alone_runs_last() {
        let alone: Step = Step {
            alone: true,
            build: |_| {
                note("build alone");
                Ok(Built::default())
            },
            run: |_, _| {
                note("run alone");
                Ok(Tally::default())
            },
            ..step("alone")
        };
        let beside = Step {
            build: |_| {
                note("build beside");
                Ok(Built::default())
            },
            run: |_, _| {
                note("run beside");
                Ok(Tally { passed: 3, skipped: Vec::new() })
            },
            ..step("beside")
        };
        let broken = Step { build: |_| Err(anyhow!("no compiler").into()), ..step("broken") };
        let folder = tempfile::tempdir().unwrap();
        let rows = side_by_side(&workshop(folder.path().to_owned()), &[&alone, &beside, &broken]);
        assert_eq!(*DONE.lock().unwrap(), ["build alone", "build beside", "run beside", "run alone"]);
        let told: Vec<_> = rows.iter().map(|row| (row.step, row.result.as_str())).collect();
        assert_eq!(told, [("alone", "passed (1)"), ("beside", "passed (3)"), ("broken", "FAILED: no compiler")]);
    }
}
