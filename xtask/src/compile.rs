//! What cargo compiles for the steps, and how often. The short proof has one graph of the dependencies, and a small one for the
//! fuzzers; the long proof has that of the release, too.
//!
//! - *Development*: the tests, the campaigns and the examples. Our own crates are compiled by `clippy-driver` in the place of
//!   `rustc` (cargo's `RUSTC_WORKSPACE_WRAPPER`, as `cargo clippy` itself does it), so that the lints cost no graph of their own:
//!   each crate is read once, its lints are told, and it becomes a program. In the short proof the judges judge this program.
//! - *Release*: the program that ships, which the judges of the long proof judge. Decisions 0047 and 0049 have the measurements.
//!
//! Test programs are started here, not by cargo: cargo would wait for the lock of a build that goes on beside them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::command::{cargo, run};
use crate::workshop::{Scope, Workshop};

/// Which program judges judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binary {
    /// Without optimisations, with every check: it is there as soon as the tests are.
    Development,
    /// The one that ships.
    Release,
}

impl Binary {
    /// In cargo's target folder.
    const fn path(self) -> &'static str {
        match self {
            Self::Development => "debug/tidings",
            Self::Release => "release/tidings",
        }
    }

    pub(crate) fn of(self, workshop: &Workshop) -> PathBuf {
        workshop.built(self.path())
    }

    /// Builds it. Takes a second if it is built already.
    pub(crate) fn build(self, workshop: &Workshop, step: &str) -> Result<Built> {
        match self {
            // A test of its crate brings the program with it, with the features that all tests need.
            Self::Development => drop(campaigns(workshop, step, &[WITH_PROGRAM])?),
            Self::Release => run(workshop, step, cargo(workshop, &["build", "--release", "-p", "tidings"]), |_| ())?,
        }
        Ok(Built { binary: self.of(workshop), ..Built::default() })
    }
}

/// A small test program of the crate `tidings`.
const WITH_PROGRAM: &str = "demo";

/// Test programs that are steps of their own: their targets say `test = false` in Cargo.toml, so a plain `cargo test` leaves
/// them out.
pub(crate) const CAMPAIGNS: [&str; 7] = ["features", "crash", "abuse", "soak", "slow", "nats", "cluster"];

/// What a step has built, for its run.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Built {
    pub(crate) programs: Vec<Program>,
    /// What the lints said, as cargo shows it.
    pub(crate) complaints: Vec<String>,
    /// The program that is judged.
    pub(crate) binary: PathBuf,
}

impl Built {
    /// The campaign with this name.
    pub(crate) fn campaign(&self, name: &str) -> Result<&Program> {
        let campaign = self.programs.iter().find(|program| program.target == name && program.is_integration);
        campaign.with_context(|| format!("cargo named no test program {name}"))
    }
}

/// A test program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) executable: PathBuf,
    /// The folder of its crate, in which tests run.
    pub(crate) folder: PathBuf,
    /// The name of its log: `gateway-it`, or `gateway` for the unit tests of a crate.
    pub(crate) name: String,
    /// Cargo's name of it, such as `it`.
    pub(crate) target: String,
    pub(crate) is_integration: bool,
}

impl Program {
    /// The program as a command, as cargo would start it.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Cargo in the development graph: with the lints, and with the features that all packages of the workspace need together.
pub(crate) fn linting_cargo(workshop: &Workshop, words: &[&str]) -> Command {
    let mut command = cargo(workshop, words);
    if let Some(driver) = clippy_driver(&workshop.root) {
        // An empty CLIPPY_ARGS is what `cargo clippy` sets when it is called without options.
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", "");
    }
    command
}

/// `clippy-driver` beside the compiler; `None` without the component, and then the step `lint` fails.
pub(crate) fn clippy_driver(root: &Path) -> Option<&'static Path> {
    static DRIVER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let output = Command::new("rustc").args(["--print", "sysroot"]).current_dir(root).output().ok()?;
        let driver = Path::new(String::from_utf8_lossy(&output.stdout).trim()).join("bin/clippy-driver");
        driver.exists().then_some(driver)
    };
    DRIVER.get_or_init(find).as_deref()
}

/// Compiles all tests, examples and campaigns, and keeps what the lints say.
pub(crate) fn everything(workshop: &Workshop, step: &str) -> Result<Built> {
    let mut built = tests(workshop, step, &workshop.scope.words())?;
    if workshop.scope == Scope::All {
        // Cargo leaves out targets with `test = false` if they are named beside others.
        let campaigns = campaigns(workshop, step, &CAMPAIGNS)?;
        built.complaints.extend(campaigns.complaints);
    }
    Ok(built)
}

/// Compiles the test programs of these packages, the slow ones first.
pub(crate) fn tests(workshop: &Workshop, step: &str, packages: &[&str]) -> Result<Built> {
    let kinds: &[&str] = if workshop.scope == Scope::Units { &["--lib", "--bins"] } else { &[] };
    let mut built = compile(workshop, step, &[&["test", "--no-run"], kinds, packages].concat())?;
    ensure!(!built.programs.is_empty(), "cargo named no test program");
    built.programs.sort_by_key(|program| !program.is_integration);
    Ok(built)
}

