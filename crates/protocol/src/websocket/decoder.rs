//! Reads a client's WebSocket frames, in whatever pieces they arrive (RFC 6455, section 5).
//!
//! Lengths are checked when a header is whole, before any of its payload is kept: a message over the limit costs
//! nothing. Control frames may stand between the fragments of a message. They have a buffer of their own of at most 125
//! bytes. A violation is answered with the close code of RFC 6455, 7.4.1, and ends the reading. Where the decoder is
//! more lenient than the RFC, a comment at that line says so.

use std::borrow::Cow;

use super::{
    CONTROL_BYTES_MAX, CloseCode, Event, OPCODE_BINARY, OPCODE_CLOSE, OPCODE_CONTINUATION, OPCODE_PING, OPCODE_PONG,
    OPCODE_TEXT,
};

/// The most empty fragments of one message. They take no memory, so the limit of bytes does not end a message that
/// consists of them. One is normal: a sender that streams may end its message with it.
const EMPTY_FRAGMENT_COUNT_MAX: u8 = 64;

/// Two bytes, eight of length, four of mask.
const HEADER_BYTES_MAX: usize = 14;

/// Reads one client's frames. Without `Debug`: it holds what the client sent.
///
/// ```text
///          header whole                 payload whole, last of its message
/// Header ───────────────► Payload ──────────────────────────────────────► Header, an event
///    ▲                       └── payload whole, more to come ──► Header
///    └ any ─ close frame or error ──► Closed
/// ```
pub struct Decoder {
    message_bytes_max: usize,
    /// The unfinished message. Invariant: at most `message_bytes_max` bytes, of memory too.
    message: Vec<u8>,
    /// The opcode of the unfinished message; `None` between messages.
    message_opcode: Option<u8>,
    /// Invariant: at most [`EMPTY_FRAGMENT_COUNT_MAX`].
    empty_fragment_count: u8,
    /// The unfinished control frame. Invariant: at most [`CONTROL_BYTES_MAX`] bytes.
    control: Vec<u8>,
    awaits: Awaits,
    /// Messages are not kept.
    discards: bool,
}

enum Awaits {
    /// The rest of a header, of which `len` bytes have arrived.
    Header {
        bytes: [u8; HEADER_BYTES_MAX],
        len: u8,
    },
    /// The rest of a payload.
    Payload(Frame),
    Closed,
}

impl Awaits {
    const START: Self = Self::Header { bytes: [0; HEADER_BYTES_MAX], len: 0 };
}

/// A frame whose header was read.
#[derive(Clone, Copy)]
struct Frame {
    is_final: bool,
    opcode: u8,
    /// Rotated so that its first byte belongs to the next byte of payload.
    mask: [u8; 4],
    /// Bytes of payload that are still missing.
    remaining: usize,
}

impl Frame {
    fn is_control(&self) -> bool {
        self.opcode >= OPCODE_CLOSE
    }
}

/// What [`Decoder::decode`] found.
#[derive(Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Bytes of the input that are used up; the next call starts behind them.
    pub consumed: usize,
    /// The event, which may borrow from the input.
    pub event: Event<'a>,
}

impl Decoder {
    /// A decoder that refuses messages of more than `message_bytes_max` bytes.
    pub fn new(message_bytes_max: usize) -> Self {
        Self {
            message_bytes_max,
            message: Vec::new(),
            message_opcode: None,
            empty_fragment_count: 0,
            control: Vec::new(),
            awaits: Awaits::START,
            discards: false,
        }
    }

    /// From now on only control frames are events. An unfinished message is forgotten, and no further one is kept.
    pub fn discard(&mut self) {
        (self.message, self.discards) = (Vec::new(), true);
    }

    /// From now on nothing is an event, and nothing is kept.
    pub fn stop(&mut self) {
        *self = Self { awaits: Awaits::Closed, ..Self::new(self.message_bytes_max) };
    }

    /// The memory of an unfinished message, in bytes.
    pub fn bytes_len(&self) -> usize {
        self.message.capacity()
    }

