//! Commands that come in HTTP requests of their own, for clients whose transport goes in one direction only.
//!
//! Such a client learns from the answer to `connect` how to name its session: the node, and the session's id. Each
//! request carries both, and commands. The id is the only proof that a request comes from the client of the session, so
//! it holds [128 random bits](SessionId) and never shows in `Debug`.
//!
//! The driver bounds the commands that wait, by the constants here.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use tidings_types::Format;

use crate::protobuf::{ProtobufError, Values};

/// Commands of one connection that may wait, in frames of the largest size.
pub const EMULATED_FRAME_COUNT_MAX: usize = 4;
/// Bytes of commands that may wait for one loop of connections.
pub const EMULATED_BYTES_MAX: usize = 4 << 20;

/// Names one session of a node: the loop that owns it, and a secret.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionId {
    /// The index of the loop.
    pub loop_index: u16,
    /// 128 random bits, drawn by the caller.
    pub secret: u128,
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:032x}", self.loop_index, self.secret)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SessionId({:x})", self.loop_index)
    }
}

impl FromStr for SessionId {
    type Err = NoSessionIdError;

    fn from_str(text: &str) -> Result<Self, NoSessionIdError> {
        let (loop_index, secret) = text.split_once('-').ok_or(NoSessionIdError)?;
        let loop_index = u16::from_str_radix(loop_index, 16).map_err(|_| NoSessionIdError)?;
        let secret = u128::from_str_radix(secret, 16).map_err(|_| NoSessionIdError)?;
        let id = Self { loop_index, secret };
        (id.to_string() == text).then_some(id).ok_or(NoSessionIdError) // One session has one name.
    }
}

/// The text is not an id that this server has given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session id")]
pub struct NoSessionIdError;

/// Commands for a session. Without `Debug`: it holds the session's id, and what the client sent.
#[derive(Default, PartialEq, Eq, Deserialize)]
pub struct EmulationRequest {
    /// The node of the session.
    #[serde(default)]
    pub node: String,
    /// The session's id.
    #[serde(default)]
    pub session: String,
    /// A frame of commands, in the format of the session.
    #[serde(default, deserialize_with = "bytes_of_text")]
    pub data: Vec<u8>,
}

/// A body that is no [`EmulationRequest`]. The text never repeats what the client sent.
#[derive(Debug, thiserror::Error)]
pub enum EmulationError {
    /// Not a JSON object; serde would take a list for one.
    #[error("the body is no JSON object")]
    NoObject,
    /// JSON that is malformed, or has other types.
    #[error("the body is malformed at line {} column {}", .0.line(), .0.column())]
    Json(serde_json::Error),
    /// Bytes that are no Protobuf message.
    #[error("the body is malformed")]
    Protobuf(#[from] ProtobufError),
}

impl EmulationRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// If the body is not in this format.
    pub fn parse(format: Format, body: &[u8]) -> Result<Self, EmulationError> {
        match format {
            Format::Json if body.trim_ascii_start().first() != Some(&b'{') => Err(EmulationError::NoObject),
            Format::Json => serde_json::from_slice(body).map_err(EmulationError::Json),
            Format::Protobuf => Ok(Self::parse_message(body)?),
        }
    }

    fn parse_message(message: &[u8]) -> Result<Self, ProtobufError> {
        let mut request = Self::default();
        for value in Values::of(message) {
            let value = value?;
            match value.number {
                1 => request.node = value.text()?.to_owned(),
                2 => request.session = value.text()?.to_owned(),
                3 => request.data = value.bytes()?.to_vec(),
                _ => {}
            }
        }
        Ok(request)
    }
}

fn bytes_of_text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    String::deserialize(deserializer).map(String::into_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_has_one_name_which_is_not_shown() {
        let id = SessionId { loop_index: 10, secret: 0xABC };
        let name = "a-00000000000000000000000000000abc";
        assert_eq!((id.to_string().as_str(), name.parse()), (name, Ok(id)));
        assert_eq!(format!("{id:?}"), "SessionId(a)");
        for wrong in
            ["", "-", "a-abc", "A-00000000000000000000000000000abc", "0a-00000000000000000000000000000abc", &name[1..]]
        {
            assert_eq!(wrong.parse::<SessionId>(), Err(NoSessionIdError), "{wrong}");
        }
    }

    #[test]
    fn both_formats_say_the_same_and_what_is_neither_is_refused() {
        let json = br#"{"session":"s","node":"n","data":"{}\n{}","more":1}"#;
        let protobuf = [&b"\x0a\x01n\x12\x01s\x1a\x05{}\n{}"[..], b"\x20\x01"].concat();
        for (format, body) in [(Format::Json, &json[..]), (Format::Protobuf, &protobuf[..])] {
            let read = EmulationRequest::parse(format, body).unwrap();
            assert!((&*read.node, &*read.session, &*read.data) == ("n", "s", b"{}\n{}"));
            assert!(EmulationRequest::parse(format, &body[..body.len() - 1]).is_err());
        }
        for wrong in [&b""[..], b"[]", br#"{"data":{}}"#, br#"{"node":1}"#] {
            assert!(EmulationRequest::parse(Format::Json, wrong).is_err());
        }
    }
}
