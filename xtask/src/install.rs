//! The foreign programs that test ours: what is installed, from where, and the step `install` that does it all at once.
//!
//! They come from their registries with pinned versions: npm packages (`npm ci`), Maven packages (Pushy, Centrifugo's Java
//! SDK), Python packages (Centrifugo's libraries) and Go modules (among them Centrifugo itself and the NATS server). Maven, Go
//! and Python download and build into `target/conformance`, so a second run takes seconds. The databases and Chromium are Debian
//! packages. Each step also asks for what it needs itself, so that it can be run alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::command::run;
use crate::compile::Built;
use crate::python::{environment, need_python};
use crate::step::Failure;
use crate::tools::{CHROMIUM, TEST_TOOLS, debian_install, debian_tool, is_same};
use crate::workshop::Workshop;

/// A program that is needed to build or run the judges.
struct Tool {
    program: &'static str,
    /// The argument that prints its version.
    word: &'static str,
    /// The lowest sufficient version, such as `[1, 25]`.
    version_min: &'static [u32],
    /// The Debian package, which is installed if the program is missing. An old Debian has a version that is too old of some.
    debian_package: &'static str,
}

const TOOLS: [Tool; 10] = [
    Tool { program: "node", word: "--version", version_min: &[20], debian_package: "nodejs" },
    Tool { program: "npm", word: "--version", version_min: &[9], debian_package: "npm" },
    Tool { program: "javac", word: "--version", version_min: &[17], debian_package: "openjdk-17-jdk-headless" },
    Tool { program: "mvn", word: "--version", version_min: &[3], debian_package: "maven" },
    Tool { program: "go", word: "version", version_min: &[1, 26], debian_package: "golang-go" },
    Tool { program: "openssl", word: "version", version_min: &[3], debian_package: "openssl" },
    Tool { program: "influxd", word: "version", version_min: &[1], debian_package: "influxdb" },
    Tool { program: "prometheus", word: "--version", version_min: &[2, 42], debian_package: "prometheus" },
    Tool {
        program: "prometheus-alertmanager",
        word: "--version",
        version_min: &[0, 25],
        debian_package: "prometheus-alertmanager",
    },
    Tool { program: CHROMIUM, word: "--version", version_min: &[100], debian_package: CHROMIUM },
];

/// The package of the reference server; `conformance/centrifugo` pins its version.
pub(crate) const CENTRIFUGO: &str = "github.com/centrifugal/centrifugo/v5";
/// The package of the NATS server; `conformance/nats` pins its version.
const NATS: &str = "github.com/nats-io/nats-server/v2";
/// Debian's package of PostgreSQL.
const POSTGRESQL: &str = "postgresql";
/// The checker of linearizability, once it is built.
pub(crate) const PORCUPINE_PROGRAM: &str = "conformance/go/bin/porcupine";
/// The NATS server, once it is built.
pub(crate) const NATS_PROGRAM: &str = "conformance/go/bin/nats-server";
/// Where that package puts its programs.
const POSTGRESQL_PROGRAMS: &str = "/usr/lib/postgresql";

/// A program, and its package. It does not print a version that could be compared.
const VICTORIA_METRICS: &str = "victoria-metrics";

/// Where Python's packages of the judges, and those of the step `openapi`, are installed.
const PYTHON_CLIENTS: [&str; 2] = ["conformance/python", "conformance/python-clients"];
const PYTHON_OPENAPI: [&str; 2] = ["conformance/openapi", "conformance/python"];

/// The step `install`: everything that the short proof needs.
pub(crate) fn install(workshop: &Workshop) -> Result<Built, Failure> {
    const STEP: &str = "install";
    let mut missing: Vec<String> = Vec::new();
    for (program, package, _) in TEST_TOOLS {
        if !debian_tool(workshop, STEP, program, package) {
            missing.push(format!("{program}: apt-get install {package}"));
        }
    }
    match judges(workshop, STEP) {
        Err(Failure::Missing(what)) => missing.push(what),
        ended => ended?,
    }
    openapi(workshop, STEP)?;
    porcupine(workshop, STEP)?;
    if missing.is_empty() { Ok(Built::default()) } else { Err(Failure::Missing(missing.join("; "))) }
}

/// What the step `conformance` needs.
pub(crate) fn judges(workshop: &Workshop, step: &str) -> Result<(), Failure> {
    need_tools(workshop, step, |_| true)?;
    if !debian_tool(workshop, step, VICTORIA_METRICS, VICTORIA_METRICS) {
        return Err(Failure::Missing(format!("{VICTORIA_METRICS} is needed: apt-get install {VICTORIA_METRICS}")));
    }
    if !Path::new(POSTGRESQL_PROGRAMS).is_dir() {
        debian_install(workshop, step, &[POSTGRESQL]);
    }
    if !Path::new(POSTGRESQL_PROGRAMS).is_dir() {
        return Err(Failure::Missing(format!("{POSTGRESQL} is needed: apt-get install {POSTGRESQL}")));
    }
    need_python(workshop, step)?;
    npm(workshop, step)?;
    for command in [
        maven(workshop),
        go(workshop, "go", "./..."),
        go(workshop, "centrifugo", CENTRIFUGO),
        go(workshop, "nats", NATS),
        go(workshop, "otel", "."),
    ] {
        run(workshop, step, command, |_| ())?;
    }
    let [pinned, built] = PYTHON_CLIENTS;
    environment(workshop, step, pinned, built)?;
    Ok(())
}

/// Python with the packages of the step `openapi`.
pub(crate) fn openapi(workshop: &Workshop, step: &str) -> Result<PathBuf, Failure> {
    need_python(workshop, step)?;
    let [pinned, built] = PYTHON_OPENAPI;
    Ok(environment(workshop, step, pinned, built)?)
}

