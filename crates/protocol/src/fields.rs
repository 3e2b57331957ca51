//! Writing messages by hand, in JSON or in Protobuf.
//!
//! The same calls write both formats, so a message means the same in both. A field has a name in JSON and a number in
//! Protobuf ([`Field`]). A field with its zero value is left out. The methods named `_always` write it in JSON
//! nevertheless, where the protocol wants that; Protobuf leaves it out. A nested message is written even if it is empty:
//! an SDK takes a reply without a result for an error. Callers write the fields in the order of their numbers, like the
//! reference encoder.
//!
//! By hand, because payloads are copied in unchanged, and serde would check them again.
//!
//! In Protobuf the length of a message stands before it, in as few bytes as possible. The length is known when the
//! message is written, so a message of 128 bytes or more is then moved by a few bytes: once for each level of nesting, of
//! which a publication has three.

use serde::Serialize;
use tidings_types::{Format, Json};

use crate::protobuf::{BYTES, VARINT, put_varint, varint};

/// A field's name in JSON and its number in Protobuf.
pub(crate) type Field<'a> = (&'a str, u32);

/// Writes the fields of one message.
pub(crate) struct Fields<'a> {
    out: &'a mut Vec<u8>,
    format: Format,
    first: bool,
}

/// Appends one message; in Protobuf behind its length.
pub(crate) fn message(format: Format, out: &mut Vec<u8>, fill: impl FnOnce(&mut Fields<'_>)) {
    match format {
        Format::Json => {
            out.push(b'{');
            fill(&mut Fields { out, format, first: true });
            out.push(b'}');
        }
        Format::Protobuf => with_length(out, |out| fill(&mut Fields { out, format, first: true })),
    }
}

/// Appends what `fill` appends, behind its length.
fn with_length(out: &mut Vec<u8>, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.push(0);
    fill(out);
    let end = out.len();
    let length = varint((end - start - 1) as u64);
    let more = length.clone().count() - 1;
    out.resize(end + more, 0);
    out.copy_within(start + 1..end, start + 1 + more);
    out[start..].iter_mut().zip(length).for_each(|(place, byte)| *place = byte);
}

/// Appends an array of objects, one per item.
fn array<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut fill: impl FnMut(&mut Fields<'_>, T)) {
    out.push(b'[');
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        message(Format::Json, out, |fields| fill(fields, item));
    }
    out.push(b']');
}

/// Appends a text or a number as JSON.
fn scalar<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("memory takes every write, scalars are always JSON");
}

impl Fields<'_> {
    /// Starts a field; the caller appends its value.
    fn key(&mut self, (name, number): Field<'_>, wire_type: u32) -> &mut Vec<u8> {
        match self.format {
            Format::Json => {
                if !std::mem::take(&mut self.first) {
                    self.out.push(b',');
                }
                scalar(self.out, name);
                self.out.push(b':');
            }
            Format::Protobuf => put_varint(self.out, u64::from(number << 3 | wire_type)),
        }
        self.out
    }

    fn bytes(&mut self, field: Field<'_>, value: &[u8]) {
        let out = self.key(field, BYTES);
        put_varint(out, value.len() as u64);
        out.extend_from_slice(value);
    }

    pub(crate) fn text(&mut self, field: Field<'_>, value: &str) {
        if value.is_empty() {
            return;
        }
        match self.format {
            Format::Json => scalar(self.key(field, BYTES), value),
            Format::Protobuf => self.bytes(field, value.as_bytes()),
        }
    }

    pub(crate) fn text_always(&mut self, field: Field<'_>, value: &str) {
        match self.format {
            Format::Json => scalar(self.key(field, BYTES), value),
            Format::Protobuf => self.text(field, value),
        }
    }

    pub(crate) fn number(&mut self, field: Field<'_>, value: u64) {
        if value == 0 {
            return;
        }
        match self.format {
            Format::Json => scalar(self.key(field, VARINT), &value),
            Format::Protobuf => put_varint(self.key(field, VARINT), value),
        }
    }

    pub(crate) fn number_always(&mut self, field: Field<'_>, value: u64) {
        match self.format {
            Format::Json => scalar(self.key(field, VARINT), &value),
            Format::Protobuf => self.number(field, value),
        }
    }

    pub(crate) fn flag(&mut self, field: Field<'_>, value: bool) {
        match self.format {
            _ if !value => {}
            Format::Json => self.key(field, VARINT).extend_from_slice(b"true"),
            Format::Protobuf => self.key(field, VARINT).push(1),
        }
    }

    /// A value that is JSON: embedded in JSON, bytes in Protobuf.
    pub(crate) fn json(&mut self, field: Field<'_>, value: Option<&Json>) {
        match (self.format, value) {
            (_, None) => {}
            (Format::Json, Some(value)) => self.key(field, BYTES).extend_from_slice(value.bytes()),
            (Format::Protobuf, Some(value)) => self.bytes(field, value.bytes()),
        }
    }

    /// Like [`Fields::json`], for an object that is written here.
    pub(crate) fn json_object(&mut self, field: Field<'_>, fill: impl FnOnce(&mut Fields<'_>)) {
        let format = self.format;
        let out = self.key(field, BYTES);
        match format {
            Format::Json => message(Format::Json, out, fill),
            Format::Protobuf => with_length(out, |out| message(Format::Json, out, fill)),
        }
    }

    /// `null`, in an object that is JSON in both formats.
    pub(crate) fn null(&mut self, name: &str) {
        debug_assert_eq!(self.format, Format::Json, "Protobuf has no null");
        self.key((name, 0), BYTES).extend_from_slice(b"null");
    }

    pub(crate) fn message(&mut self, field: Field<'_>, fill: impl FnOnce(&mut Fields<'_>)) {
        message(self.format, self.key(field, BYTES), fill);
    }

    /// A list of messages, one per item. JSON has the list even if it is empty.
    pub(crate) fn messages<T>(
        &mut self,
        field: Field<'_>,
        items: impl IntoIterator<Item = T>,
        mut fill: impl FnMut(&mut Fields<'_>, T),
    ) {
        match self.format {
            Format::Json => array(self.key(field, BYTES), items, fill),
            Format::Protobuf => items.into_iter().for_each(|item| self.message(field, |fields| fill(fields, item))),
        }
    }

    /// Values by their names. `write` writes one value as the given field. JSON has the map even if it is empty.
    pub(crate) fn map<K: AsRef<str>, V>(
        &mut self,
        field: Field<'_>,
        entries: impl IntoIterator<Item = (K, V)>,
        mut write: impl FnMut(&mut Fields<'_>, Field<'_>, V),
    ) {
        const VALUE: u32 = 2;
        match self.format {
            Format::Json => self.message(field, |fields| {
                entries.into_iter().for_each(|(name, value)| write(fields, (name.as_ref(), VALUE), value));
            }),
            Format::Protobuf => self.messages(field, entries, |entry, (name, value)| {
                entry.text(("", 1), name.as_ref());
                write(entry, ("", VALUE), value);
            }),
        }
    }
}
