//! The program from outside: exit codes, what goes to which output, and that a reader who leaves is no failure.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use crate::program::{run, text, tidings};

#[test]
fn exit_codes_are_as_documented() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("wrong.toml"), "[http]\nlistn = 1\n").unwrap();
    for (words, code) in [
        ("--help", 0),
        ("config check", 0),
        ("config example", 0),
        ("nonsense", 2),
        ("config check --config wrong.toml", 2),
        ("config check --config missing.toml", 2),
        ("token --user 1", 2),
        ("publish --url http://127.0.0.1:1 --api-key k {}", 1),
        ("publish --url nonsense --api-key k {}", 2),
        ("publish --url http://127.0.0.1:1 --api-key k {", 2),
        ("devices list --url http://127.0.0.1:1 --api-key k", 1),
        ("jobs show a --url nonsense --api-key k", 2),
        ("preview goal", 2),
        ("completions fish", 0),
        ("completions nonsense", 2),
        ("serve --seed missing.json", 1),
    ] {
        let output = run(words, dir.path());
        assert_eq!(output.status.code(), Some(code), "{words}: {}", text(&output.stderr));
        assert_eq!(output.stdout.is_empty(), code != 0, "{words}: results only on standard output");
    }
    let wrong = run("config check --config wrong.toml", dir.path());
    let expected = "error: 1 mistake in the configuration\n  wrong.toml:2:1: unknown setting `http.listn`, did you mean \
                    `http.listen`?\n";
    assert_eq!(text(&wrong.stderr), expected, "without colours: it is no terminal");
}

