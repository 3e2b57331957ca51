//! The steps that prove the project, in the order in which they are built: first those of the short proof, then those that only
//! the long one has. CONTRIBUTING says which test is where, and why.

use std::process::Command;

use anyhow::anyhow;

use crate::campaigns;
use crate::command::{cargo, run};
use crate::compile::{self, Binary, Built, clippy_driver};
use crate::report::INSTALL;
use crate::step::{Build, Failure, Run, Step, Tally};
use crate::tools::{cargo_result, counted};
use crate::workshop::Workshop;
use crate::{chain, conformance, features, fuzz, install, openapi, programs, properties, tidy};

/// All steps.
pub(crate) const STEPS: &[Step] = &[
    step(INSTALL, "the foreign programs that test ours are there", install::install, nothing_more),
    step("fmt", "the code is formatted", nothing_first, fmt),
    step("tidy", "the repository's own rules hold", nothing_first, tidy_up),
    // Before `lint`, so that the tests run while the campaigns are still compiled.
    step("test", "unit, property and integration tests", programs::build, programs::test),
    step("lint", "no lint complains of what ships, and of its tests", lint_build, lint),
    step("features", "what is promised in plain words holds on the real program", features::build, features::on_one),
    step("demo", "an event reaches a connected client and a simulated phone", demo_build, small_demo),
    step(
        "conformance",
        "clients and servers of others find nothing wrong",
        conformance::build,
        conformance::conformance,
    ),
    step("openapi", "programs of others find that the API matches its description", openapi::build, openapi::openapi),
    step(
        "cluster-smoke",
        "three servers lose nothing when the leader is killed",
        campaigns::smoke_build,
        campaigns::smoke,
    ),
    step(
        "soak-minute",
        "a minute in which everything comes and goes leaves nothing behind",
        campaigns::soak_minute_build,
        campaigns::soak_minute,
    ),
    step("fuzz", "no input breaks a parser of remote bytes, or the session", fuzz::build_short, fuzz::short),
    step("examples", "the examples in the documentation work", nothing_first, |workshop, _| {
        programs::examples(workshop)
    }),
    alone(step(
        "crash",
        "nothing acknowledged is lost when the server is killed",
        campaigns::crash_build,
        campaigns::crash,
    )),
    alone(step(
        "abuse",
        "quick attacks of callers and clients harm nobody else",
        campaigns::abuse_build,
        campaigns::abuse,
    )),
    // From here on: the long proof.
    long(step("release", "the release binary builds, and its demo works", release_build, demo), &[]),
    long(step("lint-all", "no lint complains of peers and other sets of features", lint_all, nothing_more), &[]),
    long(step("doc", "the documentation builds without a warning", doc, nothing_more), &[]),
    long(step("deny", "cargo-deny agrees on dependencies, their licences and sources", deny_build, deny), &[]),
    long(
        step("features-three", "the promises hold on three servers", features::build, features::on_three),
        &["tidings", "server", "cluster", "edge", "api", "hub", "store"],
    ),
    long(
        step(
            "conformance-long",
            "the long parts of all suites, and those of a cluster",
            conformance::build_long,
            conformance::long,
        ),
        &[],
    ),
    long(
        alone(step(
            "cluster",
            "several servers lose nothing when they and their brokers are killed, stopped and cut off",
            campaigns::cluster_build,
            campaigns::cluster,
        )),
        &["cluster", "server", "store", "hub", "edge", "sender"],
    ),
    long(
        alone(step(
            "crash-long",
            "the same with ten kills, and one event to very many devices",
            campaigns::crash_long_build,
            campaigns::crash_long,
        )),
        &["store", "sender", "gateway", "jobs", "push", "hub", "server"],
    ),
    long(
        alone(step(
            "abuse-all",
            "all attacks and mistakes of callers and clients harm nobody else",
            campaigns::abuse_all_build,
            campaigns::abuse_all,
        )),
        &["api", "edge", "hub", "http1", "protocol", "audience", "store", "server"],
    ),
    long(
        step(
            "slow",
            "clients behind a slow network lose nothing over restarts",
            campaigns::slow_build,
            campaigns::slow,
        ),
        &["edge", "hub", "protocol", "store", "server"],
    ),
    long(
        step("fuzz-long", "all fuzz targets, with forty times as many inputs", fuzz::build_long, fuzz::long),
        &["protocol", "http1", "feed", "gettext", "push", "audience", "store", "api", "pool", "stream", "types"],
    ),
    long(step("properties", "each property holds in many more cases", programs::build, properties::properties), &[]),
    long(
        alone(step(
            "soak",
            "an hour in which everything comes and goes leaves nothing behind",
            campaigns::soak_build,
            campaigns::soak,
        )),
        &["edge", "hub", "server", "protocol", "store", "sender", "gateway", "api", "intake"],
    ),
    long(
        step(
            "chain",
            "metrics arrive through Telegraf in InfluxDB, and Kapacitor's alerts fire and end",
            chain::build,
            chain::chain,
        ),
        &["telemetry", "server", "pool"],
    ),
    long(step("miri", "an interpreter finds no undefined behaviour in the buffers", nothing_first, miri), &["buffer"]),
];

const fn step(name: &'static str, proves: &'static str, build: Build, run: Run) -> Step {
    Step { name, proves, is_long: false, subject: &[], alone: false, build, run }
}

/// Needs the machine for itself: it measures, or puts all its load on the machine.
const fn alone(step: Step) -> Step {
    Step { alone: true, ..step }
}

/// Of the long proof only, about these crates; none: about all.
const fn long(step: Step, subject: &'static [&'static str]) -> Step {
    Step { is_long: true, subject, ..step }
}

