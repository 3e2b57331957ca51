//! Rendering of a template with parameters into one language.

use std::collections::BTreeMap;

use proptest::prelude::*;
use tidings_gettext::{Flaw, Plural, Reader, RenderError, Template};
use tidings_types::ParamValue;

use crate::{POLISH, TWO, header, locale, translations};

fn params(pairs: &[(&str, ParamValue)]) -> BTreeMap<String, ParamValue> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

fn goals() -> Template {
    let plural = Plural { msgid_plural: "%{goals} goals for %{team}", count: "goals" };
    Template::new(None, "%{goals} goal for %{team}", Some(plural)).unwrap()
}

fn two_of(goals: i64) -> BTreeMap<String, ParamValue> {
    params(&[("goals", ParamValue::Integer(goals)), ("team", ParamValue::Text("Vega".into()))])
}

const GOALS: &str = "msgid \"%{goals} goal for %{team}\"\nmsgid_plural \"%{goals} goals for %{team}\"\n";

#[test]
fn the_most_specific_correct_translation_is_taken_or_else_the_source_text() {
    let entry = |flag: &str, msgid: &str, text: &str| format!("{flag}msgid \"{msgid}\"\nmsgstr \"{text}\"\n");
    let brazil =
        header("pt_BR", TWO) + &entry("", "a", "a BR") + &entry("#, fuzzy\n", "b", "b BR") + &entry("", "c", "");
    let portugal = header("pt", TWO) + &entry("", "a", "a PT") + &entry("", "b", "b PT") + &entry("#~ ", "d", "d PT");
    let portugal = portugal.replace("#~ msgid \"d\"\nmsgstr", "#~ msgid \"d\"\n#~ msgstr");
    let set = translations(&[("pt-BR", &brazil), ("pt", &portugal)]);
    assert_eq!(set.check([]), [], "untranslated and fuzzy messages are not mistakes");
    let render = |msgid: &str, name: &str| {
        set.render(&Template::new(None, msgid, None).unwrap(), &locale(name), &BTreeMap::new()).unwrap()
    };
    for (msgid, name, expected) in [
        ("a", "pt-BR", "a BR"),
        ("b", "pt-BR", "b PT"),
        ("c", "pt-BR", "c"),
        ("d", "pt-BR", "d"),
        ("a", "pt-PT", "a PT"),
        ("a", "de", "a"),
        ("unknown", "pt", "unknown"),
    ] {
        assert_eq!(render(msgid, name), expected, "{msgid} in {name}");
    }
}

#[test]
fn the_context_distinguishes_messages_with_the_same_text() {
    let file = header("de", TWO)
        + "msgctxt \"time\"\nmsgid \"second\"\nmsgstr \"Sekunde\"\n\
        msgctxt \"rank\"\nmsgid \"second\"\nmsgstr \"zweiter\"\n";
    let set = translations(&[("de", &file)]);
    let render = |context| {
        let template = Template::new(context, "second", None).unwrap();
        set.render(&template, &locale("de"), &BTreeMap::new()).unwrap()
    };
    assert_eq!([render(Some("time")), render(Some("rank")), render(None)], ["Sekunde", "zweiter", "second"]);
}

#[test]
fn a_translation_follows_the_rule_of_its_file_and_the_source_text_its_own_rule() {
    let file = header("pl", POLISH)
        + GOALS
        + "msgstr[0] \"gol: %{team}\"\nmsgstr[1] \"%{goals} gole: %{team}\"\n\
        msgstr[2] \"%{goals} goli: %{team}\"\n";
    let set = translations(&[("pl", &file)]);
    assert_eq!(set.check(&[goals()]), [], "a form that only 1 takes may leave out the count");
    for (n, polish, english) in [
        (0, "0 goli: Vega", "0 goals for Vega"),
        (1, "gol: Vega", "1 goal for Vega"),
        (-1, "gol: Vega", "-1 goal for Vega"),
        (22, "22 gole: Vega", "22 goals for Vega"),
        (i64::MIN, "-9223372036854775808 goli: Vega", "-9223372036854775808 goals for Vega"),
    ] {
        assert_eq!(set.render(&goals(), &locale("pl"), &two_of(n)).unwrap(), polish);
        assert_eq!(set.render(&goals(), &locale("sv"), &two_of(n)).unwrap(), english);
    }
}

