//! What every step is handed: where the repository is, where cargo builds, and how much is asked for.

use std::path::PathBuf;

use clap::Args;

/// What every step needs to know.
pub(crate) struct Workshop {
    /// The repository's top folder.
    pub(crate) root: PathBuf,
    /// Where cargo builds, from `root`: `CARGO_TARGET_DIR`, or `target`.
    pub(crate) target: PathBuf,
    /// A run whose missing tools are failures (`CI=true`).
    pub(crate) strict: bool,
    /// What the step `fuzz` does.
    pub(crate) fuzz: FuzzArguments,
    /// What the steps `clippy` and `test` are about.
    pub(crate) scope: Scope,
}

impl Workshop {
    /// A file that was built or written by a step.
    pub(crate) fn built(&self, path: &str) -> PathBuf {
        self.root.join(&self.target).join(path)
    }
}

/// How much of the project is looked at.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) enum Scope {
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
    pub(crate) fn of_folder(folder: Option<String>) -> Self {
        let Some(folder) = folder else { return Self::Units };
        let name = folder.trim_start_matches("crates/").trim_end_matches('/').trim_start_matches("tidings-");
        Self::Package(match name {
            "tidings" | "xtask" => name.to_owned(),
            other => format!("tidings-{other}"),
        })
    }

    /// What tells cargo which packages.
    pub(crate) fn words(&self) -> Vec<&str> {
        match self {
            Self::All | Self::Units => vec!["--workspace"],
            Self::Package(package) => vec!["-p", package],
        }
    }
}

/// Below what a command may take.
pub(crate) const SECONDS_MAX: u64 = 40 * 60;

/// What a person may choose; `cargo xtask test` takes the defaults.
#[derive(Args, Default)]
pub(crate) struct FuzzArguments {
    /// Explore for so many seconds per target, each time another way [default: 200 000 inputs from a fixed seed].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=SECONDS_MAX))]
    pub(crate) seconds: Option<u64>,
    /// Run only these targets, named like the folders of fuzz/corpus.
    #[arg(value_name = "TARGET")]
    pub(crate) targets: Vec<String>,
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
