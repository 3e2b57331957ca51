//! The step `fuzz`: libFuzzer looks for inputs that break a target of `fuzz/`.
//!
//! One instrumented build serves all targets; as many run at a time as there are cores. libFuzzer begins with
//! `fuzz/corpus/TARGET`. A run of the tests tries [`RUNS`] inputs per target ([`ROUTE_RUNS`] of `routes`), the step `fuzz-long`
//! ten times as many. Their seed is fixed, so that a run goes nearly the same way over the same code (hash maps are seeded anew
//! by each process, and what they do is seen as coverage). With `--seconds` a run explores, with a new seed, and keeps what
//! reaches further in `target/fuzz-corpus/TARGET`, so that a later run on the same machine goes on from there. An input that
//! breaks something is left under `target/xtask`, and the report says how to make a test of it. What is fuzzed, and why this
//! way, is in `fuzz/src/lib.rs`.
//!
//! Bounds: an input has at most 4 KiB and 5 s, a target 1 GiB of memory and [`SECONDS_MAX`](crate::workshop::SECONDS_MAX).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::command::{cargo, run, start_log};
use crate::report::{Failure, Tally};
use crate::tools::{debian_tool, side_by_side};
use crate::workshop::Workshop;

/// Inputs per target in a run of the tests: about a minute in all on two cores.
const RUNS: u64 = 200_000;
/// The same for `routes`, where an input is a request to a server that writes to the disk.
const ROUTE_RUNS: u64 = 5_000;
/// So many times as many in the step `fuzz-long`.
const LONG_FACTOR: u64 = 10;

/// What the compiler puts into the program for libFuzzer to see where an input leads and what it is compared with.
const INSTRUMENTATION: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Fuzzes every target and counts those that held.
pub(crate) fn fuzz(workshop: &Workshop) -> Result<Tally, Failure> {
    fuzz_all(workshop, 1)
}

/// The same, for longer.
pub(crate) fn fuzz_long(workshop: &Workshop) -> Result<Tally, Failure> {
    fuzz_all(workshop, LONG_FACTOR)
}

fn fuzz_all(workshop: &Workshop, factor: u64) -> Result<Tally, Failure> {
    if !debian_tool(workshop, "fuzz", "c++", "g++") {
        return Err(Failure::Missing("a C++ compiler is needed for libFuzzer: apt-get install g++".to_owned()));
    }
    let targets = targets(workshop)?;
    let program = build(workshop)?;
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

/// All targets that there are, or those asked for.
fn targets(workshop: &Workshop) -> Result<Vec<String>> {
    let folders = fs::read_dir(workshop.root.join("fuzz/corpus")).context("cannot read fuzz/corpus")?;
    let names = folders.map(|folder| Ok(folder?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<String>>>()?;
    names.sort();
    let asked = &workshop.fuzz.targets;
    if let Some(unknown) = asked.iter().find(|name| !names.contains(name)) {
        return Err(anyhow!("no target is called {unknown:?}; there are {}", names.join(", ")));
    }
    Ok(if asked.is_empty() { names } else { asked.clone() })
}

/// The instrumented program. Naming the machine as target keeps build scripts and macros free of the instrumentation.
fn build(workshop: &Workshop) -> Result<PathBuf> {
    let output = Command::new("rustc").arg("-vV").current_dir(&workshop.root).output().context("cannot start rustc")?;
    let host = host(&String::from_utf8_lossy(&output.stdout)).context("rustc does not tell its host")?.to_owned();
    let words = ["build", "-p", "tidings-fuzz", "--features", "libfuzzer", "--profile", "fuzz", "--target", &host];
    let mut command = cargo(workshop, &words);
    command.env("RUSTFLAGS", INSTRUMENTATION.join(" "));
    run(workshop, "fuzz", command, |_| ())?;
    Ok(workshop.built(&format!("{host}/fuzz/tidings-fuzz")))
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

/// The inputs of a target in one order on every machine; libFuzzer would take that of the file system.
fn corpus(workshop: &Workshop, target: &str) -> Result<Vec<String>> {
    let folder = format!("fuzz/corpus/{target}");
    let inputs = fs::read_dir(workshop.root.join(&folder)).with_context(|| format!("cannot read {folder}"))?;
    let paths = inputs.map(|input| Ok(format!("{folder}/{}", input?.file_name().to_string_lossy())));
    let mut paths = paths.collect::<Result<Vec<String>>>()?;
    paths.sort();
    Ok(paths)
}

/// How to repeat what was found.
fn advice(target: &str, path: &str) -> String {
    format!("broken by {path}; to see it again: cp {path} fuzz/corpus/{target}/ && cargo test -p tidings-fuzz")
}

#[cfg(test)]
mod tests {
    use super::host;

    #[test]
    fn the_compiler_tells_its_host() {
        assert_eq!(host("rustc 1.95.0\nbinary: rustc\nhost: a-b-c\nrelease: 1"), Some("a-b-c"));
        assert_eq!(host("rustc 1.95.0"), None);
    }
}
