//! Reading and writing PO files.

use std::collections::BTreeSet;

use proptest::collection::{btree_set, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tidings_gettext::{Catalogue, Entry, PoProblem, Previous};

use crate::{TWO, demo, header};

/// The entries without their line numbers.
pub(crate) fn entries(catalogue: &Catalogue) -> Vec<Entry> {
    catalogue.entries().iter().map(|entry| Entry { line: 0, ..entry.clone() }).collect()
}

/// Texts with parts that are difficult in PO files.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[a-zé日]{1,4}",
        2 => select(vec![" ", "\n", "\"", "\\", "\\n", "%%", "%{team}", "#", "\t"]).prop_map(str::to_owned),
        1 => select(vec!["\r", "\x07", "\x01", "\x7f", "0", "%", "%{", "msgid", "\u{2028}"]).prop_map(str::to_owned),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn comment() -> impl Strategy<Value = Vec<String>> {
    vec("([a-zé~|.,:!][a-z ,~|.:#\"é]{0,8}[a-z])?", 0..3)
}

fn entry() -> impl Strategy<Value = Entry> {
    let flags = btree_set(select(vec!["fuzzy", "ruby-format", "no-wrap"]), 0..2);
    let previous = (option::of(text()), text(), option::of(text()))
        .prop_map(|(msgctxt, msgid, msgid_plural)| Previous { msgctxt, msgid: Some(msgid), msgid_plural });
    let previous = prop_oneof![3 => Just(Previous::default()), 1 => previous];
    let texts = (option::weighted(0.2, text()), text(), option::weighted(0.3, text()), vec(text(), 2));
    (comment(), comment(), comment(), flags, previous, prop::bool::weighted(0.1), texts).prop_map(
        |(comments, extracted, references, flags, previous, obsolete, (msgctxt, msgid, msgid_plural, mut msgstr))| {
            msgstr.truncate(1 + usize::from(msgid_plural.is_some()));
            let mut flags: BTreeSet<_> = flags.into_iter().map(str::to_owned).collect();
            if [Some(&msgid), msgid_plural.as_ref()].into_iter().flatten().any(|text| text.contains("%{")) {
                flags.insert("ruby-format".to_owned());
            }
            Entry {
                line: 0,
                comments,
                extracted,
                references,
                flags,
                previous,
                obsolete,
                msgctxt,
                msgid,
                msgid_plural,
                msgstr,
            }
        },
    )
}

/// Entries with different texts.
pub(crate) fn some_entries() -> impl Strategy<Value = Vec<Entry>> {
    vec(entry(), 0..6).prop_map(|mut entries| {
        for (index, entry) in entries.iter_mut().enumerate() {
            entry.msgid = format!("{index} {}", entry.msgid);
        }
        entries
    })
}

/// Writes a file in another style: strings split anywhere, codes instead of escapes, unusual spaces.
pub(crate) fn foreign_style(entries: &[Entry], cut: usize) -> String {
    let quote = |text: &str, mark: &str| -> String {
        let characters: Vec<char> = text.chars().collect();
        let piece = |piece: &[char]| -> String {
            piece
                .iter()
                .map(|character| match character {
                    '"' | '\\' => format!("\\{character}"),
                    '\n' => "\\n".to_owned(),
                    '\r' | '\x07' => format!("\\{:03o}", u32::from(*character)),
                    // A new string, because a hexadecimal digit after the code would belong to the code.
                    '\x01' => "\\x01\"  \"".to_owned(),
                    other => other.to_string(),
                })
                .collect()
        };
        let pieces: Vec<_> = characters.chunks(cut).map(|part| format!("\"{}\"", piece(part))).collect();
        if pieces.is_empty() { "\"\"".to_owned() } else { pieces.join(&format!("\t\r\n  {mark} ")) }
    };
    let mut out = String::new();
    for entry in entries {
        let comments = [("# ", &entry.comments), ("#. ", &entry.extracted), ("#:  ", &entry.references)];
        for (mark, lines) in comments {
            lines.iter().for_each(|line| out += &format!("{mark}{line}\r\n"));
        }
        entry.flags.iter().for_each(|flag| out += &format!("#,{flag},\n"));
        let (mark, before) = if entry.obsolete { ("#~", "#~|") } else { ("", "#|") };
        let previous = &entry.previous;
        let previous =
            [("msgctxt", &previous.msgctxt), ("msgid", &previous.msgid), ("msgid_plural", &previous.msgid_plural)];
        for (keyword, text) in previous {
            text.iter().for_each(|text| out += &format!("{before}{keyword}{}\n", quote(text, before)));
        }
        entry.msgctxt.iter().for_each(|text| out += &format!("{mark}  msgctxt {}\n\n", quote(text, mark)));
        out += &format!("{mark} msgid{}\n", quote(&entry.msgid, mark));
        entry.msgid_plural.iter().for_each(|text| out += &format!("{mark} msgid_plural {}\n", quote(text, mark)));
        for (form, text) in entry.msgstr.iter().enumerate() {
            let index = if entry.msgid_plural.is_some() { format!("[{form}]") } else { String::new() };
            out += &format!("{mark}msgstr{index} {}\n", quote(text, mark));
        }
    }
    out
}

proptest! {
    #[test]
    fn a_file_in_any_style_is_read_and_keeps_its_content_when_written(
        wanted in some_entries(),
        cut in 1usize..20,
    ) {
        let text = header("de", TWO) + &foreign_style(&wanted, cut);
        let catalogue = Catalogue::parse(text.as_bytes());
        let catalogue = catalogue.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(&entries(&catalogue)[1..], wanted);
        let written = catalogue.to_po();
        let again = Catalogue::parse(written.as_bytes()).unwrap();
        prop_assert_eq!(entries(&again), entries(&catalogue));
        prop_assert_eq!(again.to_po(), written);
    }

    #[test]
    fn damaged_bytes_are_refused_or_read_but_never_panic(
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0usize..3), 1..6),
    ) {
        let mut bytes = demo::file("ar").into_bytes();
        for (at, byte, kind) in damage {
            let at = at.index(bytes.len());
            match kind {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                _ => bytes.truncate(at.max(1)),
            }
        }
        if let Ok(catalogue) = Catalogue::parse(&bytes) {
            let written = catalogue.to_po();
            prop_assert_eq!(entries(&Catalogue::parse(written.as_bytes()).unwrap()), entries(&catalogue));
        }
    }
}

