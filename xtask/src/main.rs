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
    /// What to run while you work: formatting, rules, lints and tests, of one crate or (unit tests only) of all.
    Quick {
        /// The crate's folder, such as `store`.
        #[arg(value_name = "CRATE")]
        folder: Option<String>,
    },
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
    /// What the steps `clippy` and `test` are about.
    scope: Scope,
}

/// How much of the project is looked at.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
enum Scope {
    /// All of it.
    #[default]
    All,
    /// Of all crates what takes seconds.
    Units,
    /// One package, whole.
    Package(String),
}

impl Scope {
    /// Of the crate in `crates/FOLDER`, or of `fuzz` or `xtask`.
    fn of_folder(folder: Option<String>) -> Self {
        let Some(folder) = folder else { return Self::Units };
        let name = folder.trim_start_matches("crates/").trim_end_matches('/').trim_start_matches("tidings-");
        Self::Package(match name {
            "tidings" | "xtask" => name.to_owned(),
            other => format!("tidings-{other}"),
        })
    }
}

impl Workshop {
    /// A file that was built or written by a step.
    fn built(&self, path: &str) -> PathBuf {
        self.root.join(&self.target).join(path)
    }
}

fn main() -> ExitCode {
    let (mut fuzz, mut scope) = (fuzz::FuzzArguments::default(), Scope::All);
    let only = |words| TestArguments { only: words, ..TestArguments::default() };
    let arguments = match Arguments::parse().task {
        Task::Test(arguments) => arguments,
        Task::Fuzz(arguments) => {
            fuzz = arguments;
            only(vec!["fuzz".to_owned()])
        }
        Task::Quick { folder } => {
            scope = Scope::of_folder(folder);
            only(["fmt", "tidy", "clippy", "test"].map(str::to_owned).into())
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
    let strict = std::env::var("CI").is_ok_and(|value| value == "true");
    let workshop = Workshop { root, target, strict, fuzz, scope };
    report::run_all(&workshop, steps::STEPS, &arguments)
}

#[cfg(test)]
mod tests {
    use super::Scope;

    #[test]
    fn a_crate_is_named_by_its_folder_or_its_package() {
        let package = |folder: &str| Scope::of_folder(Some(folder.to_owned()));
        for name in ["store", "crates/store", "crates/store/", "tidings-store"] {
            assert_eq!(package(name), Scope::Package("tidings-store".to_owned()), "{name}");
        }
        assert_eq!(package("tidings"), Scope::Package("tidings".to_owned()));
        assert_eq!(package("fuzz"), Scope::Package("tidings-fuzz".to_owned()));
        assert_eq!(Scope::of_folder(None), Scope::Units);
    }
}
