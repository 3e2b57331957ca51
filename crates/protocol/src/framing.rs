//! What stands around a message on each transport, so that messages can be written one after the other.
//!
//! | Transport | A message is |
//! |---|---|
//! | WebSocket | one frame: text in JSON, binary in Protobuf |
//! | server-sent events | `data: `, the message, an empty line |
//! | HTTP stream, JSON | a line, in pure ASCII |
//! | HTTP stream, Protobuf | the message: its length stands before it |
//!
//! A line of JSON over an HTTP stream is pure ASCII, because versions of the JavaScript SDK before 5.8 decode each piece
//! of the stream by itself: a character that is cut in two is lost there without notice. Versions before 5.8 also give up
//! on half a Protobuf message; nothing that the server writes can prevent that.

use bytes::Bytes;
use tidings_types::{Format, Transport, Variant};

use crate::websocket;

/// One message as it stands on the wire.
pub fn frame(variant: Variant, message: &[u8]) -> Bytes {
    match (variant.transport, variant.format) {
        (Transport::WebSocket | Transport::UniWebSocket, format) => websocket::message_frame(format, message),
        (Transport::Sse | Transport::UniSse, _) => [b"data: ", message, b"\n\n"].concat().into(),
        (Transport::HttpStream | Transport::UniHttpStream, Format::Json) => ascii_line(message),
        (Transport::HttpStream | Transport::UniHttpStream, Format::Protobuf) => Bytes::copy_from_slice(message),
    }
}

/// JSON as a line of ASCII. In JSON only texts have other characters, and there each may be written as an escape.
fn ascii_line(json: &[u8]) -> Bytes {
    let mut line = Vec::with_capacity(json.len() + 1);
    for chunk in json.utf8_chunks() {
        debug_assert!(chunk.invalid().is_empty(), "JSON is UTF-8");
        for character in chunk.valid().chars() {
            if character.is_ascii() {
                line.push(character as u8);
                continue;
            }
            for unit in character.encode_utf16(&mut [0; 2]) {
                line.extend_from_slice(format!("\\u{unit:04x}").as_bytes());
            }
        }
    }
    line.push(b'\n');
    line.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn framed(transport: Transport, format: Format, message: &[u8]) -> Vec<u8> {
        frame(Variant { transport, format }, message).to_vec()
    }

    #[test]
    fn each_transport_has_its_frame() {
        for (transport, format, expected) in [
            (Transport::WebSocket, Format::Json, &b"\x81\x02{}"[..]),
            (Transport::WebSocket, Format::Protobuf, b"\x82\x02{}"),
            (Transport::UniWebSocket, Format::Json, b"\x81\x02{}"),
            (Transport::Sse, Format::Json, b"data: {}\n\n"),
            (Transport::UniSse, Format::Json, b"data: {}\n\n"),
            (Transport::HttpStream, Format::Json, b"{}\n"),
            (Transport::HttpStream, Format::Protobuf, b"{}"),
            (Transport::UniHttpStream, Format::Json, b"{}\n"),
        ] {
            assert_eq!(framed(transport, format, b"{}"), expected, "{transport:?} {format:?}");
        }
    }

    proptest! {
        #[test]
        fn a_line_is_ascii_and_means_what_it_was_made_of(text: String) {
            let value = Value::String(text);
            let line = framed(Transport::HttpStream, Format::Json, value.to_string().as_bytes());
            prop_assert!(line.is_ascii() && line.iter().filter(|byte| **byte == b'\n').count() == 1);
            prop_assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), value);
        }
    }
}
