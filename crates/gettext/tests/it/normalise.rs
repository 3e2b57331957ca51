//! The canonical form of what translation sites return.

use proptest::prelude::*;
use tidings_gettext::{Catalogue, Message, Template, merge, normalise, pot};

use crate::po::{foreign_style, some_entries};
use crate::{POLISH, TWO, demo, gnu, header, msgfmt_verdict};

fn catalogue(text: &str) -> Catalogue {
    Catalogue::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The demo's catalogue as the project keeps it, with one outdated translation.
fn kept(language: &str) -> Catalogue {
    let mut messages = demo::messages();
    let file = merge(&catalogue(&demo::file(language)), &pot(&messages).unwrap()).catalogue;
    let kick_off = messages.iter_mut().find(|message| message.reference == "kick_off.title").unwrap();
    kick_off.template = Template::new(None, "Kick-off now: %{home} – %{away}", None).unwrap();
    merge(&file, &pot(&messages).unwrap()).catalogue
}

/// What a site makes of a file: other order and wrapping, its own header, no remarks.
fn exported(catalogue: &Catalogue) -> String {
    let text =
        gnu("msgattrib", &["--no-obsolete", "--clear-previous", "--sort-output", "-w", "60"], &[&catalogue.to_po()]);
    let text = text.unwrap().replace(
        "\"Last-Translator: \\n\"\n",
        "\"Last-Translator: Jo <jo@example.com>\\n\"\n\"POT-Creation-Date: 2026-01-01 10:00+0000\\n\"\n\
         \"X-Generator: Site 4.2\\n\"\n",
    );
    let text: String = text.split_inclusive('\n').filter(|line| !line.starts_with("#, ")).collect();
    "# Translators:\n# Jo <jo@example.com>, 2026\n".to_owned() + &text
}

#[test]
fn a_file_that_a_site_returns_unchanged_becomes_as_it_was() {
    for (language, _) in demo::LANGUAGES {
        let kept = kept(language);
        let exported = exported(&kept);
        assert_ne!(exported, kept.to_po());
        assert_eq!(normalise(&catalogue(&exported), Some(&kept)).to_po(), kept.to_po(), "{language}");
        let alone = normalise(&catalogue(&exported), None).to_po();
        assert_eq!(msgfmt_verdict(alone.as_bytes()), Ok(()));
        for volatile in ["Jo", "2026", "Site"] {
            assert!(!alone.contains(volatile), "{volatile} is in {alone}");
        }
    }
}

#[test]
fn a_new_translation_is_taken_and_ends_being_outdated() {
    let kept = kept("de");
    let outdated = kept.entries().iter().find(|entry| entry.is_outdated()).unwrap();
    let pulled = |old: &str, new: &str| {
        let text = exported(&kept);
        assert!(text.contains(old), "{text}");
        normalise(&catalogue(&text.replace(old, new)), Some(&kept))
    };
    let before = format!("msgstr \"{}\"", outdated.msgstr[0]);
    let untranslated = pulled(&before, "msgstr \"\"");
    assert_eq!(untranslated.to_po(), kept.to_po(), "the site knows the new text only, without translation");
    let renewed = pulled(&before, "msgstr \"Anpfiff jetzt: %{home} – %{away}\"");
    let entry = renewed.entries().iter().find(|entry| entry.msgid == outdated.msgid).unwrap();
    assert_eq!((entry.msgstr[0].as_str(), entry.is_outdated()), ("Anpfiff jetzt: %{home} – %{away}", false));
    assert_eq!(msgfmt_verdict(renewed.to_po().as_bytes()), Ok(()));

    let doubtful = "#, fuzzy\nmsgid \"Half-time\"";
    let doubtful = pulled("msgid \"Half-time\"", doubtful);
    assert!(doubtful.entries().iter().any(|entry| entry.msgid == "Half-time" && entry.is_fuzzy()));
    let withdrawn = pulled("msgstr \"Halbzeit\"", "msgstr \"\"");
    assert!(withdrawn.entries().iter().any(|entry| entry.msgid == "Half-time" && !entry.is_translated()));
}

#[test]
fn plural_forms_come_from_the_site_only_if_they_choose_otherwise() {
    let file = |rule: &str| catalogue(&(header("pl", rule) + "msgid \"a\"\nmsgstr \"b\"\n"));
    let respelt = POLISH.replace("n==1", "n == 1");
    let rule =
        |new: &str, old: Option<&Catalogue>| normalise(&file(new), old).header("Plural-Forms").unwrap().to_owned();
    assert_eq!(rule(&respelt, None), respelt);
    assert_eq!(rule(&respelt, Some(&file(POLISH))), POLISH);
    assert_eq!(rule(TWO, Some(&file(POLISH))), TWO);
}

#[test]
fn a_new_language_begins_with_its_plural_forms() {
    let locale = |name| tidings_types::Locale::new(name).unwrap();
    let empty = Catalogue::empty(&locale("pt-BR"));
    assert_eq!(empty.header("Language"), Some("pt_BR"));
    assert_eq!(empty.header("Plural-Forms"), Some("nplurals=2; plural=n > 1;"));
    assert_eq!(msgfmt_verdict(empty.to_po().as_bytes()), Ok(()));
    let merged = merge(&Catalogue::empty(&locale("ar")), &pot(&demo::messages()).unwrap()).catalogue;
    assert!(merged.to_po().contains("msgstr[5] \"\"\n"));
    let message = Message::new(Template::new(None, "x", None).unwrap(), "a.title");
    assert_eq!(merge(&Catalogue::empty(&locale("tlh")), &pot([&message]).unwrap()).changes.added, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn normalising_twice_changes_nothing(new in some_entries(), old in some_entries(), with_old: bool, cut in 1usize..20) {
        let new = catalogue(&(header("de", TWO) + &foreign_style(&new, cut)));
        let old = catalogue(&(header("de", POLISH) + &foreign_style(&old, 9)));
        let old = with_old.then_some(&old);
        let once = normalise(&new, old);
        let written = catalogue(&once.to_po());
        prop_assert_eq!(written.to_po(), once.to_po());
        prop_assert_eq!(normalise(&written, old).to_po(), once.to_po());
        prop_assert_eq!(normalise(&written, Some(&written)).to_po(), once.to_po());
        prop_assert_eq!(normalise(&written, None).to_po(), once.to_po());
    }
}
