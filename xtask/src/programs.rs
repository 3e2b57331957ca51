//! The step `test`: all tests of `cargo test`.
//!
//! Cargo builds the test programs and would run them one after the other. They mostly wait, so here [`AT_ONCE`] of them run
//! side by side, the slow ones (integration tests) first. Each has its own log, `target/xtask/test-CRATE-NAME.log`. After
//! that, cargo runs the examples in the documentation.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde::Deserialize;

use crate::command::{cargo, run, start_log};
use crate::report::{Failure, Tally};
use crate::tools::{cargo_result, counted, debian_tool, side_by_side};
use crate::workshop::{Scope, Workshop};

const STEP: &str = "test";

/// Test programs that run at a time. Each runs as many tests at a time as there are cores.
const AT_ONCE: usize = 3;

/// Programs that tests use: the program, its Debian package, and the crate whose tests need it.
const TOOLS: [(&str, &str, &str); 2] =
    [("msgfmt", "gettext", "tidings-gettext"), ("redis-server", "redis-server", "tidings-pool")];

/// The variable that seeds property tests. By default each run draws the same cases, so that no change fails because of a
/// bug in code that it did not touch. Set the variable for other cases; a plain `cargo test` draws new cases each time.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// Runs all tests. If one of [`TOOLS`] is missing, the tests of its crate are left out and reported.
pub(crate) fn test(workshop: &Workshop) -> Result<Tally, Failure> {
    let (mut words, mut skipped) = (workshop.scope.words(), Vec::new());
    for (program, package, of) in TOOLS {
        if workshop.scope == Scope::All && !debian_tool(workshop, STEP, program, package) {
            words.extend(["--exclude", of]);
            skipped.push(format!("{of}, it needs {program}: apt-get install {package}"));
        }
    }
    let seed = std::env::var(PROPERTY_SEED).unwrap_or_else(|_| "1".to_owned());
    println!("    {PROPERTY_SEED}={seed}");
    let mut tally = Tally { passed: 0, skipped };
    let (mut failed, mut errors) = (0, Vec::new());
    let ends = side_by_side(AT_ONCE, programs(workshop, &words)?, |program| program.run(workshop, &seed));
    let examples = (workshop.scope != Scope::Units).then(|| examples(workshop, &words));
    for end in ends.into_iter().chain(examples) {
        match end {
            Ok(more) => tally.passed += more.passed,
            Err(Failure::Failed { error, passed: more_passed, failed: more_failed }) => {
                tally.passed += more_passed;
                failed += more_failed.max(1);
                errors.push(format!("{error:#}"));
            }
            Err(missing @ Failure::Missing(_)) => return Err(missing),
        }
    }
    if errors.is_empty() {
        return Ok(tally);
    }
    Err(Failure::Failed { error: anyhow!("{}", errors.join("\n    ")), passed: tally.passed, failed })
}

/// Runs the examples in the documentation.
fn examples(workshop: &Workshop, words: &[&str]) -> Result<Tally, Failure> {
    let mut command = cargo(workshop, &["test", "--doc"]);
    command.args(words);
    counted(workshop, STEP, command, cargo_result)
}

/// A test program.
#[derive(Debug, PartialEq)]
struct Program {
    executable: PathBuf,
    /// The folder of its crate, in which tests run.
    folder: PathBuf,
    /// The name of its log: `gateway-it`, or `gateway` for the unit tests of a crate.
    name: String,
    is_integration: bool,
}

impl Program {
    fn run(&self, workshop: &Workshop, seed: &str) -> Result<Tally, Failure> {
        let log = format!("{STEP}-{}", self.name);
        start_log(workshop, &log)?;
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).env(PROPERTY_SEED, seed);
        let mut counts = (0, 0);
        let ended = run(workshop, &log, command, |line| counts = cargo_result(line).unwrap_or(counts));
        match ended {
            Ok(()) => Ok(Tally { passed: counts.0, skipped: Vec::new() }),
            Err(error) => Err(Failure::Failed { error, passed: counts.0, failed: counts.1 }),
        }
    }
}

/// Builds the test programs. The slow ones come first.
fn programs(workshop: &Workshop, words: &[&str]) -> Result<Vec<Program>> {
    let build = |more: &[&str]| {
        let mut command = cargo(workshop, &["test", "--no-run"]);
        if workshop.scope == Scope::Units {
            command.args(["--lib", "--bins"]);
        }
        command.args(words).args(more);
        command
    };
    run(workshop, STEP, build(&[]), |_| ())?;
    let told = build(&["--message-format", "json", "--quiet"]).output().context("cannot start cargo")?;
    let mut programs: Vec<Program> = String::from_utf8_lossy(&told.stdout).lines().filter_map(program).collect();
    ensure!(!programs.is_empty(), "cargo named no test program");
    programs.sort_by_key(|program| !program.is_integration);
    Ok(programs)
}

/// A line of cargo about something that it has built.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    manifest_path: PathBuf,
    profile: Profile,
    target: Target,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// Reads a test program from a line of cargo; `None` if the line is about something else.
fn program(line: &str) -> Option<Program> {
    let Artifact { executable, manifest_path, profile, target } = serde_json::from_str(line).ok()?;
    let (executable, folder) = (executable.filter(|_| profile.test)?, manifest_path.parent()?);
    let of = folder.file_name().map(Path::new)?.display();
    let is_integration = target.kind.iter().any(|kind| kind == "test");
    let name = if is_integration { format!("{of}-{}", target.name) } else { of.to_string() };
    Some(Program { executable, folder: folder.to_owned(), name, is_integration })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Program, program};

    #[test]
    fn test_programs_are_read_from_cargo() {
        let line = |test: bool, kind: &str| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/t/crates/store/Cargo.toml", "executable": "/t/target/it-1",
                "profile": {"test": test}, "target": {"name": "it", "kind": [kind]},
            })
            .to_string()
        };
        let expected = |name: &str, is_integration| Program {
            executable: "/t/target/it-1".into(),
            folder: "/t/crates/store".into(),
            name: name.to_owned(),
            is_integration,
        };
        assert_eq!(program(&line(true, "test")), Some(expected("store-it", true)));
        assert_eq!(program(&line(true, "lib")), Some(expected("store", false)));
        assert_eq!((program(&line(false, "bin")), program(r#"{"reason":"build-finished"}"#)), (None, None));
    }
}
