//! One message of a PO file, with its comments and flags.

use std::collections::BTreeSet;

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
    /// The source text that a fuzzy translation was made for, `#|`.
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

    /// Whether the entry is in use, not fuzzy, and has a text for at least one form.
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
