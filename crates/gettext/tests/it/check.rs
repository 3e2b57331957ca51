//! What a check tells translators, and where it points.

use proptest::prelude::*;
use tidings_gettext::{Finding, Message, Plural, Severity, Template, check};

use crate::msgfmt::mutation;
use crate::{POLISH, TWO, demo, header, locale, msgfmt_verdict};

fn goal() -> Message {
    Message::new(Template::new(None, "Goal for %{team}!", None).unwrap(), "goal.title")
}

fn goals() -> Message {
    let plural = Plural { msgid_plural: "%{goals} goals for %{team}", count: "goals" };
    Message::new(Template::new(None, "%{goals} goal for %{team}", Some(plural)).unwrap(), "goals.body")
}

/// Each finding as `severity code: message | what is pointed at`.
fn told(file: &str, messages: &[Message]) -> Vec<String> {
    let tell = |finding: Finding| {
        let at = &file[finding.range.clone()];
        let before = &file[..finding.range.start];
        assert_eq!(finding.line, 1 + before.matches('\n').count());
        assert_eq!(finding.column, 1 + before.rsplit('\n').next().unwrap().chars().count());
        format!("{:?} {}: {} | {at}", finding.severity, finding.kind.code(), finding.message)
    };
    check(&locale("pl"), file.as_bytes(), messages).into_iter().map(tell).collect()
}

/// The findings of one entry in a Polish file.
fn entry(text: &str, message: &Message) -> Vec<String> {
    told(&(header("pl", POLISH) + text), std::slice::from_ref(message))
}

fn translation(text: &str) -> Vec<String> {
    entry(&format!("#, ruby-format\nmsgid \"Goal for %{{team}}!\"\nmsgstr \"{text}\"\n"), &goal())
}

#[test]
fn a_mistake_is_told_in_words_and_pointed_at() {
    assert_eq!(translation("Gol: %{team}!"), [""; 0]);
    assert_eq!(
        translation("Gol: %{tema}!"),
        [
            "Error missing-placeholder: the translation lacks %{team} | Gol: %{tema}!",
            "Error unknown-placeholder: %{tema} is not in the source text | %{tema}",
        ]
    );
    assert_eq!(translation("%{team} 100 %"), ["Error percent-sign: this percent sign has no meaning | %"]);
    assert_eq!(
        translation("%{team}\\n"),
        ["Error newline: only one of source text and translation begins or ends with a line break (the translation) \
         | %{team}\\n"]
    );
    assert_eq!(
        translation(" %{team}"),
        ["Warning edge-space: only one of source text and translation begins with a space (the translation) |  "]
    );
    assert_eq!(
        translation("%{team}\u{a0}"),
        ["Warning edge-space: only one of source text and translation ends with a space (the translation) | \u{a0}"]
    );
    assert_eq!(
        translation("<b>%{team}"),
        ["Warning markup: the translation does not have <b> as often as the source text | <b>"]
    );
    assert_eq!(translation(""), ["Note untranslated: not translated yet | \"\""]);
}

#[test]
fn help_says_what_the_source_text_has() {
    let file = header("pl", POLISH) + "#, ruby-format\nmsgid \"Goal for %{team}!\"\nmsgstr \"%{tema} %{team}\"\n";
    let [finding] = &check(&locale("pl"), file.as_bytes(), &[goal()])[..] else { panic!() };
    assert_eq!(finding.help.as_deref(), Some("it has %{team}"));
    assert_eq!(finding.references, ["goal.title"]);
}

#[test]
fn a_plural_form_is_named_by_its_numbers() {
    let forms = |forms: [&str; 3]| {
        let [one, few, many] = forms;
        let text = format!(
            "#, ruby-format\nmsgid \"%{{goals}} goal for %{{team}}\"\nmsgid_plural \"%{{goals}} goals for %{{team}}\"\n\
             msgstr[0] \"{one}\"\nmsgstr[1] \"{few}\"\nmsgstr[2] \"{many}\"\n"
        );
        entry(&text, &goals())
    };
    let all = "%{goals} %{team}";
    assert_eq!(forms(["jeden: %{team}", all, all]), [""; 0], "only 1 takes the first form");
    assert_eq!(
        forms([all, "%{team}", all]),
        ["Error missing-placeholder: msgstr[1] (for 2, 3, 4, …) lacks %{goals} | %{team}"]
    );
    assert_eq!(
        forms([all, "", all]),
        ["Error form-empty: msgstr[1] (for 2, 3, 4, …) is empty, while others are translated | \"\""]
    );
}

