//! All automation of this repository: `cargo xtask test` proves the project, `cargo xtask STEP` one part of it.
//!
//! A step is a row of [`steps::STEPS`]; what a command prints goes to `target/xtask/STEP.log` and is shown only when the
//! step fails. Everything runs one after the other: the machines this is meant for have two cores, and cargo uses both.

#![expect(clippy::print_stdout, reason = "a program that talks to the terminal")]

mod command;
mod conformance;
mod features;
mod fuzz;
mod openapi;
mod report;
mod steps;
mod tidy;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

/// All automation of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Prove the project: every step in order, then a table of what passed.
    Test(TestArguments),
    /// The step `fuzz` with a time and targets of one's own choice.
    Fuzz(fuzz::FuzzArguments),
    /// One step alone, by its name (see `cargo xtask test --list`).
    #[command(external_subcommand)]
    Step(Vec<String>),
}

#[derive(Args, Default)]
struct TestArguments {
    /// Run only this step (may be given several times).
    #[arg(long, value_name = "STEP")]
    only: Vec<String>,
    /// Leave this step out (may be given several times).
    #[arg(long, value_name = "STEP")]
    skip: Vec<String>,
    /// Run the steps too that must be asked for.
    #[arg(long)]
    all: bool,
    /// Print the steps and stop.
    #[arg(long)]
    list: bool,
}

/// What every step needs to know.
struct Workshop {
    /// The repository's top folder.
    root: PathBuf,
    /// Where cargo builds, from `root`: `CARGO_TARGET_DIR`, or `target`.
    target: PathBuf,
    /// A run whose missing tools are failures (`CI=true`).
    strict: bool,
    /// What the step `fuzz` does.
    fuzz: fuzz::FuzzArguments,
}

impl Workshop {
    /// A file that was built or written by a step.
    fn built(&self, path: &str) -> PathBuf {
        self.root.join(&self.target).join(path)
    }
}

fn main() -> ExitCode {
    let mut fuzz = fuzz::FuzzArguments::default();
    let only = |words| TestArguments { only: words, ..TestArguments::default() };
    let arguments = match Arguments::parse().task {
        Task::Test(arguments) => arguments,
        Task::Fuzz(arguments) => {
            fuzz = arguments;
            only(vec!["fuzz".to_owned()])
        }
        Task::Step(words) => only(words),
    };
    if arguments.list {
        report::list(steps::STEPS);
        return ExitCode::SUCCESS;
    }
    let named = arguments.only.iter().chain(&arguments.skip);
    if let Some(unknown) = named.clone().find(|name| steps::STEPS.iter().all(|step| step.name != **name)) {
        println!("no step is called {unknown:?}; there are:");
        report::list(steps::STEPS);
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the repository").to_owned();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let workshop = Workshop { root, target, strict: std::env::var("CI").is_ok_and(|value| value == "true"), fuzz };
    report::run_all(&workshop, steps::STEPS, &arguments)
}
