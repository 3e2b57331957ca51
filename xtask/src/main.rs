//! All automation of this repository. `cargo xtask test` proves the project, `cargo xtask STEP` proves one part of it.
//!
//! A step is a row of [`steps::STEPS`]. The output of a step's commands goes to `target/xtask/STEP.log`, and is shown only
//! if the step fails. [`report`] says which steps run side by side.

#![expect(clippy::print_stdout, reason = "a program that talks to the terminal")]

mod bench;
mod campaigns;
mod chain;
mod command;
mod compile;
mod conformance;
mod dependencies;
mod features;
mod fuzz;
mod git;
mod install;
mod load;
mod openapi;
mod ops;
mod programs;
mod properties;
mod python;
mod record;
mod report;
mod step;
mod steps;
mod tidy;
mod tools;
mod workshop;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use bench::BenchArguments;
use report::TestArguments;
use workshop::{FeaturesArguments, FuzzArguments, Scope, Workshop};

/// All automation of this repository.
#[derive(Parser)]
#[command(bin_name = "cargo xtask", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Prove the project: run every step in order, then print a table of the results.
    Test(TestArguments),
    /// While you work: check formatting, rules, lints and tests of one crate, or (unit tests only) of all crates.
    Quick {
        /// The crate's folder, such as `store`.
        #[arg(value_name = "CRATE")]
        folder: Option<String>,
    },
    /// Run benchmarks, keep the results in docs/benchmarks, and make the tables of docs/benchmarks.md.
    Bench(BenchArguments),
    /// Run the step `fuzz` with your choice of time and targets.
    Fuzz(FuzzArguments),
    /// Run the step `features`: try the promises of features/*.feature, and make a report of them.
    Features(FeaturesArguments),
    /// Make the dashboard, the alerts and the table of runbooks from their tables.
    Ops,
    /// Run one step, by its name (see `cargo xtask test --list`).
    #[command(external_subcommand)]
    Step(Vec<String>),
}

fn main() -> ExitCode {
    let (mut fuzz, mut scope, mut bench, mut is_ops) = (FuzzArguments::default(), Scope::All, None, false);
    let mut features = FeaturesArguments::default();
    let only = |words| TestArguments { only: words, ..TestArguments::default() };
    let arguments = match Arguments::parse().task {
        Task::Test(arguments) => arguments,
        Task::Bench(arguments) => {
            bench = Some(arguments);
            TestArguments::default()
        }
        Task::Ops => {
            is_ops = true;
            TestArguments::default()
        }
        Task::Fuzz(arguments) => {
            fuzz = arguments;
            only(vec!["fuzz".to_owned()])
        }
        Task::Features(arguments) => {
            features = arguments;
            only(vec!["features".to_owned()])
        }
        Task::Quick { folder } => {
            scope = Scope::of_folder(folder);
            only(["fmt", "tidy", "lint", "test"].map(str::to_owned).into())
        }
        Task::Step(words) => only(words),
    };
    if arguments.list {
        report::list(steps::STEPS);
        return ExitCode::SUCCESS;
    }
    let named = arguments.only.iter().chain(&arguments.skip);
    if let Some(unknown) = named.clone().find(|name| steps::STEPS.iter().all(|step| step.name != **name)) {
        println!("no step is called {unknown:?}; the steps are:");
        report::list(steps::STEPS);
        return ExitCode::from(2);
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a folder of the repository").to_owned();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or("target".into(), PathBuf::from);
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let workshop = Workshop { root, target, strict, fuzz, features, scope };
    if let Some(arguments) = bench {
        return ended(bench::bench(&workshop, &arguments));
    }
    if is_ops {
        return ended(ops::write(&workshop.root));
    }
    report::run_all(&workshop, steps::STEPS, &arguments)
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("{error:#}");
            ExitCode::FAILURE
        }
    }
}
