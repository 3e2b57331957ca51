//! MessagePack as another form of JSON: a request's body becomes JSON text, an answer's JSON becomes MessagePack.
//!
//! Only what JSON can express is read. Binary data, extension types, NaN and infinite numbers, text that is not UTF-8,
//! and keys that are not text are refused, each with the position of its first byte. A 32-bit float becomes the
//! shortest decimal that names it (1.1, not 1.10000002384). Repeated names are written as they are; the reader of the
//! JSON refuses them. The rules for callers are in `docs/messagepack.md`.
//!
//! Bounds: [`JSON_DEPTH_MAX`] levels; as many bytes of JSON as the caller allows. No memory is reserved because of a
//! length in a header: a list of 4 billion entries ends where the body ends. No byte of MessagePack becomes more than 6
//! bytes of JSON.
//!
//! Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md).

use std::fmt;

use rmp::Marker;
use rmp::encode::{
    ByteBuf, write_array_len, write_bool, write_f64, write_map_len, write_nil, write_sint, write_str, write_uint,
};
use serde::Serialize;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use tidings_types::JSON_DEPTH_MAX;

/// Why a body cannot be converted to JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnpackError {
    /// It is not MessagePack, or is what JSON cannot express.
    #[error("at byte {at}: {what}")]
    Malformed {
        /// The first byte of what is refused, from 0.
        at: usize,
        /// What is wrong, for people.
        what: &'static str,
    },
    /// Its JSON is larger than allowed.
    #[error("more than {limit} bytes as JSON")]
    TooLarge {
        /// In bytes.
        limit: usize,
    },
}

/// The JSON text of one MessagePack value, of at most `bytes_max`.
///
/// # Errors
/// See [`UnpackError`].
pub fn unpack(packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, UnpackError> {
    let mut unpacker = Unpacker { packed, at: 0, json: Vec::with_capacity(packed.len().min(bytes_max)), bytes_max };
    unpacker.value(0)?;
    if unpacker.at < packed.len() {
        return Err(unpacker.malformed(unpacker.at, "there are bytes behind the value"));
    }
    Ok(unpacker.json)
}

struct Unpacker<'p> {
    packed: &'p [u8],
    at: usize,
    json: Vec<u8>,
    bytes_max: usize,
}

type Unpacked = Result<(), UnpackError>;

impl Unpacker<'_> {
    fn value(&mut self, depth: usize) -> Unpacked {
        let start = self.at;
        match Marker::from_u8(u8::from_be_bytes(self.take()?)) {
            Marker::Null => self.put("null"),
            Marker::False => self.put("false"),
            Marker::True => self.put("true"),
            Marker::FixPos(number) => self.write(&number),
            Marker::FixNeg(number) => self.write(&number),
            Marker::U8 => self.number(u8::from_be_bytes),
            Marker::U16 => self.number(u16::from_be_bytes),
            Marker::U32 => self.number(u32::from_be_bytes),
            Marker::U64 => self.number(u64::from_be_bytes),
            Marker::I8 => self.number(i8::from_be_bytes),
            Marker::I16 => self.number(i16::from_be_bytes),
            Marker::I32 => self.number(i32::from_be_bytes),
            Marker::I64 => self.number(i64::from_be_bytes),
            Marker::F32 => {
                let number = f32::from_be_bytes(self.take()?);
                if number.is_finite() { self.write(&number) } else { Err(self.malformed(start, NO_NUMBER)) }
            }
            Marker::F64 => {
                let number = f64::from_be_bytes(self.take()?);
                if number.is_finite() { self.write(&number) } else { Err(self.malformed(start, NO_NUMBER)) }
            }
            marker @ (Marker::FixStr(_) | Marker::Str8 | Marker::Str16 | Marker::Str32) => self.text(start, marker),
            Marker::FixArray(count) => self.list(count.into(), depth),
            Marker::Array16 => self.count16().and_then(|count| self.list(count, depth)),
            Marker::Array32 => self.count32().and_then(|count| self.list(count, depth)),
            Marker::FixMap(count) => self.map(count.into(), depth),
            Marker::Map16 => self.count16().and_then(|count| self.map(count, depth)),
            Marker::Map32 => self.count32().and_then(|count| self.map(count, depth)),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                Err(self.malformed(start, "binary data, which JSON does not have"))
            }
            Marker::Reserved => Err(self.malformed(start, "the byte c1, which MessagePack does not use")),
            _ => Err(self.malformed(start, "an extension type, which JSON does not have; a time is text or a number")),
        }
    }

    fn list(&mut self, count: u32, depth: usize) -> Unpacked {
        let depth = self.deeper(depth)?;
        self.put("[")?;
        for index in 0..count {
            self.separate(index)?;
            self.value(depth)?;
        }
        self.put("]")
    }

    fn map(&mut self, count: u32, depth: usize) -> Unpacked {
        let depth = self.deeper(depth)?;
        self.put("{")?;
        for index in 0..count {
            self.separate(index)?;
            let start = self.at;
            let marker = Marker::from_u8(u8::from_be_bytes(self.take()?));
            self.text(start, marker)?;
            self.put(":")?;
            self.value(depth)?;
        }
        self.put("}")
    }

    fn deeper(&self, depth: usize) -> Result<usize, UnpackError> {
        if depth < JSON_DEPTH_MAX { Ok(depth + 1) } else { Err(self.malformed(self.at, "more than 100 levels deep")) }
    }

    /// Reads text: a value, or a key, which must be text.
    fn text(&mut self, start: usize, marker: Marker) -> Unpacked {
        let length = match marker {
            Marker::FixStr(length) => length.into(),
            Marker::Str8 => u8::from_be_bytes(self.take()?).into(),
            Marker::Str16 => self.count16()?,
            Marker::Str32 => self.count32()?,
            _ => return Err(self.malformed(start, "a key that is not text")),
        };
        let bytes = self.packed[self.at..].get(..length as usize).ok_or_else(|| self.ended())?;
        if is_plain(bytes) {
            self.at += bytes.len();
            for part in [b"\"", bytes, b"\""] {
                self.json.extend_from_slice(part);
            }
            return self.bounded();
        }
        let text = std::str::from_utf8(bytes).map_err(|_| self.malformed(start, "text that is not UTF-8"))?;
        self.at += bytes.len();
        self.write(text)
    }

    fn number<const N: usize, T: Serialize>(&mut self, read: fn([u8; N]) -> T) -> Unpacked {
        let number = read(self.take()?);
        self.write(&number)
    }

    fn count16(&mut self) -> Result<u32, UnpackError> {
        self.take().map(|bytes| u16::from_be_bytes(bytes).into())
    }

    fn count32(&mut self) -> Result<u32, UnpackError> {
        self.take().map(u32::from_be_bytes)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        let bytes = *self.packed[self.at..].first_chunk().ok_or_else(|| self.ended())?;
        self.at += N;
        Ok(bytes)
    }

    fn separate(&mut self, index: u32) -> Unpacked {
        if index == 0 { Ok(()) } else { self.put(",") }
    }

    fn put(&mut self, json: &str) -> Unpacked {
        self.json.extend_from_slice(json.as_bytes());
        self.bounded()
    }

    fn write(&mut self, value: &(impl Serialize + ?Sized)) -> Unpacked {
        serde_json::to_writer(&mut self.json, value).expect("texts and finite numbers, into memory");
        self.bounded()
    }

    fn bounded(&self) -> Unpacked {
        let limit = self.bytes_max;
        if self.json.len() > limit { Err(UnpackError::TooLarge { limit }) } else { Ok(()) }
    }

    fn ended(&self) -> UnpackError {
        self.malformed(self.packed.len(), "it ends in the middle of a value")
    }

    #[expect(clippy::unused_self, reason = "reads like the others")]
    fn malformed(&self, at: usize, what: &'static str) -> UnpackError {
        UnpackError::Malformed { at, what }
    }
}

