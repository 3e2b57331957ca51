//! Porcupine, a checker of linearizability that others wrote (`conformance/porcupine`): whether there is an order of everything
//! that was asked and answered in which each publication gets the next offset, and each reader sees the last one.

use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use tidings_trial::ledger::Operation;
use tokio::time::Instant;

/// Fails if there is no such order. `PORCUPINE` names the program.
pub(crate) fn require_linearizable(history: &[Operation]) {
    let (is_right, told) = check(history);
    assert!(is_right, "{told}");
    let reads = history.iter().filter(|operation| operation.kind == "read").count();
    println!("  {} posts and {reads} reads are linearizable, Porcupine says", history.len() - reads);
}

fn check(history: &[Operation]) -> (bool, String) {
    let began = history.iter().map(|operation| operation.called).min().expect("something was asked");
    let nanos = |at: Instant| at.duration_since(began).as_nanos() as u64;
    let list = history.iter().map(|Operation { kind, called, returned, offset }| {
        json!({"kind": kind, "call": nanos(*called), "return": nanos(*returned), "offset": offset})
    });
    let list = serde_json::Value::from_iter(list).to_string();
    let program =
        std::env::var_os("PORCUPINE").expect("PORCUPINE names the checker, which `cargo xtask cluster` builds");
    let mut command = Command::new(program);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the checker starts");
    child.stdin.take().expect("it is piped").write_all(list.as_bytes()).expect("the checker reads");
    let output = child.wait_with_output().expect("the checker ends");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_checker_of_histories_of_a_cluster_finds_what_is_wrong() {
    let began = Instant::now();
    let at = |millis: u64| began + Duration::from_millis(millis);
    let operation =
        |kind, called, returned, offset| Operation { kind, called: at(called), returned: at(returned), offset };
    let (append, read) =
        (|c, r, offset| operation("append", c, r, offset), |c, r, offset| operation("read", c, r, offset));
    let right = [append(0, 9, 2), append(1, 5, 1), read(6, 7, 2), read(10, 11, 2)];
    assert!(check(&right).0);
    for (what, wrong) in [
        ("one place twice", vec![append(0, 2, 1), append(3, 4, 1)]),
        ("a gap", vec![append(0, 2, 1), append(3, 4, 3)]),
        ("in the wrong order", vec![append(0, 2, 2), append(3, 4, 1)]),
        ("a reader that does not see what was acknowledged", vec![append(0, 2, 1), read(3, 4, 0)]),
        ("a reader that goes back", vec![append(0, 9, 1), read(1, 2, 1), read(3, 4, 0)]),
    ] {
        assert!(!check(&wrong).0, "{what}");
    }
}
