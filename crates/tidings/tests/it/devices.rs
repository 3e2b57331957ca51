//! `tidings devices` and `tidings users` against a server: many devices in and out, mutes, looking up, forgetting.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Output, Stdio};
use std::thread;

use serde_json::{Value, json};

use crate::program::{Server, place, text, tidings};

fn run(words: &[&str], dir: &Path, input: &str) -> Output {
    let mut command = tidings(words, dir);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    let writer = thread::spawn(move || _ = stdin.write_all(input.as_bytes())); // It may not read all of it.
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// What a command that must succeed prints.
fn done_with(words: &[&str], dir: &Path, input: &str) -> String {
    let output = run(words, dir, input);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", text(&output.stderr));
    text(&output.stdout).trim_end().to_owned()
}

fn done(words: &[&str], dir: &Path) -> String {
    done_with(words, dir, "")
}

/// What a command says that must fail.
fn failed(words: &[&str], dir: &Path, input: &str) -> String {
    let output = run(words, dir, input);
    assert_eq!(output.status.code(), Some(1), "{words:?}: {}", text(&output.stdout));
    text(&output.stderr).to_owned()
}

fn devices(range: std::ops::Range<usize>) -> String {
    let line = |number: usize| {
        let subscriptions = json!([{"subject": format!("team:{}", number % 7), "topics": ["goal"]}]);
        json!({
            "id": format!("d-{number:05}"), "platform": "android", "token": format!("token-{number}"),
            "app": "com.example.app", "locale": "sv", "user": format!("user-{}", number / 2),
            "country": if number.is_multiple_of(2) { "SE" } else { "NO" }, "subscriptions": subscriptions,
        })
    };
    range.map(|number| format!("{}\n", line(number))).collect()
}

#[test]
fn devices_move_from_one_server_to_another() {
    let (old, new) = (place(), place());
    let _servers = (Server::start(old.path()), Server::start(new.path()));
    fs::write(old.path().join("devices.ndjson"), devices(0..1200)).unwrap();
    let said = done(&["devices", "import", "devices.ndjson", "--name", "first"], old.path());
    assert_eq!(said, "1200 lines done: 1200 devices new, 0 known, 1200 subscriptions new, 0 lines wrong");
    fs::write(old.path().join("out.ndjson"), "from before").unwrap(); // Which others may read.
    done(&["devices", "export", "--out", "out.ndjson"], old.path());
    let (file, permissions) = (old.path().join("out.ndjson"), |path| fs::metadata(path).unwrap().permissions().mode());
    assert_eq!(permissions(&file) & 0o777, 0o600, "it holds tokens");
    let names = fs::read_dir(old.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(names.filter(|name| name.ends_with(".part")).count(), 0);
    let exported = fs::read_to_string(&file).unwrap();
    assert_eq!(exported.lines().count(), 1200);
    let said = done_with(&["devices", "import", "-"], new.path(), &exported);
    assert!(said.starts_with("1200 lines done: 1200 devices new"), "{said}");
    assert!(done(&["devices", "export"], new.path()) == exported.trim_end(), "another export");
    let swedish = done(&["devices", "export", "--selector", "country = SE"], new.path());
    assert_eq!(swedish.lines().count(), 600);
    // The same name again is the same import.
    let again = run(&["devices", "import", "devices.ndjson", "--name", "first"], old.path(), "");
    assert!(text(&again.stderr).contains("1200 lines of the import first are done"), "{}", text(&again.stderr));
    fs::write(old.path().join("other.ndjson"), devices(0..3)).unwrap();
    let other = run(&["devices", "import", "other.ndjson", "--name", "first"], old.path(), "");
    assert_eq!(other.status.code(), Some(2));
    assert!(text(&other.stderr).contains("does this --name belong to another file?"), "{}", text(&other.stderr));
}

#[test]
fn a_wrong_line_is_named() {
    let place = place();
    let _server = Server::start(place.path());
    let input = devices(0..2) + "{\"id\": 7}\n" + &devices(2..4);
    let said = failed(&["devices", "import", "-"], place.path(), &input);
    assert!(said.contains("line 3: id: must be text, got a number; 2 lines done: 2 devices new"), "{said}");
    // Far more than any buffer behind it, and the answer still comes through.
    let long = "{\"id\": 7}\n".to_owned() + &devices(0..40_000);
    let said = failed(&["devices", "import", "-"], place.path(), &long);
    assert!(said.contains("line 1: id: must be text"), "{said}");
    let output = run(&["devices", "import", "-", "--on-error", "skip"], place.path(), &input);
    assert!(text(&output.stderr).contains("line 3: id: must be text"), "{}", text(&output.stderr));
    let said = text(&output.stdout).trim_end();
    assert_eq!(said, "5 lines done: 2 devices new, 2 known, 2 subscriptions new, 1 lines wrong");
    let told = done_with(&["devices", "import", "-", "--json"], place.path(), &devices(0..1));
    let last: Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["updated"]), (&json!(true), &json!(1)));
}

