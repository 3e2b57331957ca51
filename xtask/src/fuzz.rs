//! The step `fuzz`: libFuzzer searches inputs that break a target of `fuzz/`.
//!
//! One instrumented build serves all targets of a run. As many targets run at a time as there are cores. libFuzzer begins with
//! `fuzz/corpus/TARGET`. The step tries [`RUNS`] inputs per target, and leaves out the targets that need the API
//! ([`OF_API`]), so that the API and the store are not built once more for it; the test of the corpus has them. The step
//! `fuzz-long` has all targets, and tries forty times as many inputs ([`ROUTE_RUNS`] for `routes`). The seed is fixed, so that runs take nearly the same way over the same code. (Each process seeds its
//! hash maps anew, and their behaviour counts as coverage.) With `--seconds` a run explores with a new seed, and keeps
//! inputs that reach further in `target/fuzz-corpus/TARGET`; a later run on the same machine continues from there. An input
//! that breaks something is kept in `target/xtask`, and the report says how to make a test of it. `fuzz/src/lib.rs` says what
//! is fuzzed, and why in this way.
//!
//! Limits: an input has at most 4 KiB and 5 s, a target 1 GiB of memory and [`SECONDS_MAX`](crate::workshop::SECONDS_MAX).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::command::{cargo, run, start_log};
use crate::compile::Built;
use crate::step::{Failure, Tally};
use crate::tools::{debian_tool, side_by_side};
use crate::workshop::Workshop;

/// The targets that need the feature `api` of `fuzz/`.
const OF_API: [&str; 3] = ["device", "event", "routes"];
/// Inputs per target in the step `fuzz`: about half a minute for its targets on two cores.
const RUNS: u64 = 50_000;
/// The same for `routes`: each input is a request to a server that writes to the disk.
const ROUTE_RUNS: u64 = 1_250;
/// The step `fuzz` tries that many inputs once, the step `fuzz-long` so many times as many.
const SHORT: u64 = 1;
const LONG_FACTOR: u64 = 40;

/// Compiler options that let libFuzzer see where an input leads, and what it is compared with.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// The first half of the step `fuzz`: its program.
pub(crate) fn build_short(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &targets(workshop, SHORT)?)
}

/// The step `fuzz`.
pub(crate) fn short(workshop: &Workshop, _: &Built) -> Result<Tally, Failure> {
    fuzz(workshop, SHORT)
}

/// The first half of the step `fuzz-long`.
pub(crate) fn build_long(workshop: &Workshop) -> Result<Built, Failure> {
    build(workshop, &targets(workshop, LONG_FACTOR)?)
}

/// The step `fuzz-long`.
pub(crate) fn long(workshop: &Workshop, _: &Built) -> Result<Tally, Failure> {
    fuzz(workshop, LONG_FACTOR)
}

/// Fuzzes the chosen targets, with `factor` times the usual inputs, and counts those that held. If none is chosen: with the
/// usual inputs the targets that need no API, else all.
fn fuzz(workshop: &Workshop, factor: u64) -> Result<Tally, Failure> {
    let targets = targets(workshop, factor)?;
    let program = program(workshop)?;
    let (cores, count) = (thread::available_parallelism().map_or(1, usize::from), targets.len());
    let ends = side_by_side(cores, targets, |target| {
        fuzz_target(workshop, &program, &target, factor).map_err(|error| format!("{target}: {error:#}"))
    });
    let broken: Vec<String> = ends.into_iter().filter_map(Result::err).collect();
    let (failed, passed) = (broken.len(), count - broken.len());
    if broken.is_empty() {
        return Ok(Tally { passed, skipped: Vec::new() });
    }
    Err(Failure::Failed { error: anyhow!("{}", broken.join("\n    ")), passed, failed })
}

/// The targets of a run.
fn targets(workshop: &Workshop, factor: u64) -> Result<Vec<String>> {
    let is_short = factor == SHORT && workshop.fuzz.seconds.is_none();
    chosen(&workshop.fuzz.targets, corpora(workshop)?, is_short)
}

