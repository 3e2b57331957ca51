//! The context of every step: the repository, cargo's target folder, and what to do.

use std::path::PathBuf;

use clap::Args;

/// The context of a step.
pub(crate) struct Workshop {
    /// The repository's top folder.
    pub(crate) root: PathBuf,
    /// Cargo's target folder, relative to `root`: `CARGO_TARGET_DIR`, or `target`.
    pub(crate) target: PathBuf,
    /// Whether a missing tool is a failure (`CI=true`).
    pub(crate) strict: bool,
    /// Options of the step `fuzz`.
    pub(crate) fuzz: FuzzArguments,
    /// Options of the step `features`.
    pub(crate) features: FeaturesArguments,
    /// The packages for the steps `clippy` and `test`.
    pub(crate) scope: Scope,
}

impl Workshop {
    /// A file in cargo's target folder.
    pub(crate) fn built(&self, path: &str) -> PathBuf {
        self.root.join(&self.target).join(path)
    }
}

/// How much of the project is checked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything.
    #[default]
    All,
    /// The unit tests of all crates.
    Units,
    /// One package, whole.
    Package(String),
}

impl Scope {
    /// The package in `crates/FOLDER`, or `fuzz` or `xtask`.
    pub(crate) fn of_folder(folder: Option<String>) -> Self {
        let Some(folder) = folder else { return Self::Units };
        let name = folder.trim_start_matches("crates/").trim_end_matches('/').trim_start_matches("tidings-");
        Self::Package(match name {
            "tidings" | "xtask" => name.to_owned(),
            other => format!("tidings-{other}"),
        })
    }

    /// Cargo's arguments for these packages.
    pub(crate) fn words(&self) -> Vec<&str> {
        match self {
            Self::All | Self::Units => vec!["--workspace"],
            Self::Package(package) => vec!["-p", package],
        }
    }
}

/// Less than the time limit of a command.
pub(crate) const SECONDS_MAX: u64 = 40 * 60;

/// Options of the step `fuzz`. `cargo xtask test` uses the defaults.
#[derive(Args, Default)]
pub(crate) struct FuzzArguments {
    /// Explore for so many seconds per target, with a new seed [default: 50 000 inputs from a fixed seed].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub(crate) seconds: Option<u64>,
    /// Run only these targets; they are the folders of fuzz/corpus.
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
}

/// Options of the step `features`. `cargo xtask test` uses the defaults.
#[derive(Args, Default)]
pub(crate) struct FeaturesArguments {
    /// Post the status to this incoming webhook of a chat (the address is a secret: better set TIDINGS_FEATURES_WEBHOOK).
    #[arg(long, value_name = "URL")]
    pub(crate) notify: Option<String>,
    /// Keep the history of the runs in this file [default: TIDINGS_FEATURES_HISTORY, else
    /// target/xtask/features-history.ndjson].
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
}

#[cfg(test)]
mod tests {
    use super::Scope;

    #[test]
    fn a_crate_can_be_named_by_folder_or_package() {
        let package = |folder: &str| Scope::of_folder(Some(folder.to_owned()));
        for name in ["store", "crates/store", "crates/store/", "tidings-store"] {
            assert_eq!(package(name), Scope::Package("tidings-store".to_owned()), "{name}");
        }
        assert_eq!(package("tidings"), Scope::Package("tidings".to_owned()));
        assert_eq!(package("fuzz"), Scope::Package("tidings-fuzz".to_owned()));
        assert_eq!(Scope::of_folder(None), Scope::Units);
    }
}