#[test]
fn a_missing_parameter_is_named_even_if_the_translation_does_not_show_it() {
    let file = header("pl", POLISH)
        + GOALS
        + "msgstr[0] \"gol: %{team}\"\nmsgstr[1] \"%{goals} gole: %{team}\"\n\
        msgstr[2] \"%{goals} goli: %{team}\"\n";
    let set = translations(&[("pl", &file)]);
    let render = |params| set.render(&goals(), &locale("pl"), &params);
    let missing = |name: &str| Err(RenderError::MissingParam { name: name.into() });
    assert_eq!(render(params(&[("goals", ParamValue::Integer(1))])), missing("team"));
    assert_eq!(render(params(&[("team", ParamValue::Integer(1))])), missing("goals"));
    let text = params(&[("team", ParamValue::Integer(1)), ("goals", ParamValue::Text("1".into()))]);
    assert_eq!(render(text), Err(RenderError::CountNotInteger { name: "goals".into() }));
}

/// Checks one entry of a Polish catalogue for `template` and returns the flaws. Also checks that an entry with flaws is
/// not rendered.
fn flaws(template: &Template, entry: &str) -> Vec<Flaw> {
    let file = header("pl", POLISH) + entry;
    let set = translations(&[("pl", &file)]);
    let problems = set.check([template]);
    let params = two_of(1);
    let source = translations(&[]).render(template, &locale("pl"), &params).unwrap();
    let sent = set.render(template, &locale("pl"), &params).unwrap();
    assert_eq!(sent == source, !problems.is_empty(), "{problems:?}");
    for problem in &problems {
        assert_eq!((problem.locale.as_str(), problem.msgid.as_str()), ("pl", template.msgid()));
        assert_eq!(problem.line, 1 + file[..file.rfind("\nmsgid ").unwrap() + 1].matches('\n').count());
    }
    problems.into_iter().map(|problem| problem.flaw).collect()
}

#[test]
fn a_translation_that_does_not_fit_its_source_is_reported_and_never_rendered() {
    let template = Template::new(None, "Goal for %{team}!", None).unwrap();
    let flaws_of = |text: &str| flaws(&template, &format!("msgid \"Goal for %{{team}}!\"\nmsgstr \"{text}\"\n"));
    let name = |name: &str| name.to_owned();
    assert_eq!(flaws_of("%{team}: gol!"), []);
    assert_eq!(flaws_of("Gol!"), [Flaw::MissingPlaceholder { form: 0, name: name("team") }]);
    assert_eq!(
        flaws_of("Gol: %{tema}!"),
        [
            Flaw::MissingPlaceholder { form: 0, name: name("team") },
            Flaw::UnknownPlaceholder { form: 0, name: name("tema") }
        ]
    );
    assert!(matches!(flaws_of("100 % %{team}")[..], [Flaw::Placeholder { form: 0, .. }]));
    assert_eq!(flaws_of("%{team}\\n"), [Flaw::Newline { form: 0 }]);
    assert!(matches!(flaws_of(&format!("%{{team}}{}", "x".repeat(4096)))[..], [Flaw::TooLong { bytes: 4103, .. }]));
}

#[test]
fn plural_forms_that_do_not_fit_are_reported_and_never_rendered() {
    let flaws_of = |forms: &[&str]| {
        let forms: String =
            forms.iter().enumerate().map(|(form, text)| format!("msgstr[{form}] \"{text}\"\n")).collect();
        flaws(&goals(), &format!("{GOALS}{forms}"))
    };
    let lacks = |form, name: &str| Flaw::MissingPlaceholder { form, name: name.to_owned() };
    assert_eq!(flaws_of(&["%{team}", "%{team} %{goals}", "%{goals} %{team}"]), []);
    assert_eq!(flaws_of(&["%{team}", "%{team}", "%{goals} %{team}"]), [lacks(1, "goals")], "22 takes form 1 as well");
    assert_eq!(flaws_of(&["%{goals}", "%{team} %{goals}", "%{goals} %{team}"]), [lacks(0, "team")]);
    assert_eq!(flaws_of(&["%{team}", "%{team} %{goals}"]), [Flaw::FormCount { expected: 3, found: 2 }]);
    assert_eq!(flaws_of(&["%{team}", "", "%{goals} %{team}"]), [Flaw::FormEmpty { form: 1 }]);

    let singular = Template::new(None, goals().msgid(), None).unwrap();
    let entry = format!("{GOALS}msgstr[0] \"%{{team}} %{{goals}}\"\n")
        .replace("msgstr[0]", "msgstr[0] \"\"\nmsgstr[1] \"\"\nmsgstr[2]");
    assert!(flaws(&singular, &entry).contains(&Flaw::PluralDiffers));
}

