//! The steps `conformance` and `conformance-long`: programs of others judge ours, each suite at least once in the short proof,
//! and all of it, against the release binary, in the long one. `conformance/README.md` says what they judge.
//!
//! All tests run in Node; programs in other languages are small and are started by tests. `install.rs` says where the judges come
//! from.

use std::process::Command;

use crate::compile::{Binary, Built, examples};
use crate::install;
use crate::step::{Failure, Tally};
use crate::tools::counted;
use crate::workshop::Workshop;

const STEP: &str = "conformance";
/// The step of the long proof.
const LONG: &str = "conformance-long";
/// Test files that run at the same time. They mostly wait.
pub(crate) const CONCURRENCY: &str = "--test-concurrency=4";

/// They encrypt notifications, make deltas and write PO files, which other programs undo or read.
const EXAMPLES: [&str; 3] = ["encrypt", "delta", "catalogues"];

/// The tests that also judge a server of a cluster that does not lead.
const OF_CLUSTER: [&str; 1] = ["js/sdk.test.mjs"];

/// Installs the judges, and builds what they judge.
pub(crate) fn build(workshop: &Workshop) -> Result<Built, Failure> {
    build_judged(workshop, Binary::Development)
}

/// The same for the step of the long proof.
pub(crate) fn build_long(workshop: &Workshop) -> Result<Built, Failure> {
    build_judged(workshop, Binary::Release)
}

fn build_judged(workshop: &Workshop, judged: Binary) -> Result<Built, Failure> {
    install::judges(workshop, STEP)?;
    examples(workshop, STEP, &EXAMPLES)?;
    Ok(judged.build(workshop, STEP)?)
}

/// Each suite, once.
pub(crate) fn conformance(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    counted(workshop, STEP, judges(workshop, built, &[]), node_result)
}

/// All suites, with their long parts; and those of a cluster against a server that does not lead.
pub(crate) fn long(workshop: &Workshop, built: &Built) -> Result<Tally, Failure> {
    let mut alone = judges(workshop, built, &[]);
    alone.env("JUDGE_LONG", "1");
    let alone = counted(workshop, LONG, alone, node_result)?;
    let mut beside = judges(workshop, built, &OF_CLUSTER);
    beside.env("CONFORMANCE_NODES", "2").env("NATS_SERVER", workshop.built(install::NATS_PROGRAM));
    let beside = counted(workshop, LONG, beside, node_result)?;
    Ok(Tally { passed: alone.passed + beside.passed, ..alone })
}

/// The tests in these files; in all, if none is named.
fn judges(workshop: &Workshop, built: &Built, files: &[&str]) -> Command {
    let mut tests = Command::new("node");
    tests.args(["--test", CONCURRENCY, "--test-force-exit", "--test-reporter=spec"]).args(files);
    tests.current_dir(workshop.root.join("conformance")).env("TIDINGS_BIN", &built.binary);
    tests
}

/// Reads `ℹ pass 12` and `ℹ fail 0`, also with `#` in front.
pub(crate) fn node_result(line: &str) -> Option<(usize, usize)> {
    let counts = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?;
    let after = |word: &str| counts.strip_prefix(word)?.trim().parse().ok();
    after("pass ").map(|passed| (passed, 0)).or_else(|| after("fail ").map(|failed| (0, failed)))
}

#[cfg(test)]
mod tests {
    use super::node_result;

    #[test]
    fn the_result_of_node_is_read() {
        assert_eq!((node_result("ℹ pass 12"), node_result("# fail 3")), (Some((12, 0)), Some((0, 3))));
        assert_eq!((node_result("ℹ duration_ms 12"), node_result("pass 12")), (None, None));
    }
}
