//! How far a catalogue is translated.

use std::collections::HashMap;

use crate::message::{Message, inheriting};
use crate::po::{Catalogue, Entry};
use crate::translations::entry_flaws;

/// A number of messages, and of the words in their source texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Messages.
    pub messages: usize,
    /// Words of the source text, of the singular.
    pub words: usize,
}

/// How many messages of a catalogue are in each state. Each message in use is translated, fuzzy, untranslated or inheriting.
/// `msgfmt --statistics` counts the last two as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// With a translation, outdated and wrong ones included.
    pub translated: Count,
    /// Translated, but for an earlier source text ([`Entry::is_outdated`]). It is in service.
    pub outdated: Count,
    /// Translated, but with a mistake, so that it is not sent.
    pub wrong: Count,
    /// Marked as doubtful, and not sent.
    pub fuzzy: Count,
    /// Without a translation. With a plural, it is the first form that counts.
    pub untranslated: Count,
    /// For a value of a parameter and without a translation, where the message without the value has one. Nothing is left to
    /// do.
    pub inheriting: Count,
    /// Not used any more.
    pub obsolete: Count,
}

/// Counts the messages of a catalogue. [Merge](crate::merge()) it with the POT file before, so that new messages count as
/// untranslated. `messages` say which parameter is the count, and which messages are for a value; without them, wrong
/// translations are judged by the catalogue alone.
pub fn stats(catalogue: &Catalogue, messages: &[Message]) -> Stats {
    let mut stats = Stats::default();
    let templates: HashMap<_, _> = messages
        .iter()
        .map(|message| ((message.template.msgctxt(), message.template.msgid()), &message.template))
        .collect();
    let inheriting = inheriting(catalogue, messages);
    for entry in catalogue.entries().iter().filter(|entry| !entry.is_header()) {
        if entry.obsolete {
            stats.obsolete.add(entry);
        } else if !entry.has_text() && inheriting.contains(&entry.key()) {
            stats.inheriting.add(entry);
        } else if entry.msgstr.first().is_none_or(String::is_empty) {
            stats.untranslated.add(entry);
        } else if entry.is_fuzzy() {
            stats.fuzzy.add(entry);
        } else {
            stats.translated.add(entry);
            if entry.is_outdated() {
                stats.outdated.add(entry);
            }
            let template = templates.get(&entry.key()).copied();
            if !entry_flaws(entry, catalogue.plural_rule(), template).is_empty() {
                stats.wrong.add(entry);
            }
        }
    }
    stats
}

impl Stats {
    /// All messages in use, without those that inherit.
    pub fn total(&self) -> Count {
        let states = [self.translated, self.fuzzy, self.untranslated];
        Count {
            messages: states.iter().map(|state| state.messages).sum(),
            words: states.iter().map(|state| state.words).sum(),
        }
    }
}

impl Count {
    fn add(&mut self, entry: &Entry) {
        self.messages += 1;
        self.words += entry.msgid.split_whitespace().count();
    }
}
