//! `tidings translations`: the way of a text to its translators and back.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use tidings_simulator::{ApnsSimulator, SimulatorConfig};

use crate::program::{run, text};

const CONFIG: &str = "[translations]\ndir = \"locales\"\nmessages = \"messages\"\n\n[translations.service]\n\
                      pull = [\"sh\", \"pull.sh\"]\npush = [\"sh\", \"-c\", \"cat locales/*.pot > sent\"]\n";
const GOAL: &str = "[goal]\ntitle = \"Gaol for %{team}!\"\nbody = \"Look.\"\ncomment = \"A team is a country.\"\n";
const POLISH: &str = "locales/pl/LC_MESSAGES/messages.po";

/// A folder with texts, and a Polish file with a translation of the title.
fn begun() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    fs::write(dir.join("tidings.toml"), CONFIG).unwrap();
    for name in ["messages", "locales"] {
        fs::create_dir(dir.join(name)).unwrap();
    }
    fs::write(dir.join("messages/football.toml"), GOAL).unwrap();
    done(dir, "translations extract");
    done(dir, "translations merge --locale pl");
    edit(dir, POLISH, "!\"\nmsgstr \"\"", "!\"\nmsgstr \"Gol: %{team}!\"");
    folder
}

/// The output of a command that must work.
fn done(dir: &Path, words: &str) -> String {
    let output = run(words, dir);
    assert!(output.status.success(), "{words}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).to_owned()
}

/// The outputs of a command that must fail.
fn failed(dir: &Path, words: &str) -> (String, String) {
    let output = run(words, dir);
    assert_eq!(output.status.code(), Some(1), "{words}: {}", text(&output.stdout));
    (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
}

fn edit(dir: &Path, file: &str, from: &str, to: &str) {
    let before = fs::read_to_string(dir.join(file)).unwrap();
    assert!(before.contains(from), "{before}");
    fs::write(dir.join(file), before.replacen(from, to, 1)).unwrap();
}

fn polish(dir: &Path) -> String {
    fs::read_to_string(dir.join(POLISH)).unwrap()
}

#[test]
fn mending_the_source_text_silences_no_language() {
    let folder = begun();
    let dir = folder.path();
    edit(dir, "messages/football.toml", "Gaol", "Goal");
    let (_, told) = failed(dir, "translations extract --check");
    assert_eq!(told, "error: not up to date: locales/messages.pot; run `tidings translations extract`\n");
    done(dir, "translations extract");
    done(dir, "translations extract --check");
    let merged = done(dir, "translations merge");
    assert_eq!(merged, format!("{POLISH}: 1 as before, 1 outdated but sent\n"));
    assert!(
        polish(dir).contains("#| msgid \"Gaol for %{team}!\"\nmsgid \"Goal for %{team}!\"\nmsgstr \"Gol: %{team}!\"")
    );
    assert_eq!(done(dir, "translations merge"), format!("{POLISH}: 2 as before; unchanged\n"));
    let shown = done(dir, "preview goal --locale pl --set team=Szwecja");
    assert!(shown.contains("Gol: Szwecja!"), "{shown}");
    let stats: Value = serde_json::from_str(&done(dir, "translations stats --json")).unwrap();
    assert_eq!(
        (&stats[0]["translated"], &stats[0]["outdated"], &stats[0]["untranslated"]),
        (&1.into(), &1.into(), &1.into())
    );
    let format = Command::new("msgfmt").args(["-c", "-o", "/dev/null", POLISH]).current_dir(dir).output().unwrap();
    assert!(format.status.success(), "{}", text(&format.stderr));
}

#[test]
fn a_mistake_is_shown_where_it_is() {
    let folder = begun();
    let dir = folder.path();
    assert!(done(dir, "translations check").ends_with("errors: 0, warnings: 0, notes: 1\n"));
    edit(dir, POLISH, "Gol: %{team}!", "Gol: %{tim}!");
    let (shown, told) = failed(dir, "translations check --quiet");
    let caret = format!("  --> {POLISH}:17:14\n   |\n17 | msgstr \"Gol: %{{tim}}!\"\n   |              ^^^^^^\n");
    assert!(shown.contains(&caret), "{shown}");
    assert_eq!(told, "error: what is wrong is not sent; the language falls back there\n");
    let (annotations, _) = failed(dir, "translations check --format github");
    let first = format!("::error file={POLISH},line=17,col=9,title=pl%3A missing-placeholder::");
    assert!(annotations.starts_with(&first), "{annotations}");
    let (report, _) = failed(dir, "translations check --format json");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["errors"], &report["findings"][0]["code"]), (&2.into(), &"missing-placeholder".into()));
    let wrong = run("translations compile-check", dir);
    assert!(!wrong.status.success() && text(&wrong.stderr).contains("lacks %{team}"), "{}", text(&wrong.stderr));
}