/// All targets: each has a corpus.
fn corpora(workshop: &Workshop) -> Result<Vec<String>> {
    let folders = fs::read_dir(workshop.root.join("fuzz/corpus")).context("cannot read fuzz/corpus")?;
    let names = folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

fn needs_api(target: &str) -> bool {
    OF_API.contains(&target)
}

/// The targets that were asked for, or those of a short or a long run.
fn chosen(asked: &[String], mut names: Vec<String>, is_short: bool) -> Result<Vec<String>> {
    if let Some(unknown) = asked.iter().find(|name| !names.contains(name)) {
        return Err(anyhow!("no target is called {unknown:?}; the targets are {}", names.join(", ")));
    }
    if !asked.is_empty() {
        return Ok(asked.to_vec());
    }
    names.retain(|name| !is_short || !needs_api(name));
    Ok(names)
}

/// Builds the instrumented program. Naming the machine as target keeps build scripts and macros uninstrumented.
fn build(workshop: &Workshop, targets: &[String]) -> Result<Built, Failure> {
    if !debian_tool(workshop, "fuzz", "c++", "g++") {
        return Err(Failure::Missing("a C++ compiler is needed for libFuzzer: apt-get install g++".to_owned()));
    }
    let host = this_host(workshop)?;
    let words = ["build", "-p", "tidings-fuzz", "--features", "libfuzzer", "--profile", "fuzz", "--target", &host];
    let mut command = cargo(workshop, &words);
    command.args((!targets.iter().any(|target| needs_api(target))).then_some("--no-default-features"));
    command.env("RUSTFLAGS", INSTRUMENTATION.join(" "));
    run(workshop, "fuzz", command, |_| ())?;
    Ok(Built::default())
}

/// Where the instrumented program is.
fn program(workshop: &Workshop) -> Result<PathBuf> {
    Ok(workshop.built(&format!("{}/fuzz/tidings-fuzz", this_host(workshop)?)))
}

fn this_host(workshop: &Workshop) -> Result<String> {
    let output = Command::new("rustc").arg("-vV").current_dir(&workshop.root).output().context("cannot start rustc")?;
    let host = host(&String::from_utf8_lossy(&output.stdout)).context("rustc does not print its host")?.to_owned();
    Ok(host)
}

/// `host: x86_64-unknown-linux-gnu`
fn host(version: &str) -> Option<&str> {
    version.lines().find_map(|line| line.strip_prefix("host: "))
}

fn fuzz_target(workshop: &Workshop, program: &Path, target: &str, factor: u64) -> Result<()> {
    let log = format!("fuzz-{target}");
    start_log(workshop, &log)?;
    let mut command = Command::new(program);
    command.current_dir(&workshop.root).env("TIDINGS_FUZZ_TARGET", target);
    let kept = workshop.target.join(format!("xtask/fuzz-{target}-"));
    command.arg(format!("-artifact_prefix={}", kept.display()));
    command.args(["-max_len=4096", "-timeout=5", "-rss_limit_mb=1024", "-dict=fuzz/tidings.dict"]);
    command.args(["-print_final_stats=1", "-reload=0"]);
    match workshop.fuzz.seconds {
        Some(seconds) => {
            let found = workshop.built(&format!("fuzz-corpus/{target}"));
            fs::create_dir_all(&found)?;
            command.arg(format!("-max_total_time={seconds}")).arg(found).arg(format!("fuzz/corpus/{target}"));
        }
        None => {
            let seeds = format!("-seed_inputs={}", corpus(workshop, target)?.join(","));
            let runs = factor * if target == "routes" { ROUTE_RUNS } else { RUNS };
            command.args(["-seed=1".to_owned(), format!("-runs={runs}"), seeds]);
        }
    }
    let (mut kept, mut reached, mut runs) = (None, false, None);
    let ended = run(workshop, &log, command, |line| {
        reached |= line.contains("INITED cov: ") && !line.contains("cov: 0 ");
        runs = runs.take().or_else(|| line.strip_prefix("stat::number_of_executed_units: ").map(str::to_owned));
        kept = kept.take().or_else(|| line.split_once("Test unit written to ").map(|(_, path)| path.to_owned()));
    });
    ended.map_err(|error| kept.map_or(error, |path| anyhow!("{}", advice(target, &path))))?;
    ensure!(reached, "the program has no instrumentation that libFuzzer sees");
    println!("    {target}: {} inputs", runs.unwrap_or_else(|| "?".to_owned()).trim());
    Ok(())
}

/// The inputs of a target, in the same order on every machine; libFuzzer would use the file system's order.
fn corpus(workshop: &Workshop, target: &str) -> Result<Vec<String>> {
    let folder = format!("fuzz/corpus/{target}");
    let inputs = fs::read_dir(workshop.root.join(&folder)).with_context(|| format!("cannot read {folder}"))?;
    let paths = inputs.map(|input| Ok(format!("{folder}/{}", input?.file_name().to_string_lossy())));
    let mut paths = paths.collect::<Result<Vec<String>>>()?;
    paths.sort();
    Ok(paths)
}

/// How to repeat a failure.
fn advice(target: &str, path: &str) -> String {
    format!("broken by {path}; to see it again: cp {path} fuzz/corpus/{target}/ && cargo test -p tidings-fuzz")
}

#[cfg(test)]
mod tests {
    use super::{OF_API, chosen, host};

    #[test]
    fn the_host_is_read_from_the_compiler() {
        assert_eq!(host("rustc 1.95.0\nbinary: rustc\nhost: a-b-c\nrelease: 1"), Some("a-b-c"));
        assert_eq!(host("rustc 1.95.0"), None);
    }

    #[test]
    fn a_short_run_leaves_out_what_needs_the_api_unless_it_is_asked_for() {
        let all = || ["answer", "device", "event", "frame", "routes"].map(str::to_owned).to_vec();
        let asked = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(chosen(&[], all(), true).unwrap(), ["answer", "frame"]);
        assert_eq!(chosen(&[], all(), false).unwrap(), all());
        assert_eq!(chosen(&asked(&OF_API), all(), true).unwrap(), OF_API);
        let unknown = chosen(&asked(&["rout"]), all(), true).unwrap_err().to_string();
        assert!(unknown.contains("\"rout\"") && unknown.ends_with("answer, device, event, frame, routes"), "{unknown}");
    }
}
