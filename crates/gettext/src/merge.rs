//! Bringing a catalogue up to date with the POT file: new messages come in, translations stay in service.
//!
//! The result is that of `msgmerge --no-fuzzy-matching --previous`: the messages, references and remarks of the POT file
//! in its order, with the translations and the translators' comments of the catalogue. Translations that are not used any
//! more stay at the end, marked `#~`, and come back when their message does. Three things differ:
//!
//! - **A changed source text keeps its translation in service.** The text of `goal.title` was A and is B: B has no
//!   translation, but the entry with the reference `goal.title` has. Its translation becomes that of B, with
//!   `#| msgid "A"`, and is *outdated* ([`Entry::is_outdated`]). So mending a typo in English silences no language. If the
//!   translation does not fit B, because its placeholders or its number of forms differ, it becomes fuzzy: it is not
//!   sent. A change of the plural text alone is treated alike. When the source text becomes A again, the remark goes.
//! - The header has its canonical form, without dates.
//! - Of an entry that is both in use and obsolete, the one with a translation is taken.
//!
//! A reference with a line number (`main.c:12`) moves to another message when lines do. It says nothing of a message, so
//! only other references count. A fuzzy entry is not carried over to a changed text.
//!
//! Merging twice changes nothing. Bounds: those of the two files; of obsolete entries only as many are kept as a file
//! may have ([`ENTRY_COUNT_MAX`]).

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::limits::ENTRY_COUNT_MAX;
use crate::po::{Catalogue, Entry, Header, Previous};
use crate::translations::entry_flaws;

/// A merged catalogue, and what has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// The catalogue, in the order of the POT file, with obsolete entries at its end.
    pub catalogue: Catalogue,
    /// What the merge did.
    pub changes: Changes,
}

/// How many messages of a merge had each fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Changes {
    /// Messages that were there, with their translation or without one.
    pub kept: usize,
    /// New messages, without translation.
    pub added: usize,
    /// Messages whose source text has changed, and whose translation stays in service.
    pub outdated: usize,
    /// Messages whose source text has changed, and whose translation does not fit any more: they are fuzzy now.
    pub fuzzy: usize,
    /// Messages that were obsolete and are used again.
    pub revived: usize,
    /// Translations that are no longer used, and are obsolete now.
    pub obsolete: usize,
}

/// Brings a catalogue up to date with the messages of a POT file.
pub fn merge(po: &Catalogue, pot: &Catalogue) -> Merged {
    let mut merge = Merge::new(po, pot);
    let mut entries: Vec<_> = pot
        .entries()
        .iter()
        .filter(|source| !source.obsolete && !source.is_header())
        .map(|source| merge.entry(source))
        .collect();
    let obsolete = po.entries().iter().enumerate().filter_map(|(index, entry)| merge.leave(index, entry));
    entries.extend(obsolete.take(ENTRY_COUNT_MAX.saturating_sub(entries.len() + 1)).collect::<Vec<_>>());
    let header = po.header_entry();
    let header = Header::read(header).into_entry(header.comments.clone());
    Merged { catalogue: Catalogue::from_entries(header, entries), changes: merge.changes }
}

struct Merge<'a> {
    po: &'a Catalogue,
    /// By context and source text, the entry to take the translation from.
    by_key: HashMap<(Option<&'a str>, &'a str), usize>,
    /// By reference, the entry that has the translation now.
    by_reference: HashMap<&'a str, usize>,
    /// References of several messages of the POT file. They say nothing of a message.
    ambiguous: HashSet<&'a str>,
    /// The entries whose translation is in the result.
    used: Vec<bool>,
    changes: Changes,
}

