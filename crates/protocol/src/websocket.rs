//! WebSocket framing of the server's side, without I/O (RFC 6455, sections 5 and 7).
//!
//! The [`Decoder`] gets the bytes of the stream as they arrive, in any pieces. A whole message in one frame is unmasked
//! in place and borrowed. Of an unfinished message only the bytes that have arrived are kept, at most
//! `message_bytes_max`. A finished message takes its buffer with it, so an idle connection holds none. Not here: the
//! HTTP handshake (except [`accept_key`]) and extensions; a frame that uses an extension is refused.
//!
//! Text is checked to be UTF-8 when its message is whole, not fragment by fragment (RFC 6455, 8.1 allows both).
//!
//! After a close frame or an error the decoder ignores all further bytes.

use std::borrow::Cow;
use std::fmt;

use aws_lc_rs::digest;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use tidings_types::Format;

mod decoder;

pub use decoder::{Decoded, Decoder};

/// Payload bytes of a control frame (RFC 6455, 5.5).
pub const CONTROL_BYTES_MAX: usize = 125;

/// What the peer has sent.
#[derive(PartialEq, Eq)]
pub enum Event<'a> {
    /// A text message.
    Text(Cow<'a, str>),
    /// A binary message.
    Binary(Cow<'a, [u8]>),
    /// To be answered with [`pong_frame`] of the same payload.
    Ping(Cow<'a, [u8]>),
    /// An answer to a ping frame, or an unsolicited pong.
    Pong(Cow<'a, [u8]>),
    /// The peer closes; answer with [`close_frame`]. Without a code it means 1005, which is never sent (RFC 6455,
    /// 7.4.1).
    Close {
        /// The code of the reason.
        code: Option<u16>,
        /// The reason in words.
        reason: Cow<'a, str>,
    },
    /// No event is complete yet.
    NeedMore,
}

// Messages contain tokens and payloads, which must never appear in a log.
impl fmt::Debug for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Binary(bytes) => write!(f, "Binary({} bytes)", bytes.len()),
            Self::Ping(bytes) => write!(f, "Ping({} bytes)", bytes.len()),
            Self::Pong(bytes) => write!(f, "Pong({} bytes)", bytes.len()),
            Self::Close { code, .. } => write!(f, "Close({code:?})"),
            Self::NeedMore => f.write_str("NeedMore"),
        }
    }
}

/// How the peer broke the protocol. The connection is to be closed with this code (RFC 6455, 7.4.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u16)]
pub enum CloseCode {
    /// A frame that RFC 6455 does not allow.
    #[error("frame breaks the WebSocket protocol")]
    Protocol = 1002,
    /// Text that is not UTF-8.
    #[error("text message is not UTF-8")]
    InvalidUtf8 = 1007,
    /// A message with too many empty fragments.
    #[error("message has too many empty fragments")]
    Policy = 1008,
    /// A message that is too long.
    #[error("message is over the size limit")]
    TooBig = 1009,
}

impl CloseCode {
    /// The number.
    pub fn code(self) -> u16 {
        self as u16
    }
}

const OPCODE_CONTINUATION: u8 = 0;
const OPCODE_TEXT: u8 = 1;
const OPCODE_BINARY: u8 = 2;
const OPCODE_CLOSE: u8 = 8;
const OPCODE_PING: u8 = 9;
const OPCODE_PONG: u8 = 10;

/// One message as one frame, header and payload in one piece: text for JSON, binary for Protobuf.
pub fn message_frame(format: Format, payload: &[u8]) -> Bytes {
    frame(if format == Format::Json { OPCODE_TEXT } else { OPCODE_BINARY }, payload)
}

/// The answer to a ping frame (RFC 6455, 5.5.3). A payload over [`CONTROL_BYTES_MAX`] is cut; a ping frame cannot have
/// one.
pub fn pong_frame(payload: &[u8]) -> Bytes {
    frame(OPCODE_PONG, &payload[..payload.len().min(CONTROL_BYTES_MAX)])
}

/// A close frame. The reason is cut at a character's boundary to fit into a control frame (RFC 6455, 5.5.1).
pub fn close_frame(code: u16, reason: &str) -> Bytes {
    let reason = &reason[..reason.floor_char_boundary(CONTROL_BYTES_MAX - 2)];
    let mut payload = Vec::with_capacity(2 + reason.len());
    payload.extend_from_slice(&code.to_be_bytes());
    payload.extend_from_slice(reason.as_bytes());
    frame(OPCODE_CLOSE, &payload)
}

fn frame(opcode: u8, payload: &[u8]) -> Bytes {
    const FINAL: u8 = 0x80;
    const HEADER_BYTES_MAX: usize = 10; // A server does not mask (RFC 6455, 5.1).
    let mut out = BytesMut::with_capacity(HEADER_BYTES_MAX + payload.len());
    out.put_u8(FINAL | opcode);
    match payload.len() {
        len @ 0..=125 => out.put_u8(len as u8),
        len @ 126..=0xFFFF => {
            out.put_u8(126);
            out.put_u16(len as u16);
        }
        len => {
            out.put_u8(127);
            out.put_u64(len as u64);
        }
    }
    out.put_slice(payload);
    out.freeze()
}

/// The `Sec-WebSocket-Accept` for the client's `Sec-WebSocket-Key` in the handshake (RFC 6455, 4.2.2).
pub fn accept_key(sec_websocket_key: &str) -> String {
    let mut hash = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
    hash.update(sec_websocket_key.as_bytes());
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    BASE64_STANDARD.encode(hash.finish())
}

#[cfg(test)]
mod tests;