#[test]
fn a_mistake_of_the_whole_file_is_reported_at_its_header() {
    let flaws = |files: &[(&str, &str)]| -> Vec<_> {
        translations(files).check([]).into_iter().map(|problem| (problem.line, problem.flaw)).collect()
    };
    let german = header("de", TWO);
    assert_eq!(flaws(&[("de", &german)]), []);
    assert_eq!(flaws(&[("fr", &german)]), [(1, Flaw::Language { stated: "de".into() })]);
    assert_eq!(flaws(&[("de", &german), ("de", &german)]), [(1, Flaw::DuplicateLocale)]);
    assert_eq!(flaws(&[("de", &header("de", "nplurals=2; plural=n;"))]), [(1, Flaw::PluralRange { n: 2 })]);
    let no_rule = format!("# about\n{}", german.replace(&format!("\"Plural-Forms: {TWO}\\n\"\n"), ""));
    assert_eq!(flaws(&[("de", &no_rule)]), []);
    let plural = no_rule + "msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[0] \"c\"\nmsgstr[1] \"d\"\n";
    assert_eq!(flaws(&[("de", &plural)]), [(2, Flaw::PluralFormsMissing)]);
}

#[test]
fn a_check_reports_the_first_thousand_problems() {
    let entries: String = (0..600).map(|index| format!("msgid \"{index} %{{a}}\"\nmsgstr \"%{{b}}\"\n")).collect();
    let problems = translations(&[("de", &(header("de", TWO) + &entries))]).check([]);
    assert_eq!((problems.len(), problems[999].msgid.as_str()), (1000, "499 %{a}"));
}

proptest! {
    #[test]
    fn any_translation_is_either_reported_or_rendered_and_never_an_error(
        forms in proptest::collection::vec(
            "(%\\{team\\}|%\\{goals\\}|%\\{x\\}|%%|%|a| |ż|\\\\n){0,5}", 3
        ),
        n: i64,
    ) {
        let forms: String =
            forms.iter().enumerate().map(|(form, text)| format!("msgstr[{form}] \"{text}\"\n")).collect();
        let file = header("pl", POLISH) + GOALS + &forms;
        let (set, template) = (translations(&[("pl", &file)]), goals());
        let sent = set.render(&template, &locale("pl"), &two_of(n)).unwrap();
        if !set.check([&template]).is_empty() {
            let source = translations(&[]).render(&template, &locale("pl"), &two_of(n)).unwrap();
            prop_assert_eq!(sent, source);
        } else if !forms.contains("\"\"") {
            prop_assert!(sent.contains("Vega"), "{}", sent);
        }
    }
}

fn typed(json: &str) -> ParamValue {
    serde_json::from_str(json).unwrap()
}

