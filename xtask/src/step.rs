//! A step of the proof, and how one ends.

use crate::compile::Built;
use crate::workshop::Workshop;

/// The first half of a step.
pub(crate) type Build = fn(&Workshop) -> Result<Built, Failure>;
/// The second half of a step.
pub(crate) type Run = fn(&Workshop, &Built) -> Result<Tally, Failure>;

/// One row of the table of steps.
pub(crate) struct Step {
    /// The name for `--only` and `--skip`.
    pub(crate) name: &'static str,
    /// What it proves, in a few words.
    pub(crate) proves: &'static str,
    /// Whether it belongs to the long proof only; then `docs/proof.json` has its record.
    pub(crate) is_long: bool,
    /// The crates that a long step is about; none: all of them.
    pub(crate) subject: &'static [&'static str],
    /// Whether it needs the machine for itself.
    pub(crate) alone: bool,
    pub(crate) build: Build,
    pub(crate) run: Run,
}

/// The result of a step that passed.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Tests that passed.
    pub(crate) passed: usize,
    /// Parts that were left out because something is missing, each with the reason.
    pub(crate) skipped: Vec<String>,
}

/// Why a step did not pass.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Something is wrong. `passed` and `failed` count tests; both are 0 if none were counted.
    Failed { error: anyhow::Error, passed: usize, failed: usize },
    /// A tool that the step needs is missing.
    Missing(String),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Failed { error, passed: 0, failed: 0 }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::{Step, Tally};
    use crate::compile::Built;

    /// A step of the long proof that does nothing.
    pub(crate) fn long_step(name: &'static str, subject: &'static [&'static str]) -> Step {
        Step { is_long: true, subject, ..step(name) }
    }

    /// A step of the short proof that does nothing.
    pub(crate) fn step(name: &'static str) -> Step {
        let (build, run) = (|_: &_| Ok(Built::default()), |_: &_, _: &_| Ok(Tally::default()));
        Step { name, proves: "", is_long: false, subject: &[], alone: false, build, run }
    }
}
