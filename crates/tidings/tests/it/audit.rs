//! The audit log of the real program: `tidings audit`, a reload, `kill -9`, and a line that was cut off.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use crate::program::{PATIENCE, Running, Server, place, run, text, tidings};

const TOKEN: &str = "00000000000000a1";

/// The entries that `tidings audit` prints with these words, newest first.
fn entries(dir: &Path, words: &str) -> Vec<Value> {
    let output = run(&format!("audit --json {words}"), dir);
    assert!(output.status.success(), "{output:?}");
    let page: Value = serde_json::from_slice(&output.stdout).unwrap();
    page["entries"].as_array().unwrap().clone()
}

/// Waits until the newest entry is of this action: entries reach the file a moment after the answer.
fn until(dir: &Path, action: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let newest = entries(dir, "--limit 1").into_iter().next();
        if let Some(newest) = newest.filter(|newest| newest["action"] == action) {
            return newest;
        }
        assert!(Instant::now() < deadline, "never {action}: {:?}", entries(dir, ""));
    }
}

#[test]
fn it_tells_who_did_what_also_after_a_kill_and_has_no_secret() {
    let dir = place();
    let dir = dir.path();
    let mut server = Server::start(dir);
    until(dir, "server.start");
    let done = |words: &str| assert!(run(words, dir).status.success(), "{words}");
    done("jobs pause topic:goal");
    done(&format!("devices register phone-1 --app com.example.app --locale en --token {TOKEN}"));
    done("users erase u-1 --yes");
    let erased = until(dir, "user.erase");
    assert_eq!((&erased["who"], &erased["ids"][0], &erased["devices"]), (&"admin".into(), &"u-1".into(), &0.into()));
    assert!(!run("jobs resume topic:gaol", dir).status.success());
    assert_eq!(until(dir, "brake.release")["result"], 404);
    server.process.signal(Signal::HUP);
    let reload = until(dir, "config.reload");
    assert_eq!((&reload["by"], &reload["result"]), (&"system".into(), &200.into()));

    let mut follow = tidings(["audit", "--follow", "--limit", "1"], dir).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    let _follow = Running(follow);
    assert!(lines.next().unwrap().contains("config.reload"));
    done("jobs resume topic:goal");
    assert!(lines.next().unwrap().contains("brake.release"), "what is new");
    let before = entries(dir, "");
    server.process.signal(Signal::KILL);
    server.process.end();

    let file = dir.join("data/audit/00000001.ndjson");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(dir.join("data/api-key")).unwrap();
    let told = fs::read_to_string(&file).unwrap();
    assert!(!told.contains(TOKEN) && !told.contains(&key), "{told}");
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"{\"at\":\"2026").unwrap();
    let mut server = Server::start(dir);
    until(dir, "server.start");
    let after = entries(dir, "");
    assert_eq!(after[1..], before, "nothing that was in the file is missing");
    let shown = run("audit", dir);
    assert!(text(&shown.stdout).lines().nth(1).unwrap().contains("server.start"), "{shown:?}");
    assert!(text(&shown.stderr).contains("1 lines of the log cannot be read"), "{shown:?}");
    let actions: Vec<_> = entries(dir, "--who admin").iter().rev().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["brake.set", "device.put", "user.erase", "brake.release", "brake.release"]);
    server.stop();
    let last = fs::read_to_string(&file).unwrap();
    assert!(last.lines().last().unwrap().contains("server.stop"), "{last}");
}
