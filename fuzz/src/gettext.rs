//! What translators send: catalogues, plural rules, texts with placeholders; and the values that back ends send for them.

use std::collections::BTreeMap;

use tidings_gettext::{
    Catalogue, Entry, Message, Plural, PluralRule, Pseudo, Reader, Template, Translations, check, merge, normalise,
    stats,
};
use tidings_types::{Locale, ParamValue, TimeZone};

/// A catalogue that is taken is written and read again as the same, and every message in it can be shown.
pub(crate) fn catalogue(bytes: &[u8]) {
    let Ok(catalogue) = Catalogue::parse(bytes) else { return };
    let written = catalogue.to_po();
    let again = Catalogue::parse(written.as_bytes()).expect("what we write we read");
    assert_eq!(contents(&again), contents(&catalogue), "{written}");
    assert_eq!(again.plural_rule(), catalogue.plural_rule());
    assert_eq!(again.to_po(), written, "the canonical form is its own");

    let templates: Vec<Template> = catalogue.entries().iter().filter_map(template_of).collect();
    let locale = Locale::new("pl").expect("it is one");
    let translations = Translations::new(vec![(locale.clone(), catalogue)]);
    translations.check(&templates);
    templates.iter().for_each(|template| show(&translations, template, &locale));
}

/// A catalogue, and after a zero byte the one that it is merged with, or that it replaces. What comes out is read again
/// as it is, and doing it twice changes nothing.
pub(crate) fn merging(bytes: &[u8]) {
    let mut files = bytes.splitn(2, |byte| *byte == 0);
    let (first, second) = (files.next().unwrap_or_default(), files.next());
    let locale = Locale::new("pl").expect("it is one");
    check_places(first, &locale);
    let Ok(first) = Catalogue::parse(first) else { return };
    let second = second.map_or(Ok(first.clone()), Catalogue::parse);
    let Ok(second) = second else { return };

    let merged = settled(&merge(&first, &second).catalogue);
    assert_eq!(merge(&merged, &second).catalogue.to_po(), merged.to_po());
    let in_use = |catalogue: &Catalogue| -> Vec<_> {
        let entries = catalogue.entries().iter().filter(|entry| !entry.obsolete && !is_header(entry));
        entries.map(|entry| (entry.msgctxt.clone(), entry.msgid.clone(), entry.msgid_plural.clone())).collect()
    };
    assert_eq!(in_use(&merged), in_use(&second), "the messages of the POT file in its order");
    assert_eq!(stats(&merged, &[]).total().messages, in_use(&second).len());

    for old in [None, Some(&second)] {
        let normal = settled(&normalise(&first, old));
        assert_eq!(normalise(&normal, old).to_po(), normal.to_po());
        assert_eq!(normalise(&normal, Some(&normal)).to_po(), normal.to_po(), "pulled without a change");
    }
    for pseudo in Pseudo::ALL {
        assert_eq!(in_use(&settled(&pseudo.catalogue(&second))), in_use(&second));
    }
}

/// What is written, read again.
fn settled(catalogue: &Catalogue) -> Catalogue {
    let written = catalogue.to_po();
    let again = Catalogue::parse(written.as_bytes()).expect("what we write we read");
    assert_eq!(contents(&again), contents(catalogue), "{written}");
    again
}

fn is_header(entry: &Entry) -> bool {
    entry.msgctxt.is_none() && entry.msgid.is_empty()
}

/// A finding points at a part of a line.
fn check_places(file: &[u8], locale: &Locale) {
    for finding in check(locale, file, &[]) {
        let pointed = file.get(finding.range.clone()).expect("it is in the file");
        assert!(!pointed.contains(&b'\n') && finding.line > 0 && finding.column > 0, "{finding:?}");
    }
}

/// Everything but the lines.
fn contents(catalogue: &Catalogue) -> Vec<Entry> {
    catalogue.entries().iter().map(|entry| Entry { line: 0, ..entry.clone() }).collect()
}

fn template_of(entry: &Entry) -> Option<Template> {
    let plural = entry.msgid_plural.as_deref().map(|msgid_plural| Plural { msgid_plural, count: "n" });
    Template::new(entry.msgctxt.as_deref(), &entry.msgid, plural).ok()
}

