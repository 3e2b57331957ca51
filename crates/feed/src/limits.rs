//! What bounds a document. A document that goes beyond is refused at that place.

use serde::Deserialize;

/// The limits of a document; the table `limits` of a mapping.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of a document, as they come.
    pub document_bytes: u64,
    /// Bytes of an entry in the document, as UTF-8.
    pub entry_bytes: u64,
    /// Bytes of what is kept of all entries until the end of the document.
    pub held_bytes: u64,
    /// Entries of a document.
    pub entries: u64,
    /// Bytes of one text, or of one tag with its attributes.
    pub text_bytes: u64,
    /// Attributes of an element.
    pub attributes: u64,
    /// Levels of elements, objects and arrays. JSON has at most 127.
    pub depth: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            document_bytes: 64 << 20,
            entry_bytes: 1 << 20,
            held_bytes: 16 << 20,
            entries: 1_000_000,
            text_bytes: 256 << 10,
            attributes: 256,
            depth: 100,
        }
    }
}
