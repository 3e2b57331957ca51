//! Texts selected by the value of a parameter: rendering, the way to translators and back, checks and counts.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::sample::select;
use tidings_gettext::{
    Catalogue, Changes, Message, Plural, Reader, SourceText, Template, TemplateError, check, merge, pot, stats,
};
use tidings_types::ParamValue;

use crate::{POLISH, TWO, gnu, header, locale, msgfmt_verdict, our_verdict, translations};

const SHE: SourceText<'_> =
    SourceText { msgid: "She scores %{goals} goal", msgid_plural: Some("She scores %{goals} goals") };

/// A text that has another one for a woman, in the source language, too, if `own`.
fn scores(own: bool) -> Template {
    let plural = Plural { msgid_plural: "They score %{goals} goals", count: "goals" };
    let template = Template::new(Some("match"), "They score %{goals} goal", Some(plural)).unwrap();
    template.select("gender", [("female", own.then_some(SHE)), ("male", None)]).unwrap()
}

/// A text without a plural.
fn sent_off() -> Template {
    let template = Template::new(None, "%{player} is sent off", None).unwrap();
    template.select("gender", [("female", None), ("male", None)]).unwrap()
}

fn messages() -> Vec<Message> {
    Message { comment: Some("A player.".to_owned()), length_max: Some(40), ..Message::new(sent_off(), "card.title") }
        .with_values()
}

/// How an entry is in a catalogue.
#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    Absent,
    Right,
    Empty,
    Fuzzy,
    Wrong,
}

fn any_state() -> impl Strategy<Value = State> {
    select(vec![State::Absent, State::Right, State::Empty, State::Fuzzy, State::Wrong])
}

/// The entry of a template, whose translation is this word and the number.
fn entry(template: &Template, word: &str, state: State) -> String {
    if state == State::Absent {
        return String::new();
    }
    let mark = if state == State::Fuzzy { "#, fuzzy, ruby-format\n" } else { "#, ruby-format\n" };
    let (one, many) = match state {
        State::Empty => (String::new(), String::new()),
        State::Wrong => (word.to_owned(), format!("{word} %{{other}}")),
        _ => (format!("{word} %{{goals}} one"), format!("{word} %{{goals}} many")),
    };
    let context = template.msgctxt().map(|context| format!("msgctxt {context:?}\n")).unwrap_or_default();
    let (msgid, plural) = (template.msgid(), template.msgid_plural().unwrap());
    format!("{mark}{context}msgid {msgid:?}\nmsgid_plural {plural:?}\nmsgstr[0] {one:?}\nmsgstr[1] {many:?}\n\n")
}

proptest! {
    /// In each language the text for the value is taken, else the one without a value; then comes the next language.
    #[test]
    fn the_text_for_the_value_is_taken_else_the_one_without_it(
        own in any::<bool>(),
        (brazil, portugal) in ((any_state(), any_state()), (any_state(), any_state())),
        (gender, count) in (select(vec![None, Some("female"), Some("unknown")]), select(vec![1, 5])),
    ) {
        let template = scores(own);
        let (_, female) = template.values().next().unwrap();
        let file = |name: &str, (with, without): (State, State)| {
            let (with, without) = (entry(female, &format!("{name} she"), with), entry(&template, name, without));
            header(name, TWO) + &with + &without
        };
        let (br, pt) = (file("pt_BR", brazil), file("pt", portugal));
        let set = translations(&[("pt-BR", &br), ("pt", &pt)]);
        let mut params = BTreeMap::from([("goals".to_owned(), ParamValue::Integer(count))]);
        params.extend(gender.map(|gender| ("gender".to_owned(), ParamValue::Text(gender.into()))));

        let is_female = gender == Some("female");
        let of = |name: &str, (with, without): (State, State)| match (with, without) {
            (State::Right, _) if is_female => Some(format!("{name} she")),
            (_, State::Right) => Some(name.to_owned()),
            _ => None,
        };
        let translated = of("pt_BR", brazil).or_else(|| of("pt", portugal));
        let expected = match translated {
            Some(word) => format!("{word} {count} {}", if count == 1 { "one" } else { "many" }),
            None => {
                let (who, goals) = (if own && is_female { "She scores" } else { "They score" }, if count == 1 { "goal" } else { "goals" });
                format!("{who} {count} {goals}")
            }
        };
        prop_assert_eq!(set.render(&template, &locale("pt-BR"), &params).unwrap(), expected);
        let language = set.language_of(&[&template], &locale("pt-BR"), &params).map(|locale| locale.as_str());
        let named = of("pt_BR", brazil).map(|_| "pt-BR").or_else(|| of("pt", portugal).map(|_| "pt"));
        prop_assert_eq!(language, named);
        prop_assert_eq!(set.translates(&template, &locale("pt-BR")), [brazil.1, portugal.1].contains(&State::Right));
    }
}

