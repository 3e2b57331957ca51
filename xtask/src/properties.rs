//! The step `properties`: each property of the workspace in many more cases than the step `test` draws.
//!
//! A property is a function in a `proptest!` block. Its test program is started again and again for it alone, each time with
//! another seed ([`PROPERTY_SEED`]), until [`CASES`] cases were drawn or its time is over, whichever comes first:
//! [`SECONDS`], or what `TIDINGS_PROPERTY_SECONDS` says. A property that fails is not drawn from further; the report says with
//! which seed it failed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::command::{start_log, stopwatch};
use crate::compile::{Built, Program};
use crate::programs::PROPERTY_SEED;
use crate::step::{Failure, Tally};
use crate::tools::side_by_side;
use crate::workshop::Workshop;

const STEP: &str = "properties";
/// What is drawn of each property at most.
const CASES: u64 = 100_000;
/// What proptest draws of a property that does not say how many.
const CASES_BY_DEFAULT: u64 = 256;
const SECONDS: u64 = 20;
const SECONDS_VARIABLE: &str = "TIDINGS_PROPERTY_SECONDS";
/// The step `test` has the first.
const FIRST_SEED: u64 = 2;

/// One property, and the program that has it.
struct Property<'a> {
    program: &'a Program,
    /// The name of its test, with its modules.
    test: String,
    /// How many cases one run draws.
    cases: u64,
}

/// What came of a property.
struct Drawn {
    cases: u64,
    failure: Option<String>,
}

/// Draws from all properties.
pub(crate) fn properties(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    let seconds = match std::env::var(SECONDS_VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{SECONDS_VARIABLE} is a number of seconds"))?,
        Err(_) => SECONDS,
    };
    let all = all(built)?;
    println!("    {} properties, each for {CASES} cases or {seconds} s", all.len());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let ends = side_by_side(cores, all, |property| {
        let drawn = property.draw(workshop, Duration::from_secs(seconds));
        let name = format!("{}::{}", property.program.name, property.test);
        drawn.map(|drawn| (name, drawn))
    });
    let (mut passed, mut broken) = (0, Vec::new());
    for end in ends {
        let (name, Drawn { cases, failure }) = end?;
        println!("    {name}: {cases} cases");
        match failure {
            None => passed += 1,
            Some(failure) => broken.push(format!("{name}: {failure}")),
        }
    }
    if broken.is_empty() {
        return Ok(Tally { passed, skipped: Vec::new() });
    }
    Err(Failure::Failed { error: anyhow!("{}", broken.join("\n    ")), passed, failed: broken.len() })
}

/// The properties of all test programs. Each that the sources name must be in a program.
fn all(built: &Built) -> Result<Vec<Property<'_>>> {
    let mut all = Vec::new();
    for program in &built.programs {
        let folder = program.folder.join(if program.is_integration { "tests" } else { "src" });
        let mut named = BTreeMap::new();
        named_in(&folder, &mut named)?;
        all.extend(listed(program)?.into_iter().filter_map(|test| {
            let cases = *named.get(test.rsplit("::").next()?)?;
            Some(Property { program, test, cases })
        }));
    }
    ensure!(!all.is_empty(), "no property was found");
    Ok(all)
}

/// The names of the tests in a program.
fn listed(program: &Program) -> Result<Vec<String>> {
    let output = program.command().args(["--list", "--format", "terse"]).output().context("cannot list the tests")?;
    let told = String::from_utf8_lossy(&output.stdout);
    Ok(told.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The properties in the files below a folder, with the cases of one run.
fn named_in(folder: &Path, named: &mut BTreeMap<String, u64>) -> Result<()> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            named_in(&path, named)?;
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            named.extend(properties_of(&fs::read_to_string(&path).with_context(|| path.display().to_string())?));
        }
    }
    Ok(())
}

/// The functions in the `proptest!` blocks of a source file. A block ends with a line that begins no deeper than it.
fn properties_of(source: &str) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    let mut block: Option<(usize, u64)> = None;
    for line in source.lines() {
        let text = line.trim_start();
        let depth = line.len() - text.len();
        if text.starts_with("proptest! {") || text.starts_with("proptest::proptest! {") {
            block = Some((depth, CASES_BY_DEFAULT));
        } else if let Some((at, cases)) = &mut block {
            if depth <= *at && text.starts_with('}') {
                block = None;
            } else if let Some(count) = cases_of(text) {
                *cases = count;
            } else if let Some(name) = text.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) {
                found.push((name.to_owned(), *cases));
            }
        }
    }
    found
}

/// `cases: 500`, or `with_cases(500)`, in a line.
fn cases_of(line: &str) -> Option<u64> {
    let rest = line.split_once("with_cases(").or_else(|| line.split_once("cases: "))?.1;
    let digits = |text: &str| text.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty())?.parse().ok();
    // `if cfg!(miri) { 2 } else { 512 }`: the last number is ours.
    digits(&rest.split_once("else {").map_or(rest, |(_, rest)| rest).replace('_', ""))
}

impl Property<'_> {
    fn draw(&self, workshop: &Workshop, time: Duration) -> Result<Drawn> {
        let watch = stopwatch();
        let (mut drawn, mut seed) = (Drawn { cases: 0, failure: None }, FIRST_SEED);
        while drawn.cases < CASES && watch.elapsed() < time && drawn.failure.is_none() {
            let mut command = self.command();
            command.env(PROPERTY_SEED, seed.to_string()).stdin(Stdio::null());
            let output = command.output().with_context(|| format!("{} cannot be started", self.program.name))?;
            if !output.status.success() {
                drawn.failure = Some(self.tell(workshop, seed, &output.stdout)?);
            }
            drawn.cases += self.cases;
            seed += 1;
        }
        Ok(drawn)
    }

    /// Keeps what a failed run said, and says where.
    fn tell(&self, workshop: &Workshop, seed: u64, said: &[u8]) -> Result<String> {
        let log = format!("{STEP}-{}-{}", self.program.name, self.test.replace("::", "-"));
        start_log(workshop, &log)?;
        let path = format!("xtask/{log}.log");
        fs::write(workshop.built(&path), said).context("cannot write the log")?;
        Ok(format!("fails with {PROPERTY_SEED}={seed}: {}", workshop.target.join(path).display()))
    }

    fn command(&self) -> Command {
        let mut command = self.program.command();
        command.args(["--exact", &self.test]);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::{cases_of, properties_of};

    #[test]
    fn properties_are_found_with_their_cases() {
        let source = "fn no() {}\nproptest! {\n    #[test]\n    fn first(a in 0..1) {\n    }\n}\nfn neither() {}\n\
            mod deeper {\n    proptest! {\n        #![proptest_config(ProptestConfig::with_cases(32))]\n\n        \
            fn second(\n            a in 0..1,\n        ) {\n        }\n    }\n}\n";
        assert_eq!(properties_of(source), [("first".to_owned(), 256), ("second".to_owned(), 32)]);
    }

    #[test]
    fn cases_are_read() {
        let lines = [
            "#![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]",
            "#![proptest_config(ProptestConfig { cases: if cfg!(miri) { 2 } else { 512 }, ..Default::default() })]",
            "cases: if cfg!(miri) { 4 } else { 2_000 },",
            "fn x() {",
        ];
        assert_eq!(lines.map(cases_of), [Some(500), Some(512), Some(2000), None]);
    }
}