/// Parses a header (eight lines with the empty line after it) and the text. The line is counted in the text.
fn problem(text: &str) -> (usize, PoProblem) {
    let error = Catalogue::parse((header("de", TWO) + text).as_bytes()).expect_err(text);
    (error.line - 8, error.problem)
}

#[test]
fn a_mistake_is_reported_with_its_line() {
    use PoProblem::*;
    let escape = |found: &str| Escape { found: found.into() };
    let order = |keyword: &str| OutOfOrder { keyword: keyword.into() };
    for (text, line, expected) in [
        ("msgid \"a\"", 1, MsgstrMissing),
        ("msgid \"a\n\"", 1, StringUnterminated),
        ("msgid \"a\\", 1, StringUnterminated),
        ("msgid \"a\"\nmsgstr \"\\q\"", 2, escape("q")),
        ("msgid \"\\303\\251\"", 1, escape("303\\")),
        ("msgid \"\\x\"", 1, escape("\"")),
        ("msgid \"\\0\"", 1, Nul),
        ("msgid \"\0\"", 1, Nul),
        ("msgid \"a\"\n# c\nmsgstr \"b\"", 2, CommentInside),
        ("# c \\ \nmsgid \"a\"\nmsgstr \"b\"", 1, CommentContinued),
        ("#, z\\, a\nmsgid \"a\"\nmsgstr \"b\"", 1, CommentContinued),
        ("msgid \"a\"\nmsgid \"b\"", 2, order("msgid")),
        ("msgid \"a\"\nmsgctxt \"b\"", 2, order("msgctxt")),
        ("msgid \"a\"\nmsgstr \"b\"\nmsgstr \"c\"", 3, order("msgstr")),
        ("msgctxt \"a\"\nmsgstr \"b\"", 2, MsgidMissing),
        ("msgstr \"b\"", 1, order("msgstr")),
        ("#| msgid \"a\"\n#| msgctxt \"b\"", 2, order("msgctxt")),
        ("#| msgid_plural \"a\"\n#, fuzzy\nmsgid \"b\"", 3, MsgidMissing),
        ("msgid\nmsgstr \"b\"", 2, StringMissing),
        ("msgid \"a\"\nmsgstr", 2, StringMissing),
        ("#| msgid\n#, fuzzy\nmsgid \"a\"", 2, StringMissing),
        ("msgid \"a\"\nmsgstr[0] \"b\"", 2, MsgstrKind),
        ("msgid \"a\"\nmsgid_plural \"b\"\nmsgstr \"b\"", 3, MsgstrKind),
        ("msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[1] \"b\"", 3, FormIndex { expected: 0, found: "msgstr[1]".into() }),
        ("#~ msgid \"a\"\nmsgstr \"b\"", 2, PartlyObsolete),
        ("#~ msgid \"a\"\n\"b\"", 2, PartlyObsolete),
        ("# c\n\"a\"", 2, Unexpected { found: "\"a\"".into() }),
        ("msgstr[0] \"b\"", 1, order("msgstr[0]")),
        ("domain \"a\"", 1, Unexpected { found: "domain \"a\"".into() }),
        ("msgid \"a\" b", 1, Unexpected { found: "b".into() }),
        ("msgid \"a\"\nmsgstr \"b\"\n\nmsgid \"a\"\nmsgstr \"c\"\n", 4, Duplicate { first: 9 }),
    ] {
        assert_eq!(problem(text), (line, expected), "{text}");
    }
}

