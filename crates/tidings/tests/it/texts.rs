//! The texts of a running server: replaced as a whole or not at all, and kept for a start with wrong ones.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::program::{Server, place, run, text};

const TRANSLATIONS: &str = "[translations]\ndir = \"locales\"\nmessages = \"messages\"\n";
const GOAL: &str = "[goal]\ntitle = \"Goal!\"\nbody = \"%{team} leads.\"\n";
const POLISH: &str = "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=1; plural=0;\\n\"\n\n\
                      msgid \"%{team} leads.\"\nmsgstr \"%{team} prowadzi.\"\n";

/// A folder with a topic and a Polish translation.
fn begun() -> tempfile::TempDir {
    let folder = place();
    let dir = folder.path();
    let config = fs::read_to_string(dir.join("tidings.toml")).unwrap();
    fs::write(dir.join("tidings.toml"), config + TRANSLATIONS).unwrap();
    fs::create_dir_all(dir.join("messages")).unwrap();
    fs::create_dir_all(dir.join("locales/pl/LC_MESSAGES")).unwrap();
    fs::write(dir.join("messages/football.toml"), GOAL).unwrap();
    translate(dir, POLISH);
    folder
}

fn translate(dir: &Path, catalogue: &str) {
    fs::write(dir.join("locales/pl/LC_MESSAGES/messages.po"), catalogue).unwrap();
}

