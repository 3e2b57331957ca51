//! The canonical form of a catalogue that a translation site has written, so that fetching it twice changes nothing.
//!
//! Sites order, wrap and annotate files in their own way: they set dates and their version in the header, drop flags,
//! remarks and obsolete entries. The canonical form has none of what changes without a translator: no dates, names or
//! versions in the header, no list of translators above it, one reference on a line. With the catalogue that is replaced
//! at hand (`old`), it also has:
//!
//! - the order of `old`, new entries behind, obsolete ones last;
//! - the header of `old`, except plural forms that choose otherwise;
//! - of an entry that is in both: the texts of the site, and references, remarks and flags of `old`;
//! - what the site does not know: entries of `old` that are not in the file.
//!
//! An *outdated* translation ([`Entry::is_outdated`]) stays one while the site gives the text that it has, or none: a site
//! that has been told of the new source text shows it as untranslated or as doubtful. The `#|` goes when the text changes.
//!
//! Normalising twice changes nothing, and a file that the site returns unchanged becomes `old` again, if `old` is in the
//! canonical form. It is, if [`merge`](crate::merge) or this has written it.

use std::collections::{HashMap, HashSet};

use crate::po::{Catalogue, Entry, Header, Previous};

/// The first line of the list of translators that Transifex keeps above the header.
const TRANSLATORS: &str = "Translators:";

/// The canonical form of a catalogue. `old` is the catalogue that it replaces.
#[must_use]
pub fn normalise(new: &Catalogue, old: Option<&Catalogue>) -> Catalogue {
    let header = header(new, old);
    let found = unique(new);
    let mut entries: Vec<Entry> = match old.map(unique) {
        None => found.into_iter().cloned().collect(),
        Some(known) => {
            let mut by_key: HashMap<_, _> = found.iter().map(|entry| (entry.key(), *entry)).collect();
            let update = |entry: &Entry, found: Option<&Entry>| {
                found.map_or_else(|| entry.clone(), |found| updated(entry, found))
            };
            let updated: Vec<_> = known.into_iter().map(|entry| update(entry, by_key.remove(&entry.key()))).collect();
            let further = found.into_iter().filter(|entry| by_key.contains_key(&entry.key())).cloned();
            updated.into_iter().chain(further).collect()
        }
    };
    let mut catalogue = Catalogue::from_entries(header, Vec::new());
    let form_count = catalogue.plural_rule().form_count();
    entries.iter_mut().for_each(|entry| clean(entry, form_count));
    entries.retain(|entry| !entry.obsolete || entry.has_text());
    entries.sort_by_key(|entry| entry.obsolete); // A stable sort.
    catalogue.extend(entries);
    catalogue
}

/// The entries without the header, and without obsolete ones that are there twice.
fn unique(catalogue: &Catalogue) -> Vec<&Entry> {
    let mut seen = HashSet::new();
    let entries = || catalogue.entries().iter().filter(|entry| !entry.is_header());
    let in_use = entries().filter(|entry| !entry.obsolete);
    in_use.chain(entries().filter(|entry| entry.obsolete)).filter(|entry| seen.insert(entry.key())).collect()
}

/// The entry of `old` with what translators have done to it.
fn updated(old: &Entry, found: &Entry) -> Entry {
    if old.obsolete && !found.obsolete {
        return found.clone();
    }
    let unused = found.obsolete && (!old.obsolete || !found.has_text());
    if unused || found.msgid_plural != old.msgid_plural {
        return old.clone(); // What the site has is older.
    }
    let mut entry = old.clone();
    if !found.comments.is_empty() {
        entry.comments.clone_from(&found.comments);
    }
    let same_text = found.msgstr == old.msgstr;
    let waiting = old.is_outdated() || (old.is_fuzzy() && !same_text);
    if (waiting && !found.has_text()) || (old.is_outdated() && same_text) {
        return entry;
    }
    entry.msgstr.clone_from(&found.msgstr);
    if same_text && found.is_fuzzy() == old.is_fuzzy() {
        return entry;
    }
    entry.previous = if found.is_fuzzy() { found.previous.clone() } else { Previous::default() };
    if found.is_fuzzy() {
        entry.flags.insert("fuzzy".to_owned());
    } else {
        entry.flags.remove("fuzzy");
    }
    entry
}

/// Takes from an entry what another program would write otherwise.
fn clean(entry: &mut Entry, form_count: usize) {
    entry.line = 0;
    entry.references = entry.canonical_references();
    if entry.obsolete {
        entry.references.clear();
        entry.extracted.clear();
    }
    if !entry.has_text() {
        entry.flags.remove("fuzzy");
        entry.previous = Previous::default();
        entry.msgstr = vec![String::new(); if entry.msgid_plural.is_some() { form_count } else { 1 }];
    }
    if !entry.is_fuzzy() && entry.previous == entry.as_previous() {
        entry.previous = Previous::default();
    }
}

/// The header of `old`, or of the file. If the file's plural forms choose otherwise, its texts follow them.
fn header(new: &Catalogue, old: Option<&Catalogue>) -> Entry {
    let kept = old.unwrap_or(new);
    let mut header = Header::read(kept.header_entry());
    if let Some(rule) = new.header("Plural-Forms")
        && (kept.header("Plural-Forms").is_none() || !new.plural_rule().chooses_like(kept.plural_rule()))
    {
        header.set("Plural-Forms", rule);
    }
    let mut in_list = false;
    let volatile = |line: &&String| {
        in_list = (in_list && !line.trim_ascii().is_empty()) || line.trim_ascii() == TRANSLATORS;
        !in_list
    };
    header.into_entry(kept.header_entry().comments.iter().filter(volatile).cloned().collect())
}
