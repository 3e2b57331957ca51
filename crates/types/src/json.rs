//! A JSON value that is carried without being interpreted.
//!
//! Payloads are checked once, when they arrive. Then they are shared bytes that are copied into larger messages: a
//! publication's frame, a row, a notification. They are not parsed again. Source: RFC 8259.
//!
//! Bounds: the reader of a body bounds its bytes, and its levels with [`check_json_depth`]. Neither check recurses. A
//! value from one of the server's own rows is not checked again.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use serde_json::value::RawValue;

/// The most nested lists and objects in JSON from outside. Messages that contain such JSON have at most 28 more levels,
/// so that they stay within the 128 levels that serde_json reads.
pub const JSON_DEPTH_MAX: usize = 100;

/// JSON has more levels than [`JSON_DEPTH_MAX`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must have at most {JSON_DEPTH_MAX} levels of lists and objects, got {depth}")]
pub struct JsonDepthError {
    /// The number of levels.
    pub depth: usize,
}

/// Checks the levels of lists and objects in `json`. Bytes that are not JSON may pass.
///
/// # Errors
/// If there are more than [`JSON_DEPTH_MAX`].
pub fn check_json_depth(json: &[u8]) -> Result<(), JsonDepthError> {
    // Almost all JSON has fewer brackets than the limit. To count them is much faster than to find the texts.
    if json.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() <= JSON_DEPTH_MAX {
        return Ok(());
    }
    let (mut depth, mut deepest, mut is_text) = (0_usize, 0, false);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_text = !is_text,
            b'\\' if is_text => _ = bytes.next(),
            b'[' | b'{' if !is_text => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !is_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if deepest > JSON_DEPTH_MAX { Err(JsonDepthError { depth: deepest }) } else { Ok(()) }
}

/// One JSON value as text, shared and never parsed again.
///
/// Invariant: valid JSON in UTF-8 without raw line breaks, so it can be copied into a message of one line.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Bytes);

/// The bytes are not one JSON value.
#[derive(Debug, thiserror::Error)]
#[error("not a JSON value")]
pub struct JsonError(#[from] serde_json::Error);

impl Json {
    /// Checks that `bytes` is one JSON value; raw line breaks (legal only between tokens) become spaces.
    ///
    /// # Errors
    /// If it is not exactly one JSON value.
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
    /// If `value` cannot be JSON (a map with keys that are not strings): a programming error.
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

// Payloads must never appear in a log: Debug shows only the size.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_counted_outside_of_texts() {
        let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "0" + &close.repeat(depth);
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"["\"[",0,"#, "]")] {
            assert_eq!(check_json_depth(nested(open, close, JSON_DEPTH_MAX).as_bytes()), Ok(()), "{open}");
            let depth = JSON_DEPTH_MAX + 1;
            assert_eq!(
                check_json_depth(nested(open, close, depth).as_bytes()),
                Err(JsonDepthError { depth }),
                "{open}"
            );
        }
        let flat = ["[]", "{}", r#""\\""#, r#""[[[\"{{{""#].repeat(1000).join(",");
        assert_eq!(check_json_depth(format!("[{flat}]").as_bytes()), Ok(()));
    }
}