/// What the server says of an event with this topic; its parameter is `team`.
fn publish(dir: &Path, topic: &str) -> String {
    let output = run(&format!("publish --subject team:1 --topic {topic} --param team=Sweden"), dir);
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

/// What `/health` says that the server works without.
fn faults(dir: &Path) -> Value {
    let config = fs::read_to_string(dir.join("tidings.toml")).unwrap();
    let address = config.lines().find_map(|line| line.strip_prefix("listen = ")).unwrap().trim_matches('"');
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<Value>(body).unwrap()["faults"].take()
}

#[test]
fn a_hangup_takes_over_texts_that_are_right_and_no_others() {
    let folder = begun();
    let dir = folder.path();
    let mut server = Server::launch(dir);
    server.says("listening on");
    assert!(publish(dir, "corner").contains("corner"), "it is not there yet");
    fs::write(dir.join("messages/more.toml"), "[corner]\ntitle = \"Corner\"\nbody = \"For %{team}\"\n").unwrap();
    server.process.signal(Signal::HUP);
    server.says("Texts replaced");
    assert!(publish(dir, "corner").contains("accepted"));
    server.process.signal(Signal::HUP);
    server.says("Texts are the same");

    translate(dir, &POLISH.replace("%{team} prowadzi", "%{tem} prowadzi"));
    fs::write(dir.join("messages/more.toml"), "[throw]\ntitle = \"Throw\"\nbody = \"For %{team}\"\n").unwrap();
    server.process.signal(Signal::HUP);
    let told = server.says("A text is wrong");
    assert!(told.contains("tem") && told.contains("pl"), "{told}");
    server.says("those before stay in force");
    assert_eq!(faults(dir), serde_json::json!(["texts"]));
    assert!(publish(dir, "corner").contains("accepted"), "nothing of it was taken over");
    assert!(publish(dir, "throw").contains("throw"));

    translate(dir, POLISH);
    fs::write(dir.join("messages/more.toml"), "[corner]\ntitle = \"%{\"\nbody = \"For %{team}\"\n").unwrap();
    server.process.signal(Signal::HUP);
    assert!(server.says("A text is wrong").contains("more.toml:"));
    assert!(publish(dir, "corner").contains("accepted"));

    let (_, told) = asked(dir, "reload");
    assert!(told.contains("the texts read last are wrong") && told.contains("more.toml:"), "{told}");

    fs::remove_file(dir.join("messages/more.toml")).unwrap();
    server.process.signal(Signal::HUP);
    server.says("Texts replaced");
    assert_eq!(faults(dir), Value::Null);

    std::os::unix::fs::symlink("nowhere", dir.join("locales/sv")).unwrap();
    server.process.signal(Signal::HUP);
    let told = server.says("A text is wrong");
    assert!(told.contains("locales/sv"), "a language is not lost without a word: {told}");
    fs::remove_file(dir.join("locales/sv")).unwrap();

    let config = fs::read_to_string(dir.join("tidings.toml")).unwrap();
    fs::write(dir.join("tidings.toml"), format!("{config}messages = 3\n")).unwrap();
    server.process.signal(Signal::HUP);
    server.says("Configuration is wrong");
    fs::write(dir.join("tidings.toml"), &config).unwrap();
    assert_eq!(faults(dir), serde_json::json!(["texts"]));
    asked(dir, "reload");
    assert_eq!(faults(dir), Value::Null);
    server.stop();
}

/// Files that change are read by themselves, once they stay as they are; what is wrong changes nothing.
#[test]
fn files_that_change_are_taken_over_if_they_are_right() {
    let folder = begun();
    let dir = folder.path();
    let config = fs::read_to_string(dir.join("tidings.toml")).unwrap();
    fs::write(dir.join("tidings.toml"), config.replace(TRANSLATIONS, &format!("{TRANSLATIONS}watch = \"100ms\"\n")))
        .unwrap();
    let mut server = Server::launch(dir);
    server.says("listening on");
    fs::write(dir.join("messages/more.toml"), "[corner]\ntitle = \"Corner\"\nbody = \"For %{team}\"\n").unwrap();
    server.says("Texts replaced");
    assert!(publish(dir, "corner").contains("accepted"));

    fs::create_dir_all(dir.join("locales/fi/LC_MESSAGES")).unwrap();
    fs::write(dir.join("locales/fi/LC_MESSAGES/messages.po"), POLISH.replace("%{team} prowadzi", "%{tem} johtaa"))
        .unwrap();
    let told = server.says("A text is wrong");
    assert!(told.contains("tem") && told.contains("fi"), "{told}");
    server.says("those before stay in force");
    assert_eq!(faults(dir), serde_json::json!(["texts"]));

    fs::remove_dir_all(dir.join("locales/fi")).unwrap();
    server.says("Texts are the same");
    assert_eq!(faults(dir), Value::Null);
    server.stop();
}

/// What `tidings translations` prints with this word.
fn asked(dir: &Path, word: &str) -> (String, String) {
    let output = run(&format!("translations {word}"), dir);
    (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

#[test]
fn an_operator_asks_for_new_texts_and_goes_one_step_back() {
    let folder = begun();
    let dir = folder.path();
    let mut server = Server::start(dir);
    assert!(asked(dir, "rollback").1.contains("no texts to roll back to"));
    assert!(asked(dir, "status").0.starts_with("1 topics, pl, in force since 20"));
    fs::write(dir.join("messages/football.toml"), GOAL.replace("goal", "corner")).unwrap();
    let (told, _) = asked(dir, "reload");
    assert!(told.ends_with("`tidings translations rollback` goes back\n"), "{told}");
    assert!(publish(dir, "corner").contains("accepted"));
    assert_eq!(asked(dir, "rollback").1, "");
    assert!(publish(dir, "goal").contains("accepted") && publish(dir, "corner").contains("corner"));
    asked(dir, "reload");
    assert!(publish(dir, "corner").contains("accepted"), "the next reload goes forward again");
    assert_eq!(asked(dir, "rollback").1, "");
    server.stop();
    translate(dir, "msgid \"broken");
    let mut server = Server::launch(dir);
    server.says("The texts that were kept");
    server.says("listening on");
    assert!(publish(dir, "goal").contains("accepted"), "those that were rolled back to are kept");
    assert!(publish(dir, "corner").contains("corner"));
    server.stop();
}

#[test]
fn a_start_with_a_wrong_catalogue_takes_the_texts_that_were_kept() {
    let folder = begun();
    let dir = folder.path();
    let mut server = Server::launch(dir);
    server.says("listening on");
    server.stop();
    translate(dir, "msgid \"broken");
    fs::write(dir.join("messages/football.toml"), GOAL.replace("goal", "corner")).unwrap();
    let mut server = Server::launch(dir);
    assert!(server.says("A text is wrong").contains("messages.po"));
    server.says("The texts that were kept");
    server.says("listening on");
    assert!(publish(dir, "goal").contains("accepted"), "the old texts are whole");
    assert!(publish(dir, "corner").contains("corner"));
    assert_eq!(faults(dir), serde_json::json!(["texts"]));
    server.stop();

    fs::remove_dir_all(dir.join("locales")).unwrap();
    fs::remove_dir_all(dir.join("messages")).unwrap();
    let mut server = Server::launch(dir);
    server.says("The texts that were kept");
    server.says("listening on");
    assert!(publish(dir, "goal").contains("accepted"), "folders that are not there are wrong, too");
    server.stop();
}

#[test]
fn a_first_start_leaves_out_what_is_wrong() {
    let folder = begun();
    let dir = folder.path();
    translate(dir, "msgid \"broken");
    let wrong = format!("{GOAL}[corner]\ntitle = 7\nbody = \"For %{{team}}\"\n");
    fs::write(dir.join("messages/football.toml"), wrong).unwrap();
    fs::write(dir.join("messages/broken.toml"), "[throw]\nbody = \"-\"\ntitle = 'Don't'\n").unwrap();
    let mut server = Server::launch(dir);
    assert!(server.says("A text is wrong").contains("broken.toml:"));
    assert!(server.says("A text is wrong").contains("football.toml:"));
    assert!(server.says("A text is wrong").contains("messages.po"));
    server.says("listening on");
    assert!(publish(dir, "goal").contains("accepted"));
    assert!(publish(dir, "corner").contains("corner"));
    assert!(publish(dir, "throw").contains("not configured"), "half a text is none");
    assert_eq!(faults(dir), serde_json::json!(["texts"]));
    let checked = run("config check", dir);
    assert!(!checked.status.success() && text(&checked.stderr).contains("football.toml:"), "a check finds it");
    server.stop();
}