    /// Reads the first event in `input`, the next bytes of the stream. Unmasks in place.
    ///
    /// With [`Event::NeedMore`] all of `input` is used up; otherwise call again with the bytes behind `consumed`.
    ///
    /// # Errors
    /// If the peer breaks the protocol or a limit.
    pub fn decode<'a>(&mut self, input: &'a mut [u8]) -> Result<Decoded<'a>, CloseCode> {
        let decoded = self.decode_events(input);
        let ended = matches!(decoded, Err(_) | Ok(Decoded { event: Event::Close { .. }, .. }));
        if ended {
            self.stop();
        }
        decoded
    }

    fn decode_events<'a>(&mut self, mut input: &'a mut [u8]) -> Result<Decoded<'a>, CloseCode> {
        let whole = input.len();
        loop {
            let mut frame = match &mut self.awaits {
                // RFC 6455, 5.5.1: nothing follows a close frame; 7.1.7: after an error the rest is not processed.
                Awaits::Closed => return Ok(Decoded { consumed: whole, event: Event::NeedMore }),
                Awaits::Payload(frame) => *frame,
                Awaits::Header { bytes, len } => {
                    let (taken, header) = take_header(bytes, len, input);
                    input = &mut std::mem::take(&mut input)[taken..];
                    let Some(header) = header else {
                        return Ok(Decoded { consumed: whole, event: Event::NeedMore });
                    };
                    self.checked(&header)?
                }
            };
            let (payload, rest) = input.split_at_mut(frame.remaining.min(input.len()));
            unmask(payload, &mut frame.mask);
            frame.remaining -= payload.len();
            if let Some(event) = self.take_payload(frame, payload)? {
                return Ok(Decoded { consumed: whole - rest.len(), event });
            }
            if rest.is_empty() {
                return Ok(Decoded { consumed: whole, event: Event::NeedMore });
            }
            input = rest;
        }
    }

    /// Checks the frame against RFC 6455 and the limits, before any of its payload is kept.
    fn checked(&mut self, header: &Header) -> Result<Frame, CloseCode> {
        let frame = header.frame.ok_or(CloseCode::Protocol)?;
        let allowed = match frame.opcode {
            // RFC 6455, 5.4: fragments belong to a message that has begun; no other message begins before its end.
            OPCODE_CONTINUATION => self.message_opcode.is_some(),
            OPCODE_TEXT | OPCODE_BINARY => self.message_opcode.is_none(),
            // RFC 6455, 5.5: control frames are not fragmented and have at most 125 bytes.
            OPCODE_CLOSE | OPCODE_PING | OPCODE_PONG => {
                frame.is_final && header.payload_bytes <= CONTROL_BYTES_MAX as u64
            }
            _ => false, // RFC 6455, 5.2: reserved opcodes.
        };
        if !allowed {
            return Err(CloseCode::Protocol);
        }
        // Our own limit; RFC 6455, 7.4.1 has the code 1008 for it.
        if header.payload_bytes == 0 && !frame.is_control() && !frame.is_final {
            if self.empty_fragment_count == EMPTY_FRAGMENT_COUNT_MAX {
                return Err(CloseCode::Policy);
            }
            self.empty_fragment_count += 1;
        }
        let room = if frame.is_control() { CONTROL_BYTES_MAX } else { self.message_bytes_max - self.message.len() };
        match usize::try_from(header.payload_bytes) {
            Ok(remaining) if remaining <= room => Ok(Frame { remaining, ..frame }),
            _ => Err(CloseCode::TooBig), // RFC 6455, 7.4.1 and 10.4.
        }
    }

    /// Takes an unmasked piece of the frame's payload. Returns the event if the piece completes one.
    fn take_payload<'a>(&mut self, frame: Frame, piece: &'a [u8]) -> Result<Option<Event<'a>>, CloseCode> {
        let buffer = if frame.is_control() { &mut self.control } else { &mut self.message };
        let frame_ends = frame.remaining == 0;
        let event_ends = frame_ends && frame.is_final;
        self.awaits = if frame_ends { Awaits::START } else { Awaits::Payload(frame) };
        let opcode = match self.message_opcode {
            Some(opcode) if !frame.is_control() => opcode,
            _ => frame.opcode,
        };
        if !frame.is_control() {
            self.message_opcode = (!event_ends).then_some(opcode);
            self.empty_fragment_count = if event_ends { 0 } else { self.empty_fragment_count };
            if self.discards {
                return Ok(None);
            }
        }
        if !event_ends {
            append(buffer, piece, self.message_bytes_max);
            return Ok(None);
        }
        let payload = if buffer.is_empty() {
            Cow::Borrowed(piece)
        } else {
            append(buffer, piece, self.message_bytes_max);
            Cow::Owned(std::mem::take(buffer))
        };
        event(opcode, payload).map(Some)
    }
}

/// Appends to a buffer, which grows to twice its size at a time, but never beyond `bytes_max`.
fn append(buffer: &mut Vec<u8>, piece: &[u8], bytes_max: usize) {
    let needed = buffer.len() + piece.len();
    if needed > buffer.capacity() {
        let wanted = (2 * buffer.capacity()).min(bytes_max).max(needed);
        buffer.reserve_exact(wanted - buffer.len());
    }
    buffer.extend_from_slice(piece);
}

/// A header that is read but not checked.
struct Header {
    /// `None` if a reserved bit is set or the frame is not masked.
    frame: Option<Frame>,
    payload_bytes: u64,
}