impl<'a> Merge<'a> {
    fn new(po: &'a Catalogue, pot: &'a Catalogue) -> Self {
        let entries = po.entries();
        let (mut by_key, mut by_reference) = (HashMap::with_capacity(entries.len()), HashMap::new());
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.is_header()) {
            let best = by_key.entry(entry.key()).or_insert(index);
            let rank = |index: usize| (entries[index].has_text(), !entries[index].obsolete);
            if rank(index) > rank(*best) {
                *best = index;
            }
            if entry.is_translated() {
                for reference in entry.each_reference().filter(|reference| names_a_message(reference)) {
                    by_reference.entry(reference).or_insert(index);
                }
            }
        }
        let mut seen = HashMap::new();
        let references = pot.entries().iter().flat_map(|entry| entry.each_reference().map(move |name| (name, entry)));
        let ambiguous = references.filter(|(name, entry)| !std::ptr::eq(*seen.entry(*name).or_insert(*entry), *entry));
        let ambiguous = ambiguous.map(|(name, _)| name).collect();
        Self { po, by_key, by_reference, ambiguous, used: vec![false; entries.len()], changes: Changes::default() }
    }

    /// The entry of the result for a message.
    fn entry(&mut self, source: &Entry) -> Entry {
        let known = self.by_key.get(&source.key()).map(|index| (*index, &self.po.entries()[*index]));
        if let Some((index, entry)) = known {
            self.used[index] = true;
            if entry.has_text() {
                return self.renew(source, entry);
            }
        }
        let comments = known.map(|(_, entry)| &entry.comments);
        let mut references = source.each_reference().filter(|name| !self.ambiguous.contains(name));
        if let Some(index) = references.find_map(|name| self.by_reference.get(name).copied()) {
            self.used[index] = true;
            let earlier = &self.po.entries()[index];
            let comments = comments.filter(|comments| !comments.is_empty()).unwrap_or(&earlier.comments);
            let entry = self.outdate(source, earlier);
            return Entry { comments: comments.clone(), ..entry };
        }
        match known {
            Some(_) => self.changes.kept += 1,
            None => self.changes.added += 1,
        }
        let forms = if source.msgid_plural.is_some() { self.po.plural_rule().form_count() } else { 1 };
        let comments = comments.cloned().unwrap_or_default();
        Entry { comments, msgstr: vec![String::new(); forms], ..renewed(source) }
    }

    /// A message that is in the catalogue. Its plural text may have changed.
    fn renew(&mut self, source: &Entry, entry: &Entry) -> Entry {
        if entry.obsolete {
            self.changes.revived += 1;
        } else if entry.msgid_plural == source.msgid_plural {
            self.changes.kept += 1;
        }
        if entry.msgid_plural != source.msgid_plural {
            return Entry { comments: entry.comments.clone(), ..self.outdate(source, entry) };
        }
        let mut renewed = renewed(source);
        renewed.comments.clone_from(&entry.comments);
        renewed.msgstr.clone_from(&entry.msgstr);
        if entry.is_fuzzy() {
            renewed.flags.insert("fuzzy".to_owned());
        }
        if entry.previous != renewed.as_previous() {
            renewed.previous = entry.previous.clone();
        }
        renewed
    }

    /// A message whose source text has changed, with the translation of `earlier`.
    fn outdate(&mut self, source: &Entry, earlier: &Entry) -> Entry {
        let mut entry = renewed(source);
        let same_shape = earlier.msgid_plural.is_some() == source.msgid_plural.is_some();
        entry.msgstr = reshaped(earlier, source, self.po.plural_rule().form_count());
        entry.previous = match &earlier.previous {
            previous if *previous == Previous::default() || earlier.is_fuzzy() => earlier.as_previous(),
            previous => previous.clone(),
        };
        let fits = same_shape && entry_flaws(&entry, self.po.plural_rule(), None).is_empty();
        let fate = if earlier.is_fuzzy() || !fits {
            entry.flags.insert("fuzzy".to_owned());
            &mut self.changes.fuzzy
        } else if entry.previous == entry.as_previous() {
            entry.previous = Previous::default();
            &mut self.changes.kept
        } else {
            &mut self.changes.outdated
        };
        *fate += usize::from(!earlier.obsolete); // Else it is counted as revived.
        entry
    }

    /// The obsolete form of an entry whose translation is not used any more.
    fn leave(&mut self, index: usize, entry: &Entry) -> Option<Entry> {
        let best = self.by_key.get(&entry.key()) == Some(&index);
        if self.used[index] || !best || !entry.has_text() {
            return None;
        }
        self.changes.obsolete += usize::from(!entry.obsolete);
        let entry = entry.clone();
        Some(Entry { line: 0, obsolete: true, extracted: Vec::new(), references: Vec::new(), ..entry })
    }
}

/// What the result takes from the POT file.
fn renewed(source: &Entry) -> Entry {
    let flags: BTreeSet<_> = source.flags.iter().filter(|flag| *flag != "fuzzy").cloned().collect();
    Entry {
        extracted: source.extracted.clone(),
        references: source.canonical_references(),
        flags,
        msgctxt: source.msgctxt.clone(),
        msgid: source.msgid.clone(),
        msgid_plural: source.msgid_plural.clone(),
        ..Entry::default()
    }
}

/// The translations of `earlier` as forms of `source`: a single text for every plural form, the first form for a single
/// text.
fn reshaped(earlier: &Entry, source: &Entry, form_count: usize) -> Vec<String> {
    let first = earlier.msgstr.iter().take(1).cloned();
    match (earlier.msgid_plural.is_some(), source.msgid_plural.is_some()) {
        (true, false) => first.collect(),
        (false, true) => first.cycle().take(form_count).collect(),
        _ => earlier.msgstr.clone(),
    }
}

/// Whether a reference stays with its message: it does not end in a line number.
fn names_a_message(reference: &str) -> bool {
    !reference.rsplit_once(':').is_some_and(|(_, line)| line.bytes().all(|byte| byte.is_ascii_digit()))
}
