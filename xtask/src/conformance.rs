//! The step `conformance`: judges that are not ours, against the release binary. What they judge stands in
//! `conformance/README.md`.
//!
//! They come from their registries with pinned versions: npm packages (`npm ci`), Pushy (Maven) and Go modules. What is
//! downloaded and built of the latter two lies in `target/conformance`, so that a second run takes seconds. Databases are
//! Debian's. The tests of all of them are Node's; those of other languages are small programs that tests start.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::Workshop;
use crate::command::{cargo, run};
use crate::report::{Failure, Tally};
use crate::steps::{BINARY, build_for, counted, debian_tool, start_log};

const STEP: &str = "conformance";
const BUILT: &str = "target/conformance";

/// A program without which a judge cannot be built or run.
struct Tool {
    program: &'static str,
    /// What makes it tell its version.
    word: &'static str,
    major_min: u32,
    /// Where Debian's is new enough.
    debian_package: Option<&'static str>,
}

const TOOLS: [Tool; 7] = [
    Tool { program: "node", word: "--version", major_min: 20, debian_package: None },
    Tool { program: "npm", word: "--version", major_min: 9, debian_package: None },
    Tool { program: "javac", word: "--version", major_min: 17, debian_package: Some("openjdk-17-jdk-headless") },
    Tool { program: "mvn", word: "--version", major_min: 3, debian_package: Some("maven") },
    Tool { program: "go", word: "version", major_min: 1, debian_package: None },
    Tool { program: "openssl", word: "version", major_min: 3, debian_package: Some("openssl") },
    Tool { program: "influxd", word: "version", major_min: 1, debian_package: Some("influxdb") },
];

/// Debian's does not tell its version, so there is nothing to compare: the program and its package.
const VICTORIA_METRICS: &str = "victoria-metrics";

pub(crate) fn conformance(workshop: &Workshop) -> Result<Tally, Failure> {
    start_log(workshop, STEP)?;
    TOOLS.iter().try_for_each(|tool| tool.need(workshop))?;
    if !debian_tool(workshop, STEP, VICTORIA_METRICS, VICTORIA_METRICS) {
        return Err(Failure::Missing(format!("{VICTORIA_METRICS} is needed: apt-get install {VICTORIA_METRICS}")));
    }
    build_for(workshop, STEP)?;
    // Encrypts what other programs decrypt.
    let encrypt = cargo(workshop, &["build", "--release", "-p", "tidings-push", "--example", "encrypt"]);
    run(workshop, STEP, encrypt, |_| ())?;
    for command in [npm(workshop), maven(workshop), go(workshop)] {
        run(workshop, STEP, command, |_| ())?;
    }
    let mut tests = Command::new("node");
    tests.args(["--test", "--test-force-exit", "--test-reporter=spec"]);
    tests.current_dir(workshop.root.join("conformance")).env("TIDINGS_BIN", workshop.root.join(BINARY));
    counted(workshop, STEP, tests, node_result)
}

impl Tool {
    fn need(&self, workshop: &Workshop) -> Result<(), Failure> {
        if self.major().is_none()
            && let Some(package) = self.debian_package
        {
            debian_tool(workshop, STEP, self.program, package);
        }
        match self.major() {
            Some(major) if major >= self.major_min => Ok(()),
            found => {
                let found = found.map_or("none".to_owned(), |major| major.to_string());
                let Self { program, major_min, .. } = self;
                Err(Failure::Missing(format!("{program} {major_min} or newer is needed, found {found}")))
            }
        }
    }

    fn major(&self) -> Option<u32> {
        let output = Command::new(self.program).arg(self.word).stderr(Stdio::null()).output().ok()?;
        output.status.success().then(|| major(&String::from_utf8_lossy(&output.stdout)))?
    }
}

/// The first number of a program's version: `v20.20.2`, `javac 17.0.15`, `go version go1.26.8 linux/amd64`.
fn major(text: &str) -> Option<u32> {
    let text: String = text.split('\u{1b}').map(without_colour).collect();
    let version = text.get(text.find(|c: char| c.is_ascii_digit())?..)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// What follows an escape character, less the colour: Maven sets colours (`ESC[1m`) even where there is no terminal.
fn without_colour(piece: &str) -> &str {
    piece.strip_prefix('[').and_then(|rest| rest.split_once('m')).map_or(piece, |(_, rest)| rest)
}

fn npm(workshop: &Workshop) -> Command {
    let mut command = Command::new("npm");
    command.arg("ci").current_dir(workshop.root.join("conformance/js"));
    command
}

fn maven(workshop: &Workshop) -> Command {
    let mut command = Command::new("mvn");
    let repository = workshop.root.join(BUILT).join("maven");
    command.args(["--batch-mode", "--quiet", "compiler:compile", "dependency:copy-dependencies"]);
    command.arg(format!("-Dmaven.repo.local={}", repository.display()));
    command.current_dir(workshop.root.join("conformance/java"));
    command
}

fn go(workshop: &Workshop) -> Command {
    let built = workshop.root.join(BUILT).join("go");
    let mut command = Command::new("go");
    // Without its flag the downloaded modules are read-only, and `target` could not be removed.
    command.args(["build", "-modcacherw", "-buildvcs=false", "-trimpath", "-o"]).arg(built.join("bin/")).arg("./...");
    command.env("GOMODCACHE", built.join("modules")).env("GOCACHE", built.join("cache"));
    command.env("GOTOOLCHAIN", "local").env("CGO_ENABLED", "0");
    command.current_dir(workshop.root.join("conformance/go"));
    command
}

/// `ℹ pass 12` and `ℹ fail 0`, or with `#` in front.
fn node_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?;
    let after = |word: &str| counts.strip_prefix(word)?.trim().parse().ok();
    after("pass ").map(|passed| (passed, 0)).or_else(|| after("fail ").map(|failed| (0, failed)))
}

#[cfg(test)]
mod tests {
    use super::{major, node_result};

    #[test]
    fn programs_tell_their_version() {
        let maven = "\u{1b}[1mApache Maven 3.8.7\u{1b}[m\nMaven home: /opt";
        let told =
            ["v20.20.2\n", "javac 17.0.15", maven, "go version go1.26.8", "InfluxDB v1.6.7~rc0 (git: unknown)", ""];
        assert_eq!(told.map(major), [Some(20), Some(17), Some(3), Some(1), Some(1), None]);
    }

    #[test]
    fn nodes_result_is_understood() {
        assert_eq!((node_result("ℹ pass 12"), node_result("# fail 3")), (Some((12, 0)), Some((0, 3))));
        assert_eq!((node_result("ℹ duration_ms 12"), node_result("pass 12")), (None, None));
    }
}