#[test]
fn a_language_that_is_asked_for_must_be_there_and_complete() {
    let folder = begun();
    let dir = folder.path();
    done(dir, "translations check --min-translated 50 --locale pl");
    let (_, told) = failed(dir, "translations check --min-translated 51 --locale pl --locale sv");
    assert!(told.contains("sv has no messages.po") && told.contains("pl has 50 % of messages translated"), "{told}");
    assert_eq!(done(dir, "translations compile-check"), "1 topics in 2 texts: all can be sent\n");
    edit(dir, POLISH, "Gol: %{team}", "Gol: %{tem}");
    let (_, told) = failed(dir, "translations check --locale sv");
    assert!(told.contains("sv has no messages.po") && told.contains("what is wrong is not sent"), "{told}");
    let (report, _) = failed(dir, "translations check --locale sv --format json");
    let report: Value = serde_json::from_str(&report).unwrap();
    assert!(report["lacking"][0].as_str().unwrap().contains("sv has no messages.po"), "{report}");
    let (annotations, _) = failed(dir, "translations check --locale sv --format github");
    assert!(annotations.contains("\n::error ::sv has no messages.po"), "{annotations}");
}

#[test]
fn a_text_for_women_goes_to_translators_and_comes_back() {
    let folder = begun();
    let dir = folder.path();
    let select = "select = \"gender\"\nvalues = [\"female\", \"male\"]\n";
    fs::write(dir.join("messages/football.toml"), format!("{GOAL}{select}")).unwrap();
    done(dir, "translations extract");
    assert_eq!(done(dir, "translations merge"), format!("{POLISH}: 2 as before, 4 new\n"));
    assert!(done(dir, "translations check").ends_with("errors: 0, warnings: 0, notes: 3\n"), "of the body");
    let stats: Value = serde_json::from_str(&done(dir, "translations stats --json")).unwrap();
    assert_eq!(
        (&stats[0]["translated"], &stats[0]["inheriting"], &stats[0]["total"]),
        (&1.into(), &2.into(), &4.into())
    );
    edit(
        dir,
        POLISH,
        "msgctxt \"|female\"\nmsgid \"Gaol for %{team}!\"\nmsgstr \"\"",
        "msgctxt \"|female\"\nmsgid \"Gaol for %{team}!\"\nmsgstr \"Ona: %{team}!\"",
    );
    let shown = |words: &str| {
        let output = run(&format!("preview goal --locale pl --set team=Szwecja{words}"), dir);
        (text(&output.stdout).to_owned(), text(&output.stderr).to_owned())
    };
    assert!(shown(" --set gender=female").0.contains("\n  Ona: Szwecja!\n"));
    assert_eq!(shown(" --set gender=male").1, "");
    let (told, note) = shown(" --set gender=femal");
    assert!(told.contains("\n  Gol: Szwecja!\n"), "{told}");
    assert!(note.contains("gender chooses the text: female, male"), "{note}");
    assert_eq!(done(dir, "translations compile-check"), "1 topics in 6 texts: all can be sent\n");
    edit(dir, POLISH, "msgctxt \"|female\"", "msgctxt \"|femal\"");
    assert!(
        done(dir, "translations check").contains("warning[unknown-value] pl: the message has no text for \"femal\"")
    );
}