#[test]
fn doubtful_outdated_unmarked_unused_and_missing_messages_are_told() {
    let text = "#, fuzzy, ruby-format\nmsgid \"Goal for %{team}!\"\nmsgstr \"x\"\n";
    assert_eq!(
        entry(text, &goal()),
        ["Warning fuzzy: marked as doubtful (fuzzy), so it is not sent | Goal for %{team}!"]
    );
    let text = "#| msgid \"Gaol\"\nmsgid \"Goal for %{team}!\"\nmsgstr \"%{team}\"\n";
    assert_eq!(
        entry(text, &goal()),
        [
            "Warning flag-lost: the mark \"#, ruby-format\" is missing, so other programs do not check the placeholders | \
         Goal for %{team}!",
            "Note outdated: made for an earlier source text: \"Gaol\" | Goal for %{team}!",
        ]
    );
    assert_eq!(
        entry("msgid \"x\"\nmsgstr \"y\"\n", &goal()),
        [
            "Warning missing: the message is not in the file | \"\"",
            "Note unused: no message has this source text any more | x",
        ]
    );
    assert_eq!(told(&(header("pl", POLISH) + "msgid \"x\"\nmsgstr \"y\"\n"), &[]), [""; 0], "no messages are known");
}

#[test]
fn a_length_is_counted_with_placeholders_and_points_at_what_is_too_much() {
    let message = Message { length_max: Some(12), ..goal() };
    let told =
        |text: &str| entry(&format!("#, ruby-format\nmsgid \"Goal for %{{team}}!\"\nmsgstr \"{text}\"\n"), &message);
    assert_eq!(told("%{team}: 👩‍👩‍👧!"), [""; 0], "8 for the placeholder, 4 for the rest");
    assert_eq!(told("%{team}: żółć"), ["Warning too-long: the translation has 14 characters, 12 are allowed | łć"]);
    assert_eq!(message.excess_length(), Some(18));
    assert_eq!(goal().excess_length(), None);
}

#[test]
fn a_mistake_of_the_header_is_pointed_at() {
    let file = header("de", "nplurals=2; plural=n;") + "msgid \"x\"\nmsgstr \"y\"\n";
    assert_eq!(
        told(&file, &[]),
        [
            "Warning language: the header says Language: de, but the file is for pl | Language: de",
            "Error plural-range: the plural expression chooses no form for n = 2 | Plural-Forms: nplurals=2; plural=n;",
        ]
    );
}

#[test]
fn a_file_that_cannot_be_read_is_one_finding() {
    let file = header("pl", POLISH);
    assert_eq!(
        told(&(file.clone() + "msgid \"a\"\nmsgstr \"ä\" b\"\n"), &[]),
        ["Error file: expected a comment, a keyword or a quoted string | b\""]
    );
    assert_eq!(told(&(file.clone() + "msgid \"a\"\n\n"), &[]), ["Error file: msgstr is missing | msgid \"a\""]);
    assert_eq!(told(&(file + "  msgid \"a\n"), &[]), ["Error file: the string does not end on its line | msgid \"a"]);
    assert_eq!(told("", &[]), ["Error file: the header entry (msgid \"\") is missing | "]);
    let [finding] = &check(&locale("pl"), b"# a\n# \xc5\xbc\xff", &[])[..] else { panic!() };
    assert_eq!((finding.line, finding.column, finding.range.clone()), (2, 4, 8..9));
}

#[test]
fn findings_are_bounded_and_mistakes_come_first() {
    let entries: String = (0..2000).map(|index| format!("msgid \"{index}\"\nmsgstr \"\"\n")).collect();
    let file = header("de", TWO) + &entries + "msgid \"%{a}\"\nmsgstr \"b\"\n";
    let findings = check(&locale("de"), file.as_bytes(), &[]);
    assert_eq!(findings.len(), 1000);
    assert_eq!(findings.iter().filter(|finding| finding.severity == Severity::Error).count(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_msgfmt_refuses_is_an_error_and_every_place_is_on_its_line(
        language in prop::sample::select(vec!["ar", "pl", "ja", "fr"]),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let mut text = demo::file(language);
        mutations.iter().for_each(|mutation| mutation.apply(&mut text));
        let findings = check(&locale(language), text.as_bytes(), &demo::messages());
        for finding in &findings {
            let line = text.split('\n').nth(finding.line - 1).unwrap();
            let pointed = text.get(finding.range.clone());
            prop_assert!(pointed.is_some_and(|pointed| !pointed.is_empty() && line.contains(pointed)), "{finding:?}");
            let before: String = line.chars().take(finding.column - 1).collect();
            prop_assert!(line[before.len()..].starts_with(pointed.unwrap()), "{finding:?}");
        }
        if let Err(complaint) = msgfmt_verdict(text.as_bytes()) {
            let error = findings.iter().any(|finding| finding.severity == Severity::Error);
            prop_assert!(error, "{complaint}\n{text}");
        }
    }
}