/// Compiles these campaigns, as part of the whole workspace: then they share all that the tests have compiled, and features
/// for tests stay out of the release binary.
pub(crate) fn campaigns(workshop: &Workshop, step: &str, names: &[&str]) -> Result<Built> {
    let named: Vec<&str> = names.iter().flat_map(|name| ["--test", name]).collect();
    compile(workshop, step, &[&["test", "--no-run", "--workspace"][..], &named].concat())
}

/// Compiles these examples, with which judges read what we write.
pub(crate) fn examples(workshop: &Workshop, step: &str, names: &[&str]) -> Result<()> {
    let named: Vec<&str> = names.iter().flat_map(|name| ["--example", name]).collect();
    compile(workshop, step, &[&["build", "--workspace"][..], &named].concat()).map(drop)
}

/// Runs cargo in the development graph and reads its messages.
fn compile(workshop: &Workshop, step: &str, words: &[&str]) -> Result<Built> {
    let mut command = linting_cargo(workshop, words);
    command.args(["--message-format", "json-diagnostic-rendered-ansi", "--quiet"]);
    let built = RefCell::new(Built::default());
    let ended = run(workshop, step, command, |line| match serde_json::from_str(line) {
        Ok(Message::Built(artifact)) => built.borrow_mut().programs.extend(artifact.program()),
        Ok(Message::Said { message }) => built.borrow_mut().complaints.extend(message.complaint()),
        Ok(Message::Other) | Err(_) => {}
    });
    let built = built.into_inner();
    if let Err(error) = ended {
        built.complaints.iter().for_each(|complaint| println!("{complaint}"));
        return Err(error);
    }
    Ok(built)
}

/// A line of cargo.
#[derive(Deserialize)]
#[serde(tag = "reason")]
enum Message {
    #[serde(rename = "compiler-artifact")]
    Built(Artifact),
    #[serde(rename = "compiler-message")]
    Said { message: Diagnostic },
    #[serde(other)]
    Other,
}

/// Something that cargo has built.
#[derive(Deserialize)]
struct Artifact {
    executable: Option<PathBuf>,
    manifest_path: PathBuf,
    profile: Profile,
    target: Target,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// What the compiler, or a lint, says.
#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
}

impl Diagnostic {
    /// A warning or an error as the compiler shows it.
    fn complaint(self) -> Option<String> {
        let is_complaint = ["warning", "error", "error: internal compiler error"].contains(&self.level.as_str());
        // The last line of each target only counts what came before.
        self.rendered
            .filter(|text| is_complaint && !text.contains("warnings emitted") && !text.contains("warning emitted"))
    }
}

impl Artifact {
    /// The test program that this is; `None` of anything else.
    fn program(self) -> Option<Program> {
        let Self { executable, manifest_path, profile, target } = self;
        let (executable, folder) = (executable.filter(|_| profile.test)?, manifest_path.parent()?);
        let of = folder.file_name().map(Path::new)?.display();
        let is_integration = target.kind.iter().any(|kind| kind == "test");
        let name = if is_integration { format!("{of}-{}", target.name) } else { of.to_string() };
        Some(Program { executable, folder: folder.to_owned(), name, target: target.name, is_integration })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Message, Program};

    fn program(line: &str) -> Option<Program> {
        match serde_json::from_str(line).ok()? {
            Message::Built(artifact) => artifact.program(),
            Message::Said { .. } | Message::Other => None,
        }
    }

    #[test]
    fn test_programs_are_read_from_cargo() {
        let line = |test: bool, kind: &str| {
            json!({
                "reason": "compiler-artifact", "manifest_path": "/t/crates/store/Cargo.toml", "executable": "/t/target/it-1",
                "profile": {"test": test}, "target": {"name": "it", "kind": [kind]},
            })
            .to_string()
        };
        let expected = |name: &str, is_integration| Program {
            executable: "/t/target/it-1".into(),
            folder: "/t/crates/store".into(),
            name: name.to_owned(),
            target: "it".to_owned(),
            is_integration,
        };
        assert_eq!(program(&line(true, "test")), Some(expected("store-it", true)));
        assert_eq!(program(&line(true, "lib")), Some(expected("store", false)));
        assert_eq!((program(&line(false, "bin")), program(r#"{"reason":"build-finished"}"#)), (None, None));
    }

    #[test]
    fn complaints_are_read_from_cargo() {
        let complaint = |level: &str, rendered: &str| {
            let line =
                json!({"reason": "compiler-message", "message": {"level": level, "rendered": rendered}}).to_string();
            match serde_json::from_str(&line).unwrap() {
                Message::Said { message } => message.complaint(),
                _ => None,
            }
        };
        assert_eq!(complaint("warning", "warning: unused"), Some("warning: unused".to_owned()));
        assert_eq!(complaint("error", "error: no"), Some("error: no".to_owned()));
        assert_eq!((complaint("note", "note: x"), complaint("warning", "warning: 2 warnings emitted")), (None, None));
    }
}
