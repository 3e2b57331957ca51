//! PO files. A [`Catalogue`] is one file: the translations into one language, with comments, flags and the header.
//!
//! [`Catalogue::parse`] reads what GNU gettext 0.21 reads, except `domain` directives, two keywords on one line, numeric
//! escapes beyond ASCII, and charsets other than UTF-8. Comments after the last message are dropped, as GNU's tools do.
//! [`Catalogue::to_po`] writes the canonical form: one string per line of text, no wrapping, `ruby-format` on every
//! message with a placeholder, entries in the order of the file. Parsing the canonical form gives the same catalogue.
//!
//! [`Translations`](crate::Translations) decides whether a translation is correct.
//!
//! Source: GNU gettext manual, "The Format of PO Files".

mod entry;
mod header;
mod locate;
mod parse;
mod write;

use tidings_types::Locale;

use crate::error::{PoError, PoProblem};
use crate::languages::{GENERIC, plural_forms};
use crate::plural::PluralRule;

pub use entry::{Entry, Previous};
pub(crate) use header::Header;
pub(crate) use locate::{Lines, Part};

/// A PO file. It has a header with the charset UTF-8, and no message twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    entries: Vec<Entry>,
    header_index: usize,
    rule: PluralRule,
    /// The lines of entries that had lost their mark `ruby-format`.
    unmarked: Vec<usize>,
}

impl Catalogue {
    /// Reads a PO file.
    ///
    /// # Errors
    /// The first mistake: a line that is not PO, a file over a [limit](crate::limits), a message that is there twice, a
    /// missing header, a charset other than UTF-8, or a plural rule that cannot be read.
    pub fn parse(text: &[u8]) -> Result<Self, PoError> {
        let (entries, unmarked) = parse::entries(text)?;
        let header_index =
            entries.iter().position(Entry::is_header).ok_or(PoError { line: 1, problem: PoProblem::HeaderMissing })?;
        let header = &entries[header_index];
        let error = |problem| PoError { line: header.line, problem };
        let content_type = field(header, "Content-Type").unwrap_or_default();
        let charset = content_type.split_once("charset=").map_or("", |(_, charset)| charset.trim_ascii());
        if !charset.eq_ignore_ascii_case("UTF-8") {
            return Err(error(PoProblem::Charset { found: charset.chars().take(64).collect() }));
        }
        let rule = match field(header, "Plural-Forms") {
            Some(rule) => PluralRule::parse(rule).map_err(|cause| error(PoProblem::PluralForms(cause)))?,
            None => PluralRule::default(),
        };
        Ok(Self { entries, header_index, rule, unmarked })
    }

    /// A catalogue without messages for a new language, with the language's [plural forms](crate::plural_forms). An unknown
    /// language gets the rule of English.
    pub fn empty(locale: &Locale) -> Self {
        let mut header = Header::default();
        header.set("Language", &locale.as_str().replace('-', "_"));
        header.set("Plural-Forms", plural_forms(locale).unwrap_or(GENERIC));
        Self::from_entries(header.into_entry(Vec::new()), Vec::new())
    }

    /// Makes a catalogue of a header and other entries.
    pub(crate) fn from_entries(header: Entry, others: Vec<Entry>) -> Self {
        let rule = field(&header, "Plural-Forms").and_then(|rule| PluralRule::parse(rule).ok()).unwrap_or_default();
        let entries = std::iter::once(header).chain(others).collect();
        Self { entries, header_index: 0, rule, unmarked: Vec::new() }
    }

    pub(crate) fn extend(&mut self, others: Vec<Entry>) {
        self.entries.extend(others);
    }

    /// Writes the canonical form.
    pub fn to_po(&self) -> String {
        write::entries(&self.entries)
    }

    /// All entries in the order of the file, including the header and obsolete entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A field of the header, for example `Language`; `None` if it is missing or empty.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(self.header_entry(), name)
    }

    /// The rule in `Plural-Forms`. A header without it means two forms: one, and all other numbers.
    pub fn plural_rule(&self) -> &PluralRule {
        &self.rule
    }

    /// Whether the entry of this line has a placeholder, but was not marked `ruby-format` in the file.
    pub(crate) fn is_unmarked(&self, line: usize) -> bool {
        self.unmarked.binary_search(&line).is_ok()
    }

    pub(crate) fn header_entry(&self) -> &Entry {
        &self.entries[self.header_index]
    }
}

/// The value of a field.
fn field<'a>(header: &'a Entry, name: &str) -> Option<&'a str> {
    let mut fields = header.msgstr.iter().flat_map(|text| text.split('\n')).filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(field, _)| field.trim_ascii().eq_ignore_ascii_case(name))?;
    Some(value.trim_ascii()).filter(|value| !value.is_empty())
}
