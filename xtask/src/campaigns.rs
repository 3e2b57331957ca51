//! The campaigns: integration tests of the program's crate. Each is in the short proof with one member, against the program as
//! the tests have it, and in the long one whole, against the release binary.
//!
//! A campaign is built as part of the whole workspace in the development profile: its dependencies are built already, and features
//! for tests stay out of the release binary.

use std::process::Command;

use anyhow::anyhow;

use crate::command::run;
use crate::compile::{self, Binary, Built};
use crate::install;
use crate::step::{Failure, Tally};
use crate::tools::{cargo_result, counted};
use crate::workshop::Workshop;

type Outcome = Result<Tally, Failure>;

/// The kills of the crash campaign in the short proof; it has ten by itself.
const SHORT_KILLS: &str = "5";
/// The crash campaign under load; the other one is the flood.
const UNDER_LOAD: &str = "nothing_acknowledged_is_lost_when_the_server_is_killed";
/// The attacks that take less than five seconds, by the names of their tests.
const QUICK_ATTACKS: [&str; 4] = [
    "a_batch_of_histories",
    "nested_selectors_and_bodies_end_no_server",
    "new_channels_by_one_connection",
    "new_durable_channels_by_one_connection",
];
/// The test of `cluster` that the short proof runs.
const SMOKE: &str = "smoke";
/// Its tests mostly wait, and each has six servers of its own.
const AT_ONCE: [&str; 2] = ["--test-threads", "3"];

/// Runs the tests of a campaign whose names contain one of these words; all tests, if there are no words.
fn command(built: &Built, name: &str, words: &[&str]) -> Result<Command, Failure> {
    let mut command = built.campaign(name)?.command();
    command.arg("--nocapture").args(words).env("TIDINGS_BIN", &built.binary);
    Ok(command)
}

/// The campaigns, and the program that they judge.
fn build(workshop: &Workshop, names: &[&str], judged: Binary) -> Result<Built, Failure> {
    let Built { binary, .. } = judged.build(workshop, names[0])?;
    Ok(Built { binary, ..compile::campaigns(workshop, names[0], names)? })
}

pub(crate) fn crash_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["crash"], Binary::Development)
}

pub(crate) fn crash_long_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["crash"], Binary::Release)
}

/// Five kills under load.
pub(crate) fn crash(workshop: &Workshop, built: &Built) -> Outcome {
    let mut command = command(built, "crash", &[UNDER_LOAD])?;
    command.env("CRASH_KILLS", SHORT_KILLS);
    counted(workshop, "crash", command, cargo_result)
}

/// Ten kills under load, the flood, and the tests of the checkers.
pub(crate) fn crash_long(workshop: &Workshop, built: &Built) -> Outcome {
    counted(workshop, "crash-long", command(built, "crash", &[])?, cargo_result)
}

pub(crate) fn abuse_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["abuse"], Binary::Development)
}

pub(crate) fn abuse_all_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["abuse"], Binary::Release)
}

/// The quick attacks. Each must be there, also after it was given another name.
pub(crate) fn abuse(workshop: &Workshop, built: &Built) -> Outcome {
    let tally = counted(workshop, "abuse", command(built, "abuse", &QUICK_ATTACKS)?, cargo_result)?;
    match tally.passed == QUICK_ATTACKS.len() {
        true => Ok(tally),
        false => Err(anyhow!("{} tests have the names of the quick attacks {QUICK_ATTACKS:?}", tally.passed).into()),
    }
}

pub(crate) fn abuse_all(workshop: &Workshop, built: &Built) -> Outcome {
    counted(workshop, "abuse-all", command(built, "abuse", &[])?, cargo_result)
}

pub(crate) fn soak_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["soak"], Binary::Release)
}

/// An hour, if the environment says nothing else.
pub(crate) fn soak(workshop: &Workshop, built: &Built) -> Outcome {
    counted(workshop, "soak", command(built, "soak", &[])?, cargo_result)
}

pub(crate) fn soak_minute_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["soak"], Binary::Development)
}

pub(crate) fn soak_minute(workshop: &Workshop, built: &Built) -> Outcome {
    let mut command = command(built, "soak", &[])?;
    command.env("TIDINGS_SOAK_SECONDS", "60");
    counted(workshop, "soak-minute", command, cargo_result)
}

pub(crate) fn slow_build(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &["slow"], Binary::Release)
}

/// Clients behind a slow network while the server is restarted.
pub(crate) fn slow(workshop: &Workshop, built: &Built) -> Outcome {
    counted(workshop, "slow", command(built, "slow", &[])?, cargo_result)
}

pub(crate) fn smoke_build(workshop: &Workshop) -> Result<Built, Failure> {
    build_of_cluster(workshop, Binary::Development)
}

pub(crate) fn cluster_build(workshop: &Workshop) -> Result<Built, Failure> {
    build_of_cluster(workshop, Binary::Release)
}

fn build_of_cluster(workshop: &Workshop, judged: Binary) -> Result<Built, Failure> {
    install::nats_server(workshop, "cluster")?;
    install::porcupine(workshop, "cluster")?;
    build(workshop, &["cluster", "nats", "crash"], judged)
}

/// One kill of the leader.
pub(crate) fn smoke(workshop: &Workshop, built: &Built) -> Outcome {
    counted(workshop, "cluster-smoke", of_cluster(workshop, built, "cluster", &[SMOKE])?, cargo_result)
}

/// The demo of a cluster, nodes on real NATS servers (`crates/cluster/tests/nats.rs`), servers and faults
/// (`crates/tidings/tests/cluster.rs`), and the crash campaign against a cluster of three servers.
pub(crate) fn cluster(workshop: &Workshop, built: &Built) -> Outcome {
    const STEP: &str = "cluster";
    let mut demo = Command::new(&built.binary);
    demo.args(["demo", "--nodes", "3", "--once", "--json"]);
    demo.env("TIDINGS_NATS_SERVER", workshop.built(install::NATS_PROGRAM));
    run(workshop, STEP, demo, |_| ())?;
    let mut passed = 0;
    for (name, words) in [("nats", &[][..]), ("cluster", &AT_ONCE), ("crash", &[UNDER_LOAD])] {
        passed += counted(workshop, STEP, of_cluster(workshop, built, name, words)?, cargo_result)?.passed;
    }
    Ok(Tally { passed, skipped: Vec::new() })
}

/// The same as [`command`], with the broker and the checker of linearizability.
fn of_cluster(workshop: &Workshop, built: &Built, name: &str, words: &[&str]) -> Result<Command, Failure> {
    let mut command = command(built, name, words)?;
    command.env("NATS_SERVER", workshop.built(install::NATS_PROGRAM));
    command.env("PORCUPINE", workshop.built(install::PORCUPINE_PROGRAM));
    Ok(command)
}
