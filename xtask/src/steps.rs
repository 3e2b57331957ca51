//! The steps: what proves the project, cheapest first.

use std::process::Command;

use anyhow::anyhow;

use crate::command::{cargo, run};
use crate::report::{Failure, Step, Tally};
use crate::tools::{BINARY, build_for, counted, debian_tool};
use crate::workshop::{Scope, Workshop};
use crate::{conformance, features, fuzz, openapi, tidy};

/// All steps, in the order they run.
pub(crate) const STEPS: &[Step] = &[
    step("fmt", "the code is formatted", fmt),
    step("tidy", "the repository's own rules hold", tidy_up),
    step("clippy", "no lint complains", clippy),
    step("test", "unit, property and integration tests", test),
    step("features", "what is promised in plain words holds on the real program", features::features),
    step("doc", "the documentation builds without a warning", doc),
    step("build", "the release binary builds", build),
    step("demo", "an event reaches a connected client and a simulated phone", demo),
    step("conformance", "strangers' clients and servers find nothing wrong", conformance::conformance),
    step("openapi", "the API is as it describes itself, say programs that are not ours", openapi::openapi),
    step("fuzz", "no input breaks a parser of remote bytes or the session", fuzz::fuzz),
    step("crash", "nothing acknowledged is lost when the server is killed", crash),
    step("abuse", "what callers and clients do wrong costs nobody else", abuse),
    Step {
        name: "fuzz-long",
        proves: "nor does one of ten times as many inputs",
        on_request: true,
        run: fuzz::fuzz_long,
    },
    Step { name: "miri", proves: "the buffers do nothing undefined, says an interpreter", on_request: true, run: miri },
    Step { name: "deny", proves: "licences, bans and sources of dependencies", on_request: true, run: deny },
];

const fn step(name: &'static str, proves: &'static str, run: fn(&Workshop) -> Result<Tally, Failure>) -> Step {
    Step { name, proves, on_request: false, run }
}

type Outcome = Result<Tally, Failure>;

/// Pinned, so that a new release of the tool cannot fail an old commit.
const CARGO_DENY_VERSION: &str = "0.20.2";

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

/// With the peers of the benchmarks, which nothing else builds; and the program as a package for production has it.
fn clippy(workshop: &Workshop) -> Outcome {
    if let Scope::Package(package) = &workshop.scope {
        let words = ["clippy", "-p", package, "--all-targets", "--", "-D", "warnings"];
        return plain(workshop, "clippy", cargo(workshop, &words));
    }
    let words = ["clippy", "-p", "tidings", "--bins", "--no-default-features", "--", "-D", "warnings"];
    plain(workshop, "clippy", cargo(workshop, &words))?;
    let words = ["clippy", "--workspace", "--all-targets", "--features", "tidings/bench-peers", "--", "-D", "warnings"];
    plain(workshop, "clippy", cargo(workshop, &words))
}

/// Programs that tests compare with or talk to: the program, its Debian package, and whose tests need it.
const TEST_TOOLS: [(&str, &str, &str); 2] =
    [("msgfmt", "gettext", "tidings-gettext"), ("redis-server", "redis-server", "tidings-pool")];

/// The variable that seeds property tests. Each run of the tests draws the same cases, so that no landing is stopped by a bug it
/// has not touched; whoever wants others sets it, and a plain `cargo test` draws new ones each time.
const PROPERTY_SEED: &str = "PROPTEST_RNG_SEED";