/// The command goes on by itself when the server that was killed is back, and leaves out nothing.
#[test]
fn an_import_goes_on_when_the_server_was_killed() {
    for name in [&["--name", "big"][..], &[]] {
        let place = place();
        let server = Server::start(place.path());
        let all = devices(0..5000);
        fs::write(place.path().join("devices.ndjson"), &all).unwrap();
        let words = [&["devices", "import", "devices.ndjson", "--json"], name].concat();
        let mut importing =
            tidings(&words, place.path()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut told = BufReader::new(importing.stdout.take().unwrap()).lines();
        let first: Value = serde_json::from_str(&told.next().unwrap().unwrap()).unwrap();
        assert!(first["lines"].as_u64().unwrap() >= 1000, "{first}");
        drop(server); // kill -9
        let _server = Server::start(place.path());
        let last: Value = serde_json::from_str(&told.last().unwrap().unwrap()).unwrap();
        assert_eq!((&last["done"], &last["lines"]), (&json!(true), &json!(5000)), "{last}");
        assert!(importing.wait().unwrap().success());
        let ids: Vec<String> = done(&["devices", "export"], place.path()).lines().map(str::to_owned).collect();
        let id = |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].clone();
        assert!(ids.iter().map(|line| id(line)).eq(all.lines().map(id)), "exactly the same devices");
    }
}

#[test]
fn a_device_is_muted_found_and_forgotten_with_its_user() {
    let place = place();
    let _server = Server::start(place.path());
    let dir = place.path();
    done_with(&["devices", "import", "-"], dir, &devices(0..3));
    assert_eq!(done(&["devices", "mutes", "d-00000"], dir), "nothing muted");
    assert_eq!(done(&["devices", "mute", "d-00000", "--subject", "team:0"], dir), "muted team:0");
    let said = done(&["devices", "mute", "d-00000", "--for", "8h"], dir);
    assert!(said.starts_with("muted everything until 2"), "{said}");
    let said = done(&["devices", "mute", "d-00000", "--until", "2099-01-01T00:00:00Z"], dir);
    assert_eq!(said, "muted everything until 2099-01-01T00:00:00.000Z");
    let listed = done(&["devices", "mutes", "d-00000"], dir);
    let rows: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows, [["SCOPE", "UNTIL"], ["everything", "2099-01-01T00:00:00.000Z"], ["team:0", "–"]]);
    assert_eq!(done(&["devices", "unmute", "d-00000"], dir), "unmuted d-00000");
    assert!(failed(&["devices", "unmute", "d-00000"], dir, "").contains("has not muted everything"));

    let found = done_with(&["devices", "find", "--platform", "android"], dir, "token-1\n");
    assert!(found.starts_with("id           d-00001"), "{found}");
    let unknown = failed(&["devices", "find", "--platform", "android"], dir, "secret-token");
    assert!(unknown.contains("404") && !unknown.contains("secret-token"), "{unknown}");
    let listed = done(&["devices", "list", "--user", "user-0"], dir);
    assert_eq!(listed.lines().count(), 3, "a head and two devices: {listed}");

    done(&["users", "export", "user-0", "--out", "user.json"], dir);
    let kept: Value = serde_json::from_slice(&fs::read(dir.join("user.json")).unwrap()).unwrap();
    assert_eq!((&kept["user"], kept["devices"].as_array().unwrap().len()), (&json!("user-0"), 2));
    let careless = run(&["users", "erase", "user-0"], dir, "");
    assert_eq!(careless.status.code(), Some(2), "it wants to hear --yes");
    assert_eq!(done(&["users", "erase", "user-0", "--yes"], dir), "2 devices forgotten");
    assert_eq!(done(&["devices", "list"], dir).lines().count(), 2, "a head and the device of another");
}
