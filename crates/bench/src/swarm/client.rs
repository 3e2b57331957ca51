//! What a client of the benchmark reads: WebSocket frames or a stream from a server, and three kinds of messages in them.
//! In JSON a message is a line; in Protobuf each message stands behind its length.
//!
//! Fast rather than complete: it knows what our server and Centrifugo send, and treats anything else as a mistake of the server.

use std::ops::Range;
use std::sync::LazyLock;

use tidings_types::{Format, Transport, Variant};
use tokio::time::Instant;

/// Bytes of a publication's data, the quotation marks included.
const DATA_BYTES: usize = 128;
const DIGIT_COUNT: usize = 16;
/// The bytes before the digits of a publication in JSON.
const MARKER: &[u8] = br#""data":""#;
/// The same in Protobuf: field 4, its length in two bytes, and the quotation mark.
const BINARY_MARKER: &[u8] = &[4 << 3 | 2, (DATA_BYTES | 0x80) as u8, (DATA_BYTES >> 7) as u8, b'"'];
/// The first byte of a push in Protobuf.
const BINARY_PUSH: u8 = 4 << 3 | 2;

/// Microseconds since the first call.
pub(super) fn now_micros() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(START.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// A publication's data: its number and the time when it was made, padded to [`DATA_BYTES`].
pub(crate) fn data(number: u64) -> String {
    let mut text = format!("{number:016x}{:016x}", now_micros());
    text.extend(std::iter::repeat_n('x', DATA_BYTES - 2 - text.len()));
    text
}

/// Number and time of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) number: u64,
    pub(super) micros: u64,
}

impl Stamp {
    pub(super) fn of_data(data: &[u8]) -> Option<Self> {
        let digits = |range: Range<usize>| u64::from_str_radix(std::str::from_utf8(data.get(range)?).ok()?, 16).ok();
        Some(Self { number: digits(0..DIGIT_COUNT)?, micros: digits(DIGIT_COUNT..2 * DIGIT_COUNT)? })
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Ping,
    Publication(Stamp),
    Other(&'a [u8]),
}

impl<'a> Line<'a> {
    pub(super) fn of(variant: Variant, message: &'a [u8]) -> Self {
        let (ping, push, marker) = match variant.format {
            Format::Json if variant.transport.is_unidirectional() => (&b"{}"[..], &b"{\"channel\":"[..], MARKER),
            Format::Json => (&b"{}"[..], &b"{\"push\":"[..], MARKER),
            Format::Protobuf => (&[][..], &[BINARY_PUSH][..], BINARY_MARKER),
        };
        if message == ping {
            return Self::Ping;
        }
        let publication = || {
            message.starts_with(push).then_some(())?;
            let at = message.windows(marker.len()).position(|window| window == marker)?;
            Stamp::of_data(&message[at + marker.len()..])
        };
        publication().map_or(Self::Other(message), Self::Publication)
    }
}

/// Cuts bytes into frames and messages; keeps the bytes of an incomplete frame, or of an incomplete line of a stream.
#[derive(Debug)]
pub(super) struct Inbox {
    variant: Variant,
    unfinished: Vec<u8>,
}

impl Inbox {
    pub(super) fn new(variant: Variant) -> Self {
        Self { variant, unfinished: Vec::new() }
    }

    pub(super) fn variant(&self) -> Variant {
        self.variant
    }

    /// Takes bytes and hands each message of each complete frame to `visit`.
    ///
    /// # Errors
    /// The opcode of the first frame with another opcode than the format has. Our server sends such a frame only to
    /// close.
    pub(super) fn take(&mut self, bytes: &[u8], mut visit: impl FnMut(Line<'_>)) -> Result<(), u8> {
        let joined;
        let mut rest = if self.unfinished.is_empty() {
            bytes
        } else {
            self.unfinished.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.unfinished);
            &joined
        };
        if self.variant.transport != Transport::WebSocket {
            while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
                self.take_line(&rest[..end], &mut visit);
                rest = &rest[end + 1..];
            }
            self.unfinished = rest.to_vec();
            return Ok(());
        }
        while let Some((opcode, payload)) = frame(rest) {
            match (self.variant.format, opcode) {
                (Format::Json, 1) => {
                    let lines = rest[payload.clone()].split(|&byte| byte == b'\n');
                    lines.for_each(|line| visit(Line::of(self.variant, line)));
                }
                (Format::Protobuf, 2) => {
                    messages(&rest[payload.clone()]).for_each(|message| visit(Line::of(self.variant, message)));
                }
                _ => return Err(opcode),
            }
            rest = &rest[payload.end..];
        }
        self.unfinished = rest.to_vec();
        Ok(())
    }

    /// A line of a stream. Lines of the response's head end in CR, and so does the first line of server-sent events.
    fn take_line(&self, line: &[u8], visit: &mut impl FnMut(Line<'_>)) {
        let is_head = line.ends_with(b"\r") && !line.starts_with(b"HTTP/1.1 ") || line == b"HTTP/1.1 200 OK\r";
        let message = line.strip_prefix(b"data: ").unwrap_or(line);
        if !is_head && !line.is_empty() {
            visit(Line::of(self.variant, message));
        }
    }
}

/// The messages of a Protobuf frame. Bytes with wrong framing are returned as one message, which no reader knows.
fn messages(mut frame: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let digits = frame.iter().position(|byte| *byte < 0x80)? + 1;
        let length = frame[..digits].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7F));
        let (message, rest) = frame[digits..].split_at_checked(length).unwrap_or((frame, &[]));
        frame = rest;
        Some(message)
    })
}