#[test]
fn a_value_that_is_no_text_selects_nothing() {
    let file = header("pl", TWO) + &entry(scores(false).values().next().unwrap().1, "ona", State::Right);
    let set = translations(&[("pl", &file)]);
    let values = [("goals".to_owned(), ParamValue::Integer(5)), ("gender".to_owned(), ParamValue::Integer(1))];
    let shown = set.render(&scores(false), &locale("pl"), &values.into());
    assert_eq!(shown.unwrap(), "They score 5 goals");
}

#[test]
fn what_cannot_be_selected_by_is_refused() {
    let template = || Template::new(None, "%{player} scores", None).unwrap();
    let refused = |name: &str, value: &str, text| template().select(name, [(value, text)]).unwrap_err();
    let text = |msgid, msgid_plural| Some(SourceText { msgid, msgid_plural });
    let value = "female".to_owned();
    assert_eq!(refused("a b", "female", None), TemplateError::SelectName { name: "a b".into() });
    for wrong in ["", "a|b", "ä", &"x".repeat(65)] {
        assert!(matches!(refused("gender", wrong, None), TemplateError::ValueName { .. }), "{wrong}");
    }
    let name = "player".to_owned();
    assert_eq!(
        refused("gender", "female", text("She scores", None)),
        TemplateError::ValueDiffers { value: value.clone(), name }
    );
    assert_eq!(refused("gender", "female", text("x", Some("y"))), TemplateError::ValuePlural { value });
    let many: Vec<String> = (0..33).map(|number| number.to_string()).collect();
    let many = template().select("gender", many.iter().map(|value| (value.as_str(), None)));
    assert_eq!(many, Err(TemplateError::TooManyValues { count: 33 }));
}

#[test]
fn translators_see_the_message_once_more_for_each_value() {
    let text = pot(&messages()).unwrap().to_po();
    let (_, entries) = text.split_once("\n\n").unwrap();
    let of_value = |value: &str| {
        format!(
            "#. A player.\n#. Only where gender is \"{value}\". It may stay empty: then the translation without this \
             value is taken.\n#. At most 40 characters; a placeholder counts as 8.\n#: card.title|{value}\n\
             #, ruby-format\nmsgctxt \"|{value}\"\nmsgid \"%{{player}} is sent off\"\nmsgstr \"\"\n"
        )
    };
    let plain = "#. A player.\n#. At most 40 characters; a placeholder counts as 8.\n#: card.title\n#, ruby-format\n\
                 msgid \"%{player} is sent off\"\nmsgstr \"\"\n";
    assert_eq!(entries, [plain, &of_value("female"), &of_value("male")].join("\n"));
    assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
    for own in [false, true] {
        let text = pot(&Message::new(scores(own), "goal.title").with_values()).unwrap().to_po();
        assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
        assert_eq!(text.contains("msgctxt \"match|female\"\nmsgid \"She scores"), own, "{text}");
    }
    let plain = Message::new(Template::new(None, "%{player} is sent off", None).unwrap(), "foul.title");
    let shared = pot(messages().iter().chain([&plain])).unwrap().to_po();
    assert!(shared.contains("#: card.title\n#: foul.title\n"), "one translation for both: {shared}");
}

/// A Polish file with these translations without a value, for women and for men.
fn polish(plain: &str, female: &str, male: &str) -> String {
    let entry = |context: &str, text: &str| {
        format!("#, ruby-format\n{context}msgid \"%{{player}} is sent off\"\nmsgstr \"{text}\"\n\n")
    };
    let (she, he) = (entry("msgctxt \"|female\"\n", female), entry("msgctxt \"|male\"\n", male));
    header("pl", POLISH) + &entry("", plain) + &she + &he
}

#[test]
fn a_changed_text_keeps_the_translation_of_each_value() {
    let po = merge(
        &Catalogue::parse(polish("a %{player}", "b %{player}", "").as_bytes()).unwrap(),
        &pot(&messages()).unwrap(),
    );
    let template = Template::new(None, "%{player} must leave", None).unwrap();
    let changed = Message::new(template.select("gender", [("female", None), ("other", None)]).unwrap(), "card.title");
    let merged = merge(&po.catalogue, &pot(&changed.with_values()).unwrap());
    assert_eq!(merged.changes, Changes { outdated: 2, added: 1, ..Changes::default() });
    let text = merged.catalogue.to_po();
    let previous = "#| msgctxt \"|female\"\n#| msgid \"%{player} is sent off\"\n";
    assert!(
        text.contains(&format!(
            "{previous}msgctxt \"|female\"\nmsgid \"%{{player}} must leave\"\nmsgstr \"b %{{player}}\""
        )),
        "{text}"
    );
    assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
}