/// Once its parameters are accepted, rendering cannot fail.
fn show(translations: &Translations, template: &Template, locale: &Locale) {
    for n in [i64::MIN, -1, 0, 1, 2, 5, 22, i64::MAX] {
        let value = |name: &str| match template.count() {
            Some(count) if count == name => ParamValue::Integer(n),
            _ => ParamValue::Text("%{x}\u{202e}שלום%".to_owned()),
        };
        let params: BTreeMap<_, _> = template.placeholders().map(|name| (name.to_owned(), value(name))).collect();
        template.check_params(&params).expect("nothing is missing");
        let text = translations.render(template, locale, &params).expect("the parameters were accepted");
        assert_eq!(text, translations.render(template, locale, &params).expect("as before"));
    }
}

/// Whatever the value, it is refused or has a text in each language and zone, and none is longer than its room.
fn fill(template: &Template, value: ParamValue) {
    let count = template.count().map(|count| (count.to_owned(), ParamValue::Integer(1)));
    let others = template.placeholders().map(|name| (name.to_owned(), value.clone()));
    let params: BTreeMap<_, _> = others.chain(count).collect();
    if template.check_params(&params).is_err() {
        return;
    }
    for (text, regions) in [("en", ["en-GB", "en-IN"]), ("ar", ["ar-EG", "ar-SA"]), ("pt", ["pt-BR", "pt-PT"])] {
        let text = Locale::new(text).expect("it is one");
        let render = |reader: &Reader<'_>| {
            let text = Translations::default().render_for(template, &text, &params, reader);
            text.expect("the parameters were accepted").len()
        };
        let room = render(&Reader { with_room: true, ..Reader::new(&text) });
        for (region, zone) in regions.into_iter().zip(["Asia/Kathmandu", "Nowhere/At_all"]) {
            let (region, zone) = (Locale::new(region).expect("it is one"), TimeZone::new(zone).expect("so is this"));
            assert!(render(&Reader { zone: Some(&zone), ..Reader::new(&region) }) <= room, "{region}");
        }
    }
}

/// A rule gives every number a form there is.
pub(crate) fn plural(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Ok(rule) = PluralRule::parse(text) else { return };
    let forms = rule.form_count();
    assert!((1..=tidings_gettext::limits::PLURAL_FORM_COUNT_MAX).contains(&forms));
    for n in (0..=10).chain([100, 1001, u64::MAX / 2, u64::MAX - 1, u64::MAX]) {
        assert!(rule.index(n) < forms, "{n}");
    }
    for form in 0..=forms {
        if let Some(n) = rule.only(form) {
            assert_eq!(rule.index(n), form, "{n}");
        }
    }
    assert!(rule.outlier().is_none_or(|n| n <= 1000 && rule.index(n) == 0));
}

/// A source text, and after zero bytes its plural, its context, and a value for its placeholders as JSON.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut parts = text.splitn(4, '\0');
    let msgid = parts.next().unwrap_or_default();
    let plural = parts.next().map(|msgid_plural| Plural { msgid_plural, count: "n" });
    let Ok(template) = Template::new(parts.next(), msgid, plural) else { return };
    parts.next().and_then(|json| serde_json::from_str(json).ok()).into_iter().for_each(|value| fill(&template, value));
    assert_eq!((template.msgid(), template.msgid_plural()), (msgid, plural.map(|plural| plural.msgid_plural)));
    show(&Translations::default(), &template, &Locale::new("en").expect("it is one"));
    if !text.contains('%') {
        let params = BTreeMap::from([("n".to_owned(), ParamValue::Integer(1))]);
        let shown = Translations::default().render(&template, &Locale::new("en").expect("it is one"), &params);
        assert_eq!(shown.as_deref(), Ok(msgid), "text without a percent sign is itself");
    }
    let template = template.select("gender", [("female", None)]).expect("its own text fits");
    let messages = Message::new(template, "topic.title").with_values();
    let pot = tidings_gettext::pot(&messages).expect("the messages have different contexts").to_po();
    let catalogue = Catalogue::parse(pot.as_bytes()).expect("what we write we read");
    assert_eq!(catalogue.entries().iter().filter(|entry| entry.msgid == msgid).count(), 2, "{pot}");
}