/// Takes from `input` what the header still lacks. Returns how many bytes that is, and the header if it is whole.
fn take_header(bytes: &mut [u8; HEADER_BYTES_MAX], len: &mut u8, input: &[u8]) -> (usize, Option<Header>) {
    let mut taken = 0;
    loop {
        let have = usize::from(*len);
        let length_bytes = match bytes[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let masked = bytes[1] & 0x80 != 0;
        // The second byte tells the header's size.
        let want = if have < 2 { 2 } else { 2 + length_bytes + if masked { 4 } else { 0 } };
        if have >= 2 && have == want {
            return (taken, Some(read_header(bytes, length_bytes, masked)));
        }
        let piece = &input[taken..input.len().min(taken + want - have)];
        if piece.is_empty() {
            return (taken, None);
        }
        bytes[have..have + piece.len()].copy_from_slice(piece);
        *len += piece.len() as u8;
        taken += piece.len();
    }
}

fn read_header(bytes: &[u8; HEADER_BYTES_MAX], length_bytes: usize, masked: bool) -> Header {
    let payload_bytes = match length_bytes {
        0 => u64::from(bytes[1] & 0x7F),
        // RFC 6455, 5.2 requires the shortest form of a length. Longer forms are accepted, since nothing depends on it.
        _ => bytes[2..2 + length_bytes].iter().fold(0, |sum, &byte| sum << 8 | u64::from(byte)),
    };
    // RFC 6455, 5.2: the bits RSV1 to RSV3 and the top bit of a 64-bit length are zero.
    let reserved = bytes[0] & 0x70 != 0 || payload_bytes > i64::MAX as u64;
    let mask_at = 2 + length_bytes;
    let mask = [bytes[mask_at], bytes[mask_at + 1], bytes[mask_at + 2], bytes[mask_at + 3]];
    let frame = Frame { is_final: bytes[0] & 0x80 != 0, opcode: bytes[0] & 0x0F, mask, remaining: 0 };
    // RFC 6455, 5.1: a client masks all its frames.
    Header { frame: (masked && !reserved).then_some(frame), payload_bytes }
}

fn event(opcode: u8, payload: Cow<'_, [u8]>) -> Result<Event<'_>, CloseCode> {
    Ok(match opcode {
        OPCODE_TEXT => Event::Text(text(payload)?),
        OPCODE_BINARY => Event::Binary(payload),
        OPCODE_PING => Event::Ping(payload),
        OPCODE_PONG => Event::Pong(payload),
        _ => close(payload)?,
    })
}

/// Text is UTF-8 (RFC 6455, 5.6), and so is the reason of a close frame (5.5.1); otherwise 1007 (8.1).
fn text(bytes: Cow<'_, [u8]>) -> Result<Cow<'_, str>, CloseCode> {
    match bytes {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).map(Cow::Borrowed).map_err(|_| CloseCode::InvalidUtf8),
        Cow::Owned(bytes) => String::from_utf8(bytes).map(Cow::Owned).map_err(|_| CloseCode::InvalidUtf8),
    }
}

/// RFC 6455, 5.5.1: a close frame is empty or begins with a code of two bytes.
fn close(payload: Cow<'_, [u8]>) -> Result<Event<'_>, CloseCode> {
    if payload.is_empty() {
        return Ok(Event::Close { code: None, reason: Cow::Borrowed("") });
    }
    let (code, reason) = match payload {
        Cow::Borrowed(bytes) => {
            let (code, reason) = bytes.split_first_chunk::<2>().ok_or(CloseCode::Protocol)?;
            (*code, Cow::Borrowed(reason))
        }
        Cow::Owned(bytes) => {
            let (code, reason) = bytes.split_first_chunk::<2>().ok_or(CloseCode::Protocol)?;
            (*code, Cow::Owned(reason.to_vec()))
        }
    };
    let code = u16::from_be_bytes(code);
    // RFC 6455, 7.4.1, and its registry of codes (11.7): 1004, 1005, 1006 and 1015 must not be sent.
    match code {
        1000..=1003 | 1007..=1014 | 3000..=4999 => Ok(Event::Close { code: Some(code), reason: text(reason)? }),
        _ => Err(CloseCode::Protocol),
    }
}

/// Unmasks a piece of payload and rotates the mask so that it fits the next piece (RFC 6455, 5.3).
fn unmask(payload: &mut [u8], mask: &mut [u8; 4]) {
    let [a, b, c, d] = *mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let len = payload.len();
    let mut words = payload.chunks_exact_mut(8);
    for word in &mut words {
        let bytes: &mut [u8; 8] = word.try_into().expect("chunks have eight bytes");
        *bytes = (u64::from_ne_bytes(*bytes) ^ wide).to_ne_bytes();
    }
    for (byte, key) in words.into_remainder().iter_mut().zip([a, b, c, d].iter().cycle()) {
        *byte ^= key;
    }
    mask.rotate_left(len % 4);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::append;

    proptest! {
        #[test]
        fn a_buffer_never_has_room_for_more_than_it_may_hold(pieces in prop::collection::vec(0_usize..400, 0..20)) {
            const BYTES_MAX: usize = 1000;
            let mut buffer = Vec::new();
            for count in pieces {
                let count = count.min(BYTES_MAX - buffer.len());
                append(&mut buffer, &vec![7; count], BYTES_MAX);
                prop_assert!(buffer.capacity() <= BYTES_MAX, "{}", buffer.capacity());
            }
            prop_assert!(buffer.iter().all(|byte| *byte == 7));
        }
    }
}
