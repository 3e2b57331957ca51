//! Comparison with GNU `msgfmt`: it accepts what this crate writes, and this crate refuses what `msgfmt` refuses.

use proptest::prelude::*;
use tidings_gettext::{Catalogue, Entry, Message, Plural, Template, merge, normalise, pot};

use crate::po::{entries, some_entries};
use crate::{TWO, demo, header, msgfmt_verdict, our_verdict};

#[test]
fn the_pot_of_any_templates_is_accepted() {
    let plural = Plural { msgid_plural: "%{n} goals\n", count: "n" };
    let templates = [
        Template::new(None, "100%% \"sure\" \\ %{team}\tthe\nend", None).unwrap(),
        Template::new(Some("ctx \"x\""), "A goal\n", Some(plural)).unwrap(),
        Template::new(None, "no placeholder", None).unwrap(),
    ]
    .map(|template| Message::new(template, "topic.title"));
    for text in [pot(&templates), pot(&demo::messages()), pot([])].map(|pot| pot.unwrap().to_po()) {
        assert_eq!(msgfmt_verdict(text.as_bytes()), Ok(()));
        assert_eq!(Catalogue::parse(text.as_bytes()).unwrap().to_po(), text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn msgfmt_accepts_every_correct_file_in_the_canonical_form(entries_wanted in some_entries()) {
        let mut text = header("de", TWO);
        for (index, mut entry) in entries_wanted.into_iter().enumerate() {
            // A translation that equals its source is mostly correct. So many files get as far as msgfmt.
            match index % 3 {
                0 | 1 => entry.msgstr = std::iter::once(&entry.msgid).chain(&entry.msgid_plural).cloned().collect(),
                _ => entry.msgstr.fill(String::new()),
            }
            text += &plain(&entry);
        }
        let catalogue = Catalogue::parse(text.as_bytes()).unwrap();
        let written = catalogue.to_po();
        if our_verdict("de", written.as_bytes(), &[]).is_ok() {
            prop_assert_eq!(msgfmt_verdict(written.as_bytes()), Ok(()), "{}", written);
        }
        prop_assert_eq!(entries(&Catalogue::parse(written.as_bytes()).unwrap()), entries(&catalogue));
        for made in [normalise(&catalogue, None), merge(&catalogue, &catalogue).catalogue] {
            let made = made.to_po();
            if our_verdict("de", made.as_bytes(), &[]).is_ok() {
                prop_assert_eq!(msgfmt_verdict(made.as_bytes()), Ok(()), "{}", made);
            }
        }
    }

    #[test]
    fn a_file_that_msgfmt_refuses_is_refused(
        language in prop::sample::select(vec!["ar", "pl", "ja", "fr"]),
        mutations in prop::collection::vec(mutation(), 1..4),
    ) {
        let mut text = demo::file(language);
        mutations.iter().for_each(|mutation| mutation.apply(&mut text));
        if let Err(complaint) = msgfmt_verdict(text.as_bytes()) {
            prop_assert!(our_verdict(language, text.as_bytes(), &[]).is_err(), "{}\n{}", complaint, text);
            prop_assert!(our_verdict(language, text.as_bytes(), &demo::templates()).is_err());
        }
    }
}

/// Writes a message in the simplest form.
fn plain(entry: &Entry) -> String {
    let quote = |text: &str| {
        let escaped: String = text
            .chars()
            .map(|character| match character {
                '"' | '\\' => format!("\\{character}"),
                '\n' => "\\n".to_owned(),
                _ if character.is_ascii_control() => format!("\\{:03o}", u32::from(character)),
                _ => character.to_string(),
            })
            .collect();
        format!("\"{escaped}\"\n")
    };
    let mut out: String = entry.comments.iter().map(|line| format!("# {line}\n")).collect();
    entry.flags.iter().for_each(|flag| out += &format!("#, {flag}\n"));
    let mark = if entry.obsolete { "#~ " } else { "" };
    entry.msgctxt.iter().for_each(|text| out += &format!("{mark}msgctxt {}", quote(text)));
    out += &format!("{mark}msgid {}", quote(&entry.msgid));
    entry.msgid_plural.iter().for_each(|text| out += &format!("{mark}msgid_plural {}", quote(text)));
    for (form, text) in entry.msgstr.iter().enumerate() {
        let index = if entry.msgid_plural.is_some() { format!("[{form}]") } else { String::new() };
        out += &format!("{mark}msgstr{index} {}", quote(text));
    }
    out
}

/// The damage that translators, editors and merges do to a file.
#[derive(Debug, Clone)]
pub(crate) enum Mutation {
    Insert(prop::sample::Index, &'static str),
    Delete(prop::sample::Index),
    RepeatLine(prop::sample::Index),
    DeleteLine(prop::sample::Index),
    Replace(prop::sample::Index, &'static str, &'static str),
}

pub(crate) fn mutation() -> impl Strategy<Value = Mutation> {
    let snippets = vec![
        "%",
        "%%",
        "%{x}",
        "%{team}",
        "%{minutes}",
        "%<a>d",
        "%d",
        "{",
        "}",
        "\"",
        "\\",
        "\\n",
        "\n",
        "\nmsgid ",
        "#~ ",
        "\n# ",
        "0",
        "x",
        "\u{2028}",
        "\r",
        "\t",
    ];
    let replacements = vec![
        ("%{", "%"),
        ("%{", "{"),
        ("}", ""),
        ("%{minutes}", "x"),
        ("%{team}", "%{tema}"),
        ("%{home}", "%{away}"),
        ("nplurals=", "nplurals=1"),
        ("plural=", "plural=1+"),
        ("msgstr[0]", "msgstr[1]"),
        ("#, ruby-format\n", ""),
        ("msgid_plural", "msgstr"),
        ("#, ruby-format", "#, fuzzy, ruby-format"),
        ("UTF-8", "ASCII"),
        ("n==1", "n==7"),
        ("msgstr \"", "msgstr \"\\n"),
        ("msgid", "#~ msgid"),
        ("\"\n\n", "\\n\"\n\n"),
    ];
    prop_oneof![
        (any::<prop::sample::Index>(), prop::sample::select(snippets))
            .prop_map(|(at, text)| Mutation::Insert(at, text)),
        any::<prop::sample::Index>().prop_map(Mutation::Delete),
        any::<prop::sample::Index>().prop_map(Mutation::RepeatLine),
        any::<prop::sample::Index>().prop_map(Mutation::DeleteLine),
        (any::<prop::sample::Index>(), prop::sample::select(replacements))
            .prop_map(|(at, (from, to))| Mutation::Replace(at, from, to)),
    ]
}

impl Mutation {
    pub(crate) fn apply(&self, text: &mut String) {
        let character = |at: &prop::sample::Index| text.char_indices().nth(at.index(text.chars().count())).unwrap();
        let line = |at: &prop::sample::Index| {
            let start = text[..character(at).0].rfind('\n').map_or(0, |end| end + 1);
            start..text[start..].find('\n').map_or(text.len(), |end| start + end + 1)
        };
        match self {
            Self::Insert(at, snippet) => text.insert_str(character(at).0, snippet),
            Self::Delete(at) => drop(text.remove(character(at).0)),
            Self::RepeatLine(at) => {
                let line = line(at);
                let repeated = text[line.clone()].to_owned();
                text.insert_str(line.start, &repeated);
            }
            Self::DeleteLine(at) => text.replace_range(line(at), ""),
            Self::Replace(at, from, to) => {
                let places: Vec<_> = text.match_indices(from).map(|(place, _)| place).collect();
                if !places.is_empty() {
                    let place = places[at.index(places.len())];
                    text.replace_range(place..place + from.len(), to);
                }
            }
        }
    }
}
