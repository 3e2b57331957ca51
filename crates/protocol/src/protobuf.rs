//! The encoding of Protobuf messages: numbers, and fields one after the other.
//!
//! The client protocol needs only two kinds of fields: numbers (varints) and bytes behind their length, which are texts,
//! payloads and nested messages. Nothing here follows a nested message by itself, so no input leads to deep recursion,
//! and nothing is allocated. A field of a fixed size (32 or 64 bits) is skipped. Groups are refused; they are older than
//! this protocol.
//!
//! Source: <https://protobuf.dev/programming-guides/encoding/>.

use crate::admission::CONNECT_SUBSCRIPTION_COUNT_MAX;

/// The wire type of numbers.
pub(crate) const VARINT: u32 = 0;
/// The wire type of bytes behind their length.
pub(crate) const BYTES: u32 = 2;

/// Bytes that are no Protobuf message of the protocol. The text never repeats what the client sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// A message or a field that ends after the bytes do.
    #[error("message is cut off")]
    Cut,
    /// A number that does not fit.
    #[error("number has more than 64 bits")]
    Varint,
    /// A field number that does not exist, or a group.
    #[error("message has an invalid tag")]
    Tag,
    /// A known field with another wire type than that of the schema.
    #[error("field {0} has a wrong wire type")]
    WireType(u32),
    /// A text field that is not UTF-8.
    #[error("field {0} is not UTF-8")]
    Text(u32),
    /// A `connect` that names too many server-side subscriptions.
    #[error("connect must name at most {CONNECT_SUBSCRIPTION_COUNT_MAX} subscriptions")]
    TooMany,
}

/// The bytes of a number.
pub(crate) fn varint(value: u64) -> impl Iterator<Item = u8> + Clone {
    let mut rest = Some(value);
    std::iter::from_fn(move || {
        let value = rest?;
        rest = (value >= 0x80).then_some(value >> 7);
        Some(if rest.is_some() { value as u8 | 0x80 } else { value as u8 })
    })
}

/// Appends a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    out.extend(varint(value));
}

/// Takes a number off the front of `input`.
fn take_varint(input: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0;
    for shift in (0..u64::BITS).step_by(7) {
        let (&byte, rest) = input.split_first().ok_or(ProtobufError::Cut)?;
        *input = rest;
        if shift == 63 && byte > 1 {
            break;
        }
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Varint)
}

/// Takes so many bytes off the front of `input`.
fn take<'a>(input: &mut &'a [u8], count: u64) -> Result<&'a [u8], ProtobufError> {
    let count = usize::try_from(count).map_err(|_| ProtobufError::Cut)?;
    let (taken, rest) = input.split_at_checked(count).ok_or(ProtobufError::Cut)?;
    *input = rest;
    Ok(taken)
}

/// Takes a message behind its length off the front of `input`.
pub(crate) fn take_message<'a>(input: &mut &'a [u8]) -> Result<&'a [u8], ProtobufError> {
    let count = take_varint(input)?;
    take(input, count)
}

/// One field of a message.
pub(crate) struct Value<'a> {
    pub(crate) number: u32,
    content: Content<'a>,
}

enum Content<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
    /// 32 or 64 bits, which no field of the protocol has.
    Fixed,
}

/// The fields of a message in order. The iterator ends after the first error.
pub(crate) struct Values<'a>(&'a [u8]);

impl<'a> Values<'a> {
    /// The fields of `message`.
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn take(&mut self) -> Result<Value<'a>, ProtobufError> {
        let tag = u32::try_from(take_varint(&mut self.0)?).map_err(|_| ProtobufError::Tag)?;
        let number = tag >> 3;
        let content = match tag & 7 {
            _ if number == 0 => return Err(ProtobufError::Tag),
            VARINT => Content::Varint(take_varint(&mut self.0)?),
            1 => take(&mut self.0, 8).map(|_| Content::Fixed)?,
            BYTES => Content::Bytes(take_message(&mut self.0)?),
            5 => take(&mut self.0, 4).map(|_| Content::Fixed)?,
            _ => return Err(ProtobufError::Tag),
        };
        Ok(Value { number, content })
    }
}

impl<'a> Iterator for Values<'a> {
    type Item = Result<Value<'a>, ProtobufError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let value = self.take();
        if value.is_err() {
            self.0 = &[];
        }
        Some(value)
    }
}

impl<'a> Value<'a> {
    /// Its number; the schema's type decides how many of the 64 bits count.
    pub(crate) fn varint(&self) -> Result<u64, ProtobufError> {
        match self.content {
            Content::Varint(value) => Ok(value),
            Content::Bytes(_) | Content::Fixed => Err(ProtobufError::WireType(self.number)),
        }
    }

    pub(crate) fn flag(&self) -> Result<bool, ProtobufError> {
        self.varint().map(|value| value != 0)
    }

    /// Its bytes: a payload or a nested message.
    pub(crate) fn bytes(&self) -> Result<&'a [u8], ProtobufError> {
        match self.content {
            Content::Bytes(bytes) => Ok(bytes),
            Content::Varint(_) | Content::Fixed => Err(ProtobufError::WireType(self.number)),
        }
    }

    pub(crate) fn text(&self) -> Result<&'a str, ProtobufError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ProtobufError::Text(self.number))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(message: &[u8]) -> Result<usize, ProtobufError> {
        Values::of(message).try_fold(0, |count, value| value.map(|_| count + 1))
    }

    #[test]
    fn what_breaks_the_encoding_is_told_apart() {
        for (message, expected) in [
            (&[][..], Ok(0)),
            (&[0x08, 0x00], Ok(1)),
            (&[0x08, 0x80, 0x00], Ok(1)), // Longer than needed, but within 64 bits.
            (&[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], Ok(1)),
            (&[0x08, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x02], Err(ProtobufError::Varint)),
            (&[0x08, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00], Err(ProtobufError::Varint)),
            (&[0x08], Err(ProtobufError::Cut)),
            (&[0x08, 0x80], Err(ProtobufError::Cut)),
            (&[0x0A, 0x02, b'a'], Err(ProtobufError::Cut)),
            (&[0x0A, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x01], Err(ProtobufError::Cut)),
            (&[0x09, 0, 0, 0, 0, 0, 0, 0, 0, 0x0D, 0, 0, 0, 0], Ok(2)),
            (&[0x09, 0, 0, 0, 0, 0, 0, 0], Err(ProtobufError::Cut)),
            (&[0x0B, 0x0C], Err(ProtobufError::Tag)),
            (&[0x0E], Err(ProtobufError::Tag)),
            (&[0x00, 0x00], Err(ProtobufError::Tag)),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0x00], Err(ProtobufError::Tag)),
        ] {
            assert_eq!(values(message), expected, "{message:02x?}");
        }
    }

    proptest! {
        #[test]
        fn a_number_is_read_as_it_was_written(value: u64) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            let mut rest = &out[..];
            prop_assert_eq!(take_varint(&mut rest), Ok(value));
            prop_assert!(rest.is_empty());
        }
    }
}
