//! One message of a PO file, with all that stands beside it.

use std::collections::BTreeSet;

/// A message and its translation. The header is the entry with the empty msgid and no context.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The line of its msgid, counted from 1.
    pub line: usize,
    /// Translators' comments, `#`.
    pub comments: Vec<String>,
    /// Programmers' comments, `#.`.
    pub extracted: Vec<String>,
    /// Where the text is used, `#:`.
    pub references: Vec<String>,
    /// Flags, `#,`; `ruby-format` is always among them if a source text has a placeholder.
    pub flags: BTreeSet<String>,
    /// The source text a fuzzy translation was made for, `#|`.
    pub previous: Previous,
    /// No longer used, kept for its translation, `#~`.
    pub obsolete: bool,
    /// The context.
    pub msgctxt: Option<String>,
    /// The source text.
    pub msgid: String,
    /// The source text for other numbers than one.
    pub msgid_plural: Option<String>,
    /// The translation, one text per plural form; exactly one without plural. Empty: not translated.
    pub msgstr: Vec<String>,
}

/// The source text an entry had before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Previous {
    /// Its context.
    pub msgctxt: Option<String>,
    /// Its text.
    pub msgid: Option<String>,
    /// Its plural text.
    pub msgid_plural: Option<String>,
}

impl Entry {
    /// Marked as doubtful by a tool or a translator: not to be shown to anybody.
    pub fn is_fuzzy(&self) -> bool {
        self.flags.contains("fuzzy")
    }

    /// In use, not doubtful, and with a text for at least one form.
    pub fn is_translated(&self) -> bool {
        !self.obsolete && !self.is_fuzzy() && self.msgstr.iter().any(|text| !text.is_empty())
    }

    pub(crate) fn is_header(&self) -> bool {
        !self.obsolete && self.msgctxt.is_none() && self.msgid.is_empty()
    }

    pub(crate) fn source_texts(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.msgid.as_str()).chain(self.msgid_plural.as_deref())
    }
}
