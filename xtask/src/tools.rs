//! What several steps need: the release binary, programs of Debian packages, the counts of a test runner.

use std::process::Command;

use anyhow::{Error, anyhow};

use crate::command::{cargo, is_there, run};
use crate::report::{Failure, Tally};
use crate::workshop::Workshop;

/// The release binary, below where cargo builds.
pub(crate) const BINARY: &str = "release/tidings";

/// The release binary, for the steps that use it; takes a second when it is there.
pub(crate) fn build_for(workshop: &Workshop, name: &str) -> Result<(), Error> {
    run(workshop, name, cargo(workshop, &["build", "--release", "-p", "tidings"]), |_| ())
}

/// A command that runs tests and says in some lines how many passed and failed.
pub(crate) fn counted(
    workshop: &Workshop,
    name: &str,
    command: Command,
    read: fn(&str) -> Option<(usize, usize)>,
) -> Result<Tally, Failure> {
    let (mut passed, mut failed) = (0, 0);
    let ended = run(workshop, name, command, |line| {
        let (more_passed, more_failed) = read(line).unwrap_or_default();
        passed += more_passed;
        failed += more_failed;
    });
    let ended = ended.and_then(|()| if passed == 0 { Err(anyhow!("no test was run")) } else { Ok(()) });
    match ended {
        Ok(()) => Ok(Tally { passed, skipped: Vec::new() }),
        Err(error) => Err(Failure::Failed { error, passed, failed }),
    }
}

/// Whether `program` is there, installing its Debian package where we may.
pub(crate) fn debian_tool(workshop: &Workshop, step: &str, program: &str, package: &str) -> bool {
    if !is_there(program) && is_root() && is_there("apt-get") {
        for words in [&["update"][..], &["install", "--yes", "--no-install-recommends", package]] {
            let mut command = Command::new("apt-get");
            command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
            if run(workshop, step, command, |_| ()).is_err() {
                break; // Reported as missing by the caller.
            }
        }
    }
    is_there(program)
}

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
