//! Python's virtual environments, for the steps that use packages of Python.
//!
//! An environment has the packages of a `requirements.txt`, with pinned versions and all dependencies. It is kept in
//! `target/conformance` until the versions change.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Error};

use crate::command::run;
use crate::step::Failure;
use crate::tools::{debian_install, is_same};
use crate::workshop::Workshop;

/// The oldest Python that the packages support.
const PYTHON_MIN: &str = "3.10";

/// Checks for Python and for virtual environments, which Debian has in a separate package.
pub(crate) fn need_python(workshop: &Workshop, step: &str) -> Result<(), Failure> {
    const PACKAGES: [&str; 2] = ["python3", "python3-venv"];
    if !has_python() {
        debian_install(workshop, step, &PACKAGES);
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

/// Makes the environment `built` with the packages that `folder` pins, if they have changed. Returns its Python.
pub(crate) fn environment(workshop: &Workshop, step: &str, folder: &str, built: &str) -> Result<PathBuf, Error> {
    let (pinned, folder) = (workshop.root.join(folder).join("requirements.txt"), workshop.built(built));
    let (python, installed) = (folder.join("bin/python"), folder.join("installed.txt"));
    if is_same(&installed, &pinned)? && python.exists() {
        return Ok(python);
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv", "--clear"]).arg(&folder).current_dir(&workshop.root);
    run(workshop, step, make, |_| ())?;
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check", "--requirement"]);
    install.arg(&pinned).current_dir(&workshop.root);
    run(workshop, step, install, |_| ())?;
    fs::copy(&pinned, &installed).context("cannot record what is installed")?; // Last: a broken installation is made anew.
    Ok(python)
}