/// Whether text is the same in JSON, between quotes: ASCII without controls, quotes and backslashes. Without an early end,
/// so that many bytes are looked at in one step.
fn is_plain(text: &[u8]) -> bool {
    text.iter().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~') & (*byte != b'"') & (*byte != b'\\'))
}

const NO_NUMBER: &str = "NaN or an infinite number, which JSON does not have";

/// Why an answer cannot be converted to MessagePack: a bug.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// The answer is not in memory as a whole.
    #[error(transparent)]
    Body(axum::Error),
    /// The answer is not JSON, has more than the 128 levels that serde_json reads, or a text, list or object in it has more
    /// bytes or entries than 32 bits can count.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

/// Converts one of the server's own answers, which are JSON, while it is read: no value is made of it.
///
/// # Errors
/// See [`PackError`].
pub fn pack(json: &[u8]) -> Result<Vec<u8>, PackError> {
    let mut packed = ByteBuf::with_capacity(json.len());
    let mut reader = serde_json::Deserializer::from_slice(json);
    Packer(&mut packed).deserialize(&mut reader)?;
    reader.end()?;
    Ok(packed.into_vec())
}

/// Appends what it visits. Writing to memory has no errors, as the types show.
struct Packer<'p>(&'p mut ByteBuf);

impl<'de> DeserializeSeed<'de> for Packer<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Packer<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        let Ok(()) = write_nil(self.0);
        Ok(())
    }

    fn visit_bool<E>(self, bool: bool) -> Result<(), E> {
        let Ok(()) = write_bool(self.0, bool);
        Ok(())
    }

    fn visit_u64<E>(self, number: u64) -> Result<(), E> {
        let Ok(_) = write_uint(self.0, number);
        Ok(())
    }

    fn visit_i64<E>(self, number: i64) -> Result<(), E> {
        let Ok(_) = write_sint(self.0, number);
        Ok(())
    }

    fn visit_f64<E>(self, number: f64) -> Result<(), E> {
        let Ok(()) = write_f64(self.0, number);
        Ok(())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<(), E> {
        length::<E>(text.len())?;
        let Ok(()) = write_str(self.0, text);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let start = self.0.as_slice().len();
        let mut count = 0;
        while items.next_element_seed(Packer(self.0))?.is_some() {
            count += 1;
        }
        let count = length(count)?;
        insert_header(self.0, start, |header| {
            let Ok(_) = write_array_len(header, count);
        });
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let start = self.0.as_slice().len();
        let mut count = 0;
        while entries.next_key_seed(Packer(self.0))?.is_some() {
            entries.next_value_seed(Packer(self.0))?;
            count += 1;
        }
        let count = length(count)?;
        insert_header(self.0, start, |header| {
            let Ok(_) = write_map_len(header, count);
        });
        Ok(())
    }
}

/// Puts a header, whose length depends on the count behind it, in front of what was written since `start`.
fn insert_header(packed: &mut ByteBuf, start: usize, write: impl FnOnce(&mut ByteBuf)) {
    let end = packed.as_slice().len();
    write(packed);
    let header = packed.as_slice().len() - end;
    packed.as_mut_vec()[start..].rotate_right(header);
}

fn length<E: de::Error>(count: usize) -> Result<u32, E> {
    u32::try_from(count)
        .map_err(|_| E::custom(format_args!("{count} bytes or entries are more than MessagePack can count")))
}

#[cfg(test)]
mod tests;
