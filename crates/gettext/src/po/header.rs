//! The header of a PO file in its canonical form: the same fields always, in a fixed order, without dates and names.
//!
//! The fields that `msgfmt -c` asks for are always there. Those that change with every export (dates, the last
//! translator, the generator) are empty or left out, so that a file without changes stays as it is. Other fields are kept
//! behind them, in alphabetical order.

use std::collections::BTreeMap;

use super::entry::Entry;

/// The fields that are always written, in this order. A fixed value replaces any other.
const FIELDS: [(&str, Option<&str>); 8] = [
    ("Project-Id-Version", None),
    ("PO-Revision-Date", Some("")),
    ("Last-Translator", Some("")),
    ("Language-Team", None),
    ("Language", None),
    ("MIME-Version", Some("1.0")),
    ("Content-Type", Some("text/plain; charset=UTF-8")),
    ("Content-Transfer-Encoding", Some("8bit")),
];

/// Written last of the known fields, if it is there. A POT file has none: `msginit` fills in that of the language.
const PLURAL_FORMS: &str = "Plural-Forms";

/// Never written: they change with every export.
const VOLATILE: [&str; 2] = ["POT-Creation-Date", "X-Generator"];

/// The fields of a header.
#[derive(Debug, Clone, Default)]
pub(crate) struct Header {
    /// The name as it is written and the value, by the name in lower case.
    fields: BTreeMap<String, (String, String)>,
}

impl Header {
    /// Reads the fields. Of a field that is there twice, the first counts.
    pub(crate) fn read(entry: &Entry) -> Self {
        let mut header = Self::default();
        for line in entry.msgstr.iter().flat_map(|text| text.split('\n')) {
            if let Some((name, value)) = line.split_once(':') {
                let name = name.trim_ascii();
                let field = || (name.to_owned(), value.trim_ascii().to_owned());
                header.fields.entry(name.to_ascii_lowercase()).or_insert_with(field);
            }
        }
        header
    }

    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.fields.insert(name.to_ascii_lowercase(), (name.to_owned(), value.to_owned()));
    }

    /// The header's entry in the canonical form.
    pub(crate) fn into_entry(mut self, comments: Vec<String>) -> Entry {
        let mut text = String::new();
        let mut write = |name: &str, value: &str| {
            text.extend([name, ": ", value, "\n"]);
        };
        for (name, fixed) in FIELDS {
            let found = self.fields.remove(&name.to_ascii_lowercase());
            let value = fixed.map_or_else(|| found.map(|(_, value)| value).unwrap_or_default(), str::to_owned);
            write(name, &value);
        }
        if let Some((_, value)) = self.fields.remove("plural-forms").filter(|(_, value)| !value.is_empty()) {
            write(PLURAL_FORMS, &value);
        }
        for (name, value) in self.fields.into_values() {
            if !VOLATILE.iter().any(|volatile| volatile.eq_ignore_ascii_case(&name)) {
                write(&name, &value);
            }
        }
        Entry { comments, msgstr: vec![text], ..Entry::default() }
    }
}
