//! The demo from outside: the whole way of an event, in small, and its verdict.

use std::process::Command;

#[test]
fn a_small_match_is_played_to_the_end_and_everybody_gets_what_is_owed() {
    let dir = tempfile::tempdir().unwrap();
    let words = "demo --once --json --devices 300 --clients 20 --speed 20000";
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    let command = command.args(words.split(' ')).current_dir(dir.path()).env_clear().env("TMPDIR", dir.path());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    for (name, number) in
        [("events", 22), ("lost", 0), ("duplicates", 0), ("wrong", 0), ("devices", 300), ("clients", 20)]
    {
        assert_eq!(json[name], number, "{name}: {stderr}");
    }
    // Everybody follows the match, every fifth and every seventh client a team's channel.
    assert!(json["deliveries"].as_u64() > Some(20 * 22), "{json}");
    assert!(json["pushes_accepted"].as_u64() > Some(500), "{json}");
    // Most of what apps on the screen got needed no push; a busy machine may answer some too late.
    assert!(json["pushes_saved"].as_u64() > Some(0), "{json}");
    let by_event = json["by_event"].as_array().unwrap();
    let pushed: u64 = by_event.iter().map(|event| event["pushed"].as_u64().unwrap()).sum();
    assert_eq!((by_event.len(), Some(pushed)), (22, json["pushes_accepted"].as_u64()), "{json}");
    // All three providers had something to do, and nobody's notifications were lost.
    for (place, provider) in ["apns", "fcm", "web_push"].iter().enumerate() {
        let found = &json["providers"][place];
        assert!(found["provider"] == *provider && found["accepted"].as_u64() > Some(0), "{provider}: {json}");
    }
    assert!(stderr.contains("3 (4) – (2) 3"), "{stderr}");
    assert!(!stderr.contains('\x1b'), "no colours where nobody sees them: {stderr}");
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left behind");
}

#[test]
fn a_cluster_without_nats_server_is_refused_with_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidings"));
    let command = command.args(["demo", "--nodes", "3", "--once"]).env_clear().env("TMPDIR", dir.path());
    let output = command.env("PATH", dir.path()).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    for part in ["nats-server, 2.15 or later", "in no folder of PATH", "--nats-server FILE", "TIDINGS_NATS_SERVER"] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
    assert_eq!(dir.path().read_dir().unwrap().count(), 0, "nothing is left behind");
}