#[test]
fn a_notification_is_previewed_without_a_server() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[topics.goal]\ntitle = \"Goal for %{team}!\"\nbody = \"%{scorer} scores\"\n";
    std::fs::write(dir.path().join("tidings.toml"), config).unwrap();
    let words = "preview goal --locale pl --set team=Sweden --set scorer=Ada --raw";
    let shown = run(words, dir.path());
    let payload = text(&shown.stdout).trim_end();
    assert!(payload.starts_with(r#"{"aps":{"alert":{"title":"Goal for Sweden!","body":"Ada scores"}"#), "{payload}");
    let partly = run("preview goal --locale sv --set team=Sweden", dir.path());
    assert_eq!(text(&partly.stdout).lines().skip(1).collect::<Vec<_>>(), ["  Goal for Sweden!", "  %{scorer} scores"]);
    let told =
        "warning: these parameters are not set and are shown as placeholders: scorer; set them with --set scorer=…\n";
    assert_eq!((partly.status.code(), text(&partly.stderr)), (Some(0), told));
    let config = format!("{config}title_plural = \"%{{goals}} goals for %{{team}}!\"\ncount = \"goals\"\n");
    std::fs::write(dir.path().join("tidings.toml"), config).unwrap();
    let counted = run("preview goal --locale sv --set team=Sweden --set scorer=Ada", dir.path());
    assert!(text(&counted.stdout).contains("2 goals for Sweden!"), "{}", text(&counted.stderr));
    let wrong = run("preview goal --set team=Sweden --set goals=many", dir.path());
    let expected = "error: params: goals chooses a plural form and must be a whole number\n";
    assert_eq!((wrong.status.code(), text(&wrong.stderr)), (Some(2), expected));
    let at = r#"{"datetime":"2026-11-24T20:45:00Z","style":"time_short","zone":"device"}"#;
    let zoned = |zone: &str| {
        let set = format!("--set goals=1 --set team=Sweden --set scorer={at} {zone}");
        text(&run(&format!("preview goal --locale en-GB {set}"), dir.path()).stdout).lines().last().unwrap().to_owned()
    };
    assert_eq!(zoned("--zone Asia/Tokyo"), "  05:45 scores");
    assert_eq!(zoned(""), "  20:45 GMT+0 scores", "a device without a zone");
    let unknown = run("preview gaol", dir.path());
    assert_eq!(text(&unknown.stderr), "error: topic: gaol is not configured, did you mean goal?\n");
}

#[test]
fn what_devices_show_is_drawn_and_cut() {
    let dir = tempfile::tempdir().unwrap();
    let body =
        "Ada scores with the last touch of the ball, in the ninth minute of added time, and Sweden are champions. "
            .repeat(3);
    let config = format!("[topics.goal]\ntitle = \"Goal!\"\nbody = \"{body}\"\n");
    std::fs::write(dir.path().join("tidings.toml"), config).unwrap();
    let drawn =
        |words: &str| text(&run(&format!("preview goal --locale en --screen {words}"), dir.path()).stdout).to_owned();
    let headings = |drawn: &str| -> Vec<String> {
        drawn.lines().filter_map(|line| Some(line.strip_prefix("  ╭─ ")?.to_owned())).collect()
    };
    let all = drawn("");
    assert_eq!(
        headings(&all),
        [
            "iPhone · en · lock screen",
            "iPhone · en · expanded",
            "Android · en · collapsed",
            "Android · en · expanded",
            "browser · en · collapsed",
            "browser · en · expanded",
        ]
    );
    let collapsed = "  ╭─ Android · en · collapsed\n  │ App                                       now\n  │ Goal!\n  \
                     │ Ada scores with the last touch of the ball,…\n";
    assert!(all.contains(collapsed), "{all}");
    assert_eq!(headings(&drawn("--platform browser")).len(), 2);
    let shown: serde_json::Value = serde_json::from_str(&drawn("--json")).unwrap();
    let lock = &shown["en"]["ios"]["views"]["lock screen"];
    assert_eq!((lock["body"].as_array().unwrap().len(), &lock["is_cut"]), (4, &true.into()));
    assert_eq!(shown["en"]["ios"]["views"]["expanded"]["is_cut"], false);
    std::fs::write(dir.path().join("tidings.toml"), "[topics.goal]\ntitle = \"Goal!\"\nbody = \"Look.\"\n").unwrap();
    assert_eq!(headings(&drawn("--platform ios")), ["iPhone · en · lock screen, expanded"]);
}

#[test]
fn the_example_is_accepted_where_it_is_expected() {
    let dir = tempfile::tempdir().unwrap();
    let example = run("config example", dir.path()).stdout;
    std::fs::write(dir.path().join("tidings.toml"), &example).unwrap();
    let checked = run("config check", dir.path());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    assert!(text(&checked.stdout).contains("# tidings.toml:"), "the file of the folder was read");
}

#[test]
fn an_import_keeps_secrets_in_files_and_lists_what_is_to_be_done() {
    let dir = tempfile::tempdir().unwrap();
    let theirs = r#"{"api_key": "a-key-of-sixteen-characters", "admin": true, "namespaces": [{"name": "chat", "presence": true}]}"#;
    std::fs::write(dir.path().join("centrifugo.json"), theirs).unwrap();
    let untouched = run("config import centrifugo.json", dir.path());
    assert_eq!(untouched.status.code(), Some(0), "{}", text(&untouched.stderr));
    assert!(text(&untouched.stderr).contains("secrets/api-key is to be made") && !dir.path().join("secrets").exists());
    let made = run("config import centrifugo.json --secrets keys", dir.path());
    let told = text(&made.stderr);
    assert!(told.contains("warning: admin: there is no admin console") && told.contains("1 are to be done"), "{told}");
    assert!(!told.contains("sixteen") && !text(&made.stdout).contains("sixteen"));
    let mode = |name: &str| std::fs::metadata(dir.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("keys"), mode("keys/api-key")), (0o700, 0o600));
    std::fs::write(dir.path().join("tidings.toml"), &made.stdout).unwrap();
    assert_eq!(run("config check", dir.path()).status.code(), Some(0));
    let again = run("config import centrifugo.json --secrets keys", dir.path());
    assert_eq!(again.status.code(), Some(1), "a file that is there is not overwritten");
    std::fs::write(dir.path().join("centrifugo.json"), "a: yaml\n").unwrap();
    let refused = run("config import centrifugo.json", dir.path());
    assert!(refused.status.code() == Some(1) && text(&refused.stderr).contains("yq"), "{}", text(&refused.stderr));
}