#[test]
fn all_flawed_files_are_told_and_all_plural_forms_are_tried() {
    let folder = begun();
    let dir = folder.path();
    let simulator = ApnsSimulator::start(SimulatorConfig::default()).unwrap();
    fs::write(dir.join("key.p8"), simulator.key_pem()).unwrap();
    let [key, team] = [simulator.key_id(), simulator.team_id()];
    let apns = format!("[apns.main]\nkey_id = {key:?}\nteam_id = {team:?}\nkey_file = \"key.p8\"\napps = [\"a.b\"]\n");
    fs::write(dir.join("tidings.toml"), format!("{CONFIG}{apns}")).unwrap();
    let long = "Goal! ".repeat(670); // Only one goal has more than a notification may have.
    let plural = format!("title = \"{long}\"\ntitle_plural = \"Goals\"\ncount = \"goals\"\nbody = \"%{{team}}\"\n");
    fs::write(dir.join("messages/more.toml"), format!("[plural]\n{plural}")).unwrap();
    let (told, _) = failed(dir, "translations compile-check");
    assert!(told.starts_with("plural: with the number 1: ") && !told.contains("goal: "), "{told}");
    fs::create_dir_all(dir.join("locales/sv/LC_MESSAGES")).unwrap();
    for path in [POLISH, "locales/sv/LC_MESSAGES/messages.po"] {
        fs::write(dir.join(path), "msgid \"broken").unwrap();
    }
    let (_, told) = failed(dir, "translations compile-check");
    assert!(told.contains("pl/LC_MESSAGES") && told.contains("sv/LC_MESSAGES"), "{told}");
}

#[test]
fn a_pull_takes_what_is_correct_and_puts_the_rest_back() {
    let folder = begun();
    let dir = folder.path();
    let before = polish(dir);
    // A site that wraps and dates the file, and knows nothing new.
    let wraps = format!(
        "msgcat -w 20 {POLISH} -o {POLISH} && sed -i 's/^\"PO-Revision-Date.*/\"PO-Revision-Date: 2026-11-24\\\\n\"/' {POLISH}\n"
    );
    fs::write(dir.join("pull.sh"), &wraps).unwrap();
    assert_eq!(done(dir, "translations pull"), "");
    assert_eq!(polish(dir), before, "no change, no difference");

    fs::write(dir.join("pull.sh"), format!("{wraps}sed -i 's/Gol: /Bramka: /' {POLISH}\n")).unwrap();
    assert_eq!(done(dir, "translations pull"), format!("{POLISH}: new translations\n"));
    assert_eq!(polish(dir), before.replace("Gol: ", "Bramka: "));

    let good = polish(dir);
    let breaks = format!("sed -i 's/Bramka: .*\"/Bramka!\"/' {POLISH}\n");
    let makes = "mkdir -p locales/sv/LC_MESSAGES && echo nonsense > locales/sv/LC_MESSAGES/messages.po\n";
    fs::write(dir.join("pull.sh"), breaks + makes).unwrap();
    let (shown, _) = failed(dir, "translations pull");
    assert!(shown.contains(&format!("{POLISH}: \"Gaol for %{{team}}!\": the translation lacks %{{team}}")), "{shown}");
    assert_eq!(polish(dir), good, "put back");
    assert!(!dir.join("locales/sv/LC_MESSAGES/messages.po").exists(), "it was not there before");

    fs::write(dir.join("pull.sh"), "exit 7\n").unwrap();
    let (_, told) = failed(dir, "translations pull");
    assert!(told.ends_with("error: sh pull.sh: exit status: 7\n"), "{told}");
    done(dir, "translations push");
    assert!(fs::read_to_string(dir.join("sent")).unwrap().contains("Gaol"), "the command got the POT file");
}

#[test]
fn a_pull_that_deletes_or_breaks_a_file_byte_by_byte_leaves_it_as_it_was() {
    let folder = begun();
    let dir = folder.path();
    let latin = [polish(dir).as_bytes(), b"\n# \xb1\n"].concat(); // Not UTF-8, so no PO file; but somebody's.
    fs::write(dir.join(POLISH), &latin).unwrap();
    for breaks in [format!("rm {POLISH}\n"), format!("echo nonsense > {POLISH}\n"), format!("rm {POLISH}; exit 7\n")] {
        fs::write(dir.join("pull.sh"), &breaks).unwrap();
        let (shown, _) = failed(dir, "translations pull");
        assert!(shown.starts_with(POLISH), "{breaks}: {shown}");
        assert_eq!(fs::read(dir.join(POLISH)).unwrap(), latin, "{breaks}");
    }
}