#[test]
fn a_value_is_checked_as_a_text_of_its_own_and_may_stay_empty_if_the_text_without_it_is_translated() {
    let told = |file: &str| -> Vec<String> {
        let findings = check(&locale("pl"), file.as_bytes(), &messages());
        findings.iter().map(|it| format!("{} {}: {}", it.line, it.kind.code(), it.message)).collect()
    };
    let right = polish("%{player} poza grą", "", "");
    assert_eq!(told(&right), [""; 0]);
    assert_eq!(
        told(&polish("", "%{player} wyszła", "")),
        ["11 untranslated: not translated yet", "21 untranslated: not translated yet"]
    );
    let wrong = polish("%{player} poza grą", "wyszła", "");
    assert_eq!(told(&wrong), ["16 missing-placeholder: the translation lacks %{player}"]);
    assert!(our_verdict("pl", wrong.as_bytes(), &[sent_off()]).is_err(), "the server does not send it");
    let unknown = right.replace("|male", "|neuter");
    let finding = &check(&locale("pl"), unknown.as_bytes(), &messages())[1];
    assert_eq!(finding.message, "the message has no text for \"neuter\", so this translation is not sent");
    assert_eq!(finding.help.as_deref(), Some("it has texts for female, male; merge the file with the POT file"));
    assert_eq!((finding.line, finding.kind.code()), (20, "unknown-value"));
}

#[test]
fn what_inherits_is_neither_translated_nor_left_to_do() {
    let count = |file: &str| {
        let stats = stats(&Catalogue::parse(file.as_bytes()).unwrap(), &messages());
        [stats.translated, stats.untranslated, stats.inheriting, stats.total()].map(|count| count.messages)
    };
    assert_eq!(count(&polish("%{player}", "", "")), [1, 0, 2, 1]);
    assert_eq!(count(&polish("%{player}", "%{player}", "")), [2, 0, 1, 2]);
    assert_eq!(count(&polish("", "%{player}", "")), [1, 2, 0, 3]);
    assert_eq!(count(&polish("", "%{player}", "").replacen("#, ", "#, fuzzy, ", 1)), [1, 2, 0, 3]);
    let told = gnu("msgfmt", &["-c", "-o", "/dev/null"], &[&polish("%{player}", "", "")]);
    assert_eq!(told, Ok(String::new()), "for gettext it is a file as any other");
}

#[test]
fn a_name_in_a_case_falls_back_to_the_name() {
    let names = Template::new(Some("team"), "Sweden", None).unwrap().select("case", [("after-for", None)]).unwrap();
    let text = pot(&Message::new(names, "names.team").with_values()).unwrap().to_po();
    assert!(text.contains("#: names.team|after-for\nmsgctxt \"team|after-for\"\nmsgid \"Sweden\"\n"), "{text}");
    let file = header("pl", POLISH)
        + "msgid \"%{team}\"\nmsgstr \"%{team}\"\n\n\
           msgctxt \"team\"\nmsgid \"Sweden\"\nmsgstr \"Szwecja\"\n\n\
           msgctxt \"team|after-for\"\nmsgid \"Sweden\"\nmsgstr \"Szwecji\"\n\n\
           msgctxt \"team\"\nmsgid \"Poland\"\nmsgstr \"Polska\"\n\n";
    let set = translations(&[("pl", &file)]);
    let template = Template::new(None, "%{team}", None).unwrap();
    let shown = |name: &str, context: &str, with_room| {
        let value = serde_json::from_str(&format!(r#"{{"name":"{name}","context":"{context}"}}"#)).unwrap();
        let pl = locale("pl");
        let reader = Reader { names: &[&set], with_room, ..Reader::new(&pl) };
        let params = BTreeMap::from([("team".to_owned(), value)]);
        set.render_for(&template, &pl, &params, &reader).unwrap()
    };
    assert_eq!(shown("Sweden", "team|after-for", false), "Szwecji");
    assert_eq!(shown("Poland", "team|after-for", false), "Polska");
    assert_eq!(shown("Sweden", "team", false), "Szwecja");
    assert_eq!(shown("Norway", "team|after-for", false), "Norway");
    assert_eq!(shown("Sweden", "team|after-for", true), format!("Szwecji{}", " ".repeat(7)), "room for the longest");
}