/// Everything `cargo test` knows. Without one of [`TEST_TOOLS`] its crate's tests are left out and reported.
fn test(workshop: &Workshop) -> Outcome {
    let mut words = match &workshop.scope {
        Scope::All => vec!["test", "--workspace", "--no-fail-fast"],
        Scope::Units => vec!["test", "--workspace", "--no-fail-fast", "--lib", "--bins"],
        Scope::Package(package) => vec!["test", "-p", package],
    };
    let mut skipped = Vec::new();
    for (program, package, of) in TEST_TOOLS {
        if workshop.scope == Scope::All && !debian_tool(workshop, "test", program, package) {
            words.extend(["--exclude", of]);
            skipped.push(format!("{of}, it needs {program}: apt-get install {package}"));
        }
    }
    let mut command = cargo(workshop, &words);
    let seed = std::env::var(PROPERTY_SEED).unwrap_or_else(|_| "1".to_owned());
    println!("    {PROPERTY_SEED}={seed}");
    command.env(PROPERTY_SEED, seed);
    let tally = counted(workshop, "test", command, cargo_result)?;
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
    let mut command = Command::new(workshop.built(BINARY));
    command.args(["demo", "--once", "--json"]).current_dir(&workshop.root);
    plain(workshop, "demo", command)
}

/// The crash campaign is the integration test `crates/tidings/tests/crash.rs`. Its target says `test = false` in
/// Cargo.toml, so that a plain `cargo test` does not run it too; how many rounds it does is its own matter.
fn crash(workshop: &Workshop) -> Outcome {
    campaign(workshop, "crash")
}

/// The abuse campaign, `crates/tidings/tests/abuse.rs`, likewise.
fn abuse(workshop: &Workshop) -> Outcome {
    campaign(workshop, "abuse")
}

/// An integration test of the binary's crate that judges the release binary. The test itself is built as the step `test`
/// builds (all packages, development profile), so its dependencies are there already, and the features that only tests
/// need stay out of what is judged.
fn campaign(workshop: &Workshop, name: &str) -> Outcome {
    build_for(workshop, name)?;
    let mut command = cargo(workshop, &["test", "--workspace", "--test", name, "--", "--nocapture"]);
    command.env("TIDINGS_BIN", workshop.built(BINARY));
    counted(workshop, name, command, cargo_result)
}

/// Takes a nightly toolchain with Miri (`rustup +nightly component add miri`), which a fresh machine does not have, and minutes.
fn miri(workshop: &Workshop) -> Outcome {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "miri", "test", "-p", "tidings-buffer", "--lib", "--test", "lake_threads"]);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").current_dir(&workshop.root);
    counted(workshop, "miri", command, cargo_result)
}

/// Advisories are not checked: their database is not in any package registry.
fn deny(workshop: &Workshop) -> Outcome {
    let (tools, tool) = (workshop.built("tools"), workshop.built("tools/bin/cargo-deny"));
    if !tool.exists() {
        let words = ["install", "cargo-deny", "--locked", "--debug", "--version", CARGO_DENY_VERSION, "--root"];
        let mut install = cargo(workshop, &words);
        install.arg(tools);
        run(workshop, "deny", install, |_| ())?;
    }
    let mut command = Command::new(tool);
    command.args(["--workspace", "check", "bans", "licenses", "sources"]).current_dir(&workshop.root);
    run(workshop, "deny", command, |_| ())?;
    Ok(Tally::default())
}

/// A command that passes or fails as a whole.
fn plain(workshop: &Workshop, name: &str, command: Command) -> Outcome {
    run(workshop, name, command, |_| ())?;
    Ok(Tally::default())
}

/// `test result: ok. 23 passed; 0 failed; …`
fn cargo_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("test result: ")?;
    let before = |word: &str| counts[..counts.find(word)?].split_whitespace().next_back()?.parse().ok();
    Some((before(" passed;")?, before(" failed;")?))
}

#[cfg(test)]
mod tests {
    use super::{STEPS, cargo_result};

    #[test]
    fn the_test_runner_is_understood() {
        let line = "test result: FAILED. 23 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.16s";
        assert_eq!(cargo_result(line), Some((23, 2)));
        assert_eq!(cargo_result("test result_reads ... ok"), None);
    }

    #[test]
    fn no_two_steps_share_a_name() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