/// Chromium, for pages.
pub(crate) fn chromium(workshop: &Workshop, step: &str) -> Result<(), Failure> {
    if debian_tool(workshop, step, CHROMIUM, CHROMIUM) {
        return Ok(());
    }
    Err(Failure::Missing(format!("{CHROMIUM} is needed: apt-get install {CHROMIUM}")))
}

/// Builds the checker of linearizability.
pub(crate) fn porcupine(workshop: &Workshop, step: &str) -> Result<(), Failure> {
    need_tools(workshop, step, |program| program == "go")?;
    Ok(run(workshop, step, go(workshop, "porcupine", "."), |_| ())?)
}

/// Builds the program `nats-server`.
pub(crate) fn nats_server(workshop: &Workshop, step: &str) -> Result<(), Failure> {
    need_tools(workshop, step, |program| program == "go")?;
    Ok(run(workshop, step, go(workshop, "nats", NATS), |_| ())?)
}

/// Fails if one of the [`TOOLS`] that are `wanted` is missing or too old.
pub(crate) fn need_tools(workshop: &Workshop, step: &str, wanted: fn(&str) -> bool) -> Result<(), Failure> {
    TOOLS.iter().filter(|tool| wanted(tool.program)).try_for_each(|tool| tool.need(workshop, step))
}

impl Tool {
    fn need(&self, workshop: &Workshop, step: &str) -> Result<(), Failure> {
        if self.version().is_none() {
            debian_tool(workshop, step, self.program, self.debian_package);
        }
        match self.version() {
            Some(version) if version.as_slice() >= self.version_min => Ok(()),
            found => {
                let found = found.map_or("none".to_owned(), |version| dotted(&version));
                let (program, version_min, package) = (self.program, dotted(self.version_min), self.debian_package);
                let needed = format!("{program} {version_min} or newer is needed, found {found} (Debian: {package})");
                Err(Failure::Missing(needed))
            }
        }
    }

    fn version(&self) -> Option<Vec<u32>> {
        let output = Command::new(self.program).arg(self.word).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| version(&String::from_utf8_lossy(&output.stdout)))?
    }
}

fn dotted(version: &[u32]) -> String {
    version.iter().map(u32::to_string).collect::<Vec<_>>().join(".")
}

/// The first two numbers of a version: `v20.20.2`, `javac 17.0.15`, `go version go1.26.8 linux/amd64`.
fn version(text: &str) -> Option<Vec<u32>> {
    let text: String = text.split('\u{1b}').map(without_colour).collect();
    let version = text.get(text.find(|c: char| c.is_ascii_digit())?..)?;
    version.splitn(3, '.').take(2).map(leading_number).collect()
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// The text behind an escape character, without the colour. Maven sets colours (`ESC[1m`) even without a terminal.
fn without_colour(piece: &str) -> &str {
    piece.strip_prefix('[').and_then(|rest| rest.split_once('m')).map_or(piece, |(_, rest)| rest)
}

/// Installs the npm packages if the pinned versions have changed.
pub(crate) fn npm(workshop: &Workshop, step: &str) -> Result<()> {
    let folder = workshop.root.join("conformance/js");
    let (pinned, installed) = (folder.join("package-lock.json"), folder.join("node_modules/installed.json"));
    if is_same(&installed, &pinned)? {
        return Ok(());
    }
    let mut command = Command::new("npm");
    command.arg("ci").current_dir(folder);
    run(workshop, step, command, |_| ())?;
    fs::copy(&pinned, &installed).context("cannot record what is installed")?; // Last, so that a failed installation is repeated.
    Ok(())
}

fn maven(workshop: &Workshop) -> Command {
    let mut command = Command::new("mvn");
    let (repository, built) = (workshop.built("conformance/maven"), workshop.built("conformance/java"));
    command.args(["--batch-mode", "--quiet", "compiler:compile", "dependency:copy-dependencies"]);
    command.arg(format!("-Dmaven.repo.local={}", repository.display())).arg(format!("-Dbuilt={}", built.display()));
    command.current_dir(workshop.root.join("conformance/java"));
    command
}

/// Builds programs of the module in a folder of `conformance`.
pub(crate) fn go(workshop: &Workshop, folder: &str, programs: &str) -> Command {
    go_as(workshop, folder, programs, "")
}

/// The same with another name for the one program.
pub(crate) fn go_as(workshop: &Workshop, folder: &str, programs: &str, name: &str) -> Command {
    let built = workshop.built("conformance/go");
    let mut command = Command::new("go");
    // Without -modcacherw the downloaded modules are read-only, and `target` could not be removed.
    command
        .args(["build", "-modcacherw", "-buildvcs=false", "-trimpath", "-o"])
        .arg(built.join("bin").join(name))
        .arg(programs);
    command.env("GOMODCACHE", built.join("modules")).env("GOCACHE", built.join("cache"));
    command.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    command.current_dir(workshop.root.join("conformance").join(folder));
    command
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_are_read() {
        let maven = "\u{1b}[1mApache Maven 3.8.7\u{1b}[m\nMaven home: /opt";
        let told =
            ["v20.20.2\n", "javac 17.0.15", maven, "go version go1.26.8", "InfluxDB v1.6.7~rc0 (git: unknown)", ""];
        let versions =
            [Some(vec![20, 20]), Some(vec![17, 0]), Some(vec![3, 8]), Some(vec![1, 26]), Some(vec![1, 6]), None];
        assert_eq!(told.map(version), versions);
        assert_eq!((version("go version go1 linux"), version("openssl 3")), (Some(vec![1]), Some(vec![3])));
    }
}
