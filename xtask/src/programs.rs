//! The step `test`: all tests of `cargo test`.
//!
//! Cargo would run the test programs one after the other. They mostly wait, so here [`AT_ONCE`] of them run side by side, the
//! slow ones (integration tests) first. Each has its own log, `target/xtask/test-CRATE-NAME.log`.

use anyhow::{Result, anyhow};

use crate::command::{run, start_log};
use crate::compile::{self, Built, Program, linting_cargo};
use crate::step::{Failure, Tally};
use crate::tools::{TEST_TOOLS, cargo_result, counted, debian_tool, side_by_side};
use crate::workshop::{Scope, Workshop};

const STEP: &str = "test";
/// The step of the examples in the documentation.
const EXAMPLES: &str = "examples";

/// Test programs that run at a time. Each runs as many tests at a time as there are cores.
const AT_ONCE: usize = 3;

/// The variable that seeds property tests. By default each run draws the same cases, so that no change fails because of a
/// bug in code that it did not touch. Set the variable for other cases; a plain `cargo test` draws new cases each time.
pub(crate) const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// Builds the test programs. If one of [`TEST_TOOLS`] is missing, those of its crate are left out; [`test()`] reports that.
pub(crate) fn build(workshop: &Workshop) -> Result<Built, Failure> {
    let mut words = workshop.scope.words();
    words.extend(missing(workshop).iter().flat_map(|(_, _, of)| ["--exclude", of]));
    Ok(compile::tests(workshop, STEP, &words)?)
}

/// The tools that are missing and cannot be installed.
fn missing(workshop: &Workshop) -> Vec<(&'static str, &'static str, &'static str)> {
    let is_missing = |program, package| workshop.scope == Scope::All && !debian_tool(workshop, STEP, program, package);
    TEST_TOOLS.into_iter().filter(|(program, package, _)| is_missing(program, package)).collect()
}

/// Runs the test programs.
pub(crate) fn test(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    let seed = seed();
    let skipped = missing(workshop).into_iter();
    let skipped = skipped.map(|(program, package, of)| format!("{of}, it needs {program}: apt-get install {package}"));
    let programs: Vec<&Program> = built.programs.iter().collect();
    let ends = side_by_side(AT_ONCE, programs, |program| run_program(workshop, program, &seed));
    Ok(Tally { skipped: skipped.collect(), ..together(ends)? })
}

/// Runs the examples in the documentation.
pub(crate) fn examples(workshop: &Workshop) -> Result<Tally, Failure> {
    counted(workshop, EXAMPLES, linting_cargo(workshop, &["test", "--doc", "--workspace"]), cargo_result)
}

/// What the property tests draw from, as this run prints it.
pub(crate) fn seed() -> String {
    let seed = std::env::var(PROPERTY_SEED).unwrap_or_else(|_| "1".to_owned());
    println!("    {PROPERTY_SEED}={seed}");
    seed
}

/// All ends as one.
fn together(ends: Vec<Result<Tally, Failure>>) -> Result<Tally, Failure> {
    let (mut passed, mut failed, mut errors) = (0, 0, Vec::new());
    for end in ends {
        match end {
            Ok(more) => passed += more.passed,
            Err(Failure::Failed { error, passed: more_passed, failed: more_failed }) => {
                passed += more_passed;
                failed += more_failed.max(1);
                errors.push(format!("{error:#}"));
            }
            Err(missing @ Failure::Missing(_)) => return Err(missing),
        }
    }
    if errors.is_empty() {
        return Ok(Tally { passed, skipped: Vec::new() });
    }
    Err(Failure::Failed { error: anyhow!("{}", errors.join("\n    ")), passed, failed })
}

fn run_program(workshop: &Workshop, program: &Program, seed: &str) -> Result<Tally, Failure> {
    let log = format!("{STEP}-{}", program.name);
    start_log(workshop, &log)?;
    let mut command = program.command();
    command.env(PROPERTY_SEED, seed);
    let mut counts = (0, 0);
    let ended = run(workshop, &log, command, |line| counts = cargo_result(line).unwrap_or(counts));
    match ended {
        Ok(()) => Ok(Tally { passed: counts.0, skipped: Vec::new() }),
        Err(error) => Err(Failure::Failed { error, passed: counts.0, failed: counts.1 }),
    }
}