#[test]
fn a_file_without_header_or_with_another_encoding_is_refused() {
    let problem = |text: &[u8]| Catalogue::parse(text).unwrap_err().problem;
    let good = header("de", TWO);
    assert_eq!(problem(b""), PoProblem::HeaderMissing);
    assert_eq!(problem(b"msgid \"a\"\nmsgstr \"b\"\n"), PoProblem::HeaderMissing);
    assert_eq!(problem(format!("\u{FEFF}{good}").as_bytes()), PoProblem::ByteOrderMark);
    let charset = |found: &str| PoProblem::Charset { found: found.to_owned() };
    assert_eq!(problem(good.replace("UTF-8", "ISO-8859-1").as_bytes()), charset("ISO-8859-1"));
    assert_eq!(problem(good.replace("charset=", "").as_bytes()), charset(""));
    assert!(matches!(problem(good.replace("nplurals=2", "nplurals=x").as_bytes()), PoProblem::PluralForms(_)));
    let error = Catalogue::parse(&[good.as_bytes(), b"\n# \xff"].concat()).unwrap_err();
    assert_eq!((error.line, error.problem), (10, PoProblem::NotUtf8));
}

#[test]
fn size_entries_and_plural_forms_are_bounded() {
    let mut large = header("de", TWO).into_bytes();
    large.resize(8 * 1024 * 1024, b'\n');
    assert!(Catalogue::parse(&large).is_ok());
    large.push(b'\n');
    assert_eq!(Catalogue::parse(&large).unwrap_err().problem, PoProblem::FileTooLarge { bytes: 8 * 1024 * 1024 + 1 });

    let many = |count: usize| {
        let entries: String = (0..count).map(|index| format!("msgid\"{index}\"\nmsgstr\"\"\n")).collect();
        Catalogue::parse((header("de", TWO) + &entries).as_bytes())
    };
    assert_eq!(many(65_535).unwrap().entries().len(), 65_536);
    assert_eq!(many(65_536).unwrap_err().problem, PoProblem::TooManyEntries);

    let forms: String = (0..=16).map(|form| format!("msgstr[{form}] \"\"\n")).collect();
    assert_eq!(problem(&format!("msgid \"a\"\nmsgid_plural \"b\"\n{forms}")), (19, PoProblem::TooManyForms));
}
