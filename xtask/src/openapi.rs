//! The step `openapi`: programs of others compare the release binary's API with its description.
//!
//! `conformance/openapi/judge.py` says what they check. They come from their registry with pinned versions
//! (`requirements.txt`, with all dependencies), into a virtual environment in `target/conformance/python`. It is kept until
//! the versions change. Their requests are random, from a fixed seed; `TIDINGS_SEED` sets another seed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Error, Result};

use crate::command::run;
use crate::report::{Failure, Tally};
use crate::tools::{BINARY, build_for, counted, debian_install};
use crate::workshop::Workshop;

const STEP: &str = "openapi";
const JUDGE: &str = "conformance/openapi";
const BUILT: &str = "conformance/python";
const SEED: &str = "1";
/// The oldest Python that the judges support.
const PYTHON_MIN: &str = "3.10";

pub(crate) fn openapi(workshop: &Workshop) -> Result<Tally, Failure> {
    need_python(workshop)?;
    build_for(workshop, STEP)?;
    let python = environment(workshop)?;
    let seed = std::env::var("TIDINGS_SEED").unwrap_or_else(|_| SEED.to_owned());
    println!("    seed {seed}");
    let mut command = Command::new(python);
    command.args(["-u", "judge.py", "--seed", &seed]).current_dir(workshop.root.join(JUDGE));
    command.env("TIDINGS_BIN", workshop.built(BINARY)).env("PYTHONDONTWRITEBYTECODE", "1");
    counted(workshop, STEP, command, judge_result)
}

/// Checks for Python and for virtual environments, which Debian has in a separate package.
fn need_python(workshop: &Workshop) -> Result<(), Failure> {
    const PACKAGES: [&str; 2] = ["python3", "python3-venv"];
    if !has_python() {
        debian_install(workshop, STEP, &PACKAGES);
    }
    if has_python() {
        return Ok(());
    }
    let install = PACKAGES.join(" ");
    Err(Failure::Missing(format!("python3 {PYTHON_MIN} or newer with venv is needed: apt-get install {install}")))
}

fn has_python() -> bool {
    let is_new =
        format!("import ensurepip, sys, venv; sys.exit(sys.version_info < ({}))", PYTHON_MIN.replace('.', ", "));
    let mut probe = Command::new("python3");
    probe.args(["-c", &is_new]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Makes a virtual environment with the pinned packages if they have changed. Returns its Python.
fn environment(workshop: &Workshop) -> Result<PathBuf, Error> {
    let (folder, pinned) = (workshop.built(BUILT), workshop.root.join(JUDGE).join("requirements.txt"));
    let (python, installed) = (folder.join("bin/python"), folder.join("installed.txt"));
    if is_same(&installed, &pinned)? && python.exists() {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder).current_dir(&workshop.root);
    run(workshop, STEP, make, |_| ())?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--requirement"]);
    install.arg(&pinned).current_dir(&workshop.root);
    run(workshop, STEP, install, |_| ())?;
    fs::copy(&pinned, &installed).context("cannot record what is installed")?; // Last: a broken installation is made anew.
    Ok(python)
}

/// Whether the installed versions are the pinned ones.
pub(crate) fn is_same(installed: &Path, pinned: &Path) -> Result<bool, Error> {
    let pinned = fs::read(pinned).context("cannot read the pinned versions")?;
    Ok(fs::read(installed).is_ok_and(|installed| installed == pinned))
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
