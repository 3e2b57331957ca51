//! A JSON value that is carried, not understood.
//!
//! Payloads are checked once, when they come in, and from then on are shared bytes that are spliced into larger
//! messages: into a publication's frame, a row, a notification. Nobody walks through them again. Size is bounded by
//! whoever reads the body; nesting is not bounded, but checking does not recurse. Source: RFC 8259.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

/// One JSON value as text, shared and never parsed again.
///
/// Invariant: valid JSON in UTF-8 without raw line breaks, so it can be spliced into a line-framed message.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Bytes);

/// The bytes are not one JSON value.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON value: {0}")]
pub struct JsonError(#[from] serde_json::Error);

impl Json {
    /// Checks that `bytes` is one JSON value; raw line breaks (legal only between tokens) become spaces.
    ///
    /// # Errors
    /// When it is not exactly one JSON value.
    pub fn parse(bytes: &[u8]) -> Result<Self, JsonError> {
        let raw: &RawValue = serde_json::from_slice(bytes)?;
        Ok(Self::from_raw(raw))
    }

    /// Takes a value that serde has already checked.
    pub fn from_raw(raw: &RawValue) -> Self {
        let text = raw.get().as_bytes();
        if text.iter().any(|byte| matches!(byte, b'\n' | b'\r')) {
            let one_line: Vec<u8> =
                text.iter().map(|&byte| if matches!(byte, b'\n' | b'\r') { b' ' } else { byte }).collect();
            return Self(one_line.into());
        }
        Self(Bytes::copy_from_slice(text))
    }

    /// Serialises `value`.
    ///
    /// # Panics
    /// When `value` cannot be JSON (a map with keys that are no strings): a programming error.
    pub fn of<T: Serialize>(value: &T) -> Self {
        Self(serde_json::to_vec(value).expect("our own shapes have string keys").into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("JSON is UTF-8")
    }

    /// The text as shared bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }
}

// Payloads never reach a log (invariant 9): Debug tells the size only.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let raw: &RawValue = serde_json::from_slice(&self.0).map_err(ser::Error::custom)?;
        raw.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer).map_err(de::Error::custom)?;
        Ok(Self::from_raw(&raw))
    }
}