#[test]
fn a_check_reads_topics_and_translations_and_tells_what_is_missing() {
    let dir = tempfile::tempdir().unwrap();
    let config = "[topics.goal]\ntitle = \"Goal for %{team}!\"\nbody = \"%{scorer} scores\"\n\
                  [topics.end]\ntitle = \"It is over\"\nbody = \"%{score}\"\n[translations]\ndir = \"locales\"\n";
    std::fs::write(dir.path().join("tidings.toml"), config).unwrap();
    let catalogue = |locale: &str, messages: &str| {
        let folder = dir.path().join("locales").join(locale).join("LC_MESSAGES");
        std::fs::create_dir_all(&folder).unwrap();
        let head = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\n\"\n";
        std::fs::write(folder.join("messages.po"), format!("{head}{messages}")).unwrap();
    };
    let goal = "\nmsgid \"Goal for %{team}!\"\nmsgstr \"Mål för %{team}!\"\n";
    let scores = "\nmsgid \"%{scorer} scores\"\nmsgstr \"%{scorer} gör mål\"\n";
    let end = "\nmsgid \"It is over\"\nmsgstr \"Slut\"\n\nmsgid \"%{score}\"\nmsgstr \"%{score}\"\n";
    catalogue("sv", &format!("{goal}{scores}{end}"));
    catalogue("de", &format!("{goal}{end}"));
    let checked = run("config check", dir.path());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
    let (told, expected) = (text(&checked.stdout), "# goal: no translation, or an incomplete one, for de\n");
    assert!(told.contains(expected) && told.contains("# end: nothing is missing\n"), "{told}");
    let json: serde_json::Value = serde_json::from_slice(&run("config check --json", dir.path()).stdout).unwrap();
    let topics = serde_json::json!([{"topic": "end", "lacks": []}, {"topic": "goal", "lacks": ["de"]}]);
    assert_eq!(json["topics"], topics);

    catalogue("de", "\nmsgid \"Goal for %{team}!\"\nmsgstr \"Tor für %{tema}!\"\n");
    let wrong = run("config check", dir.path());
    assert_eq!(wrong.status.code(), Some(2), "{}", text(&wrong.stderr));
    assert!(text(&wrong.stderr).contains("Goal for %{team}!"), "{}", text(&wrong.stderr));
    catalogue("de", "\nmsgid \"Goal");
    let broken = run("config check", dir.path());
    assert_eq!(broken.status.code(), Some(2), "{}", text(&broken.stderr));
    assert!(text(&broken.stderr).contains("is not a PO file"), "{}", text(&broken.stderr));
}

#[test]
fn a_token_is_signed_with_the_configured_secret_and_the_secret_is_never_shown() {
    let dir = tempfile::tempdir().unwrap();
    let secret = ("TIDINGS_CLIENT__TOKEN__HMAC_SECRET", "hunter2hunter2hunter2hunter2hunter2");
    let output = tidings("token --user 42 --json".split(' '), dir.path()).env(secret.0, secret.1).output().unwrap();
    let made: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(made["token"].as_str().unwrap().split('.').count(), 3);
    assert!(made["expires_at"].is_u64());
    for words in ["config check", "config check --json"] {
        let output = tidings(words.split(' '), dir.path()).env(secret.0, secret.1).output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        assert!(!text(&all).contains("hunter2") && text(&all).contains("***"), "{words}");
    }
}

#[test]
fn the_report_of_a_check_is_json() {
    let dir = tempfile::tempdir().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&run("config check --json", dir.path()).stdout).unwrap();
    let terms = report["memory"]["terms"].as_array().unwrap();
    let sum: u64 =
        terms.iter().map(|term| term["count"].as_u64().unwrap() * term["bytes_each"].as_u64().unwrap()).sum();
    assert_eq!(report["memory_bytes"].as_u64(), Some(sum));
}

#[test]
fn a_reader_who_leaves_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = tidings(["config", "reference"], dir.path());
    let output = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

#[test]
fn simulators_write_their_keys_for_their_owner_only() {
    for (provider, key) in [("apns", "key.p8"), ("fcm", "service-account.json"), ("web-push", "vapid.key")] {
        simulator_writes_its_key_for_its_owner_only(provider, key);
    }
}

fn simulator_writes_its_key_for_its_owner_only(provider: &str, key: &str) {
    use std::io::BufRead as _;
    use std::os::unix::fs::PermissionsExt as _;

    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join(key);
    std::fs::write(&key, "of an earlier run").unwrap();
    let mut command = tidings(["simulate", provider, "--dir", ".", "--listen", "127.0.0.1:0"], dir.path());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = std::io::BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let snippet: Vec<String> =
        lines.skip_while(|line| !line.starts_with('[')).take_while(|line| !line.is_empty()).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    std::fs::write(dir.path().join("tidings.toml"), snippet.join("\n")).unwrap();
    let checked = run("config check", dir.path());
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
}
