//! The steps: what proves the project, cheapest first.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Error, anyhow};

use crate::Workshop;
use crate::command::{cargo, is_there, run};
use crate::report::{Failure, Step, Tally};
use crate::tidy;

/// All steps, in the order they run.
pub(crate) const STEPS: &[Step] = &[
    step("fmt", "the code is formatted", fmt),
    step("tidy", "the repository's own rules hold", tidy_up),
    step("clippy", "no lint complains", clippy),
    step("test", "unit, property and integration tests", test),
    step("doc", "the documentation builds without a warning", doc),
    step("build", "the release binary builds", build),
    step("demo", "an event reaches a connected client and a simulated phone", demo),
    step("conformance", "the unmodified JavaScript SDK works", conformance),
    step("crash", "nothing acknowledged is lost when the server is killed", crash),
    Step { name: "deny", proves: "licences, bans and sources of dependencies", on_request: true, run: deny },
];

const fn step(name: &'static str, proves: &'static str, run: fn(&Workshop) -> Result<Tally, Failure>) -> Step {
    Step { name, proves, on_request: false, run }
}

type Outcome = Result<Tally, Failure>;

const BINARY: &str = "target/release/tidings";
/// Pinned, so that a new release of the tool cannot fail an old commit.
const CARGO_DENY_VERSION: &str = "0.20.2";
const NODE_MAJOR_MIN: u32 = 20;

fn fmt(workshop: &Workshop) -> Outcome {
    plain(workshop, "fmt", cargo(workshop, &["fmt", "--all", "--check"]))
}

fn tidy_up(workshop: &Workshop) -> Outcome {
    let complaints = tidy::check(&workshop.root)?;
    if complaints.is_empty() {
        return Ok(Tally::default());
    }
    complaints.iter().for_each(|complaint| println!("    | {complaint}"));
    Err(anyhow!("{} complaints", complaints.len()).into())
}

