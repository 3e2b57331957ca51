//! Counting, compared with `msgfmt --statistics`.

use proptest::prelude::*;
use tidings_gettext::{Catalogue, Count, Stats, merge, pot, stats};

use crate::msgfmt::mutation;
use crate::{POLISH, demo, gnu, header};

/// The numbers that `msgfmt --statistics` tells: translated, fuzzy, untranslated.
fn msgfmt_statistics(text: &str) -> Option<[usize; 3]> {
    let told = gnu("sh", &["-c", "exec msgfmt --statistics -o /dev/null \"$1\" 2>&1", "-"], &[text]).ok()?;
    let told = told.lines().last()?;
    Some(["translated", "fuzzy", "untranslated"].map(|state| {
        let part = told.split(", ").find(|part| part.split(' ').nth(1) == Some(state));
        part.map_or(0, |part| part.split(' ').next().unwrap().parse().unwrap())
    }))
}

#[test]
fn each_state_is_counted_in_messages_and_words() {
    let text = header("pl", POLISH)
        + "msgid \"one two\"\nmsgstr \"t\"\n\n#| msgid \"old\"\nmsgid \"a b c\"\nmsgstr \"t\"\n\n\
           #, fuzzy\nmsgid \"d\"\nmsgstr \"t\"\n\nmsgid \"e f\"\nmsgstr \"\"\n\n\
           msgid \"g %{x}\"\nmsgstr \"t\"\n\n#~ msgid \"h\"\n#~ msgstr \"t\"\n";
    let stats = stats(&Catalogue::parse(text.as_bytes()).unwrap(), &[]);
    let count = |messages, words| Count { messages, words };
    assert_eq!(
        stats,
        Stats {
            translated: count(3, 7),
            outdated: count(1, 3),
            wrong: count(1, 2),
            fuzzy: count(1, 1),
            untranslated: count(1, 2),
            inheriting: count(0, 0),
            obsolete: count(1, 1),
        }
    );
    assert_eq!(stats.total(), count(5, 10));
    assert_eq!(msgfmt_statistics(&text), Some([3, 1, 1]));
}

#[test]
fn the_demo_is_translated_and_a_new_language_is_not() {
    let messages = demo::messages();
    let pot = pot(&messages).unwrap();
    for (language, _) in demo::LANGUAGES {
        let stats = stats(&Catalogue::parse(demo::file(language).as_bytes()).unwrap(), &messages);
        assert_eq!((stats.translated, stats.wrong.messages), (stats.total(), 0), "{language}");
    }
    let empty = merge(&Catalogue::empty(&crate::locale("sv")), &pot).catalogue;
    let stats = stats(&empty, &messages);
    assert_eq!((stats.untranslated, stats.untranslated.messages), (stats.total(), pot.entries().len() - 1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_numbers_are_those_of_msgfmt(
        language in prop::sample::select(vec!["ar", "pl", "ja"]),
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        let mut text = demo::file(language);
        mutations.iter().for_each(|mutation| mutation.apply(&mut text));
        let Ok(catalogue) = Catalogue::parse(text.as_bytes()) else { return Ok(()) };
        let ours = stats(&catalogue, &[]);
        if let Some(theirs) = msgfmt_statistics(&text) {
            let ours = [ours.translated, ours.fuzzy, ours.untranslated].map(|state| state.messages);
            prop_assert_eq!(ours, theirs, "{}", text);
        }
    }
}
