//! The demo's texts are complete, correct and in the canonical form in every language.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tidings_gettext::{Catalogue, Message, Plural, Template, Translations, pot};
use tidings_types::{Locale, ParamValue};

use crate::{locale, msgfmt_verdict};

/// The folders of the catalogues, and the number of plural forms of each language.
pub(crate) const LANGUAGES: [(&str, usize); 7] =
    [("ar", 6), ("de", 2), ("es", 2), ("fr", 2), ("ja", 1), ("pl", 3), ("pt_BR", 2)];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../demo")
}

pub(crate) fn file(language: &str) -> String {
    let path = folder().join("locales").join(language).join("LC_MESSAGES/match.po");
    std::fs::read_to_string(path).unwrap()
}

pub(crate) fn templates() -> Vec<Template> {
    messages().into_iter().map(|message| message.template).collect()
}

pub(crate) fn messages() -> Vec<Message> {
    let topics: toml::Table = std::fs::read_to_string(folder().join("topics.toml")).unwrap().parse().unwrap();
    let mut messages = Vec::new();
    for (name, topic) in topics["topics"].as_table().unwrap() {
        let text = |key: &str| topic.get(key).map(|value| value.as_str().unwrap());
        assert_eq!(text("domain"), Some("match"));
        for key in ["title", "body"] {
            let plural = text(&format!("{key}_plural"))
                .map(|msgid_plural| Plural { msgid_plural, count: text("count").unwrap() });
            let template = Template::new(text("context"), text(key).unwrap(), plural).unwrap();
            messages.push(Message::new(template, format!("{name}.{key}")));
        }
    }
    messages
}

fn translations() -> Translations {
    let read = |(name, _): (&str, usize)| (locale(name), Catalogue::parse(file(name).as_bytes()).unwrap());
    Translations::new(LANGUAGES.into_iter().map(read).collect())
}

#[test]
fn every_file_is_correct_canonical_and_accepted_by_msgfmt() {
    assert_eq!(translations().check(&templates()), []);
    for (language, form_count) in LANGUAGES {
        let text = file(language);
        let catalogue = Catalogue::parse(text.as_bytes()).unwrap();
        assert_eq!(catalogue.plural_rule().form_count(), form_count, "{language}");
        assert_eq!(catalogue.header("Language"), Some(language));
        assert_eq!(catalogue.to_po(), text, "{language}: not in the canonical form, or a flag is lost");
        assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()), "{language}");
    }
}

#[test]
fn writing_a_file_restores_a_removed_or_negated_flag() {
    let text = file("ar");
    for damage in ["", "#, no-ruby-format\n"] {
        let damaged = text.replace("#, ruby-format\n", damage);
        assert_eq!(Catalogue::parse(damaged.as_bytes()).unwrap().to_po(), text);
    }
}

#[test]
fn every_file_translates_every_template_and_nothing_else() {
    let wanted = pot(&messages()).unwrap();
    let messages = |catalogue: &Catalogue| -> Vec<_> {
        let entries = catalogue.entries().iter().skip(1);
        let mut keys: Vec<_> =
            entries.map(|entry| (entry.msgid.clone(), entry.msgid_plural.clone(), entry.is_translated())).collect();
        keys.sort();
        keys
    };
    let wanted: Vec<_> = messages(&wanted).into_iter().map(|(msgid, plural, _)| (msgid, plural, true)).collect();
    for (language, _) in LANGUAGES {
        assert_eq!(messages(&Catalogue::parse(file(language).as_bytes()).unwrap()), wanted, "{language}");
    }
}

#[test]
fn a_goal_is_rendered_in_each_language() {
    let (translations, templates) = (translations(), templates());
    let text = |text: &str| ParamValue::Text(text.into());
    let number = ParamValue::Integer;
    let params: BTreeMap<_, _> = [
        ("team", text("Vega")),
        ("scorer", text("Alba")),
        ("minute", number(63)),
        ("home", text("Vega")),
        ("home_goals", number(2)),
        ("away_goals", number(1)),
        ("away", text("Orion")),
        ("minutes", number(2)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    let render = |msgid: &str, name: &str| {
        let template = templates.iter().find(|template| template.msgid() == msgid).unwrap();
        translations.render(template, &Locale::new(name).unwrap(), &params).unwrap()
    };
    let goal = "%{scorer} scores in minute %{minute}. %{home} %{home_goals} – %{away_goals} %{away}";
    assert_eq!(render(goal, "en-GB"), "Alba scores in minute 63. Vega 2 – 1 Orion");
    assert_eq!(render(goal, "es-MX"), "Alba marca en el minuto 63. Vega 2 – 1 Orion");
    assert_eq!(render(goal, "pt"), "Alba scores in minute 63. Vega 2 – 1 Orion", "pt-BR is not a fallback of pt");
    assert_eq!(render("Goal for %{team}!", "ar"), "هدف لفريق \u{2068}Vega\u{2069}!");
    let added = "%{minutes} minute added";
    assert_eq!(render(added, "pl"), "Doliczono 2 minuty");
    assert_eq!(render(added, "ar-EG"), "دقيقتان وقتًا بدل ضائع");
    assert_eq!(render(added, "ja"), "アディショナルタイムは2分です");
}
