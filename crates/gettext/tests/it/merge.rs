//! Merging a catalogue with the POT file, compared with GNU `msgmerge`, and the rule for changed source texts.

use proptest::prelude::*;
use proptest::sample::select;
use tidings_gettext::{Catalogue, Changes, Entry, Message, Plural, Template, Translations, merge, pot};

use crate::po::{entries, foreign_style, some_entries};
use crate::{POLISH, TWO, gnu, header, locale, msgfmt_verdict};

fn catalogue(text: &str) -> Catalogue {
    Catalogue::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The POT file of plain messages, each a reference and a text.
fn sources(messages: &[(&str, &str)]) -> Catalogue {
    let message = |(reference, text): &(&str, &str)| Message::new(Template::new(None, text, None).unwrap(), *reference);
    pot(&messages.iter().map(message).collect::<Vec<_>>()).unwrap()
}

/// A catalogue of plain entries: a reference, a text and a translation.
fn german(messages: &[(&str, &str, &str)]) -> Catalogue {
    let entry = |(reference, text, translation): &(&str, &str, &str)| {
        format!("#: {reference}\nmsgid \"{text}\"\nmsgstr \"{translation}\"\n\n")
    };
    catalogue(&(header("de", TWO) + &messages.iter().map(entry).collect::<String>()))
}

/// The entries without the header, as they are written.
fn body(catalogue: &Catalogue) -> String {
    catalogue.to_po().split_once("\n\n").map_or_else(String::new, |(_, body)| body.to_owned())
}

#[test]
fn a_changed_text_keeps_its_translation_in_service_and_says_what_it_was_made_for() {
    let po = german(&[("goal.title", "Gaol for %{team}!", "Tor für %{team}!"), ("goal.body", "x", "y")]);
    let merged = merge(&po, &sources(&[("goal.title", "Goal for %{team}!"), ("goal.body", "x")]));
    assert_eq!(merged.changes, Changes { outdated: 1, kept: 1, ..Changes::default() });
    assert_eq!(
        body(&merged.catalogue),
        "#: goal.title\n#, ruby-format\n#| msgid \"Gaol for %{team}!\"\nmsgid \"Goal for %{team}!\"\n\
         msgstr \"Tor für %{team}!\"\n\n#: goal.body\nmsgid \"x\"\nmsgstr \"y\"\n"
    );
    assert!(merged.catalogue.entries()[1].is_outdated());

    let again = merge(&merged.catalogue, &sources(&[("goal.title", "A goal for %{team}!")]));
    assert!(body(&again.catalogue).contains("#| msgid \"Gaol for"), "the text that it was made for");
    let back = merge(&again.catalogue, &sources(&[("goal.title", "Gaol for %{team}!")]));
    assert!(!body(&back.catalogue).contains("#|"), "the translation fits again");
    assert_eq!(back.changes, Changes { kept: 1, ..Changes::default() });
}

#[test]
fn mending_a_typo_changes_what_no_language_reads() {
    let read = |catalogue: Catalogue, text: &str| {
        let template = Template::new(None, text, None).unwrap();
        let params = [("team".to_owned(), tidings_types::ParamValue::Text("Vega".into()))].into();
        Translations::new(vec![(locale("de"), catalogue)]).render(&template, &locale("de"), &params).unwrap()
    };
    let po = german(&[("goal.title", "Gaol for %{team}!", "Tor für %{team}!")]);
    let (before, after) = ("Gaol for %{team}!", "Goal for %{team}!");
    assert_eq!(read(po.clone(), before), "Tor für Vega!");
    assert_eq!(read(merge(&po, &sources(&[("goal.title", after)])).catalogue, after), "Tor für Vega!");
    let fuzzy = merge(&po, &sources(&[("goal.title", "100%% goal")])).catalogue;
    assert_eq!(read(fuzzy, "100%% goal"), "100% goal", "a translation that does not fit is never sent");
}

#[test]
fn a_translation_that_does_not_fit_the_changed_text_becomes_fuzzy() {
    let po = german(&[("goal.title", "Goal for %{team}!", "Tor für %{team}!")]);
    let merged = merge(&po, &sources(&[("goal.title", "Goal by %{scorer}!")]));
    assert_eq!(merged.changes, Changes { fuzzy: 1, ..Changes::default() });
    assert_eq!(
        body(&merged.catalogue),
        "#: goal.title\n#, fuzzy, ruby-format\n#| msgid \"Goal for %{team}!\"\nmsgid \"Goal by %{scorer}!\"\n\
         msgstr \"Tor für %{team}!\"\n"
    );
    let plural = Plural { msgid_plural: "Goals!", count: "n" };
    let plural = Message::new(Template::new(None, "Goal!", Some(plural)).unwrap(), "goal.title");
    let merged = merge(&german(&[("goal.title", "Gaol!", "Tor!")]), &pot([&plural]).unwrap());
    assert_eq!(merged.changes, Changes { fuzzy: 1, ..Changes::default() }, "it has no plural");
    assert_eq!(merged.catalogue.entries()[1].msgstr, ["Tor!", "Tor!"]);
}

#[test]
fn a_changed_plural_text_is_a_changed_text() {
    let sources = |plural: &str| {
        let plural = Plural { msgid_plural: plural, count: "n" };
        pot([&Message::new(Template::new(None, "%{n} goal", Some(plural)).unwrap(), "goal.title")]).unwrap()
    };
    let forms = "msgstr[0] \"gol\"\nmsgstr[1] \"%{n} gole\"\nmsgstr[2] \"%{n} goli\"\n";
    let po = catalogue(&(header("pl", POLISH) + "msgid \"%{n} goal\"\nmsgid_plural \"%{n} gaols\"\n" + forms));
    let merged = merge(&po, &sources("%{n} goals"));
    assert!(merged.catalogue.entries()[1].is_outdated());
    assert!(body(&merged.catalogue).contains("#| msgid \"%{n} goal\"\n#| msgid_plural \"%{n} gaols\"\n"));
    assert_eq!(merge(&po, &sources("%{n} gaols")).changes.kept, 1);

    let doubtful = "#, fuzzy\n#| msgid \"older\"\nmsgid \"%{n} goal\"\nmsgid_plural \"%{n} gaols\"\n";
    let merged = merge(&catalogue(&(header("pl", POLISH) + doubtful + forms)), &sources("%{n} goals")).catalogue;
    assert!(merged.entries()[1].is_fuzzy(), "it stays doubtful");
    assert!(body(&merged).contains("#| msgid_plural \"%{n} gaols\"\n"), "and names its last source text");
}

#[test]
fn only_a_reference_that_names_one_message_carries_a_translation_over() {
    let changed =
        |reference: &str| merge(&german(&[(reference, "A", "TA")]), &sources(&[(reference, "B")])).changes.outdated;
    assert_eq!([changed("goal.title"), changed("main.c:12"), changed("a:b")], [1, 0, 1]);

    // The text is still used elsewhere, and an exact translation is better than an old one.
    let po = german(&[("goal.title derby.title", "A", "TA"), ("cup.title", "C", "TC")]);
    let merged = merge(&po, &sources(&[("goal.title", "B"), ("derby.title", "A"), ("cup.title", "C")]));
    assert_eq!(
        merged.catalogue.entries()[1..].iter().map(|entry| &entry.msgstr[0]).collect::<Vec<_>>(),
        ["TA", "TA", "TC"]
    );
    let merged = merge(&po, &sources(&[("goal.title", "C"), ("cup.title", "A")]));
    assert_eq!(merged.changes, Changes { kept: 2, ..Changes::default() });

    let both = sources(&[("goal.title", "B"), ("goal.title", "D")]);
    assert_eq!(merge(&po, &both).changes.added, 2, "two messages have the reference");

    let fuzzy = catalogue(&po.to_po().replace("msgid \"A\"", "#, fuzzy\nmsgid \"A\""));
    assert_eq!(merge(&fuzzy, &sources(&[("goal.title", "B")])).changes.added, 1, "a guess is never carried over");
}

/// What becomes of a message: in the POT file or not; in the catalogue, and how.
fn fate() -> impl Strategy<Value = (bool, &'static str)> {
    (prop::bool::weighted(0.7), select(vec!["absent", "translated", "empty", "fuzzy", "obsolete", "obsolete fuzzy"]))
}

fn in_catalogue(entry: &Entry, fate: &str) -> Entry {
    let mut entry = entry.clone();
    entry.obsolete = fate.starts_with("obsolete");
    entry.flags.retain(|flag| flag == "ruby-format");
    entry.references = vec!["source.c:7".to_owned()];
    if !fate.ends_with("fuzzy") {
        entry.previous = tidings_gettext::Previous::default();
    } else {
        entry.flags.insert("fuzzy".to_owned());
    }
    let text = if fate == "empty" { String::new() } else { "T".to_owned() + &entry.msgid };
    let forms = if entry.msgid_plural.is_some() { 3 } else { 1 };
    Entry { msgstr: vec![text; forms], ..entry }
}

fn in_pot(entry: &Entry) -> Entry {
    let mut entry = Entry { msgstr: vec![String::new(); entry.msgstr.len()], obsolete: false, ..entry.clone() };
    entry.flags.retain(|flag| flag == "ruby-format");
    Entry {
        comments: Vec::new(),
        previous: Default::default(),
        references: vec!["b.c:1".into(), "a.c:2".into()],
        ..entry
    }
}

fn file(plural_forms: &str, entries: &[Entry]) -> Catalogue {
    catalogue(&(header("pl", plural_forms) + &foreign_style(entries, 100)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_result_is_that_of_msgmerge(
        (pool, fates) in some_entries().prop_flat_map(|pool| {
            let count = pool.len();
            (Just(pool), prop::collection::vec(fate(), count))
        }),
    ) {
        let each = || pool.iter().zip(&fates);
        let known: Vec<_> =
            each().filter(|(_, (_, fate))| *fate != "absent").map(|(entry, (_, fate))| in_catalogue(entry, fate)).collect();
        let wanted: Vec<_> = each().rev().filter(|(_, (used, _))| *used).map(|(entry, _)| in_pot(entry)).collect();
        let (po, pot) = (file(POLISH, &known), file(TWO, &wanted));

        let ours = merge(&po, &pot).catalogue;
        let gnu = gnu("msgmerge", &["--no-fuzzy-matching", "--previous", "--no-wrap", "--force-po", "-q"], &[&po.to_po(), &pot.to_po()]);
        let gnu = catalogue(&gnu.unwrap());
        prop_assert_eq!(comparable(&ours), comparable(&gnu), "{}\n---\n{}", po.to_po(), pot.to_po());
        prop_assert_eq!(merge(&ours, &pot).catalogue, ours.clone());
        prop_assert_eq!(Catalogue::parse(ours.to_po().as_bytes()).unwrap().to_po(), ours.to_po());
    }
}

/// The entries without the header, the references one by one.
fn comparable(catalogue: &Catalogue) -> Vec<Entry> {
    let split = |entry: Entry| Entry {
        references: entry.references.iter().flat_map(|line| line.split(' ')).map(str::to_owned).collect(),
        ..entry
    };
    entries(catalogue).into_iter().skip(1).map(split).collect()
}

#[test]
fn every_merge_of_changed_demo_texts_is_accepted_by_msgfmt_and_changes_nothing_twice() {
    let messages = crate::demo::messages();
    for (language, _) in crate::demo::LANGUAGES {
        let first = merge(&catalogue(&crate::demo::file(language)), &pot(&messages).unwrap());
        assert_eq!((first.changes.added, first.changes.outdated, first.changes.fuzzy), (0, 0, 0));
        let changed: Vec<_> = messages
            .iter()
            .map(|message| {
                let template = &message.template;
                let plural = template.msgid_plural().map(|text| format!("{text}!"));
                let plural =
                    plural.as_deref().map(|msgid_plural| Plural { msgid_plural, count: template.count().unwrap() });
                let template = Template::new(template.msgctxt(), &format!("{}!", template.msgid()), plural).unwrap();
                Message { template, ..message.clone() }
            })
            .collect();
        let second = merge(&first.catalogue, &pot(&changed).unwrap());
        assert_eq!((second.changes.added, second.changes.fuzzy, second.changes.obsolete), (0, 0, 0), "{language}");
        assert!(second.catalogue.entries()[1..].iter().all(Entry::is_outdated), "{language}");
        let text = second.catalogue.to_po();
        assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
        assert_eq!(merge(&catalogue(&text), &pot(&changed).unwrap()).catalogue.to_po(), text);
        let checked = gnu("msgcmp", &[], &[&text, &pot(&changed).unwrap().to_po()]);
        assert!(checked.is_ok(), "nothing is missing, untranslated or fuzzy: {checked:?}");
    }
}