fn clippy(workshop: &Workshop) -> Outcome {
    plain(workshop, "clippy", cargo(workshop, &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Everything `cargo test` knows. Without GNU `msgfmt`, whose opinion tidings-gettext is compared with, that crate's
/// tests are left out and reported.
fn test(workshop: &Workshop) -> Outcome {
    let mut words = vec!["test", "--workspace", "--no-fail-fast"];
    let mut skipped = Vec::new();
    if !debian_tool(workshop, "test", "msgfmt", "gettext") {
        words.extend(["--exclude", "tidings-gettext"]);
        skipped.push("tidings-gettext, it needs msgfmt: apt-get install gettext".to_owned());
    }
    let tally = counted(workshop, "test", cargo(workshop, &words), cargo_result)?;
    Ok(Tally { skipped, ..tally })
}

fn doc(workshop: &Workshop) -> Outcome {
    let mut command = cargo(workshop, &["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    plain(workshop, "doc", command)
}

fn build(workshop: &Workshop) -> Outcome {
    build_for(workshop, "build").map_err(Failure::from)?;
    Ok(Tally::default())
}

fn demo(workshop: &Workshop) -> Outcome {
    build_for(workshop, "demo")?;
    let mut command = Command::new(workshop.root.join(BINARY));
    command.args(["demo", "--once", "--json"]).current_dir(&workshop.root);
    plain(workshop, "demo", command)
}

fn conformance(workshop: &Workshop) -> Outcome {
    need_node()?;
    build_for(workshop, "conformance")?;
    let folder = workshop.root.join("conformance/js");
    let mut install = Command::new("npm");
    install.arg("ci").current_dir(&folder);
    start_log(workshop, "conformance")?;
    run(workshop, "conformance", install, |_| ())?;
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-force-exit", "--test-reporter=spec"]).current_dir(&folder);
    tests.env("TIDINGS_BIN", workshop.root.join(BINARY));
    counted(workshop, "conformance", tests, node_result)
}

/// The crash campaign is the integration test `crates/tidings/tests/crash.rs`, run alone against the release build. Its
/// target says `test = false` in Cargo.toml, so that a plain `cargo test` does not run it too; how many rounds it does
/// is its own matter.
fn crash(workshop: &Workshop) -> Outcome {
    let words = ["test", "--release", "-p", "tidings", "--test", "crash", "--", "--nocapture"];
    counted(workshop, "crash", cargo(workshop, &words), cargo_result)
}

/// Advisories are not checked: their database is not in any package registry.
fn deny(workshop: &Workshop) -> Outcome {
    let tool = workshop.root.join("target/tools/bin/cargo-deny");
    start_log(workshop, "deny")?;
    if !tool.exists() {
        let words =
            ["install", "cargo-deny", "--locked", "--debug", "--version", CARGO_DENY_VERSION, "--root", "target/tools"];
        run(workshop, "deny", cargo(workshop, &words), |_| ())?;
    }
    let mut command = Command::new(tool);
    command.args(["--workspace", "check", "bans", "licenses", "sources"]).current_dir(&workshop.root);
    run(workshop, "deny", command, |_| ())?;
    Ok(Tally::default())
}

/// A command that passes or fails as a whole.
fn plain(workshop: &Workshop, name: &str, command: Command) -> Outcome {
    start_log(workshop, name)?;
    run(workshop, name, command, |_| ())?;
    Ok(Tally::default())
}

/// A command that runs tests and says in some lines how many passed and failed.
fn counted(workshop: &Workshop, name: &str, command: Command, read: fn(&str) -> Option<(usize, usize)>) -> Outcome {
    let (mut passed, mut failed) = (0, 0);
    let ended = run(workshop, name, command, |line| {
        let (more_passed, more_failed) = read(line).unwrap_or_default();
        passed += more_passed;
        failed += more_failed;
    });
    let ended = ended.and_then(|()| if passed == 0 { Err(anyhow!("no test was run")) } else { Ok(()) });
    match ended {
        Ok(()) => Ok(Tally { passed, skipped: Vec::new() }),
        Err(error) => Err(Failure::Failed { error, passed, failed }),
    }
}

/// `test result: ok. 23 passed; 0 failed; …`
fn cargo_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| counts[..counts.find(word)?].split_whitespace().next_back()?.parse().ok();
    Some((before(" passed;")?, before(" failed;")?))
}

/// `ℹ pass 12` and `ℹ fail 0`, or with `#` in front.
fn node_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?;
    let after = |word: &str| counts.strip_prefix(word)?.trim().parse().ok();
    after("pass ").map(|passed| (passed, 0)).or_else(|| after("fail ").map(|failed| (0, failed)))
}

/// The release binary, for the steps that use it; takes a second when it is there.
fn build_for(workshop: &Workshop, name: &str) -> Result<(), Error> {
    start_log(workshop, name)?;
    run(workshop, name, cargo(workshop, &["build", "--release", "-p", "tidings"]), |_| ())
}

fn need_node() -> Result<(), Failure> {
    let advice = format!("node {NODE_MAJOR_MIN} or newer with npm is needed");
    let version = Command::new("node").arg("--version").stderr(Stdio::null()).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    match node_major(&version) {
        Some(NODE_MAJOR_MIN..) if is_there("npm") => Ok(()),
        _ => Err(Failure::Missing(advice)),
    }
}

fn node_major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Whether `program` is there, installing its Debian package where we may.
fn debian_tool(workshop: &Workshop, step: &str, program: &str, package: &str) -> bool {
    if !is_there(program) && is_root() && is_there("apt-get") {
        for words in [&["update"][..], &["install", "--yes", "--no-install-recommends", package]] {
            let mut command = Command::new("apt-get");
            command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
            if run(workshop, step, command, |_| ()).is_err() {
                break; // Reported as missing by the caller.
            }
        }
    }
    is_there(program)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

/// A step's log begins empty.
fn start_log(workshop: &Workshop, name: &str) -> Result<(), Error> {
    let folder = workshop.root.join("target/xtask");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(format!("{name}.log")), "").context("cannot write the log")
}

#[cfg(test)]
mod tests {
    use super::{STEPS, cargo_result, node_major, node_result};

    #[test]
    fn test_runners_are_understood() {
        let line = "test result: FAILED. 23 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.16s";
        assert_eq!(cargo_result(line), Some((23, 2)));
        assert_eq!(cargo_result("test result_reads ... ok"), None);
        assert_eq!((node_result("ℹ pass 12"), node_result("# fail 3")), (Some((12, 0)), Some((0, 3))));
        assert_eq!((node_result("ℹ duration_ms 12"), node_result("pass 12")), (None, None));
    }

    #[test]
    fn node_tells_its_version() {
        assert_eq!((node_major("v20.20.2\n"), node_major("")), (Some(20), None));
    }

    #[test]
    fn no_two_steps_share_a_name() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