#[test]
fn a_file_that_stops_the_server_is_an_error() {
    let folder = begun();
    let dir = folder.path();
    edit(dir, POLISH, "Language: pl", "Language: sv");
    let (shown, _) = failed(dir, "translations check");
    assert!(shown.starts_with("error[language] pl: "), "{shown}");
    edit(dir, POLISH, "Language: sv", "Language: pl");
    for name in ["pl_PL", "pl-PL"] {
        fs::create_dir_all(dir.join(format!("locales/{name}/LC_MESSAGES"))).unwrap();
        fs::write(dir.join(format!("locales/{name}/LC_MESSAGES/messages.po")), polish(dir)).unwrap();
    }
    let (_, told) = failed(dir, "translations check");
    assert!(told.contains("are of one locale: remove one of them"), "{told}");
}

#[test]
fn a_pseudo_language_is_correct() {
    let folder = begun();
    let dir = folder.path();
    let files = done(dir, "translations pseudo");
    assert_eq!(files, "locales/en-XA/LC_MESSAGES/messages.po\nlocales/ar-XB/LC_MESSAGES/messages.po\n");
    done(dir, "translations check");
    let shown = done(dir, "preview goal --locale en-XA --set team=Sweden");
    assert!(shown.contains("Sweden") && !shown.contains("Gaol"), "{shown}");
}

#[test]
fn topics_in_files_of_their_own_are_read_like_the_others() {
    let folder = begun();
    let dir = folder.path();
    fs::write(dir.join("messages/second.toml"), "[goal]\ntitle = \"x\"\nbody = \"y\"\n[card]\ntitel = \"x\"\n")
        .unwrap();
    let wrong = run("config check", dir);
    let told = text(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(2), "{told}");
    assert!(told.contains("messages/second.toml:1:2: the topic goal is also in messages/football.toml:1:2"), "{told}");
    assert!(told.contains("messages/second.toml:5:1: unknown setting `topics.card.titel`, did you mean"), "{told}");
}

#[test]
fn names_come_to_translators_in_a_file_of_their_own() {
    let folder = begun();
    let dir = folder.path();
    let configured = fs::read_to_string(dir.join("tidings.toml")).unwrap();
    let names =
        |values: &str| format!("{configured}\n[names.team]\nvalues = [{values}]\ncomment = \"National teams.\"\n");
    for (values, told) in [
        ("\"Sweden\", \"Sweden\"", "has \"Sweden\" twice: remove one of them"),
        ("\"%{x}\"", "\"%{x}\" cannot be translated"),
    ] {
        fs::write(dir.join("tidings.toml"), names(values)).unwrap();
        let wrong = run("config check", dir);
        assert_eq!(wrong.status.code(), Some(2), "{values}");
        let stderr = text(&wrong.stderr);
        assert!(stderr.contains("`names.team.values`") && stderr.contains(told), "{stderr}");
    }
    fs::write(dir.join("tidings.toml"), names("\"Sweden\", \"Poland\"")).unwrap();
    let told = done(dir, "translations extract");
    assert!(told.contains("locales/names.pot: 2 texts, written"), "{told}");
    done(dir, "translations merge --locale pl");
    let file = "locales/pl/LC_MESSAGES/names.po";
    let begun = fs::read_to_string(dir.join(file)).unwrap();
    assert!(begun.contains("#. National teams.\n#: names.team\nmsgctxt \"team\"\nmsgid \"Poland\""), "{begun}");
    edit(dir, file, "msgid \"Sweden\"\nmsgstr \"\"", "msgid \"Sweden\"\nmsgstr \"Szwecja\"");
    done(dir, "translations check");
    let sweden = r#"{"name":"Sweden","context":"team"}"#;
    let shown = done(dir, &format!("preview goal --locale pl --set team={sweden}"));
    assert!(shown.contains("Gol: Szwecja!"), "{shown}");
}
