//! The steps that prove the project, the cheapest first.

use std::process::Command;

use anyhow::anyhow;

use crate::command::{cargo, run};
use crate::report::{Failure, Step, Tally};
use crate::tools::{BINARY, build_for, cargo_result, counted};
use crate::workshop::{Scope, Workshop};
use crate::{chain, conformance, features, fuzz, openapi, programs, tidy};

/// All steps, in the order they run.
pub(crate) const STEPS: &[Step] = &[
    step("fmt", "the code is formatted", fmt),
    step("tidy", "the repository's own rules hold", tidy_up),
    step("clippy", "no lint complains", clippy),
    step("test", "unit, property and integration tests", programs::test),
    step("doc", "the documentation builds without a warning", doc),
    step("build", "the release binary builds", build),
    step("demo", "an event reaches a connected client and a simulated phone", demo),
    together("features", "what is promised in plain words holds on the real program", features::features),
    together("conformance", "clients and servers of others find nothing wrong", conformance::conformance),
    together("openapi", "programs of others find that the API matches its description", openapi::openapi),
    step("fuzz", "no input breaks a parser of remote bytes, or the session", |workshop| fuzz::fuzz(workshop, 1)),
    step(
        "cluster",
        "several servers lose nothing when they and their brokers are killed, stopped and cut off",
        conformance::cluster,
    ),
    step("crash", "nothing acknowledged is lost when the server is killed", |workshop| campaign(workshop, "crash")),
    step("abuse", "attacks and mistakes of callers and clients harm nobody else", |workshop| {
        campaign(workshop, "abuse")
    }),
    on_request("fuzz-long", "the same with forty times as many inputs", |workshop| {
        fuzz::fuzz(workshop, fuzz::LONG_FACTOR)
    }),
    on_request("soak", "clients that come and go leave nothing behind", |workshop| campaign(workshop, "soak")),
    on_request(
        "chain",
        "metrics arrive through Telegraf in InfluxDB, and Kapacitor's alerts fire and end",
        chain::chain,
    ),
    on_request("miri", "an interpreter finds no undefined behaviour in the buffers", miri),
    on_request("deny", "dependencies have allowed licences and sources", deny),
];

const fn step(name: &'static str, proves: &'static str, run: fn(&Workshop) -> Outcome) -> Step {
    Step { name, proves, on_request: false, together: false, run }
}

const fn together(name: &'static str, proves: &'static str, run: fn(&Workshop) -> Outcome) -> Step {
    Step { together: true, ..step(name, proves, run) }
}

const fn on_request(name: &'static str, proves: &'static str, run: fn(&Workshop) -> Outcome) -> Step {
    Step { on_request: true, ..step(name, proves, run) }
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

/// Integration tests that are separate steps.
const CAMPAIGNS: [&str; 6] = ["features", "crash", "abuse", "soak", "nats", "cluster"];

/// Also checks the peers of the benchmarks, which no other step builds, and the program as it is built for production.
fn clippy(workshop: &Workshop) -> Outcome {
    if let Scope::Package(package) = &workshop.scope {
        let words = ["clippy", "-p", package, "--all-targets", "--", "-D", "warnings"];
        return plain(workshop, "clippy", cargo(workshop, &words));
    }
    let words = ["clippy", "-p", "tidings", "--bins", "--no-default-features", "--", "-D", "warnings"];
    plain(workshop, "clippy", cargo(workshop, &words))?;
    let words = ["clippy", "--workspace", "--all-targets", "--features", "tidings/bench-peers", "--", "-D", "warnings"];
    plain(workshop, "clippy", cargo(workshop, &words))?;
    // `--all-targets` leaves out targets with `test = false`, even if they are named beside it.
    let mut command = cargo(workshop, &["clippy", "--workspace", "--features", "tidings/bench-peers"]);
    command.args(CAMPAIGNS.iter().flat_map(|name| ["--test", name])).args(["--", "-D", "warnings"]);
    plain(workshop, "clippy", command)
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

/// A campaign is an integration test of the binary's crate that judges the release binary. Its target says `test = false`
/// in Cargo.toml, so that a plain `cargo test` does not run it. The test is built as in the step `test` (all packages,
/// development profile): its dependencies are built already, and features for tests stay out of the release binary.
fn campaign(workshop: &Workshop, name: &str) -> Outcome {
    build_for(workshop, name)?;
    let mut command = cargo(workshop, &["test", "--workspace", "--test", name, "--", "--nocapture"]);
    command.env("TIDINGS_BIN", workshop.built(BINARY));
    counted(workshop, name, command, cargo_result)
}

/// Takes minutes and needs a nightly toolchain with Miri (`rustup +nightly component add miri`).
fn miri(workshop: &Workshop) -> Outcome {
    let mut command = Command::new("cargo");
    command.args(["+nightly", "miri", "test", "-p", "tidings-buffer", "--lib", "--test", "lake_threads"]);
    command.env("MIRIFLAGS", "-Zmiri-disable-isolation").current_dir(&workshop.root);
    counted(workshop, "miri", command, cargo_result)
}

/// Does not check advisories: their database is not in a package registry.
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

/// Runs a command that passes or fails as a whole.
fn plain(workshop: &Workshop, name: &str, command: Command) -> Outcome {
    run(workshop, name, command, |_| ())?;
    Ok(Tally::default())
}

#[cfg(test)]
mod tests {
    use super::STEPS;

    #[test]
    fn no_two_steps_share_a_name() {
        for (index, step) in STEPS.iter().enumerate() {
            assert!(STEPS[..index].iter().all(|other| other.name != step.name), "{}", step.name);
        }
    }
}
