//! What a client of the benchmark reads: WebSocket frames from a server, and three kinds of messages in them. In JSON a
//! message is a line; in Protobuf each message stands behind its length.
//!
//! Fast rather than complete: it knows what our server sends, and treats anything else as a mistake of the server.

use std::ops::Range;
use std::sync::LazyLock;

use tidings_types::Format;
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
pub(super) fn data(number: u64) -> String {
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
    pub(super) fn of(format: Format, message: &'a [u8]) -> Self {
        let (ping, push, marker) = match format {
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

/// Cuts bytes into frames and messages; keeps the bytes of an incomplete frame.
#[derive(Debug)]
pub(super) struct Inbox {
    format: Format,
    unfinished: Vec<u8>,
}

impl Inbox {
    pub(super) fn new(format: Format) -> Self {
        Self { format, unfinished: Vec::new() }
    }

    pub(super) fn format(&self) -> Format {
        self.format
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
        while let Some((opcode, payload)) = frame(rest) {
            match (self.format, opcode) {
                (Format::Json, 1) => {
                    let lines = rest[payload.clone()].split(|&byte| byte == b'\n');
                    lines.for_each(|line| visit(Line::of(self.format, line)));
                }
                (Format::Protobuf, 2) => {
                    messages(&rest[payload.clone()]).for_each(|message| visit(Line::of(self.format, message)));
                }
                _ => return Err(opcode),
            }
            rest = &rest[payload.end..];
        }
        self.unfinished = rest.to_vec();
        Ok(())
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
    use tidings_types::{ChannelName, Json, Offset, Variant};

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
            let publication =
                Publication { offset: Offset(number), data, info: None, tags: Tags::default(), receipt: None };
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
            let (mut inbox, mut others, mut numbers, mut pings) = (Inbox::new(format), 0, Vec::new(), 0);
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
            assert_eq!(Inbox::new(format).take(&close_frame(3008, "slow"), |_| panic!("no message")), Err(8));
        }
    }
}