#[test]
fn a_name_is_looked_up_where_the_reader_says_and_else_stays_as_it_is() {
    let entry = |context: &str, msgid: &str, msgstr: &str| {
        format!("msgctxt \"{context}\"\nmsgid \"{msgid}\"\nmsgstr \"{msgstr}\"\n\n")
    };
    let text = "msgid \"Goal for %{team}!\"\nmsgstr \"Gol: %{team}!\"\n\n";
    let pt = header("pt", TWO) + text + &entry("team", "Sweden", "Suécia") + &entry("team", "Norway", "");
    let brazil = header("pt_BR", TWO) + &entry("team", "Poland", "Polônia");
    let other = header("pt", TWO) + &entry("team", "Norway", "Noruega") + &entry("team", "Sweden", "never");
    let (set, other) = (translations(&[("pt", &pt), ("pt-BR", &brazil)]), translations(&[("pt", &other)]));
    let template = Template::new(None, "Goal for %{team}!", None).unwrap();
    let render = |name: &str, device: &str| {
        let device = locale(device);
        let reader = Reader { names: &[&set, &other], ..Reader::new(&device) };
        set.render_for(&template, &device, &params(&[("team", typed(name))]), &reader).unwrap()
    };
    for (name, device, expected) in [
        (r#"{"name":"Sweden","context":"team"}"#, "pt", "Gol: Suécia!"),
        (r#"{"name":"Sweden","context":"team"}"#, "pt-BR", "Gol: Suécia!"),
        (r#"{"name":"Sweden"}"#, "pt", "Gol: Sweden!"),
        (r#"{"name":"Poland","context":"team"}"#, "pt-BR", "Gol: Polônia!"),
        (r#"{"name":"Poland","context":"team"}"#, "pt", "Gol: Poland!"),
        (r#"{"name":"Norway","context":"team"}"#, "pt", "Gol: Noruega!"),
        (r#"{"name":"%{x} 100%","context":"team"}"#, "pt", "Gol: %{x} 100%!"),
        (r#"{"name":"Sweden","context":"team"}"#, "fi", "Goal for Sweden!"),
    ] {
        assert_eq!(render(name, device), expected, "{name} in {device}");
    }
}

#[test]
fn a_typed_number_counts_and_every_typed_value_is_isolated_in_arabic() {
    let set = translations(&[("pl", &polish_goals()), ("ar", &arabic())]);
    let render = |name: &str, value: &str| {
        let params = params(&[("goals", typed(value)), ("team", ParamValue::Text("Vega".into()))]);
        set.render(&goals(), &locale(name), &params)
    };
    assert_eq!(render("pl", r#"{"number":12345}"#).unwrap(), "12\u{a0}345 goli, Vega");
    assert_eq!(render("ar", r#"{"number":12345}"#).unwrap(), "\u{2068}12,345\u{2069} \u{2068}Vega\u{2069}");
    let wrong = RenderError::CountNotInteger { name: "goals".into() };
    for value in [r#"{"number":2.5}"#, r#"{"percent":2}"#, r#"{"date":"2026-11-24"}"#] {
        assert_eq!(render("pl", value), Err(wrong.clone()), "{value}");
    }
}

fn polish_goals() -> String {
    header("pl", POLISH)
        + GOALS
        + "msgstr[0] \"%{goals} gol, %{team}\"\nmsgstr[1] \"%{goals} gole, %{team}\"\nmsgstr[2] \"%{goals} goli, %{team}\"\n"
}

fn arabic() -> String {
    header("ar", "nplurals=1; plural=0;") + GOALS + "msgstr[0] \"%{goals} %{team}\"\n"
}

/// Any value that the API can accept, and a few that it does not.
fn any_typed() -> impl Strategy<Value = serde_json::Value> {
    use proptest::sample::select;
    use serde_json::{Value, json};
    let number = || prop_oneof![any::<i64>().prop_map(Value::from), (-1e15..1e15_f64).prop_map(Value::from)];
    let digits = || proptest::option::of(0..=15_u8);
    let style = select(tidings_types::Style::ALL.to_vec()).prop_map(|(name, _)| name);
    let zone = || select(vec!["device", "UTC", "Europe/Stockholm", "Australia/Lord_Howe", "America/St_Johns"]);
    let moment = (1970..=9999_u32, 2..=12_u32, 1..=28_u32, 0..24_u32, 0..60_u32, 0..24_u32)
        .prop_map(|(year, month, day, hour, minute, offset)| {
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:00-{offset:02}:30")
        })
        .prop_filter("in range", |text| text.parse::<tidings_types::DateTime>().is_ok());
    prop_oneof![
        (number(), digits()).prop_map(|(number, digits)| json!({"number": number, "digits": digits})),
        (number(), digits()).prop_map(|(number, digits)| json!({"percent": number, "digits": digits})),
        (number(), "[A-Z]{3}").prop_map(|(number, currency)| json!({"money": number, "currency": currency})),
        (moment, style, zone()).prop_map(|(at, style, zone)| json!({"datetime": at, "style": style, "zone": zone})),
        (1..=9999_u32, 1..=12_u32, 1..=28_u32)
            .prop_map(|(year, month, day)| json!({"date": format!("{year:04}-{month:02}-{day:02}")})),
        (".{1,20}", proptest::option::of(".{1,8}"))
            .prop_map(|(name, context)| json!({"name": name, "context": context})),
    ]
}

proptest! {
    /// Each value has a text for each reader; its isolates are balanced, and it is within its room.
    #[test]
    fn every_value_has_a_text_for_every_reader(
        value in any_typed(),
        (text, device) in proptest::sample::select(vec![
            ("en", "en-ZA"), ("ar", "ar-EG"), ("he", "he-IL"), ("fa", "fa-AF"), ("sv", "sv-FI"), ("und", "my"), ("ja", "th"),
        ]),
        zone in proptest::sample::select(vec![None, Some("Asia/Kathmandu"), Some("Pacific/Apia"), Some("Mars/Base")]),
    ) {
        let file = header(text, TWO) + "msgid \"%{v}\"\nmsgstr \"%{v}\"\n";
        let (set, template) = (translations(&[(text, &file)]), Template::new(None, "%{v}", None).unwrap());
        let (text, device) = (locale(text), locale(device));
        let zone = zone.map(|zone| tidings_types::TimeZone::new(zone).unwrap());
        let params = params(&[("v", serde_json::from_value(value).unwrap())]);
        let render = |reader: &Reader<'_>| set.render_for(&template, &text, &params, reader).unwrap();
        let shown = render(&Reader { zone: zone.as_ref(), ..Reader::new(&device) });
        let depth = shown.chars().try_fold(0_i32, |depth, character| match character {
            '\u{2066}'..='\u{2068}' => Some(depth + 1),
            '\u{2069}' => (depth > 0).then_some(depth - 1),
            _ => Some(depth),
        });
        prop_assert_eq!(depth, Some(0), "{:?}", shown);
        prop_assert!(shown.len() <= render(&Reader { with_room: true, ..Reader::new(&text) }).len(), "{:?}", shown);
    }
}
