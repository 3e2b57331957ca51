//! One message of a PO file, with its comments and flags.

use std::collections::{BTreeSet, HashSet};

use crate::limits::PLURAL_FORM_COUNT_MAX;

/// The keyword of each plural form.
pub(super) const FORM_KEYWORDS: [&str; PLURAL_FORM_COUNT_MAX] = [
    "msgstr[0]",
    "msgstr[1]",
    "msgstr[2]",
    "msgstr[3]",
    "msgstr[4]",
    "msgstr[5]",
    "msgstr[6]",
    "msgstr[7]",
    "msgstr[8]",
    "msgstr[9]",
    "msgstr[10]",
    "msgstr[11]",
    "msgstr[12]",
    "msgstr[13]",
    "msgstr[14]",
    "msgstr[15]",
];

/// A message and its translation. The header is the entry with the empty msgid and no context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The line of the msgid, counted from 1.
    pub line: usize,
    /// Translators' comments, `#`.
    pub comments: Vec<String>,
    /// Programmers' comments, `#.`.
    pub extracted: Vec<String>,
    /// Where the text is used, `#:`.
    pub references: Vec<String>,
    /// Flags, `#,`. They include `ruby-format` if a source text has a placeholder.
    pub flags: BTreeSet<String>,
    /// The source text that the translation was made for, if it was another one, `#|`.
    pub previous: Previous,
    /// The message is no longer used, and is kept for its translation, `#~`.
    pub obsolete: bool,
    /// The context.
    pub msgctxt: Option<String>,
    /// The source text.
    pub msgid: String,
    /// The source text for numbers other than one.
    pub msgid_plural: Option<String>,
    /// The translation: one text per plural form, or exactly one without plural. An empty text is not translated.
    pub msgstr: Vec<String>,
}

/// An earlier source text of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Previous {
    /// The context.
    pub msgctxt: Option<String>,
    /// The source text.
    pub msgid: Option<String>,
    /// The source text for numbers other than one.
    pub msgid_plural: Option<String>,
}

impl Entry {
    /// Whether a tool or a translator has marked the translation as doubtful. It is not rendered.
    pub fn is_fuzzy(&self) -> bool {
        self.flags.contains("fuzzy")
    }

    /// Whether the translation was made for an earlier source text, and is in service until there is a new one.
    pub fn is_outdated(&self) -> bool {
        self.is_translated() && self.previous != Previous::default()
    }

    /// Whether the entry is in use, not fuzzy, and has a text for at least one form.
    pub fn is_translated(&self) -> bool {
        !self.obsolete && !self.is_fuzzy() && self.has_text()
    }

    pub(crate) fn is_header(&self) -> bool {
        !self.obsolete && self.msgctxt.is_none() && self.msgid.is_empty()
    }

    /// Whether there is a text for at least one form.
    pub(crate) fn has_text(&self) -> bool {
        self.msgstr.iter().any(|text| !text.is_empty())
    }

    /// What a catalogue has only once.
    pub(crate) fn key(&self) -> (Option<&str>, &str) {
        (self.msgctxt.as_deref(), &self.msgid)
    }

    /// The source text of this entry, to be remembered when it changes.
    pub(crate) fn as_previous(&self) -> Previous {
        Previous {
            msgctxt: self.msgctxt.clone(),
            msgid: Some(self.msgid.clone()),
            msgid_plural: self.msgid_plural.clone(),
        }
    }

    /// The references one by one. GNU's tools write several on a line, and isolates around a name with spaces. A line with
    /// a backslash stays whole: at its end, a backslash would join two comments.
    pub(crate) fn each_reference(&self) -> impl Iterator<Item = &str> {
        self.references.iter().flat_map(|line| {
            let whole = line.contains(['\u{2068}', '\\']);
            let (line, words) = if whole { (Some(line.as_str()), "") } else { (None, line.as_str()) };
            line.into_iter().chain(words.split_ascii_whitespace())
        })
    }

    /// The references, one on a line and none twice.
    pub(crate) fn canonical_references(&self) -> Vec<String> {
        let mut seen = HashSet::new();
        self.each_reference().filter(|reference| seen.insert(*reference)).map(str::to_owned).collect()
    }

    pub(crate) fn source_texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.msgid.as_str()).chain(self.msgid_plural.as_deref())
    }
}