/// Opcode and payload range of the first frame; `None` if it is incomplete (RFC 6455, 5.2).
fn frame(bytes: &[u8]) -> Option<(u8, Range<usize>)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let wide = |range: Range<usize>| Some(bytes.get(range)?.iter().fold(0, |sum, &byte| sum << 8 | usize::from(byte)));
    let (start, length): (usize, usize) = match second & 0x7f {
        126 => (4, wide(2..4)?),
        127 => (10, wide(2..10)?),
        length => (2, usize::from(length)),
    };
    (bytes.len() >= start.checked_add(length)?).then_some((first & 0x0f, start..start + length))
}

#[cfg(test)]
mod tests {
    use tidings_protocol::websocket::{close_frame, message_frame};
    use tidings_protocol::{Publication, Tags, encode_publication_push};
    use tidings_types::{ChannelName, Json, Offset};

    use super::*;

    /// A reply and a ping in one frame, then publications.
    fn wire(format: Format, numbers: Range<u64>) -> Vec<u8> {
        let channel = ChannelName::new("bench").unwrap();
        let first = match format {
            Format::Json => &b"{\"id\":1,\"connect\":{}}\n{}"[..],
            Format::Protobuf => &[4, 8, 1, 42, 0, 0],
        };
        let mut wire = message_frame(format, first).to_vec();
        for number in numbers {
            let data = Json::of(&data(number));
            assert_eq!(data.bytes().len(), DATA_BYTES);
            let publication = Publication {
                offset: Offset(number),
                data,
                info: None,
                tags: Tags::default(),
                receipt: None,
                texts: None,
            };
            wire.extend(message_frame(
                format,
                &encode_publication_push(Variant::websocket(format), &channel, &publication),
            ));
        }
        wire
    }

    #[test]
    fn frames_cut_anywhere_give_the_same_messages() {
        let (json, protobuf) = (wire(Format::Json, 1..4), wire(Format::Protobuf, 1..4));
        let cuts = |wire: &[u8]| 0..=wire.len();
        let all = cuts(&json).map(|cut| (Format::Json, &json, cut));
        for (format, wire, cut) in all.chain(cuts(&protobuf).map(|cut| (Format::Protobuf, &protobuf, cut))) {
            let (mut inbox, mut others, mut numbers, mut pings) =
                (Inbox::new(Variant::websocket(format)), 0, Vec::new(), 0);
            for part in [&wire[..cut], &wire[cut..]] {
                let taken = inbox.take(part, |line| match line {
                    Line::Ping => pings += 1,
                    Line::Publication(stamp) => numbers.push(stamp.number),
                    Line::Other(reply) => {
                        assert!(matches!(reply, b"{\"id\":1,\"connect\":{}}" | [8, 1, 42, 0]));
                        others += 1;
                    }
                });
                assert_eq!(taken, Ok(()));
            }
            assert_eq!((others, pings, &*numbers), (1, 1, &[1, 2, 3][..]), "cut at {cut}");
            assert!(inbox.unfinished.is_empty());
        }
    }

    #[test]
    fn a_close_frame_is_not_a_message() {
        for format in Format::ALL {
            assert_eq!(
                Inbox::new(Variant::websocket(format)).take(&close_frame(3008, "slow"), |_| panic!("no message")),
                Err(8)
            );
        }
    }

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_messages() {
        for transport in [Transport::Sse, Transport::HttpStream, Transport::UniSse, Transport::UniHttpStream] {
            let variant = Variant { transport, format: Format::Json };
            let mut wire = b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n".to_vec();
            if matches!(transport, Transport::Sse | Transport::UniSse) {
                wire.extend_from_slice(b"\r\n");
            }
            let channel = ChannelName::new("bench").unwrap();
            let publication = Publication {
                offset: Offset(0),
                data: Json::of(&data(1)),
                info: None,
                tags: Tags::default(),
                receipt: None,
                texts: None,
            };
            let push = encode_publication_push(variant, &channel, &publication);
            for message in [&b"{\"connect\":{}}"[..], b"{}", &push] {
                wire.extend_from_slice(&tidings_protocol::frame(variant, message));
            }
            for cut in 0..=wire.len() {
                let (mut inbox, mut said) = (Inbox::new(variant), Vec::new());
                for part in [&wire[..cut], &wire[cut..]] {
                    let taken = inbox.take(part, |line| {
                        said.push(match line {
                            Line::Ping => 0,
                            Line::Publication(stamp) => stamp.number,
                            Line::Other(reply) => reply.len() as u64,
                        });
                    });
                    assert_eq!(taken, Ok(()));
                }
                assert_eq!(said, [14, 0, 1], "{transport:?} cut at {cut}");
            }
        }
        let mut refused = Vec::new();
        let stream = Variant { transport: Transport::Sse, format: Format::Json };
        let head = b"HTTP/1.1 400 Bad Request\r\n\r\n";
        Inbox::new(stream).take(head, |line| refused.push(matches!(line, Line::Other(_)))).unwrap();
        assert_eq!(refused, [true]);
    }
}
