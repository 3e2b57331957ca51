//! What translators send: catalogues, plural rules, texts with placeholders.

use std::collections::BTreeMap;

use tidings_gettext::{Catalogue, Entry, Plural, PluralRule, Template, Translations};
use tidings_types::{Locale, ParamValue};

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

/// A source text, and after zero bytes its plural and its context.
pub(crate) fn template(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut parts = text.splitn(3, '\0');
    let msgid = parts.next().unwrap_or_default();
    let plural = parts.next().map(|msgid_plural| Plural { msgid_plural, count: "n" });
    let Ok(template) = Template::new(parts.next(), msgid, plural) else { return };
    assert_eq!((template.msgid(), template.msgid_plural()), (msgid, plural.map(|plural| plural.msgid_plural)));
    show(&Translations::default(), &template, &Locale::new("en").expect("it is one"));
    if !text.contains('%') {
        let params = BTreeMap::from([("n".to_owned(), ParamValue::Integer(1))]);
        let shown = Translations::default().render(&template, &Locale::new("en").expect("it is one"), &params);
        assert_eq!(shown.as_deref(), Ok(msgid), "text without a percent sign is itself");
    }
    let pot = tidings_gettext::pot([&template]).expect("one template contradicts nobody");
    let catalogue = Catalogue::parse(pot.as_bytes()).expect("what we write we read");
    assert!(catalogue.entries().iter().any(|entry| entry.msgid == msgid), "{pot}");
}
