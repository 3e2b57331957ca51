//! The step `openapi`: programs of others compare the program's API with its description.
//!
//! `conformance/openapi/judge.py` says what they check. Their requests are random, from a fixed seed; `TIDINGS_SEED` sets
//! another seed.

use std::process::Command;

use crate::compile::{Binary, Built};
use crate::install;
use crate::step::{Failure, Tally};
use crate::tools::counted;
use crate::workshop::Workshop;

const STEP: &str = "openapi";
const JUDGE: &str = "conformance/openapi";
const SEED: &str = "1";

/// Installs the judges, and builds what they judge.
pub(crate) fn build(workshop: &Workshop) -> Result<Built, Failure> {
    install::openapi(workshop, STEP)?;
    Ok(Binary::Development.build(workshop, STEP)?)
}

/// Runs the judges.
pub(crate) fn openapi(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    let python = install::openapi(workshop, STEP)?;
    let seed = std::env::var("TIDINGS_SEED").unwrap_or_else(|_| SEED.to_owned());
    println!("    seed {seed}");
    let mut command = Command::new(python);
    command.args(["-u", "judge.py", "--seed", &seed]).current_dir(workshop.root.join(JUDGE));
    command.env("TIDINGS_BIN", &built.binary).env("PYTHONDONTWRITEBYTECODE", "1");
    counted(workshop, STEP, command, judge_result)
}

/// `4 passed, 0 failed`
fn judge_result(line: &str) -> Option<(usize, usize)> {
    let (passed, failed) = line.strip_suffix(" failed")?.split_once(" passed, ")?;
    Some((passed.parse().ok()?, failed.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::judge_result;

    #[test]
    fn the_result_of_the_judges_is_read() {
        assert_eq!(judge_result("3 passed, 1 failed"), Some((3, 1)));
        assert_eq!((judge_result("the_document: ok (0.1 s)"), judge_result("x passed, 1 failed")), (None, None));
    }
}
