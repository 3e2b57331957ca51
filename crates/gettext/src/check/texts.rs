//! What looks odd in a translation, and where in its texts a mistake is.

use std::collections::BTreeMap;
use std::ops::Range;

use super::finding::FindingKind;
use crate::error::Flaw;
use crate::po::{Entry, Part};

/// Bytes of a tag. What is longer between `<` and `>` is text.
const TAG_BYTES_MAX: usize = 128;

/// The text of an entry that has the mistake, and which bytes of it.
pub(super) fn place(flaw: &Flaw, entry: &Entry) -> (Part, Range<usize>) {
    let text = |form: usize| entry.msgstr.get(form).map_or("", String::as_str);
    let whole = |form: usize| (Part::Msgstr(form), 0..text(form).len());
    match flaw {
        Flaw::Placeholder { form, problem } => (Part::Msgstr(*form), problem.at..problem.at + 1),
        Flaw::UnknownPlaceholder { form, name } => {
            let written = format!("%{{{name}}}");
            let at = text(*form).find(&written).unwrap_or(0);
            (Part::Msgstr(*form), at..at + written.len())
        }
        Flaw::MissingPlaceholder { form, .. }
        | Flaw::Newline { form }
        | Flaw::FormEmpty { form }
        | Flaw::TooLong { form, .. } => whole(*form),
        Flaw::FormCount { .. } | Flaw::PluralDiffers if entry.msgid_plural.is_some() => {
            (Part::MsgidPlural, 0..entry.msgid_plural.as_deref().unwrap_or_default().len())
        }
        Flaw::Language { .. } => field(text(0), "Language:"),
        Flaw::PluralRange { .. } => field(text(0), "Plural-Forms:"),
        _ => (Part::Msgid, 0..entry.msgid.len()),
    }
}

/// A field of the header.
fn field(header: &str, name: &str) -> (Part, Range<usize>) {
    let mut start = 0;
    for line in header.split_inclusive('\n') {
        if line.trim_ascii_start().get(..name.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(name)) {
            return (Part::Msgstr(0), start..start + line.trim_ascii_end().len());
        }
        start += line.len();
    }
    (Part::Msgstr(0), 0..0)
}

/// The spaces at the edges and the tags of a translation that differ from those of its source text.
pub(super) fn oddities(entry: &Entry, form: usize, text: &str) -> Vec<(FindingKind, Range<usize>)> {
    let mut found = Vec::new();
    let (ours, theirs) = (spaces(&entry.msgid), spaces(text));
    if ours.0.is_empty() != theirs.0.is_empty() {
        found.push((FindingKind::EdgeSpace { form, end: false }, 0..theirs.0.len().max(1)));
    }
    if ours.1.is_empty() != theirs.1.is_empty() {
        let start = text.len() - theirs.1.len().max(text.chars().next_back().map_or(0, char::len_utf8));
        found.push((FindingKind::EdgeSpace { form, end: true }, start..text.len()));
    }
    let own = tags(text);
    let differs = |source: &str| {
        let source = tags(source);
        let count = |tags: &BTreeMap<_, Vec<_>>, tag: &str| tags.get(tag).map_or(0, Vec::len);
        let tag = own.keys().chain(source.keys()).find(|tag| count(&own, tag) != count(&source, tag))?;
        let range = own.get(*tag).and_then(|places| places.last().cloned()).unwrap_or(0..text.len());
        Some((FindingKind::Markup { form, tag: (*tag).to_owned() }, range))
    };
    let differs_from_plural = || entry.msgid_plural.as_deref().map_or(Some(()), |plural| differs(plural).map(|_| ()));
    found.extend(differs(&entry.msgid).filter(|_| differs_from_plural().is_some()));
    found
}

/// The spaces at both ends of a text. Line breaks are another matter: `msgfmt -c` refuses them.
fn spaces(text: &str) -> (&str, &str) {
    let space = |character: char| character.is_whitespace() && character != '\n';
    let before = text.len() - text.trim_start_matches(space).len();
    (&text[..before], &text[text.trim_end_matches(space).len()..])
}

/// The tags of a text (`<b>`, `</b>`, `<br/>`), and where each is.
fn tags(text: &str) -> BTreeMap<&str, Vec<Range<usize>>> {
    let mut tags: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (start, _) in text.match_indices('<') {
        let name = text[start + 1..].strip_prefix('/').unwrap_or(&text[start + 1..]);
        let length = text[start..].find('>').map(|end| end + 1).filter(|length| *length <= TAG_BYTES_MAX);
        if let Some(length) = length.filter(|_| name.starts_with(|first: char| first.is_ascii_alphabetic())) {
            tags.entry(&text[start..start + length]).or_default().push(start..start + length);
        }
    }
    tags
}
