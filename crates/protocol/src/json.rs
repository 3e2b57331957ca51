//! Writing JSON objects by hand, with the protocol's rule that a field with its zero value is left out.
//!
//! By hand, because payloads are copied in unchanged, and serde would check them again.

use serde::Serialize;
use tidings_types::Json;

/// Writes the fields of one object.
pub(crate) struct Fields<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
}

/// Appends one object.
pub(crate) fn object(out: &mut Vec<u8>, fill: impl FnOnce(&mut Fields<'_>)) {
    out.push(b'{');
    fill(&mut Fields { out, first: true });
    out.push(b'}');
}

/// Appends an array, one element per item.
pub(crate) fn array<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut encode: impl FnMut(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        encode(out, item);
    }
    out.push(b']');
}

/// Appends a text or a number.
fn scalar<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("memory takes every write, scalars are always JSON");
}

impl Fields<'_> {
    /// Starts a field; the caller appends its value.
    pub(crate) fn key(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        scalar(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        if !value.is_empty() {
            self.text_always(name, value);
        }
    }

    pub(crate) fn text_always(&mut self, name: &str, value: &str) {
        scalar(self.key(name), value);
    }

    pub(crate) fn number(&mut self, name: &str, value: u64) {
        if value != 0 {
            self.number_always(name, value);
        }
    }

    pub(crate) fn number_always(&mut self, name: &str, value: u64) {
        scalar(self.key(name), &value);
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        if value {
            self.key(name).extend_from_slice(b"true");
        }
    }

    pub(crate) fn json(&mut self, name: &str, value: Option<&Json>) {
        if let Some(value) = value {
            self.key(name).extend_from_slice(value.bytes());
        }
    }

    pub(crate) fn object(&mut self, name: &str, fill: impl FnOnce(&mut Fields<'_>)) {
        object(self.key(name), fill);
    }
}