type Outcome = Result<Tally, Failure>;

/// Pinned, so that a new release of the tool cannot fail an old commit.
const CARGO_DENY_VERSION: &str = "0.20.2";
const CARGO_DENY: &str = "tools/bin/cargo-deny";

fn nothing_first(_: &Workshop) -> Result<Built, Failure> {
    Ok(Built::default())
}

fn nothing_more(_: &Workshop, _: &Built) -> Outcome {
    Ok(Tally::default())
}

fn demo_build(workshop: &Workshop) -> Result<Built, Failure> {
    Ok(Binary::Development.build(workshop, "demo")?)
}

fn release_build(workshop: &Workshop) -> Result<Built, Failure> {
    Ok(Binary::Release.build(workshop, "release")?)
}

fn fmt(workshop: &Workshop, _: &Built) -> Outcome {
    plain(workshop, "fmt", cargo(workshop, &["fmt", "--all", "--check"]))
}

fn tidy_up(workshop: &Workshop, _: &Built) -> Outcome {
    complain("complaints", &tidy::check(&workshop.root, STEPS)?)
}

fn lint_build(workshop: &Workshop) -> Result<Built, Failure> {
    Ok(compile::everything(workshop, "lint")?)
}

/// The lints speak while the tests are compiled, so here they are only read.
fn lint(workshop: &Workshop, built: &Built) -> Outcome {
    if clippy_driver(&workshop.root).is_none() {
        return Err(Failure::Missing("clippy is needed: rustup component add clippy".to_owned()));
    }
    complain("lints complain", &built.complaints)
}

/// Fails with these lines, if there are any.
fn complain(what: &str, complaints: &[String]) -> Outcome {
    if complaints.is_empty() {
        return Ok(Tally::default());
    }
    complaints.iter().flat_map(|complaint| complaint.lines()).for_each(|line| println!("    | {line}"));
    Err(anyhow!("{} {what}", complaints.len()).into())
}

/// The peers of the benchmarks, which nothing else builds, and the program with other sets of features.
fn lint_all(workshop: &Workshop) -> Result<Built, Failure> {
    const SETS: [&[&str]; 6] = [&[], &["cluster"], &["sources"], &["bench"], &["demo"], &["simulate"]];
    const DENIED: [&str; 3] = ["--", "-D", "warnings"];
    for set in SETS {
        let features = set.join(",");
        let words = ["clippy", "-p", "tidings", "--bins", "--no-default-features", "--features", &features];
        run(workshop, "lint-all", cargo(workshop, &[&words[..], &DENIED].concat()), |_| ())?;
    }
    let words = ["clippy", "--workspace", "--all-targets", "--features", "tidings/bench-peers"];
    run(workshop, "lint-all", cargo(workshop, &[&words[..], &DENIED].concat()), |_| ())?;
    Ok(Built::default())
}

fn doc(workshop: &Workshop) -> Result<Built, Failure> {
    let mut command = cargo(workshop, &["doc", "--workspace", "--no-deps"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    run(workshop, "doc", command, |_| ())?;
    Ok(Built::default())
}

/// The demo as the README has it.
fn demo(workshop: &Workshop, built: &Built) -> Outcome {
    plain(workshop, "release", demo_of(workshop, built))
}

/// The same with fewer phones and clients, because the program of the tests is slow.
fn small_demo(workshop: &Workshop, built: &Built) -> Outcome {
    let mut command = demo_of(workshop, built);
    command.args(["--devices", "20000", "--clients", "200"]);
    plain(workshop, "demo", command)
}

fn demo_of(workshop: &Workshop, built: &Built) -> Command {
    let mut command = Command::new(&built.binary);
    command.args(["demo", "--once", "--json"]).current_dir(&workshop.root);
    command
}

/// Takes minutes and needs a nightly toolchain with Miri (`rustup +nightly component add miri`).
fn miri(workshop: &Workshop, _: &Built) -> Outcome {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "miri", "test", "-p", "tidings-buffer", "--lib", "--test", "lake_threads"]);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").current_dir(&workshop.root);
    counted(workshop, "miri", command, cargo_result)
}

fn deny_build(workshop: &Workshop) -> Result<Built, Failure> {
    if !workshop.built(CARGO_DENY).exists() {
        let words = ["install", "cargo-deny", "--locked", "--debug", "--version", CARGO_DENY_VERSION, "--root"];
        let mut install = cargo(workshop, &words);
        install.arg(workshop.built("tools"));
        run(workshop, "deny", install, |_| ())?;
    }
    Ok(Built::default())
}

/// Does not check advisories: their database is not in a package registry.
fn deny(workshop: &Workshop, _: &Built) -> Outcome {
    let mut command = Command::new(workshop.built(CARGO_DENY));
    command.args(["--workspace", "check", "bans", "licenses", "sources"]).current_dir(&workshop.root);
    plain(workshop, "deny", command)
}

/// Runs a command that passes or fails as a whole.
fn plain(workshop: &Workshop, name: &str, command: Command) -> Outcome {
    run(workshop, name, command, |_| ())?;
    Ok(Tally::default())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::STEPS;

    #[test]
    fn no_two_steps_share_a_name() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|other| other.name != step.name), "{}", step.name);
        }
    }

    #[test]
    fn steps_name_crates_that_there_are() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
        for (step, name) in STEPS.iter().flat_map(|step| step.subject.iter().map(|name| (step.name, name))) {
            assert!(crates.join(name).join("Cargo.toml").exists(), "{step} names {name}");
        }
    }
}
