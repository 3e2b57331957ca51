//! The step `conformance`: programs of others judge the release binary. `conformance/README.md` says what they judge.
//!
//! They come from their registries with pinned versions: npm packages (`npm ci`), Maven packages (Pushy, Centrifugo's Java
//! SDK), Python packages (Centrifugo's libraries) and Go modules (among them Centrifugo itself). Maven, Go and Python
//! download and build into `target/conformance`, so a second run takes seconds. The databases and Chromium are Debian packages. All tests run in Node; programs in other languages are
//! small and are started by tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::command::{cargo, run};
use crate::python::{environment, need_python};
use crate::report::{Failure, Tally};
use crate::tools::{BINARY, CHROMIUM, build_for, cargo_result, counted, debian_install, debian_tool, is_same};
use crate::workshop::Workshop;

const STEP: &str = "conformance";
/// Test files that run at the same time. They mostly wait.
pub(crate) const CONCURRENCY: &str = "--test-concurrency=4";

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

/// The tests that also judge a server of a cluster that does not lead.
const OF_CLUSTER: [&str; 1] = ["js/sdk.test.mjs"];
/// The package of the reference server; `conformance/centrifugo` pins its version.
pub(crate) const CENTRIFUGO: &str = "github.com/centrifugal/centrifugo/v5";
/// The package of the NATS server; `conformance/nats` pins its version.
const NATS: &str = "github.com/nats-io/nats-server/v2";
/// Debian's package of PostgreSQL.
const POSTGRESQL: &str = "postgresql";
/// Where that package puts its programs.
const POSTGRESQL_PROGRAMS: &str = "/usr/lib/postgresql";

/// A program, and its package. It does not print a version that could be compared.
const VICTORIA_METRICS: &str = "victoria-metrics";

pub(crate) fn conformance(workshop: &Workshop) -> Result<Tally, Failure> {
    need_tools(workshop, STEP, |_| true)?;
    if !debian_tool(workshop, STEP, VICTORIA_METRICS, VICTORIA_METRICS) {
        return Err(Failure::Missing(format!("{VICTORIA_METRICS} is needed: apt-get install {VICTORIA_METRICS}")));
    }
    if !Path::new(POSTGRESQL_PROGRAMS).is_dir() {
        debian_install(workshop, STEP, &[POSTGRESQL]);
    }
    if !Path::new(POSTGRESQL_PROGRAMS).is_dir() {
        return Err(Failure::Missing(format!("{POSTGRESQL} is needed: apt-get install {POSTGRESQL}")));
    }
    need_python(workshop, STEP)?;
    build_for(workshop, STEP)?;
    // They encrypt notifications, make deltas and write PO files, which other programs undo or read. The step `test` has
    // built them.
    let examples = ["--example", "encrypt", "--example", "delta", "--example", "catalogues"];
    let examples = cargo(workshop, &[&["build", "--workspace"][..], &examples].concat());
    run(workshop, STEP, examples, |_| ())?;
    npm(workshop, STEP)?;
    for command in [
        maven(workshop),
        go(workshop, "go", "./..."),
        go(workshop, "centrifugo", CENTRIFUGO),
        go(workshop, "nats", NATS),
        go(workshop, "otel", "."),
    ] {
        run(workshop, STEP, command, |_| ())?;
    }
    environment(workshop, STEP, "conformance/python", "conformance/python-clients")?;
    let alone = counted(workshop, STEP, judges(workshop, &[]), node_result)?;
    let mut beside = judges(workshop, &OF_CLUSTER);
    beside.env("CONFORMANCE_NODES", "2").env("NATS_SERVER", workshop.built("conformance/go/bin/nats-server"));
    let beside = counted(workshop, STEP, beside, node_result)?;
    Ok(Tally { passed: alone.passed + beside.passed, ..alone })
}

/// The tests in these files; in all, if none is named.
fn judges(workshop: &Workshop, files: &[&str]) -> Command {
    let mut tests = Command::new("node");
    tests.args(["--test", CONCURRENCY, "--test-force-exit", "--test-reporter=spec"]).args(files);
    tests.current_dir(workshop.root.join("conformance")).env("TIDINGS_BIN", workshop.built(BINARY));
    tests
}

/// The step `cluster`: the demo of a cluster, nodes on real NATS servers (`crates/cluster/tests/nats.rs`), servers and faults
/// (`crates/tidings/tests/cluster.rs`), and the crash campaign against a cluster of three servers.
pub(crate) fn cluster(workshop: &Workshop) -> Result<Tally, Failure> {
    const STEP: &str = "cluster";
    const CAMPAIGN: &str = "nothing_acknowledged_is_lost_when_the_server_is_killed";
    let nats = nats_server(workshop, STEP)?;
    build_for(workshop, STEP)?;
    let mut demo = Command::new(workshop.built(BINARY));
    demo.args(["demo", "--nodes", "3", "--once", "--json"]).env("TIDINGS_NATS_SERVER", &nats);
    run(workshop, STEP, demo, |_| ())?;
    let mut tests = cargo(workshop, &["test", "--workspace", "--test", "nats", "--test", "cluster", "--test", "crash"]);
    tests.args(["--", "--nocapture", "broker", "cluster", "serving", CAMPAIGN]);
    tests.env("NATS_SERVER", nats).env("TIDINGS_BIN", workshop.built(BINARY));
    run(workshop, STEP, go(workshop, "porcupine", "."), |_| ())?;
    tests.env("PORCUPINE", workshop.built("conformance/go/bin/porcupine"));
    counted(workshop, STEP, tests, cargo_result)
}

/// Builds the program `nats-server`, and says where it is.
pub(crate) fn nats_server(workshop: &Workshop, step: &str) -> Result<PathBuf, Failure> {
    need_tools(workshop, step, |program| program == "go")?;
    run(workshop, step, go(workshop, "nats", NATS), |_| ())?;
    Ok(workshop.built("conformance/go/bin/nats-server"))
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

/// Reads `ℹ pass 12` and `ℹ fail 0`, also with `#` in front.
pub(crate) fn node_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?;
    let after = |word: &str| counts.strip_prefix(word)?.trim().parse().ok();
    after("pass ").map(|passed| (passed, 0)).or_else(|| after("fail ").map(|failed| (0, failed)))
}

#[cfg(test)]
mod tests {
    use super::{node_result, version};

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

    #[test]
    fn the_result_of_node_is_read() {
        assert_eq!((node_result("ℹ pass 12"), node_result("# fail 3")), (Some((12, 0)), Some((0, 3))));
        assert_eq!((node_result("ℹ duration_ms 12"), node_result("pass 12")), (None, None));
    }
}
